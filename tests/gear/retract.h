/* retract.h - requests that are thrown back into the queue although there is memory.
 *
 * A program that is linked with -Wl,--wrap=scheduler_step (tests/CMakeLists.txt) takes its steps by
 * the one here, which first retracts a request in every n-th step that has one decoding: its own
 * steps, and those of an engine's thread. */
#ifndef GEAR_RETRACT_H
#define GEAR_RETRACT_H

#include "sched/scheduler_impl.h"

/* For all schedulers of the process from now on; 0: no more. The steps are counted anew. */
void gear_retract_every(uint32_t n);

#endif
