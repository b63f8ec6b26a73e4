/* engine.h - a loaded model with its threads: requests in, events out.
 *
 *     caller -> tokenizer_manager -> scheduler -> detokenizer_manager -> on_event
 *               (template, encode)   (one step after another)  (UTF-8, stop strings)
 *
 * Data has one owner thread each; between them are bounded rings. The scheduler
 * thread owns the tree, the pools and the batch. Callers may be any threads. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/memory_budget.h"
#include "engine/kv_publisher.h"
#include "engine/recorder.h"
#include "engine/latency.h"
#include "grammar/grammar.h"
#include "model/sampler.h"
#include "model/weights_policy.h"
#include "sched/req_why.h"
#include "sched/scheduler_stats.h"
#include "sched/step_info.h"
#include "text/chat_template.h"
#include <radish/evict_policy.h>
#include <radish/hicache.h>
#include <radish/token_to_kv_pool.h>

typedef struct engine engine;

/* What 0 stands for in engine_params; of the tiers, see RAD_HICACHE_... as well. Numbers alone:
 * --help puts them into words. */
#define ENGINE_MAX_QUEUED_REQUESTS  4096
#define ENGINE_CHUNKED_PREFILL_SIZE 2048
#define ENGINE_HICACHE_RATIO        2

#define ENGINE_PIN_QUARTER UINT64_MAX /* of the KV pool */

/* max_sessions: as many as the next, or none where nothing is cached. */
#define ENGINE_USUAL_SESSIONS UINT32_MAX
#define ENGINE_NUM_SESSIONS   256

