/* schema.h - JSON Schemas as rules.
 *
 * Served: type (one or a list), properties, required, patternProperties, additionalProperties,
 * minProperties, maxProperties; prefixItems, items, additionalItems, minItems, maxItems,
 * uniqueItems of items that have few values; minLength, maxLength, pattern, format; minimum,
 * maximum, exclusiveMinimum, exclusiveMaximum, multipleOf; enum, const; anyOf, allOf, oneOf where
 * no two branches have a value in common; $ref to # and #/..., $defs, definitions; true and false;
 * propertyNames that list names, or of strings by plain keywords; not of {}. Annotations are passed
 * over. Whatever else a schema has is refused by its name.
 *
 * How an answer is written:
 *   - properties in the order of the schema, then those in `required` alone, then others
 *   - white space is one of grammar_space's forms
 *   - names of others may come twice; minProperties is served where it cannot matter
 *   - integers have no point; numbers with bounds or multipleOf no exponent, and with multipleOf no
 *     more digits behind the point than it has
 *   - names, values of enum and const, and strings with pattern or format in one way (chars.h);
 *     other strings may have any escapes
 *   - of a format only what an expression can say (schema_format.c)
 *
 * Private to this room. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "grammar/builder.h"
#include "grammar/chars.h"
#include "grammar/keys.h"

#include <jansson.h>

enum {
    SCHEMA_MOST_DEPTH = 200,     /* of schemas in schemas */
    SCHEMA_MOST_LENGTH = 100000, /* of strings whose characters are not counted: each has states */
    SCHEMA_MOST_COUNT = 1 << 30, /* of all lengths and counts; no answer is longer */
    SCHEMA_MOST_BRANCHES = 4096, /* combinations of anyOf and oneOf in one place */
    SCHEMA_MOST_SET = 256        /* schemas that hold at once in one place */
};

/* What a value must satisfy at once: schemas (objects), each once, in the
 * document's order. */
typedef struct schema_goal {
    uint32_t first, count; /* in compiler.members */
    uint32_t rule;
    uint8_t empty; /* 0: not looked at, 1: being looked at, 2: has values, 3: has none */
} schema_goal;

/* An expression, and the texts that match it, as a whole or in some place. */
typedef struct schema_pattern {
    const char *expression;
    bool whole;
    dfa texts;
} schema_pattern;

typedef struct schema_compiler {
    gr_builder *b;
    json_t *root;
    const json_t **members;
    uint32_t num_members, cap_members;
    schema_goal *goals;
    uint32_t num_goals, cap_goals;
    gr_slots by_hash; /* goals */
    schema_pattern *patterns;
    uint32_t num_patterns, cap_patterns;
    gr_slots pattern_of;         /* by its text: clients write one again for each property */
    gr_keys checked;             /* schemas, by address */
    const json_t *candidates;    /* an enum whose own values are looked at: they are in it */
    const json_t *undecided[64]; /* schemas whose oneOf is being looked at */
    uint32_t num_undecided;
    dfa any_name; /* of all strings, written in one way */
    bool has_any_name;
    dfa others;                /* those without these names: of the object that was made last */
    const char **others_names; /* [num_others_names] */
    uint32_t num_others_names, cap_others_names;
    chars_form form;   /* of the characters of strings */
    const dfa *barred; /* no string is one of these; or NULL */
    bool bare;         /* only strings are wanted, without quotes */
    gr_keys lengths;   /* of strings whose characters are counted, */
    uint32_t *strings; /* and their rules */
    uint32_t cap_strings;
    unsigned depth;
} schema_compiler;

/* Schemas that hold at once: what expanding a goal works on. */
typedef struct schema_set {
    const json_t *at[SCHEMA_MOST_SET];
    uint32_t count;
} schema_set;

/* A decimal number: digits before and behind the point, no zeros that say nothing. */
enum { DECIMAL_DIGITS = 340 };
typedef struct decimal {
    bool negative;
    uint16_t num_whole, num_part;
    char whole[DECIMAL_DIGITS], part[DECIMAL_DIGITS]; /* '0'.. */
} decimal;

