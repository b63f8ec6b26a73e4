/* schema_impl.h - between the files that make rules of a schema. Private to these.
 *
 *     schema.c           expands sets of schemas into ways, and puts their fragments together
 *     schema_goal.c      the sets, and what they hold a value's parts to
 *     schema_merge.c     a way's plain keywords, united
 *     schema_empty.c     whether a set has any value
 *     schema_string.c    strings
 *     schema_array.c     arrays
 *     schema_object.c    objects
 *     schema_names.c     names of properties that a schema does not list
 *     schema_check.c     what a document may say
 *     schema_allows.c    whether a value satisfies a schema */
#ifndef GRAMMAR_SCHEMA_IMPL_H
#define GRAMMAR_SCHEMA_IMPL_H

#include "grammar/schema.h"

enum {
    IS_NULL = 1,
    IS_BOOLEAN = 2,
    IS_INTEGER = 4,
    IS_FRACTION = 8, /* numbers that are no integers */
    IS_STRING = 16,
    IS_ARRAY = 32,
    IS_OBJECT = 64,
    IS_ANY = 127
};

/* Goals without a number. */
#define NEVER    UINT32_MAX /* nothing satisfies it */
#define ANYTHING (UINT32_MAX - 1)

enum { SCHEMA_MOST_TEXTS = 32 };

typedef struct schema_merged {
    const schema_set *set;
    unsigned types;
    const json_t *values; /* an enum, or NULL */
    const json_t *only;   /* a const, or NULL */
    bool bare;            /* no keyword restricts anything */
    number_bounds bounds;
    uint64_t min_length, max_length;      /* UINT64_MAX: none */
    const char *texts[SCHEMA_MOST_TEXTS]; /* expressions: patterns, and formats, which are: */
    bool whole[SCHEMA_MOST_TEXTS];
    uint32_t num_texts;
    bool one_way; /* characters of strings are written in one way */
    bool unique;  /* no two items are equal */
    uint64_t min_items, max_items, min_members, max_members;
} schema_merged;

/* A set of schemas, on its way through their branches. */
typedef struct schema_expansion {
    schema_compiler *c;
    schema_set set;
    uint32_t ways;
    bool (*visit)(struct schema_expansion *x, const schema_merged *m); /* false: that is enough */
    uint32_t in, out; /* of visit_frag: what all ways lie between */
    bool has_values;  /* of visit_empty */
    json_t *values;   /* of visit_values: all there are, or */
    bool many;        /* too many */
} schema_expansion;

static inline bool schema_failed(const schema_compiler *c)
{
    return c->b->mem.status != RAD_OK;
}

/* ---- schema_goal.c ---- */

/* Adds a schema to what must hold: nothing for true; false: it is `false`. */
bool schema_hold(schema_compiler *c, schema_set *set, const json_t *schema);

/* The goal of a set; sorts it. */
uint32_t schema_goal_of(schema_compiler *c, schema_set *set);

/* What holds for a property of this name; for those that "properties" does not list, whose names
 * match the k-th of all "patternProperties" of the set, in their order, if bit k is set; for an
 * item. */
uint32_t schema_property_goal(schema_compiler *c, const schema_set *set, const char *name);
uint32_t schema_others_goal(schema_compiler *c, const schema_set *set, uint64_t matched);
uint32_t schema_item_goal(schema_compiler *c, const schema_set *set, uint64_t index);

/* The schemas of the first items, a list or NULL, and that of the rest: "prefixItems" and "items",
 * or what older drafts call "items" and "additionalItems". */
const json_t *schema_prefix_of(const json_t *schema, const json_t **rest);

/* Items from this one on have one goal. */
uint64_t schema_prefix_length(const schema_set *set);

/* ---- schema_merge.c ---- */

void schema_merge(schema_compiler *c, const schema_set *set, schema_merged *m);

/* What a "type" names, one or a list of strings: IS_NULL and so on. 0: JSON has no such type. */
unsigned schema_types(const json_t *type);

/* Whether all schemas of the set allow a value that one of them names. */
bool schema_all_allow(schema_compiler *c, const schema_merged *m, const json_t *value);

/* ---- schema_string.c ---- */

/* All strings of the merged keywords, without quotes. One way to write characters where there are
 * patterns or names, any where there are lengths alone. */
bool schema_string_dfa(schema_compiler *c, const schema_merged *m, dfa *d);
nfa_frag schema_string_frag(schema_compiler *c, const schema_merged *m);

/* A value of an enum, or a const; where texts are wanted, nothing if it is none. */
nfa_frag schema_value_frag(schema_compiler *c, const json_t *value);

/* ---- schema.c ---- */

/* A schema joins the set, and right behind it what it refers to: so properties keep the order in
 * which somebody reads them. False: nothing satisfies it. As deep as the set is large. */
bool schema_join(schema_expansion *x, const json_t *schema);

/* All ways from schema `at` of the set on; of that one its anyOf (choice 0) or its oneOf (1) comes
 * first. False: it failed, or a visit said that it is enough. */
bool schema_expand(schema_expansion *x, uint32_t at, unsigned choice);

/* All ways of these schemas at once, or of a goal's, to x->visit. They are read before the first
 * visit, so they may be of c->members, which move where goals are made. */
void schema_visit(schema_expansion *x, const json_t *const *at, uint32_t count);
void schema_visit_goal(schema_compiler *c, schema_expansion *x, uint32_t goal);

nfa_frag schema_goal_frag(schema_compiler *c, uint32_t goal);

/* ---- schema_empty.c ---- */

/* Whether no two branches of a oneOf have a value in common, of those that its schema allows. */
bool schema_branches_apart(schema_compiler *c, const json_t *schema, const json_t *branches);

/* ---- schema_array.c, schema_object.c ---- */

nfa_frag schema_array_frag(schema_compiler *c, const schema_merged *m);
nfa_frag schema_object_frag(schema_compiler *c, const schema_merged *m);

/* ---- schema_names.c ---- */

/* Names that no member has, each written in one way, apart by which patterns they match. */
typedef struct name_class {
    uint64_t matched; /* as schema_others_goal has it */
    uint32_t goal;
    enum {
        NAMES_OWN,
        NAMES_OTHERS, /* c->others, until the next object's are found */
        NAMES_ANY
    } kind;
    dfa names; /* its own */
} name_class;

enum { SCHEMA_MOST_CLASSES = 64 };

typedef struct name_classes {
    name_class at[SCHEMA_MOST_CLASSES];
    uint32_t count;
} name_classes;

/* Those that have a goal that is not NEVER. Failed: c->b->mem.status, and none. */
void schema_names_find(schema_compiler *c, const schema_set *set, const char *const *members,
                       uint32_t num_members, name_classes *out);
void schema_names_drop(name_classes *n);
nfa_frag schema_names_frag(schema_compiler *c, const name_class *k); /* with quotes */

/* Whether a pattern of the set matches the name. */
bool schema_names_match(schema_compiler *c, const schema_set *set, const char *name);

#endif
