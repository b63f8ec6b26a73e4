/* schema.c - a JSON Schema becomes rules, one for each set of schemas that must hold at once.
 *
 * Such a set is a goal. Expanding it follows $ref and allOf, which add schemas to the set, and then
 * takes each way through its anyOf and oneOf, of which one branch each joins the set. What is left
 * are plain keywords: they are united (the highest minimum, all patterns ...), and each type that
 * is still possible becomes a fragment. Where a value has parts, the schemas that the members of
 * the set have for a part are a goal again; equal sets are one goal, so recursion by $ref ends, and
 * becomes recursion of rules.
 *
 * oneOf is anyOf where no two branches have a value in common. That is so if the goal of the schema
 * with both has no value: no type is left, or no number or text, or a property that is required can
 * have none. What cannot be shown to be empty is refused (schema_empty.c). */
#include "grammar/schema_impl.h"

#include "base/json_look.h"

/* ---- expanding a set ---- */

bool schema_join(schema_expansion *x, const json_t *schema)
{
    schema_compiler *c = x->c;
    uint32_t before = x->set.count;
    size_t i;
    json_t *each;
    if (!schema_hold(c, &x->set, schema)) return false;
    if (x->set.count == before || schema_failed(c)) return true; /* it is there */
    if (json_object_get(schema, "$ref")) {
        const json_t *target = schema_resolve(c, schema);
        if (target && !schema_join(x, target)) return false;
    }
    json_array_foreach(json_object_get(schema, "allOf"), i, each)
    {
        if (!schema_join(x, each)) return false;
    }
    return true;
}

bool schema_expand(schema_expansion *x, uint32_t at, unsigned choice)
{
    schema_compiler *c = x->c;
    for (; at < x->set.count && !schema_failed(c); at++, choice = 0) {
        const json_t *schema = x->set.at[at];
        for (; choice < 2; choice++) {
            const json_t *branches = json_object_get(schema, choice ? "oneOf" : "anyOf");
            bool undecided = false;
            for (uint32_t i = 0; choice && i < c->num_undecided; i++)
                undecided |= c->undecided[i] == schema;
            if (!branches || undecided) continue;
            if (choice && !schema_branches_apart(c, schema, branches)) return false;
            uint32_t before = x->set.count;
            size_t i;
            json_t *branch;
            json_array_foreach((json_t *)branches, i, branch)
            {
                if (schema_join(x, branch) && !schema_expand(x, at, choice + 1)) return false;
                if (schema_failed(c)) return false;
                x->set.count = before;
            }
            return true;
        }
    }
    if (schema_failed(c)) return false;
    if (++x->ways > SCHEMA_MOST_BRANCHES) {
        gr_fail(&c->b->mem, RAD_E_LIMIT, "anyOf and oneOf have more than %d combinations",
                SCHEMA_MOST_BRANCHES);
        return false;
    }
    schema_merged m;
    schema_merge(c, &x->set, &m);
    return !schema_failed(c) && x->visit(x, &m);
}

void schema_visit(schema_expansion *x, const json_t *const *at, uint32_t count)
{
    bool possible = true;
    for (uint32_t i = 0; i < count && possible; i++)
        possible = schema_join(x, at[i]);
    if (possible && !schema_failed(x->c)) schema_expand(x, 0, 0);
}

void schema_visit_goal(schema_compiler *c, schema_expansion *x, uint32_t goal)
{
    const schema_goal *g = &c->goals[goal];
    x->c = c;
    schema_visit(x, c->members + g->first, g->count);
}

/* ---- fragments ---- */

nfa_frag schema_goal_frag(schema_compiler *c, uint32_t goal)
{
    nfa *n = &c->b->n;
    if (goal == NEVER || schema_failed(c)) return nfa_never(n);
    return nfa_rule(n, goal == ANYTHING ? json_value_rule(c->b) : c->goals[goal].rule);
}

static nfa_frag number_frag(schema_compiler *c, const schema_merged *m)
{
    gr_builder *b = c->b;
    number_bounds bounds = m->bounds;
    bounds.integer = !(m->types & IS_FRACTION);
    if (!bounds.has_low && !bounds.has_high && !bounds.has_step)
        return nfa_rule(&b->n, json_number_rule(b, bounds.integer));
    dfa d;
    if (!number_dfa(b, &bounds, &d)) return nfa_never(&b->n);
    nfa_frag f = dfa_embed(&b->n, &d);
    dfa_fini(&d);
    return f;
}

static void put_way(schema_expansion *x, nfa_frag f)
{
    nfa_empty(&x->c->b->n, x->in, f.in);
    nfa_empty(&x->c->b->n, f.out, x->out);
}

static bool visit_frag(schema_expansion *x, const schema_merged *m)
{
    schema_compiler *c = x->c;
    gr_builder *b = c->b;
    size_t i;
    json_t *value;
    const unsigned types = c->bare ? m->types & IS_STRING : m->types;
    if (m->bare && !c->bare) {
        put_way(x, nfa_rule(&b->n, json_value_rule(b)));
    } else if (m->only) {
        if (schema_all_allow(c, m, m->only)) put_way(x, schema_value_frag(c, m->only));
    } else if (m->values) {
        json_array_foreach((json_t *)m->values, i, value)
        {
            if (schema_all_allow(c, m, value)) put_way(x, schema_value_frag(c, value));
        }
    } else {
        if (types & IS_NULL) put_way(x, nfa_text(&b->n, json_word(b, JSON_NULL)));
        if (types & IS_BOOLEAN) put_way(x, nfa_text(&b->n, json_word(b, JSON_TRUE)));
        if (types & IS_BOOLEAN) put_way(x, nfa_text(&b->n, json_word(b, JSON_FALSE)));
        if (types & (IS_INTEGER | IS_FRACTION)) put_way(x, number_frag(c, m));
        if (types & IS_STRING) put_way(x, schema_string_frag(c, m));
        if (types & IS_ARRAY) put_way(x, schema_array_frag(c, m));
        if (types & IS_OBJECT) put_way(x, schema_object_frag(c, m));
    }
    return !schema_failed(c);
}

