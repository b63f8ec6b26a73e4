/* verify.h - recomputes finished requests cold and alone, and compares bit by bit.
 *
 * Promise P1 as a running check: a share of the requests has a 64-bit digest of the logits
 * kept for every token that was drawn. When nobody runs or waits, and after every
 * VERIFY_EVERY-th step of a scheduler that is never idle, such a request is computed a bit
 * further once more, over pages of its own that the tree never sees, in chunks of at most
 * VERIFY_CHUNK tokens; each row of logits must have the digest of then. The first
 * difference is logged and counted. (Equal digests of different rows: one in 2^64.)
 *
 *     recorded with the request:   ids | digest after num_input, num_input + 1, ... tokens
 *
 * Verification has the lowest priority:
 *   - Between two of its chunks the scheduler runs whatever requests have arrived.
 *   - When a request lacks pages, the verifier frees its own at once (counted). The record that it
 *     was verifying moves to the end of the queue and starts over later, so a long record cannot
 *     block the short ones behind it.
 *   - Its own pages it gets as any request does: by evicting.
 * VERIFY_QUEUE records wait at most; what finishes beyond that is not recorded (counted as
 * skipped). */
#ifndef SCHED_VERIFY_H
#define SCHED_VERIFY_H

#include "sched/req.h"
#include "sched/scheduler_stats.h"

enum { VERIFY_CHUNK = 64, VERIFY_EVERY = 16, VERIFY_QUEUE = 64 };

typedef struct verify_record {
    struct verify_record *next; /* in the queue */
    uint64_t arrival;
    rad_token *ids; /* [num_ids], copied when the request ends */
    uint32_t num_ids, num_input;
    uint64_t *digests;
    uint32_t num_digests, capacity;
} verify_record;

typedef struct verifier {
    rad_env env;
    uint32_t threshold;   /* of 2^32: how many requests are chosen; 0 = none */
    uint32_t num_records; /* recording or waiting */
    uint64_t seed;
    verify_record *first, *last;
    rad_req_kv kv;       /* of the one that is computed */
    uint32_t next;       /* digest to be compared */
    uint32_t busy_steps; /* since the last chunk beside others */
    uint64_t busy_ns;    /* that a chunk after the last step took */
    verify_stats stats;
} verifier;

/* `rate` 0..1 is the share of requests. */
void verify_init(verifier *v, const rad_env *env, double rate, uint64_t seed);
void verify_fini(verifier *v);

/* Whether r is one of those that are verified, so that the logits of its next token are noted. */
bool verify_notes(const verifier *v, const req *r);

/* The logits that its next token is drawn from. */
void verify_note(verifier *v, req *r, const float *logits, uint32_t vocab_size);

/* The request has ended: its record waits to be verified, or is dropped (keep false). */
void verify_submit(verifier *v, req *r, bool keep);

#endif
