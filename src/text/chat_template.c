/* chat_template.c - the template of a model, and its text as tokens.
 *
 *     <|im_start|>user\nHi <|im_end|> there<|im_end|>\n
 *     tttttttttttttttttuuuuuuuuuuuuuuuuuuuuutttttttttttt   t: the template's, u: a user's
 *     ^ id                                 ^ id
 *
 * The text is walked over once. Control tokens whose bytes are all the template's go in as
 * ids; the stretches between them are encoded as ordinary text, template and user together:
 * so the ids are those of the models' own tokenizers, where a newline of the template and one
 * of the user may share a token, and a marker in a message is only letters.
 *
 * Invariant: a control id in a prompt stands for bytes of the template. */
#define _GNU_SOURCE /* memmem */
#include "text/chat_template.h"

#include "base/base.h"
#include "text/chat_render.h"

#include <errno.h>
#include <stdio.h>

enum { MOST_TEMPLATE = 4 << 20, MOST_PIECE = TOKENIZER_MAX_PIECE };

static const struct format {
    const char *name;
    const char *markers[5]; /* the control tokens that it needs */
    const char *source;
} formats[] = {
    {"chatml",
     {"<|im_start|>", "<|im_end|>"},
     "{% for m in messages %}"
     "{% if m.role not in ['system', 'user', 'assistant'] %}"
     "{{ raise_exception('messages[' ~ loop.index0 ~ \"]: role '\" ~ m.role ~ "
     "\"' is none of system, user, assistant\") }}{% endif %}"
     "{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama-3",
     {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     "<|begin_of_text|>{% for m in messages %}"
     "{% if m.role not in ['system', 'user', 'assistant'] %}"
     "{{ raise_exception('messages[' ~ loop.index0 ~ \"]: role '\" ~ m.role ~ "
     "\"' is none of system, user, assistant\") }}{% endif %}"
     "{{ '<|start_header_id|>' ~ m.role ~ '<|end_header_id|>\\n\\n' ~ m.content|trim ~ "
     "'<|eot_id|>' }}{% endfor %}"
     "{% if add_generation_prompt %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"radish",
     {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|bos|>"},
     "<|bos|>{% for m in messages %}"
     "{% if m.role not in ['system', 'user', 'assistant'] %}"
     "{{ raise_exception('messages[' ~ loop.index0 ~ \"]: role '\" ~ m.role ~ "
     "\"' is none of system, user, assistant\") }}{% endif %}"
     "{{ '<|' ~ m.role ~ '|>' ~ m.content ~ '<|end|>' }}{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>{% endif %}"},
};

struct chat_template {
    rad_env env;
    const tokenizer *tok;
    jinja_template *jinja;
    jinja_template *tools; /* for conversations with tools; NULL: the same */
    char name[256];
    char bos[MOST_PIECE + 1], eos[MOST_PIECE + 1]; /* "": the vocabulary has none */
};

/* ---- where the template comes from ---- */

static void token_text(const tokenizer *tok, rad_token id, char *text)
{
    size_t len = id < 0 ? 0 : tokenizer_piece(tok, id, true, text, MOST_PIECE);
    text[RAD_MIN(len, (size_t)MOST_PIECE)] = 0;
}

static rad_status check_markers(const tokenizer *tok, const struct format *f, rad_error *err)
{
    for (size_t i = 0; i < RAD_COUNT(f->markers) && f->markers[i]; i++) {
        const char *marker = f->markers[i];
        if (!tokenizer_is_control(tok, tokenizer_find(tok, marker, strlen(marker))))
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "chat: format %s needs the control token %s, which the vocabulary "
                            "does not have",
                            f->name, marker);
    }
    return RAD_OK;
}

static rad_status parse(chat_template *t, const char *source, size_t len, jinja_template **out,
                        const char *hint, rad_error *err)
{
    rad_error why = {0};
    rad_status status = jinja_parse(&t->env, source, len, out, NULL, &why);
    if (!status) return RAD_OK;
    /* what the template is made of is its format; a model without any is RAD_E_UNSUPPORTED */
    if (status == RAD_E_UNSUPPORTED) status = RAD_E_FORMAT;
    return rad_fail(err, status, "%s%s", why.text, hint);
}

#define OWN "tokenizer.chat_template"

uint32_t chat_template_list(const gguf_file *file, gguf_str *names, uint32_t room)
{
    const size_t len = strlen(OWN);
    uint32_t count = 0;
    for (uint64_t i = 0; i < gguf_num_kvs(file); i++) {
        const gguf_kv *kv = gguf_kv_at(file, i);
        if (kv->type != GGUF_STR || kv->key.len < len || memcmp(kv->key.data, OWN, len) != 0)
            continue;
        gguf_str name = {"default", 7};
        if (kv->key.len > len) name = (gguf_str){kv->key.data + len + 1, kv->key.len - len - 1};
        if (kv->key.len > len && (kv->key.data[len] != '.' || !name.len)) continue;
        if (count < room) names[count] = name;
        count++;
    }
    return count;
}

rad_status chat_template_text(const gguf_file *file, gguf_str name, gguf_str *text, rad_error *err)
{
    char key[200];
    bool plain = name.len == 7 && memcmp(name.data, "default", 7) == 0;
    if (name.len > 100) return RAD_NONE;
    snprintf(key, sizeof key, OWN "%s%.*s", plain ? "" : ".", plain ? 0 : (int)name.len, name.data);
    return gguf_get_str(file, key, text, err);
}

static rad_status no_template(const gguf_file *file, rad_error *err)
{
    gguf_str names[4];
    char list[300] = "";
    uint32_t count = chat_template_list(file, names, RAD_COUNT(names)), len = 0;
    for (uint32_t i = 0; i < RAD_MIN(count, RAD_COUNT(names)); i++)
        len += (uint32_t)snprintf(list + len, sizeof list - len, "%s%.*s", i ? ", " : "",
                                  (int)RAD_MIN(names[i].len, 60u), names[i].data);
    if (!count)
        return rad_fail(err, RAD_E_UNSUPPORTED, "chat: the model has no chat template (" OWN ")");
    return rad_fail(err, RAD_E_UNSUPPORTED,
                    "chat: the model has chat templates by name only; --chat-template picks one: "
                    "%s",
                    list);
}

/* One of the file's. RAD_NONE: it has none of this name. */
static rad_status from_model(chat_template *t, const gguf_file *file, const char *name,
                             jinja_template **out, rad_error *err)
{
    gguf_str text;
    char hint[200];
    rad_status status = chat_template_text(file, (gguf_str){name, strlen(name)}, &text, err);
    if (status != RAD_OK) return status;
    snprintf(hint, sizeof hint,
             " (the model's %.60s template; --chat-template names another: one of the model's, "
             "chatml, llama-3, radish or a file)",
             name);
    return parse(t, text.data, text.len, out, hint, err);
}

/* The file's default, and what it has for tools. */
static rad_status from_model_by_itself(chat_template *t, const gguf_file *file, rad_error *err)
{
    snprintf(t->name, sizeof t->name, "model");
    rad_status status = from_model(t, file, "default", &t->jinja, err);
    if (status == RAD_NONE) return no_template(file, err);
    if (!status) status = from_model(t, file, "tool_use", &t->tools, err);
    return status == RAD_NONE ? RAD_OK : status;
}

static rad_status from_file(chat_template *t, const char *path, rad_error *err)
{
    FILE *f = fopen(path, "rb");
    if (!f && errno == ENOENT)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "chat: '%.200s' is none of auto, chatml, llama-3, radish, none of the "
                        "model's templates, and no file",
                        path);
    if (!f) return rad_fail(err, RAD_E_IO, "chat: cannot open '%.200s': %s", path, strerror(errno));
    char *source = rad_alloc(&t->env, MOST_TEMPLATE);
    size_t len = source ? fread(source, 1, MOST_TEMPLATE, f) : 0;
    bool failed = ferror(f) != 0;
    fclose(f);
    snprintf(t->name, sizeof t->name, "%s", path);
    rad_status status;
    if (!source)
        status = rad_fail(err, RAD_E_NOMEM, "chat: no memory");
    else if (failed)
        status = rad_fail(err, RAD_E_IO, "chat: cannot read '%.200s'", path);
    else if (len == MOST_TEMPLATE)
        status = rad_fail(err, RAD_E_LIMIT, "chat: '%.200s' is longer than 4 MiB", path);
    else
        status = parse(t, source, len, &t->jinja, "", err);
    rad_free(&t->env, source, MOST_TEMPLATE);
    return status;
}

