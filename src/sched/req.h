/* req.h - one generation request as the scheduler sees it.
 *
 *     fill_ids   | input ids ........ | output ids .. |
 *                0                    num_input       num_input + num_output
 *
 * The last output id has no K/V yet: it is the input of the next step. A request
 * that is retracted keeps its outputs and is prefilled again over all fill_ids, so
 * input and output are one array.
 *
 * Of the prompt itself a request may want logprobs (what the model says behind each of its tokens)
 * or hidden states. A position is computed for them though its K/V may be cached: next_row is the
 * first whose row of the model's output is still wanted, and no match goes past it
 * (req_most_cached).
 *
 *     cached, matched | computed, and nothing asked | computed, a row each ......... |
 *     0               match                         next_row, then one chunk further  num_input
 *
 * The caller places the struct. Between scheduler_add and the output whose finish
 * is not REQ_FINISH_NONE it belongs to the scheduler's thread; only `cancel` may be
 * touched by others (scheduler_cancel). */
#ifndef SCHED_REQ_H
#define SCHED_REQ_H

#include "base/base.h"
#include "model/pooling.h"
#include "model/sampler.h"
#include "sched/draft.h"
#include "sched/req_why.h"
#include "sched/token_rule.h"
#include <radish/cache.h>
#include <radish/state_pool.h>
#include <stdatomic.h>

typedef enum req_state {
    REQ_WAITING = 0, /* in the queue, holds nothing */
    REQ_PREFILL,     /* has a row; part of fill_ids is not computed yet */
    REQ_DECODE,      /* has a row; one new token a step */
    REQ_FINISHED
} req_state;

typedef enum req_finish {
    REQ_FINISH_NONE = 0,
    REQ_FINISH_STOP,   /* an end token, or a stop found by the caller */
    REQ_FINISH_LENGTH, /* max_new_tokens, or the context is full */
    REQ_FINISH_ABORT,  /* cancelled */
    REQ_FINISH_ERROR   /* see req.error */
} req_finish;

enum { REQ_MOST_FORKS = 8 };

typedef struct req_params {
    const rad_token *ids; /* copied */
    uint32_t num_ids;
    uint32_t max_new_tokens;         /* UINT32_MAX = as many as the context allows */
    sampling_params sampling;        /* its arrays are not copied: they outlive the request */
    const rad_token *stop_token_ids; /* copied; end the request also under ignore_eos */
    uint32_t num_stop_token_ids;
    bool ignore_eos;       /* the vocabulary's end tokens are ordinary ones */
    token_rule *rule;      /* what it may say; the caller's, outlives the request. NULL: anything */
    const prediction *prediction; /* what it will likely say; likewise. NULL: nobody knows */
    const rad_token *told; /* for measuring: its first num_told tokens, whatever the model says; */
    uint32_t num_told;     /* likewise. NULL: what the model says */
    int32_t priority;      /* its own under --schedule-policy priority; of what it leaves cached */
    const char *extra_key; /* copied; NULL = none */
    const char *cache_salt;
    uint32_t session;           /* scheduler_session_open; 0 = none */
    int32_t retention_priority; /* 1..99: what it leaves cached is retained, see retention.h */
    uint64_t retention_idle_ns; /* until it was idle for so long; 0 = for good */
    uint64_t pin_ns;            /* what it leaves cached is pinned for so long; 0 = not, */
    uint32_t pin_tokens;        /* up to there; 0 = all of it */
    bool prompt_logprobs;       /* of the prompt's tokens from this one on: */
    uint32_t prompt_logprobs_from;
    hidden_pooling pooling; /* of hidden states of so many numbers: */
    uint32_t hidden_dim;
    void *user;
} req_params;

