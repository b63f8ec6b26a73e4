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

static void put_logprob(json_writer *w, const token_logprob *t)
{
    jw_real(w, isfinite(t->logprob) ? (double)t->logprob : -9999.0);
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

/* Its text, or the spelling of bytes that are none. */
static void spell_piece(piece *p)
{
    if (json_is_utf8(p->bytes, p->len)) return;
    char words[8 + 4 * 64] = "bytes:";
    size_t at = strlen(words);
    for (size_t i = 0; i < p->len && at + 5 < sizeof words; i++)
        at +=
            (size_t)snprintf(words + at, sizeof words - at, "\\x%02x", (unsigned char)p->bytes[i]);
    p->len = at < sizeof p->bytes ? at : sizeof p->bytes;
    memcpy(p->bytes, words, p->len);
}

static void put_piece(json_writer *w, piece p)
{
    spell_piece(&p);
    jw_text(w, p.bytes, p.len);
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
    return item->keep_special || !tok || !tokenizer_is_control(tok, id);
}

/* ---- chat ---- */

static void open_chat_token(json_writer *w, const call_item *item, const token_logprob *t)
{
    piece p;
    get_piece(item, t->id, &p);
    jw_open(w, '{');
    jw_name(w, "token"), put_piece(w, p);
    jw_name(w, "logprob"), put_logprob(w, t);
    jw_name(w, "bytes"), jw_open(w, '[');
    for (size_t i = 0; i < p.len; i++)
        jw_int(w, (unsigned char)p.bytes[i]);
    jw_close(w, ']');
}

void put_chat_logprobs(json_writer *w, const call_item *item, size_t from_byte)
{
    entry e;
    if (!item->call->request.logprobs) {
        jw_null(w);
        return;
    }
    jw_open(w, '{');
    jw_name(w, "content"), jw_open(w, '[');
    for (size_t i = from_byte / sizeof(rad_token); i < num_ids(item); i++) {
        if (!find_entry(item, i, &e)) break;
        open_chat_token(w, item, e.own);
        jw_name(w, "top_logprobs"), jw_open(w, '[');
        for (uint32_t k = 1; k <= e.num_top; k++)
            open_chat_token(w, item, e.own + k), jw_close(w, '}');
        jw_close(w, ']');
        jw_close(w, '}');
    }
    jw_close(w, ']');
    jw_close(w, '}');
}

/* ---- completions ---- */

/* One id's alternatives by their texts; of two with the same text the last counts, as in a tree. */
static void put_best(json_writer *w, const call_item *item, const entry *e)
{
    piece pieces[API_MAX_TOP_LOGPROBS];
    uint32_t n = RAD_MIN(e->num_top, (uint32_t)API_MAX_TOP_LOGPROBS);
    for (uint32_t k = 0; k < n; k++) {
        get_piece(item, e->own[k + 1].id, &pieces[k]);
        spell_piece(&pieces[k]);
    }
    jw_open(w, '{');
    for (uint32_t k = 0; k < n; k++) {
        uint32_t last = k, first = k;
        for (uint32_t i = 0; i < n; i++) {
            if (pieces[i].len != pieces[k].len ||
                memcmp(pieces[i].bytes, pieces[k].bytes, pieces[k].len) != 0)
                continue;
            last = RAD_MAX(last, i);
            first = RAD_MIN(first, i);
        }
        if (first != k) continue;
        jw_text_name(w, pieces[k].bytes, pieces[k].len);
        put_logprob(w, &e->own[last + 1]);
    }
    jw_close(w, '}');
}

void put_completion_logprobs(json_writer *w, call_item *item, size_t from_byte)
{
    enum { TOKENS, LOGPROBS, TOP, OFFSETS, NUM_LISTS };
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    if (!item->call->request.logprobs) {
        jw_null(w);
        return;
    }
    uint64_t offset = from_byte ? item->chars_sent : 0;
    jw_open(w, '{');
    for (int list = 0; list < NUM_LISTS; list++) {
        entry e;
        piece p;
        jw_name(w, names[list]), jw_open(w, '[');
        for (size_t i = from_byte / sizeof(rad_token); i < num_ids(item); i++) {
            if (!find_entry(item, i, &e)) break;
            if (list == TOKENS || list == OFFSETS) get_piece(item, e.own->id, &p);
            if (list == TOKENS) put_piece(w, p);
            if (list == LOGPROBS) put_logprob(w, e.own);
            if (list == TOP) put_best(w, item, &e);
            if (list != OFFSETS) continue;
            jw_int(w, (int64_t)offset);
            if (is_text(item, e.own->id)) offset += count_chars(&p);
        }
        jw_close(w, ']');
    }
    jw_close(w, '}');
    item->chars_sent = offset;
}

/* ---- /generate ---- */

static void put_sglang_token(json_writer *w, const call_item *item, const token_logprob *t)
{
    piece p;
    jw_open(w, '[');
    put_logprob(w, t);
    jw_int(w, t->id);
    if (item->call->request.text_in_logprobs) {
        get_piece(item, t->id, &p);
        put_piece(w, p);
    } else {
        jw_null(w);
    }
    jw_close(w, ']');
}

void put_sglang_logprobs(json_writer *w, const call_item *item)
{
    entry e;
    jw_name(w, "input_token_logprobs"), jw_open(w, '['), jw_close(w, ']');
    jw_name(w, "output_token_logprobs"), jw_open(w, '[');
    for (size_t i = 0; i < num_ids(item) && find_entry(item, i, &e); i++)
        put_sglang_token(w, item, e.own);
    jw_close(w, ']');
    if (!item->call->request.num_top_logprobs) return;
    jw_name(w, "output_top_logprobs"), jw_open(w, '[');
    for (size_t i = 0; i < num_ids(item) && find_entry(item, i, &e); i++) {
        jw_open(w, '[');
        for (uint32_t k = 1; k <= e.num_top; k++)
            put_sglang_token(w, item, e.own + k);
        jw_close(w, ']');
    }
    jw_close(w, ']');
}

bool call_tells_ids(const call *c)
{
    return c->request.return_token_ids || c->request.logprobs;
}
