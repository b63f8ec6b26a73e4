/* chat_template.h - a conversation to prompt tokens, in the model's own format.
 *
 * Formats: chatml, llama-3 and radish (the shipped model's). The format is found
 * by the markers in the GGUF's tokenizer.chat_template, or named. What a user
 * writes is encoded with special-token parsing off, so no message can forge a turn. */
#ifndef TEXT_CHAT_TEMPLATE_H
#define TEXT_CHAT_TEMPLATE_H

#include "text/tokenizer.h"

typedef struct chat_message {
    const char *role; /* "system", "user", "assistant", NUL-terminated */
    const char *content;
    size_t content_len;
} chat_message;

typedef struct chat_template chat_template;

/* `name`: "auto", "chatml", "llama-3", "radish", ... NULL means auto. RAD_E_UNSUPPORTED in
 * words when auto finds no known format or the markers are not in the vocabulary. */
rad_status chat_template_create(const rad_env *env, const gguf_file *file, const tokenizer *tok,
                                const char *name, chat_template **out, rad_error *err);
void chat_template_destroy(chat_template *t); /* NULL is fine */
const char *chat_template_name(const chat_template *t);

/* Appends the prompt's ids, BOS included where the format has it. RAD_E_INVAL names the
 * message with an unknown role. */
rad_status chat_template_encode(const chat_template *t, const chat_message *messages,
                                uint32_t num_messages, bool add_generation_prompt,
                                uint32_t max_tokens, token_buf *out, rad_error *err);

#endif
