/* test_tool_call.c - answers made from known calls, in every format, cut at every byte.
 *
 * A made answer has reasoning, content and calls with arguments of all kinds; what the parser says
 * of it must be them, whatever pieces it comes in. And one by one what models do beside that. */
#include "test.h"

#include "base/base.h"
#include "text/json_scan.h"
#include "text/literal.h"
#include "text/tool_call.h"

#include <jansson.h>

/* ---- what was said, as one text: "r:so|c:Hi|f{"x": 1}|" ---- */

typedef struct heard {
    text_buf text;
    int kind;
    bool failed;
    long left; /* calls of `say` until it fails; -1: never */
} heard;

static void put(text_buf *b, const char *text, size_t len)
{
    CHECK_OK(text_buf_append(b, text, len));
}

static bool hear(void *user, const said *what)
{
    heard *h = user;
    if (h->left == 0) return false;
    if (h->left > 0) h->left--;
    if (what->kind == SAID_CALL_END) {
        put(&h->text, what->broken ? "!|" : "|", what->broken ? 2 : 1);
        h->kind = -1;
        return true;
    }
    CHECK(what->len > 0);
    if ((int)what->kind != h->kind && what->kind != SAID_ARGUMENTS) {
        if (h->kind == SAID_CONTENT || h->kind == SAID_REASONING) put(&h->text, "|", 1);
        if (what->kind == SAID_CONTENT) put(&h->text, "c:", 2);
        if (what->kind == SAID_REASONING) put(&h->text, "r:", 2);
    }
    put(&h->text, what->text, what->len);
    if (what->kind == SAID_CALL && what->id_len) {
        put(&h->text, "#", 1);
        put(&h->text, what->id, what->id_len);
    }
    h->kind = (int)what->kind;
    return true;
}

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},\"x\":{\"type\":\"number\"},"
    "\"b\":{\"type\":\"boolean\"},\"l\":{\"type\":\"array\"},\"o\":{\"type\":\"object\"},"
    "\"z\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_x\",\"parameters\":{\"properties\":{"
    "\"s\":{\"enum\":[\"a\"]},\"n\":{\"type\":\"integer\"}}}}}]";

static tool_types *types(void)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    tool_types *t = NULL;
    CHECK(tools != NULL);
    CHECK_OK(tool_types_create(tools, &t));
    json_decref(tools);
    return t;
}

/* Pieces of `piece` bytes, or random ones (0). The caller frees. */
static char *parse(const tool_parser_params *params, const char *tail, const char *text, size_t len,
                   size_t piece, uint64_t *rng)
{
    heard h = {.kind = -1, .left = -1};
    tool_parser *p;
    CHECK_OK(tool_parser_create(params, &p));
    if (tail) tool_parser_begin(p, tail, strlen(tail));
    for (size_t at = 0, n; at < len; at += n) {
        n = piece ? piece : 1 + test_random(rng) % 12;
        n = RAD_MIN(n, len - at);
        char *guarded = malloc(n); /* so that a byte too many is seen */
        memcpy(guarded, text + at, n);
        CHECK_OK(tool_parser_feed(p, guarded, n, hear, &h));
        free(guarded);
        CHECK(tool_parser_bytes(p) < 400000 + 4 * len);
    }
    CHECK_OK(tool_parser_finish(p, hear, &h));
    tool_parser_destroy(p);
    put(&h.text, "", 1);
    return h.text.data;
}

/* One text with a format, streamed and whole: the same in each. */
static void expect(const char *calls, const char *reasoning, const char *tail, const char *text,
                   const char *streamed, const char *whole)
{
    tool_types *t = types();
    tool_parser_params params = {.calls = calls ? tool_format_find(calls) : NULL,
                                 .reasoning = reasoning ? reasoning_format_find(reasoning) : NULL,
                                 .types = t};
    CHECK(!calls || params.calls);
    CHECK(!reasoning || params.reasoning);
    for (int mode = 0; mode < 2; mode++) {
        params.whole_calls = mode;
        const char *want = mode && whole ? whole : streamed;
        for (size_t piece = 1; piece < strlen(text) + 2; piece++) {
            char *got = parse(&params, tail, text, strlen(text), piece, NULL);
            CHECKF(strcmp(got, want) == 0, "%s %s in %zus: '%s'\n gave '%s'\n want '%s'\n",
                   calls ? calls : "-", mode ? "whole" : "streamed", piece, text, got, want);
            free(got);
        }
    }
    tool_types_destroy(t);
}

/* ---- made answers ---- */

typedef struct maker {
    uint64_t rng;
    text_buf text; /* what the model writes, */
    text_buf want; /* and what is to be heard of it, but for arguments */
    json_t *args[4];
    uint32_t num_args;
} maker;

static uint64_t below(maker *m, uint64_t n)
{
    return test_random(&m->rng) % n;
}

static void say(maker *m, const char *text)
{
    put(&m->text, text, strlen(text));
}

