/* cache_tap.h - what the scheduler asks of its cache, told in order as it happens.
 *
 * For whoever writes it down (engine/recorder.h): with the same calls in the same order another
 * cache of the same params comes to the same tree. Called behind each call, with its answer, on the
 * scheduler's thread; nothing may be asked of the scheduler meanwhile. */
#ifndef SCHED_CACHE_TAP_H
#define SCHED_CACHE_TAP_H

#include "sched/req.h"

typedef enum cache_tap_kind {
    TAP_ARRIVE,       /* r is queued */
    TAP_MATCH,        /* num_tokens were looked for, `answer` found, and their end is locked */
    TAP_BEGIN,        /* the turn of r's session; status */
    TAP_DROP,         /* the lock went back */
    TAP_ADMIT,        /* r runs for the first time: r->hits */
    TAP_UNFINISHED,   /* num_tokens committed; asked: chunked; status; answer: protected tokens */
    TAP_FINISHED,     /* num_tokens committed; asked: is_insert; status; states as it came */
    TAP_WINDOW,       /* num_tokens committed; asked: up to where its window side is given back */
    TAP_EVICT_WINDOW, /* asked: tokens; answer: evicted tokens */
    TAP_PUT_STATE,    /* asked: how deep on r's path; status */
    TAP_EVICT_STATE,  /* asked: snapshots; answer: evicted ones */
    TAP_EVICT,        /* asked: tokens; answer: evicted tokens */
    TAP_RELEASE_IDLE, /* asked: sessions; answer */
    TAP_OPEN,         /* asked: the session; status */
    TAP_CLOSE,        /* likewise */
    TAP_PIN,          /* num_tokens of r, or of a key without one; asked: ns */
    TAP_RETAIN,       /* num_tokens of r */
    TAP_RESET,
    TAP_LEAVE,     /* r has ended */
    TAP_POLL,      /* what is done is taken; free_pages before it. With tiers, like the rest */
    TAP_COMPLETED, /* before the operation that finds it: ticket, status; asked: hi_completion.look
                    * (hicache/completion.h) */
    TAP_LOAD,      /* num_tokens were looked for on the host; asked: tokens at most; free_pages;
                    * status: rad_load_refusal; answer: loaded tokens */
    TAP_READY,     /* loads begin */
    TAP_LOADED,    /* how r's load ended: status */
    TAP_CLEAR,     /* asked: RAD_TIER_...; status */
    TAP_STORE      /* a store was attached */
} cache_tap_kind;

typedef struct cache_tap_op {
    cache_tap_kind kind;
    req *r; /* NULL: nobody's. Behind TAP_FINISHED and TAP_DROP its kv is empty */
    uint32_t num_tokens;
    int32_t status;
    uint64_t asked, answer;
    uint32_t state_len, spare_len; /* of TAP_UNFINISHED, TAP_FINISHED: as in rad_req_kv; 0: none */
    uint32_t ticket;
    uint32_t free_pages; /* of the device: with tiers some decisions look at them */
    const rad_key *key;  /* of TAP_PIN without a request */
} cache_tap_op;

/* NULL fn: nobody listens, and a branch is all that it costs. */
typedef struct cache_tap {
    void (*fn)(void *user, const cache_tap_op *op);
    void *user;
} cache_tap;

#define CACHE_TAP(tap, ...)                                                                        \
    do {                                                                                           \
        const cache_tap *tap_ = (tap);                                                             \
        if (tap_->fn) tap_->fn(tap_->user, &(cache_tap_op){__VA_ARGS__});                          \
    } while (0)

#endif
