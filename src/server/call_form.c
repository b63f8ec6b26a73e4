/* call_form.c - the form of an answer that may have calls, or has channels.
 *
 * What the answer must look like and which tools must be called are two wishes of a request; how
 * this model writes calls is the server's to know. Together they are one grammar
 * (text/tool_grammar.h). */
#include "server/api_forms.h"
#include "server/server_priv.h"
#include "text/tool_grammar.h"

static rad_status put(text_buf *out, const char *text, size_t len)
{
    return len ? text_buf_append(out, text, len) : RAD_OK;
}

static rad_status put_words(text_buf *out, const char *text)
{
    return put(out, text, strlen(text));
}

/* A regular expression between slashes. */
static rad_status put_regex(text_buf *out, const char *text, size_t len)
{
    rad_status status = put_words(out, "%regex /");
    for (size_t i = 0; i < len && status == RAD_OK; i++) {
        if (text[i] == '\\' && i + 1 < len)
            status = put(out, text + i++, 2);
        else
            status = text[i] == '/' ? put_words(out, "\\/") : put(out, text + i, 1);
    }
    return status == RAD_OK ? put_words(out, "/") : status;
}

/* A list of strings, as "a" | "b": JSON's escapes are EBNF's, too. */
static rad_status put_choice(text_buf *out, const grammar_spec *spec)
{
    json_t *list = json_loadb(spec->text, spec->len, 0, NULL);
    rad_status status = list ? RAD_OK : RAD_E_NOMEM;
    for (size_t i = 0; i < json_array_size(list) && status == RAD_OK; i++) {
        char *one = json_dumps(json_array_get(list, i), JSON_ENCODE_ANY);
        if (i) status = put_words(out, " | ");
        if (status == RAD_OK) status = one ? put_words(out, one) : RAD_E_NOMEM;
        free(one);
    }
    json_decref(list);
    return status;
}

/* A schema that came as text is written anew: in a larger grammar all behind its end would be
 * rules. */
static bool put_schema(text_buf *out, const engine_form *form, rad_status *status, api_error *err)
{
    json_error_t why;
    json_t *schema = json_loadb(form->spec.text, form->spec.len, JSON_DECODE_ANY, &why);
    if (!schema) return api_fail(err, 400, form->name, "'%s' is no JSON: %s", form->name, why.text);
    if (json_is_true(schema) || json_is_false(schema)) {
        *status = put_words(out, json_is_true(schema) ? "%json {}" : "%json {\"not\":{}}");
    } else {
        char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
        *status = text ? put_words(out, "%json ") : RAD_E_NOMEM;
        if (*status == RAD_OK) *status = put_words(out, text);
        free(text);
    }
    json_decref(schema);
    return true;
}

/* The request's own form as a part of a larger one. False: it cannot be one. */
static bool put_form(text_buf *out, const engine_form *form, api_error *err)
{
    const grammar_spec *spec = &form->spec;
    rad_status status = RAD_OK;
    switch (spec->kind) {
    case GRAMMAR_JSON_SCHEMA:
        if (!put_schema(out, form, &status, err)) return false;
        break;
    case GRAMMAR_REGEX: status = put_regex(out, spec->text, spec->len); break;
    case GRAMMAR_CHOICE: status = put_choice(out, spec); break;
    case GRAMMAR_JSON_VALUE: status = put_words(out, "%json {}"); break;
    case GRAMMAR_JSON_OBJECT: status = put_words(out, "%json {\"type\":\"object\"}"); break;
    case GRAMMAR_EBNF:
        return api_fail(err, 400, form->name,
                        "'%s' cannot be a grammar where the answer may call tools or has channels: "
                        "a schema, a regular expression or a choice can",
                        form->name);
    }
    return (status == RAD_OK && text_buf_append(out, "", 1) == RAD_OK) ||
           api_fail(err, 503, NULL, "no memory for this request");
}

/* `ebnf` becomes the form of all answers of the call. */
static bool set_grammar(api_request *r, const text_buf *ebnf, const char *name, api_error *err)
{
    engine_form *form = api_request_alloc(r, 1, sizeof *form, err);
    char *text = form ? api_request_alloc(r, ebnf->len, 1, err) : NULL;
    if (!text) return false;
    memcpy(text, ebnf->data, ebnf->len);
    *form = (engine_form){
        .spec = {.kind = GRAMMAR_EBNF, .text = text, .len = ebnf->len, .closed_objects = true},
        .name = name};
    for (uint32_t i = 0; i < r->num_items; i++)
        r->items[i].form = form;
    return true;
}

bool call_finish_form(call *c)
{
    api_request *r = &c->request;
    const api_called *called = &r->called;
    const tool_format *family = c->server->output.calls;
    const engine_form *own = r->num_items ? r->items[0].form : NULL;
    const bool tools = json_array_size(called->tools) > 0;
    const bool channels = r->output.parts && tool_format_has_channels(family);
    if (!r->output.parts ||
        (!called->required && !(called->strict && family) && !(own && (tools || channels))))
        return true;

    const chat_template *chat = engine_chat_template(c->server->engine);
    const char *name = called->required ? "tool_choice" : own ? own->name : "tools";
    text_buf form = {0}, ebnf = {0};
    bool done = !own || called->required || put_form(&form, own, &c->error);
    if (done) {
        rad_error why = {0};
        const tool_grammar_params p = {.calls = family,
                                       .tok = engine_tokenizer(c->server->engine),
                                       .tools = called->tools,
                                       .form = own && !called->required ? form.data : NULL,
                                       .only = called->only,
                                       .required = called->required,
                                       .one_call = r->output.one_call,
                                       .strict_only = !called->required};
        rad_status status = tool_grammar_write(&p, &ebnf, &why);
        if (status == RAD_OK)
            done = set_grammar(r, &ebnf, name, &c->error);
        else if (status == RAD_E_UNSUPPORTED && tools && chat &&
                 !chat_template_reads(chat, "tools"))
            done =
                api_fail(&c->error, 400, "tools", /* another parser would not help */
                         "'tools': the model's chat template does not read them: the model would "
                         "not hear of them");
        else
            done = api_fail(&c->error, status == RAD_E_NOMEM ? 503 : 400, name, "'%s': %s", name,
                            why.text);
    }
    text_buf_fini(&form);
    text_buf_fini(&ebnf);
    return done;
}