static rad_status load(chat_template *t, const gguf_file *file, const char *name, rad_error *err)
{
    if (!name || strcmp(name, "auto") == 0) return from_model_by_itself(t, file, err);
    for (size_t i = 0; i < RAD_COUNT(formats); i++) {
        if (strcmp(name, formats[i].name) != 0) continue;
        snprintf(t->name, sizeof t->name, "%s", name);
        rad_status status = check_markers(t->tok, &formats[i], err);
        return status ? status
                      : parse(t, formats[i].source, strlen(formats[i].source), &t->jinja, "", err);
    }
    snprintf(t->name, sizeof t->name, "%s", name);
    rad_status status = file ? from_model(t, file, name, &t->jinja, err) : RAD_NONE;
    return status == RAD_NONE ? from_file(t, name, err) : status;
}

rad_status chat_template_create(const rad_env *env, const gguf_file *file, const tokenizer *tok,
                                const char *name, chat_template **out, rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    chat_template *t = rad_alloc(&full, sizeof *t);
    if (!t) return rad_fail(err, RAD_E_NOMEM, "chat: no memory");
    t->env = full;
    t->tok = tok;
    token_text(tok, tokenizer_bos(tok), t->bos);
    token_text(tok, tokenizer_eos(tok), t->eos);
    rad_status status = load(t, file, name, err);
    if (status) {
        chat_template_destroy(t);
        return status;
    }
    *out = t;
    return RAD_OK;
}

