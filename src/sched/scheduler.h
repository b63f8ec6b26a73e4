/* scheduler.h - one step after another: which requests compute what, in which slots.
 *
 * The scheduler owns the tree, the pools and the batch; one thread owns the scheduler
 * and calls everything here but scheduler_cancel. There are no threads inside but one that
 * computes masks of constrained requests (rule_masks.h): the engine calls scheduler_step in a loop.
 *
 *     scheduler_add -> waiting -> (matched, admitted) PREFILL -> DECODE -> on_output
 *                        ^                                |
 *                        +------------- retracted --------+
 *
 * Kept at every moment:
 *   P2  free + cached + held by requests == all            scheduler_check
 *   P3  committed_len grows only after the forward pass that wrote the K/V succeeded
 * and: a finished request is in the tree, and its slots are given back, before its last
 * output is handed out. */
#ifndef SCHED_SCHEDULER_H
#define SCHED_SCHEDULER_H

#include <radish/evict_policy.h>
#include <radish/hicache.h>
#include <radish/kv_events.h>

#include "model/runner.h"
#include "sched/cache_tap.h"
#include "sched/req.h"
#include "sched/schedule_policy.h"
#include "sched/scheduler_stats.h"
#include "sched/step_info.h"

typedef struct scheduler scheduler;

/* What a step did to one request. */
typedef struct req_output {
    req *req;        /* when finish is not NONE it is the receiver's again */
    rad_token token; /* the new output id, or -1 for none */
    uint32_t completion_tokens;
    prompt_hits hits;
    req_finish finish;
    token_logprob *logprobs; /* of token, when asked for: the receiver's to give back to the
                              * scheduler's env, req_logprobs_bytes of it; else NULL */
    /* Of the prompt's next positions, likewise; they come in their order, each once, before or with
     * the first token. Of the first one there is no logprob but NAN, and no others. */
    token_logprob *prompt_logprobs;
    uint32_t num_prompt_logprobs;
} req_output;

typedef struct scheduler_params {
    runner *runner;               /* not owned */
    uint32_t cache_kind;          /* rad_cache_kind */
    uint32_t page_size;           /* 0 means 1 */
    uint64_t max_total_tokens;    /* of the KV pool; rounded down to whole pages */
    uint64_t window_total_tokens; /* of the pool that layers with a window have beside it, rounded
                                   * likewise; 0: none, they mask and keep every key. Not with
                                   * tiers. */
    uint32_t max_states;          /* of a model with recurrent layers (state_memory.h); 0: as many
                                   * as rows and tokens make use of */
    uint32_t state_interval;      /* tokens between snapshots of a long prompt; 0: by their size */
    rad_token turn_token; /* that each message of a conversation begins with; 0: not known */
    uint32_t max_running_requests; /* rows */
    uint32_t max_queued_requests;
    uint32_t chunked_prefill_size;           /* prompt tokens a step; 0 = never chunk */
    uint32_t context_length;                 /* 0 = the runner's */
    schedule_policy policy;                  /* 0 = longest prefix first */
    bool enable_priority_scheduling;         /* priority before the policy's own order */
    bool schedule_low_priority_values_first; /* else the highest value goes first */
    uint64_t random_seed;                    /* of SCHEDULE_RANDOM */
    uint64_t max_itl_ns; /* a step that decodes takes no more prompts than keep it below this, as
                          * far as can be told (step_cost.h); 0 = no limit */
    uint32_t max_draft_tokens;   /* of a request in a step (draft.h); 0: nothing is drafted */
    uint32_t draft_sources;      /* draft_bit of those that are asked (draft_source.h) beside
                                  * forced ones */
    uint32_t draft_recent_tokens; /* of answers that DRAFT_RECENT keeps, draft_recent_capacity of it;
                                   * 0: it is off */
    runner *draft_runner; /* a small model of the same tokens (draft_model.h); not owned; NULL:
                           * there is none. It is a source by itself */
    draft_guesser draft_given;   /* and this one; propose NULL: there is none */
    double verify_rate;          /* share of the requests that are computed again, see verify.h */
    uint64_t self_check_ns;      /* an idle scheduler checks itself so often; 0 = never */
    bool disable_partial_reuse;  /* of a page that begins alike, nothing is used */
    bool disable_tree_attention; /* do not tell the runner what its requests share */

    bool (*is_end_token)(void *user, rad_token token); /* NULL: no token is one */
    /* The outputs of a step, at its end; also those of cancelled requests. */
    void (*on_output)(void *user, const req_output *outputs, uint32_t count);
    void (*on_admit)(void *user, req *r); /* left the queue for the first time; may be NULL */
    void *user;

    /* Of the cache (radish/session.h, retention.h); RAD_E_INVAL for a ChunkCache. */
    uint32_t max_sessions;      /* open at one time; 0: none */
    bool streaming_sessions;    /* each keeps its K/V and row between turns; else tags */
    bool retention;             /* requests may ask to be retained */
    uint64_t max_pinned_tokens; /* budget of pins; 0: none */

    bool explain_namespaces; /* count what other namespaces have cached of a prompt */
    bool kv_events; /* the cache tells what enters and leaves it, on all tiers: see
                     * scheduler_take_events. Not for a ChunkCache */

    rad_eviction_options eviction; /* of the cache; all 0: lru */
    uint32_t max_namespaces;       /* of the cache and of its host tier; 0 = by their pages */

    /* Tiers below the device (hicache.h), not kept after create: `cache`, the host pools and
     * `device_pool` are filled in. NULL: none, and the host pool's defaults. Where there is window
     * memory it has a host pool besides: of the same ratio, or of its share of the bytes. */
    const rad_hicache_params *hicache;
    const rad_host_kv_pool_params *host_pool;

    /* After each forward pass that succeeded; NULL: nobody watches. */
    void (*on_step)(void *step_user, const step_info *step);
    void *step_user;

    cache_tap tap; /* likewise, of each call of the cache */
} scheduler_params;