typedef struct engine_params {
    const char *model_path;
    const char *served_model_name; /* NULL = general.name of the file, else its file name */
    const char *chat_template;     /* NULL = auto; "none"; else see chat_template_create */
    rad_dtype dtype;               /* RAD_F32 or RAD_BF16: KV, and weights unless ... */
    weights_policy weights;        /* ... quantised ones are kept or made */
    const char *kv_cache_dtype;    /* f32, bf16, f16, fp8_e4m3, fp8_e5m2 or int8; NULL or auto: as
                                    * dtype */
    uint32_t num_threads;          /* compute threads; 0 = one per CPU */

    double mem_fraction_static;    /* 0 = 0.8: weights + KV as a part of available memory */
    uint64_t max_total_tokens;     /* KV pool size in tokens; 0 = from mem_fraction_static, and
                                    * where that is 0 too at most 64 contexts */
    uint32_t max_running_requests; /* 0 = derived from pool and memory, 64..4096 */
    int32_t chunked_prefill_size;  /* tokens; 0 = the default; -1 = never chunk */
    uint32_t page_size;            /* 0 = 1 */
    uint32_t context_length;       /* 0 = the model's */
    uint32_t max_queued_requests;  /* 0 = the default; past it submit answers RAD_FULL */
    bool disable_radix_cache;
    bool use_attn_ref;    /* the slow judge instead of attn_cpu */
    uint64_t random_seed; /* seeds of requests without one; 0 = from the clock */

    void (*progress)(void *user, uint64_t done, uint64_t total); /* while loading */
    void *progress_user;

    bool dtype_by_device; /* nobody asked for `dtype`: it is the CPU's, a GPU takes its own */
    bool on_gpu;          /* the engine's own */
    uint16_t reserved;

    rad_eviction_options eviction; /* what the cache gives up first; all 0: lru */
    uint32_t max_namespaces; /* cache_salt and the like, at one time; 0 = by the pool's pages */

    /* Called on the scheduler's thread after each forward pass; NULL: nobody watches. */
    void (*on_step)(void *step_user, const step_info *step);
    void *step_user;
    const char *schedule_policy;             /* see engine_schedule_policies; NULL = lpm */
    bool enable_priority_scheduling;         /* priority before the policy's own order */
    bool schedule_low_priority_values_first; /* else the highest value goes first */
    uint32_t max_itl_ms; /* prompts are cut so that a step in which others decode stays below
                          * this; 0 = no limit */
    double verify_rate;  /* share of the requests that are computed once more without the cache
                          * and compared, as far as there is time and room; 0 = none */
    bool disable_tree_attention; /* read shared K/V once for each request */

    /* Tiers below the KV pool (radish/hicache.h). Words as SGLang's; NULL or 0 = default. */
    bool enable_hierarchical_cache;
    double hicache_ratio;                        /* host tokens per KV pool token */
    double hicache_size;                         /* GB of host memory instead of the ratio */
    const char *hicache_write_policy;            /* write_through, _selective, write_back */
    const char *hicache_mem_layout;              /* page_first, layer_first */
    const char *hicache_eviction_policy;         /* what the host gives up first: lru, ... */
    const char *hicache_storage_backend;         /* file:DIR or redis:HOST:PORT,...; NULL: none */
    const char *hicache_storage_prefetch_policy; /* timeout, wait_complete, best_effort */
    const char *hicache_storage_backend_extra_config; /* a JSON object */
    const char *hicache_storage_mode;                 /* of a directory's files: 0600, 0640, 0660 */
    uint32_t hicache_load_back_threshold;             /* tokens: fewer on the host are computed */
    uint32_t hicache_prefetch_threshold;              /* tokens: fewer in storage are not fetched */
    uint32_t hicache_max_transfers;                   /* at one time */
    uint32_t hicache_copy_threads;                    /* between device and host */
    uint32_t hicache_store_threads;                   /* between host and storage */
    bool hicache_pin_memory;                          /* the host tier is locked into memory */

    memory_budget *request_memory; /* what all requests together may hold outside of the KV pool:
                                    * prompts, ids, stop strings; outlives the engine. NULL: no
                                    * limit but the queue's */
    uint32_t max_sessions;         /* open at one time (engine_session_open); 0: none;
                                    * ENGINE_USUAL_SESSIONS */
    bool streaming_sessions;       /* each keeps all its K/V and a row between turns; else its turns
                                    * order eviction (radish/session.h) */
    bool retention;                /* requests may ask to be retained (radish/retention.h) */
    uint64_t max_pinned_tokens;    /* that requests may pin; 0: none; ENGINE_PIN_QUARTER */
    bool disable_partial_reuse;    /* with pages of several tokens, use of them whole ones only */
    double self_check_interval_s;  /* an idle engine checks all slots and structures so often, see
                                    * sched/self_check.h; 0 = never */
    double swa_full_tokens_ratio;  /* tokens of window layers' K/V for each token of the others'; 0:
                                    * by window and context, see engine_size.c */
    bool disable_hybrid_swa_memory; /* layers with a window mask, and every key is kept */
    uint32_t max_mamba_cache_size;  /* states of recurrent layers (sched/state_memory.h); 0: by */
    double mamba_full_memory_ratio; /* their bytes for each of K/V; 0: 0.9, but no more than there
                                     * is use for */
    uint32_t mamba_track_interval; /* tokens between snapshots of a long prompt; 0: by their size */

    const char
        *pooling; /* of embeddings: "last", "mean"; NULL or "auto": as the model says, or last */

    const char *speculative_algorithm;     /* who guesses tokens beside the grammars of constrained
                                            * requests: names of sources (sched/draft_source.h) with
                                            * commas between them, "tree,ngram"; "none", NULL: nobody */
    uint32_t speculative_ngram_capacity;   /* tokens of recent answers that "recent" guesses from */
    uint32_t speculative_num_draft_tokens; /* of a request at one time; 0: nothing is guessed */
    const char *speculative_draft_model_path; /* a small model's file with the same vocabulary: it
                                               * guesses, too (sched/draft_model.h); NULL: none */
    uint64_t draft_token_bytes;               /* the engine's own: of a token of the pool, for it */

    uint64_t kv_populate_ahead; /* bytes of the KV pool, beyond what was used at some time, whose
                                 * memory a thread makes ready while nothing runs; 0 = it comes
                                 * when it is written */

    bool explain_namespaces; /* count tokens that other namespaces have cached, see
                              * rad_cache_params; takes a walk of each for a request */
    const char *kv_events_config; /* KV events for routers, see kv_events_config.h; NULL: none */
    const char *record;           /* the cache's operations go to this file (recorder.h); NULL: not */
    uint64_t record_limit;        /* bytes of it; 0: RECORDER_LIMIT_BYTES */

    const char *device; /* where it computes: cpu (also NULL), cuda, cuda:N, or auto: a GPU where
                         * one can be used */
} engine_params;

/* "lpm (default; the longest cached prefix), ...": schedule_policy's names, for manuals. */
const char *engine_schedule_policies(char *text, size_t size);

