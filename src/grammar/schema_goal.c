/* schema_goal.c - sets of schemas that hold at once, and what they hold a value's parts to. */
#include "grammar/schema_impl.h"

#include "base/mix64.h"

/* Schemas have numbers in the order in which the document was checked: its own. */
static uint32_t number_of(const schema_compiler *c, const json_t *schema)
{
    return keys_find(&c->checked, (uintptr_t)schema);
}

bool schema_hold(schema_compiler *c, schema_set *set, const json_t *schema)
{
    if (!schema || json_is_true(schema)) return true;
    if (json_is_false(schema) || json_object_get(schema, "not")) return false;
    for (uint32_t i = 0; i < set->count; i++)
        if (set->at[i] == schema) return true;
    if (!gr_work(&c->b->mem, set->count)) return true;
    if (set->count == SCHEMA_MOST_SET) {
        gr_fail(&c->b->mem, RAD_E_LIMIT, "more than %d schemas hold at once", SCHEMA_MOST_SET);
        return true;
    }
    set->at[set->count++] = schema;
    return true;
}

static uint64_t set_hash(const schema_compiler *c, const json_t *const *at, uint32_t count)
{
    uint64_t h = count;
    for (uint32_t i = 0; i < count; i++)
        h = mix64(h ^ number_of(c, at[i]));
    return h;
}

static void sort_set(schema_compiler *c, schema_set *set)
{
    for (uint32_t i = 1; i < set->count; i++) {
        const json_t *at = set->at[i];
        uint32_t number = number_of(c, at), k = i;
        for (; k && number_of(c, set->at[k - 1]) > number; k--)
            set->at[k] = set->at[k - 1];
        set->at[k] = at;
        gr_work(&c->b->mem, 1 + i - k);
    }
}

static uint64_t goal_hash(const void *owner, uint32_t id)
{
    const schema_compiler *c = owner;
    return set_hash(c, c->members + c->goals[id].first, c->goals[id].count);
}

uint32_t schema_goal_of(schema_compiler *c, schema_set *set)
{
    gr_mem *mem = &c->b->mem;
    if (!set->count) return ANYTHING;
    sort_set(c, set);
    if (!gr_slots_room(mem, &c->by_hash, 0, c->num_goals, goal_hash, c)) return NEVER;
    uint64_t h = set_hash(c, set->at, set->count);
    for (uint32_t id; (id = *gr_slot(&c->by_hash, h)); h++) {
        const schema_goal *g = &c->goals[id - 1];
        if (g->count == set->count &&
            memcmp(c->members + g->first, set->at, set->count * sizeof *set->at) == 0)
            return id - 1;
    }
    if (!GR_GROW(mem, c->members, c->cap_members, (uint64_t)c->num_members + set->count) ||
        !GR_GROW(mem, c->goals, c->cap_goals, (uint64_t)c->num_goals + 1))
        return NEVER;
    uint32_t rule = builder_rule(c->b);
    if (schema_failed(c)) return NEVER;
    c->goals[c->num_goals] =
        (schema_goal){.first = c->num_members, .count = set->count, .rule = rule};
    memcpy(c->members + c->num_members, set->at, set->count * sizeof *set->at);
    c->num_members += set->count;
    *gr_slot(&c->by_hash, h) = c->num_goals + 1;
    return c->num_goals++;
}

/* ---- what holds for a part of a value ---- */

uint32_t schema_property_goal(schema_compiler *c, const schema_set *set, const char *name)
{
    schema_set part = {.count = 0};
    const char *pattern;
    json_t *by_pattern;
    for (uint32_t i = 0; i < set->count && !schema_failed(c); i++) {
        const json_t *at = json_object_get(json_object_get(set->at[i], "properties"), name);
        bool said = at != NULL;
        if (!schema_hold(c, &part, at) || !schema_allows_name(c, set->at[i], name)) return NEVER;
        json_object_foreach(json_object_get(set->at[i], "patternProperties"), pattern, by_pattern)
        {
            if (!schema_matches(c, pattern, false, name, strlen(name))) continue;
            said = true;
            if (!schema_hold(c, &part, by_pattern)) return NEVER;
        }
        if (!said && !schema_hold(c, &part, json_object_get(set->at[i], "additionalProperties")))
            return NEVER;
    }
    return schema_goal_of(c, &part);
}

uint32_t schema_others_goal(schema_compiler *c, const schema_set *set, uint64_t matched)
{
    schema_set part = {.count = 0};
    bool said = false, listed = false;
    const char *pattern;
    json_t *by_pattern;
    unsigned k = 0;
    for (uint32_t i = 0; i < set->count && !schema_failed(c); i++) {
        const json_t *at = json_object_get(set->at[i], "additionalProperties");
        const json_t *patterns = json_object_get(set->at[i], "patternProperties");
        bool matches = false;
        said |= at != NULL;
        listed |= patterns || json_object_get(set->at[i], "properties");
        json_object_foreach((json_t *)patterns, pattern, by_pattern)
        {
            if (!(matched >> k++ & 1)) continue;
            matches = true;
            if (!schema_hold(c, &part, by_pattern)) return NEVER;
        }
        if (!matches && !schema_hold(c, &part, at)) return NEVER;
    }
    if (c->b->closed_objects && listed && !said && !matched) return NEVER;
    return schema_goal_of(c, &part);
}

const json_t *schema_prefix_of(const json_t *schema, const json_t **rest)
{
    const json_t *items = json_object_get(schema, "items");
    if (json_is_array(items)) {
        *rest = json_object_get(schema, "additionalItems");
        return items;
    }
    *rest = items;
    return json_object_get(schema, "prefixItems");
}

uint32_t schema_item_goal(schema_compiler *c, const schema_set *set, uint64_t index)
{
    schema_set part = {.count = 0};
    for (uint32_t i = 0; i < set->count && !schema_failed(c); i++) {
        const json_t *rest, *prefix = schema_prefix_of(set->at[i], &rest);
        const json_t *at = index < json_array_size(prefix) ? json_array_get(prefix, index) : rest;
        if (!schema_hold(c, &part, at)) return NEVER;
    }
    return schema_goal_of(c, &part);
}

uint64_t schema_prefix_length(const schema_set *set)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const json_t *rest;
        longest = RAD_MAX(longest, (uint64_t)json_array_size(schema_prefix_of(set->at[i], &rest)));
    }
    return longest;
}
