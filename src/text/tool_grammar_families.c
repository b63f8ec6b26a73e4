/* tool_grammar_families.c - writes EBNF for one call, as each family writes it.
 *
 * There are four kinds: arguments are a JSON object between words; or nearly one, with strings
 * between marks; or each stands between tags, strings as they are and all else as JSON; or they are
 * named arguments in Python. What the schema of a function says of all its parameters at once
 * (minProperties, anyOf) is kept to in the first two kinds; in the others it is refused. */
#include "text/tool_grammar_impl.h"

static void put_name(tool_writer *w, const json_t *name)
{
    tool_quoted(w, json_string_value(name), json_string_length(name));
}

/* ---- JSON ---- */

static void put_arguments(tool_writer *w, const json_t *function)
{
    const json_t *schema = json_object_get(function, "parameters");
    if (json_is_object(schema) && json_object_size(schema) && tool_is_strict(w, function))
        tool_json(w, schema);
    else
        tool_put(w, "{\"type\":\"object\"}");
    tool_put(w, " ");
}

typedef struct json_words {
    const char *head, *middle, *tail; /* of a call, around its name and its arguments */
    bool quoted;                      /* the name is JSON as well */
} json_words;

static void put_json_call(tool_writer *w, const json_words *j, const json_t *function,
                          const json_t *name)
{
    tool_words(w, j->head);
    char *text = j->quoted ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    if (j->quoted && !text) w->failed = true;
    if (text)
        tool_quoted(w, text, strlen(text));
    else
        put_name(w, name);
    free(text);
    tool_words(w, j->middle);
    tool_put(w, " %json ");
    put_arguments(w, function);
    tool_words(w, j->tail);
}

static void json_call(tool_writer *w, const json_t *function, const json_t *name)
{
    put_json_call(w, tool_family_of(w->p)->words, function, name);
}

#define DS(x) "<\uff5ctool\u2581" x "\uff5c>"

/* v3.1's form, or v3's. */
static void deepseek_call(tool_writer *w, const json_t *function, const json_t *name)
{
    static const json_words ways[] = {
        {DS("call\u2581begin"), DS("sep"), DS("call\u2581end"), false},
        {DS("call\u2581begin") "function" DS("sep"), "\n```json\n", "\n```" DS("call\u2581end"),
         false}};
    put_json_call(w, &ways[0], function, name);
    tool_put(w, " |");
    put_json_call(w, &ways[1], function, name);
}

static const json_words hermes = {
    "<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>", true};
static const json_words object = {"{\"name\": ", ", \"arguments\": ", "}", true};
static const json_words llama3 = {"{\"name\": ", ", \"parameters\": ", "}", true};
static const json_words mistral = {"[TOOL_CALLS]", "[ARGS]", "", false};
static const json_words harmony = {"<|channel|>commentary to=functions.",
                                   " <|constrain|>json<|message|>", "", false};
static const json_words functionary = {"<function=", ">", "</function>", false};
static const json_words kimi = {"<|tool_call_begin|>functions.",
                                ":" SOME_DIGITS "<|tool_call_argument_begin|>", "<|tool_call_end|>",
                                false};
static const json_words cohere = {"\n    {\"tool_call_id\": \"" SOME_DIGITS "\", \"tool_name\": ",
                                  ", \"parameters\": ", "}", true};
static const json_words command_r = {
    "\n    {\n        \"tool_name\": ", ",\n        \"parameters\": ", "\n    }", true};
static const json_words apertus = {"{", ": ", "}", true};

/* ---- between marks ---- */

typedef struct mark_words {
    const char *head, *mark, *tail; /* before the name, around a string, behind the arguments */
} mark_words;

