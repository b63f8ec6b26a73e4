/* api_forms.c - schemas, expressions and grammars out of requests. */
#include "server/api_forms.h"

#include "base/base.h"
#include "server/api_fields.h"

/* The one form of a request. */
static bool set_form(api_request *r, engine_request *item, const char *name, grammar_kind kind,
                     const char *text, size_t len, api_error *err)
{
    if (item->form)
        return api_fail(err, 400, name, "'%s' and '%s' both say what the answer must look like",
                        item->form->name, name);
    engine_form *form = api_request_alloc(r, 1, sizeof *form, err);
    if (!form) return false;
    form->name = name;
    form->spec = (grammar_spec){.kind = kind, .text = text, .len = len, .closed_objects = true};
    item->form = form;
    return true;
}

/* `value` as text, in memory of the request. */
static bool set_json(api_request *r, engine_request *item, const char *name, grammar_kind kind,
                     const json_t *value, api_error *err)
{
    enum { FLAGS = JSON_COMPACT | JSON_ENCODE_ANY };
    const size_t len = json_dumpb(value, NULL, 0, FLAGS);
    char *text = api_request_alloc(r, len + 1, 1, err);
    return text && json_dumpb(value, text, len, FLAGS) == len &&
           set_form(r, item, name, kind, text, len, err);
}

static bool set_schema(api_request *r, engine_request *item, const char *name, const json_t *value,
                       api_error *err)
{
    if (json_is_string(value)) /* SGLang's and vLLM's: as text */
        return set_form(r, item, name, GRAMMAR_JSON_SCHEMA, json_string_value(value),
                        json_string_length(value), err);
    if (!json_is_object(value) && !json_is_boolean(value))
        return api_fail(err, 400, name, "'%s' must be a JSON Schema: an object, or one as a string",
                        name);
    return set_json(r, item, name, GRAMMAR_JSON_SCHEMA, value, err);
}

bool api_parse_format(api_request *r, const json_t *format, const char *name, engine_request *item,
                      api_error *err)
{
    const char *type = "text";
    if (format && !json_is_object(format))
        return api_fail(err, 400, name, "'%s' must be an object", name);
    if (!json_in_string(format, "type", &type, err)) return false;
    if (!strcmp(type, "text")) return true;
    const json_t *own = json_in_get(format, "schema"); /* llama.cpp's, with json_object as well */
    if (!strcmp(type, "json_object") && !own)
        return set_form(r, item, name, GRAMMAR_JSON_OBJECT, NULL, 0, err);
    if (strcmp(type, "json_schema") != 0 && strcmp(type, "json_object") != 0) {
        char word[80];
        return api_fail(err, 400, name,
                        "%s '%s' is not served: text, json_object and json_schema are", name,
                        api_shown(type, word, sizeof word));
    }
    const json_t *inner = json_in_get(format, "json_schema");
    if (inner && !json_is_object(inner))
        return api_fail(err, 400, name, "'%s': 'json_schema' must be an object", name);
    const json_t *schema = inner ? json_in_get(inner, "schema") : own;
    if (!schema)
        return api_fail(err, 400, name, "'%s' has no schema: give it as 'schema'%s", name,
                        strcmp(name, "response_format") ? "" : " in 'json_schema'");
    return set_schema(r, item, name, schema, err);
}

bool api_parse_ollama_format(api_request *r, const json_t *format, engine_request *item,
                             api_error *err)
{
    if (!format || json_in_says(format, "")) return true;
    if (json_in_says(format, "json"))
        return set_form(r, item, "format", GRAMMAR_JSON_OBJECT, NULL, 0, err);
    if (json_is_object(format)) return set_schema(r, item, "format", format, err);
    return api_fail(err, 400, "format", "'format' must be \"json\" or a JSON Schema");
}

