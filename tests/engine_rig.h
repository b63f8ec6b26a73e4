/* engine_rig.h - an engine over runner_fake with a real vocabulary, and a collector that
 * puts the events of a request together. */
#ifndef TESTS_ENGINE_RIG_H
#define TESTS_ENGINE_RIG_H

#include "test.h"

#include "engine/engine_impl.h"
#include "gear/runner_fake.h"

enum { ERIG_MOST_OUT = 600 };

typedef struct answer {
    uint64_t id;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    uint32_t num_events;
    rad_token ids[ERIG_MOST_OUT];
    uint32_t num_ids;
    uint32_t logprob_stride; /* 1 + num_top_logprobs, set by the test that asks for them */
    token_logprob logprobs[ERIG_MOST_OUT][4];
    uint32_t num_logprobs;
    char *text;
    size_t text_len;
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
    engine_finish finish;
    rad_status status;
    char message[256];
    char matched_stop[64];
    rad_token matched_token;
    engine *abort_in; /* abort from inside on_event after so many events */
    uint32_t abort_after;
} answer;

static inline void answer_on_event(void *user, const engine_event *event)
{
    answer *a = user;
    pthread_mutex_lock(&a->lock);
    if (a->done || a->num_ids + event->num_ids > ERIG_MOST_OUT) abort();
    a->num_events++;
    if (event->num_ids)
        memcpy(a->ids + a->num_ids, event->ids, event->num_ids * sizeof *event->ids);
    a->num_ids += event->num_ids;
    for (uint32_t i = 0; event->logprobs && i < event->num_ids; i++)
        memcpy(a->logprobs[a->num_logprobs++], event->logprobs + i * a->logprob_stride,
               a->logprob_stride * sizeof *event->logprobs);
    a->text = realloc(a->text, a->text_len + event->text_len + 1);
    memcpy(a->text + a->text_len, event->text, event->text_len);
    a->text_len += event->text_len;
    a->text[a->text_len] = 0;
    a->id = event->id;
    a->prompt_tokens = event->prompt_tokens;
    a->completion_tokens = event->completion_tokens;
    a->cached_tokens = event->hits.cached;
    a->finish = event->finish;
    a->status = event->status;
    a->matched_token = event->matched_token;
    snprintf(a->message, sizeof a->message, "%s", event->message ? event->message : "");
    snprintf(a->matched_stop, sizeof a->matched_stop, "%s",
             event->matched_stop ? event->matched_stop : "");
    if (a->abort_in && a->num_events == a->abort_after) engine_abort(a->abort_in, event->id);
    if (event->finish != ENGINE_FINISH_NONE) {
        a->done = true;
        pthread_cond_signal(&a->cond);
    }
    pthread_mutex_unlock(&a->lock);
}

static inline void answer_init(answer *a)
{
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->cond, NULL);
}

static inline void answer_wait(answer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->done)
        pthread_cond_wait(&a->cond, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

static inline void answer_fini(answer *a)
{
    free(a->text);
    pthread_cond_destroy(&a->cond);
    pthread_mutex_destroy(&a->lock);
}

/* A model made for tests: 512 tokens of SentencePiece, context 512. */
static inline const char *erig_model(void)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s", test_made("story.gguf"));
    return path;
}

static inline engine_params erig_params(void)
{
    return (engine_params){.max_total_tokens = 4096,
                           .max_running_requests = 8,
                           .max_queued_requests = 64,
                           .chunked_prefill_size = 64};
}

