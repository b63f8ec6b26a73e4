/* jinja.h - renders chat templates: the part of Jinja2 that they are written in.
 *
 * Model files carry their chat format as a Jinja2 template. This is a small, strict
 * interpreter of the language as Hugging Face runs it (sandboxed and immutable, trim_blocks
 * and lstrip_blocks on, break and continue, raise_exception, strftime_now, tojson without
 * HTML escaping; and from_json, which some models' templates bring along). What it renders is
 * what Python renders; a construct that it does not know is an error that names it and its line,
 * and never something similar. Filters and tests fail where they are reached, all else when the
 * template is parsed.
 *
 * Templates and what they are rendered with come from strangers: steps, nesting, memory and
 * output are bounded, and every string remembers which of its bytes a conversation brought,
 * so that the caller can tell a template's own markers from forged ones.
 *
 * A parsed template is immutable: any number of threads may render it at once. */
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include "base/base.h"

#include <jansson.h>

typedef struct jinja_template jinja_template;

/* Where and why, beside the words in rad_error. */
typedef struct jinja_fault {
    uint32_t line; /* of the template, from 1; 0: none in particular */
    bool raised;   /* by the template's own raise_exception: the text is its message */
} jinja_fault;

/* Parses source[0..len), UTF-8. RAD_E_FORMAT: a syntax error; RAD_E_UNSUPPORTED: a tag
 * that does not exist here; RAD_E_LIMIT: nested too deep or too large;
 * RAD_E_NOMEM. err names line and construct; fault may be NULL. Linear in len. The source is
 * copied. */
rad_status jinja_parse(const rad_env *env, const char *source, size_t len, jinja_template **out,
                       jinja_fault *fault, rad_error *err);
void jinja_destroy(jinja_template *t); /* NULL is fine */

/* Whether `word` stands in the code of the template (not in its text), as a name or as a whole
 * string: one that does not name a variable or key cannot render it. O(template). */
bool jinja_names(const jinja_template *t, const char *word);

/* Its text, lines ended by \n; not NUL-terminated. */
const char *jinja_source(const jinja_template *t, size_t *len);

/* The first filter or test in it that does not exist here, "filter 'x' (line 3)"; "": there is
 * none. What reaches it fails. The text lives as long as the template. */
const char *jinja_unknown(const jinja_template *t);

/* A variable of the template. */
typedef struct jinja_var {
    const char *name;
    const json_t *value;
    bool user; /* its strings come from a conversation, not from the model or the operator */
} jinja_var;

typedef struct jinja_limits { /* 0 = the default */
    uint64_t steps;           /* nodes visited, and work on long texts and lists as if it were
                               * nodes (jinja_value.h has the prices): 20 million, about half a second */
    size_t memory;            /* bytes of values: 512 MiB */
    size_t output;            /* bytes of text, of any one string too: 128 MiB */
} jinja_limits;

typedef struct jinja_input {
    const jinja_var *vars; /* of two with one name the later counts */
    uint32_t num_vars;
    uint32_t reserved;
    int64_t now_unix; /* seconds, for strftime_now; shown as UTC */
    jinja_limits limits;
} jinja_input;

/* `user` says of every byte of the text whether a conversation brought it (1) or the
 * template (0); NULL: all the template's. */
typedef struct jinja_text {
    char *data; /* NUL behind the end */
    size_t len;
    uint8_t *user;
    uint64_t steps; /* what it cost, of jinja_limits.steps */
    rad_env env;
} jinja_text;

/* RAD_E_INVAL: raise_exception, or something that Python would have raised for (a missing
 * attribute's attribute, a sum of text and number): fault->raised tells. RAD_E_UNSUPPORTED: a
 * filter, test, function or method that does not exist here. RAD_E_LIMIT, RAD_E_NOMEM. On success
 * *out is given back with jinja_text_fini. `user` variables: the role of a message (a dict's
 * "role") counts as the template's where it is one of the usual words. */
rad_status jinja_render(const jinja_template *t, const jinja_input *input, jinja_text *out,
                        jinja_fault *fault, rad_error *err);
void jinja_text_fini(jinja_text *text);

#endif
