/* job_shared.c - copies with reference counts. */
#include "engine/job_shared.h"

#include "engine/engine_impl.h"

static rad_status no_room(const engine *e, uint64_t bytes, rad_error *err)
{
    const memory_budget *b = e->params.request_memory;
    return rad_fail(err, RAD_FULL,
                    "no memory for this request now: it takes %llu bytes, and all together have "
                    "%llu of %llu; try again soon",
                    (unsigned long long)bytes, (unsigned long long)b->used,
                    (unsigned long long)b->limit);
}

rad_status engine_charge(engine *e, uint64_t bytes, uint64_t *charged, rad_error *err)
{
    if (!memory_budget_take(e->params.request_memory, bytes)) return no_room(e, bytes, err);
    *charged += bytes;
    return RAD_OK;
}

rad_status engine_alloc_charged(engine *e, size_t bytes, uint64_t charge, void **out,
                                rad_error *err)
{
    uint64_t charged = 0;
    *out = NULL;
    rad_status status = engine_charge(e, charge, &charged, err);
    if (status != RAD_OK) return status;
    *out = rad_alloc(&e->env, bytes);
    if (*out) return RAD_OK;
    memory_budget_give(e->params.request_memory, charged);
    return rad_fail(err, RAD_E_NOMEM, "no memory for a request");
}

/* ---- prompts ---- */

/* All strings of a conversation in one buffer, so that they are freed as one. */
static bool copy_messages(const rad_env *env, job_prompt *p, const engine_request *q)
{
    p->text = rad_alloc(env, p->text_bytes);
    p->messages = rad_alloc(env, rad_mul(q->num_messages, sizeof *p->messages));
    p->num_messages = q->num_messages;
    if (!p->text || !p->messages) return false;

    char *to = p->text;
    for (uint32_t i = 0; i < q->num_messages; i++) {
        const chat_message *from = &q->messages[i];
        chat_message *copy = &p->messages[i];
        copy->role = to;
        to = stpcpy(to, from->role) + 1;
        copy->content = to;
        copy->content_len = from->content_len;
        if (from->content_len) memcpy(to, from->content, from->content_len);
        to += from->content_len + 1;
    }
    return true;
}

static bool copy_prompt(const rad_env *env, job_prompt *p, const engine_request *q)
{
    if (q->messages) return copy_messages(env, p, q);
    if (q->ids) {
        p->ids = rad_alloc(env, rad_mul(q->num_ids, sizeof *p->ids));
        if (p->ids) memcpy(p->ids, q->ids, q->num_ids * sizeof *p->ids);
        return p->ids != NULL;
    }
    p->text = rad_alloc(env, p->text_bytes);
    if (p->text) memcpy(p->text, q->chat_json ? q->chat_json : q->text, p->text_bytes);
    return p->text != NULL;
}

static size_t text_bytes_of(const engine_request *q)
{
    size_t bytes = q->messages ? 1 : q->chat_json ? q->chat_json_len : q->text ? q->text_len : 0;
    for (uint32_t i = 0; i < q->num_messages; i++)
        bytes += strlen(q->messages[i].role) + 1 + q->messages[i].content_len + 1;
    return bytes;
}

static rad_status prompt_create(engine *e, const engine_request *q, job_prompt **out,
                                rad_error *err)
{
    size_t text_bytes = text_bytes_of(q);
    uint64_t bytes = sizeof(job_prompt) + text_bytes + q->num_ids * sizeof(rad_token) +
                     q->num_messages * sizeof(chat_message);
    void *memory;
    rad_status status = engine_alloc_charged(e, sizeof(job_prompt), bytes, &memory, err);
    if (status != RAD_OK) return status;
    job_prompt *p = memory;
    *p = (job_prompt){.engine = e,
                      .refs = 1,
                      .text_bytes = text_bytes,
                      .num_ids = q->num_ids,
                      .is_text = q->text != NULL,
                      .ends = q->embed,
                      .is_chat_json = q->chat_json != NULL,
                      .charged = bytes};
    if (!copy_prompt(&e->env, p, q)) {
        job_prompt_unref(p);
        return rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    }
    p->bytes = text_bytes + q->num_ids * sizeof *p->ids;
    pthread_mutex_lock(&e->lock);
    e->queued_bytes += p->bytes;
    pthread_mutex_unlock(&e->lock);
    *out = p;
    return RAD_OK;
}

