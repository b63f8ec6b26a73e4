/* schema_object.c - arrays and objects: their parts in order, with commas between, and how many. */
#include "grammar/schema_impl.h"

enum { MOST_LAYERS = 1000 };

/* States by how many items there are so far, up to where the count says nothing new. */
nfa_frag schema_array_frag(schema_compiler *c, const schema_merged *m)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    uint64_t prefix = schema_prefix_length(m->set), most = m->max_items;
    nfa_frag f = json_mark(b, JSON_OPEN, '[');
    uint32_t out = nfa_state(n), at = f.out;
    for (uint64_t i = 0; i < prefix && i < most; i++) /* no more than can have a value */
        if (schema_item_goal(c, m->set, i) == NEVER) most = i;
    if (most > prefix && schema_item_goal(c, m->set, prefix) == NEVER) most = prefix;
    bool bounded = most != UINT64_MAX;
    uint64_t last = bounded ? most : RAD_MAX(m->min_items, prefix) + 1;
    if (last > SCHEMA_MOST_LENGTH) {
        gr_fail(&b->mem, RAD_E_LIMIT, "\"maxItems\": more than %d is not served",
                SCHEMA_MOST_LENGTH);
        return f;
    }
    for (uint64_t i = 0; i <= last && !schema_failed(c); i++) {
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

typedef struct object_member {
    const char *name;
    bool required;
} object_member;

typedef struct object_maker {
    schema_compiler *c;
    const schema_merged *m;
    object_member *members;
    uint32_t num_members, cap_members, num_required;
    gr_keys by_name; /* hashes, unequal ones in the next place */
    uint32_t *nodes; /* [num_members + 1][layers + 1] */
    uint32_t cap_nodes, layers;
    bool bounded;
} object_maker;

static uint64_t name_hash(const char *name)
{
    uint64_t h = 14695981039346656037u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 1099511628211u;
    return h;
}

static void add_member(object_maker *o, const char *name, bool required)
{
    gr_mem *mem = &o->c->b->mem;
    uint64_t h = name_hash(name);
    uint32_t id;
    while ((id = keys_find(&o->by_name, h)) != NO_KEY && strcmp(o->members[id].name, name) != 0)
        h++;
    if (id == NO_KEY) {
        id = keys_add(&o->by_name, h);
        if (mem->status || !GR_GROW(mem, o->members, o->cap_members, (uint64_t)id + 1)) return;
        o->members[id] = (object_member){name, false};
        o->num_members = id + 1;
    }
    if (required && !o->members[id].required) {
        o->members[id].required = true;
        o->num_required++;
    }
}

/* What schema_lists_names has found. */
static void add_listed(object_maker *o, const json_t *names)
{
    size_t i;
    json_t *each;
    const json_t *only = json_object_get(names, "const"), *some = json_object_get(names, "enum");
    if (json_is_string(only)) add_member(o, json_string_value(only), false);
    json_array_foreach((json_t *)some, i, each)
    {
        if (!only && json_is_string(each)) add_member(o, json_string_value(each), false);
    }
    if (only || some) return;
    if (json_object_get(names, "$ref")) add_listed(o, schema_resolve(o->c, names));
    json_array_foreach(json_object_get(names, "anyOf"), i, each) add_listed(o, each);
}

/* Those of "properties", those that may be there beside by the names of "propertyNames", and those
 * that must be there. Whether "propertyNames" lists all there may be. */
static bool find_members(object_maker *o, uint32_t others)
{
    const schema_set *set = o->m->set;
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
        if (others != NEVER) add_listed(o, names);
    }
    for (uint32_t i = 0; i < set->count && !schema_failed(o->c); i++)
        json_array_foreach(json_object_get(set->at[i], "required"), k, value)
            add_member(o, json_string_value(value), true);
    return listed;
}

/* All names that every "propertyNames" allows, each written in one way. */
static bool all_names(object_maker *o, dfa *d)
{
    schema_compiler *c = o->c;
    schema_set set = {.count = 0};
    schema_merged m;
    for (uint32_t i = 0; i < o->m->set->count; i++)
        (void)schema_hold(c, &set, json_object_get(o->m->set->at[i], "propertyNames"));
    schema_merge(c, &set, &m);
    m.one_way = true;
    return !schema_failed(c) && schema_string_dfa(c, &m, d);
}