static void make_goal(schema_compiler *c, uint32_t goal)
{
    nfa_frag all = nfa_never(&c->b->n);
    schema_expansion x = {.visit = visit_frag, .in = all.in, .out = all.out};
    schema_visit_goal(c, &x, goal);
    if (!schema_failed(c)) builder_define(c->b, c->goals[goal].rule, all);
}

/* ---- documents ---- */

static void compiler_fini(schema_compiler *c)
{
    gr_mem *mem = &c->b->mem;
    for (uint32_t i = 0; i < c->num_patterns; i++)
        dfa_fini(&c->patterns[i].texts);
    if (c->has_any_name) dfa_fini(&c->any_name);
    dfa_fini(&c->others);
    GR_DROP(mem, c->others_names, c->cap_others_names);
    GR_DROP(mem, c->patterns, c->cap_patterns);
    GR_DROP(mem, c->members, c->cap_members);
    GR_DROP(mem, c->goals, c->cap_goals);
    gr_slots_drop(mem, &c->by_hash);
    gr_slots_drop(mem, &c->pattern_of);
    GR_DROP(mem, c->strings, c->cap_strings);
    keys_fini(&c->lengths);
    keys_fini(&c->checked);
}

/* The document as a tree, whose size counts as memory of the compilation until release_json. */
static json_t *parse(gr_builder *b, const char *text, size_t len, uint64_t *bytes)
{
    json_look look;
    json_error_t where;
    gr_mem *mem = &b->mem;
    json_look_at(&look, text, len);
    *bytes = json_look_bytes(&look);
    if (*bytes > mem->limit || mem->used > mem->limit - *bytes) {
        *bytes = 0;
        gr_fail(mem, RAD_E_LIMIT, "as JSON it takes more than %llu MiB",
                (unsigned long long)(mem->limit >> 20));
        return NULL;
    }
    mem->used += *bytes;
    mem->peak = RAD_MAX(mem->peak, mem->used);
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
    if (!json)
        gr_fail(mem, RAD_E_INVAL, "at byte %d: this is no JSON: %.100s", where.position,
                where.text);
    return json;
}

static void release_json(gr_builder *b, json_t *json, uint64_t bytes)
{
    json_decref(json);
    b->mem.used -= bytes;
}

/* barred, bare: as schema_compiler has them. */
static rad_status build(gr_builder *b, const char *text, size_t len, const dfa *barred, bool bare,
                        uint32_t *root)
{
    uint64_t bytes;
    schema_compiler c = {.b = b,
                         .root = parse(b, text, len, &bytes),
                         .form = barred ? CHARS_UTF8 : CHARS_JSON,
                         .barred = barred,
                         .bare = bare};
    schema_set set = {.count = 0};
    uint32_t goal = NEVER;
    keys_init(&c.checked, &b->mem);
    keys_init(&c.lengths, &b->mem);
    if (!schema_failed(&c) && schema_check(&c, c.root) && schema_hold(&c, &set, c.root))
        goal = schema_goal_of(&c, &set);
    if (goal == ANYTHING && !bare) {
        *root = json_value_rule(b);
    } else if (goal == NEVER) {
        gr_fail(&b->mem, RAD_E_INVAL, "no text has this form");
    } else {
        *root = c.goals[goal].rule;
        for (uint32_t i = 0; i < c.num_goals && !schema_failed(&c); i++)
            make_goal(&c, i);
    }
    compiler_fini(&c);
    release_json(b, c.root, bytes);
    return b->mem.status;
}

rad_status schema_build(gr_builder *b, const char *text, size_t len, uint32_t *root)
{
    return build(b, text, len, b->marks ? &b->marks->barred : NULL, false, root);
}

rad_status schema_build_text(gr_builder *b, const char *text, size_t len, const dfa *barred,
                             uint32_t *root)
{
    return build(b, text, len, barred, true, root);
}

rad_status choice_build(gr_builder *b, const char *text, size_t len, uint32_t *root)
{
    uint64_t bytes;
    json_t *list = parse(b, text, len, &bytes), *item;
    nfa *n = &b->n;
    size_t i;
    if (!b->mem.status && (!json_is_array(list) || !json_array_size(list)))
        gr_fail(&b->mem, RAD_E_INVAL, "a choice is a list of texts");
    nfa_frag all = nfa_never(n);
    json_array_foreach(list, i, item)
    {
        if (!json_is_string(item)) gr_fail(&b->mem, RAD_E_INVAL, "a choice is a list of texts");
        if (b->mem.status) break;
        nfa_frag f =
            chars_literal(n, json_string_value(item), json_string_length(item), CHARS_UTF8);
        nfa_empty(n, all.in, f.in);
        nfa_empty(n, f.out, all.out);
    }
    *root = builder_rule(b);
    builder_define(b, *root, all);
    release_json(b, list, bytes);
    return b->mem.status;
}