static json_t *some_string(maker *m)
{
    static const char *const words[] = {
        "a",   " ",    "\n", "\\",     "\"",        "'",       "\xc3\xa9", "\xf0\x9f\x98\x80",
        "<",   "</",   "<|", "{}",     "[1]",       ",",       ":",        "=",
        "(b)", "null", "42", "<tool_", "tool_call", "\t\r",    ";",        ">",
        "#",   "True", "]",  "<|\"|",  "[TOOL_",    "</param", "|>",       "\x01"};
    char text[200] = "";
    for (uint64_t i = below(m, 8); i > 0; i--)
        strcat(text, words[below(m, RAD_COUNT(words))]);
    /* Gemma's quote in a string is one that it cannot say. */
    return json_string(strstr(text, "<|\"|>") ? "x" : text);
}

static json_t *some_value(maker *m, int depth)
{
    json_t *v;
    switch (below(m, depth ? 7 : 5)) {
    case 0: return json_integer((json_int_t)below(m, 2000) - 1000);
    case 1: return json_real((double)below(m, 1000) / 8 + 0.125);
    case 2: return json_boolean(below(m, 2));
    case 3: return json_null();
    case 4: return some_string(m);
    case 5:
        v = json_array();
        for (uint64_t i = below(m, 4); i > 0; i--)
            json_array_append_new(v, some_value(m, depth - 1));
        return v;
    default:
        v = json_object();
        for (uint64_t i = below(m, 4); i > 0; i--)
            json_object_set_new(v, (const char *[]){"a", "key_2", "x"}[i - 1],
                                some_value(m, depth - 1));
        return v;
    }
}

static json_t *some_args(maker *m)
{
    json_t *args = json_object();
    if (below(m, 2)) json_object_set_new(args, "s", some_string(m));
    if (below(m, 2)) json_object_set_new(args, "n", json_integer((json_int_t)below(m, 1000)));
    if (below(m, 3) == 0) json_object_set_new(args, "x", json_real(0.5 + (double)below(m, 9)));
    if (below(m, 3) == 0) json_object_set_new(args, "b", json_boolean(below(m, 2)));
    json_t *list = json_array(), *object = json_object();
    for (uint64_t i = below(m, 3); i > 0; i--)
        json_array_append_new(list, some_value(m, 2));
    for (uint64_t i = below(m, 3); i > 0; i--)
        json_object_set_new(object, i == 1 ? "p" : "q", some_value(m, 2));
    if (below(m, 2)) json_object_set(args, "l", list);
    if (below(m, 2)) json_object_set(args, "o", object);
    json_decref(list);
    json_decref(object);
    return args;
}

static void say_json(maker *m, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | (below(m, 2) ? JSON_COMPACT : 0) |
                                       (below(m, 4) ? 0 : JSON_INDENT(2)));
    say(m, text);
    free(text);
}

static void say_python(maker *m, const json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(v)) {
        char quote = below(m, 2) ? '"' : '\'', one[2] = {quote};
        say(m, one);
        for (const char *at = json_string_value(v); *at; at++) {
            if (*at == quote || *at == '\\') say(m, "\\");
            const char text[2] = {*at};
            if (*at == '\n' && below(m, 2))
                say(m, "\\n"); /* else as it is */
            else
                say(m, text);
        }
        say(m, one);
    } else if (json_is_array(v)) {
        say(m, "[");
        json_array_foreach(v, i, item)
        {
            if (i) say(m, below(m, 2) ? ", " : ",");
            say_python(m, item);
        }
        say(m, json_array_size(v) && below(m, 3) == 0 ? ",]" : "]");
    } else if (json_is_object(v)) {
        bool first = true;
        say(m, "{");
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            json_t *name = json_string(key);
            if (!first) say(m, ", ");
            say_python(m, name);
            say(m, below(m, 2) ? ": " : ":");
            say_python(m, item);
            json_decref(name);
            first = false;
        }
        say(m, "}");
    } else if (json_is_null(v) || json_is_boolean(v)) {
        say(m, json_is_null(v) ? "None" : json_is_true(v) ? "True" : "False");
    } else {
        say_json(m, v);
    }
}

static void say_gemma(maker *m, const json_t *v, const char *quote)
{
    const char *key;
    json_t *item;
    size_t i;
    bool first = true;
    if (json_is_string(v)) {
        say(m, quote);
        say(m, json_string_value(v));
        say(m, quote);
    } else if (json_is_array(v)) {
        say(m, "[");
        json_array_foreach(v, i, item)
        {
            if (i) say(m, ",");
            say_gemma(m, item, quote);
        }
        say(m, "]");
    } else if (json_is_object(v)) {
        say(m, "{");
        json_object_foreach((json_t *)(uintptr_t)v, key, item)
        {
            if (!first) say(m, ",");
            say(m, key);
            say(m, ":");
            say_gemma(m, item, quote);
            first = false;
        }
        say(m, "}");
    } else {
        say_json(m, v);
    }
}

#define DS(x) "<\uff5ctool\u2581" x "\uff5c>"

typedef struct call_made {
    const char *name;
    json_t *args;
    bool first, last;
} call_made;

