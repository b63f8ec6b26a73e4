/* schema_empty.c - whether any value satisfies a set of schemas.
 *
 * "Empty" is shown, never guessed: a type is left, or a number, a text, an array without items.
 * What is nested too deep to be looked at counts as not empty. */
#include "grammar/schema_impl.h"

enum { MOST_NESTED = 100 };

static bool goal_is_empty(schema_compiler *c, uint32_t goal);

static bool number_is_empty(schema_compiler *c, const schema_merged *m, bool integer)
{
    number_bounds bounds = m->bounds;
    dfa d;
    bounds.integer = integer;
    if (!number_dfa(c->b, &bounds, &d)) return false;
    bool never = dfa_is_never(&d);
    dfa_fini(&d);
    return never;
}

static bool string_is_empty(schema_compiler *c, const schema_merged *m)
{
    dfa d;
    if (!m->num_texts) return m->min_length > m->max_length;
    if (!schema_string_dfa(c, m, &d)) return false;
    bool never = dfa_is_never(&d);
    dfa_fini(&d);
    return never;
}

static bool array_is_empty(schema_compiler *c, const schema_merged *m)
{
    uint64_t prefix = schema_prefix_length(m->set);
    if (m->min_items > m->max_items) return true;
    for (uint64_t i = 0; i < m->min_items && i <= prefix; i++)
        if (goal_is_empty(c, schema_item_goal(c, m->set, i))) return true;
    return false;
}

static bool object_is_empty(schema_compiler *c, const schema_merged *m)
{
    if (m->min_members > m->max_members) return true;
    for (uint32_t i = 0; i < m->set->count; i++) {
        size_t k;
        json_t *name;
        const json_t *required = json_object_get(m->set->at[i], "required");
        if (json_array_size(required) > m->max_members) return true;
        json_array_foreach((json_t *)required, k, name)
        {
            if (goal_is_empty(c, schema_property_goal(c, m->set, json_string_value(name))))
                return true;
        }
    }
    return false;
}

static bool is_empty(schema_compiler *c, const schema_merged *m)
{
    size_t i;
    json_t *value;
    if (m->only) return !schema_all_allow(c, m, m->only);
    if (m->values) {
        json_array_foreach((json_t *)m->values, i, value)
        {
            if (schema_all_allow(c, m, value)) return false;
        }
        return true;
    }
    if (m->types & (IS_NULL | IS_BOOLEAN)) return false;
    if (m->types & IS_INTEGER && !number_is_empty(c, m, true)) return false;
    if (m->types & IS_FRACTION && !number_is_empty(c, m, false)) return false;
    if (m->types & IS_STRING && !string_is_empty(c, m)) return false;
    if (m->types & IS_ARRAY && !array_is_empty(c, m)) return false;
    return !(m->types & IS_OBJECT) || object_is_empty(c, m);
}

static bool visit_empty(schema_expansion *x, const schema_merged *m)
{
    x->has_values |= !is_empty(x->c, m);
    return !x->has_values;
}

/* Whether nothing satisfies all of them. */
static bool set_is_empty(schema_compiler *c, const json_t *const *at, uint32_t count)
{
    schema_expansion *x = rad_alloc(&c->b->mem.env, sizeof *x);
    if (!x) {
        gr_fail(&c->b->mem, RAD_E_NOMEM, "no memory for a grammar");
        return false;
    }
    x->c = c;
    x->visit = visit_empty;
    schema_visit(x, at, count);
    bool empty = !schema_failed(c) && !x->has_values;
    rad_free(&c->b->mem.env, x, sizeof *x);
    return empty;
}

static bool goal_is_empty(schema_compiler *c, uint32_t goal)
{
    if (goal == NEVER || goal == ANYTHING) return goal == NEVER;
    if (c->goals[goal].empty) return c->goals[goal].empty == 3;
    if (c->depth >= MOST_NESTED) return false; /* not shown to be */
    c->depth++;
    c->goals[goal].empty = 1;
    const schema_goal *g = &c->goals[goal];
    bool empty = set_is_empty(c, c->members + g->first, g->count);
    c->goals[goal].empty = empty ? 3 : c->num_undecided ? 0 : 2;
    c->depth--;
    return empty;
}

bool schema_branches_apart(schema_compiler *c, const json_t *schema, const json_t *branches)
{
    size_t n = json_array_size(branches);
    gr_mem *mem = &c->b->mem;
    if (keys_find(&c->checked, (uintptr_t)branches) != NO_KEY) return true;
    keys_add(&c->checked, (uintptr_t)branches);
    if (c->num_undecided == RAD_COUNT(c->undecided)) {
        gr_fail(mem, RAD_E_LIMIT, "\"oneOf\" is nested too deep");
        return false;
    }
    c->undecided[c->num_undecided++] = schema;
    for (size_t i = 0; i < n && !schema_failed(c); i++) {
        for (size_t k = i + 1; k < n && !schema_failed(c); k++) {
            const json_t *at[] = {schema, json_array_get(branches, i), json_array_get(branches, k)};
            if (set_is_empty(c, at, 3) || schema_failed(c)) continue;
            gr_fail(mem, RAD_E_UNSUPPORTED,
                    "\"oneOf\": branches %zu and %zu may hold for one value (anyOf is served)", i,
                    k);
        }
    }
    c->num_undecided--;
    return !schema_failed(c);
}