static void marked_call(tool_writer *w, const json_t *function, const json_t *name)
{
    const mark_words *m = tool_family_of(w->p)->words;
    json_t *mark = json_string(m->mark);
    size_t taken;
    tool_words(w, m->head);
    put_name(w, name);
    tool_put(w, " %marked ");
    if (tokenizer_control_at(w->p->tok, m->mark, strlen(m->mark), &taken) >= 0)
        tool_words(w, m->mark);
    tool_json(w, mark);
    put_arguments(w, function);
    json_decref(mark);
    tool_words(w, m->tail);
}

static const mark_words gemma4 = {"<|tool_call>call:", "<|\"|>", "<tool_call|>"};
static const mark_words functiongemma = {"<start_function_call>call:", "<escape>",
                                         "<end_function_call>"};

/* ---- parameters one by one ---- */

static bool is_among(const json_t *names, const char *name)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *one = json_string_value(json_array_get(names, i));
        if (one && !strcmp(one, name)) return true;
    }
    return false;
}

static bool are_listed(const json_t *names, const json_t *properties)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *one = json_string_value(json_array_get(names, i));
        if (one && !json_object_get(properties, one)) return false;
    }
    return true;
}

/* Whether each branch says nothing but which parameters it takes. */
static bool is_ways(const json_t *branches, const json_t *properties)
{
    size_t i;
    json_t *branch;
    json_array_foreach((json_t *)branches, i, branch)
    {
        const json_t *names = json_object_get(branch, "required");
        if (json_object_size(branch) != 1 || !json_is_array(names) ||
            !are_listed(names, properties))
            return false;
    }
    return json_array_size(branches) > 0;
}

/* Whether it says nothing that is not kept to of parameters that are written one by one, each by
 * its own schema. */
static bool says_nothing(const char *keyword, const json_t *value, const json_t *schema)
{
    static const char *const words[] = {"$comment",
                                        "$defs",
                                        "$id",
                                        "$schema",
                                        "additionalProperties",
                                        "default",
                                        "definitions",
                                        "deprecated",
                                        "description",
                                        "example",
                                        "examples",
                                        "properties",
                                        "readOnly",
                                        "strict",
                                        "title",
                                        "type",
                                        "unevaluatedProperties",
                                        "writeOnly"};
    const json_t *properties = json_object_get(schema, "properties");
    for (size_t i = 0; i < RAD_COUNT(words); i++)
        if (!strcmp(keyword, words[i])) return true;
    if (!strcmp(keyword, "minProperties"))
        return json_number_value(value) <=
               (double)json_array_size(json_object_get(schema, "required"));
    if (!strcmp(keyword, "maxProperties"))
        return json_number_value(value) >= (double)json_object_size(properties);
    if (!strcmp(keyword, "anyOf")) return is_ways(value, properties);
    return !strcmp(keyword, "required") ? are_listed(value, properties)
                                        : !strncmp(keyword, "x-", 2);
}

/* The parameters are written for each branch of "anyOf"; 1 where there is none. */
static size_t num_ways(const json_t *schema)
{
    const json_t *ways = json_object_get(schema, "anyOf");
    return is_ways(ways, json_object_get(schema, "properties")) ? json_array_size(ways) : 1;
}

static bool is_required(const json_t *schema, size_t way, const char *name)
{
    const json_t *branch = json_array_get(json_object_get(schema, "anyOf"), way);
    return is_among(json_object_get(schema, "required"), name) ||
           is_among(json_object_get(branch, "required"), name);
}

/* The parameters' schema; what of it cannot be kept to is noted where it must be. */
static json_t *parameters_of(tool_writer *w, const json_t *function, bool strict)
{
    json_t *schema = json_object_get(function, "parameters"), *value;
    const char *keyword;
    json_object_foreach(schema, keyword, value)
    {
        if (strict && !says_nothing(keyword, value, schema)) w->unkept = keyword;
    }
    return schema;
}

/* A parameter that no call can have: a strict function cannot be called without it. */
static bool can_say(tool_writer *w, const char *name, bool sayable, bool strict)
{
    if (!sayable && strict) w->unsaid = name;
    return sayable;
}

/* ---- tags ---- */

