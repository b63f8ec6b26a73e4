/* chat_history.c - a conversation is rendered from its start, and its ids are only added to.
 *
 *     seen before   | prompt | answer |
 *     rendered now  | prompt | answer | end of it, the user's turn, opening of an answer |
 *     appended                        |==================================================|
 *
 * So the ids of a turn never depend on how an earlier answer would be tokenized. A template
 * that renders what was said differently now (it trims answers, or leaves their thoughts out)
 * has the whole conversation encoded anew. */
#include "cli/chat_history.h"

#include <stdlib.h>

void chat_history_init(chat_history *h, const engine *e)
{
    *h = (chat_history){.format = engine_chat_template(e), .tok = engine_tokenizer(e)};
}

static void forget_seen(chat_history *h)
{
    free(h->seen);
    h->seen = NULL;
    h->seen_len = 0;
}

static void drop_messages(chat_history *h, uint32_t keep)
{
    while (h->num_messages > keep)
        free((char *)(uintptr_t)h->messages[--h->num_messages].content);
    h->num_answered = RAD_MIN(h->num_answered, keep);
}

void chat_history_fini(chat_history *h)
{
    drop_messages(h, 0);
    free(h->messages);
    free(h->system);
    forget_seen(h);
    token_buf_fini(&h->ids);
}

rad_status chat_history_set_system(chat_history *h, const char *text, rad_error *err)
{
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy) return rad_fail(err, RAD_E_NOMEM, "no memory for the system message");
    free(h->system);
    h->system = copy;
    forget_seen(h);
    return RAD_OK;
}

void chat_history_cut(chat_history *h, uint32_t num_ids)
{
    drop_messages(h, h->num_answered);
    h->ids.len = RAD_MIN(h->ids.len, num_ids);
    forget_seen(h);
}

void chat_history_reset(chat_history *h)
{
    drop_messages(h, 0);
    chat_history_cut(h, 0);
}

static rad_status add_message(chat_history *h, const char *role, const char *text, size_t len,
                              rad_error *err)
{
    chat_message *more = realloc(h->messages, (h->num_messages + 1u) * sizeof *more);
    if (more) h->messages = more;
    char *copy = more ? malloc(len + 1) : NULL;
    if (!copy) return rad_fail(err, RAD_E_NOMEM, "no memory for the conversation");
    if (len) memcpy(copy, text, len);
    h->messages[h->num_messages++] = (chat_message){role, copy, len};
    return RAD_OK;
}

rad_status chat_history_add(chat_history *h, const char *role, const char *text, size_t len,
                            rad_error *err)
{
    rad_status status = add_message(h, role, text, len, err);
    if (status == RAD_OK && strcmp(role, "assistant") == 0) h->num_answered = h->num_messages;
    forget_seen(h);
    return status;
}

void chat_history_take_back(chat_history *h, char **text, size_t *len)
{
    *text = NULL;
    *len = 0;
    if (h->num_messages < 2 || h->num_answered != h->num_messages) return;
    const chat_message *question = &h->messages[h->num_messages - 2];
    *text = malloc(question->content_len + 1);
    if (!*text) return;
    memcpy(*text, question->content, question->content_len);
    (*text)[question->content_len] = 0;
    *len = question->content_len;
    drop_messages(h, h->num_messages - 2);
    h->num_answered = h->num_messages;
    if (h->seen && h->turn_seen) { /* what the ids before stand for is known */
        h->ids.len = h->turn_ids;
        h->seen_len = h->turn_seen;
        h->turn_seen = 0;
    } else {
        forget_seen(h);
    }
}

/* seen = a + b. */
static rad_status set_seen(chat_history *h, const char *a, size_t a_len, const char *b,
                           size_t b_len, rad_error *err)
{
    char *text = malloc(a_len + b_len + 1);
    if (!text) return rad_fail(err, RAD_E_NOMEM, "no memory for the conversation");
    if (a_len) memcpy(text, a, a_len);
    if (b_len) memcpy(text + a_len, b, b_len);
    forget_seen(h);
    h->seen = text;
    h->seen_len = a_len + b_len;
    return RAD_OK;
}

static rad_status render(const chat_history *h, jinja_text *text, rad_error *err)
{
    uint32_t n = 0;
    chat_message *all = malloc((h->num_messages + 1u) * sizeof *all);
    if (!all) return rad_fail(err, RAD_E_NOMEM, "no memory for the conversation");
    if (h->system) all[n++] = (chat_message){"system", h->system, strlen(h->system)};
    memcpy(all + n, h->messages, h->num_messages * sizeof *all);
    rad_status status = chat_template_render(h->format, all, n + h->num_messages, true, text, err);
    free(all);
    return status;
}

rad_status chat_history_question(chat_history *h, const char *text, size_t len, rad_error *err)
{
    jinja_text now = {0};
    rad_status status = add_message(h, "user", text, len, err);
    if (status != RAD_OK) return status;
    status = render(h, &now, err);
    uint32_t before = h->ids.len;
    size_t from = 0;
    if (h->seen && h->seen_len <= now.len && memcmp(h->seen, now.data, h->seen_len) == 0)
        from = h->seen_len;
    if (status == RAD_OK) {
        token_buf fresh = {0};
        status = chat_template_encode_text(h->format, &now, from, 0, from ? &h->ids : &fresh, err);
        if (status == RAD_OK && !from) {
            token_buf_fini(&h->ids);
            h->ids = fresh;
        } else {
            token_buf_fini(&fresh);
        }
    }
    if (status == RAD_OK) status = set_seen(h, now.data, now.len, NULL, 0, err);
    h->turn_ids = before;
    h->turn_seen = from;
    jinja_text_fini(&now);
    if (status != RAD_OK) chat_history_cut(h, before);
    return status;
}

static rad_status append(chat_history *h, const rad_token *ids, uint32_t count, rad_error *err)
{
    uint32_t before = h->ids.len;
    for (uint32_t i = 0; i < count; i++)
        if (token_buf_push(&h->ids, ids[i]) != RAD_OK) {
            h->ids.len = before;
            return rad_fail(err, RAD_E_NOMEM, "no memory for the conversation");
        }
    return RAD_OK;
}

static rad_status append_answer(chat_history *h, const ask_answer *a, rad_error *err)
{
    if (a->matched_stop) { /* the ids go on behind what the user saw */
        token_buf seen = {0};
        rad_status status =
            tokenizer_encode(h->tok, a->text, a->text_len, TOKENIZER_NO_PREFIX, 0, &seen, err);
        if (status == RAD_OK) status = append(h, seen.ids, seen.len, err);
        token_buf_fini(&seen);
        return status;
    }
    /* The next turn begins with the end of this one. */
    bool ended = a->finish == ENGINE_FINISH_STOP && a->num_ids &&
                 tokenizer_is_control(h->tok, a->ids[a->num_ids - 1]);
    return append(h, a->ids, a->num_ids - ended, err);
}

rad_status chat_history_answer(chat_history *h, const ask_answer *a, rad_error *err)
{
    rad_status status = add_message(h, "assistant", a->text, a->text_len, err);
    if (status == RAD_OK) status = append_answer(h, a, err);
    if (status == RAD_OK) status = set_seen(h, h->seen, h->seen_len, a->text, a->text_len, err);
    if (status == RAD_OK) h->num_answered = h->num_messages;
    return status;
}
