/* chat_template.h - a conversation to prompt tokens, in the model's own format.
 *
 * The format is a Jinja template: the GGUF's own (tokenizer.chat_template, and further ones in
 * tokenizer.chat_template.NAME), one of three that are built in (chatml, llama-3, radish), or a
 * file's. It is parsed once, at start.
 *
 * No message can forge a turn: a control token counts as such only where every byte of it is
 * the template's. What a conversation brought (messages, tools, further variables) is
 * encoded with special-token parsing off, also where the template has cut and joined it. */
#ifndef TEXT_CHAT_TEMPLATE_H
#define TEXT_CHAT_TEMPLATE_H

#include "text/jinja.h"
#include "text/tokenizer.h"

typedef struct chat_message {
    const char *role; /* "system", "user", "assistant", NUL-terminated */
    const char *content;
    size_t content_len;
} chat_message;

typedef struct chat_template chat_template;

/* `name`: "auto" or NULL: the file's own, and its "tool_use", where it has one, for conversations
 * with tools; "chatml", "llama-3", "radish"; one of the file's by name, "default" being
 * tokenizer.chat_template alone; else the path of a Jinja file. RAD_E_UNSUPPORTED in words when
 * the model has no template, or the vocabulary not the markers of a built-in one. RAD_E_FORMAT in
 * words that name line and construct when a template cannot be parsed. `file` may be NULL unless
 * name is "auto". */
rad_status chat_template_create(const rad_env *env, const gguf_file *file, const tokenizer *tok,
                                const char *name, chat_template **out, rad_error *err);
void chat_template_destroy(chat_template *t);           /* NULL is fine */
const char *chat_template_name(const chat_template *t); /* "model": the GGUF's own */

/* Its text, or of the one for conversations with tools; empty for NULL. And whether that one names
 * a variable. */
gguf_str chat_template_source(const chat_template *t, bool tools);
bool chat_template_reads(const chat_template *t, const char *variable);

/* What of it no conversation may reach, as jinja_unknown has it; "": nothing. */
const char *chat_template_unknown(const chat_template *t);

/* The names of the file's own templates, in its order: how many there are; the first `room` are
 * written. And the text of one; RAD_NONE: there is no such. */
uint32_t chat_template_list(const gguf_file *file, gguf_str *names, uint32_t room);
rad_status chat_template_text(const gguf_file *file, gguf_str name, gguf_str *text, rad_error *err);

/* Appends the prompt's ids, BOS in front where the vocabulary asks for it and the template has
 * none. RAD_E_INVAL: the template refuses the conversation, in its own words. */
rad_status chat_template_encode(const chat_template *t, const chat_message *messages,
                                uint32_t num_messages, bool add_generation_prompt,
                                uint32_t max_tokens, token_buf *out, rad_error *err);

/* The same for a conversation as JSON: {"messages": [...], "tools": [...],
 * "chat_template_kwargs": {...}, "continue_final_message": false}; only messages must be there.
 * With the last one true the prompt ends behind the words of the last message, which is RAD_E_INVAL
 * where the template does not write them as they are. RAD_E_INVAL also where the
 * template would drop the tools, or the tool_calls of a message. */
rad_status chat_template_encode_json(const chat_template *t, const char *json, size_t len,
                                     bool add_generation_prompt, uint32_t max_tokens,
                                     token_buf *out, rad_error *err);

/* The two halves of chat_template_encode. A text may be encoded from a byte on that is not
 * inside a marker; then without BOS. */
rad_status chat_template_render(const chat_template *t, const chat_message *messages,
                                uint32_t num_messages, bool add_generation_prompt, jinja_text *out,
                                rad_error *err);
rad_status chat_template_encode_text(const chat_template *t, const jinja_text *text, size_t from,
                                     uint32_t max_tokens, token_buf *out, rad_error *err);

#endif
