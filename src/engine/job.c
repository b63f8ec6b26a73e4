/* job.c - a request's copy: everything that the caller's pointers named.
 *
 * Limits that need no tokenizing are checked before anything is copied. */
#include "engine/engine_impl.h"

enum { MAX_STOP_TOKEN_IDS = 256 };

char *engine_strdup(const rad_env *env, const char *text)
{
    if (!text) return NULL;
    size_t bytes = strlen(text) + 1;
    char *copy = rad_alloc(env, bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

void engine_strfree(const rad_env *env, char *text)
{
    if (text) rad_free(env, text, strlen(text) + 1);
}

static rad_status check_prompt(const engine *e, const engine_request *q, rad_error *err)
{
    if ((q->text != NULL) + (q->ids != NULL) + (q->messages != NULL) + (q->chat_json != NULL) != 1)
        return rad_fail(err, RAD_E_INVAL,
                        "a request has a text, token ids or messages: one of them");
    if (q->text && !q->text_len) return rad_fail(err, RAD_E_INVAL, "the prompt is empty");
    if (q->ids && !q->num_ids) return rad_fail(err, RAD_E_INVAL, "the prompt is empty");
    if (q->messages && !q->num_messages) return rad_fail(err, RAD_E_INVAL, "there are no messages");
    if ((q->messages || q->chat_json) && !e->chat)
        return rad_fail(err, RAD_E_UNSUPPORTED, "%s", e->chat_error);
    if (q->ids && q->num_ids > e->info.context_length)
        return rad_fail(err, RAD_E_LIMIT, "the prompt has %u tokens, the context is %u tokens long",
                        q->num_ids, e->info.context_length);
    for (uint32_t i = 0; q->ids && i < q->num_ids; i++)
        if (q->ids[i] < 0 || (uint32_t)q->ids[i] >= e->info.vocab_size)
            return rad_fail(err, RAD_E_INVAL, "token id %d at %u is not in the vocabulary of %u",
                            q->ids[i], i, e->info.vocab_size);
    for (uint32_t i = 0; i < q->num_messages; i++)
        if (!q->messages[i].role || (!q->messages[i].content && q->messages[i].content_len))
            return rad_fail(err, RAD_E_INVAL, "message %u has no role or no content", i);
    return RAD_OK;
}

static rad_status check_sampling(const engine *e, const sampling_params *p, rad_error *err)
{
    if (p->num_bias > ENGINE_MAX_LOGIT_BIAS)
        return rad_fail(err, RAD_E_INVAL, "logit_bias has %u entries; %d are possible", p->num_bias,
                        ENGINE_MAX_LOGIT_BIAS);
    if (p->num_top_logprobs > ENGINE_MAX_TOP_LOGPROBS)
        return rad_fail(err, RAD_E_INVAL, "%u top logprobs; %d are possible", p->num_top_logprobs,
                        ENGINE_MAX_TOP_LOGPROBS);
    for (uint32_t i = 0; i < p->num_bias; i++)
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= e->info.vocab_size)
            return rad_fail(err, RAD_E_INVAL,
                            "logit_bias: token id %d is not in the vocabulary of %u", p->bias[i].id,
                            e->info.vocab_size);
    if (p->num_id_logprobs > ENGINE_MAX_ID_LOGPROBS)
        return rad_fail(err, RAD_E_INVAL, "token_ids_logprob has %u ids; %d are possible",
                        p->num_id_logprobs, ENGINE_MAX_ID_LOGPROBS);
    for (uint32_t i = 0; i < p->num_id_logprobs; i++)
        if (p->id_logprobs[i] < 0 || (uint32_t)p->id_logprobs[i] >= e->info.vocab_size)
            return rad_fail(err, RAD_E_INVAL,
                            "token_ids_logprob: token id %d is not in the vocabulary of %u",
                            p->id_logprobs[i], e->info.vocab_size);
    return sampling_params_check(p, err);
}

/* What is wanted of the prompt itself. */
static rad_status check_rows(const engine *e, const engine_request *q, rad_error *err)
{
    if (!q->embed && !q->prompt_logprobs) return RAD_OK;
    if (q->embed && !e->info.embedding_length)
        return rad_fail(err, RAD_E_UNSUPPORTED, "this model gives no embeddings");
    if (q->embed && (q->max_new_tokens || q->prompt_logprobs))
        return rad_fail(err, RAD_E_INVAL, "a request has an embedding or an answer");
    if (q->session && e->params.streaming_sessions)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "a session that keeps its K/V has no logprobs of its prompts");
    return RAD_OK;
}

