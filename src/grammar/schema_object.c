/* schema_object.c - objects: their members in order, with commas between, and how many. */
#include "grammar/schema_impl.h"

enum { MOST_LAYERS = 1000 };

typedef struct object_member {
    const char *name;
    bool required;
} object_member;

typedef struct object_maker {
    schema_compiler *c;
    const schema_merged *m;
    object_member *members;
    uint32_t num_members, cap_members, num_required;
    gr_slots by_name;
    uint32_t *nodes; /* [num_members + 1][layers + 1] */
    uint32_t cap_nodes, layers;
    bool bounded;
    name_classes *others;
} object_maker;

static uint64_t member_hash(const void *owner, uint32_t id)
{
    const char *name = ((const object_maker *)owner)->members[id].name;
    return gr_hash_text(name, strlen(name));
}

/* The member of this name, made if there is none; NULL: there is no memory. */
static object_member *find_member(object_maker *o, const char *name)
{
    gr_mem *mem = &o->c->b->mem;
    uint64_t h = gr_hash_text(name, strlen(name));
    if (!gr_slots_room(mem, &o->by_name, 0, o->num_members, member_hash, o)) return NULL;
    for (uint32_t id; (id = *gr_slot(&o->by_name, h)); h++) {
        gr_work(mem, 1);
        if (strcmp(o->members[id - 1].name, name) == 0) return &o->members[id - 1];
    }
    if (!GR_GROW(mem, o->members, o->cap_members, (uint64_t)o->num_members + 1)) return NULL;
    *gr_slot(&o->by_name, h) = ++o->num_members;
    o->members[o->num_members - 1] = (object_member){name, false};
    return &o->members[o->num_members - 1];
}

static void add_member(object_maker *o, const char *name, bool required)
{
    object_member *m = find_member(o, name);
    if (!m || !required || m->required) return;
    m->required = true;
    o->num_required++;
}

/* A name that no "properties" list, unless nothing allows such a one. */
static void add_other(object_maker *o, const char *name, bool others)
{
    if (name && (others || schema_names_match(o->c, o->m->set, name))) add_member(o, name, false);
}

/* What schema_lists_names has found. */
static void add_listed(object_maker *o, const json_t *names, bool others)
{
    size_t i;
    json_t *each;
    const json_t *only = json_object_get(names, "const"), *some = json_object_get(names, "enum");
    add_other(o, json_string_value(only), others);
    json_array_foreach((json_t *)some, i, each)
    {
        if (!only) add_other(o, json_string_value(each), others);
    }
    if (only || some) return;
    if (json_object_get(names, "$ref")) add_listed(o, schema_resolve(o->c, names), others);
    json_array_foreach(json_object_get(names, "anyOf"), i, each) add_listed(o, each, others);
}

/* Those of "properties", those that may be there beside by the names of "propertyNames", and those
 * that must be there. Whether "propertyNames" lists all there may be. */
static bool find_members(object_maker *o)
{
    const schema_set *set = o->m->set;
    const bool others = schema_others_goal(o->c, set, 0) != NEVER;
    const char *name;
    size_t k;
    json_t *value;
    bool listed = false;
    for (uint32_t i = 0; i < set->count && !schema_failed(o->c); i++)
        json_object_foreach(json_object_get(set->at[i], "properties"), name, value)
            add_member(o, name, false);
    for (uint32_t i = 0; i < set->count && !schema_failed(o->c); i++) {
        const json_t *names = json_object_get(set->at[i], "propertyNames");
        if (!names || !schema_lists_names(o->c, names, 0)) continue;
        listed = true;
        add_listed(o, names, others);
    }
    for (uint32_t i = 0; i < set->count && !schema_failed(o->c); i++)
        json_array_foreach(json_object_get(set->at[i], "required"), k, value)
            add_member(o, json_string_value(value), true);
    return listed;
}

static uint32_t *node(object_maker *o, uint32_t member, uint32_t layer)
{
    return &o->nodes[(size_t)member * (o->layers + 1) + layer];
}

/* From where there are so many members into the next one: behind a comma, or as the first. */
static void lead_to(object_maker *o, uint32_t member, uint32_t layer, nfa_frag next)
{
    gr_builder *b = o->c->b;
    nfa_frag before = layer ? json_mark(b, JSON_COMMA, ',') : json_lead(b);
    nfa_empty(&b->n, *node(o, member, layer), before.in);
    nfa_empty(&b->n, before.out, next.in);
}

static nfa_frag member_frag(object_maker *o, uint32_t member, uint32_t goal, const name_class *k)
{
    gr_builder *b = o->c->b;
    nfa *n = &b->n;
    nfa_frag f = k ? schema_names_frag(o->c, k) : json_name(b, o->members[member].name);
    f = nfa_concat(n, f, json_mark(b, JSON_COLON, ':'));
    return nfa_concat(n, f, schema_goal_frag(o->c, goal));
}

