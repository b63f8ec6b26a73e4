/* engine_impl.h - the engine's struct and what its files share.
 *
 *                 to_tokenizer        to_scheduler         to_detokenizer
 *     submit  -------------->  T  ---------------->  S  ----------------->  D -> on_event
 *                              |      (and calls)                           ^ |
 *                              +------------ what failed early -------------+ |
 *     abort, stop strings: a flag in the request, read by S between steps <---+
 *
 * All arrows go one way, and D waits for nobody: so no ring can lock the engine up. A
 * job is owned by whoever holds its message; D frees it after its last event. */
#ifndef ENGINE_ENGINE_IMPL_H
#define ENGINE_ENGINE_IMPL_H

#include "base/compute_pool.h"
#include "engine/answer_form.h"
#include "engine/engine.h"
#include "engine/engine_populate.h"
#include "engine/engine_store.h"
#include "engine/engine_tiers.h"
#include "engine/job_shared.h"
#include "engine/latency.h"
#include "engine/message_ring.h"
#include "engine/recorder.h"
#include "engine/stop_matcher.h"
#include "model/runner.h"
#include "sched/scheduler.h"
#include "text/detokenize.h"

/* A request on its way through the threads. */
typedef struct engine_job {
    uint64_t id;
    uint64_t submitted_ns;
    uint64_t admitted_ns; /* S's until its first output */
    uint64_t charged; /* to the request memory, but for what is shared */
    void (*on_event)(void *user, const engine_event *event);
    void *user;

    job_prompt *prompt; /* what the tokenizer thread reads; let go of once encoded */
    form_words *form;   /* likewise */
    const char *think_open, *think_close; /* of reasoning before the form */
    bool thinks;
    token_rule *rule;   /* of the form; NULL: none */
    job_prediction *prediction; /* NULL: none; as long as the job: r points to it */
    job_bias *bias;     /* these two live as long as the job: r.sampling points to them */
    rad_token *end_ids; /* what would end it before min_new_tokens, */
    size_t end_ids_bytes;
    rad_token *logprob_ids; /* and those whose logprobs are wanted, num_logprob_ids: likewise */
    uint32_t num_logprob_ids;
    req_params params; /* ids filled in by the tokenizer; strings below */
    rad_token *stop_token_ids;
    char *extra_key;
    char *cache_salt;

    /* Guarded by engine.lock. */
    bool queued;    /* counted in num_queued */
    bool aborted;   /* engine_abort came */
    bool req_ready; /* r is initialised: cancel it there */

    req r; /* the scheduler's between scheduler_add and its last output */

    /* The detokenizer thread's. */
    uint32_t prompt_tokens; /* set by the tokenizer */
    rad_status early_status;
    rad_error error; /* why it never reached the scheduler */
    detokenizer detok;
    bool keep_special;
    const rad_token *keep_ids;
    uint32_t num_keep_ids;
    bool wants_prompt_tail;
    uint8_t prompt_tail_len;
    char prompt_tail[ENGINE_PROMPT_TAIL];
    bool no_stop_trim;
    bool stopped; /* a stop string was found: the answer is what was sent so far */
    bool failed;  /* out of memory here */
    const char *matched_stop;
    stop_matcher stops;
    text_buf pending; /* text that was not sent yet */
    uint32_t completion_tokens;
    uint64_t token_ns; /* when the newest token came; 0: none has */
} engine_job;

/* What the scheduler's thread has told of itself last (engine_stats.c). */
typedef struct engine_notes {
    pthread_mutex_t lock; /* of the two that others read */
    engine_stats stats;
    uint64_t at_ns;
    uint64_t window_at_ns, window_tokens; /* of the throughput; S's, as the next */
    double throughput;
} engine_notes;

/* T and S to D. */
typedef struct detok_message {
    engine_job *job;
    rad_token token; /* -1: none */
    uint32_t completion_tokens;
    prompt_hits hits;
    req_finish finish;
    token_logprob *logprobs; /* the detokenizer's to free, and so are: */
    token_logprob *prompt_logprobs;
    uint32_t num_prompt_logprobs;
    uint64_t made_ns; /* when the scheduler handed it out; 0: it never reached it */
} detok_message;

/* To S: a job, or a function to be run between two steps, or neither: the end of a pause. */
typedef struct sched_message {
    engine_job *job;
    struct engine_call *call;
} sched_message;

enum { ENGINE_MAX_NAMESPACE_BYTES = 480 }; /* extra_key and cache_salt of a request */

enum { MAX_QUEUED_BYTES = 512 << 20 }; /* of prompts that wait to be encoded */

struct engine {
    rad_env env;
    engine_params params;
    engine_info info;
    char *model_name, *model_path, *architecture, *backend_name, *draft_model_path;
    char guarantee[320];
    char draft_sources[96];
    char device[16], device_name[96], computes_on[128], why_no_gpu[400];