typedef struct req {
    rad_env env;
    void *user;

    rad_token *fill_ids;
    uint32_t fill_capacity;
    uint32_t num_input;
    uint32_t num_output;
    uint32_t max_new_tokens;
    sampling_params sampling;
    rad_token *stop_token_ids;
    uint32_t num_stop_token_ids;
    int32_t priority;
    bool ignore_eos;
    token_rule *rule; /* stands behind the newest output id */
    const prediction *prediction;
    const rad_token *told;
    uint32_t num_told;
    char *extra_key;
    char *cache_salt;
    uint32_t session;
    int32_t retention_priority;
    uint64_t retention_idle_ns, pin_ns;
    uint32_t pin_tokens;
    bool prompt_logprobs;
    uint32_t prompt_logprobs_from;
    hidden_pooling pooling;
    uint32_t hidden_dim;
    double *hidden_sum; /* [hidden_dim] of req_pooled tokens so far; NULL: pooling is NONE */

    /* The scheduler's. */
    req_state state;
    uint64_t arrival;       /* place in the order of scheduler_add */
    rad_req_kv kv;          /* empty unless PREFILL or DECODE */
    rad_state state_from;   /* what stood behind its match, until its first step is computed */
    uint32_t match_tokens;  /* how long its match was, */
    uint32_t seen_tokens;   /* and how far it found K/V, with a state there or not */
    uint32_t message_start; /* where its last message begins, and the opening of the one to come; */
    uint32_t turn_start;    /* 0: not known. state_memory.h */
    uint32_t forks[REQ_MOST_FORKS]; /* where others that wait branch off; of this step */
    uint32_t num_forks;
    prompt_hits hits;
    uint32_t counted_load; /* the ticket of the load that brought hits.loaded; 0: none did */
    req_why why;           /* why there were no more; final before the first output */
    uint32_t prefetch;     /* a ticket (hicache.h); 0: none */
    bool no_load;          /* a load of it failed: the host is not asked again */
    bool admitted;         /* at least once: hits are final, but for a load that fails */
    uint32_t num_retractions;
    uint64_t hold_leader; /* arrival of the last one that this request, as the oldest, waited for */
    uint32_t num_holds;   /* such leaders so far; bounded, so that nobody waits for ever */
    struct {
        uint64_t hash; /* of its last whole page so far, */
        uint32_t pages; /* and how many these are */
    } recorded;           /* the listener's of cache_tap.h */
    uint32_t wait_node;   /* its leaf in the wait_queue; 0 = none */
    struct req *wait_prev, *wait_next;  /* in the wait_queue, by arrival */
    struct verify_record *verify;       /* NULL: it is not going to be verified */
    bool verify_skipped;                /* it was chosen, but there was no room */
    atomic_int cancel;                  /* req_finish that somebody asks for, or 0 */
    req_draft draft;
    token_logprob *logprobs;            /* of the newest output id, until its output takes them */
    uint32_t next_row;                  /* of the prompt; UINT32_MAX: none is wanted any more */
    uint32_t num_prompt_logprobs;       /* positions of the prompt in: */
    token_logprob *new_prompt_logprobs; /* this step's, until an output takes them */

    /* Final once finish is not REQ_FINISH_NONE. */
    req_finish finish;
    rad_token matched_token; /* the end token, or -1 */
    rad_error error;         /* for REQ_FINISH_ERROR */
} req;

/* Copies everything. RAD_E_INVAL for an empty prompt, RAD_E_NOMEM; then *r needs no
 * fini (but may have it). */
rad_status req_init(req *r, const rad_env *env, const req_params *params, rad_error *err);
void req_fini(req *r); /* a zeroed req is fine */

/* Appends an output id; RAD_E_NOMEM when fill_ids cannot grow (nothing changed). */
rad_status req_append(req *r, rad_token token);

/* Room behind fill_ids for `count` more. RAD_E_NOMEM, and nothing changed. */
rad_status req_reserve(req *r, uint32_t count);

static inline uint32_t req_num_fill(const req *r)
{
    return r->num_input + r->num_output;
}

/* Bytes of the logprobs of so many positions, sampler_num_logprobs each. */
size_t req_logprobs_bytes(const sampling_params *p, uint32_t positions);

/* The cache may give it so many tokens: all but the last one, and none whose row is wanted. */
static inline uint32_t req_most_cached(const req *r)
{
    return RAD_MIN(req_num_fill(r) - 1, r->next_row);
}

/* Rows of the model's output are wanted of the prompt's positions from next_row to this. */
static inline uint32_t req_end_of_rows(const req *r)
{
    return r->num_input - (r->prompt_logprobs ? 1 : 0); /* the last one's is the answer's first */
}

/* Rows that it wants of the positions [from, end) of its prompt; one that chooses a token is not
 * counted. */
static inline uint32_t req_rows_within(const req *r, uint32_t from, uint32_t end)
{
    const uint32_t first = RAD_MAX(from, r->next_row), last = RAD_MIN(end, req_end_of_rows(r));
    return last > first ? last - first : 0;
}

/* What was added to hidden_sum is of no use: it begins anew. */
void req_drop_hidden(req *r);

/* Hidden states that are in hidden_sum when the prompt is computed. */
static inline uint32_t req_pooled(const req *r)
{
    return r->pooling == POOL_MEAN ? r->num_input : r->pooling == POOL_LAST;
}

/* fill_ids[0..num_tokens) under the request's namespace, and the same as its session's: the
 * latter for what the session itself finds and keeps. */
rad_key req_key(const req *r, uint32_t num_tokens);
rad_key req_session_key(const req *r, uint32_t num_tokens);

bool req_same_namespace(const req *a, const req *b);

/* Sets finish, matched_token from the newest output id. */
void req_check_finished(req *r, bool is_end_token);

#endif