static void say_object(maker *m, const call_made *c, const char *args)
{
    if (below(m, 4) == 0) { /* the other way round */
        say(m, "{\"");
        say(m, args);
        say(m, "\": ");
        say_json(m, c->args);
        say(m, ", \"name\": \"");
        say(m, c->name);
        say(m, "\"}");
        return;
    }
    say(m, below(m, 2) ? "{\"name\": \"" : "{ \"name\":\"");
    say(m, c->name);
    say(m, below(m, 2) ? "\", \"" : "\",\n \"");
    say(m, args);
    say(m, "\": ");
    say_json(m, c->args);
    say(m, below(m, 2) ? "}" : "\n}");
}

static void make_hermes(maker *m, const call_made *c)
{
    say(m, below(m, 2) ? "<tool_call>\n" : "<tool_call>");
    say_object(m, c, "arguments");
    say(m, below(m, 2) ? "\n</tool_call>" : "</tool_call>");
    if (!c->last && below(m, 2)) say(m, "\n");
}

static void say_value(maker *m, const json_t *v)
{
    if (json_is_string(v))
        say(m, json_string_value(v));
    else
        say_json(m, v);
}

static void make_xml(maker *m, const call_made *c)
{
    const char *key;
    json_t *value;
    bool wrapped = below(m, 4) > 0;
    if (wrapped) say(m, "<tool_call>\n");
    say(m, "<function=");
    say(m, c->name);
    say(m, ">\n");
    json_object_foreach(c->args, key, value)
    {
        say(m, "<parameter=");
        say(m, key);
        say(m, ">\n");
        say_value(m, value);
        say(m, "\n</parameter>\n");
    }
    say(m, wrapped ? "</function>\n</tool_call>" : "</function>");
    if (!c->last) say(m, "\n");
}

static void make_glm(maker *m, const call_made *c)
{
    const char *key;
    json_t *value;
    const char *gap = below(m, 2) ? "\n" : "";
    say(m, "<tool_call>");
    say(m, c->name);
    say(m, gap);
    json_object_foreach(c->args, key, value)
    {
        say(m, "<arg_key>");
        say(m, key);
        say(m, "</arg_key>");
        say(m, gap);
        say(m, "<arg_value>");
        say_value(m, value);
        say(m, "</arg_value>");
        say(m, gap);
    }
    say(m, "</tool_call>");
}

static void make_llama3(maker *m, const call_made *c)
{
    if (!c->first) say(m, below(m, 2) ? "; " : ";");
    say_object(m, c, "parameters");
}

static void make_llama3_tag(maker *m, const call_made *c)
{
    if (c->first) say(m, "<|python_tag|>");
    make_llama3(m, c);
}

static void make_python(maker *m, const call_made *c)
{
    const char *key;
    json_t *value;
    bool first = true;
    say(m, c->first ? "[" : ", ");
    say(m, c->name);
    say(m, "(");
    json_object_foreach(c->args, key, value)
    {
        if (!first) say(m, ", ");
        say(m, key);
        say(m, below(m, 3) ? "=" : " = ");
        say_python(m, value);
        first = false;
    }
    say(m, c->last ? ")]" : ")");
}

static void make_lfm2(maker *m, const call_made *c)
{
    if (c->first) say(m, "<|tool_call_start|>");
    make_python(m, c);
    if (c->last) say(m, "<|tool_call_end|>");
}

static void make_list(maker *m, const call_made *c)
{
    say(m, c->first ? "[" : ", ");
    say_object(m, c, "arguments");
    if (c->last) say(m, "]");
}

static void make_lfm2_json(maker *m, const call_made *c)
{
    if (c->first) say(m, "<|tool_call_start|>");
    make_list(m, c);
    if (c->last) say(m, "<|tool_call_end|>");
}

static void make_mistral_old(maker *m, const call_made *c)
{
    if (c->first) say(m, below(m, 2) ? "[TOOL_CALLS] " : "[TOOL_CALLS]");
    make_list(m, c);
}

static void make_mistral(maker *m, const call_made *c)
{
    say(m, "[TOOL_CALLS]");
    say(m, c->name);
    say(m, "[ARGS]");
    say_json(m, c->args);
}

static void make_granite(maker *m, const call_made *c)
{
    if (c->first) say(m, "<|tool_call|>");
    make_list(m, c);
}

static void make_deepseek_v3(maker *m, const call_made *c)
{
    if (c->first) say(m, DS("calls\u2581begin"));
    say(m, DS("call\u2581begin") "function" DS("sep"));
    say(m, c->name);
    say(m, "\n```json\n");
    say_json(m, c->args);
    say(m, "\n```" DS("call\u2581end"));
    say(m, c->last ? DS("calls\u2581end") : "\n");
}

static void make_deepseek_v31(maker *m, const call_made *c)
{
    if (c->first) say(m, DS("calls\u2581begin"));
    say(m, DS("call\u2581begin"));
    say(m, c->name);
    say(m, DS("sep"));
    say_json(m, c->args);
    say(m, DS("call\u2581end"));
    if (c->last) say(m, DS("calls\u2581end"));
}