    runner *runner;       /* owned, as the next five */
    runner *draft_runner; /* of the draft model; NULL: there is none */
    tokenizer *tok;
    chat_template *chat;
    rad_token *end_ids; /* all that end a generation */
    uint32_t num_end_ids;
    char chat_error[256]; /* why there is no chat template */
    scheduler *scheduler;
    engine_tiers tiers;
    engine_store store;
    engine_populate populate, populate_window;
    kv_events_config kv_events;  /* constant */
    kv_publisher *publisher;     /* NULL: KV events are off */
    recorder *recorder;          /* NULL: nothing is recorded */
    uint64_t window_total_tokens; /* asked of the scheduler */
    hidden_pooling pooling;       /* of embeddings */
    answer_forms forms;           /* the tokenizer thread's */
    rad_token turn_token;         /* that each message begins with; 0: not known, or not asked */

    message_ring to_tokenizer, to_scheduler, to_detokenizer; /* to_tokenizer: NULL ends a pause */
    bool paused;                                             /* S's */
    pthread_t tokenizer_thread, scheduler_thread, detokenizer_thread;
    uint32_t num_threads_started;

    pthread_mutex_t lock; /* of the table of jobs and what is below */
    engine_job **jobs;    /* [max_jobs]; job id lives at id % max_jobs */
    uint32_t *free_places;
    uint32_t num_free_places;
    uint32_t max_jobs;
    uint32_t max_queued;
    uint32_t num_queued; /* submitted and never admitted yet */
    size_t queued_bytes;
    uint64_t serial; /* of the newest id */
    engine_counts counts;

    latency_counters latency; /* any thread */
    engine_notes notes;
};

/* What engine_create has loaded, or a test has made. Everything is owned by the engine
 * from the call on, also when it fails. */
typedef struct engine_parts {
    runner *runner;
    runner *draft_runner; /* see scheduler_params; NULL: none */
    uint64_t draft_weights_bytes;
    tokenizer *tok;
    chat_template *chat;    /* NULL: messages are refused with chat_error */
    const char *chat_error; /* copied, as all strings */
    const char *model_name;
    const char *model_path;
    gguf_source *source; /* of the model's bytes; NULL: there is no file, or no tiers */
    const char *architecture;
    const char *attn_backend;
    uint64_t available; /* bytes of memory before the model was loaded; 0: unknown */
    uint32_t max_rows;  /* requests at one time that the runner's buffers are for */
    uint32_t reserved;
    const struct cuda_gpu_info *gpu; /* where the runner computes; NULL: on this CPU */
    const char *why_no_gpu;          /* see engine_info */
    uint64_t window_total_tokens;    /* as scheduler_params has it */
} engine_parts;

void engine_parts_destroy(const engine_parts *parts); /* those that there are */

/* The engine without files: max_total_tokens must be given. */
rad_status engine_create_with(const rad_env *env, const engine_params *params,
                              const engine_parts *parts, engine **out, rad_error *err);

/* Whether the options of the scheduler make sense: RAD_E_INVAL in words. */
rad_status check_scheduling(const engine_params *params, rad_error *err);

/* A copy of a string (NULL stays NULL and is fine to free). */
char *engine_strdup(const rad_env *env, const char *text);
void engine_strfree(const rad_env *env, char *text);

/* engine_info.c: e->info, of an engine with its scheduler; and that as lines of the log. */
rad_status engine_fill_info(engine *e, const engine_parts *parts, rad_error *err);
void engine_log_info(const engine *e);

/* engine_size.c: how much fits. */
uint32_t default_max_running(uint64_t max_total_tokens); /* 64 to 4096 */
uint32_t engine_max_sessions(const engine_params *p);    /* what ENGINE_USUAL_SESSIONS stands for */
uint32_t prefill_chunk(const engine_params *params); /* prompt tokens a step; 0: never chunked */
/* How many rows a runner's buffers are made for, before the pool is sized: what
 * max_running_requests says, else from the memory that is available (0: unknown) and what a row
 * costs of it. */
uint32_t rows_to_load_for(const engine_params *params, const runner_info *model, uint64_t row_bytes,
                          uint64_t available);
/* What all pools are made for. */
typedef struct kv_sizes {
    uint64_t tokens;        /* max_total_tokens */
    uint64_t window_tokens; /* of the pool of layers with a window; 0: there is none */
    uint64_t states;        /* of recurrent layers; 0: there are none */
} kv_sizes;
/* What a model and one context take beside the pool's other tokens. */
typedef struct memory_need {
    uint64_t weights, buffers; /* of model_sizes */
    uint64_t least_weights;    /* in a smaller type; 0: there is none */
    const char *least_type;    /* which */
} memory_need;
/* Before anything is read: RAD_E_NOMEM in words where the weights and the smallest pool do not fit,
 * with what is needed, what there is and what would fit. *fraction: mem_fraction_static that is in
 * force. One that is asked for is kept; the default grows as far as a whole context needs it and 1
 * GB stays free, with a warning. `available` of 0 is unknown: all fits. */
