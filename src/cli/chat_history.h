/* chat_history.h - a conversation as the token ids that the model has seen.
 *
 * Kept as ids and not as text: an answer that was cut off or sampled may be tokenized
 * differently when it is read back, and from there on nothing would be found in the cache. */
#ifndef CLI_CHAT_HISTORY_H
#define CLI_CHAT_HISTORY_H

#include "cli/ask.h"

typedef struct chat_history {
    const chat_template *format; /* the engine's */
    const tokenizer *tok;
    char *system;  /* NULL = none */
    token_buf ids; /* all turns; after chat_history_question up to where the answer begins */
    chat_message *messages; /* what was said, the system message not among it */
    uint32_t num_messages;
    uint32_t num_answered; /* of them, up to the last answer */
    char *seen;            /* what the ids stand for; NULL: the next question starts anew */
    size_t seen_len;
    uint32_t turn_ids; /* ids before the last question, and what they stand for; */
    size_t turn_seen;  /* 0: the last question had all encoded anew */
} chat_history;

/* Of an engine that has a chat template; without a system message. */
void chat_history_init(chat_history *h, const engine *e);
void chat_history_fini(chat_history *h); /* one that is all zero is fine */

/* Appends the user's turn and what begins an answer. On failure nothing changed. */
rad_status chat_history_question(chat_history *h, const char *text, size_t len, rad_error *err);

/* Appends what the model answered to the last question. On failure nothing changed. */
rad_status chat_history_answer(chat_history *h, const ask_answer *answer, rad_error *err);

/* Another system message (NULL: none) in front of the same turns; all is encoded anew with the next
 * question. */
rad_status chat_history_set_system(chat_history *h, const char *text, rad_error *err);

/* A message that was said elsewhere ("user" or "assistant"; the role must be a literal), encoded
 * with the next question. After a whole turn the conversation can go on. */
rad_status chat_history_add(chat_history *h, const char *role, const char *text, size_t len,
                            rad_error *err);

/* Takes back the last question and its answer. *text: the question, the caller's to free; NULL:
 * there was none, or no memory. */
void chat_history_take_back(chat_history *h, char **text, size_t *len);

/* Back to before the last question, when h->ids had this length: what was answered stays. */
void chat_history_cut(chat_history *h, uint32_t num_ids);

/* Forgets everything but the system message. */
void chat_history_reset(chat_history *h);

#endif