void chat_template_destroy(chat_template *t)
{
    if (!t) return;
    rad_env env = t->env;
    jinja_destroy(t->jinja);
    jinja_destroy(t->tools);
    rad_free(&env, t, sizeof *t);
}

const char *chat_template_name(const chat_template *t)
{
    return t->name;
}

gguf_str chat_template_source(const chat_template *t, bool tools)
{
    gguf_str text = {"", 0};
    if (t) text.data = jinja_source(tools && t->tools ? t->tools : t->jinja, &text.len);
    return text;
}

bool chat_template_reads(const chat_template *t, const char *variable)
{
    return jinja_names(t->tools ? t->tools : t->jinja, variable);
}

const char *chat_template_unknown(const chat_template *t)
{
    const char *unknown = jinja_unknown(t->jinja);
    return *unknown || !t->tools ? unknown : jinja_unknown(t->tools);
}

/* ---- render ---- */

/* The one for this conversation. */
static const jinja_template *pick(const chat_template *t, const chat_input *in)
{
    return t->tools && json_array_size(in->tools) ? t->tools : t->jinja;
}

static rad_status render(const chat_template *t, const jinja_template *jinja, chat_input *in,
                         jinja_text *out, rad_error *err)
{
    in->bos_token = t->bos;
    in->eos_token = t->eos;
    in->now_unix = chat_render_now();
    return chat_render(jinja, in, out, NULL, err);
}

/* Bytes that are not UTF-8 are let through: they are encoded as bytes. */
static json_t *to_json(const chat_message *messages, uint32_t num_messages)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < num_messages && list; i++) {
        const chat_message *m = &messages[i];
        json_t *role = json_string_nocheck(m->role ? m->role : "");
        json_t *content = json_stringn_nocheck(m->content_len ? m->content : "", m->content_len);
        json_t *one = json_object();
        bool whole = role && content && one;
        if (one && role) json_object_set(one, "role", role);
        if (one && content) json_object_set(one, "content", content);
        json_decref(role);
        json_decref(content);
        if (!whole || json_object_size(one) != 2 || json_array_append(list, one) != 0) {
            json_decref(list);
            list = NULL;
        }
        json_decref(one);
    }
    return list;
}

