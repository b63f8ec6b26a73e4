/* openai_completions.c - POST /v1/completions. */
#include "server/server_priv.h"

/* best_of answers are made, and n of them told. */
static bool parse_best_of(api_request *r, api_error *err)
{
    int64_t best_of = 0;
    if (!json_in_int(r->root, "best_of", 0, API_MAX_CHOICES, &best_of, err)) return false;
    if (!best_of || best_of == r->n) return true;
    if (best_of < r->n)
        return api_fail(err, 400, "best_of", "'best_of' is %d and 'n' %u: it must not be less",
                        (int)best_of, r->n);
    if (r->stream)
        return api_fail(err, 400, "best_of",
                        "which answers are the best is known when all have ended: 'best_of' and "
                        "'stream' do not go together");
    r->best = r->n;
    r->n = (uint32_t)best_of;
    return true;
}

bool completions_parse(api_request *r, api_error *err)
{
    const json_t *prompt = json_in_get(r->root, "prompt");
    if (!prompt) return api_fail(err, 400, "prompt", "'prompt' is missing");
    int64_t max_tokens = 16;
    const json_t *logprobs = json_in_get(r->root, "logprobs"); /* a number, 0 too asks for them */
    r->logprobs = logprobs && !json_is_false(logprobs);
    if (r->logprobs && !api_parse_top_logprobs(r, r->root, "logprobs", err)) return false;
    if (!api_parse_prompts(r, prompt, "prompt", true, true, err) || !api_parse_openai(r, err) ||
        !json_in_int(r->root, "max_tokens", 0, INT32_MAX, &max_tokens, err) ||
        !json_in_bool(r->root, "echo", &r->echo, err) || !parse_best_of(r, err))
        return false;
    r->prompt_logprobs = r->echo && r->logprobs;
    if (!api_parse_vllm_logprobs(r, err)) return false;
    for (uint32_t i = 0; i < r->num_items; i++)
        r->items[i].max_new_tokens = max_tokens;
    return true;
}

static const char OBJECT[] = "text_completion";

/* "stop_reason" is what vLLM calls the stop string or token that ended it. */
static void put_choice(json_writer *w, call_item *item, size_t from_text, size_t from_ids)
{
    jw_open(w, '{');
    jw_name(w, "index"), jw_int(w, item->place);
    jw_name(w, "text"), put_item_text(w, item, from_text);
    jw_name(w, "logprobs"), put_completion_logprobs(w, item, from_ids);
    if (item->call->request.vllm_prompt)
        jw_name(w, "prompt_logprobs"), put_vllm_prompt_logprobs(w, item);
    put_openai_extras(w, item, from_ids);
    jw_close(w, '}');
}

static bool has_news(const call *c, const call_item *item)
{
    return item->finished || item->text.len > item->text_sent ||
           item->prompt_logprobs.len > item->prompt_sent ||
           (call_tells_ids(c) && item->ids.len > item->ids_sent);
}

static void write_chunk(const call *c, call_item *item, json_writer *w)
{
    put_openai_head(w, c, OBJECT);
    put_choice(w, item, item->text_sent, item->ids_sent);
    put_openai_tail(w, c->request.include_usage ? json_null() : NULL);
}

static void write_usage_chunk(const call *c, json_writer *w)
{
    put_openai_head(w, c, OBJECT);
    write_openai_tail(c, w);
}

static void write_head(const call *c, json_writer *w)
{
    put_openai_head(w, c, OBJECT);
}

static void write_item(const call *c, call_item *item, json_writer *w)
{
    (void)c;
    put_choice(w, item, 0, 0);
}

const call_ops completions_ops = {.kind = API_COMPLETIONS,
                                  .id_prefix = "cmpl-",
                                  .has_news = has_news,
                                  .write_chunk = write_chunk,
                                  .write_usage_chunk = write_usage_chunk,
                                  .write_head = write_head,
                                  .write_item = write_item,
                                  .write_tail = write_openai_tail};
