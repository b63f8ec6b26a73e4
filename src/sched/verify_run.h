/* verify_run.h - what verify.c and verify_run.c share with the scheduler. */
#ifndef SCHED_VERIFY_RUN_H
#define SCHED_VERIFY_RUN_H

#include "sched/scheduler_impl.h"

uint64_t verify_digest(const float *logits, uint32_t vocab_size);
void verify_free(verifier *v, verify_record *record);
void verify_queue(verifier *v, verify_record *record); /* at the end */

/* Computes one chunk; false when there is nothing to verify. Only while nobody runs. */
bool verify_idle_step(scheduler *s);

/* After a step: computes a chunk when it is time, not longer than --max-itl-ms leaves. */
void verify_busy_step(scheduler *s);

/* Pages that the request which is computed again holds. */
kv_pages verify_held_pages(const scheduler *s);

/* Gives back what it holds, if anything. */
void verify_release(scheduler *s);

/* The same because others need it; counted, and that request goes to the end of the queue.
 * False when it holds no pages. */
bool verify_yield(scheduler *s);

#endif