static void make_functionary(maker *m, const call_made *c)
{
    say(m, "<function=");
    say(m, c->name);
    say(m, ">");
    say_json(m, c->args);
    say(m, "</function>");
}

static void make_gemma(maker *m, const call_made *c)
{
    say(m, "<|tool_call>call:");
    say(m, c->name);
    say_gemma(m, c->args, "<|\"|>");
    say(m, "<tool_call|>");
}

static void make_functiongemma(maker *m, const call_made *c)
{
    say(m, "<start_function_call>call:");
    say(m, c->name);
    say_gemma(m, c->args, "<escape>");
    say(m, "<end_function_call>");
}

static void make_harmony(maker *m, const call_made *c)
{
    say(m, below(m, 2) ? "<|start|>assistant<|channel|>commentary to=functions."
                       : "<|start|>assistant<|channel|>analysis to=functions.");
    say(m, c->name);
    say(m, below(m, 2) ? " <|constrain|>json<|message|>" : " json<|message|>");
    say_json(m, c->args);
    say(m, c->last ? "<|call|>" : "<|end|>");
}

typedef struct made_format {
    const char *name;
    void (*make)(maker *m, const call_made *c);
    const char *think[2];   /* around reasoning */
    const char *content[2]; /* around content, where it has marks */
    const char *reasoning;
    bool alone; /* a call is the whole answer */
    bool text_values;
} made_format;

static const made_format made_formats[] = {
    {"qwen", make_hermes, {"<think>\n", "\n</think>\n\n"}, .reasoning = "qwen3"},
    {"qwen3_coder",
     make_xml,
     {"<think>\n", "\n</think>\n\n"},
     .reasoning = "qwen3",
     .text_values = true},
    {"glm45", make_glm, {"<think>", "</think>\n"}, .reasoning = "glm45", .text_values = true},
    {"llama3", make_llama3, .alone = true},
    {"llama3", make_llama3_tag},
    {"pythonic", make_python, .alone = true},
    {"lfm2", make_lfm2},
    {"lfm2", make_lfm2_json},
    {"mistral", make_mistral_old},
    {"mistral", make_mistral, {"[THINK]", "[/THINK]"}, .reasoning = "mistral"},
    {"granite", make_granite},
    {"deepseekv3", make_deepseek_v3, {"<think>", "</think>"}, .reasoning = "deepseek-r1"},
    {"deepseekv31", make_deepseek_v31, {"<think>", "</think>"}, .reasoning = "deepseek-v3"},
    {"functionary", make_functionary},
    {"gemma4", make_gemma, {"<|channel>thought\n", "<channel|>"}, .reasoning = "gemma4"},
    {"functiongemma", make_functiongemma},
    {"gpt-oss",
     make_harmony,
     {"<|channel|>analysis<|message|>", "<|end|>"},
     {"<|start|>assistant<|channel|>commentary<|message|>", "<|end|>"},
     "gpt-oss"},
};

/* Strings that stand bare between tags cannot end with what ends them, nor begin with their
 * newline; the makers of such formats leave the cases out that no model can say. */
static void keep_sayable(const made_format *f, json_t *args)
{
    const char *text = json_string_value(json_object_get(args, "s"));
    if (text && f->text_values && (*text == '\n' || (*text && text[strlen(text) - 1] == '\n')))
        json_object_set_new(args, "s", json_string("x"));
}

static void make_answer(maker *m, const made_format *f)
{
    static const char *const contents[] = {"Let me look.", "a < b, {x} [y] and <tool", "\xc3\xa9;",
                                           "1. <|x|>\n\n2. \xe2\x97\x81 `[1]`"};
    static const char *const thoughts[] = {"so", "a\n\nb <think", "</th",
                                           "{\"name\": <tool_call> no"};
    m->text.len = m->want.len = m->num_args = 0;
    if (f->reasoning && (below(m, 2) || !strcmp(f->reasoning, "deepseek-r1"))) {
        const char *thought = thoughts[below(m, RAD_COUNT(thoughts))];
        if (strcmp(f->reasoning, "deepseek-r1") != 0 || below(m, 2)) say(m, f->think[0]);
        say(m, thought);
        say(m, f->think[1]);
        put(&m->want, "r:", 2);
        put(&m->want, thought, strlen(thought));
        put(&m->want, "|", 1);
    }
    uint32_t calls = (uint32_t)below(m, 4);
    if (!calls || (!f->alone && below(m, 2))) {
        const char *content = contents[below(m, RAD_COUNT(contents))];
        if (f->content[0]) say(m, f->content[0]);
        say(m, content);
        if (f->content[0]) say(m, f->content[1]);
        if (calls && !f->content[0] && below(m, 2)) say(m, "\n\n");
        put(&m->want, "c:", 2);
        put(&m->want, content, strlen(content));
        if (calls) put(&m->want, "|", 1);
    }
    for (uint32_t i = 0; i < calls; i++) {
        call_made c = {below(m, 2) ? "f" : "get_x", NULL, i == 0, i + 1 == calls};
        c.args = strcmp(c.name, "f") == 0 ? some_args(m) : json_object();
        if (c.args && !strcmp(c.name, "get_x") && below(m, 2))
            json_object_set_new(c.args, "n", json_integer(7));
        keep_sayable(f, c.args);
        f->make(m, &c);
        put(&m->want, c.name, strlen(c.name));
        put(&m->want, "\x02|", 2); /* its arguments are compared as values */
        m->args[m->num_args++] = c.args;
    }
}