/* A tokenizer of `model`'s vocabulary over a runner of no model. */
static inline engine_parts erig_parts_of(const char *model, uint32_t fail_every)
{
    rad_error err = {0};
    gguf_file *file;
    engine_parts parts = {.model_name = "fake"};
    rad_status status = gguf_open(NULL, model, &file, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    status = tokenizer_create(NULL, file, &parts.tok, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    gguf_close(file);
    runner_fake_params fake = {.vocab_size = tokenizer_vocab_size(parts.tok),
                               .fail_every = fail_every};
    CHECK_OK(runner_fake_create(NULL, &fake, &parts.runner, &err));
    return parts;
}

static inline engine_parts erig_parts(uint32_t fail_every)
{
    return erig_parts_of(erig_model(), fail_every);
}

static inline engine *erig_start_with(engine_params params, engine_parts parts)
{
    rad_error err = {0};
    engine *e = NULL;
    rad_status status = engine_create_with(NULL, &params, &parts, &e, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return e;
}

static inline engine *erig_start(engine_params params, uint32_t fail_every)
{
    return erig_start_with(params, erig_parts(fail_every));
}

/* Nothing is lost: everything is free or cached, and owned once; copies to the host, which hold
 * pages until they end, have ended. */
static inline void erig_check_idle(engine *e)
{
    rad_error err = {0};
    engine_stats st;
    rad_status status = engine_check(e, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    AWAIT((engine_get_stats(e, &st), !st.sched.tiers.device_holds));
    CHECK(st.sched.num_running == 0 && st.sched.num_waiting == 0 && st.sched.held_tokens == 0);
    CHECK(st.sched.available_tokens + st.sched.evictable_tokens == st.sched.max_total_tokens);
    CHECK(st.sched.window_held_tokens == 0 && st.sched.window_protected_tokens == 0);
    CHECK(st.requests.num_requests ==
          st.requests.num_finished + st.requests.num_aborted + st.requests.num_failed);
}

static inline void erig_stop(engine *e)
{
    erig_check_idle(e);
    engine_destroy(e);
}

static inline engine_request erig_request(answer *a, const rad_token *ids, uint32_t num_ids,
                                          int64_t max_new)
{
    return (engine_request){.ids = ids,
                            .num_ids = num_ids,
                            .max_new_tokens = max_new,
                            .ignore_eos = true,
                            .sampling = {.top_p = 1},
                            .on_event = answer_on_event,
                            .user = a};
}

/* The same for an answer that is not made yet. */
static inline engine_request erig_ask(answer *a, const rad_token *ids, uint32_t num_ids,
                                      int64_t max_new)
{
    answer_init(a);
    return erig_request(a, ids, num_ids, max_new);
}

static inline void erig_submit(engine *e, const engine_request *q, uint64_t *id)
{
    rad_error err = {0};
    rad_status status = engine_submit(e, q, id, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
}

/* Submits and awaits the end of the answer. */
static inline void erig_serve(engine *e, const engine_request *q)
{
    erig_submit(e, q, NULL);
    answer_wait(q->user);
}

static inline void erig_prompt(const engine *e, rad_token *ids, uint32_t n, uint64_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (rad_token)(3 + test_random(&seed) % (engine_get_info(e)->vocab_size - 3));
}

static inline bool erig_is_oracle(const engine *e, const answer *a, const rad_token *prompt,
                                  uint32_t num_prompt)
{
    rad_token *ids = malloc((num_prompt + a->num_ids + 1) * sizeof *ids);
    memcpy(ids, prompt, num_prompt * sizeof *ids);
    bool same = true;
    for (uint32_t i = 0; i < a->num_ids && same; i++) {
        rad_token want = runner_fake_next(engine_get_info(e)->vocab_size, ids, num_prompt + i);
        same = a->ids[i] == want;
        ids[num_prompt + i] = want;
    }
    free(ids);
    return same;
}

/* The text of ids, decoded in one go. */
static inline char *erig_decode(const engine *e, const rad_token *ids, uint32_t n)
{
    detokenizer d;
    text_buf out = {0};
    detokenizer_init(&d, engine_tokenizer(e), false, true);
    for (uint32_t i = 0; i < n; i++)
        CHECK_OK(detokenizer_push(&d, ids[i], &out));
    CHECK_OK(detokenizer_finish(&d, &out));
    CHECK_OK(text_buf_append(&out, "", 0));
    return out.data ? out.data : strdup("");
}

#endif
