/* history.h - a conversation as the token ids that the model has seen.
 *
 * Kept as ids and not as text: an answer that was cut off or sampled may be tokenized
 * differently when it is read back, and from there on nothing would be found in the cache. */
#ifndef CLI_HISTORY_H
#define CLI_HISTORY_H

#include "cli/ask.h"

typedef struct history {
    const chat_template *format; /* the engine's */
    const tokenizer *tok;
    const char *system;     /* NULL = none; the caller's */
    token_buf ids;          /* all turns; after history_question up to where the answer begins */
    chat_message *messages; /* what was said, the system message not among it */
    uint32_t num_messages;
    uint32_t num_answered; /* of them, up to the last answer */
    char *seen;            /* what the ids stand for; NULL: the next question starts anew */
    size_t seen_len;
} history;

/* Of an engine that has a chat template. */
void history_init(history *h, const engine *e, const char *system);
void history_fini(history *h); /* one that is all zero is fine */

/* Appends the user's turn and what begins an answer. On failure nothing changed. */
rad_status history_question(history *h, const char *text, size_t len, rad_error *err);

/* Appends what the model answered to the last question. On failure nothing changed. */
rad_status history_answer(history *h, const ask_answer *answer, rad_error *err);

/* Back to before the last question, when h->ids had this length; 0 forgets everything but the
 * system message. */
void history_cut(history *h, uint32_t num_ids);

#endif
