/* tool_grammar.c - writes EBNF for calls; tool_grammar.h has the picture. */
#include "text/tool_grammar.h"

#include "text/tool_call_impl.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct writer {
    const tool_grammar_params *p;
    text_buf *out;
    bool failed; /* no memory */
} writer;

static void put(writer *w, const char *text, size_t len)
{
    if (!w->failed && len) w->failed = text_buf_append(w->out, text, len) != RAD_OK;
}

RAD_PRINTF(2, 3) static void say(writer *w, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(w, text, RAD_MIN((size_t)len, sizeof text - 1));
}

/* Text in quotes, the control tokens in it as such. */
static void quoted(writer *w, const char *text, size_t len)
{
    bool open = false;
    while (len) {
        size_t taken = 0;
        const rad_token id = tokenizer_control_at(w->p->tok, text, len, &taken);
        if (id >= 0) {
            say(w, "%s %%token %d ", open ? "\"" : "", id);
            open = false;
            text += taken, len -= taken;
            continue;
        }
        if (!open) put(w, " \"", 2);
        open = true;
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            say(w, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            say(w, "\\x%02x", c);
        else
            put(w, text, 1);
        text++, len--;
    }
    if (open) put(w, "\" ", 2);
}

static void words(writer *w, const char *text)
{
    quoted(w, text, strlen(text));
}

static void json_text(writer *w, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) w->failed = true;
    if (text) put(w, text, strlen(text));
    free(text);
}

/* A function's name inside of JSON. */
static void name_in_json(writer *w, const json_t *name)
{
    char *text = json_dumps(name, JSON_ENCODE_ANY);
    if (!text) w->failed = true;
    if (text) words(w, text);
    free(text);
}

/* ---- text without a word ---- */

/* In a class of characters, where a slash ends the expression, too. */
static void class_char(writer *w, char c)
{
    if (strchr("\\]^-[/", c)) put(w, "\\", 1);
    put(w, &c, 1);
}

static void regex_char(writer *w, char c)
{
    if (strchr("\\/.*+?()[]{}|^$-", c)) put(w, "\\", 1);
    put(w, &c, 1);
}

/* Any text in which `word` does not stand; its first character comes in it once. Behind that
 * character some of the rest may follow, and then another one than the next:
 *
 *     [^<]* ( < ( ([^</][^<]*)? | \/([^<p][^<]*)? | \/p([^<a][^<]*)? ... ) )*          </pa
 *
 * or, where the word begins anew or the text ends, nothing. */
static void text_without(writer *w, const char *word)
{
    put(w, " %regex /[^", 11);
    class_char(w, word[0]);
    put(w, "]*(", 3);
    regex_char(w, word[0]);
    put(w, "(", 1);
    for (size_t known = 1; word[known]; known++) {
        if (known > 1) put(w, "|", 1);
        for (size_t i = 1; i < known; i++)
            regex_char(w, word[i]);
        put(w, "([^", 3);
        class_char(w, word[0]);
        class_char(w, word[known]);
        put(w, "][^", 3);
        class_char(w, word[0]);
        put(w, "]*)?", 4);
    }
    put(w, "))*/ ", 5);
}

/* What may be said instead of calls, and before them. A control token is in no text anyway. */
static void free_text(writer *w, const char *opener)
{
    size_t taken;
    if (tokenizer_control_at(w->p->tok, opener, strlen(opener), &taken) >= 0)
        put(w, " %regex /[\\s\\S]*/ ", 18);
    else if (!opener[1]) { /* a brace begins a call where it begins the answer, else none */
        put(w, " %regex /(\\s*[^\\s", 17);
        class_char(w, opener[0]);
        put(w, "][\\s\\S]*)?/ | calls", 19);
        return;
    } else
        text_without(w, opener);
    put(w, " calls?", 7);
}

/* ---- families ---- */

static json_t *function_of(const json_t *tool)
{
    return json_object_get(tool, "function");
}

static bool is_strict(const writer *w, const json_t *function)
{
    return !w->p->strict_only || json_is_true(json_object_get(function, "strict"));
}

/* The arguments as JSON. */
static void arguments(writer *w, const json_t *function)
{
    const json_t *schema = json_object_get(function, "parameters");
    put(w, " %json ", 7);
    if (json_is_object(schema) && json_object_size(schema) && is_strict(w, function))
        json_text(w, schema);
    else
        put(w, "{\"type\":\"object\"}", 17);
    put(w, " ", 1);
}

