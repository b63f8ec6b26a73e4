/* tool_grammar.c - writes EBNF for answers with calls; tool_grammar.h has the picture. */
#include "text/tool_grammar_impl.h"

#include <stdarg.h>
#include <stdio.h>

/* As long as a grammar may be. What parameters share is written for each of them. */
enum { MOST_TEXT = 4 << 20 };

static void put(tool_writer *w, const char *text, size_t len)
{
    if (w->failed || !len) return;
    w->too_long = len > MOST_TEXT - w->out->len;
    w->failed = w->too_long || text_buf_append(w->out, text, len) != RAD_OK;
}

void tool_put(tool_writer *w, const char *text)
{
    put(w, text, strlen(text));
}

void tool_say(tool_writer *w, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(w, text, RAD_MIN((size_t)len, sizeof text - 1));
}

/* Control tokens in it are written as such. */
void tool_quoted(tool_writer *w, const char *text, size_t len)
{
    bool open = false;
    while (len) {
        size_t taken = 0;
        const rad_token id = tokenizer_control_at(w->p->tok, text, len, &taken);
        if (id >= 0) {
            tool_say(w, "%s %%token %d ", open ? "\"" : "", id);
            open = false;
            text += taken, len -= taken;
            continue;
        }
        if (!open) tool_put(w, " \"");
        open = true;
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            tool_say(w, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            tool_say(w, "\\x%02x", c);
        else
            put(w, text, 1);
        text++, len--;
    }
    if (open) tool_put(w, "\" ");
}

void tool_words(tool_writer *w, const char *text)
{
    while (*text) {
        const size_t len = strcspn(text, SOME_DIGITS MAYBE_LINE);
        tool_quoted(w, text, len);
        text += len;
        if (!*text) break;
        tool_put(w, *text++ == SOME_DIGITS[0] ? " (\"0\" | [1-9] [0-9]?) " : " \"\\n\"? ");
    }
}

void tool_json(tool_writer *w, const json_t *value)
{
    char *text = w->failed ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) w->failed = true;
    if (text) tool_put(w, text);
    free(text);
}

void tool_regex(tool_writer *w, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\/.*+?()[]{}|^$-", *text)) tool_put(w, "\\");
        put(w, text, 1);
    }
}

static void any_text(tool_writer *w)
{
    tool_put(w, " %regex /[\\s\\S]*/ ");
}

/* What may be said instead of calls, and before them: nothing that the parser takes for the
 * beginning of one. A control token is in no text anyway, and where a bracket begins a call, it
 * does so at the answer's beginning. */
static void free_text(tool_writer *w)
{
    const tool_format *f = w->p->calls;
    const bool bare = f->flags & (TOOL_BARE_JSON | TOOL_BARE_LIST);
    const char *barred[RAD_COUNT(f->opens)];
    size_t taken, count = 0;
    for (size_t i = 0; i < RAD_COUNT(f->opens) && f->opens[i]; i++)
        if (tokenizer_control_at(w->p->tok, f->opens[i], strlen(f->opens[i]), &taken) < 0)
            barred[count++] = f->opens[i];
    if (!bare && !count) {
        any_text(w);
        tool_put(w, " calls?");
        return;
    }
    tool_put(w, " %text {} /");
    if (bare) tool_put(w, f->flags & TOOL_BARE_JSON ? "^\\s*\\{" : "^\\s*\\[");
    for (size_t i = 0; i < count; i++) {
        if (bare || i) tool_put(w, "|");
        tool_regex(w, barred[i]);
    }
    tool_put(w, bare ? "/ | calls" : "/ calls?");
}

/* What is no call. */
static void write_form(tool_writer *w)
{
    if (!w->p->form) {
        any_text(w);
        return;
    }
    tool_put(w, " (");
    tool_put(w, w->p->form);
    tool_put(w, ") ");
}

/* Reasoning has a channel of its own, and so has what is no call. */
static void write_channels(tool_writer *w)
{
    tool_words(w, "<|channel|>analysis<|message|>");
    any_text(w);
    tool_words(w, "<|end|><|start|>assistant");
    tool_put(w, " said | said\nsaid ::=");
    if (json_array_size(w->p->tools)) tool_put(w, w->p->required ? " calls" : " calls |");
    if (w->p->required) return;
    tool_words(w, "<|channel|>final<|message|>");
    write_form(w);
}