/* `got` with the arguments of its calls taken out and compared. */
static bool is_wanted(maker *m, char *got)
{
    size_t at = 0, n = 0;
    const char *want = m->want.data;
    for (uint32_t call = 0; want[at]; at++) {
        if (want[at] != 2) {
            if (got[n++] != want[at]) return false;
            continue;
        }
        ptrdiff_t len = json_scan_value(got + n, strlen(got + n));
        if (len <= 0) return false;
        json_t *args = json_loadb(got + n, (size_t)len, 0, NULL);
        bool same = args && json_equal(args, m->args[call++]);
        json_decref(args);
        if (!same) return false;
        n += (size_t)len;
    }
    return !got[n];
}

TEST(made_answers_are_told_apart_however_they_are_cut)
{
    bool all = getenv("RADISH_TEST_LONG") != NULL;
    uint64_t seed = test_seed();
    tool_types *t = types();
    for (size_t k = 0; k < RAD_COUNT(made_formats); k++) {
        const made_format *f = &made_formats[k];
        maker m = {.rng = seed + k};
        tool_parser_params params = {.calls = tool_format_find(f->name), .types = t};
        if (f->reasoning) params.reasoning = reasoning_format_find(f->reasoning);
        CHECK(params.calls && (!f->reasoning || params.reasoning));
        for (int i = 0; i < 200; i++) {
            make_answer(&m, f);
            size_t len = m.text.len, most = all ? len : i % 20 ? 4 : 12;
            put(&m.text, "", 1);
            put(&m.want, "", 1);
            params.whole_calls = i % 2;
            for (size_t piece = 0; piece <= most; piece++) {
                size_t bytes = piece == most ? len + 1 : piece; /* and in one go */
                char *got = parse(&params, NULL, m.text.data, len, bytes, &m.rng);
                CHECKF(is_wanted(&m, got),
                       "%s, seed %llu, in %zus:\n'%s'\n gave '%s'\n want '%s'\n", f->name,
                       (unsigned long long)seed, piece, m.text.data, got, m.want.data);
                free(got);
            }
            while (m.num_args)
                json_decref(m.args[--m.num_args]);
        }
        text_buf_fini(&m.text);
        text_buf_fini(&m.want);
    }
    tool_types_destroy(t);
}

/* ---- one by one ---- */