/* Loads the model and starts the threads. Errors as gguf_open, model_runner_create,
 * tokenizer_create; RAD_E_NOMEM says what would fit. */
rad_status engine_create(const rad_env *env, const engine_params *params, engine **out,
                         rad_error *err);

enum { ENGINE_MOST_WEIGHT_TYPES = 20 };

/* What a model takes, in bytes: foretold from its metadata, nothing is loaded. */
typedef struct engine_memory {
    uint32_t context_length; /* for which it is told */
    uint32_t full_layers, window_layers, sliding_window;
    uint64_t full_token_bytes, window_token_bytes; /* K/V of a token, in layers of each kind */
    const char *kv_cache_dtype;
    uint32_t state_layers;   /* recurrent ones; 0: there are none */
    uint32_t context_states; /* that such a context has: its own, and snapshots on the way */
    uint32_t state_interval; /* tokens between these */
    uint32_t state_reserved;
    uint64_t state_bytes; /* one, of all these layers */

    uint64_t weights_bytes;
    struct {
        const char *name;
        uint64_t bytes;
    } types[ENGINE_MOST_WEIGHT_TYPES]; /* of its matrices; the rest are embeddings and vectors */
    uint32_t num_types;
    uint32_t nextn_layers; /* of full_layers: a head that guesses further tokens; or 0 */
    char why_no_nextn[400]; /* the file has one, and it cannot be used; else "" */
    uint64_t draft_weights_bytes; /* of the draft model; 0: there is none; and */
    uint64_t draft_token_bytes;   /* for each token of the pool */
    /* Of the model: */
    uint64_t batch_bytes;   /* buffers of a step of that context's prompt */
    uint64_t kv_bytes;      /* of a whole context, in both kinds of layers, and its states */
    uint64_t text_bytes;    /* tokenizer and chat template */
    uint64_t program_bytes; /* code, threads, tables */
    uint64_t index_bytes;   /* of the pool */
    uint64_t total_bytes;   /* of one context: all of these */

    /* Here and now, with these params. */
    char device[16];          /* where it would compute: "cpu", "cuda:0" */
    char device_name[96];     /* of a GPU */
    char why_no_gpu[400];     /* of device auto, on the CPU */
    uint64_t device_bytes;    /* of a GPU's memory */
    uint64_t available_bytes; /* on the device; 0: unknown */
    double mem_fraction_static;
    uint64_t max_total_tokens; /* 0: it does not fit, as `why` says */
    uint64_t window_total_tokens;
    uint64_t max_states;
    uint64_t resident_bytes; /* of a server that has had one such context, and made K/V ready ahead
                              * (kv_populate_ahead); on a GPU: of its memory, with the whole pool */
    uint64_t guess_bytes;    /* more, of the host's, once it has said much, and for many at one time:
                              * what answers are guessed from */
    char why[400];
} engine_memory;

/* Errors are those that loading would meet but for want of memory. Of tensors nothing is read. */
rad_status engine_foretell(const rad_env *env, const gguf_file *file, const engine_params *params,
                           engine_memory *out, rad_error *err);

/* Aborts what is left, waits for the threads, frees everything. NULL is fine. */
void engine_destroy(engine *e);