/* The whole call is one object. */
static void object_call(writer *w, const json_t *function, const json_t *name,
                        const char *arguments_key)
{
    words(w, "{\"name\": ");
    name_in_json(w, name);
    words(w, ", \"");
    words(w, arguments_key);
    words(w, "\": ");
    arguments(w, function);
    words(w, "}");
}

static void hermes_call(writer *w, const json_t *function, const json_t *name)
{
    words(w, "<tool_call>\n");
    object_call(w, function, name, "arguments");
    words(w, "\n</tool_call>");
}

static void llama_call(writer *w, const json_t *function, const json_t *name)
{
    object_call(w, function, name, "parameters");
}

static void granite_call(writer *w, const json_t *function, const json_t *name)
{
    object_call(w, function, name, "arguments");
}

/* The newer models have a token between name and arguments. */
static bool has_args_token(const writer *w)
{
    return tokenizer_find(w->p->tok, "[ARGS]", 6) >= 0;
}

static void mistral_call(writer *w, const json_t *function, const json_t *name)
{
    if (!has_args_token(w)) {
        object_call(w, function, name, "arguments");
        return;
    }
    words(w, "[TOOL_CALLS]");
    quoted(w, json_string_value(name), json_string_length(name));
    words(w, "[ARGS]");
    arguments(w, function);
}

static void harmony_call(writer *w, const json_t *function, const json_t *name)
{
    words(w, "<|channel|>commentary to=functions.");
    quoted(w, json_string_value(name), json_string_length(name));
    words(w, " <|constrain|>json<|message|>");
    arguments(w, function);
}

static void functionary_call(writer *w, const json_t *function, const json_t *name)
{
    words(w, "<function=");
    quoted(w, json_string_value(name), json_string_length(name));
    words(w, ">");
    arguments(w, function);
    words(w, "</function>");
}

/* A parameter's schema by itself: what it refers to stands in that of all parameters. */
static void xml_json(writer *w, const json_t *schema, const json_t *whole)
{
    static const char *const shared[] = {"$defs", "definitions"};
    json_t *own = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    if (json_is_false(schema)) json_object_set_new(own, "not", json_object());
    for (size_t i = 0; i < RAD_COUNT(shared); i++) {
        json_t *of_all = json_object_get(whole, shared[i]);
        if (of_all && !json_object_get(own, shared[i])) json_object_set(own, shared[i], of_all);
    }
    put(w, " %json ", 7);
    json_text(w, own);
    json_decref(own);
}

/* Strings stand there as they are, up to the end of the parameter; all else is JSON. */
static void xml_value(writer *w, const json_t *schema, const json_t *whole)
{
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    const bool text = json_is_string(type) && !strcmp(json_string_value(type), "string");
    if (!text) {
        xml_json(w, schema, whole);
    } else if (json_array_size(list)) {
        put(w, " (", 2);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *one = json_array_get(list, i);
            if (i) put(w, "|", 1);
            quoted(w, json_string_value(one) ? json_string_value(one) : "",
                   json_string_length(one));
        }
        put(w, ") ", 2);
    } else {
        text_without(w, "</parameter>");
    }
}

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && !strcmp(one, name)) return true;
    }
    return false;
}

static void xml_call(writer *w, const json_t *function, const json_t *name)
{
    json_t *schema = json_object_get(function, "parameters");
    json_t *properties = json_object_get(schema, "properties"), *property;
    const char *key;
    words(w, "<tool_call>\n<function=");
    quoted(w, json_string_value(name), json_string_length(name));
    words(w, ">\n");
    json_object_foreach(properties, key, property)
    {
        const bool must = is_strict(w, function) && is_required(schema, key);
        if (!must) put(w, " (", 2);
        words(w, "<parameter=");
        words(w, key);
        words(w, ">\n");
        xml_value(w, property, schema);
        words(w, "\n</parameter>\n");
        if (!must) put(w, ")? ", 3);
    }
    words(w, "</function>\n</tool_call>");
}

typedef struct family {
    const char *names;
    const char *opener;                   /* of calls, in text */
    const char *before, *between, *after; /* around all calls; between NULL: there is one */
    void (*call)(writer *, const json_t *function, const json_t *name);
} family;