/* Texts, one of which is the answer. */
static bool set_choice(api_request *r, engine_request *item, const char *name, const json_t *list,
                       api_error *err)
{
    bool texts = json_is_array(list) && json_array_size(list) > 0;
    for (size_t i = 0; texts && i < json_array_size(list); i++)
        texts = json_is_string(json_array_get(list, i));
    if (!texts)
        return api_fail(err, 400, name, "'%s' must be a list of strings, one at least", name);
    return set_json(r, item, name, GRAMMAR_CHOICE, list, err);
}

static bool set_text(api_request *r, engine_request *item, const char *name, grammar_kind kind,
                     const json_t *value, api_error *err)
{
    if (!json_is_string(value)) return api_fail(err, 400, name, "'%s' must be a string", name);
    return set_form(r, item, name, kind, json_string_value(value), json_string_length(value), err);
}

static bool set_object(api_request *r, engine_request *item, const char *name, const json_t *value,
                       api_error *err)
{
    if (!json_is_boolean(value))
        return api_fail(err, 400, name, "'%s' must be true or false", name);
    return json_is_false(value) || set_form(r, item, name, GRAMMAR_JSON_OBJECT, NULL, 0, err);
}

typedef struct spelling {
    const char *key;
    enum { SCHEMA, CHOICE, OBJECT, TEXT } is;
    grammar_kind kind; /* of TEXT */
} spelling;

static bool parse_spellings(api_request *r, const json_t *object, const spelling *all, size_t count,
                            engine_request *item, api_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const spelling *s = &all[i];
        const json_t *value = json_in_get(object, s->key);
        /* Empty is how some clients say "none". */
        if (!value || json_in_says(value, "") || (s->is == SCHEMA && json_is_false(value)))
            continue;
        bool done = true;
        switch (s->is) {
        case SCHEMA: done = set_schema(r, item, s->key, value, err); break;
        case CHOICE: done = set_choice(r, item, s->key, value, err); break;
        case OBJECT: done = set_object(r, item, s->key, value, err); break;
        case TEXT: done = set_text(r, item, s->key, s->kind, value, err); break;
        }
        if (!done) return false;
    }
    return true;
}

bool api_parse_forms(api_request *r, const json_t *object, engine_request *item, api_error *err)
{
    static const spelling beside[] = {
        {"json_schema", SCHEMA, 0},
        {"regex", TEXT, GRAMMAR_REGEX},
        {"ebnf", TEXT, GRAMMAR_EBNF},
        {"grammar", TEXT, GRAMMAR_EBNF},
        {"guided_json", SCHEMA, 0},
        {"guided_regex", TEXT, GRAMMAR_REGEX},
        {"guided_grammar", TEXT, GRAMMAR_EBNF},
        {"guided_choice", CHOICE, 0},
    };
    static const spelling inside[] = {
        {"json", SCHEMA, 0},   {"regex", TEXT, GRAMMAR_REGEX}, {"grammar", TEXT, GRAMMAR_EBNF},
        {"choice", CHOICE, 0}, {"json_object", OBJECT, 0},
    };
    if (!parse_spellings(r, object, beside, RAD_COUNT(beside), item, err)) return false;
    const json_t *outputs = json_in_get(object, "structured_outputs");
    if (!outputs) return true;
    if (!json_is_object(outputs))
        return api_fail(err, 400, "structured_outputs", "'structured_outputs' must be an object");
    return api_check_fields(outputs, IN_STRUCTURED_OUTPUTS, err) &&
           parse_spellings(r, outputs, inside, RAD_COUNT(inside), item, err);
}

const char *api_form_named(const char *words)
{
    static const char *const names[] = {"response_format", "text.format",  "output_config.format",
                                        "output_format",   "format",       "json_schema",
                                        "regex",           "ebnf",         "grammar",
                                        "guided_json",     "guided_regex", "guided_choice",
                                        "guided_grammar",  "json",         "choice",
                                        "json_object",     "tool_choice",  "tools"};
    for (size_t i = 0; i < RAD_COUNT(names) && *words == '\''; i++) {
        const size_t len = strlen(names[i]);
        if (!strncmp(words + 1, names[i], len) && words[len + 1] == '\'') return names[i];
    }
    return NULL;
}