/* New tokens that a batch can have at most: what the runner must be made for. A step
 * computes chunked_prefill_size prompt tokens beside one token of each decoding request. */
uint32_t scheduler_max_batch_tokens(const scheduler_params *params, uint32_t context_length);

/* Rows of logits that a batch can have at most, likewise: one of each request, or more of few. */
uint32_t scheduler_max_batch_logits(uint32_t max_running_requests);

/* Rows of slots that there are, likewise: the running requests', the one that is computed again
 * (verify_rate), those that sessions keep between turns. */
uint32_t scheduler_num_rows(const scheduler_params *params);

/* RAD_E_INVAL in words for params that cannot work, RAD_E_NOMEM with the bytes wanted. */
rad_status scheduler_create(const rad_env *env, const scheduler_params *params, scheduler **out,
                            rad_error *err);

/* Requests that are left are released and forgotten without an output: they stay the
 * caller's. NULL is fine. */
void scheduler_destroy(scheduler *s);

/* Queues a request. RAD_FULL: the queue is full. RAD_E_INVAL, RAD_E_LIMIT in words: an id
 * outside the vocabulary, a prompt longer than the context in force (which is at most the
 * KV pool, so that whatever is accepted fits once it is alone). Then the request stays the
 * caller's. max_new_tokens is cut to what the context leaves. */
rad_status scheduler_add(scheduler *s, req *r, rad_error *err);

/* Asks for the end of a request; `why` is REQ_FINISH_ABORT or REQ_FINISH_STOP. Any thread,
 * as long as the request's last output has not been taken. The first ask counts. The
 * output follows at the next step unless the request ends by itself in the running one. */
void scheduler_cancel(scheduler *s, req *r, req_finish why);

/* Sessions, which requests name (req_params.session): RAD_FULL when as many are open as may be,
 * RAD_E_UNSUPPORTED where there are none, RAD_E_STATE for one that is not open. What a closed one
 * has running goes on. */
rad_status scheduler_session_open(scheduler *s, uint32_t *session, rad_error *err);
rad_status scheduler_session_close(scheduler *s, uint32_t session, rad_error *err);

/* Pins the longest cached prefix of the key for ttl_ns, 0: no longer; *num_tokens: so much of it.
 * RAD_E_UNSUPPORTED: max_pinned_tokens is 0. */
rad_status scheduler_pin_prefix(scheduler *s, const rad_key *key, uint64_t ttl_ns,
                                uint32_t *num_tokens, rad_error *err);

/* One step. False: there was nothing to do. */
bool scheduler_step(scheduler *s);

bool scheduler_is_idle(const scheduler *s); /* nothing waits or runs */
/* Something is left to be done beside requests, verifying or transfers between the tiers:
 * steps of an idle scheduler do it. */
