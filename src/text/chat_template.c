/* chat_template.c - three chat formats, each a handful of marker tokens and fixed text.
 *
 *     chatml   <|im_start|>ROLE\nTEXT<|im_end|>\n
 *     llama-3  <|begin_of_text|> (<|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>)*
 *     radish   <|bos|> (<|ROLE|>TEXT<|end|>)*
 *
 * Markers are put in as ids. Everything else, role and newlines together with what the
 * user wrote, is encoded as one stretch of ordinary text with special parsing off: so
 * the ids are those of the models' own templates, where a newline of ours and one of
 * the user's may share a token, and a marker in a message is only letters.
 *
 * Invariant: every marker id is a control token, which ordinary text cannot become. */
#include "text/chat_template.h"

#include "base/base.h"
#include "text/utf8.h"

typedef enum chat_format { CHATML, LLAMA_3, RADISH, NUM_FORMATS } chat_format;
typedef enum chat_role { SYSTEM, USER, ASSISTANT, NUM_ROLES } chat_role;

static const char *const role_names[NUM_ROLES] = {"system", "user", "assistant"};

static const struct format {
    const char *name;
    const char *sign[2];    /* both in tokenizer.chat_template: this format (auto) */
    const char *markers[5]; /* the control tokens that it needs; NULL: unused */
} formats[NUM_FORMATS] = {
    [CHATML] = {"chatml", {"<|im_start|>", ""}, {"<|im_start|>", "<|im_end|>"}},
    [LLAMA_3] = {"llama-3",
                 {"<|start_header_id|>", ""},
                 {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    [RADISH] = {"radish",
                {"<|end|>", "<|assistant|>"},
                {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|bos|>"}},
};

/* Places in `markers`, by format. */
enum { IM_START = 0, IM_END = 1 };
enum { BEGIN_OF_TEXT = 0, START_HEADER = 1, END_HEADER = 2, EOT = 3 };
enum { END = 3, BOS = 4 }; /* radish; the roles come first, in the order of chat_role */

struct chat_template {
    rad_env env;
    const tokenizer *tok;
    chat_format format;
    rad_token ids[5];
};

static bool contains(gguf_str text, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= text.len; i++)
        if (memcmp(text.data + i, word, n) == 0) return true;
    return false;
}

static rad_status detect_format(const gguf_file *file, chat_format *format, rad_error *err)
{
    gguf_str text;
    rad_status status = gguf_get_str(file, "tokenizer.chat_template", &text, err);
    if (status < 0) return status;
    if (status == RAD_NONE)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "chat: the model has no chat template (tokenizer.chat_template)");
    for (int i = 0; i < NUM_FORMATS; i++)
        if (contains(text, formats[i].sign[0]) && contains(text, formats[i].sign[1])) {
            *format = (chat_format)i;
            return RAD_OK;
        }
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "chat: the model's template is none of chatml, llama-3, radish");
}

static rad_status named_format(const char *name, chat_format *format, rad_error *err)
{
    for (int i = 0; i < NUM_FORMATS; i++)
        if (strcmp(name, formats[i].name) == 0) {
            *format = (chat_format)i;
            return RAD_OK;
        }
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "chat: '%.40s' is none of auto, chatml, llama-3, radish", name);
}

rad_status chat_template_create(const rad_env *env, const gguf_file *file, const tokenizer *tok,
                                const char *name, chat_template **out, rad_error *err)
{
    *out = NULL;
    chat_format format = CHATML;
    bool detect = !name || strcmp(name, "auto") == 0;
    rad_status status = detect ? detect_format(file, &format, err)
                               : named_format(name, &format, err);
    if (status) return status;

    rad_env full = rad_env_or_default(env);
    chat_template *t = rad_alloc(&full, sizeof *t);
    if (!t) return rad_fail(err, RAD_E_NOMEM, "chat: no memory");
    *t = (chat_template){.env = full, .tok = tok, .format = format};
    for (size_t i = 0; i < RAD_COUNT(t->ids) && formats[format].markers[i]; i++) {
        const char *marker = formats[format].markers[i];
        t->ids[i] = tokenizer_find(tok, marker, strlen(marker));
        if (!tokenizer_is_control(tok, t->ids[i])) {
            chat_template_destroy(t);
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "chat: format %s needs the control token %s, which the vocabulary "
                            "does not have",
                            formats[format].name, marker);
        }
    }
    *out = t;
    return RAD_OK;
}

void chat_template_destroy(chat_template *t)
{
    if (!t) return;
    rad_env env = t->env;
    rad_free(&env, t, sizeof *t);
}

const char *chat_template_name(const chat_template *t)
{
    return formats[t->format].name;
}

/* ---- encode ---- */

typedef struct prompt {
    const chat_template *t;
    token_buf *out;
    uint32_t limit; /* of out->len; 0: none */
    rad_error *err;
} prompt;