typedef struct tag_words {
    const char *head, *middle, *tail; /* of a call: around its name, behind its parameters */
    const char *param, *value;        /* around a parameter's name */
    const char *name_end;             /* where the parser takes it to end */
    const char *value_end;            /* behind its value: */
    const char *around, *behind;      /* the value on both sides; the tag at its end */
    bool trims;                       /* the parser takes a newline off each side of a value */
    bool typed;                       /* an attribute tells whether it is a string */
} tag_words;

/* Whether a $ref in it leads to what own_schema does not take along. */
static bool leads_away(const json_t *schema)
{
    const char *key, *ref = json_string_value(json_object_get(schema, "$ref"));
    json_t *each;
    size_t i;
    bool away = ref && strncmp(ref, "#/$defs/", 8) != 0 && strncmp(ref, "#/definitions/", 14) != 0;
    json_object_foreach((json_t *)schema, key, each) away = away || leads_away(each);
    json_array_foreach((json_t *)schema, i, each) away = away || leads_away(each);
    return away;
}

static const char *const shared[] = {"$defs", "definitions"};

/* What a parameter's schema refers to stands in that of all parameters; where it leads elsewhere,
 * no call can have the parameter. Where the function is not strict anything is a value. */
static json_t *own_schema(tool_writer *w, const char *key, const json_t *schema,
                          const json_t *whole, bool strict)
{
    if (!strict) return json_object();
    json_t *own = json_is_object(schema) ? json_copy((json_t *)schema) : json_object();
    if (json_is_false(schema)) json_object_set_new(own, "not", json_object());
    for (size_t i = 0; i < RAD_COUNT(shared); i++) {
        json_t *of_all = json_object_get(whole, shared[i]);
        if (of_all) json_object_set(own, shared[i], of_all);
    }
    if (!w->failed && leads_away(own)) w->unsaid = key;
    return own;
}

static void put_schema(tool_writer *w, const char *word, const json_t *own)
{
    tool_put(w, word);
    tool_json(w, own);
    tool_put(w, " ");
}

/* The strings of a schema, as they are. The parser finds its end where its tag is, and where null
 * is a value, too, takes the word for it. */
static void put_text(tool_writer *w, const tag_words *t, const json_t *own, bool not_null)
{
    put_schema(w, " %text ", own);
    tool_put(w, "/");
    tool_regex(w, t->value_end);
    if (not_null) tool_put(w, "|^\\s*(null|None)\\s*$");
    if (t->trims && !t->around[0]) tool_put(w, "|^\\n|\\n$");
    tool_put(w, "/ ");
}

static bool lists_null(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *type =
            json_string_value(json_is_object(one) ? json_object_get(one, "type") : one);
        if (json_is_null(one) || (type && !strcmp(type, "null"))) return true;
    }
    return false;
}

/* By a type, a branch or a value. */
static bool allows_null(const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum");
    const bool typed = lists_null(json_object_get(schema, "type")) ||
                       lists_null(json_object_get(schema, "anyOf")) ||
                       lists_null(json_object_get(schema, "oneOf"));
    return typed && (!values || lists_null(values));
}

/* What is no string, as JSON. */
static void put_others(tool_writer *w, const json_t *own)
{
    tool_put(w,
             " %json {\"type\":[\"null\",\"boolean\",\"number\",\"array\",\"object\"],\"allOf\":[");
    tool_json(w, own);
    tool_put(w, "]");
    for (size_t i = 0; i < RAD_COUNT(shared); i++) {
        const json_t *defs = json_object_get(own, shared[i]);
        if (!defs) continue;
        tool_say(w, ",\"%s\":", shared[i]);
        tool_json(w, defs);
    }
    tool_put(w, "} ");
}