typedef struct engine_info { /* constant after create; strings live as long as e */
    const char *model_name;
    const char *model_path;
    const char *architecture;
    const char *chat_template; /* "" when the model has none that we know */
    const char *attn_backend;
    const char *dtype; /* of the weights: "bf16", "bf16+q8_0" */
    const char *kv_cache_dtype;
    uint32_t vocab_size;
    uint32_t context_length; /* in force */
    uint32_t page_size;
    uint32_t max_running_requests;
    uint32_t chunked_prefill_size; /* 0 = off */
    uint32_t num_threads;
    uint64_t max_total_tokens;
    uint64_t kv_bytes_per_token;        /* but for layers that have window memory: */
    uint64_t window_total_tokens;       /* of it; 0: there is none */
    uint64_t window_kv_bytes_per_token; /* and what one takes there */
    const char *draft_model_path;       /* "": there is none */
    uint64_t draft_weights_bytes;       /* of it, */
    uint64_t draft_bytes_per_token;     /* and what it takes beside each token of the KV pool */
    uint32_t sliding_window;            /* of the model, 0: none */
    uint32_t state_layers;              /* recurrent ones; 0: none, and so */
    uint64_t max_states;                /* that their pool has, */
    uint64_t state_bytes;               /* of each one, */
    uint32_t state_interval;            /* and tokens between snapshots of a long prompt */
    bool knows_turns;                   /* and where messages begin in a prompt */
    uint64_t created_unix;              /* seconds */
    bool radix_cache;
    bool hierarchical_cache;     /* there is a host tier */
    uint64_t host_tokens;        /* of it */
    uint64_t host_window_tokens; /* and of window memory, where the device has some, */
    uint64_t host_states;        /* and of states, where there are recurrent layers */
    const char *eviction_policy; /* "lru" */
    const char *schedule_policy; /* "lpm" */
    const char *speculative_algorithm;     /* engine_params', of those who can guess here */
    uint32_t speculative_num_draft_tokens; /* 0: nothing is guessed */
    const char *guarantee;       /* what is promised of answers here, in one line */
    uint64_t max_pinned_tokens;  /* 0: nothing can be pinned */
    uint32_t max_sessions;       /* 0: there are none */
    bool streaming_sessions;     /* and these are */
    const char *pooling;         /* of embeddings: "last" or "mean"; "": there are none. And */
    uint32_t embedding_length;   /* that they have so many numbers */
    const char *device;          /* where it computes: "cpu", "cuda:0" */
    const char *computes_on;     /* in words: "8 threads", "NVIDIA H100 80GB HBM3 (cuda:0)" */
    const char *device_name;     /* of a GPU: "NVIDIA H100 80GB HBM3"; else "" */
    const char *why_no_gpu;      /* on the CPU, where device was auto; else "" */
    uint64_t device_bytes;       /* of a GPU's memory; 0: the CPU's */
    const char *record; /* the file that is recorded to; NULL: none */
    const kv_events_config *kv_events; /* in force, with the ports that were chosen; NULL: none */
} engine_info;
const engine_info *engine_get_info(const engine *e);
const tokenizer *engine_tokenizer(const engine *e);
const chat_template *engine_chat_template(const engine *e); /* NULL: it has none */

/* ---- a request ---- */

enum {
    ENGINE_MAX_LOGIT_BIAS = 1024,
    ENGINE_MAX_TOP_LOGPROBS = 256,
    ENGINE_MAX_ID_LOGPROBS = 1024,
    ENGINE_PROMPT_TAIL = 128
};

typedef enum engine_finish {
    ENGINE_FINISH_NONE = 0, /* more will come */
    ENGINE_FINISH_STOP,     /* an end token or a stop string */
    ENGINE_FINISH_LENGTH,   /* max_new_tokens or the context is full */
    ENGINE_FINISH_ABORT,    /* cancelled */
    ENGINE_FINISH_ERROR     /* see status and message */
} engine_finish;

typedef struct engine_event {
    uint64_t id;
    const char *text; /* new text since the last event, whole UTF-8 characters */
    size_t text_len;
    const rad_token *ids; /* new output ids since the last event */
    uint32_t num_ids;
    const token_logprob *logprobs; /* [num_ids][sampler_num_logprobs], when asked for, else NULL */
    /* Of the prompt's next tokens, likewise, [num_prompt_logprobs]; of the first one there is NAN.
     * All of them come before the first id. */
    const token_logprob *prompt_logprobs;
    uint32_t num_prompt_logprobs;
    uint32_t num_hidden;    /* of a request that asks for an embedding, in its last event: the */
    const double *hidden;   /* hidden states' mean, or the last one, [num_hidden]; else NULL */
    uint32_t prompt_tokens; /* also of one that is too long, where that is known; else 0 */
    uint32_t completion_tokens; /* so far */
    prompt_hits hits;           /* of the prompt */
    const req_why *why;         /* why there were no more, or NULL; during the call */
    engine_finish finish;
    rad_status status;        /* for ENGINE_FINISH_ERROR */
    const char *message;      /* words for it, else NULL */
    const char *matched_stop; /* the stop string that ended it, else NULL */
    rad_token matched_token;  /* the end token that ended it, else -1 */
    double e2e_latency_s;     /* since submit; set in the last event */
    uint64_t admitted_ns;     /* of the env's clock: when it left the queue; 0: it has not */
    draft_counts drafts; /* of its decode steps; in the last event, as the next two */
    uint32_t prediction_tokens;          /* that the client foretold, */
    uint32_t accepted_prediction_tokens; /* and of these such as the answer has */
    const char *prompt_tail;  /* the end of the prompt's text, control tokens included */
    size_t prompt_tail_len;   /* at most ENGINE_PROMPT_TAIL */
} engine_event;