TEST(what_only_looks_like_a_call_comes_back_byte_for_byte)
{
    static const char *const looks[][2] = {
        {"qwen", "say <tool_call> and </tool_call> \n <tool_call>{ \"x\": 1} <tool_call"},
        {"qwen", "a\n\n<tool_call>\n{\"name\": 3}"},
        {"qwen", "<tool_call>[{\"name\": \"f\"}] \n"},
        {"qwen3_coder", "the tag <tool_call> then <function=f> text <function="},
        {"qwen3_coder", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>"},
        {"glm45", "<tool_call>no name at all</tool_call>"},
        {"llama3", "{\"answer\": 42}"},
        {"llama3", "{\"name\": \"Bob\", \"parameters\": {}}"}, /* no tool of that name */
        {"llama3", "{\"name\": \"f\"}"},
        {"llama3", "Use {\"name\": \"f\", \"parameters\": {}}"},
        {"llama3", "{ \"name\": \"f\", \"parameters\": 3}"},
        {"llama3", " {"},
        {"pythonic", "[f](http://x) is a link"},
        {"pythonic", "[1, 2, 3]"},
        {"pythonic", "[f(x)]"},
        {"pythonic", "[other(a=1)]"},
        {"pythonic", "As [f(s=\"x\")] shows"},
        {"lfm2", "<|tool_call_start|>nothing<|tool_call_end|>"},
        {"mistral", "[TOOL_CALLS]two words[ARGS]{}"},
        {"mistral", "[TOOL_CALLS][1]"},
        {"deepseekv3", DS("calls\u2581begin") "x" DS("sep") "{}"},
        {"functionary", "<function=f>text</function>"},
        {"gemma4", "<|tool_call>f{x:1}<tool_call|>"},
        {"kimi_k2", "<|tool_call_begin|>f{}"},
        {"granite", "<|tool_call|>[1]"},
    };
    for (size_t i = 0; i < RAD_COUNT(looks); i++) {
        char want[200];
        snprintf(want, sizeof want, "c:%s", looks[i][1]);
        expect(looks[i][0], NULL, NULL, looks[i][1], want, NULL);
    }
}

TEST(json_calls_as_models_write_them)
{
    /* both orders, other members, no arguments, null, a string, raw newlines, several in a tag */
    expect("qwen", NULL, NULL, "<tool_call>{\"arguments\": {\"n\":1}, \"name\": \"f\"}</tool_call>",
           "f{\"n\":1}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{},\"type\":\"function\"}</tool_call>", "f{}|",
           NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\": \"f\"}</tool_call>", "f{}|", NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>",
           "f{}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"n\\\": 1}\"}</tool_call>",
           "f{\"n\": 1}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"a\nb\t\"}}</tool_call>",
           "f{\"s\":\"a\\nb\\t\"}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n{\"name\":\"g\",\"arguments\":{}}</"
           "tool_call>",
           "f{}|g{}|", NULL);
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n{\"name\":1}",
           "f{}|c:{\"name\":1}", NULL);
    /* without its end; text in front and behind */
    expect("qwen", NULL, NULL, "Hi \n<tool_call>{\"name\":\"f\",\"arguments\":{}}", "c:Hi|f{}|",
           NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n done ",
           "f{}|c:done ", NULL);
    expect("qwen", NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_ca", "f{}|",
           NULL);
    /* ids */
    expect("mistral", NULL, NULL, "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{\"n\": 1}",
           "f#abcDEF123{\"n\": 1}|", NULL);
    expect("mistral", NULL, NULL,
           "[TOOL_CALLS] [{\"id\": \"abcDEF123\", \"name\": \"f\", \"arguments\": {}}, "
           "{\"name\":\"g\",\"arguments\":{},\"id\":\"x\"}]",
           "f#abcDEF123{}|g{}|", NULL);
    expect(
        "kimi_k2", NULL, NULL,
        "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.get_2:0<|tool_call_argument_"
        "begin|>"
        "{\"a\":1}<|tool_call_end|><|tool_call_begin|>functions.f:1<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_calls_section_end|>",
        "c:Ok|get_2#functions.get_2:0{\"a\":1}|f#functions.f:1{}|", NULL);
}

TEST(what_breaks_off_ends_broken_in_a_stream_and_is_content_as_a_whole)
{
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": ", "f{\"n\": !|",
           "c:<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": ");
    expect("qwen", NULL, NULL, "<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":x}}</tool_call> y",
           "f{\"n\":!|c:x}}</tool_call> y",
           "c:<tool_call>{\"name\":\"f\",\"arguments\":{\"n\":x}}</tool_call> y");
    expect("pythonic", NULL, NULL, "[f(n=1, s=g(2))]", "f{\"n\": 1, \"s\": !|c:(2))]",
           "c:[f(n=1, s=g(2))]");
    expect("qwen3_coder", NULL, NULL, "<function=f>\n<parameter=s>\nabc", "f{\"s\": \"abc!|",
           "c:<function=f>\n<parameter=s>\nabc");
    expect("functionary", NULL, NULL, "<function=f>{\n\t<function=f>{}</function>", "f{\n\t!|f{}|",
           "c:<function=f>{|f{}|");
    expect("gpt-oss", "gpt-oss", NULL,
           "<|channel|>commentary to=functions.f<|message|>{\"n\" 1}<|call|>", "f{\"n\" !|c:1}",
           "c:{\"n\" 1}");
    expect("qwen", NULL, NULL,
           "<tool_call>{\"name\":\"f\",\"arguments\":{}}</"
           "tool_call><tool_call>{\"name\":\"g\",\"arguments\":{]",
           "f{}|g{!|c:]", "f{}|c:<tool_call>{\"name\":\"g\",\"arguments\":{]");
}

TEST(values_between_tags_are_what_the_schema_says)
{
    expect("qwen3_coder", NULL, NULL,
           "<tool_call>\n<function=f>\n<parameter=s>\n 42 "
           "</parameter>\n<parameter=n>\n42\n</parameter>\n"
           "<parameter=b>\nTrue\n</parameter><parameter=z>null</parameter><parameter=l>[1, "
           "'x']</parameter>"
           "<parameter=what>7</parameter></function></tool_call>",
           "f{\"s\": \" 42 \", \"n\": 42, \"b\": true, \"z\": null, \"l\": \"[1, 'x']\", \"what\": "
           "\"7\"}|",
           NULL);
    expect("qwen3_coder", NULL, NULL, "<function=f>\n</function>", "f{}|", NULL);
    expect(
        "qwen3_coder", NULL, NULL,
        "<function=get_x><parameter=s>a\n\n</parameter><parameter=z>\nnullx</parameter></function>",
        "get_x{\"s\": \"a\\n\", \"z\": \"nullx\"}|", NULL);
}