/* All ways to write this member (or, behind the last one, another of class k) in each layer. */
static void put_member(object_maker *o, uint32_t member, uint32_t goal, const name_class *k)
{
    nfa *n = &o->c->b->n;
    for (uint32_t to = 1; to <= o->layers && !schema_failed(o->c); to++) {
        nfa_frag f = member_frag(o, member, goal, k);
        lead_to(o, member, to - 1, f);
        if (to == o->layers && !o->bounded) lead_to(o, member, to, f);
        nfa_empty(n, f.out, *node(o, k ? member : member + 1, to));
    }
}

/* From `in`, behind the {, to `out`. */
static void put_members(object_maker *o, uint64_t least, uint32_t in, uint32_t out)
{
    gr_builder *b = o->c->b;
    nfa *n = &b->n;
    const uint64_t count = ((uint64_t)o->num_members + 1) * (o->layers + 1);
    if (schema_failed(o->c) || !GR_GROW(&b->mem, o->nodes, o->cap_nodes, count)) return;
    for (uint64_t i = 0; i < count; i++)
        o->nodes[i] = nfa_state(n);
    nfa_empty(n, in, *node(o, 0, 0));
    for (uint32_t i = 0; i < o->num_members && !schema_failed(o->c); i++) {
        put_member(o, i, schema_property_goal(o->c, o->m->set, o->members[i].name), NULL);
        for (uint32_t k = 0; k <= o->layers && !o->members[i].required; k++)
            nfa_empty(n, *node(o, i, k), *node(o, i + 1, k));
    }
    for (uint32_t i = 0; i < o->others->count; i++)
        put_member(o, o->num_members, o->others->at[i].goal, &o->others->at[i]);
    for (uint32_t k = 0; k <= o->layers && !schema_failed(o->c); k++) {
        if (k < least) continue;
        nfa_frag close = json_mark(b, JSON_CLOSE, '}');
        nfa_empty(n, *node(o, o->num_members, k), close.in);
        nfa_empty(n, close.out, out);
    }
}

/* Whether all there may be are members now, by the names that "propertyNames" lists. */
static void find_others(object_maker *o)
{
    schema_compiler *c = o->c;
    const char **names = NULL;
    uint32_t cap = 0;
    if (!find_members(o) && !schema_failed(c) &&
        (!o->num_members || GR_GROW(&c->b->mem, names, cap, o->num_members))) {
        for (uint32_t i = 0; i < o->num_members; i++)
            names[i] = o->members[i].name;
        schema_names_find(c, o->m->set, names, o->num_members, o->others);
    }
    GR_DROP(&c->b->mem, names, cap);
}

nfa_frag schema_object_frag(schema_compiler *c, const schema_merged *m)
{
    gr_builder *b = c->b;
    gr_mem *mem = &b->mem;
    object_maker o = {.c = c, .m = m, .others = rad_alloc(&mem->env, sizeof *o.others)};
    nfa_frag f = json_mark(b, JSON_OPEN, '{');
    uint32_t out = nfa_state(&b->n);
    if (!o.others) {
        gr_fail(mem, RAD_E_NOMEM, "no memory for a grammar");
        return f;
    }
    o.others->count = 0;
    find_others(&o);
    const bool others = o.others->count > 0;
    uint64_t least = m->min_members > o.num_required ? m->min_members : 0;
    o.bounded = m->max_members != UINT64_MAX && (others || m->max_members < o.num_members);
    if (least > o.num_required + 1u && others) /* others may have one name twice */
        gr_fail(mem, RAD_E_UNSUPPORTED,
                "\"minProperties\" is served where it is reached by properties that are listed");
    uint64_t layers = o.bounded ? m->max_members : RAD_MAX(least, 1u);
    if (layers > MOST_LAYERS || layers < least) {
        if (layers > MOST_LAYERS)
            gr_fail(mem, RAD_E_LIMIT, "\"%sProperties\": more than %d is not served",
                    o.bounded ? "max" : "min", MOST_LAYERS);
        layers = 0;
        least = UINT64_MAX; /* nothing has both */
    }
    o.layers = (uint32_t)layers;
    put_members(&o, least, f.out, out);
    GR_DROP(mem, o.members, o.cap_members);
    GR_DROP(mem, o.nodes, o.cap_nodes);
    gr_slots_drop(mem, &o.by_name);
    schema_names_drop(o.others);
    rad_free(&mem->env, o.others, sizeof *o.others);
    f.out = out;
    return f;
}