/* What the engine was not made for would be ignored in silence. */
static rad_status check_keeping(const engine *e, const engine_request *q, rad_error *err)
{
    if (q->session && !e->params.max_sessions)
        return rad_fail(err, RAD_E_UNSUPPORTED, "this engine has no sessions (max_sessions)");
    if (q->pin_ns && !e->params.max_pinned_tokens)
        return rad_fail(err, RAD_E_UNSUPPORTED, "this engine pins nothing (max_pinned_tokens)");
    if (q->retention_priority && !e->params.retention)
        return rad_fail(err, RAD_E_UNSUPPORTED, "this engine retains nothing (retention)");
    if (q->retention_priority < 0 || q->retention_priority > 99)
        return rad_fail(err, RAD_E_INVAL, "retention_priority %d is not from 1 to 99",
                        q->retention_priority);
    return RAD_OK;
}

static rad_status check_request(const engine *e, const engine_request *q, rad_error *err)
{
    if (!q->on_event) return rad_fail(err, RAD_E_INVAL, "on_event is needed");
    rad_status status = check_prompt(e, q, err);
    if (status == RAD_OK) status = check_sampling(e, &q->sampling, err);
    if (status == RAD_OK) status = check_keeping(e, q, err);
    if (status == RAD_OK) status = check_rows(e, q, err);
    if (status != RAD_OK) return status;
    if (q->max_new_tokens < -1)
        return rad_fail(err, RAD_E_INVAL, "max_new_tokens %lld is negative",
                        (long long)q->max_new_tokens);
    if (q->num_stop_token_ids > MAX_STOP_TOKEN_IDS)
        return rad_fail(err, RAD_E_INVAL, "%u stop token ids; %d are possible",
                        q->num_stop_token_ids, MAX_STOP_TOKEN_IDS);
    size_t namespace_bytes = q->extra_key ? strlen(q->extra_key) : 0;
    namespace_bytes += q->cache_salt ? strlen(q->cache_salt) : 0;
    if (namespace_bytes > ENGINE_MAX_NAMESPACE_BYTES) /* what the cache can tell apart */
        return rad_fail(err, RAD_E_INVAL,
                        "extra_key and cache_salt together have %zu bytes; %d "
                        "are possible",
                        namespace_bytes, ENGINE_MAX_NAMESPACE_BYTES);
    return RAD_OK;
}

/* What the sampler reads at each step. */
static bool copy_sampling(const engine *e, engine_job *job, const engine_request *q)
{
    sampling_params *p = &job->params.sampling;
    *p = q->sampling;
    p->bias = job->bias ? job->bias->entries : NULL;
    p->end_ids = NULL;
    p->num_end_ids = 0;
    if (p->num_id_logprobs) {
        const size_t bytes = p->num_id_logprobs * sizeof *p->id_logprobs;
        job->logprob_ids = rad_alloc(&e->env, bytes);
        if (!job->logprob_ids) return false;
        memcpy(job->logprob_ids, p->id_logprobs, bytes);
        p->id_logprobs = job->logprob_ids;
        job->num_logprob_ids = p->num_id_logprobs;
    }
    if (!p->min_new_tokens) return true;
    const rad_token *lists[] = {q->ignore_eos ? NULL : e->end_ids, q->stop_token_ids};
    const uint32_t lens[] = {q->ignore_eos ? 0 : e->num_end_ids, q->num_stop_token_ids};
    if (!(lens[0] + lens[1])) return true;
    job->end_ids_bytes = (lens[0] + lens[1]) * sizeof *job->end_ids;
    job->end_ids = rad_alloc(&e->env, job->end_ids_bytes);
    if (!job->end_ids) return false;
    for (int l = 0; l < 2; l++)
        for (uint32_t i = 0; i < lens[l]; i++) /* a stop id may be none of the vocabulary's */
            if (lists[l][i] >= 0 && (uint32_t)lists[l][i] < e->info.vocab_size)
                job->end_ids[p->num_end_ids++] = lists[l][i];
    p->end_ids = job->end_ids;
    return true;
}

