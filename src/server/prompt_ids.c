/* prompt_ids.c - see the header. */
#include "server/prompt_ids.h"

#include <stdlib.h>
#include <string.h>

static const char ASKED[] = "0 1 2", ANSWERED[] = "2 1 0";

/* The end of `ids` behind its n-th `end`, 0: it has fewer. */
static uint32_t behind(const token_buf *ids, rad_token end, uint32_t n)
{
    for (uint32_t i = 0; n && i < ids->len; i++)
        if (ids->ids[i] == end && !--n) return i + 1;
    return 0;
}

static uint32_t count(const token_buf *ids, rad_token id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ids->len; i++)
        n += ids->ids[i] == id;
    return n;
}

/* The same tokens before a[..at_a] and b[..at_b], the end token included. */
static bool ends_alike(const token_buf *a, uint32_t at_a, const token_buf *b, uint32_t at_b)
{
    enum { ALIKE = 4 };
    return at_a >= ALIKE && at_b >= ALIKE &&
           !memcmp(a->ids + at_a - ALIKE, b->ids + at_b - ALIKE, ALIKE * sizeof *a->ids);
}

uint32_t prompt_ids_same_end(const token_buf *before, const token_buf *all, rad_token end)
{
    uint32_t ends = count(before, end), at = behind(all, end, ends);
    return at && ends_alike(before, behind(before, end, ends), all, at) ? at : 0;
}

/* The stand-in before `messages`: its answer is a call where a tool's result comes next. */
static bool put_stand_in(json_t *messages)
{
    const json_t *first = json_array_get(messages, 0);
    const json_t *name = json_object_get(first, "name");
    json_t *asked = json_pack("{s:s, s:s}", "role", "user", "content", ASKED);
    json_t *answered = json_pack("{s:s, s:s}", "role", "assistant", "content", ANSWERED);
    if (answered && json_in_says(json_object_get(first, "role"), "tool"))
        json_object_set_new(answered, "tool_calls",
                            json_pack("[{s:s, s:s, s:{s:s, s:{}}}]", "type", "function", "id",
                                      "call_0", "function", "name",
                                      json_is_string(name) ? json_string_value(name) : "tool",
                                      "arguments"));
    bool put = json_array_insert_new(messages, 0, answered) == 0;
    return json_array_insert_new(messages, 0, asked) == 0 && put;
}

json_t *prompt_talk(const engine_request *q, json_room *room)
{
    enum { A_MESSAGE = 512 }; /* bytes of jansson's */
    api_error ignored;
    if (q->chat_json) return json_in_object(q->chat_json, q->chat_json_len, room, &ignored);
    uint64_t bytes = (uint64_t)q->num_messages * A_MESSAGE;
    for (uint32_t i = 0; i < q->num_messages; i++)
        bytes += q->messages[i].content_len;
    if (!memory_budget_take(room->budget, bytes)) return NULL;
    room->taken += bytes;
    json_t *messages = json_array();
    for (uint32_t i = 0; i < q->num_messages; i++)
        (void)json_array_append_new(messages,
                                    json_pack("{s:s, s:s%}", "role", q->messages[i].role, "content",
                                              q->messages[i].content, q->messages[i].content_len));
    return json_pack("{s:o}", "messages", messages);
}

bool prompt_ids_of(engine *e, const json_t *talk, token_buf *out)
{
    char *text = json_dumps(talk, JSON_COMPACT);
    const engine_request q = {.chat_json = text, .chat_json_len = text ? strlen(text) : 0};
    bool done = text && engine_encode(e, &q, out, NULL) == RAD_OK;
    free(text);
    return done;
}

bool prompt_ids_behind(engine *e, const engine_request *q, json_room *room, rad_token end,
                       token_buf *out)
{
    token_buf before = {0}, all = {0};
    json_t *talk = prompt_talk(q, room);
    json_t *messages = json_object_get(talk, "messages");
    bool done = talk && put_stand_in(messages) && prompt_ids_of(e, talk, &all);
    while (done && json_array_size(messages) > 2)
        json_array_remove(messages, json_array_size(messages) - 1);
    if (done) json_object_del(talk, "continue_final_message");
    done = done && prompt_ids_of(e, talk, &before);
    uint32_t at = done ? prompt_ids_same_end(&before, &all, end) : 0;
    done = at > 0;
    for (uint32_t i = at; done && i < all.len; i++)
        done = token_buf_push(out, all.ids[i]) == RAD_OK;
    json_decref(talk);
    token_buf_fini(&before);
    token_buf_fini(&all);
    return done && out->len;
}