void job_prompt_unref(job_prompt *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1) return;
    engine *e = p->engine;
    pthread_mutex_lock(&e->lock);
    e->queued_bytes -= p->bytes;
    pthread_mutex_unlock(&e->lock);
    memory_budget_give(e->params.request_memory, p->charged);
    rad_free(&e->env, p->text, p->text_bytes);
    rad_free(&e->env, p->ids, p->num_ids * sizeof *p->ids);
    rad_free(&e->env, p->messages, p->num_messages * sizeof *p->messages);
    rad_free(&e->env, p, sizeof *p);
}

void job_prompt_keep_ids(job_prompt *p, const rad_token *ids, uint32_t num_ids)
{
    engine *e = p->engine;
    uint64_t bytes = num_ids * sizeof *ids;
    if (atomic_load(&p->refs) == 1 || !memory_budget_take(e->params.request_memory, bytes)) return;
    p->charged += bytes;
    p->ids = rad_alloc(&e->env, bytes);
    if (!p->ids) return;
    memcpy(p->ids, ids, bytes);
    p->num_ids = num_ids;
}

/* ---- biases ---- */

static rad_status bias_create(engine *e, const sampling_params *from, job_bias **out,
                              rad_error *err)
{
    void *memory;
    size_t bytes = sizeof(job_bias) + from->num_bias * sizeof(logit_bias);
    rad_status status = engine_alloc_charged(e, bytes, bytes, &memory, err);
    if (status != RAD_OK) return status;
    job_bias *b = memory;
    b->engine = e;
    b->refs = 1;
    b->bytes = bytes;
    memcpy(b->entries, from->bias, from->num_bias * sizeof *b->entries);
    *out = b;
    return RAD_OK;
}

void job_bias_unref(job_bias *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1) return;
    engine *e = b->engine;
    memory_budget_give(e->params.request_memory, b->bytes);
    rad_free(&e->env, b, b->bytes);
}

/* ---- predictions ---- */

static rad_status foretold_create(engine *e, const engine_request *q, job_prediction **out,
                                  rad_error *err)
{
    void *memory;
    const uint64_t bytes = sizeof(job_prediction) + q->prediction_len;
    rad_status status = engine_alloc_charged(e, sizeof(job_prediction), bytes, &memory, err);
    if (status != RAD_OK) return status;
    job_prediction *p = memory;
    *p = (job_prediction){.engine = e, .refs = 1, .charged = bytes};
    p->text = rad_alloc(&e->env, RAD_MAX(q->prediction_len, (size_t)1));
    if (!p->text) {
        job_prediction_unref(p);
        return rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    }
    p->text_bytes = q->prediction_len;
    memcpy(p->text, q->prediction, q->prediction_len);
    *out = p;
    return RAD_OK;
}

static void free_text(job_prediction *p)
{
    if (p->text) rad_free(&p->engine->env, p->text, RAD_MAX(p->text_bytes, (size_t)1));
    p->text = NULL;
}

rad_status job_prediction_encode(job_prediction *p, bool goes_on, rad_error *err)
{
    engine *e = p->engine;
    token_buf ids = {0};
    if (p->ids) return RAD_OK;
    rad_status status = tokenizer_encode(e->tok, p->text, p->text_bytes,
                                         goes_on ? TOKENIZER_NO_PREFIX : 0, e->info.context_length,
                                         &ids, err);
    if (status == RAD_E_LIMIT)
        status = rad_fail(err, RAD_E_INVAL,
                          "the prediction has more than %u tokens, which is all that the context "
                          "has",
                          e->info.context_length);
    if (status == RAD_OK) status = engine_charge(e, prediction_bytes(ids.len), &p->charged, err);
    if (status == RAD_OK) status = prediction_create(&e->env, ids.ids, ids.len, &p->ids, err);
    if (status == RAD_OK) free_text(p);
    token_buf_fini(&ids);
    return status;
}

void job_prediction_unref(job_prediction *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) != 1) return;
    engine *e = p->engine;
    memory_budget_give(e->params.request_memory, p->charged);
    free_text(p);
    prediction_destroy(&e->env, p->ids);
    rad_free(&e->env, p, sizeof *p);
}

/* ---- what a batch shares ---- */

/* Whether the newest copy is of the same: the caller's memory does not change within a batch. */
static bool is_newest(const engine_share *s, int kind, const void *of, size_t count)
{
    return s && s->of[kind] == of && s->count[kind] == count;
}

static void remember(engine_share *s, int kind, const void *of, size_t count, void *copy)
{
    s->of[kind] = of;
    s->count[kind] = count;
    s->copy[kind] = copy;
}

