/* job_shared.h - what requests of one batch have in common, copied once.
 *
 * A thousand prompts with the same stop strings, or a hundred choices of one long prompt, would
 * take a thousand copies and a hundred. engine_share remembers the newest copy of each kind and
 * whose it is: a request that points to the same gets a reference.
 *
 * Copies count against the engine's request memory until the last reference is gone. References
 * come from the submitting thread and go in any. */
#ifndef ENGINE_JOB_SHARED_H
#define ENGINE_JOB_SHARED_H

#include "base/memory_budget.h"
#include "engine/answer_form.h"
#include "engine/engine.h"
#include "engine/stop_matcher.h"
#include "sched/draft_prediction.h"

#include <stdatomic.h>

/* A prompt as it was given, and its ids once one request has them. */
typedef struct job_prompt {
    struct engine *engine;
    _Atomic uint32_t refs;
    char *text; /* the text, or all strings of the messages */
    size_t text_bytes;
    rad_token *ids; /* as given, or as encoded: then the tokenizer thread's */
    uint32_t num_ids;
    chat_message *messages;
    uint32_t num_messages;
    bool is_text;
    bool is_chat_json; /* text is a conversation as JSON */
    bool ends;        /* an embedding is made of it: EOS ends it where the vocabulary asks for it */
    size_t bytes;     /* counted against the queue's limit */
    uint64_t charged; /* to the request memory */
} job_prompt;

typedef struct job_bias {
    struct engine *engine;
    _Atomic uint32_t refs;
    size_t bytes; /* of the block */
    logit_bias entries[];
} job_bias;

/* What the client foretold, as text until the tokenizer thread has made it ids. */
typedef struct job_prediction {
    struct engine *engine;
    _Atomic uint32_t refs;
    char *text;
    size_t text_bytes;
    prediction *ids;  /* NULL: not yet */
    uint64_t charged; /* to the request memory */
} job_prediction;

/* A reference to what `q` points to. RAD_E_NOMEM; RAD_FULL: the request memory is used up. */
rad_status job_share_prompt(struct engine *e, const engine_request *q, job_prompt **out,
                            rad_error *err);
rad_status job_share_bias(struct engine *e, const engine_request *q, job_bias **out,
                          rad_error *err);
rad_status job_share_stops(struct engine *e, const engine_request *q, stop_set **out,
                           rad_error *err);
/* *out is NULL where it has no form. */
rad_status job_share_form(struct engine *e, const engine_request *q, form_words **out,
                          rad_error *err);

/* *out is NULL where nothing is foretold. */
rad_status job_share_prediction(struct engine *e, const engine_request *q, job_prediction **out,
                                rad_error *err);

/* The ids, once: the tokenizer thread's. `goes_on`: the answer goes on from a text. RAD_E_INVAL:
 * they are more than the context has; RAD_FULL, RAD_E_NOMEM. */
rad_status job_prediction_encode(job_prediction *p, bool goes_on, rad_error *err);

/* Keeps the ids of a text for other requests of the batch, if there may be some and there is
 * memory. The tokenizer thread's. */
void job_prompt_keep_ids(job_prompt *p, const rad_token *ids, uint32_t num_ids);

void job_prompt_unref(job_prompt *p); /* NULL is fine, as below */
void job_bias_unref(job_bias *b);
void job_prediction_unref(job_prediction *p);

#endif
