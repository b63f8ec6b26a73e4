/* simulate.h - plays a trace through servers whose caches are libradish's own, indices only.
 *
 *     request -> router -> server k: device, and a host tier below it -> storage that all share
 *
 * One request at a time, in the order of the trace. A server's host tier and the storage get
 * whatever is published (write-through) and are caches like the device's, with the same policy;
 * what they have beyond the device is loaded, and is on the device then. What takes time is counted
 * apart: a server computes prompts one after the other, in the order of their arrival.
 *
 * A model: a real server has several requests at one time, so that some run before what they could
 * share is there, copies take time, and pages of running requests cannot be evicted. */
#ifndef REPLAY_SIMULATE_H
#define REPLAY_SIMULATE_H

#include <radish/evict_policy.h>

#include "replay/page_chains.h"
#include "replay/trace.h"

enum { SIMULATE_MOST_SERVERS = 64, SIMULATE_SPANS = 60 };

typedef enum simulate_router {
    ROUTE_ROUND_ROBIN = 0,
    ROUTE_HASH,  /* of the first pages: what begins alike goes to one server */
    ROUTE_CACHE, /* who has most of the prompt on device or host, if that is half of it and he is
                  * not far busier than the others; else who is least busy */
    ROUTERS
} simulate_router;

const char *simulate_router_name(unsigned router); /* NULL: there is none */

typedef struct simulate_prices { /* seconds; all 0: nothing is timed */
    double prompt_token_s;       /* of a prompt token, and */
    double pair_s;               /* of each position before it */
    double decode_s;             /* of a token of an answer, in steps with others */
    double load_token_s;         /* from the host, instead of computing it */
    double fetch_token_s;        /* from storage */
} simulate_prices;

typedef struct simulate_params {
    const char *policy;            /* NULL: what eviction.policy says */
    uint32_t page_size;            /* in elements; 0 means 1 */
    uint32_t num_servers;          /* 0 means 1 */
    uint64_t capacity_elements;    /* of each server's pool; whole pages are used */
    uint64_t host_elements;        /* of each server's host tier; 0: none */
    uint64_t storage_elements;     /* of the storage; 0: none */
    rad_eviction_options eviction; /* its cost_attention_tokens in tokens, whatever an element is */
    simulate_router router;
    uint32_t reserved;
    simulate_prices prices;
    const page_chains *chains; /* of this page size: misses are told apart; NULL: they are not */
} simulate_params;

typedef struct simulate_misses { /* prompt tokens that were computed */
    uint64_t first_seen;         /* nobody had asked for them before; */
    uint64_t evicted;            /* they had been there; */
    uint64_t other_server;       /* they had been on other servers only; */
    uint64_t other_namespace;    /* in other namespaces only; */
    uint64_t rounded; /* or they fill no page, with the last token, which is always computed */
} simulate_misses;

typedef struct simulate_result { /* one cell of the report */
    uint64_t requests;
    uint64_t too_large;     /* did not fit the pool even alone: matched, not inserted */
    uint64_t prompt_blocks; /* pages of all prompts, the last one may be partial */
    uint64_t prompt_tokens;
    uint64_t hit_blocks; /* on any tier */
    uint64_t hit_tokens;
    uint64_t host_tokens, storage_tokens; /* of these, from there */
    uint64_t evicted_elements;            /* of the devices */
    simulate_misses misses;               /* with chains */
    double prompt_cost; /* of computing all prompts, where a token at position p costs */
    double hit_cost;    /* 1 + p / cost_attention_tokens; and what the hits saved of it */
    /* With prices: */
    double compute_s;                        /* prompts, without any hit */
    double saved_s;                          /* of this, by hits, less what loading takes */
    double first_token_s, first_token_p95_s; /* mean, and one in twenty takes longer */
    double busiest;                          /* the busiest server's part of the time */
    /* Over the trace's time, or its requests where it has no times, in equal spans: */
    uint64_t span_prompt[SIMULATE_SPANS], span_hit[SIMULATE_SPANS]; /* tokens */
    double seconds;                                                 /* of the simulation alone */
} simulate_result;

/* RAD_E_INVAL when the capacity is below one page or there is no such policy; RAD_E_NOMEM. */
rad_status simulate(const rad_env *env, const trace *t, const simulate_params *params,
                    simulate_result *result, rad_error *err);

#endif
