/* chat_render.h - a conversation into a chat template, with the variables that Hugging Face's
 * apply_chat_template gives: messages, tools, documents, add_generation_prompt, bos_token,
 * eos_token and whatever else the request brings. */
#ifndef TEXT_CHAT_RENDER_H
#define TEXT_CHAT_RENDER_H

#include "text/jinja.h"

typedef struct chat_input {
    const json_t *messages; /* a list of objects; NULL: none */
    const json_t *tools;    /* a list; NULL: none */
    const json_t *kwargs;   /* an object of further variables; NULL: none. They win. */
    const char *bos_token;  /* NULL: "" */
    const char *eos_token;
    int64_t now_unix; /* for strftime_now; see jinja_input */
    bool add_generation_prompt;
    bool trust_kwargs; /* kwargs are the operator's, not a conversation's */
} chat_input;

/* As jinja_render. RAD_E_NOMEM also where jansson has no memory. */
rad_status chat_render(const jinja_template *t, const chat_input *input, jinja_text *out,
                       jinja_fault *fault, rad_error *err);

/* The wall clock as strftime_now shows it: seconds since 1970 in the local time zone. */
int64_t chat_render_now(void);

#endif