static void put_typed(tool_writer *w, const tag_words *t, const json_t *own, char kind)
{
    tool_put(w, " (");
    if (kind != 'j') {
        tool_words(w, "\" string=\"true\">");
        put_text(w, t, own, false);
    }
    if (kind == 'n') tool_put(w, " |");
    if (kind != 's') {
        tool_words(w, "\" string=\"false\">");
        if (kind == 'n')
            put_others(w, own);
        else
            put_schema(w, " %json ", own);
    }
    tool_put(w, ") ");
}

/* Whether the parser finds this name: it ends before `end`, without the blanks around it. */
static bool is_param_name(const char *name, const char *end)
{
    const size_t len = strlen(name);
    return len && len < TOOL_CALL_MOST_NAME && !is_space(name[0]) && !is_space(name[len - 1]) &&
           !strstr(name, end);
}

/* Strings stand there as they are; all else is JSON. */
static void put_value(tool_writer *w, const tag_words *t, const char *key, const json_t *schema,
                      const json_t *whole, bool strict)
{
    const char kind = tool_value_kind(schema);
    json_t *own = own_schema(w, key, schema, whole, strict);
    if (t->typed) {
        put_typed(w, t, own, kind);
    } else {
        tool_words(w, t->value);
        tool_words(w, t->around);
        if (kind == 'j') {
            put_schema(w, " %json ", own);
        } else {
            tool_put(w, kind == 'n' && allows_null(schema) ? " (\"null\" |" : " (");
            put_text(w, t, own, kind == 'n');
            tool_put(w, ") ");
        }
    }
    tool_words(w, t->typed ? "" : t->around);
    tool_words(w, t->value_end);
    tool_words(w, t->behind);
    json_decref(own);
}

static void tag_way(tool_writer *w, const json_t *schema, size_t way, bool strict,
                    const json_t *name)
{
    const tag_words *t = tool_family_of(w->p)->words;
    json_t *property;
    const char *key;
    tool_words(w, t->head);
    put_name(w, name);
    tool_words(w, t->middle);
    json_object_foreach(json_object_get(schema, "properties"), key, property)
    {
        const bool must = strict && is_required(schema, way, key);
        if (!can_say(w, key, is_param_name(key, t->name_end), strict)) continue;
        if (!must) tool_put(w, " (");
        tool_words(w, t->param);
        tool_quoted(w, key, strlen(key));
        put_value(w, t, key, property, schema, strict);
        if (!must) tool_put(w, ")? ");
    }
    tool_words(w, t->tail);
}

static void tag_call(tool_writer *w, const json_t *function, const json_t *name)
{
    const bool strict = tool_is_strict(w, function);
    const json_t *schema = parameters_of(w, function, strict);
    const size_t ways = strict ? num_ways(schema) : 1;
    for (size_t way = 0; way < ways; way++) {
        if (way) tool_put(w, " |");
        tag_way(w, schema, way, strict, name);
    }
}

static const tag_words qwen = {.head = "<tool_call>\n<function=",
                               .middle = ">\n",
                               .tail = "</function>\n</tool_call>",
                               .param = "<parameter=",
                               .value = ">",
                               .name_end = ">",
                               .around = "\n",
                               .value_end = "</parameter>",
                               .behind = "\n",
                               .trims = true};
static const tag_words seed = {.head = "<seed:tool_call>\n<function=",
                               .middle = ">\n",
                               .tail = "</function>\n</seed:tool_call>",
                               .param = "<parameter=",
                               .value = ">",
                               .name_end = ">",
                               .around = "",
                               .value_end = "</parameter>",
                               .behind = "\n",
                               .trims = true};
static const tag_words glm = {.head = "<tool_call>",
                              .middle = MAYBE_LINE,
                              .tail = "</tool_call>",
                              .param = "<arg_key>",
                              .value = "</arg_key>" MAYBE_LINE "<arg_value>",
                              .name_end = "</arg_key>",
                              .around = "",
                              .value_end = "</arg_value>",
                              .behind = MAYBE_LINE};
