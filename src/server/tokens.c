/* tokens.c - POST /tokenize and /detokenize: what the model reads, in ids.
 *
 * A prompt, a list of prompts, or a conversation as chat has it, which comes out as the template
 * writes it. Nothing is computed and nothing queued; a worker does it, as parsing. Answers carry
 * the names that vLLM and SGLang have for the same thing. */
#include "server/api_fields.h"
#include "server/server_priv.h"

#include <stdlib.h>

bool tokenize_parse(api_request *r, api_error *err)
{
    const json_t *prompt = json_in_get(r->root, "prompt");
    const json_t *messages = json_in_get(r->root, "messages");
    if (!prompt == !messages)
        return api_fail(err, 400, prompt ? "messages" : "prompt",
                        "give either 'prompt' or 'messages'%s", prompt ? ", not both" : "");
    if (!json_in_bool(r->root, "return_token_strs", &r->text_in_logprobs, err)) return false;
    if (messages) return chat_parse(r, err);
    return api_parse_prompts(r, prompt, "prompt", true, false, err);
}

bool detokenize_parse(api_request *r, api_error *err)
{
    const json_t *tokens = json_in_get(r->root, "tokens");
    bool skip = true;
    if (!tokens) return api_fail(err, 400, "tokens", "'tokens' is missing");
    if (json_is_array(tokens) && !json_array_size(tokens))
        return api_fail(err, 400, "tokens", "'tokens' is empty");
    if (!json_in_bool(r->root, "skip_special_tokens", &skip, err) ||
        !api_parse_prompts(r, tokens, "tokens", false, true, err))
        return false;
    for (uint32_t i = 0; i < r->num_items; i++)
        r->items[i].keep_special = !skip;
    return true;
}

/* A piece of a character is no text: its bytes are spelt out, as in logprobs. */
static void put_token_text(json_writer *w, const tokenizer *tok, rad_token id)
{
    char bytes[TOKENIZER_MAX_PIECE];
    jw_text(w, bytes, tokenizer_piece(tok, id, true, bytes, sizeof bytes));
}

static void put_list(json_writer *w, const api_request *r, const token_buf *lists,
                     void (*put)(json_writer *w, const tokenizer *tok, rad_token id),
                     const tokenizer *tok)
{
    if (r->batch) jw_open(w, '[');
    for (uint32_t i = 0; i < r->num_items; i++) {
        jw_open(w, '[');
        for (uint32_t k = 0; k < lists[i].len; k++)
            put(w, tok, lists[i].ids[k]);
        jw_close(w, ']');
    }
    if (r->batch) jw_close(w, ']');
}

static void put_id(json_writer *w, const tokenizer *tok, rad_token id)
{
    (void)tok;
    jw_int(w, id);
}

static void put_tokens(json_writer *w, call *c, const token_buf *lists)
{
    const api_request *r = &c->request;
    jw_open(w, '{');
    jw_name(w, "tokens"), put_list(w, r, lists, put_id, NULL);
    jw_name(w, "count");
    if (r->batch) jw_open(w, '[');
    for (uint32_t i = 0; i < r->num_items; i++)
        jw_int(w, lists[i].len);
    if (r->batch) jw_close(w, ']');
    jw_name(w, "max_model_len"), jw_int(w, engine_get_info(c->server->engine)->context_length);
    const tokenizer *tok = engine_tokenizer(c->server->engine);
    if (r->text_in_logprobs && tok)
        jw_name(w, "token_strs"), put_list(w, r, lists, put_token_text, tok);
    jw_close(w, '}');
}

static bool no_memory(call *c)
{
    return api_fail(&c->error, 503, NULL, "no memory for this request");
}

/* The answer stands in c->out then. */
static bool write_tokens(call *c, const token_buf *lists)
{
    json_writer w;
    c->out = evbuffer_new();
    json_writer_begin(&w, c->out);
    put_tokens(&w, c, lists);
    return json_writer_end(&w) || no_memory(c);
}

static bool tokenize(call *c)
{
    const api_request *r = &c->request;
    token_buf *lists = calloc(r->num_items, sizeof *lists);
    bool done = lists || no_memory(c);
    for (uint32_t i = 0; done && i < r->num_items; i++)
        done = call_encode(c, &r->items[i], r->items[i].text ? "prompt" : "messages", &lists[i]);
    done = done && write_tokens(c, lists);
    for (uint32_t i = 0; lists && i < r->num_items; i++)
        token_buf_fini(&lists[i]);
    free(lists);
    return done;
}

/* ---- the other way ---- */

static bool put_text_of(json_writer *w, call *c, const engine_request *q)
{
    const tokenizer *tok = engine_tokenizer(c->server->engine);
    char bytes[TOKENIZER_MAX_PIECE];
    struct evbuffer *text = evbuffer_new();
    bool done = text || no_memory(c);
    for (uint32_t i = 0; done && i < q->num_ids; i++) {
        if ((uint32_t)q->ids[i] >= tokenizer_vocab_size(tok)) {
            done = api_fail(&c->error, 400, "tokens",
                            "token id %d at %u is not in the vocabulary of %u", q->ids[i], i,
                            tokenizer_vocab_size(tok));
            break;
        }
        size_t len = tokenizer_piece(tok, q->ids[i], q->keep_special, bytes, sizeof bytes);
        done = evbuffer_add(text, bytes, len) == 0 || no_memory(c);
    }
    size_t len = done ? evbuffer_get_length(text) : 0;
    if (done) jw_text(w, len ? (const char *)evbuffer_pullup(text, -1) : "", len);
    if (text) evbuffer_free(text);
    return done;
}

/* Under vLLM's name and under SGLang's. */
static bool detokenize(call *c)
{
    static const char *const names[] = {"prompt", "text"};
    const api_request *r = &c->request;
    json_writer w;
    bool done = true;
    if (!engine_tokenizer(c->server->engine))
        return api_fail(&c->error, 400, NULL, "this model has no vocabulary");
    c->out = evbuffer_new();
    json_writer_begin(&w, c->out);
    jw_open(&w, '{');
    for (size_t name = 0; name < RAD_COUNT(names); name++) {
        jw_name(&w, names[name]);
        if (r->batch) jw_open(&w, '[');
        for (uint32_t i = 0; done && i < r->num_items; i++)
            done = put_text_of(&w, c, &r->items[i]);
        if (r->batch) jw_close(&w, ']');
    }
    jw_close(&w, '}');
    return done && (json_writer_end(&w) || no_memory(c));
}

static void answer(call *c)
{
    call_reply_text(c, "application/json", c->out);
}

static const call_ops tokenize_ops = {
    .kind = API_TOKENIZE, .id_prefix = "", .compute = tokenize, .answer = answer};
static const call_ops detokenize_ops = {
    .kind = API_DETOKENIZE, .id_prefix = "", .compute = detokenize, .answer = answer};

void handle_tokenize(server *s, struct evhttp_request *http)
{
    call_start(s, &tokenize_ops, http);
}

void handle_detokenize(server *s, struct evhttp_request *http)
{
    call_start(s, &detokenize_ops, http);
}
