/* req_why.h - where a request's cached tokens came from, and why there were no more of them.
 *
 * Written at its first admission, and once more if the load of it fails; final before the
 * first output token. Plain values, so that it can be handed on. */
#ifndef SCHED_REQ_WHY_H
#define SCHED_REQ_WHY_H

#include <radish/hicache_explain.h>

#include "base/base.h"

/* Tokens of a prompt that were found when it was first admitted. */
typedef struct prompt_hits {
    uint32_t cached;  /* on any tier */
    uint32_t loaded;  /* of these: came from the host */
    uint32_t fetched; /* of these: came there from storage */
    uint32_t copied;  /* of cached: the front of a page that begins alike, see partial_page.h */
} prompt_hits;

/* How one tier ended. */
typedef struct req_tier_end {
    uint32_t why;            /* rad_match_end */
    uint32_t evicted_tokens; /* behind it, known to have been there once */
    uint64_t evicted_ns_ago; /* at the admission; RAD_END_EVICTED only, as the next two */
    const char *policy;      /* static */
    uint32_t cause;          /* rad_eviction_cause */
    uint32_t reserved;
} req_tier_end;

typedef struct req_why {
    bool known;     /* it was admitted, and the cache explains */
    bool has_tiers; /* else `device` is all there is */
    bool load_failed;
    bool is_cut; /* the prompt was computed from here on, whatever is cached: its logprobs or */
    uint32_t cut_from; /* hidden states were wanted */
    req_tier_end device;
    req_tier_end host;
    uint32_t host_tokens;                  /* that the host had behind the device's */
    uint32_t load;                         /* rad_load_refusal */
    uint32_t prefetch;                     /* rad_prefetch_end of its last prefetch */
    uint32_t asked_tokens, present_tokens; /* of that one; see rad_prefetch_report */
} req_why;

struct scheduler;
struct req;

/* r's prefetch was refused, has begun or has ended just now. */
void req_why_prefetched(struct scheduler *s, struct req *r);

/* r has been admitted for the first time: `key` was matched and locked, `load` is what the host
 * answered. O(num_tokens). */
void req_why_admitted(struct scheduler *s, struct req *r, const rad_key *key,
                      const rad_load_result *load);

#endif