static rad_status put_id(prompt *p, rad_token id)
{
    if (p->limit && p->out->len >= p->limit) return RAD_E_LIMIT; /* words follow at the end */
    rad_status status = token_buf_push(p->out, id);
    return status ? rad_fail(p->err, status, "chat: no memory") : RAD_OK;
}

static rad_status put_text(prompt *p, const char *text, size_t len)
{
    if (!len) return RAD_OK;
    if (p->limit && p->out->len >= p->limit) return RAD_E_LIMIT; /* words follow at the end */
    return tokenizer_encode(p->t->tok, text, len, TOKENIZER_NO_PREFIX,
                            p->limit ? p->limit - p->out->len : 0, p->out, p->err);
}

/* head + content as one text. */
static rad_status put_joined(prompt *p, const char *head, const char *content, size_t len)
{
    const rad_env *env = &p->t->env;
    size_t head_len = strlen(head);
    if (!head_len) return put_text(p, content, len);
    if (!len) return put_text(p, head, head_len);
    char *joined = len < SIZE_MAX / 2 ? env->alloc(env->user, head_len + len) : NULL;
    if (!joined) return rad_fail(p->err, RAD_E_NOMEM, "chat: no memory");
    memcpy(joined, head, head_len);
    memcpy(joined + head_len, content, len);
    rad_status status = put_text(p, joined, head_len + len);
    env->free(env->user, joined, head_len + len);
    return status;
}

/* What the template language's trim takes away. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static void trim(const char **text, size_t *len)
{
    while (*len) {
        utf8_char c = utf8_next((const unsigned char *)*text, *len);
        if (!c.valid || !is_space(c.code)) break;
        *text += c.len;
        *len -= c.len;
    }
    while (*len) {
        size_t start = *len - 1;
        while (start > 0 && ((*text)[start] & 0xc0) == 0x80)
            start--;
        utf8_char c = utf8_next((const unsigned char *)*text + start, *len - start);
        if (!c.valid || start + c.len != *len || !is_space(c.code)) break;
        *len = start;
    }
}

/* A turn as far as its text goes; NULL content begins the assistant's answer. */
static rad_status open_turn(prompt *p, chat_role role, const char *content, size_t len)
{
    const chat_template *t = p->t;
    rad_status status;
    switch (t->format) {
    case CHATML: {
        static const char *const heads[] = {"system\n", "user\n", "assistant\n"};
        status = put_id(p, t->ids[IM_START]);
        return status ? status : put_joined(p, heads[role], content, len);
    }
    case LLAMA_3:
        trim(&content, &len);
        status = put_id(p, t->ids[START_HEADER]);
        if (!status) status = put_text(p, role_names[role], strlen(role_names[role]));
        if (!status) status = put_id(p, t->ids[END_HEADER]);
        return status ? status : put_joined(p, "\n\n", content, len);
    default: /* RADISH */
        status = put_id(p, t->ids[role]);
        return status ? status : put_text(p, content, len);
    }
}

static rad_status close_turn(prompt *p)
{
    const chat_template *t = p->t;
    if (t->format == LLAMA_3) return put_id(p, t->ids[EOT]);
    if (t->format == RADISH) return put_id(p, t->ids[END]);
    rad_status status = put_id(p, t->ids[IM_END]);
    return status ? status : put_text(p, "\n", 1);
}

static rad_status put_bos(prompt *p)
{
    const chat_template *t = p->t;
    if (t->format == LLAMA_3) return put_id(p, t->ids[BEGIN_OF_TEXT]);
    if (t->format == RADISH) return put_id(p, t->ids[BOS]);
    return tokenizer_add_bos(t->tok) ? put_id(p, tokenizer_bos(t->tok)) : RAD_OK;
}

static bool find_role(const char *name, chat_role *role)
{
    for (int i = 0; i < NUM_ROLES && name; i++)
        if (strcmp(name, role_names[i]) == 0) {
            *role = (chat_role)i;
            return true;
        }
    return false;
}

rad_status chat_template_encode(const chat_template *t, const chat_message *messages,
                                uint32_t num_messages, bool add_generation_prompt,
                                uint32_t max_tokens, token_buf *out, rad_error *err)
{
    uint32_t before = out->len;
    prompt p = {.t = t, .out = out, .err = err};
    if (max_tokens && max_tokens < UINT32_MAX - before) p.limit = before + max_tokens;
    rad_status status = put_bos(&p);
    for (uint32_t i = 0; i < num_messages && !status; i++) {
        chat_role role = USER;
        if (!find_role(messages[i].role, &role))
            status = rad_fail(err, RAD_E_INVAL,
                              "messages[%u]: role '%.40s' is none of system, user, assistant", i,
                              messages[i].role ? messages[i].role : "");
        if (!status) status = open_turn(&p, role, messages[i].content, messages[i].content_len);
        if (!status) status = close_turn(&p);
    }
    if (!status && add_generation_prompt) status = open_turn(&p, ASSISTANT, "", 0);
    if (status) out->len = before;
    if (status == RAD_E_LIMIT)
        return rad_fail(err, status, "the conversation is longer than %u tokens", max_tokens);
    return status;
}
