/* json_logprobs.c - how likely each token was, in the three forms that clients know.
 *
 *     chat         {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}]}
 *     completions  {"tokens": [], "token_logprobs": [], "top_logprobs": [{}], "text_offset": []}
 *     /generate    [[logprob, id, text or null]], beside the output's ids
 *
 * and of the prompt also in vLLM's, [null, {"id": {"logprob", "rank", "decoded_token"}}, ...].
 *
 * A token may be a part of a character: then its text is written as OpenAI does,
 * "bytes:\xe2\x82", which no two tokens share. JSON has no infinity: an impossible token
 * has the logprob -9999. What stands behind nothing, the prompt's first token, has null. */
#include "server/server_priv.h"

#include <math.h>
#include <stdio.h>

/* The logprobs of one id. */
typedef struct entry {
    const token_logprob *own; /* and num_top behind it */
    uint32_t num_top;
    const token_logprob *by_id; /* [request.num_id_logprobs] */
    bool first;                 /* there are none */
} entry;

size_t item_num_logprobs(const call_item *item)
{
    const api_request *r = &item->call->request;
    return 1 + (size_t)r->num_top_logprobs + r->num_id_logprobs;
}

static size_t num_ids(const call_item *item)
{
    return item->ids.len / sizeof(rad_token);
}

static bool entry_in(const call_item *item, const byte_buf *list, size_t index, uint32_t most_top,
                     entry *out)
{
    const size_t each = item_num_logprobs(item);
    if ((index + 1) * each * sizeof(token_logprob) > list->len) return false;
    *out = (entry){.own = (const token_logprob *)list->data + index * each};
    out->by_id = out->own + 1 + item->call->request.num_top_logprobs;
    out->first = isnan(out->own->logprob);
    while (out->num_top < most_top && out->own[out->num_top + 1].id >= 0)
        out->num_top++;
    return true;
}

static bool find_entry(const call_item *item, size_t index, entry *out)
{
    return entry_in(item, &item->logprobs, index, item->call->request.num_told_top, out);
}

/* The prompt's, of whoever asked for them. */
static const byte_buf *prompt_list(const call_item *item)
{
    const call *c = item->call;
    const bool shared = api_shares_prompt(&c->request);
    return &c->items[shared ? item->index - item->index % c->request.n : item->index]
                .prompt_logprobs;
}

static size_t num_prompt(const call_item *item)
{
    return prompt_list(item)->len / (item_num_logprobs(item) * sizeof(token_logprob));
}

static bool find_prompt_entry(const call_item *item, size_t index, uint32_t most_top, entry *out)
{
    return entry_in(item, prompt_list(item), index, most_top, out);
}

double item_mean_logprob(const call_item *item)
{
    double sum = 0;
    entry e;
    size_t n = 0;
    for (; n < num_ids(item) && find_entry(item, n, &e); n++)
        sum += (double)e.own->logprob;
    return n ? sum / (double)n : -INFINITY;
}