/* What requests of one batch have in common is copied once: those with the same `share` whose
 * prompt, bias or stop strings are the very same memory as those of the one submitted before.
 * Zeroed at first; one thread; the engine's own fields. */
enum {
    ENGINE_SHARE_PROMPT,
    ENGINE_SHARE_BIAS,
    ENGINE_SHARE_STOPS,
    ENGINE_SHARE_FORM,
    ENGINE_SHARE_PREDICTION,
    ENGINE_SHARE_KINDS
};

typedef struct engine_share {
    const void *of[ENGINE_SHARE_KINDS];
    size_t count[ENGINE_SHARE_KINDS];
    void *copy[ENGINE_SHARE_KINDS];
} engine_share;

/* After the last submit of the batch and before engine_destroy; a zeroed one is fine. */
void engine_share_end(engine_share *share);

/* What an answer must look like. */
typedef struct engine_form {
    grammar_spec spec;
    const char *name; /* what the client calls it, for errors */
} engine_form;

typedef struct engine_request {
    /* The prompt: exactly one of the four. All pointers are copied by submit. */
    const char *text;
    size_t text_len;
    const rad_token *ids;
    uint32_t num_ids;
    const chat_message *messages;
    uint32_t num_messages;
    const char *chat_json; /* a conversation with more: see chat_template_encode_json */
    size_t chat_json_len;

    sampling_params sampling; /* end_ids is the engine's to fill in */
    bool has_seed;            /* else the engine draws sampling.seed */
    bool ignore_eos;
    bool keep_special;         /* skip_special_tokens: false */
    bool wants_prompt_tail;    /* in the events; else it is empty */
    const rad_token *keep_ids; /* control tokens that stay in the text all the same; not copied:
                                * valid until the last event */
    uint32_t num_keep_ids;
    bool no_stop_trim;       /* leave the stop string in the text */
    int64_t max_new_tokens;  /* -1 = as many as the context allows; 0 = none (score only) */
    const char *const *stop; /* NUL-terminated strings */
    uint32_t num_stop;
    const rad_token *stop_token_ids;
    uint32_t num_stop_token_ids;
    int32_t priority;
    const char *extra_key;  /* NULL = none */
    const char *cache_salt; /* NULL = none */
    uint32_t session;       /* of engine_session_open; 0 = none */
    /* What it leaves in the cache is kept longer: pinned for pin_ns, as far as the budget goes, or
     * retained with a priority, 1..99, until it was idle for retention_idle_ns (0: for good). */
    int32_t retention_priority;
    uint64_t retention_idle_ns, pin_ns;
    uint32_t pin_tokens; /* pinned are no more than so many, from the front; 0: all */
    /* Logprobs of the prompt's tokens from this one on (0: the first), as many as
     * `sampling` says. These positions are computed, whether their K/V are cached or not. */
    bool prompt_logprobs;
    uint32_t prompt_logprobs_from;
    const engine_form *form; /* NULL: the answer may be anything */
    const char *prediction;  /* what it will likely say, for speed alone; NULL: nobody knows */
    size_t prediction_len;
    /* For measuring: the answer begins with these ids, whatever the model says; its logprobs are of
     * them. Not copied: valid until the last event. */
    const rad_token *told;
    uint32_t num_told;
    /* Reasoning, which is free, may come before the form, between two markers, where each is one
     * token. Not copied: valid until the last event. NULL: none comes. */
    const char *think_open, *think_close;
    bool thinks; /* the answer begins inside of it unless the prompt has closed it; else only where
                  * the prompt has opened it */
    bool embed; /* it wants the prompt's embedding (engine_info.pooling); max_new_tokens is 0 */
    engine_share *share; /* NULL: copies of its own */

    /* Called from the detokenizer thread: one or more times, the last one with finish
     * other than NONE; after that never again. Must not block; must not call engine_submit,
     * engine_destroy or what waits for the scheduler (engine_get_stats and below); engine_abort
     * is fine. Pointers in the event are valid during the call only. */
    void (*on_event)(void *user, const engine_event *event);
    void *user;
} engine_request;

