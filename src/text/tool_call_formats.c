/* tool_call_formats.c - one row for each way of writing calls, and of reasoning; the names are
 * SGLang's. A template is told by what it says itself; the first row that fits it is its format. */
#include "text/tool_call_impl.h"

#include <stdio.h>
#include <stdlib.h>

#define DS(x) "<\uff5ctool\u2581" x "\uff5c>"
#define DSML  "\uff5cDSML\uff5c"

/* What closes a list of calls. */
static const char *const ends_cohere[] = {"<|END_ACTION|>", NULL};
static const char *const ends_command_r[] = {"```", NULL};
static const char *const ends_apertus[] = {"<|tools_suffix|>", NULL};
static const char *const ends_nemotron[] = {"</TOOLCALL>", NULL};

const tool_format tool_formats[] = {
    {.names = "gpt-oss",
     .opens = {"<|channel|>"},
     .shows = {"<|channel|>analysis", "<|channel|>"},
     .markers = {"<|start|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"},
     .step = step_harmony,
     .flags = TOOL_CHANNELS},
    {.names = "gemma4",
     .opens = {"<|tool_call>"},
     .shows = {"<|tool_call>"},
     .markers = {"<tool_call|>", "<|\"|>"},
     .step = step_marked,
     .flags = TOOL_ENDS_THINKING,
     .words = &marks_gemma},
    {.names = "functiongemma",
     .opens = {"<start_function_call>"},
     .shows = {"<start_function_call>"},
     .markers = {"<end_function_call>", "<escape>"},
     .step = step_marked,
     .words = &marks_functiongemma},
    {.names = "deepseekv32 deepseekv4",
     .opens = {"<" DSML "function_calls>", "<" DSML "tool_calls>"},
     .shows = {DSML},
     .markers = {DSML},
     .step = step_dsml,
     .flags = TOOL_ENDS_THINKING},
    {.names = "minimax-m2",
     .opens = {"<minimax:tool_call>"},
     .shows = {"<minimax:tool_call>"},
     .markers = {"</minimax:tool_call>"},
     .step = step_minimax,
     .flags = TOOL_ENDS_THINKING},
    {.names = "hunyuan",
     .opens = {"<tool_calls:opensource>", "<tool_calls>"},
     .shows = {"<tool_sep", "<tool_calls>"},
     .markers = {"</tool_calls:opensource>", "<tool_call:opensource>", "</tool_call:opensource>",
                 "<tool_sep:opensource>", "<arg_key:opensource>", "</arg_key:opensource>",
                 "<arg_value:opensource>", "</arg_value:opensource>", "</tool_calls>",
                 "<tool_call>", "</tool_call>", "<tool_sep>", "<arg_key>", "</arg_key>",
                 "<arg_value>", "</arg_value>"},
     .step = step_hunyuan},
    {.names = "cohere_command4",
     .opens = {"<|START_ACTION|>"},
     .shows = {"<|START_ACTION|>"},
     .markers = {"<|END_ACTION|>"},
     .step = step_list,
     .flags = TOOL_ENDS_THINKING | TOOL_TOOL_NAME,
     .words = ends_cohere},
    {.names = "command_r",
     .opens = {"Action:\n```json", "Action: ```json"},
     .shows = {"Action:\\n```json", "Action: ```json"},
     .step = step_list,
     .flags = TOOL_TOOL_NAME,
     .words = ends_command_r},
    {.names = "apertus2509",
     .opens = {"<|tools_prefix|>"},
     .shows = {"<|tools_prefix|>"},
     .markers = {"<|tools_suffix|>"},
     .step = step_list,
     .flags = TOOL_ENDS_THINKING | TOOL_NAME_IS_KEY,
     .words = ends_apertus},
    {.names = "nemotron_v2",
     .opens = {"<TOOLCALL>"},
     .shows = {"<TOOLCALL>"},
     .markers = {"</TOOLCALL>"},
     .step = step_list,
     .words = ends_nemotron},
    {.names = "gigachat3",
     .opens = {"<|function_call|>", "function call<|role_sep|>"},
     .shows = {"<|function_call|>", "function call<|role_sep|>"},
     .markers = {"<|role_sep|>"},
     .step = step_hermes},
    {.names = "seed_oss",
     .opens = {"<seed:tool_call>", "<function="},
     .shows = {"<seed:tool_call>"},
     .markers = {"</seed:tool_call>"},
     .step = step_xml,
     .flags = TOOL_ENDS_BEFORE},
    {.names = "qwen3_coder step3p5",
     .opens = {"<tool_call>", "<function="},
     .shows = {"<parameter="},
     .markers = {"</tool_call>"},
     .step = step_xml,
     .flags = TOOL_ENDS_BEFORE},
    {.names = "glm45 glm glm47",
     .opens = {"<tool_call>"},
     .shows = {"<arg_key>"},
     .markers = {"</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
     .step = step_glm},
    {.names = "kimi_k2",
     .opens = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
     .shows = {"<|tool_calls_section_begin|>"},
     .markers = {"<|tool_calls_section_end|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"},
     .step = step_marked,
     .flags = TOOL_ENDS_THINKING,
     .words = &marks_kimi},
    {.names = "deepseekv3 deepseekv31",
     .opens = {DS("calls\u2581begin"), DS("call\u2581begin")},
     .shows = {DS("calls\u2581begin")},
     .markers = {DS("calls\u2581end"), DS("call\u2581end"), DS("sep")},
     .step = step_marked,
     .flags = TOOL_ENDS_THINKING,
     .words = &marks_deepseek},
    {.names = "lfm2",
     .opens = {"<|tool_call_start|>"},
     .shows = {"<|tool_call_start|>", "<|tool_list_start|>"},
     .markers = {"<|tool_call_end|>"},
     .step = step_python,
     .flags = TOOL_ENDS_THINKING},
    {.names = "mistral",
     .opens = {"[TOOL_CALLS]"},
     .shows = {"[TOOL_CALLS]"},
     .markers = {"[CALL_ID]", "[ARGS]"},
     .step = step_mistral,
     .flags = TOOL_ENDS_THINKING | TOOL_SHORT_IDS},
    {.names = "granite",
     .opens = {"<|tool_call|>", "<tool_call>"},
     .shows = {"<|tool_call|>"},
     .step = step_list},
    {.names = "qwen qwen25 hermes",
     .opens = {"<tool_call>"},
     .shows = {"<tool_call>"},
     .markers = {"</tool_call>"},
     .step = step_hermes,
     .flags = TOOL_ENDS_BEFORE},
    {.names = "functionary",
     .opens = {"<function="},
     .shows = {"<function="},
     .markers = {"</function>"},
     .step = step_marked,
     .words = &marks_functionary},
    {.names = "pythonic llama4",
     .opens = {"<|python_start|>"},
     .shows = {"<|python_start|>", "[func_name1("},
     .markers = {"<|python_end|>"},
     .step = step_python,
     .flags = TOOL_BARE_LIST},
    {.names = "llama3",
     .opens = {"<|python_tag|>"},
     .shows = {"<|python_tag|>", "\"parameters\": dictionary of argument"},
     .step = step_llama3,
     .flags = TOOL_BARE_JSON},
};
const size_t tool_num_formats = RAD_COUNT(tool_formats);

static const reasoning_format reasoning_formats[] = {
    {.names = "gpt-oss", .shows = {"<|channel|>analysis", "<|channel|>"}},
    {.names = "gemma4",
     .open = "<|channel>thought",
     .close = "<channel|>",
     .shows = {"<|channel>"}},
    {.names = "mistral", .open = "[THINK]", .close = "[/THINK]", .shows = {"[THINK]"}},
    {.names = "kimi",
     .open = "\u25c1think\u25b7",
     .close = "\u25c1/think\u25b7",
     .shows = {"\u25c1think\u25b7"}},
    {.names = "apertus2509",
     .open = "<|inner_prefix|>",
     .close = "<|inner_suffix|>",
     .shows = {"<|inner_prefix|>"}},
    {.names = "cohere_command4",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .shows = {"<|START_THINKING|>"}},
    {.names = "hy3",
     .open = "<think:opensource>",
     .close = "</think:opensource>",
     .shows = {"<think:opensource>", "<think{}>"}},
    {.names = "seed_oss",
     .open = "<seed:think>",
     .close = "</seed:think>",
     .shows = {"<seed:think>"}},
    {.names =
         "qwen3 deepseek-v3 deepseek-v4 glm45 kimi_k2 nemotron_3 interns1 hunyuan minimax mimo",
     .open = "<think>",
     .close = "</think>",
     .shows = {"</think>", "<think>"}},
    {.names = "deepseek-r1 qwen3-thinking step3 step3p5",
     .open = "<think>",
     .close = "</think>",
     .always = true},
};

/* ---- by name ---- */

/* The words of all rows, sorted, or whether `name` is one of the words of `names`. */
static bool has_word(const char *names, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = names; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == len && memcmp(at, name, len) == 0) return true;
    return false;
}