static const family families[] = {
    {"qwen", "<tool_call>", "", "\n", "", hermes_call},
    {"qwen3_coder", "<tool_call>", "", "\n", "", xml_call},
    {"llama3", "{", "", NULL, "", llama_call},
    {"granite", "<|tool_call|>", "<|tool_call|>[", ", ", "]", granite_call},
    {"functionary", "<function=", "", "", "", functionary_call},
    {"gpt-oss", NULL, "", NULL, "", harmony_call},
    {"mistral", "[TOOL_CALLS]", NULL, NULL, NULL, mistral_call},
};

static const family *family_of(const tool_format *f)
{
    for (size_t i = 0; i < RAD_COUNT(families); i++)
        if (tool_format_find(families[i].names) == f) return &families[i];
    return NULL;
}

/* ---- all of it ---- */

static void any_text(writer *w)
{
    put(w, " %regex /[\\s\\S]*/ ", 18);
}

/* What is no call. */
static void write_form(writer *w)
{
    if (!w->p->form) {
        any_text(w);
        return;
    }
    put(w, " (", 2);
    put(w, w->p->form, strlen(w->p->form));
    put(w, ") ", 2);
}

/* Reasoning has a channel of its own, and so has what is no call. */
static void write_channels(writer *w)
{
    words(w, "<|channel|>analysis<|message|>");
    any_text(w);
    words(w, "<|end|><|start|>assistant");
    put(w, " said | said\nsaid ::=", 21);
    if (json_array_size(w->p->tools))
        put(w, w->p->required ? " calls" : " calls |", w->p->required ? 6 : 8);
    if (w->p->required) return;
    words(w, "<|channel|>final<|message|>");
    write_form(w);
}

static void write_root(writer *w, const family *f)
{
    put(w, "root ::=", 8);
    if (!f->opener) {
        write_channels(w);
    } else if (w->p->required) {
        put(w, " calls", 6);
    } else if (w->p->form) {
        write_form(w);
        put(w, "| calls", 7);
    } else {
        free_text(w, f->opener);
    }
}

static void write_calls(writer *w, const family *f)
{
    const char *before = f->before, *between = f->between, *after = f->after;
    if (!before) { /* Mistral's: a list behind the marker, or the marker before each */
        const bool each = has_args_token(w);
        before = each ? "" : "[TOOL_CALLS][", between = each ? "" : ", ", after = each ? "" : "]";
    }
    put(w, "\ncalls ::=", 10);
    words(w, before);
    put(w, " call", 5);
    if (between && !w->p->one_call) {
        put(w, " (", 2);
        words(w, between);
        put(w, " call)*", 7);
    }
    words(w, after);
    put(w, "\ncall ::=", 9);
}

bool tool_format_has_channels(const tool_format *f)
{
    return f && f->flags & TOOL_CHANNELS;
}

static bool is_wanted(const tool_grammar_params *p, const json_t *name)
{
    return !p->only || !strcmp(json_string_value(name), p->only);
}

rad_status tool_grammar_write(const tool_grammar_params *p, text_buf *out, rad_error *err)
{
    writer w = {.p = p, .out = out};
    const family *f = p->calls ? family_of(p->calls) : NULL;
    char name_of[80];
    uint32_t count = 0;
    if (!f)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "calls as this model writes them (%s) cannot be constrained; "
                        "--tool-call-parser names another way",
                        tool_format_name(p->calls, name_of, sizeof name_of));
    write_root(&w, f);
    if (json_array_size(p->tools)) write_calls(&w, f);
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *function = function_of(json_array_get(p->tools, i));
        const json_t *name = json_object_get(function, "name");
        if (!json_is_string(name) || !json_string_length(name))
            return rad_fail(err, RAD_E_INVAL, "tool %zu has no name", i);
        if (is_wanted(p, name)) say(&w, "%s call-%zu", count++ ? " |" : "", i);
    }
    if (json_array_size(p->tools) && !count)
        return rad_fail(err, RAD_E_INVAL, "there is no function '%.80s'", p->only);
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *function = function_of(json_array_get(p->tools, i));
        const json_t *name = json_object_get(function, "name");
        if (!is_wanted(p, name)) continue;
        say(&w, "\ncall-%zu ::=", i);
        f->call(&w, function, name);
    }
    put(&w, "\n", 1);
    return w.failed ? rad_fail(err, RAD_E_NOMEM, "no memory for a grammar") : RAD_OK;
}
