/* engine_inspect.h - what people who watch an engine are shown: its tree, its requests, its times.
 *
 * All of it is copied by the scheduler's thread between two steps, and none of it is put into words
 * there: a look waits for the step that runs, and costs the steps what copying costs. Any thread
 * may look, one at a time for each struct; not the scheduler's. */
#ifndef ENGINE_ENGINE_INSPECT_H
#define ENGINE_ENGINE_INSPECT_H

#include "cache/tree_look.h"
#include "engine/engine.h"
#include "engine/latency.h"

enum { ENGINE_LOOK_REQUESTS = 256 };

typedef enum engine_request_state {
    ENGINE_REQUEST_WAITING,
    ENGINE_REQUEST_FETCHING, /* waits for what comes from storage */
    ENGINE_REQUEST_PREFILL,
    ENGINE_REQUEST_DECODE
} engine_request_state;

typedef struct engine_request_look {
    uint64_t id;     /* engine_submit's */
    uint64_t age_ns; /* since submit */
    engine_request_state state;
    uint32_t prompt_tokens, output_tokens;
    uint32_t computed_tokens; /* that have K/V now; 0 of one that waits */
    uint32_t max_new_tokens;  /* UINT32_MAX: as many as the context allows */
    rad_ref node;             /* it holds the path to this one; {0, 0}: none */
    prompt_hits hits;         /* of the prompt; final where why.known */
    req_why why;
    uint32_t session; /* 0: none */
    int32_t priority;
    uint32_t retractions;
    uint32_t reserved;
} engine_request_look;

typedef struct engine_look {
    engine_stats stats;
    uint64_t now_ns; /* of the env's clock, when it was taken */
    uint64_t clock;  /* operations of the cache so far */
    eviction_notes evictions;
    uint32_t num_requests; /* of them: those that run, then those that wait, by arrival; there */
    bool more_requests;    /* are more */
    engine_request_look requests[ENGINE_LOOK_REQUESTS];
    latency_histogram latency[LATENCY_KINDS];
} engine_look;

/* One visit to the scheduler's thread: O(requests told of). RAD_E_STATE: the engine is ending. */
rad_status engine_look_at(engine *e, engine_look *look);

/* A slice more of the tree (tree_look.h): a visit each, so that steps go on between them.
 * RAD_E_STATE likewise. */
rad_status engine_look_at_tree(engine *e, tree_look *look);

/* tree_look_tokens. */
rad_status engine_look_at_tokens(engine *e, rad_ref node, uint32_t from, rad_token *tokens,
                                 uint32_t *count, uint32_t *total);

#endif
