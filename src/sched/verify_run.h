/* verify_run.h - what verify.c and verify_run.c share with the scheduler. */
#ifndef SCHED_VERIFY_RUN_H
#define SCHED_VERIFY_RUN_H

#include "sched/scheduler_impl.h"

uint64_t verify_digest(const float *logits, uint32_t vocab_size);
void verify_free(verifier *v, verify_record *record);

/* Computes one chunk; false when there is nothing to verify. Only while nobody runs. */
bool verify_idle_step(scheduler *s);

/* After a step: computes a chunk when it is time, not longer than --max-itl-ms leaves. */
void verify_busy_step(scheduler *s);

/* Gives back the pages of a request that is computed again; false when it holds none. */
bool verify_yield(scheduler *s);

#endif