static const tag_words minimax = {.head = "<invoke name=\"",
                                  .middle = "\">\n",
                                  .tail = "</invoke>\n",
                                  .param = "<parameter name=\"",
                                  .value = "\">",
                                  .name_end = "\">",
                                  .around = "",
                                  .value_end = "</parameter>",
                                  .behind = "\n"};
#define DSML "\uff5cDSML\uff5c"
static const tag_words dsml = {.head = "<" DSML "invoke name=\"",
                               .middle = "\">\n",
                               .tail = "</" DSML "invoke>\n",
                               .param = "<" DSML "parameter name=\"",
                               .name_end = "\"",
                               .around = "",
                               .value_end = "</" DSML "parameter>",
                               .behind = "\n",
                               .typed = true};
#define HUNYUAN(suffix)                                                                            \
    {                                                                                              \
        .head = "<tool_call" suffix ">", .middle = "<tool_sep" suffix ">\n",                       \
        .tail = "</tool_call" suffix ">\n", .param = "<arg_key" suffix ">",                        \
        .value = "</arg_key" suffix ">\n<arg_value" suffix ">",                                    \
        .name_end = "</arg_key" suffix ">", .around = "", .value_end = "</arg_value" suffix ">",   \
        .behind = "\n"                                                                             \
    }
static const tag_words hunyuan = HUNYUAN(""), hunyuan_open = HUNYUAN(":opensource");

/* ---- Python ---- */

/* Whether the parser reads it as one word before an =. */
static bool is_python_name(const char *name)
{
    size_t len = 0;
    for (; name[len]; len++) {
        const char c = name[len];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c & 0x80;
        if (!letter && !(c >= '0' && c <= '9') && !strchr("_-.", c)) return false;
    }
    return len && len < LITERAL_MOST_WORD;
}

/* Rules of what may follow the first parameters: a-I-K, none of which was there, and b-I-K; I
 * counts the ways of all calls.
 *
 *     call-0 ::= "f(" a-0-0 ")"
 *     a-0-0  ::= p-0-0 b-0-1 | a-0-1           the first may be left out
 *     b-0-1  ::= (", " p-0-1)? b-0-2 */
static void python_way(tool_writer *w, const json_t *schema, size_t way, bool strict, size_t i)
{
    json_t *property;
    const char *key;
    size_t k = 0;
    json_object_foreach(json_object_get(schema, "properties"), key, property)
    {
        const bool must = strict && is_required(schema, way, key);
        if (!can_say(w, key, is_python_name(key), strict)) continue;
        tool_say(w, "\na-%zu-%zu ::= p-%zu-%zu b-%zu-%zu", i, k, i, k, i, k + 1);
        if (!must) tool_say(w, " | a-%zu-%zu", i, k + 1);
        tool_say(w, "\nb-%zu-%zu ::= (\", \" p-%zu-%zu)%s b-%zu-%zu", i, k, i, k, must ? "" : "?",
                 i, k + 1);
        tool_say(w, "\np-%zu-%zu ::=", i, k);
        tool_quoted(w, key, strlen(key));
        tool_put(w, " \"=\"");
        json_t *own = own_schema(w, key, property, schema, strict);
        put_schema(w, " %python ", own);
        json_decref(own);
        k++;
    }
    tool_say(w, "\na-%zu-%zu ::= \"\"\nb-%zu-%zu ::= \"\"", i, k, i, k);
}

static void python_call(tool_writer *w, const json_t *function, const json_t *name)
{
    const bool strict = tool_is_strict(w, function);
    const json_t *schema = parameters_of(w, function, strict);
    const size_t ways = strict ? num_ways(schema) : 1;
    for (size_t way = 0; way < ways; way++) {
        if (way) tool_put(w, " |");
        put_name(w, name);
        tool_say(w, " \"(\" a-%zu-0 \")\"", w->ways + way);
    }
    for (size_t way = 0; way < ways; way++)
        python_way(w, schema, way, strict, w->ways + way);
    w->ways += ways;
}

/* ---- all of them ---- */

