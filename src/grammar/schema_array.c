/* schema_array.c - arrays: their items in order, with commas between, and how many.
 *
 * Items that must differ ("uniqueItems") are served where each can be one of few values: a state
 * then is the set of values that were said. */
#include "grammar/schema_impl.h"

/* MOST_SETS: 10 values in any number of items, 20 in up to 3. */
enum { MOST_VALUES = 64, MOST_SETS = 1400 };

/* ---- items that differ ---- */

static bool add_value(schema_expansion *x, json_t *value)
{
    size_t i;
    json_t *each;
    json_array_foreach(x->values, i, each)
    {
        if (schema_equal(x->c, each, value)) return true;
    }
    x->many = json_array_size(x->values) == MOST_VALUES;
    if (!x->many && json_array_append(x->values, value))
        gr_fail(&x->c->b->mem, RAD_E_NOMEM, "no memory for a grammar");
    return !x->many && !schema_failed(x->c);
}

/* False: it is none of 15 digits. */
static bool integer_of(const decimal *d, bool up, json_int_t *out)
{
    json_int_t n = 0;
    if (d->num_whole > 15) return false;
    for (unsigned i = 0; i < d->num_whole; i++)
        n = n * 10 + (d->whole[i] - '0');
    if (d->negative) n = -n;
    if (d->num_part && up && !d->negative) n++;
    if (d->num_part && !up && d->negative) n--;
    *out = n;
    return true;
}

static bool add_integers(schema_expansion *x, const schema_merged *m)
{
    json_int_t low, high;
    x->many = !m->bounds.has_low || !m->bounds.has_high ||
              !integer_of(&m->bounds.low, true, &low) ||
              !integer_of(&m->bounds.high, false, &high) || high - low > 10 * MOST_VALUES;
    for (json_int_t i = x->many ? 0 : low; !x->many && i <= high; i++) {
        json_t *value = json_integer(i);
        const bool ok = value && (!schema_all_allow(x->c, m, value) || add_value(x, value));
        json_decref(value);
        if (!ok) return false;
    }
    return !x->many;
}

static bool visit_values(schema_expansion *x, const schema_merged *m)
{
    size_t i;
    json_t *value;
    if (m->only) return !schema_all_allow(x->c, m, m->only) || add_value(x, (json_t *)m->only);
    if (m->values) {
        json_array_foreach((json_t *)m->values, i, value)
        {
            if (schema_all_allow(x->c, m, value) && !add_value(x, value)) return false;
        }
        return true;
    }
    x->many = m->types & (IS_FRACTION | IS_STRING | IS_ARRAY | IS_OBJECT);
    if (x->many) return false;
    if (m->types & IS_NULL && !add_value(x, json_null())) return false;
    if (m->types & IS_BOOLEAN && (!add_value(x, json_true()) || !add_value(x, json_false())))
        return false;
    return !(m->types & IS_INTEGER) || add_integers(x, m);
}

/* Which of `values` a goal has, as bits; those that are new come behind. False: they are many. */
static bool list_values(schema_compiler *c, uint32_t goal, json_t *values, uint64_t *bits)
{
    schema_expansion x = {.visit = visit_values, .values = json_array()};
    bool many = goal == ANYTHING;
    size_t i;
    json_t *each;
    *bits = 0;
    if (!x.values) gr_fail(&c->b->mem, RAD_E_NOMEM, "no memory for a grammar");
    if (goal < ANYTHING && !schema_failed(c)) {
        schema_visit_goal(c, &x, goal);
        many = x.many;
    }
    json_array_foreach(x.values, i, each)
    {
        size_t k = 0;
        while (k < json_array_size(values) && !schema_equal(c, json_array_get(values, k), each))
            k++;
        many |= k == MOST_VALUES;
        if (many) break;
        if (k == json_array_size(values) && json_array_append(values, each))
            gr_fail(&c->b->mem, RAD_E_NOMEM, "no memory for a grammar");
        *bits |= (uint64_t)1 << k;
    }
    json_decref(x.values);
    return !many;
}