/* Of these names all that no member has. */
static bool without_members(object_maker *o, const dfa *from, dfa *out)
{
    schema_compiler *c = o->c;
    gr_builder *b = c->b;
    nfa names;
    dfa listed = {0};
    nfa_init(&names, &b->mem, b->n.bytes);
    nfa_frag all = nfa_never(&names);
    for (uint32_t i = 0; i < o->num_members && !schema_failed(c); i++) {
        const char *name = o->members[i].name;
        nfa_frag each = chars_literal(&names, name, strlen(name), CHARS_JSON);
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
static bool has_others(const object_maker *o)
{
    const schema_compiler *c = o->c;
    bool same = c->others.mem && c->num_others_names == o->num_members;
    for (uint32_t i = 0; i < o->num_members && same; i++)
        same = strcmp(c->others_names[i], o->members[i].name) == 0;
    return same;
}

/* c->others become those of this object. */
static void find_others(object_maker *o)
{
    schema_compiler *c = o->c;
    if (has_others(o)) return;
    dfa_fini(&c->others);
    if (!c->has_any_name) c->has_any_name = all_names(o, &c->any_name);
    if (!c->has_any_name || !without_members(o, &c->any_name, &c->others) ||
        !GR_GROW(&c->b->mem, c->others_names, c->cap_others_names, o->num_members))
        return;
    for (uint32_t i = 0; i < o->num_members; i++)
        c->others_names[i] = o->members[i].name;
    c->num_others_names = o->num_members;
}

/* Names that no member has, with the closing quote. */
static nfa_frag other_name(object_maker *o)
{
    schema_compiler *c = o->c;
    nfa *n = &c->b->n;
    bool restricted = false;
    for (uint32_t i = 0; i < o->m->set->count; i++)
        restricted |= json_object_get(o->m->set->at[i], "propertyNames") != NULL;
    if (!o->num_members && !restricted) return nfa_rule(n, json_string_rule(c->b));
    nfa_frag f = nfa_never(n);
    if (restricted) {
        dfa own = {0}, others = {0};
        if (all_names(o, &own) && without_members(o, &own, &others)) f = dfa_embed(n, &others);
        dfa_fini(&own);
        dfa_fini(&others);
    } else {
        find_others(o);
        if (!schema_failed(c)) f = dfa_embed(n, &c->others);
    }
    return nfa_concat(n, f, nfa_text(n, "\""));
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

static nfa_frag member_frag(object_maker *o, uint32_t member, uint32_t goal)
{
    gr_builder *b = o->c->b;
    nfa *n = &b->n;
    nfa_frag f = nfa_text(&b->n, "\"");
    if (member < o->num_members) {
        const char *name = o->members[member].name;
        f = nfa_concat(n, f, chars_literal(n, name, strlen(name), CHARS_JSON));
        f = nfa_concat(n, f, nfa_text(&b->n, "\""));
    } else {
        f = nfa_concat(n, f, other_name(o));
    }
    f = nfa_concat(n, f, json_mark(b, JSON_COLON, ':'));
    return nfa_concat(n, f, schema_goal_frag(o->c, goal));
}

/* All ways to write this member (or, behind the last one, another) in each layer. */
static void put_member(object_maker *o, uint32_t member, uint32_t goal)
{
    nfa *n = &o->c->b->n;
    bool listed = member < o->num_members;
    for (uint32_t to = 1; to <= o->layers && !schema_failed(o->c); to++) {
        nfa_frag f = member_frag(o, member, goal);
        lead_to(o, member, to - 1, f);
        if (to == o->layers && !o->bounded) lead_to(o, member, to, f);
        nfa_empty(n, f.out, *node(o, listed ? member + 1 : member, to));
    }
}

nfa_frag schema_object_frag(schema_compiler *c, const schema_merged *m)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    gr_mem *mem = &b->mem;
    object_maker o = {.c = c, .m = m};
    nfa_frag f = json_mark(b, JSON_OPEN, '{');
    uint32_t out = nfa_state(n);
    keys_init(&o.by_name, mem);
    uint32_t others = schema_others_goal(c, m->set);
    if (find_members(&o, others)) others = NEVER; /* they are members now */
    uint64_t least = m->min_members > o.num_required ? m->min_members : 0;
    o.bounded = m->max_members != UINT64_MAX && (others != NEVER || m->max_members < o.num_members);
    if (least > o.num_required + 1u && others != NEVER) /* others may have one name twice */
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
    uint64_t count = ((uint64_t)o.num_members + 1) * (layers + 1);
    if (!schema_failed(c) && GR_GROW(mem, o.nodes, o.cap_nodes, count)) {
        for (uint64_t i = 0; i < count; i++)
            o.nodes[i] = nfa_state(n);
        nfa_empty(n, f.out, *node(&o, 0, 0));
        for (uint32_t i = 0; i < o.num_members && !schema_failed(c); i++) {
            uint32_t goal = schema_property_goal(c, m->set, o.members[i].name);
            put_member(&o, i, goal);
            for (uint32_t k = 0; k <= o.layers && !o.members[i].required; k++)
                nfa_empty(n, *node(&o, i, k), *node(&o, i + 1, k));
        }
        if (others != NEVER) put_member(&o, o.num_members, others);
        for (uint32_t k = 0; k <= o.layers && !schema_failed(c); k++) {
            if (k < least) continue;
            nfa_frag close = json_mark(b, JSON_CLOSE, '}');
            nfa_empty(n, *node(&o, o.num_members, k), close.in);
            nfa_empty(n, close.out, out);
        }
    }
    GR_DROP(mem, o.members, o.cap_members);
    GR_DROP(mem, o.nodes, o.cap_nodes);
    keys_fini(&o.by_name);
    f.out = out;
    return f;
}