static void put_logprob(json_writer *w, const token_logprob *t)
{
    if (isnan(t->logprob))
        jw_null(w);
    else
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

/* The first token's text has a space in front that the prompt has not. */
static bool adds_space(const call_item *item)
{
    const tokenizer *tok = engine_tokenizer(item->call->server->engine);
    return tok && tokenizer_adds_space(tok) && item->text.len && item->text.data[0] != ' ';
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

enum { TOKENS, LOGPROBS, TOP, OFFSETS, NUM_LISTS };

/* One list's value of one token; *offset is where its text begins, and is moved to its end. */
static void put_of_token(json_writer *w, const call_item *item, int list, const entry *e,
                         bool begins_text, uint64_t *offset)
{
    piece p;
    if (list == TOKENS || list == OFFSETS) get_piece(item, e->own->id, &p);
    switch (list) {
    case TOKENS: put_piece(w, p); break;
    case LOGPROBS: put_logprob(w, e->own); break;
    case TOP:
        if (e->first)
            jw_null(w);
        else
            put_best(w, item, e);
        break;
    default:
        jw_int(w, (int64_t)*offset);
        if (is_text(item, e->own->id))
            *offset += count_chars(&p) - (begins_text && adds_space(item));
    }
}

/* The tokens of the prompt that are told, which `echo` asks for, and of the answer. */
static uint64_t put_completion_list(json_writer *w, const call_item *item, int list,
                                    size_t from_byte)
{
    const api_request *r = &item->call->request;
    const size_t each = item_num_logprobs(item) * sizeof(token_logprob);
    uint64_t offset = item->chars_sent;
    bool begun = item->prompt_sent; /* a token of the text was told */
    entry e;
    for (size_t i = item->prompt_sent / each; r->echo && i < num_prompt(item); i++) {
        if (!find_prompt_entry(item, i, r->num_told_top, &e)) break;
        put_of_token(w, item, list, &e, !begun, &offset);
        begun = begun || is_text(item, e.own->id);
    }
    for (size_t i = from_byte / sizeof(rad_token); i < num_ids(item); i++) {
        if (!find_entry(item, i, &e)) break;
        put_of_token(w, item, list, &e, false, &offset);
    }
    return offset;
}

void put_completion_logprobs(json_writer *w, call_item *item, size_t from_byte)
{
    static const char *const names[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    uint64_t offset = 0;
    if (!item->call->request.logprobs) {
        jw_null(w);
        return;
    }
    jw_open(w, '{');
    for (int list = 0; list < NUM_LISTS; list++) {
        jw_name(w, names[list]), jw_open(w, '[');
        offset = put_completion_list(w, item, list, from_byte);
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

static void put_sglang_tokens(json_writer *w, const call_item *item, const token_logprob *list,
                              uint32_t count)
{
    jw_open(w, '[');
    for (uint32_t k = 0; k < count; k++)
        put_sglang_token(w, item, list + k);
    jw_close(w, ']');
}

enum { SGLANG_OWN, SGLANG_TOP, SGLANG_BY_ID, SGLANG_LISTS };

/* One list of the prompt, or of the output. A token that stands behind nothing has null. */
static void put_sglang_list(json_writer *w, const call_item *item, bool prompt, int list)
{
    const api_request *r = &item->call->request;
    const size_t count = !prompt ? num_ids(item) : item->finished ? num_prompt(item) : 0;
    entry e;
    jw_open(w, '[');
    for (size_t i = 0; i < count; i++) {
        if (!(prompt ? find_prompt_entry(item, i, r->num_told_top, &e) : find_entry(item, i, &e)))
            break;
        if (list == SGLANG_OWN)
            put_sglang_token(w, item, e.own);
        else if (e.first)
            jw_null(w);
        else if (list == SGLANG_TOP)
            put_sglang_tokens(w, item, e.own + 1, e.num_top);
        else
            put_sglang_tokens(w, item, e.by_id, r->num_id_logprobs);
    }
    jw_close(w, ']');
}

void put_sglang_logprobs(json_writer *w, const call_item *item)
{
    static const char *const names[SGLANG_LISTS][2] = {
        {"input_token_logprobs", "output_token_logprobs"},
        {"input_top_logprobs", "output_top_logprobs"},
        {"input_token_ids_logprobs", "output_token_ids_logprobs"}};
    const api_request *r = &item->call->request;
    const bool told[SGLANG_LISTS] = {true, r->num_told_top, r->num_id_logprobs};
    for (int list = 0; list < SGLANG_LISTS; list++) {
        if (!told[list]) continue;
        if (list == SGLANG_OWN || r->prompt_logprobs)
            jw_name(w, names[list][0]), put_sglang_list(w, item, true, list);
        jw_name(w, names[list][1]), put_sglang_list(w, item, false, list);
    }
}

/* ---- vLLM's, of the prompt ---- */

/* `rank` 0: it is not among the likeliest, and how many are likelier is not known. */
static void put_vllm_token(json_writer *w, const call_item *item, const token_logprob *t,
                           uint32_t rank)
{
    char id[16];
    piece p;
    get_piece(item, t->id, &p);
    const int len = snprintf(id, sizeof id, "%d", t->id);
    jw_text_name(w, id, (size_t)len), jw_open(w, '{');
    jw_name(w, "logprob"), put_logprob(w, t);
    jw_name(w, "rank");
    if (rank)
        jw_int(w, rank);
    else
        jw_null(w);
    jw_name(w, "decoded_token"), put_piece(w, p);
    jw_close(w, '}');
}

void put_vllm_prompt_logprobs(json_writer *w, const call_item *item)
{
    const uint32_t top = item->call->request.num_vllm_top;
    entry e;
    jw_open(w, '[');
    for (size_t i = 0; i < num_prompt(item) && find_prompt_entry(item, i, top, &e); i++) {
        uint32_t own = 0;
        if (e.first) {
            jw_null(w);
            continue;
        }
        while (own < e.num_top && e.own[1 + own].id != e.own->id)
            own++;
        jw_open(w, '{');
        put_vllm_token(w, item, e.own, own < e.num_top ? own + 1 : 0);
        for (uint32_t k = 0; k < e.num_top; k++)
            if (k != own) put_vllm_token(w, item, &e.own[1 + k], k + 1);
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

bool call_tells_ids(const call *c)
{
    return c->request.return_token_ids || c->request.logprobs;
}