TEST(pythons_notation_becomes_json)
{
    expect("pythonic", NULL, NULL,
           "[f(s='it\\'s \\x41\\u00e9\\101\\d\\\n', n=-1_000, x=.5, y=5., e=1e5, t=(1, 'a'), "
           "d={'k': None, 2: True,}, "
           "l=[], s2=\"\"\"a\"b\n\"\"\", s3='', class=false)]",
           "f{\"s\": \"it's A\xc3\xa9"
           "A\\\\d\", \"n\": -1000, \"x\": 0.5, \"y\": 5.0, \"e\": 1e5, \"t\": [1, \"a\"], "
           "\"d\": {\"k\": null, \"2\": true}, \"l\": [], \"s2\": \"a\\\"b\\n\", \"s3\": \"\", "
           "\"class\": false}|",
           NULL);
    expect("pythonic", NULL, NULL, "<|python_start|>[any.name(), f()]<|python_end|> ok",
           "any.name{}|f{}|c:ok", NULL);
    static const char *const bad[] = {"x=01",      "x=f\"a\"", "x=a",       "x=1 2", "x=nan",
                                      "x='a' 'b'", "x={1}",    "x='\\xzz'", "x=[1}", "x=.",
                                      "x=+",       "x=--1",    "=1",        "x=1;"};
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        char text[64], *got;
        tool_parser_params params = {.calls = tool_format_find("lfm2"), .whole_calls = true};
        snprintf(text, sizeof text, "<|tool_call_start|>[f(%s)]", bad[i]);
        got = parse(&params, NULL, text, strlen(text), 3, NULL);
        CHECKF(strncmp(got, "c:<|tool_call_start|>[f(", 24) == 0, "%s gave %s\n", text, got);
        free(got);
    }
    expect("gemma4", NULL, NULL,
           "<|tool_call>call:f{s:<|\"|>a\"<|b<|\"|>,w:plain "
           "words,n:-1.5,b:true,l:[1,<|\"|><|\"|>],o:{k:null}}<tool_call|>",
           "f{\"s\": \"a\\\"<|b\", \"w\": \"plain words\", \"n\": -1.5, \"b\": true, \"l\": [1, "
           "\"\"], "
           "\"o\": {\"k\": null}}|",
           NULL);
}

TEST(reasoning_begins_and_ends_where_the_model_and_the_prompt_say)
{
    expect(NULL, "qwen3", NULL, "<think>\n so \n</think>\n\n yes \n", "r:so|c:yes \n", NULL);
    expect(NULL, "qwen3", NULL, " no <think> here </think>", "c: no <think> here </think>", NULL);
    expect(NULL, "qwen3", "assistant\n<think>\n", "so</think>yes", "r:so|c:yes", NULL);
    expect(NULL, "qwen3", "what is <think>?<|im_end|>\n", "so</think>", "c:so</think>", NULL);
    expect(NULL, "qwen3", "<think>\n\n</think>\n\n", "yes", "c:yes", NULL);
    expect(NULL, "deepseek-r1", NULL, "so</think>yes", "r:so|c:yes", NULL);
    expect(NULL, "deepseek-r1", NULL, "<think>so</think>yes", "r:so|c:yes", NULL);
    expect(NULL, "deepseek-r1", "<think></think>", "yes", "c:yes", NULL);
    expect(NULL, "qwen3", NULL, "<think>cut off </thi", "r:cut off </thi", NULL);
    expect(NULL, "kimi", NULL, "\u25c1think\u25b7so \u25c1\u25c1/think\u25b7yes \u25c1",
           "r:so \u25c1|c:yes \u25c1", NULL);
    /* a call ends it; the word alone does not */
    expect(
        "qwen", "qwen3", NULL,
        "<think>use <tool_call> now \n<tool_call>\n{\"name\":\"f\",\"arguments\":{}}</tool_call>",
        "r:use <tool_call> now|f{}|", NULL);
    expect("mistral", "mistral", NULL, "[THINK]so[TOOL_CALLS]f[ARGS]{}", "r:so|f{}|", NULL);
    expect("gpt-oss", "gpt-oss", NULL,
           "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>"
           "b<|end|>"
           "<|start|>assistant<|channel|>final<|message|>yes < no<|return|>",
           "r:a\n\nb|c:yes < no", NULL);
    expect(NULL, "gpt-oss", NULL,
           "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|mess", "r:a",
           NULL);
    expect("gpt-oss", "gpt-oss", "<|start|>assistant<|channel|>analysis<|message|>", "so<|end|>",
           "r:so", NULL);
    expect("gpt-oss", "gpt-oss", "<|start|>assistant", "plain", "c:plain", NULL);
    expect("gpt-oss", NULL, NULL, "<|channel|>analysis<|message|>a<|end|>", "c:a", NULL);
    expect("gpt-oss", "gpt-oss", NULL,
           "<|start|>assistant to=functions.f<|channel|>commentary json<|message|><|call|>", "f{}|",
           NULL);
}

/* ---- limits ---- */

