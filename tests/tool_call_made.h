/* tool_call_made.h - for test_tool_call: answers made from known calls, in every format.
 *
 * A made answer has reasoning, content and calls with arguments of all kinds, written as its
 * format's models do, with the spaces and newlines that they vary. What is to be heard of it is
 * made beside it; the arguments of its calls are compared as values. */
#ifndef TESTS_TOOL_CALL_MADE_H
#define TESTS_TOOL_CALL_MADE_H

#include "tool_call_heard.h"

#include "text/json_scan.h"

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

static void make_seed(maker *m, const call_made *c)
{
    const char *key;
    json_t *value;
    say(m, "<seed:tool_call>\n<function=");
    say(m, c->name);
    say(m, ">\n");
    json_object_foreach(c->args, key, value)
    {
        say(m, "<parameter=");
        say(m, key);
        say(m, ">");
        say_value(m, value);
        say(m, "</parameter>\n");
    }
    say(m, c->last ? "</function>\n</seed:tool_call>" : "</function>\n</seed:tool_call>\n");
}

/* A call between the wrappers of all: its tags, with what is around the names. */
typedef struct invoke_tags {
    const char *open, *close, *invoke, *invoked, *param, *end;
} invoke_tags;

static void make_invoke(maker *m, const call_made *c, const invoke_tags *t, bool typed)
{
    const char *key, *gap = below(m, 2) ? "\n" : "";
    json_t *value;
    if (c->first) say(m, t->open), say(m, gap);
    say(m, t->invoke), say(m, c->name), say(m, "\">"), say(m, gap);
    json_object_foreach(c->args, key, value)
    {
        say(m, t->param), say(m, key), say(m, "\"");
        if (typed) say(m, json_is_string(value) ? " string=\"true\"" : " string=\"false\"");
        say(m, ">");
        say_value(m, value);
        say(m, t->end), say(m, gap);
    }
    say(m, t->invoked), say(m, gap);
    if (c->last) say(m, t->close);
}

#define DSML "\uff5cDSML\uff5c"

static void make_dsml(maker *m, const call_made *c)
{
    static const invoke_tags v32 = {"<" DSML "function_calls>",   "</" DSML "function_calls>",
                                    "<" DSML "invoke name=\"",    "</" DSML "invoke>",
                                    "<" DSML "parameter name=\"", "</" DSML "parameter>"};
    make_invoke(m, c, &v32, true);
}

static void make_dsml_v4(maker *m, const call_made *c)
{
    static const invoke_tags v4 = {"<" DSML "tool_calls>",       "</" DSML "tool_calls>",
                                   "<" DSML "invoke name=\"",    "</" DSML "invoke>",
                                   "<" DSML "parameter name=\"", "</" DSML "parameter>"};
    make_invoke(m, c, &v4, true);
}

static void make_minimax(maker *m, const call_made *c)
{
    static const invoke_tags tags = {"<minimax:tool_call>", "</minimax:tool_call>",
                                     "<invoke name=\"",     "</invoke>",
                                     "<parameter name=\"",  "</parameter>"};
    make_invoke(m, c, &tags, false);
}

static void say_tag(maker *m, const char *tag, const char *suffix)
{
    say(m, tag), say(m, suffix), say(m, ">");
}

static void say_hunyuan(maker *m, const call_made *c, const char *suffix)
{
    const char *key, *gap = below(m, 2) ? "\n" : "";
    json_t *value;
    if (c->first) say_tag(m, "<tool_calls", suffix), say(m, gap);
    say_tag(m, "<tool_call", suffix), say(m, c->name);
    if (below(m, 4)) say_tag(m, "<tool_sep", suffix);
    say(m, gap);
    json_object_foreach(c->args, key, value)
    {
        say_tag(m, "<arg_key", suffix), say(m, key), say_tag(m, "</arg_key", suffix);
        say(m, gap);
        say_tag(m, "<arg_value", suffix), say_value(m, value), say_tag(m, "</arg_value", suffix);
        say(m, gap);
    }
    say_tag(m, "</tool_call", suffix), say(m, gap);
    if (c->last) say_tag(m, "</tool_calls", suffix);
}

static void make_hunyuan(maker *m, const call_made *c)
{
    say_hunyuan(m, c, "");
}

static void make_hy3(maker *m, const call_made *c)
{
    say_hunyuan(m, c, ":opensource");
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

static void make_hunyuan_json(maker *m, const call_made *c)
{
    if (c->first) say(m, "<tool_calls>");
    make_list(m, c);
    if (c->last) say(m, "</tool_calls>");
}

static void make_nemotron(maker *m, const call_made *c)
{
    if (c->first) say(m, "<TOOLCALL>");
    make_list(m, c);
    if (c->last) say(m, "</TOOLCALL>");
}

/* {"tool_call_id": "0", "tool_name": "f", "parameters": {...}}, the id in newer ones. */
static void say_cohere(maker *m, const call_made *c, bool id)
{
    say(m, c->first ? "[\n    {" : ",\n    {");
    if (id) say(m, c->first ? "\"tool_call_id\": \"0\", " : "\"tool_call_id\": \"1\", ");
    say(m, "\"tool_name\": \""), say(m, c->name), say(m, "\", \"parameters\": ");
    say_json(m, c->args);
    say(m, c->last ? "}\n]" : "}");
}

static void make_cohere(maker *m, const call_made *c)
{
    if (c->first) say(m, "<|START_ACTION|>");
    say_cohere(m, c, true);
    if (c->last) say(m, "<|END_ACTION|>");
}

static void make_command_r(maker *m, const call_made *c)
{
    if (c->first) say(m, below(m, 2) ? "Action: ```json\n" : "Action:\n```json\n");
    say_cohere(m, c, false);
    if (c->last) say(m, "\n```");
}

static void make_apertus(maker *m, const call_made *c)
{
    say(m, c->first ? "<|tools_prefix|>[{\"" : ", {\"");
    say(m, c->name), say(m, "\": ");
    say_json(m, c->args);
    say(m, c->last ? "}]<|tools_suffix|>" : "}");
}

static void make_gigachat(maker *m, const call_made *c)
{
    say(m, "<|function_call|>");
    say_object(m, c, "arguments");
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
    {"deepseekv32", make_dsml, {"<think>", "</think>"}, .reasoning = "deepseek-v3"},
    {"deepseekv4", make_dsml_v4, {"<think>", "</think>"}, .reasoning = "deepseek-v4"},
    {"minimax-m2", make_minimax, {"<think>\n", "\n</think>\n\n"}, .reasoning = "minimax"},
    {"hunyuan", make_hunyuan, {"<think>", "</think>"}, .reasoning = "hunyuan"},
    {"hunyuan", make_hy3, {"<think:opensource>", "</think:opensource>"}, .reasoning = "hy3"},
    {"hunyuan", make_hunyuan_json},
    {"cohere_command4",
     make_cohere,
     {"<|START_THINKING|>", "<|END_THINKING|>"},
     .reasoning = "cohere_command4"},
    {"command_r", make_command_r},
    {"apertus2509",
     make_apertus,
     {"<|inner_prefix|>", "<|inner_suffix|>"},
     .reasoning = "apertus2509"},
    {"nemotron_v2", make_nemotron},
    {"gigachat3", make_gigachat},
    {"seed_oss",
     make_seed,
     {"<seed:think>", "</seed:think>"},
     .reasoning = "seed_oss",
     .text_values = true},
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

#endif