rad_status job_share_prompt(engine *e, const engine_request *q, job_prompt **out, rad_error *err)
{
    const void *of = q->messages    ? (const void *)q->messages
                     : q->ids       ? (const void *)q->ids
                     : q->chat_json ? (const void *)q->chat_json
                                    : (const void *)q->text;
    size_t count = q->num_messages + (size_t)q->num_ids + q->chat_json_len + q->text_len;
    engine_share *s = q->share;
    *out = is_newest(s, ENGINE_SHARE_PROMPT, of, count) ? s->copy[ENGINE_SHARE_PROMPT] : NULL;
    if (!*out) {
        rad_status status = prompt_create(e, q, out, err);
        if (status != RAD_OK || !s) return status;
        job_prompt_unref(s->copy[ENGINE_SHARE_PROMPT]);
        remember(s, ENGINE_SHARE_PROMPT, of, count, *out);
    }
    atomic_fetch_add(&(*out)->refs, 1);
    return RAD_OK;
}

rad_status job_share_bias(engine *e, const engine_request *q, job_bias **out, rad_error *err)
{
    const sampling_params *p = &q->sampling;
    engine_share *s = q->share;
    *out = NULL;
    if (!p->num_bias) return RAD_OK;
    if (is_newest(s, ENGINE_SHARE_BIAS, p->bias, p->num_bias)) *out = s->copy[ENGINE_SHARE_BIAS];
    if (!*out) {
        rad_status status = bias_create(e, p, out, err);
        if (status != RAD_OK || !s) return status;
        job_bias_unref(s->copy[ENGINE_SHARE_BIAS]);
        remember(s, ENGINE_SHARE_BIAS, p->bias, p->num_bias, *out);
    }
    atomic_fetch_add(&(*out)->refs, 1);
    return RAD_OK;
}

rad_status job_share_stops(engine *e, const engine_request *q, stop_set **out, rad_error *err)
{
    engine_share *s = q->share;
    *out = NULL;
    if (!q->num_stop) return RAD_OK;
    if (is_newest(s, ENGINE_SHARE_STOPS, q->stop, q->num_stop)) *out = s->copy[ENGINE_SHARE_STOPS];
    if (!*out) {
        rad_status status =
            stop_set_create(&e->env, e->params.request_memory, q->stop, q->num_stop, out, err);
        if (status != RAD_OK || !s) return status;
        stop_set_unref(s->copy[ENGINE_SHARE_STOPS]);
        remember(s, ENGINE_SHARE_STOPS, q->stop, q->num_stop, *out);
    }
    stop_set_ref(*out);
    return RAD_OK;
}

rad_status job_share_form(engine *e, const engine_request *q, form_words **out, rad_error *err)
{
    engine_share *s = q->share;
    *out = NULL;
    if (!q->form) return RAD_OK;
    if (is_newest(s, ENGINE_SHARE_FORM, q->form, 1)) *out = s->copy[ENGINE_SHARE_FORM];
    if (!*out) {
        rad_status status = form_words_create(e, q->form, out, err);
        if (status != RAD_OK || !s) return status;
        form_words_unref(s->copy[ENGINE_SHARE_FORM]);
        remember(s, ENGINE_SHARE_FORM, q->form, 1, *out);
    }
    atomic_fetch_add(&(*out)->refs, 1);
    return RAD_OK;
}

rad_status job_share_prediction(engine *e, const engine_request *q, job_prediction **out,
                                rad_error *err)
{
    engine_share *s = q->share;
    *out = NULL;
    if (!q->prediction) return RAD_OK;
    if (is_newest(s, ENGINE_SHARE_PREDICTION, q->prediction, q->prediction_len))
        *out = s->copy[ENGINE_SHARE_PREDICTION];
    if (!*out) {
        rad_status status = foretold_create(e, q, out, err);
        if (status != RAD_OK || !s) return status;
        job_prediction_unref(s->copy[ENGINE_SHARE_PREDICTION]);
        remember(s, ENGINE_SHARE_PREDICTION, q->prediction, q->prediction_len, *out);
    }
    atomic_fetch_add(&(*out)->refs, 1);
    return RAD_OK;
}

void engine_share_end(engine_share *s)
{
    job_prediction_unref(s->copy[ENGINE_SHARE_PREDICTION]);
    job_prompt_unref(s->copy[ENGINE_SHARE_PROMPT]);
    job_bias_unref(s->copy[ENGINE_SHARE_BIAS]);
    stop_set_unref(s->copy[ENGINE_SHARE_STOPS]);
    form_words_unref(s->copy[ENGINE_SHARE_FORM]);
    *s = (engine_share){0};
}
