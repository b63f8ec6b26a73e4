/* response_ids.c - /v1/responses goes on from ids: what previous_response_id names is read as it
 * was written.
 *
 * The items of a conversation are rendered anew for each request, and what a template writes of a
 * tool call is not always what the model wrote. So the ids of an answer are stored with it:
 *
 *     generated   [ the prompt ....................... ][ what the model wrote, its end token ]
 *     rendered    [ the same, or it is another prompt  ][ the answer's items               ][ new ]
 *
 * Where the rendering begins as it did for that answer, and writes the answer, and then something
 * behind its end token, the request is what was generated and that. Else it is what was rendered.
 * Its explanation tells which, why, and the first token where the two part. */
#include "server/prompt_ids.h"
#include "server/server_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is stored ---- */

/* The blob that is stored with an answer: these numbers, the prompt's ids, those of its rendering
 * where it is another, and what the model wrote. */
enum { NUM_PROMPT, NUM_RENDERED, NUM_REASONING, HEAD };

bool response_ids_read(api_request *r, const char *blob, size_t len, api_error *err)
{
    api_history *h = &r->history;
    uint32_t head[HEAD];
    if (len <= sizeof head) return true; /* it has none */
    memcpy(head, blob, sizeof head);
    const char *from = blob + sizeof head;
    uint32_t count = (uint32_t)((len - sizeof head) / sizeof *h->ids);
    uint32_t prompt = head[NUM_PROMPT], rendered = head[NUM_RENDERED];
    rad_token *ids = api_request_alloc(r, count, sizeof *ids, err);
    if (!ids) return false;
    /* prompt, answer, rendering: so the first two are one list */
    size_t answer = count - prompt - rendered, token = sizeof *ids;
    memcpy(ids, from, prompt * token);
    memcpy(ids + prompt, from + (prompt + rendered) * token, answer * token);
    memcpy(ids + prompt + answer, from + prompt * token, rendered * token);
    *h = (api_history){.ids = ids,
                       .num_ids = count - rendered,
                       .num_prompt = prompt,
                       .num_reasoning = head[NUM_REASONING],
                       .rendering = rendered ? ids + prompt + answer : ids,
                       .num_rendering = rendered ? rendered : prompt};
    return true;
}

void response_ids_write(const call_item *item, struct evbuffer *out)
{
    const api_kept *kept = &item->call->request.kept;
    const uint32_t head[HEAD] = {[NUM_PROMPT] = kept->num_ids,
                                 [NUM_RENDERED] = kept->num_rendered,
                                 [NUM_REASONING] = item->reasoning_tokens};
    size_t bytes = ((size_t)kept->num_ids + kept->num_rendered) * sizeof *kept->ids;
    if (!kept->num_ids) return;
    if (evbuffer_add(out, head, sizeof head) != 0 || evbuffer_add(out, kept->ids, bytes) != 0 ||
        (item->ids.len && evbuffer_add(out, item->ids.data, item->ids.len) != 0))
        evbuffer_drain(out, evbuffer_get_length(out));
}

/* ---- going on ---- */

/* Where the answer's end token stands in `rendered`, behind it; 0: nowhere. */
static uint32_t end_of_answer(call *c, const engine_request *q, const token_buf *rendered)
{
    const api_history *h = &c->request.history;
    token_buf before = {0};
    json_t *talk = prompt_talk(q, &c->request.room);
    json_t *messages = json_object_get(talk, "messages");
    bool cut = talk && h->num_messages < json_array_size(messages);
    while (cut && json_array_size(messages) > h->num_messages)
        json_array_remove(messages, json_array_size(messages) - 1);
    uint32_t at = 0;
    if (cut && prompt_ids_of(c->server->engine, talk, &before))
        at = prompt_ids_same_end(&before, rendered, h->ids[h->num_ids - 1]);
    json_decref(talk);
    token_buf_fini(&before);
    return at;
}