/* Checks limits that need no tokenizing and queues the request. *id names it for
 * engine_abort. RAD_FULL: the queue or the request memory is full (HTTP 429), on_event will not
 * be called.
 * RAD_E_INVAL in words: parameters out of range, ids outside the vocabulary, an empty
 * prompt. RAD_E_LIMIT: a prompt longer than the context (where it is known already). What turns
 * out later (a text that is too long, a conversation that does not render) arrives as an
 * event with ENGINE_FINISH_ERROR and the same status. */
rad_status engine_submit(engine *e, const engine_request *request, uint64_t *id, rad_error *err);

/* The ids of a request's text or conversation, appended to *out as submit would make them; nothing
 * is queued, and a prompt may be longer than the context. Errors as those of submit and its events.
 * Any thread; takes as long as encoding takes. */
rad_status engine_encode(engine *e, const engine_request *request, token_buf *out, rad_error *err);

/* A conversation that comes back turn by turn. RAD_FULL: as many are open as may be;
 * RAD_E_UNSUPPORTED: engine_params.max_sessions is 0; RAD_E_STATE: it is not open. A request whose
 * session is closed when its turn comes, or under streaming_sessions has another turn running,
 * ends with an error in words. Waits for the scheduler, as those below. */
rad_status engine_session_open(engine *e, uint32_t *session, rad_error *err);
rad_status engine_session_close(engine *e, uint32_t session, rad_error *err);

/* Pins the longest cached prefix of the key for ttl_ns, as engine_request.pin_ns does what a request
 * leaves; 0: it is pinned no longer. *num_tokens: of the key, that are (were). RAD_E_UNSUPPORTED:
 * max_pinned_tokens is 0. */
rad_status engine_pin_prefix(engine *e, const rad_key *key, uint64_t ttl_ns, uint32_t *num_tokens,
                             rad_error *err);

/* Asks for an end; the last event (ABORT, or what overtook it) still comes. Unknown
 * ids are fine: the request may have just ended. */
void engine_abort(engine *e, uint64_t id);

/* ---- looking inside ---- */

/* Requests by how they ended, those included that never reached the scheduler. */
typedef struct engine_counts {
    uint64_t num_requests; /* submitted since start */
    uint64_t num_finished;
    uint64_t num_aborted;
    uint64_t num_failed;
} engine_counts;

typedef struct engine_stats {
    engine_counts requests;
    scheduler_stats sched;       /* num_waiting with those that are not encoded yet */
    uint64_t kv_populated_bytes; /* of the pool: written, or made ready; 0 without
                                  * kv_populate_ahead */
    uint64_t gpu_free_bytes, gpu_total_bytes; /* of the GPU's memory; 0: it computes on the CPU */
    kv_publisher_stats kv_events;             /* all 0 where none are published */
    recorder_stats record;                    /* all 0 where nothing is recorded */
    double gen_throughput; /* tokens a second, over a second; 0 while nothing runs, and in
                            * engine_get_stats */
} engine_stats;

/* A copy made by the scheduler thread between two steps; waits for it. */
void engine_get_stats(engine *e, engine_stats *stats);

/* The same without waiting, as of some milliseconds ago or, while a step runs, of its beginning; what
 * every answer that was given counts is in it. */
void engine_peek_stats(engine *e, engine_stats *stats);
void engine_get_latency(engine *e, latency_kind kind, latency_histogram *out);

/* Which blocks a router that has followed all KV events knows to be cached, and the number of the next
 * batch; RAD_E_STATE: no events are published. In order of the tiers; a copy made between two steps,
 * that the caller frees with engine_kv_index_fini, also after a failure. */
typedef struct engine_kv_block {
    int64_t hash;
    const char *medium; /* static */
} engine_kv_block;

typedef struct engine_kv_index {
    uint64_t next_seq;
    engine_kv_block *blocks;
    size_t count, room;
} engine_kv_index;

rad_status engine_get_kv_index(engine *e, engine_kv_index *index);
void engine_kv_index_fini(engine_kv_index *index);

/* Returns when all memory that kv_populate_ahead asks for is ready: true, or cannot be had. It is
 * made ready while no request runs or waits: call it then. */