rad_status fit_memory(const rad_env *env, const engine_params *params, const runner_info *model,
                      const memory_need *need, uint64_t available, double *fraction,
                      rad_error *err);

/* RAD_E_NOMEM only where not even a small pool fits; a larger max_total_tokens than what fits is a
 * warning and the smaller. `available_before` the model was loaded, and now; of a GPU
 * (params->on_gpu) its memory. `fraction`: fit_memory's; 0: what the params say. */
rad_status size_kv_pool(const rad_env *env, const engine_params *params, const runner_info *model,
                        uint64_t available_before, uint64_t available_now, double fraction,
                        kv_sizes *sizes, rad_error *err);
/* The host tier of a GPU's pools beside `available` bytes of this machine (0: unknown): one that
 * nobody gave a size is made smaller, with a warning; else RAD_E_NOMEM. */
rad_status fit_host_tier(const rad_env *env, engine_params *params, const runner_info *model,
                         const kv_sizes *sizes, uint64_t available, rad_error *err);
/* The same for what will be available: `taken` is the weights'. */
kv_sizes kv_sizes_foretold(const engine_params *params, const runner_info *model, uint64_t taken,
                           uint64_t available, double fraction);
/* Rows by default: enough that the pools, not their number, are the limit for usual requests. */
uint32_t rows_for(const kv_sizes *sizes);
/* Of window memory, what one context holds at most; 0: there is none. */
uint64_t kv_window_tokens_for_context(const engine_params *params, const runner_info *model,
                                      uint32_t context);
/* What fits into so many bytes, whatever this machine has. */
kv_sizes kv_sizes_in(const engine_params *params, const runner_info *model, uint64_t bytes);

/* Takes from the request memory and adds to *charged. RAD_FULL in words. */
rad_status engine_charge(engine *e, uint64_t bytes, uint64_t *charged, rad_error *err);
/* Zeroed memory for which `charge` was taken; RAD_E_NOMEM, too, and then nothing was. */
rad_status engine_alloc_charged(engine *e, size_t bytes, uint64_t charge, void **out,
                                rad_error *err);

/* job.c */
/* engine_encode.c: the ids of a text or a conversation, up to several contexts' length: RAD_E_LIMIT
 * past that. */
rad_status engine_encode_prompt(const engine *e, const job_prompt *p, token_buf *out,
                                rad_error *err);

rad_status job_create(engine *e, const engine_request *request, engine_job **out, rad_error *err);
void job_free_prompt(engine *e, engine_job *job);
void job_destroy(engine *e, engine_job *job);

/* The threads. */
void *tokenizer_manager(void *e);
void *scheduler_loop(void *e);
void *detokenizer_manager(void *e);

/* The scheduler's hooks (its thread). */
void engine_on_output(void *e, const req_output *outputs, uint32_t count);
void engine_on_admit(void *e, req *r);

/* Runs fn between two steps and waits until it has. RAD_E_STATE: the scheduler has ended. Not
 * from the scheduler's thread. */
rad_status engine_run_on_scheduler(engine *e, void (*fn)(engine *e, void *user), void *user);

/* engine_get_stats in two halves: what the scheduler's thread fills in, and what any thread adds.
 */
void engine_fill_stats(engine *e, engine_stats *stats);
void engine_add_stats(engine *e, engine_stats *stats);

/* What engine_peek_stats tells from now on; unless `now`, only where it is some milliseconds old. The
 * scheduler's thread. */
void engine_note_stats(engine *e, bool now);

/* engine_events.c: the publisher, if the params ask for one (before the scheduler, which then tells);
 * and what the scheduler's thread does after each step. */
rad_status engine_events_check(const engine_params *params, kv_events_config *out, rad_error *err);
rad_status engine_events_init(engine *e, rad_error *err);
void engine_publish_events(engine *e);

/* engine_record.c: the file, before the scheduler is made; what that tells (its tap); the head of
 * the file; what the scheduler's thread does after each step, and what is told last. */
rad_status engine_record_open(engine *e, rad_error *err);
void engine_on_cache_op(void *e, const cache_tap_op *op);
rad_status engine_record_start(engine *e, rad_error *err);
void engine_record_step(engine *e);
void engine_record_counters(engine *e);

/* Takes a job out of the table: no abort can reach it any more. */
void engine_forget_job(engine *e, engine_job *job);
bool engine_leave_queue(engine *e, engine_job *job); /* false: it had left it before */

#endif