TEST(what_is_held_has_a_limit)
{
    static const struct {
        const char *format, *begin, *more;
    } cases[] = {{"qwen", "<tool_call>{\"arguments\":{\"a\":\"", "xxxxxxxxxxxxxxxx"},
                 {"qwen", "<tool_call>", "                 "},
                 {"qwen", "a", "\n\n\n\n\n\n\n\n\n\n\n"},
                 {"qwen3_coder", "<function=f><parameter=l>", "[[[[[[[[[[[[[[[[[[["},
                 {"qwen3_coder", "<function=", "fffffffffffffff"},
                 {"gpt-oss", "<|channel|>", "abcdefghijklmn"},
                 {"gpt-oss", "<|channel|>a to=functions.f<|message|>", "               "},
                 {"llama3", "{\"name\":\"f\",\"x", "yyyyyyyyyyyyyyyyyyyyyy"},
                 {"pythonic", "[f(", "              "},
                 {"gemma4", "<|tool_call>call:f{k:", "wwwwwwwwwwwwwwwwww"},
                 {"deepseekv3", DS("call\u2581begin"), "nnnnnnnnnnnnnnnnn"}};
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        heard h = {.kind = -1, .left = -1};
        const tool_parser_params params = {.calls = tool_format_find(cases[i].format)};
        size_t most = 0, fed = 0;
        tool_parser *p;
        CHECK_OK(tool_parser_create(&params, &p));
        CHECK_OK(tool_parser_feed(p, cases[i].begin, strlen(cases[i].begin), hear, &h));
        for (; fed < 300000; fed += strlen(cases[i].more)) {
            CHECK_OK(tool_parser_feed(p, cases[i].more, strlen(cases[i].more), hear, &h));
            most = RAD_MAX(most, tool_parser_bytes(p));
        }
        CHECKF(most < 3 * TOOL_CALL_MOST_HELD, "%s holds %zu\n", cases[i].format, most);
        CHECK_OK(tool_parser_finish(p, hear, &h));
        tool_parser_destroy(p);
        text_buf_fini(&h.text);
    }
}

TEST(nesting_has_a_limit_and_one_call_may_be_all)
{
    char deep[400] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", *got;
    memset(deep + strlen(deep), '[', 100);
    tool_parser_params params = {.calls = tool_format_find("qwen"), .whole_calls = true};
    got = parse(&params, NULL, deep, strlen(deep), 1, NULL);
    CHECK(strncmp(got, "c:<tool_call>", 13) == 0);
    free(got);
    static const char two[] = "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"
                              "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call> text";
    params.one_call = true;
    for (size_t piece = 1; piece < sizeof two; piece++) {
        got = parse(&params, NULL, two, sizeof two - 1, piece, NULL);
        CHECKF(strcmp(got, "f{}|") == 0, "%s\n", got);
        free(got);
    }
}

TEST(who_listens_may_have_no_memory)
{
    static const char text[] =
        "<think>a</think>b<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>";
    const tool_parser_params params = {.calls = tool_format_find("qwen"),
                                       .reasoning = reasoning_format_find("qwen3")};
    for (long n = 0; n < 5; n++) {
        heard h = {.kind = -1, .left = n};
        tool_parser *p;
        CHECK_OK(tool_parser_create(&params, &p));
        CHECK(tool_parser_feed(p, text, sizeof text - 1, hear, &h) == RAD_E_NOMEM);
        CHECK(tool_parser_finish(p, hear, &h) == RAD_E_NOMEM);
        tool_parser_destroy(p);
        text_buf_fini(&h.text);
    }
}

/* ---- names and templates ---- */

static const char *detected(const char *text)
{
    static char name[64];
    return tool_format_name(tool_format_detect(text, strlen(text)), name, sizeof name);
}

TEST(a_template_says_what_the_format_is)
{
    static const char *const cases[][2] = {
        {"{{ '<tool_call>\\n{\"name\": ' }}", "qwen"},
        {"<tool_call>\n<function=example>\n<parameter=x>", "qwen3_coder"},
        {"<tool_call>{{ name }}\n<arg_key>", "glm45"},
        {"\"parameters\": dictionary of argument name and its value", "llama3"},
        {"[func_name1(params_name1=params_value1)]", "pythonic"},
        {"'[TOOL_CALLS]' and <|python", "mistral"},
        {"<\uff5ctool\u2581"
         "calls\u2581"
         "begin\uff5c>",
         "deepseekv3"},
        {"<|channel|>analysis<|message|>", "gpt-oss"},
        {"<|tool_call>call:", "gemma4"},
        {"<|tool_list_start|>", "lfm2"},
        {"<function={name}>", "functionary"},
        {"<|im_start|>", "none"},
        {"", "none"},
    };
    for (size_t i = 0; i < RAD_COUNT(cases); i++)
        CHECKF(strcmp(detected(cases[i][0]), cases[i][1]) == 0, "%s: %s\n", cases[i][0],
               detected(cases[i][0]));
    char name[64], names[600];
    CHECK(!strcmp(reasoning_format_name(reasoning_format_detect("a</think>", 9), name, sizeof name),
                  "qwen3"));
    CHECK(!reasoning_format_detect("<|im_start|>", 12));
    CHECK(tool_format_find("hermes") == tool_format_find("qwen25"));
    CHECK(!tool_format_find("herme") && !tool_format_find("") && !reasoning_format_find("x"));
    CHECK(
        strstr(tool_format_names(names, sizeof names), "deepseekv31, functionary, functiongemma"));
    CHECK(strlen(reasoning_format_names(names, sizeof names)) > 100);
}

TEST_MAIN()
