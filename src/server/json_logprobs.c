/* json_logprobs.c - how likely each token was, in the three forms that clients know.
 *
 *     chat         {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}
 *     completions  {"tokens": [], "token_logprobs": [], "top_logprobs": [{}], "text_offset": []}
 *     /generate    [[logprob, id, text or null]], beside the output's ids
 *
 * A token may be a part of a character: then its text is written as OpenAI does,
 * "bytes:\xe2\x82", which no two tokens share. JSON has no infinity: an impossible token
 * has the logprob -9999. */
#include "server/server_priv.h"

#include <math.h>
#include <stdio.h>

/* The logprobs of one id. */
typedef struct entry {
    const token_logprob *own; /* and num_top behind it */
    uint32_t num_top;
} entry;

static size_t num_ids(const call_item *item)
{
    return item->ids.len / sizeof(rad_token);
}

static bool find_entry(const call_item *item, size_t index, entry *out)
{
    size_t each = 1 + (size_t)item->call->request.num_top_logprobs;
    if ((index + 1) * each * sizeof(token_logprob) > item->logprobs.len) return false;
    out->own = (const token_logprob *)item->logprobs.data + index * each;
    out->num_top = 0;
    while (out->num_top + 1 < each && out->own[out->num_top + 1].id >= 0)
        out->num_top++;
    return true;
}

static json_t *json_logprob(const token_logprob *t)
{
    return json_real(isfinite(t->logprob) ? (double)t->logprob : -9999.0);
}

typedef struct piece {
    char bytes[TOKENIZER_MAX_PIECE];
    size_t len;
} piece;

static void get_piece(const call_item *item, rad_token id, piece *out)
{
    const tokenizer *tok = engine_tokenizer(item->call->server->engine);
    out->len = tok ? tokenizer_piece(tok, id, true, out->bytes, sizeof out->bytes) : 0;
}

static json_t *json_piece(const piece *p)
{
    json_t *text = json_stringn(p->bytes, p->len);
    if (text) return text;
    char words[8 + 4 * 64] = "bytes:";
    size_t at = strlen(words);
    for (size_t i = 0; i < p->len && at + 5 < sizeof words; i++)
        at +=
            (size_t)snprintf(words + at, sizeof words - at, "\\x%02x", (unsigned char)p->bytes[i]);
    return json_string(words);
}

/* Of a piece: continuation bytes belong to a character that began in an earlier one. */
static uint64_t count_chars(const piece *p)
{
    uint64_t count = 0;
    for (size_t i = 0; i < p->len; i++)
        count += ((unsigned char)p->bytes[i] & 0xc0) != 0x80;
    return count;
}

/* Control tokens have a spelling, which is part of the answer only when asked for. */
static bool is_text(const call_item *item, rad_token id)
{
    const tokenizer *tok = engine_tokenizer(item->call->server->engine);
    return item->call->request.items[item->index].keep_special || !tok ||
           !tokenizer_is_control(tok, id);
}

/* ---- chat ---- */

static json_t *chat_token(const call_item *item, const token_logprob *t)
{
    piece p;
    get_piece(item, t->id, &p);
    json_t *bytes = json_array();
    for (size_t i = 0; i < p.len; i++)
        json_array_append_new(bytes, json_integer((unsigned char)p.bytes[i]));
    return json_pack("{s:o, s:o, s:o}", "token", json_piece(&p), "logprob", json_logprob(t),
                     "bytes", bytes);
}

json_t *json_chat_logprobs(const call_item *item, size_t from_byte)
{
    entry e;
    if (!item->call->request.logprobs) return json_null();
    json_t *content = json_array();
    for (size_t i = from_byte / sizeof(rad_token); i < num_ids(item); i++) {
        if (!find_entry(item, i, &e)) break;
        json_t *token = chat_token(item, e.own), *top = json_array();
        for (uint32_t k = 1; k <= e.num_top; k++)
            json_array_append_new(top, chat_token(item, e.own + k));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(content, token);
    }
    return json_pack("{s:o}", "content", content);
}

/* ---- completions ---- */

json_t *json_completion_logprobs(call_item *item, size_t from_byte)
{
    entry e;
    piece p;
    if (!item->call->request.logprobs) return json_null();
    uint64_t offset = from_byte ? item->chars_sent : 0;
    json_t *tokens = json_array(), *logprobs = json_array(), *top = json_array(),
           *offsets = json_array();
    for (size_t i = from_byte / sizeof(rad_token); i < num_ids(item); i++) {
        if (!find_entry(item, i, &e)) break;
        json_t *best = json_object();
        for (uint32_t k = 1; k <= e.num_top; k++) {
            get_piece(item, e.own[k].id, &p);
            json_t *name = json_piece(&p);
            json_object_set_new(best, json_string_value(name), json_logprob(&e.own[k]));
            json_decref(name);
        }
        get_piece(item, e.own->id, &p);
        json_array_append_new(tokens, json_piece(&p));
        json_array_append_new(logprobs, json_logprob(e.own));
        json_array_append_new(top, best);
        json_array_append_new(offsets, json_integer((json_int_t)offset));
        if (is_text(item, e.own->id)) offset += count_chars(&p);
    }
    item->chars_sent = offset;
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", top, "text_offset", offsets);
}

/* ---- /generate ---- */

static json_t *sglang_token(const call_item *item, const token_logprob *t)
{
    piece p = {.len = 0};
    bool text = item->call->request.text_in_logprobs;
    if (text) get_piece(item, t->id, &p);
    return json_pack("[o, i, o]", json_logprob(t), t->id, text ? json_piece(&p) : json_null());
}

void json_add_sglang_logprobs(const call_item *item, json_t *meta)
{
    json_t *own = json_array(), *top = json_array();
    entry e;
    for (size_t i = 0; i < num_ids(item) && find_entry(item, i, &e); i++) {
        json_t *best = json_array();
        for (uint32_t k = 1; k <= e.num_top; k++)
            json_array_append_new(best, sglang_token(item, e.own + k));
        json_array_append_new(own, sglang_token(item, e.own));
        json_array_append_new(top, best);
    }
    json_object_set_new(meta, "input_token_logprobs", json_array());
    json_object_set_new(meta, "output_token_logprobs", own);
    if (item->call->request.num_top_logprobs)
        json_object_set_new(meta, "output_top_logprobs", top);
    else
        json_decref(top);
}

bool call_tells_ids(const call *c)
{
    return c->request.return_token_ids || c->request.logprobs;
}