const tool_format *tool_format_find(const char *name)
{
    for (size_t i = 0; i < tool_num_formats; i++)
        if (has_word(tool_formats[i].names, name)) return &tool_formats[i];
    return NULL;
}

const reasoning_format *reasoning_format_find(const char *name)
{
    for (size_t i = 0; i < RAD_COUNT(reasoning_formats); i++)
        if (has_word(reasoning_formats[i].names, name)) return &reasoning_formats[i];
    return NULL;
}

/* The first of the words. */
static const char *first_name(const char *names, char *text, size_t size)
{
    snprintf(text, size, "%.*s", (int)strcspn(names, " "), names);
    return text;
}

const char *tool_format_name(const tool_format *f, char *text, size_t size)
{
    return first_name(f ? f->names : "none", text, size);
}

const char *reasoning_format_name(const reasoning_format *f, char *text, size_t size)
{
    return first_name(f ? f->names : "none", text, size);
}

enum { MOST_NAMES = 64, NAME_BYTES = 32 };
typedef char name_text[NAME_BYTES];

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static uint32_t add_names(const char *names, name_text *list, uint32_t count)
{
    for (const char *at = names; *at && count < MOST_NAMES; at += *at == ' ') {
        size_t len = strcspn(at, " ");
        snprintf(list[count++], NAME_BYTES, "%.*s", (int)len, at);
        at += len;
    }
    return count;
}

