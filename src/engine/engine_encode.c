/* engine_encode.c - what a prompt is in ids.
 *
 * The tokenizer thread's work; others may ask for it too (engine_encode), to count or to keep a
 * conversation as ids: the tokenizer and the template do not change after create. */
#include "base/json_look.h"
#include "engine/engine_impl.h"

#include <time.h>

enum { TREE_WAIT_MS = 1000 };

/* How long a prompt may be, in contexts, to be told exactly how many tokens are too many. */
enum { COUNTED_CONTEXTS = 8 };

/* Who holds the memory is likely a parser that is about to let go, of this very request at times:
 * that is worth waiting a second for, others' prompts or not. */
static bool take_soon(memory_budget *budget, uint64_t bytes)
{
    for (int ms = 0; ms < TREE_WAIT_MS; ms++) {
        if (memory_budget_take(budget, bytes)) return true;
        if (bytes > budget->limit) return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* Its tree is built for the template and gone when that has run. */
static rad_status encode_json(const engine *e, const job_prompt *p, uint32_t most, token_buf *out,
                              rad_error *err)
{
    json_look look;
    json_look_at(&look, p->text, p->text_bytes);
    uint64_t tree = json_look_bytes(&look);
    if (!take_soon(e->params.request_memory, tree))
        return rad_fail(err, RAD_FULL, "no memory for this conversation now; try again soon");
    rad_status status =
        chat_template_encode_json(e->chat, p->text, p->text_bytes, true, most, out, err);
    memory_budget_give(e->params.request_memory, tree);
    return status;
}

/* Tokens written out in a raw text count as such, so that a prompt may spell its model's format;
 * inside messages they do not. */
rad_status engine_encode_prompt(const engine *e, const job_prompt *p, token_buf *out,
                                rad_error *err)
{
    uint32_t context = e->info.context_length;
    uint64_t most = RAD_MIN((uint64_t)context * COUNTED_CONTEXTS, (uint64_t)INT32_MAX);
    rad_status status;
    if (p->is_text)
        status = tokenizer_encode(e->tok, p->text, p->text_bytes,
                                  TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_BOS |
                                      (p->ends ? TOKENIZER_ADD_EOS : 0),
                                  (uint32_t)most, out, err);
    else if (p->is_chat_json)
        status = encode_json(e, p, (uint32_t)most, out, err);
    else
        status = chat_template_encode(e->chat, p->messages, p->num_messages, true, (uint32_t)most,
                                      out, err);
    if (status == RAD_E_LIMIT)
        return rad_fail(err, status,
                        "the prompt has more than %llu tokens, the context is %u tokens long",
                        (unsigned long long)most, context);
    if (status == RAD_OK && !out->len) return rad_fail(err, RAD_E_INVAL, "the prompt is empty");
    return status;
}

rad_status engine_encode(engine *e, const engine_request *q, token_buf *out, rad_error *err)
{
    job_prompt p = {.text = (char *)(uintptr_t)(q->text ? q->text : q->chat_json),
                    .text_bytes = q->text ? q->text_len : q->chat_json_len,
                    .messages = (chat_message *)(uintptr_t)q->messages,
                    .num_messages = q->num_messages,
                    .is_text = q->text != NULL,
                    .is_chat_json = q->chat_json != NULL};
    if ((q->text && !q->text_len) || q->ids)
        return rad_fail(err, RAD_E_INVAL,
                        q->ids ? "the prompt is token ids already" : "the prompt is empty");
    if (!q->text && !e->chat) return rad_fail(err, RAD_E_UNSUPPORTED, "%s", e->chat_error);
    return engine_encode_prompt(e, &p, out, err);
}
