/* history.c - turns are rendered one by one and appended.
 *
 * The template renders conversations from their start. What follows an answer is had from a
 * conversation that consists of an empty answer and the question:
 *
 *     rendered   | opening of an answer | end of it | the user's turn | opening of an answer |
 *     appended                          |================================================|
 *
 * So the ids of a turn never depend on the text of an earlier one, and `ids` only grows. */
#include "cli/history.h"

rad_status history_init(history *h, const rad_env *env, const engine *e, const char *system,
                        rad_error *err)
{
    *h = (history){.tok = engine_tokenizer(e), .system = system};
    rad_status status =
        chat_template_create(env, NULL, h->tok, engine_get_info(e)->chat_template, &h->format, err);
    if (status != RAD_OK) return status;
    return chat_template_encode(h->format, NULL, 0, true, 0, &h->opening, err);
}

void history_fini(history *h)
{
    chat_template_destroy(h->format);
    token_buf_fini(&h->ids);
    token_buf_fini(&h->opening);
}

void history_cut(history *h, uint32_t num_ids)
{
    h->ids.len = num_ids;
}

static rad_status append(history *h, const rad_token *ids, uint32_t count, rad_error *err)
{
    uint32_t before = h->ids.len;
    for (uint32_t i = 0; i < count; i++)
        if (token_buf_push(&h->ids, ids[i]) != RAD_OK) {
            history_cut(h, before);
            return rad_fail(err, RAD_E_NOMEM, "no memory for the conversation");
        }
    return RAD_OK;
}

rad_status history_question(history *h, const char *text, size_t len, rad_error *err)
{
    chat_message messages[2];
    token_buf turn = {0};
    uint32_t n = 0, skip = 0;
    if (h->ids.len) {
        messages[n++] = (chat_message){"assistant", "", 0};
        skip = h->opening.len;
    } else if (h->system) {
        messages[n++] = (chat_message){"system", h->system, strlen(h->system)};
    }
    messages[n++] = (chat_message){"user", text, len};
    rad_status status = chat_template_encode(h->format, messages, n, true, 0, &turn, err);
    if (status == RAD_OK) {
        RAD_ASSERT(!skip || !memcmp(turn.ids, h->opening.ids, skip * sizeof *turn.ids));
        status = append(h, turn.ids + skip, turn.len - skip, err);
    }
    token_buf_fini(&turn);
    return status;
}

rad_status history_answer(history *h, const ask_answer *a, rad_error *err)
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