static const char *write_names(name_text *list, uint32_t count, char *text, size_t size)
{
    size_t len = 0;
    qsort(list, count, sizeof *list, compare);
    text[0] = 0;
    for (uint32_t i = 0; i < count && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%s", i ? ", " : "", list[i]);
    return text;
}

const char *tool_format_names(char *text, size_t size)
{
    name_text list[MOST_NAMES];
    uint32_t count = 0;
    for (size_t i = 0; i < tool_num_formats; i++)
        count = add_names(tool_formats[i].names, list, count);
    return write_names(list, count, text, size);
}

const char *reasoning_format_names(char *text, size_t size)
{
    name_text list[MOST_NAMES];
    uint32_t count = 0;
    for (size_t i = 0; i < RAD_COUNT(reasoning_formats); i++)
        count = add_names(reasoning_formats[i].names, list, count);
    return write_names(list, count, text, size);
}

/* ---- by template ---- */

static bool shows(const char *text, size_t len, const char *word)
{
    const char *const words[] = {word, NULL};
    int which;
    find_words(text, len, words, &which);
    return which == 0;
}

const tool_format *tool_format_detect(const char *text, size_t len)
{
    for (size_t i = 0; i < tool_num_formats; i++)
        for (size_t k = 0; k < RAD_COUNT(tool_formats[i].shows) && tool_formats[i].shows[k]; k++)
            if (shows(text, len, tool_formats[i].shows[k])) return &tool_formats[i];
    return NULL;
}

const reasoning_format *reasoning_format_detect(const char *text, size_t len)
{
    for (size_t i = 0; i < RAD_COUNT(reasoning_formats); i++)
        for (size_t k = 0; k < RAD_COUNT(reasoning_formats[i].shows); k++)
            if (reasoning_formats[i].shows[k] && shows(text, len, reasoning_formats[i].shows[k]))
                return &reasoning_formats[i];
    return NULL;
}

bool tool_format_wants_short_ids(const tool_format *f)
{
    return f && f->flags & TOOL_SHORT_IDS;
}

static uint32_t add_id(const tokenizer *tok, const char *marker, rad_token *ids, uint32_t room,
                       uint32_t count)
{
    rad_token id = marker ? tokenizer_find(tok, marker, strlen(marker)) : -1;
    if (id < 0 || !tokenizer_is_control(tok, id)) return count;
    for (uint32_t i = 0; i < RAD_MIN(count, room); i++)
        if (ids[i] == id) return count;
    if (count < room) ids[count] = id;
    return count + 1;
}

uint32_t tool_call_marker_ids(const tokenizer *tok, const tool_format *calls,
                              const reasoning_format *reasoning, rad_token *ids, uint32_t room)
{
    uint32_t count = 0;
    if (reasoning && !reasoning->open) calls = calls ? calls : tool_format_find("gpt-oss");
    for (size_t i = 0; calls && i < RAD_COUNT(calls->opens); i++)
        count = add_id(tok, calls->opens[i], ids, room, count);
    for (size_t i = 0; calls && i < RAD_COUNT(calls->markers); i++)
        count = add_id(tok, calls->markers[i], ids, room, count);
    if (!reasoning || !reasoning->open) return count;
    count = add_id(tok, reasoning->close, ids, room, count);
    if (strcmp(reasoning->names, "gemma4") == 0) /* its marker is a token and a word */
        return add_id(tok, "<|channel>", ids, room, count);
    return add_id(tok, reasoning->open, ids, room, count);
}

/* ---- types ---- */

/* Names one behind the other, each with a letter in front and a NUL behind: 'f' a function, then
 * its parameters by what their values are. */
struct tool_types {
    text_buf names;
};

static bool is_string_schema(const json_t *schema, bool *only)
{
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    const char *name = json_string_value(type);
    if (name) return *only = true, strcmp(name, "string") == 0;
    *only = false;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && strcmp(one, "string") == 0) return true;
    }
    static const char *const joins[] = {"anyOf", "oneOf"};
    for (size_t j = 0; j < RAD_COUNT(joins); j++) {
        const json_t *list = json_object_get(schema, joins[j]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *one = json_string_value(json_object_get(json_array_get(list, i), "type"));
            if (one && strcmp(one, "string") == 0) return true;
        }
    }
    *only = true;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!json_is_string(json_array_get(values, i))) return false;
    return json_array_size(values) > 0;
}