/* NULL: the request goes on from the ids, and what is new begins at *from. Else why it does not. */
static const char *choose(call *c, const engine_request *q, const token_buf *rendered,
                          uint32_t *from)
{
    api_history *h = &c->request.history;
    const tokenizer *tok = engine_tokenizer(c->server->engine);
    uint32_t most = RAD_MIN(h->num_ids, rendered->len);
    while (h->agreed < most && h->ids[h->agreed] == rendered->ids[h->agreed])
        h->agreed++;
    if (h->agreed < most) {
        h->generated = h->ids[h->agreed];
        h->rendered = rendered->ids[h->agreed];
    }
    if (rendered->len < h->num_rendering ||
        memcmp(rendered->ids, h->rendering, h->num_rendering * sizeof *rendered->ids) != 0)
        return "the prompt was another";
    if (!tok || !tokenizer_is_eog(tok, h->ids[h->num_ids - 1]))
        return "the answer did not end with an end token";
    if (!h->num_messages) return "the input goes on with the answer's own message";
    uint32_t end = *from = end_of_answer(c, q, rendered);
    if (end <= h->num_rendering) return "the template does not write where an answer ends";
    uint32_t wrote = h->num_ids - h->num_prompt, writes = end - h->num_rendering;
    if (h->num_reasoning && writes + h->num_reasoning / 2 < wrote)
        return "the template leaves earlier reasoning out";
    if (h->num_ids + (rendered->len - end) > engine_get_info(c->server->engine)->context_length)
        return "there is no room for it in the context";
    return NULL;
}

/* For the store, until the answer is out. Without memory the next request is rendered. */
static void keep(api_request *r, const rad_token *ids, uint32_t count, const token_buf *rendered)
{
    bool same = rendered->len == count && !memcmp(rendered->ids, ids, count * sizeof *ids);
    uint32_t more = same ? 0 : rendered->len;
    uint64_t bytes = ((uint64_t)count + more) * sizeof *ids;
    if (!r->kept.store || !memory_budget_take(r->room.budget, bytes)) return;
    r->kept.ids = malloc(bytes);
    if (!r->kept.ids) {
        memory_budget_give(r->room.budget, bytes);
        return;
    }
    memcpy(r->kept.ids, ids, count * sizeof *ids);
    if (more) memcpy(r->kept.ids + count, rendered->ids, more * sizeof *ids);
    r->kept.num_ids = count;
    r->kept.num_rendered = more;
    r->kept.budget = r->room.budget;
    r->kept.bytes += bytes;
}

void call_go_on(call *c)
{
    api_request *r = &c->request;
    api_history *h = &r->history;
    engine_request *q = &r->items[0];
    token_buf rendered = {0};
    api_error ignored;
    uint32_t from = 0, front = 0;
    if (engine_encode(c->server->engine, q, &rendered, NULL) != RAD_OK) { /* it says so itself */
        token_buf_fini(&rendered);
        return;
    }
    if (h->ids) {
        h->told = true;
        h->why_not = choose(c, q, &rendered, &from);
        if (h->why_not)
            from = 0;
        else
            front = h->num_ids;
    }
    uint32_t len = front + (rendered.len - from);
    rad_token *ids = api_request_alloc(r, len, sizeof *ids, &ignored);
    if (ids) {
        if (front) memcpy(ids, h->ids, front * sizeof *ids);
        memcpy(ids + front, rendered.ids + from, (rendered.len - from) * sizeof *ids);
        q->text = q->chat_json = NULL;
        q->messages = NULL;
        q->num_messages = 0;
        q->ids = ids;
        q->num_ids = len;
        keep(r, ids, len, &rendered);
    } else if (h->told) {
        h->why_not = "memory was short";
    }
    token_buf_fini(&rendered);
}

/* ---- the explanation ---- */

static json_t *json_token(const call *c, rad_token id)
{
    char bytes[TOKENIZER_MAX_PIECE];
    const tokenizer *tok = engine_tokenizer(c->server->engine);
    size_t len = tok ? tokenizer_piece(tok, id, true, bytes, sizeof bytes) : 0;
    json_t *text = json_stringn(len ? bytes : "", len); /* NULL for a piece of a character */
    return json_pack("{s:I, s:o*}", "id", (json_int_t)id, "text", text);
}

json_t *json_history(const call *c)
{
    const api_history *h = &c->request.history;
    if (!h->told) return NULL;
    json_t *json = json_pack("{s:s, s:I, s:I}", "from", h->why_not ? "rendering" : "ids",
                             "generated_tokens", (json_int_t)h->num_ids, "agreed_tokens",
                             (json_int_t)h->agreed);
    if (h->why_not) json_object_set_new(json, "why", json_string(h->why_not));
    if (h->agreed == h->num_ids || h->generated == h->rendered) return json;
    json_object_set_new(json, "generated", json_token(c, h->generated));
    json_object_set_new(json, "rendered", json_token(c, h->rendered));
    return json;
}