rad_status chat_template_render(const chat_template *t, const chat_message *messages,
                                uint32_t num_messages, bool add_generation_prompt, jinja_text *out,
                                rad_error *err)
{
    json_t *list = to_json(messages, num_messages);
    *out = (jinja_text){0};
    if (!list) return rad_fail(err, RAD_E_NOMEM, "chat: no memory");
    chat_input in = {.messages = list, .add_generation_prompt = add_generation_prompt};
    rad_status status = render(t, t->jinja, &in, out, err);
    json_decref(list);
    return status;
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
    if (p->limit && p->out->len >= p->limit) return RAD_E_LIMIT;
    return tokenizer_encode(p->t->tok, text, len, 0, p->limit ? p->limit - p->out->len : 0, p->out,
                            p->err);
}

/* The control token at byte `at`, if all of it is the template's; else -1. */
static rad_token marker_at(const chat_template *t, const jinja_text *text, size_t at, size_t *taken)
{
    if (text->user && text->user[at]) return -1;
    rad_token id = tokenizer_control_at(t->tok, text->data + at, text->len - at, taken);
    if (id >= 0 && text->user && memchr(text->user + at, 1, *taken)) return -1;
    return id;
}

static rad_status put_all(prompt *p, const jinja_text *text, size_t from)
{
    const tokenizer *tok = p->t->tok;
    rad_status status = RAD_OK;
    size_t start = from, taken = 0;
    bool has_bos = text->len > 0 && marker_at(p->t, text, 0, &taken) == tokenizer_bos(tok);
    if (!from && tokenizer_add_bos(tok) && !has_bos) status = put_id(p, tokenizer_bos(tok));
    for (size_t at = from; at < text->len && !status;) {
        rad_token id = marker_at(p->t, text, at, &taken);
        if (id < 0) {
            at++;
            continue;
        }
        status = put_text(p, text->data + start, at - start);
        if (!status) status = put_id(p, id);
        start = at += taken;
    }
    return status ? status : put_text(p, text->data + start, text->len - start);
}

rad_status chat_template_encode_text(const chat_template *t, const jinja_text *text, size_t from,
                                     uint32_t max_tokens, token_buf *out, rad_error *err)
{
    uint32_t before = out->len;
    prompt p = {.t = t, .out = out, .err = err};
    if (max_tokens && max_tokens < UINT32_MAX - before) p.limit = before + max_tokens;
    rad_status status = put_all(&p, text, from);
    if (status) out->len = before;
    if (status == RAD_E_LIMIT)
        return rad_fail(err, status, "the conversation is longer than %u tokens", max_tokens);
    return status;
}

rad_status chat_template_encode(const chat_template *t, const chat_message *messages,
                                uint32_t num_messages, bool add_generation_prompt,
                                uint32_t max_tokens, token_buf *out, rad_error *err)
{
    jinja_text text;
    rad_status status =
        chat_template_render(t, messages, num_messages, add_generation_prompt, &text, err);
    if (status == RAD_E_LIMIT) status = RAD_E_INVAL; /* of rendering, not of max_tokens */
    if (!status) status = chat_template_encode_text(t, &text, 0, max_tokens, out, err);
    jinja_text_fini(&text);
    return status;
}

/* ---- what a conversation has beside its texts ---- */

/* A template that does not speak of tools would drop them, and the model answer as if there were
 * none. */
static rad_status check_reads(const chat_template *t, const chat_input *in, rad_error *err)
{
    bool calls = false;
    for (size_t i = 0; i < json_array_size(in->messages) && !calls; i++) {
        const json_t *message = json_array_get(in->messages, i);
        calls = json_array_size(json_object_get(message, "tool_calls")) > 0;
    }
    if (json_array_size(in->tools) && !jinja_names(pick(t, in), "tools"))
        return rad_fail(err, RAD_E_INVAL,
                        "'tools': the chat template (%.100s) does not read them: the model would "
                        "not hear of them",
                        t->name);
    if (calls && !jinja_names(pick(t, in), "tool_calls"))
        return rad_fail(err, RAD_E_INVAL,
                        "'tool_calls': the chat template (%.100s) does not read them: the model "
                        "would not hear of them",
                        t->name);
    return RAD_OK;
}