static const tool_family families[] = {
    {"qwen", {""}, "\n", {""}, json_call, &hermes, NULL},
    {"qwen3_coder", {""}, "\n", {""}, tag_call, &qwen, NULL},
    {"seed_oss", {""}, MAYBE_LINE, {""}, tag_call, &seed, NULL},
    {"glm45", {""}, MAYBE_LINE, {""}, tag_call, &glm, NULL},
    {"minimax-m2",
     {"<minimax:tool_call>\n"},
     "",
     {"</minimax:tool_call>"},
     tag_call,
     &minimax,
     NULL},
    {"deepseekv32",
     {"<" DSML "function_calls>\n", "<" DSML "tool_calls>\n"},
     "",
     {"</" DSML "function_calls>", "</" DSML "tool_calls>"},
     tag_call,
     &dsml,
     NULL},
    {"hunyuan",
     {"<tool_calls:opensource>\n"},
     "",
     {"</tool_calls:opensource>"},
     tag_call,
     &hunyuan_open,
     "<tool_calls:opensource>"},
    {"hunyuan", {"<tool_calls>\n"}, "", {"</tool_calls>"}, tag_call, &hunyuan, NULL},
    {"llama3", {""}, NULL, {""}, json_call, &llama3, NULL},
    {"granite", {"<|tool_call|>["}, ", ", {"]"}, json_call, &object, NULL},
    {"nemotron_v2", {"<TOOLCALL>["}, ", ", {"]</TOOLCALL>"}, json_call, &object, NULL},
    {"functionary", {""}, "", {""}, json_call, &functionary, NULL},
    {"gpt-oss", {""}, NULL, {""}, json_call, &harmony, NULL},
    /* The newer models have a token between name and arguments. */
    {"mistral", {""}, "", {""}, json_call, &mistral, "[ARGS]"},
    {"mistral", {"[TOOL_CALLS]["}, ", ", {"]"}, json_call, &object, NULL},
    {"kimi_k2",
     {"<|tool_calls_section_begin|>"},
     "",
     {"<|tool_calls_section_end|>"},
     json_call,
     &kimi,
     NULL},
    {"deepseekv3",
     {DS("calls\u2581begin")},
     MAYBE_LINE,
     {DS("calls\u2581end")},
     deepseek_call,
     NULL,
     NULL},
    {"cohere_command4",
     {"<|START_ACTION|>["},
     ",",
     {"\n]<|END_ACTION|>"},
     json_call,
     &cohere,
     NULL},
    {"command_r", {"Action: ```json\n["}, ",", {"\n]```"}, json_call, &command_r, NULL},
    {"apertus2509", {"<|tools_prefix|>["}, ", ", {"]<|tools_suffix|>"}, json_call, &apertus, NULL},
    {"gigachat3", {"<|function_call|>"}, NULL, {""}, json_call, &object, "<|function_call|>"},
    {"gigachat3", {"function call<|role_sep|>\n"}, NULL, {""}, json_call, &object, NULL},
    {"gemma4", {""}, "", {""}, marked_call, &gemma4, NULL},
    {"functiongemma", {""}, "", {""}, marked_call, &functiongemma, NULL},
    {"lfm2", {"<|tool_call_start|>["}, ", ", {"]<|tool_call_end|>"}, python_call, NULL, NULL},
    {"pythonic",
     {"[", "<|python_start|>["},
     ", ",
     {"]", "]<|python_end|>"},
     python_call,
     NULL,
     "<|python_start|>"},
    {"pythonic", {"["}, ", ", {"]"}, python_call, NULL, NULL},
};

const tool_family *tool_family_of(const tool_grammar_params *p)
{
    for (size_t i = 0; i < RAD_COUNT(families); i++) {
        const tool_family *f = &families[i];
        if (tool_format_find(f->name) != p->calls) continue;
        if (!f->token || tokenizer_find(p->tok, f->token, strlen(f->token)) >= 0) return f;
    }
    return NULL;
}
