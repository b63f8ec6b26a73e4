/* req.c - the request's own memory: ids, stop ids, namespace.
 *
 * fill_ids grows by doubling up to what the request may need at all: a request with
 * a far limit that ends early must not pay for the limit, and thousands may wait.
 *
 * Invariant: num_input + num_output <= fill_capacity, num_input >= 1. */
#include "sched/req.h"

enum { FIRST_ROOM = 64 }; /* output ids that the first buffer has room for */

static char *copy_string(const rad_env *env, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = rad_alloc(env, bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

static void free_string(const rad_env *env, char *text)
{
    if (text) rad_free(env, text, strlen(text) + 1);
}

rad_status req_init(req *r, const rad_env *env, const req_params *p, rad_error *err)
{
    memset(r, 0, sizeof *r);
    r->env = rad_env_or_default(env);
    if (!p->num_ids) return rad_fail(err, RAD_E_INVAL, "the prompt is empty");
    if (p->prompt_logprobs && p->pooling)
        return rad_fail(err, RAD_E_INVAL, "a request has logprobs of its prompt or an embedding");
    if (p->prompt_logprobs && p->prompt_logprobs_from >= p->num_ids)
        return rad_fail(err, RAD_E_INVAL,
                        "logprobs of the prompt are wanted from token %u on, and it has %u",
                        p->prompt_logprobs_from, p->num_ids);

    uint32_t room = RAD_MIN(p->max_new_tokens, (uint32_t)FIRST_ROOM);
    if (p->num_ids > INT32_MAX - FIRST_ROOM)
        return rad_fail(err, RAD_E_LIMIT, "a prompt of %u tokens is too long", p->num_ids);
    r->fill_capacity = p->num_ids + room;
    r->num_stop_token_ids = p->num_stop_token_ids;
    r->fill_ids = rad_alloc(&r->env, rad_mul(r->fill_capacity, sizeof *r->fill_ids));
    if (p->num_stop_token_ids)
        r->stop_token_ids =
            rad_alloc(&r->env, rad_mul(p->num_stop_token_ids, sizeof *r->stop_token_ids));
    if (p->extra_key) r->extra_key = copy_string(&r->env, p->extra_key);
    if (p->cache_salt) r->cache_salt = copy_string(&r->env, p->cache_salt);
    r->pooling = p->pooling;
    r->hidden_dim = p->hidden_dim;
    if (p->pooling)
        r->hidden_sum = rad_alloc(&r->env, rad_mul(p->hidden_dim, sizeof *r->hidden_sum));
    if (!r->fill_ids || (p->pooling && !r->hidden_sum) ||
        (p->num_stop_token_ids && !r->stop_token_ids) || (p->extra_key && !r->extra_key) ||
        (p->cache_salt && !r->cache_salt)) {
        req_fini(r);
        return rad_fail(err, RAD_E_NOMEM, "no memory for a request of %u tokens", p->num_ids);
    }

    memcpy(r->fill_ids, p->ids, p->num_ids * sizeof *p->ids);
    if (p->num_stop_token_ids)
        memcpy(r->stop_token_ids, p->stop_token_ids,
               p->num_stop_token_ids * sizeof *p->stop_token_ids);
    r->num_input = p->num_ids;
    r->max_new_tokens = p->max_new_tokens;
    r->sampling = p->sampling;
    r->ignore_eos = p->ignore_eos;
    r->rule = p->rule;
    r->prediction = p->prediction;
    r->told = p->told;
    r->num_told = p->num_told;
    r->priority = p->priority;
    r->session = p->session;
    r->retention_priority = p->retention_priority;
    r->retention_idle_ns = p->retention_idle_ns;
    r->pin_ns = p->pin_ns;
    r->pin_tokens = p->pin_tokens;
    r->prompt_logprobs = p->prompt_logprobs;
    r->prompt_logprobs_from = p->prompt_logprobs_from;
    r->next_row = UINT32_MAX;
    if (p->prompt_logprobs) r->next_row = p->prompt_logprobs_from;
    req_drop_hidden(r);
    r->matched_token = -1;
    r->user = p->user;
    return RAD_OK;
}

void req_fini(req *r)
{
    rad_free(&r->env, r->fill_ids, r->fill_capacity * sizeof *r->fill_ids);
    rad_free(&r->env, r->stop_token_ids, r->num_stop_token_ids * sizeof *r->stop_token_ids);
    free_string(&r->env, r->extra_key);
    free_string(&r->env, r->cache_salt);
    rad_free(&r->env, r->hidden_sum, r->hidden_dim * sizeof *r->hidden_sum);
    r->hidden_sum = NULL;
    r->fill_ids = NULL;
    r->stop_token_ids = NULL;
    r->extra_key = r->cache_salt = NULL;
}

void req_drop_hidden(req *r)
{
    if (!r->pooling) return;
    memset(r->hidden_sum, 0, r->hidden_dim * sizeof *r->hidden_sum);
    r->next_row = r->pooling == POOL_MEAN ? 0 : r->num_input - 1;
}

size_t req_logprobs_bytes(const sampling_params *p, uint32_t positions)
{
    return rad_mul(positions, sampler_num_logprobs(p) * sizeof(token_logprob));
}

rad_status req_reserve(req *r, uint32_t count)
{
    const uint64_t num_fill = req_num_fill(r), least = num_fill + count;
    if (least <= r->fill_capacity) return RAD_OK;
    uint64_t most = (uint64_t)r->num_input + r->max_new_tokens;
    uint64_t capacity = RAD_MAX(RAD_MIN(2 * (uint64_t)r->fill_capacity, most), least);
    if (capacity > INT32_MAX) return RAD_E_NOMEM;
    rad_token *ids = rad_alloc(&r->env, capacity * sizeof *ids);
    if (!ids) return RAD_E_NOMEM;
    memcpy(ids, r->fill_ids, num_fill * sizeof *ids);
    rad_free(&r->env, r->fill_ids, r->fill_capacity * sizeof *ids);
    r->fill_ids = ids;
    r->fill_capacity = (uint32_t)capacity;
    r->kv.key.tokens = ids;
    return RAD_OK;
}

rad_status req_append(req *r, rad_token token)
{
    uint32_t num_fill = req_num_fill(r);
    if (req_reserve(r, 1) != RAD_OK) return RAD_E_NOMEM;
    r->fill_ids[num_fill] = token;
    r->num_output++;
    r->kv.key = req_session_key(r, req_num_fill(r));
    return RAD_OK;
}

rad_key req_key(const req *r, uint32_t num_tokens)
{
    return (rad_key){.tokens = r->fill_ids,
                     .num_tokens = num_tokens,
                     .extra_key = r->extra_key,
                     .cache_salt = r->cache_salt};
}

rad_key req_session_key(const req *r, uint32_t num_tokens)
{
    rad_key key = req_key(r, num_tokens);
    key.session = r->session;
    return key;
}

static bool same_string(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool req_same_namespace(const req *a, const req *b)
{
    return same_string(a->extra_key, b->extra_key) && same_string(a->cache_salt, b->cache_salt);
}

void req_check_finished(req *r, bool is_end_token)
{
    rad_token token = r->fill_ids[req_num_fill(r) - 1];
    bool stop = is_end_token && !r->ignore_eos;
    for (uint32_t i = 0; i < r->num_stop_token_ids && !stop; i++)
        stop = r->stop_token_ids[i] == token;
    if (r->rule && r->rule->ops->has_ended(r->rule)) stop = true;
    if (stop) {
        r->finish = REQ_FINISH_STOP;
        r->matched_token = token;
    } else if (r->num_output >= r->max_new_tokens) {
        r->finish = REQ_FINISH_LENGTH;
    }
}