char tool_value_kind(const json_t *schema)
{
    bool only = true, string = is_string_schema(schema, &only);
    return !string ? 'j' : only ? 's' : 'n';
}

static rad_status add_name(tool_types *t, char letter, const char *name, size_t len)
{
    rad_status status = text_buf_append(&t->names, &letter, 1);
    if (!status) status = text_buf_append(&t->names, name, len);
    return status ? status : text_buf_append(&t->names, "", 1);
}

static rad_status add_tool(tool_types *t, const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function"), *name, *properties;
    if (!function) function = tool;
    name = json_object_get(function, "name");
    properties = json_object_get(json_object_get(function, "parameters"), "properties");
    if (!json_is_string(name)) return RAD_OK;
    rad_status status = add_name(t, 'f', json_string_value(name), json_string_length(name));
    const char *key;
    json_t *schema;
    json_object_foreach((json_t *)(uintptr_t)properties, key, schema)
    {
        if (!status) status = add_name(t, tool_value_kind(schema), key, strlen(key));
    }
    return status;
}

rad_status tool_types_create(const json_t *tools, tool_types **out)
{
    tool_types *t = calloc(1, sizeof *t);
    rad_status status = t ? RAD_OK : RAD_E_NOMEM;
    for (size_t i = 0; i < json_array_size(tools) && !status; i++)
        status = add_tool(t, json_array_get(tools, i));
    if (status) {
        tool_types_destroy(t);
        t = NULL;
    }
    *out = t;
    return status;
}

void tool_types_destroy(tool_types *t)
{
    if (!t) return;
    text_buf_fini(&t->names);
    free(t);
}

size_t tool_types_bytes(const tool_types *t)
{
    return t ? sizeof *t + t->names.cap : 0;
}

static bool is(const char *entry, const char *name, size_t len)
{
    return strlen(entry) == len && memcmp(entry, name, len) == 0;
}

bool tool_types_has(const tool_types *t, const char *function, size_t len)
{
    for (size_t at = 0; at < t->names.len; at += strlen(t->names.data + at) + 1)
        if (t->names.data[at] == 'f' && is(t->names.data + at + 1, function, len)) return true;
    return false;
}

char tool_types_find(const tool_types *t, const char *function, const char *name, size_t len)
{
    bool inside = false;
    for (size_t at = 0; t && at < t->names.len; at += strlen(t->names.data + at) + 1) {
        const char *entry = t->names.data + at;
        if (*entry == 'f')
            inside = strcmp(entry + 1, function) == 0;
        else if (inside && is(entry + 1, name, len))
            return *entry;
    }
    return 0;
}

void reasoning_format_markers(const reasoning_format *f, const char **open, const char **close,
                              bool *always)
{
    *open = f->open;
    *close = f->close;
    *always = f->always;
}