static void write_root(tool_writer *w)
{
    tool_put(w, "root ::=");
    if (tool_format_has_channels(w->p->calls)) {
        write_channels(w);
    } else if (w->p->required) {
        tool_put(w, " calls");
    } else if (w->p->form) {
        write_form(w);
        tool_put(w, "| calls");
    } else {
        free_text(w);
    }
}

static void write_calls(tool_writer *w, const tool_family *f)
{
    tool_put(w, "\ncalls ::=");
    for (size_t i = 0; i < RAD_COUNT(f->before) && f->before[i]; i++) {
        if (i) tool_put(w, " |");
        tool_words(w, f->before[i]);
        tool_put(w, " call");
        if (f->between && !w->p->one_call) {
            tool_put(w, " (");
            tool_words(w, f->between);
            tool_put(w, " call)*");
        }
        tool_words(w, f->after[i]);
    }
    tool_put(w, "\ncall ::=");
}

bool tool_format_has_channels(const tool_format *f)
{
    return f && f->flags & TOOL_CHANNELS;
}

static const json_t *function_of(const json_t *tool)
{
    return json_object_get(tool, "function");
}

static bool is_wanted(const tool_grammar_params *p, const json_t *name)
{
    return !p->only || !strcmp(json_string_value(name), p->only);
}

rad_status tool_grammar_write(const tool_grammar_params *p, text_buf *out, rad_error *err)
{
    tool_writer w = {.p = p, .out = out};
    const tool_family *f = p->calls ? tool_family_of(p) : NULL;
    char name_of[80];
    uint32_t count = 0;
    if (!f)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "calls as this model writes them (%s) cannot be constrained; "
                        "--tool-call-parser names another way",
                        tool_format_name(p->calls, name_of, sizeof name_of));
    write_root(&w);
    if (json_array_size(p->tools)) write_calls(&w, f);
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *function = function_of(json_array_get(p->tools, i));
        const json_t *name = json_object_get(function, "name");
        if (!json_is_string(name) || !json_string_length(name))
            return rad_fail(err, RAD_E_INVAL, "tool %zu has no name", i);
        if (!is_name(json_string_value(name), json_string_length(name)))
            return rad_fail(err, RAD_E_INVAL,
                            "'%.80s' is no name for a function that is to be called: it has at "
                            "most %d letters, digits and _-.:/$@",
                            json_string_value(name), TOOL_CALL_MOST_NAME - 1);
        if (is_wanted(p, name)) tool_say(&w, "%s call-%zu", count++ ? " |" : "", i);
    }
    if (json_array_size(p->tools) && !count)
        return rad_fail(err, RAD_E_INVAL, "there is no function '%.80s'", p->only);
    for (size_t i = 0; i < json_array_size(p->tools); i++) {
        const json_t *function = function_of(json_array_get(p->tools, i));
        const json_t *name = json_object_get(function, "name");
        if (!is_wanted(p, name)) continue;
        tool_say(&w, "\ncall-%zu ::=", i);
        f->call(&w, function, name);
        if (w.unkept)
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "calls as this model writes them (%s) cannot be kept to '%.80s' of all "
                            "parameters of '%.80s'",
                            tool_format_name(p->calls, name_of, sizeof name_of), w.unkept,
                            json_string_value(name));
        if (w.unsaid)
            return rad_fail(
                err, RAD_E_UNSUPPORTED,
                "calls as this model writes them (%s) cannot have the parameter '%.80s' "
                "of '%.80s': %s",
                tool_format_name(p->calls, name_of, sizeof name_of), w.unsaid,
                json_string_value(name),
                "its name has what ends it, or its $ref leads to other than $defs");
    }
    tool_put(&w, "\n");
    if (w.too_long)
        return rad_fail(err, RAD_E_LIMIT, "the tools' calls as a grammar are longer than %d bytes",
                        MOST_TEXT);
    return w.failed ? rad_fail(err, RAD_E_NOMEM, "no memory for a grammar") : RAD_OK;
}