bool decimal_of(const json_t *number, decimal *out); /* false: too many digits */
int decimal_compare(const decimal *a, const decimal *b);
/* *a becomes the least number above zero that is a multiple of both, which are above zero. False:
 * it has too many digits. */
bool decimal_common_multiple(decimal *a, const decimal *b);
/* The number as JSON writes it, shortest form. Returns its length. */
size_t number_text(const json_t *number, char out[64]);

typedef struct number_bounds {
    bool integer, has_low, has_high, low_open, high_open, has_step;
    decimal low, high, step;
} number_bounds;

/* All numbers within the bounds, without exponents. False: mem.status. */
bool number_dfa(gr_builder *b, const number_bounds *bounds, dfa *d);

/* The expression of a format, which the whole string matches; NULL: none has this name. */
const char *format_expression(const char *name);

/* Whether every keyword of the document is served, each schema and all below it. */
bool schema_check(schema_compiler *c, const json_t *schema);
const json_t *schema_resolve(schema_compiler *c,
                             const json_t *schema); /* its $ref; NULL: refused */

/* Whether `value` satisfies `schema`: for enum and const beside other keywords. */
bool schema_allows(schema_compiler *c, const json_t *schema, const json_t *value);

/* Whether these "propertyNames" list the names, by enum and const, also behind anyOf and $ref. */
bool schema_lists_names(schema_compiler *c, const json_t *names, unsigned depth);

/* Whether "propertyNames" of `schema` lets a property have this name. */
bool schema_allows_name(schema_compiler *c, const json_t *schema, const char *name);

/* Whether no value depends on this keyword. */
bool schema_is_annotation(const char *keyword);

/* Equal as JSON Schema has it: 1 is 1.0. */
bool schema_equal(schema_compiler *c, const json_t *a, const json_t *b);

/* The texts in which the expression finds a match, which is all of the text with `whole`. It stays
 * where it is as long as the compiler lives. NULL: c->b->mem.status. */
const dfa *schema_pattern_dfa(schema_compiler *c, const char *expression, bool whole);
bool schema_matches(schema_compiler *c, const char *expression, bool whole, const char *text,
                    size_t len);

/* Whether d, of characters in this form, has the text. */
bool schema_dfa_has(const dfa *d, const char *text, size_t len, chars_form form);

/* ---- values without a schema: json_rules.c ---- */

/* Values are written with these marks from here on; NULL: with none again. */
void json_set_marks(gr_builder *b, const gr_marks *marks);
uint32_t
json_string_rule(gr_builder *b); /* what is behind the opening quote, with the closing one */
/* The same of strings with so many characters (NO_END), which are counted. Not with marks. */
uint32_t json_bounded_string_rule(gr_builder *b, uint32_t min, uint32_t max);
uint32_t json_number_rule(gr_builder *b, bool integer);
uint32_t json_value_rule(gr_builder *b);
uint32_t json_object_rule(gr_builder *b);
nfa_frag json_char(gr_builder *b, bool one_way); /* one character of a string */
nfa_frag json_literal(gr_builder *b, const json_t *value);
nfa_frag json_quote(gr_builder *b); /* on both sides of a string */
/* A property's name; one of these names, written in one way. */
nfa_frag json_name(gr_builder *b, const char *name);
nfa_frag json_names(gr_builder *b, const dfa *names);
const char *json_word(const gr_builder *b, json_type type); /* true, false or null, as written */
typedef enum json_place { JSON_OPEN, JSON_CLOSE, JSON_COMMA, JSON_COLON } json_place;
/* A bracket, comma or colon with its white space; that before the first item is json_lead's. */
nfa_frag json_mark(gr_builder *b, json_place place, char mark);
nfa_frag json_lead(gr_builder *b);

rad_status schema_build(gr_builder *b, const char *text, size_t len, uint32_t *root);

/* Strings of a schema as they are: without quotes and escapes, and none of `barred`. Of a schema
 * that has other values besides only its strings. */
rad_status schema_build_text(gr_builder *b, const char *text, size_t len, const dfa *barred,
                             uint32_t *root);
rad_status choice_build(gr_builder *b, const char *text, size_t len, uint32_t *root);

#endif