bool scheduler_has_background(const scheduler *s);
bool scheduler_has_cancels(const scheduler *s);

uint32_t scheduler_context_length(const scheduler *s); /* in force */
schedule_policy scheduler_policy(const scheduler *s);

/* Where K and V lie: for what any thread may do with a pool. NULL: every layer has a window. */
rad_token_to_kv_pool *scheduler_kv_pool(const scheduler *s);
/* No slot from this one on was ever handed out; most below it were. O(1). */
size_t scheduler_used_slots(const scheduler *s);
/* The same of the pool of layers with a window; NULL and 0: there is no window memory. */
rad_token_to_kv_pool *scheduler_window_pool(const scheduler *s);
size_t scheduler_used_window_slots(const scheduler *s);

/* O(transfers under way). */
void scheduler_get_stats(const scheduler *s, scheduler_stats *stats);

/* Every request that runs, then those that fetch, then those that wait, by arrival; until visit
 * says no. And the cache, for those who only look: tree_look.h. */
typedef bool (*scheduler_visit_fn)(void *user, const req *r, bool fetching);
void scheduler_visit_reqs(const scheduler *s, scheduler_visit_fn visit, void *user);
const rad_cache *scheduler_cache(const scheduler *s);

uint32_t scheduler_window(const scheduler *s); /* tokens that window memory keeps; 0: there is none */
uint64_t scheduler_forward_steps(const scheduler *s);
const struct step_cost *scheduler_step_cost(const scheduler *s); /* step_cost.h */

/* KV events since the last call, and what is cached now as events: rad_cache_take_events and
 * rad_cache_snapshot_events. RAD_E_STATE: scheduler_params.kv_events is off. */
rad_status scheduler_take_events(scheduler *s, rad_kv_event_fn visit, void *user);
rad_status scheduler_snapshot_events(scheduler *s, rad_kv_event_fn visit, void *user);

/* P2 and every structure's own check, over all live requests. RAD_E_CORRUPT in words.
 * O(all slots). */
rad_status scheduler_check(const scheduler *s, rad_error *err);

/* The same piece by piece, for an owner with nothing else to do (self_check.h): how long until
 * the next piece is due (UINT64_MAX: not while it is as it is), and that piece, if it is. */
uint64_t scheduler_self_check_due_ns(const scheduler *s);
void scheduler_self_check(scheduler *s);

/* Empties the cache: device and host. RAD_AGAIN unless idle. */
rad_status scheduler_flush_cache(scheduler *s);

/* The same for some tiers (RAD_TIER_...). RAD_AGAIN also while transfers are under way;
 * RAD_E_UNSUPPORTED for one that is not there. */
rad_status scheduler_flush_tiers(scheduler *s, uint32_t tiers, rad_error *err);

/* Another store, or none, while idle: see rad_hicache_attach_storage and _detach_storage. */
rad_status scheduler_attach_storage(scheduler *s, const rad_storage *storage, rad_error *err);
rad_status scheduler_detach_storage(scheduler *s, rad_storage *was, rad_error *err);

/* What pages are stored under, while no store is attached; and for work with the store that
 * another thread does meanwhile: see rad_hicache_identify, _hold_storage, _release_storage. */
rad_status scheduler_identify_storage(scheduler *s, const rad_storage_identity *identity,
                                      rad_error *err);
rad_status scheduler_hold_storage(scheduler *s, rad_storage *store, rad_error *err);
void scheduler_release_storage(scheduler *s, bool cleared);

/* For comparing: from now on as if created with this cache kind, and with tree attention or
 * without, in the same memory; the cache is empty then. RAD_AGAIN unless idle, with nothing in the
 * background; RAD_E_UNSUPPORTED with tiers; RAD_E_INVAL, RAD_E_NOMEM: it is as it was. O(all
 * slots). */
rad_status scheduler_set_cache(scheduler *s, uint32_t cache_kind, bool tree_attention,
                               rad_error *err);

/* Who guesses, as draft_bits: of those that the params ask for, such as can. 0: nothing is drafted.
 */
uint32_t scheduler_draft_sources(const scheduler *s);

/* For comparing, too: nothing is drafted any more, or again as the params say. */
void scheduler_set_drafts(scheduler *s, bool on);

#endif