static bool copy_rest(const engine *e, engine_job *job, const engine_request *q)
{
    const rad_env *env = &e->env;
    if (q->num_stop_token_ids) {
        size_t bytes = q->num_stop_token_ids * sizeof *q->stop_token_ids;
        job->stop_token_ids = rad_alloc(env, bytes);
        if (job->stop_token_ids) memcpy(job->stop_token_ids, q->stop_token_ids, bytes);
    }
    job->extra_key = engine_strdup(env, q->extra_key);
    job->cache_salt = engine_strdup(env, q->cache_salt);
    job->params = (req_params){
        .max_new_tokens = q->max_new_tokens < 0 || q->max_new_tokens > UINT32_MAX
                              ? UINT32_MAX
                              : (uint32_t)q->max_new_tokens,
        .sampling = job->params.sampling,
        .stop_token_ids = job->stop_token_ids,
        .num_stop_token_ids = q->num_stop_token_ids,
        .ignore_eos = q->ignore_eos,
        .priority = q->priority,
        .extra_key = job->extra_key,
        .cache_salt = job->cache_salt,
        .session = q->session,
        .retention_priority = q->retention_priority,
        .retention_idle_ns = q->retention_idle_ns,
        .pin_ns = q->pin_ns,
        .pin_tokens = q->pin_tokens,
        .told = q->told,
        .num_told = q->told ? q->num_told : 0,
        .prompt_logprobs = q->prompt_logprobs,
        .prompt_logprobs_from = q->prompt_logprobs_from,
        .pooling = q->embed ? e->pooling : POOL_NONE,
        .hidden_dim = q->embed ? e->info.embedding_length : 0,
        .user = job,
    };
    return (!q->num_stop_token_ids || job->stop_token_ids) && (!q->extra_key || job->extra_key) &&
           (!q->cache_salt || job->cache_salt);
}

/* What it takes besides the prompt; its ids are charged when they are known. */
static uint64_t own_bytes(const engine *e, const engine_request *q)
{
    uint64_t ids = 2 * (uint64_t)q->num_stop_token_ids;
    if (q->sampling.min_new_tokens) ids += e->num_end_ids + q->num_stop_token_ids;
    ids += q->sampling.num_id_logprobs;
    return sizeof(engine_job) + (q->embed ? e->info.embedding_length * sizeof(double) : 0) +
           ids * sizeof(rad_token) + q->num_stop * sizeof(uint32_t) + 2 * ENGINE_MAX_NAMESPACE_BYTES;
}

static rad_status share(engine *e, engine_job *job, const engine_request *q, rad_error *err)
{
    stop_set *stops = NULL;
    rad_status status = job_share_prompt(e, q, &job->prompt, err);
    if (status == RAD_OK) status = job_share_form(e, q, &job->form, err);
    if (status == RAD_OK) status = job_share_prediction(e, q, &job->prediction, err);
    if (status == RAD_OK) status = job_share_bias(e, q, &job->bias, err);
    if (status == RAD_OK) status = job_share_stops(e, q, &stops, err);
    if (status == RAD_OK) status = stop_matcher_init(&job->stops, &e->env, stops, err);
    stop_set_unref(stops);
    return status;
}

rad_status job_create(engine *e, const engine_request *q, engine_job **out, rad_error *err)
{
    void *memory = NULL;
    uint64_t own = own_bytes(e, q);
    *out = NULL;
    rad_status status = check_request(e, q, err);
    if (status == RAD_OK) status = engine_alloc_charged(e, sizeof(engine_job), own, &memory, err);
    if (status != RAD_OK) return status;
    engine_job *job = memory;
    job->charged = own;
    job->on_event = q->on_event;
    job->user = q->user;
    job->keep_special = q->keep_special;
    job->think_open = q->think_open;
    job->think_close = q->think_close;
    job->thinks = q->thinks;
    job->keep_ids = q->keep_ids;
    job->num_keep_ids = q->num_keep_ids;
    job->wants_prompt_tail = q->wants_prompt_tail;
    job->no_stop_trim = q->no_stop_trim;
    job->submitted_ns = e->env.now_ns(e->env.user);
    status = share(e, job, q, err);
    if (status == RAD_OK && !(copy_sampling(e, job, q) && copy_rest(e, job, q)))
        status = rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    if (status != RAD_OK) {
        job_destroy(e, job);
        return status;
    }
    *out = job;
    return RAD_OK;
}

void job_free_prompt(engine *e, engine_job *job)
{
    job_prompt_unref(job->prompt);
    form_words_unref(job->form);
    rad_free(&e->env, job->stop_token_ids,
             job->params.num_stop_token_ids * sizeof *job->stop_token_ids);
    engine_strfree(&e->env, job->extra_key);
    engine_strfree(&e->env, job->cache_salt);
    job->prompt = NULL;
    job->form = NULL;
    job->extra_key = job->cache_salt = NULL;
    job->stop_token_ids = NULL;
}

void job_destroy(engine *e, engine_job *job)
{
    if (!job) return;
    job_free_prompt(e, job);
    req_fini(&job->r);
    answer_rule_destroy(e, job->rule);
    job_prediction_unref(job->prediction);
    job_bias_unref(job->bias);
    rad_free(&e->env, job->end_ids, job->end_ids_bytes);
    rad_free(&e->env, job->logprob_ids, job->num_logprob_ids * sizeof *job->logprob_ids);
    stop_matcher_fini(&job->stops);
    text_buf_fini(&job->pending);
    memory_budget_give(e->params.request_memory, job->charged);
    rad_free(&e->env, job, sizeof *job);
}
