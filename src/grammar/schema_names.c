/* schema_names.c - names of properties that a schema does not list.
 *
 * What holds for such a property depends on which "patternProperties" its name matches. So the
 * names are divided, pattern by pattern, into those that match it and those that do not; what is
 * left in no name is dropped. With two patterns there are at most four kinds of names, with a
 * hundred that have nothing in common a hundred and one. */
#include "grammar/schema_impl.h"

enum { MOST_PATTERNS = 63 };

/* All names that every "propertyNames" allows, each written in one way. */
static bool all_names(schema_compiler *c, const schema_set *set, dfa *d)
{
    schema_set names = {.count = 0};
    schema_merged m;
    for (uint32_t i = 0; i < set->count; i++)
        (void)schema_hold(c, &names, json_object_get(set->at[i], "propertyNames"));
    schema_merge(c, &names, &m);
    m.one_way = true;
    return !schema_failed(c) && schema_string_dfa(c, &m, d);
}

/* Of these names all that no member has. */
static bool without_members(schema_compiler *c, const char *const *members, uint32_t count,
                            const dfa *from, dfa *out)
{
    gr_builder *b = c->b;
    nfa names;
    dfa listed = {0};
    nfa_init(&names, &b->mem, b->n.bytes);
    nfa_frag all = nfa_never(&names);
    for (uint32_t i = 0; i < count && !schema_failed(c); i++) {
        nfa_frag each = chars_literal(&names, members[i], strlen(members[i]), c->form);
        nfa_empty(&names, all.in, each.in);
        nfa_empty(&names, each.out, all.out);
    }
    const bool ok = !schema_failed(c) && dfa_make(&listed, &names, all) &&
                    dfa_without(out, from, &listed);
    dfa_fini(&listed);
    nfa_fini(&names);
    return ok;
}

/* The last object had these members as well. */
static bool has_others(const schema_compiler *c, const char *const *members, uint32_t count)
{
    bool same = c->others.mem && c->num_others_names == count;
    for (uint32_t i = 0; i < count && same; i++)
        same = strcmp(c->others_names[i], members[i]) == 0;
    return same;
}

/* c->others become the names that none of these members has. */
static void find_others(schema_compiler *c, const char *const *members, uint32_t count)
{
    static const schema_set none;
    if (has_others(c, members, count)) return;
    dfa_fini(&c->others);
    if (!c->has_any_name) c->has_any_name = all_names(c, &none, &c->any_name);
    if (!c->has_any_name || !without_members(c, members, count, &c->any_name, &c->others) ||
        !GR_GROW(&c->b->mem, c->others_names, c->cap_others_names, count))
        return;
    for (uint32_t i = 0; i < count; i++)
        c->others_names[i] = members[i];
    c->num_others_names = count;
}

/* All names of no member that "propertyNames" allows. False: none were made. */
static bool allowed_others(schema_compiler *c, const schema_set *set, const char *const *members,
                           uint32_t count, dfa *out)
{
    dfa own = {0};
    const bool ok = all_names(c, set, &own) && without_members(c, members, count, &own, out);
    dfa_fini(&own);
    return ok;
}

/* Those of class `from` that match go into a class of their own, where there are any. */
static void divide(schema_compiler *c, name_classes *n, uint32_t from, const dfa *pattern,
                   unsigned bit)
{
    dfa with = {0}, without = {0};
    name_class *k = &n->at[from];
    if (!dfa_both(&with, &k->names, pattern) || !dfa_without(&without, &k->names, pattern) ||
        dfa_is_never(&with)) {
        dfa_fini(&with);
        dfa_fini(&without);
        return;
    }
    dfa_fini(&k->names);
    k->names = with;
    k->matched |= (uint64_t)1 << bit;
    if (dfa_is_never(&without)) {
        dfa_fini(&without);
    } else if (n->count == SCHEMA_MOST_CLASSES) {
        dfa_fini(&without);
        gr_fail(&c->b->mem, RAD_E_LIMIT,
                "\"patternProperties\": names match them in more than %d ways",
                SCHEMA_MOST_CLASSES);
    } else {
        n->at[n->count++] =
            (name_class){.matched = k->matched & ~((uint64_t)1 << bit), .names = without};
    }
}

static void divide_all(schema_compiler *c, const schema_set *set, name_classes *n)
{
    const char *expression;
    json_t *schema;
    unsigned bit = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        json_object_foreach(json_object_get(set->at[i], "patternProperties"), expression, schema)
        {
            const dfa *pattern = schema_pattern_dfa(c, expression, false);
            if (bit == MOST_PATTERNS)
                gr_fail(&c->b->mem, RAD_E_LIMIT, "more than %d \"patternProperties\" hold at once",
                        MOST_PATTERNS);
            for (uint32_t k = 0, count = n->count; k < count && !schema_failed(c); k++)
                divide(c, n, k, pattern, bit);
            if (schema_failed(c)) return;
            bit++;
        }
    }
}

static bool has(const schema_set *set, const char *keyword)
{
    bool is = false;
    for (uint32_t i = 0; i < set->count; i++)
        is |= json_object_get(set->at[i], keyword) != NULL;
    return is;
}

void schema_names_find(schema_compiler *c, const schema_set *set, const char *const *members,
                       uint32_t num_members, name_classes *out)
{
    const bool patterns = has(set, "patternProperties"), restricted = has(set, "propertyNames");
    name_class *all = &out->at[0];
    uint32_t kept = 0;
    out->count = 0;
    *all = (name_class){.kind = !restricted && !patterns ? num_members ? NAMES_OTHERS : NAMES_ANY
                                                         : NAMES_OWN};
    if (!patterns && schema_others_goal(c, set, 0) == NEVER) return;
    if (all->kind == NAMES_OTHERS) find_others(c, members, num_members);
    if (all->kind == NAMES_OWN && !allowed_others(c, set, members, num_members, &all->names))
        return;
    out->count = 1;
    if (patterns) divide_all(c, set, out);
    for (uint32_t i = 0; i < out->count; i++) {
        name_class k = out->at[i];
        k.goal = schema_failed(c) ? NEVER : schema_others_goal(c, set, k.matched);
        if (k.goal == NEVER)
            dfa_fini(&k.names);
        else
            out->at[kept++] = k;
    }
    out->count = kept;
}

nfa_frag schema_names_frag(schema_compiler *c, const name_class *k)
{
    return json_names(c->b, k->kind == NAMES_ANY      ? NULL
                            : k->kind == NAMES_OTHERS ? &c->others
                                                      : &k->names);
}

void schema_names_drop(name_classes *n)
{
    for (uint32_t i = 0; i < n->count; i++)
        dfa_fini(&n->at[i].names);
    n->count = 0;
}

bool schema_names_match(schema_compiler *c, const schema_set *set, const char *name)
{
    const char *expression;
    json_t *schema;
    bool matches = false;
    for (uint32_t i = 0; i < set->count; i++)
        json_object_foreach(json_object_get(set->at[i], "patternProperties"), expression, schema)
            matches = matches || schema_matches(c, expression, false, name, strlen(name));
    return matches;
}