/* From `at`, behind the [, to `out`. *few: no item can have many values, and it was made. */
static void put_sets(schema_compiler *c, const schema_merged *m, uint64_t prefix, uint32_t at,
                     uint32_t out, bool *few)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    uint64_t bits[MOST_VALUES + 1] = {0}, last = RAD_MIN(prefix, (uint64_t)MOST_VALUES);
    json_t *values = json_array();
    gr_keys sets;
    uint32_t *nodes = NULL, cap_nodes = 0;
    keys_init(&sets, &b->mem);
    for (uint64_t i = 0; i <= last && *few; i++)
        *few = list_values(c, schema_item_goal(c, m->set, i), values, &bits[i]);
    keys_add(&sets, 0);
    if (*few && GR_GROW(&b->mem, nodes, cap_nodes, 1)) nodes[0] = at;
    for (uint32_t s = 0; s < sets.count && *few && !schema_failed(c); s++) {
        const uint64_t said = sets.key[s], count = (uint64_t)__builtin_popcountll(said);
        uint64_t left = count < m->max_items ? bits[RAD_MIN(count, last)] & ~said : 0;
        if (count >= m->min_items) {
            nfa_frag close = json_mark(b, JSON_CLOSE, ']');
            nfa_empty(n, nodes[s], close.in);
            nfa_empty(n, close.out, out);
        }
        for (; left && *few && !schema_failed(c); left &= left - 1) {
            const unsigned k = (unsigned)__builtin_ctzll(left);
            nfa_frag item = count ? json_mark(b, JSON_COMMA, ',') : json_lead(b);
            item = nfa_concat(n, item, json_literal(b, json_array_get(values, k)));
            nfa_empty(n, nodes[s], item.in);
            const uint32_t before = sets.count;
            const uint32_t to = keys_add(&sets, said | (uint64_t)1 << k);
            *few = sets.count <= MOST_SETS;
            if (!GR_GROW(&b->mem, nodes, cap_nodes, sets.count)) break;
            if (sets.count > before) nodes[to] = nfa_state(n);
            nfa_empty(n, item.out, nodes[to]);
        }
    }
    GR_DROP(&b->mem, nodes, cap_nodes);
    keys_fini(&sets);
    json_decref(values);
}

static nfa_frag unique_frag(schema_compiler *c, const schema_merged *m, uint64_t prefix)
{
    nfa_frag f = json_mark(c->b, JSON_OPEN, '[');
    const uint32_t out = nfa_state(&c->b->n);
    bool few = true;
    put_sets(c, m, prefix, f.out, out, &few);
    if (!few)
        gr_fail(&c->b->mem, RAD_E_UNSUPPORTED,
                "\"uniqueItems\" is served where an item has few values, as by \"enum\": 10, and "
                "more where \"maxItems\" is small");
    f.out = out;
    return f;
}

/* ---- all items ---- */

/* Items beyond the first `from`, which all have one goal, and the bracket. */
static nfa_frag more_items(schema_compiler *c, uint64_t from, uint64_t min, uint64_t max,
                           uint32_t goal)
{
    gr_builder *b = c->b;
    const uint32_t least = min > from ? (uint32_t)(min - from) : 0;
    nfa_frag item = json_mark(b, JSON_COMMA, ',');
    item = nfa_concat(&b->n, item, schema_goal_frag(c, goal));
    const uint32_t rule =
        builder_repeat(b, item, least, max == UINT64_MAX ? NO_END : (uint32_t)(max - from));
    nfa_frag f = nfa_rule(&b->n, rule);
    return nfa_concat(&b->n, f, json_mark(b, JSON_CLOSE, ']'));
}

/* States by how many items there are so far, up to where the count says nothing new, or the rest is
 * counted. */
nfa_frag schema_array_frag(schema_compiler *c, const schema_merged *m)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    uint64_t prefix = schema_prefix_length(m->set), most = m->max_items;
    if (m->unique && most > 1) return unique_frag(c, m, prefix);
    nfa_frag f = json_mark(b, JSON_OPEN, '[');
    uint32_t out = nfa_state(n), at = f.out;
    for (uint64_t i = 0; i < prefix && i < most; i++) /* no more than can have a value */
        if (schema_item_goal(c, m->set, i) == NEVER) most = i;
    if (most > prefix && schema_item_goal(c, m->set, prefix) == NEVER) most = prefix;
    bool bounded = most != UINT64_MAX;
    uint64_t last = bounded ? most : RAD_MAX(m->min_items, prefix) + 1,
             counted = RAD_MAX(prefix, 1);
    if (m->min_items > most) last = 0; /* no text */
    const bool counts =
        last > counted &&
        builder_counts(b, m->min_items, bounded ? most - counted : UINT64_MAX, COUNTED_PARTS);
    for (uint64_t i = 0; i <= last && !schema_failed(c); i++) {
        if (i == counted && counts) {
            nfa_frag rest =
                more_items(c, i, m->min_items, most, schema_item_goal(c, m->set, prefix));
            nfa_empty(n, at, rest.in);
            nfa_empty(n, rest.out, out);
            break;
        }
        if (i >= m->min_items) {
            nfa_frag close = json_mark(b, JSON_CLOSE, ']');
            nfa_empty(n, at, close.in);
            nfa_empty(n, close.out, out);
        }
        if (i == last && bounded) break;
        nfa_frag item = i ? json_mark(b, JSON_COMMA, ',') : json_lead(b);
        uint32_t goal = schema_item_goal(c, m->set, RAD_MIN(i, prefix));
        item = nfa_concat(n, item, schema_goal_frag(c, goal));
        nfa_empty(n, at, item.in);
        if (i == last)
            nfa_empty(n, item.out, at);
        else
            at = item.out;
    }
    f.out = out;
    return f;
}