bool engine_await_populated(engine *e);

/* Runs rad_cache_check, rad_cache_check_ownership and the pools' checks on the
 * scheduler thread. RAD_E_CORRUPT in words. */
rad_status engine_check(engine *e, rad_error *err);

/* Empties the cache. RAD_AGAIN unless nothing is running or waiting. */
rad_status engine_flush_cache(engine *e);

/* The same for some tiers (RAD_TIER_...). RAD_AGAIN also while pages are being copied;
 * RAD_E_UNSUPPORTED for a tier that is not there. With storage among them it takes as long as
 * the store takes; see engine_store_begin. */
rad_status engine_flush_tiers(engine *e, uint32_t tiers, rad_error *err);

/* Attaches the store "file:DIR" or "redis:HOST:PORT,..." with options as a JSON object (NULL:
 * none), or detaches and closes the one there is (RAD_NONE: there was none). RAD_AGAIN unless
 * nothing is running, waiting or on its way. Nothing that is stored is deleted. Likewise. */
rad_status engine_attach_storage(engine *e, const char *spec, const char *extra_config,
                                 rad_error *err);
rad_status engine_detach_storage(engine *e, rad_error *err);

/* A store takes its time to be opened, cleared, closed or asked for its figures, so a thread of
 * the engine's own does it and no step waits for it: one change at a time, the next is refused.
 * Requests go on meanwhile; while the store is cleared they neither read nor write it. */
typedef enum engine_store_kind {
    ENGINE_STORE_CLEAR = 1, /* and other tiers first, where they are named */
    ENGINE_STORE_ATTACH,
    ENGINE_STORE_DETACH
} engine_store_kind;

typedef struct engine_store_change {
    engine_store_kind kind;
    uint32_t tiers;           /* clear: RAD_TIER_..., storage among them */
    uint64_t wait_ns;         /* how long to wait for what is in the way; then RAD_AGAIN */
    const char *spec;         /* attach; copied */
    const char *extra_config; /* attach; copied; NULL: none */
} engine_store_change;

/* RAD_OK with a ticket: it is under way. RAD_FULL: another change is. RAD_E_INVAL,
 * RAD_E_UNSUPPORTED, RAD_E_NOMEM in words. Any thread, as the next four. */
rad_status engine_store_begin(engine *e, const engine_store_change *change, uint64_t *ticket,
                              rad_error *err);

/* False: still under way. True: it has ended with *status. The last 16 are remembered, older
 * ones are RAD_NONE. */
bool engine_store_ended(engine *e, uint64_t ticket, rad_status *status, rad_error *err);

typedef struct engine_storage_status {
    bool enabled;  /* there are tiers */
    bool attached; /* and a store */
    char spec[1024];
    rad_storage_stats store; /* its own, as last heard; all 0 when it has none */
    uint64_t store_age_ns;   /* since then */
    engine_store_kind busy;  /* the change that is under way; 0: none */
    uint64_t busy_ns;        /* for so long */
} engine_storage_status;

/* Asks the store for its figures, after a change that is under way; engine_store_looked says
 * whether they are there. */
uint64_t engine_store_look(engine *e);
bool engine_store_looked(engine *e, uint64_t look);

/* What is known without asking. */
void engine_get_storage_status(engine *e, engine_storage_status *status);

/* No step begins until engine_continue: requests are taken and wait, what was aborted ends later,
 * and the functions above answer. When it goes on, all that was submitted before is in the queue:
 * so what runs together does not depend on how fast it came. Ending the engine ends the pause. */
void engine_pause(engine *e);
void engine_continue(engine *e); /* not paused: nothing happens */

/* For comparing: as if created with disable_radix_cache and disable_tree_attention, in the same
 * memory, whose place alone makes two engines differ by some percent. The cache is empty then;
 * engine_info keeps saying how it was created, evicted_tokens may begin anew. RAD_AGAIN unless
 * nothing is running or waiting, nor to be verified; RAD_E_UNSUPPORTED with tiers; RAD_E_NOMEM: it
 * is as it was. */
rad_status engine_set_cache(engine *e, bool disable_radix_cache, bool disable_tree_attention,
                            rad_error *err);

/* For comparing, likewise: from the next step on nothing is guessed, or again as it was created. */
void engine_set_drafts(engine *e, bool on);

#endif