/* Whether the names of all tools are in the text. */
static bool tells_tools(const json_t *tools, const jinja_text *text)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *function = json_object_get(tool, "function");
        const json_t *name = json_object_get(function ? function : tool, "name");
        size_t len = json_string_length(name);
        if (!len || !memmem(text->data, text->len, json_string_value(name), len)) return false;
    }
    return true;
}

/* A template may name the tools and drop them all the same, for example when no message is a
 * user's. Where their names are in the text they are not dropped; else it is rendered once more
 * without them, and must be another. */
static rad_status check_told(const chat_template *t, const chat_input *in, const jinja_text *text,
                             rad_error *err)
{
    if (!json_array_size(in->tools) || tells_tools(in->tools, text)) return RAD_OK;
    chat_input without = *in;
    jinja_text other;
    without.tools = NULL;
    rad_error ignored = {0};
    rad_status status = render(t, pick(t, in), &without, &other, &ignored);
    if (status == RAD_E_NOMEM) return rad_fail(err, status, "chat: no memory");
    bool same = !status && other.len == text->len && !memcmp(other.data, text->data, text->len);
    jinja_text_fini(&other);
    if (!same) return RAD_OK;
    return rad_fail(err, RAD_E_INVAL,
                    "'tools': the chat template (%.100s) drops them in this conversation", t->name);
}

/* Cuts the text behind the words of the last message: what a template writes after them would end
 * it. White space around them is the template's business. */
static rad_status cut_behind_last(const json_t *messages, jinja_text *text, rad_error *err)
{
    enum { MOST_BEHIND = 4096 }; /* a template's end of a message is short; comparing is not free */
    static const char space[] = " \t\r\n";
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const char *words = json_string_value(content);
    size_t len = json_string_length(content), at;
    while (len && strchr(space, words[len - 1]) && words[len - 1])
        len--;
    while (len && strchr(space, *words) && *words)
        words++, len--;
    if (!len || len > text->len)
        return rad_fail(err, RAD_E_INVAL, "the last message has no words to go on from");
    size_t end = text->len - len, from = end > MOST_BEHIND ? end - MOST_BEHIND : 0;
    for (at = end; at > from && memcmp(text->data + at, words, len) != 0;)
        at--;
    if (memcmp(text->data + at, words, len) != 0)
        return rad_fail(err, RAD_E_INVAL,
                        "the chat template does not write the last message as it is: it cannot be "
                        "gone on from");
    text->len = at + len;
    return RAD_OK;
}

rad_status chat_template_encode_json(const chat_template *t, const char *json, size_t len,
                                     bool add_generation_prompt, uint32_t max_tokens,
                                     token_buf *out, rad_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(json, len, JSON_ALLOW_NUL, &where);
    if (!json_is_array(json_object_get(root, "messages"))) {
        json_decref(root);
        return rad_fail(err, RAD_E_INVAL, "the conversation is not JSON with messages");
    }
    chat_input in = {.messages = json_object_get(root, "messages"),
                     .tools = json_object_get(root, "tools"),
                     .kwargs = json_object_get(root, "chat_template_kwargs"),
                     .add_generation_prompt = add_generation_prompt};
    bool go_on = json_is_true(json_object_get(root, "continue_final_message"));
    if (go_on) in.add_generation_prompt = false;
    jinja_text text = {0};
    rad_status status = check_reads(t, &in, err);
    if (!status) status = render(t, pick(t, &in), &in, &text, err);
    if (!status) status = check_told(t, &in, &text, err);
    if (!status && go_on) status = cut_behind_last(in.messages, &text, err);
    json_decref(root);
    if (status == RAD_E_LIMIT) status = RAD_E_INVAL;
    if (!status) status = chat_template_encode_text(t, &text, 0, max_tokens, out, err);
    jinja_text_fini(&text);
    return status;
}
