/* state_component.h - a component of kind `state` for tests: a snapshot at a node's end, which is a
 * number here.
 *
 * What the recurrent layers of a model need: a match may end only where a snapshot is; a node with
 * one is never merged into its child, a split leaves it with the lower part, trimming a tail drops
 * it (counted). */
#ifndef TESTS_STATE_COMPONENT_H
#define TESTS_STATE_COMPONENT_H

#include "test.h"

#include "cache/radix_tree.h"

typedef struct state_component {
    uint32_t there;   /* snapshots in the tree */
    uint64_t dropped; /* by trimming, since the start */
} state_component;

static inline radix_value *state_of(const radix_tree *t, uint32_t node)
{
    return &t->values[RADIX_STATE][RADIX_DEVICE][node];
}

static inline bool state_is_there(const radix_tree *t, uint32_t node)
{
    return state_of(t, node)->first < state_of(t, node)->end;
}

/* Puts a snapshot at the node's end, if it has none. */
static inline void state_put(state_component *s, radix_tree *t, uint32_t node, uint32_t snapshot)
{
    radix_value *v = state_of(t, node);
    s->there += !state_is_there(t, node);
    v->at = snapshot;
    v->end = t->nodes[node].pages;
    v->first = v->end - 1;
}

static inline void state_forget(state_component *s, radix_tree *t, uint32_t node)
{
    radix_value *v = state_of(t, node);
    s->there -= state_is_there(t, node);
    v->at = v->first = v->end = 0;
}

static void state_on_add(void *self, radix_tree *t, uint32_t leaf)
{
    (void)self;
    *state_of(t, leaf) = (radix_value){0};
}

static void state_on_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    (void)self;
    *state_of(t, upper) = (radix_value){0};
    if (!state_is_there(t, child)) return;
    state_of(t, child)->end = t->nodes[child].pages;
    state_of(t, child)->first = t->nodes[child].pages - 1;
}

static void state_on_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    (void)self;
    CHECK(!state_is_there(t, upper));
    if (!state_is_there(t, lower)) return;
    state_of(t, lower)->end = t->nodes[lower].pages;
    state_of(t, lower)->first = t->nodes[lower].pages - 1;
}

static void state_on_trim(void *self, radix_tree *t, uint32_t leaf, uint32_t kept)
{
    state_component *s = self;
    (void)kept;
    s->dropped += state_is_there(t, leaf);
    state_forget(s, t, leaf);
}

static void state_on_leave(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    if (tier == RADIX_DEVICE) state_forget(self, t, node);
}

static bool state_may_go(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    (void)self, (void)lower;
    return !state_is_there(t, upper);
}

static void state_usable(void *self, const radix_tree *t, radix_pos *pos)
{
    (void)self;
    if (!pos->child && (!t->nodes[pos->node].parent || state_is_there(t, pos->node))) return;
    uint32_t id = pos->node, end = pos->pages - pos->part;
    while (t->nodes[id].parent && !state_is_there(t, id)) {
        end -= t->nodes[id].pages;
        id = t->nodes[id].parent;
    }
    *pos = (radix_pos){.node = id, .pages = end};
}

static uint32_t state_lock(void *self, radix_tree *t, uint32_t node)
{
    (void)self;
    state_of(t, node)->lock_ref++;
    return 0;
}

static void state_unlock(void *self, radix_tree *t, uint32_t node, uint32_t from)
{
    (void)self, (void)from;
    CHECK(state_of(t, node)->lock_ref-- > 0);
}

static bool state_holds(void *self, const radix_tree *t, uint32_t node, uint32_t from)
{
    (void)self, (void)from;
    return state_of(t, node)->lock_ref > 0;
}

static void state_forget_locks(void *self, radix_tree *t)
{
    uint32_t depth;
    (void)self;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));)
        state_of(t, id)->lock_ref = 0;
}

/* Those of nodes with low numbers first. */
static uint64_t state_evict(void *self, radix_tree *t, uint64_t count)
{
    uint64_t done = 0;
    uint32_t depth;
    for (uint32_t id = 0; done < count && (id = radix_next(t, id, &depth));) {
        if (!state_is_there(t, id) || state_of(t, id)->lock_ref) continue;
        state_forget(self, t, id);
        done++;
    }
    return done;
}

static const char *state_fault(void *self, const radix_tree *t, uint32_t node)
{
    const radix_value *v = state_of(t, node);
    (void)self;
    /* With tiers, transfers lock nodes too, which need no state. */
    if (t->host.of ? v->lock_ref > t->cold[node].own : v->lock_ref != t->cold[node].own)
        return "has other state locks than receipts";
    if (state_is_there(t, node) && !radix_on_device(t, node)) return "has a state and no pages";
    if (!state_is_there(t, node)) return v->first || v->end ? "has half a state" : NULL;
    return v->end == t->nodes[node].pages && v->first + 1 == v->end
               ? NULL
               : "has a state that is not at its end";
}

static rad_status state_check(void *self, const radix_tree *t, rad_error *err)
{
    const state_component *s = self;
    uint32_t depth, there = 0;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));)
        there += state_is_there(t, id);
    return there == s->there ? RAD_OK : rad_fail(err, RAD_E_CORRUPT, "states are miscounted");
}

static void state_clear(void *self, radix_tree *t)
{
    (void)t;
    ((state_component *)self)->there = 0;
}

static const radix_component_ops state_ops = {
    .part = {.clear = state_clear,
             .on_add = state_on_add,
             .on_split = state_on_split,
             .on_merge = state_on_merge,
             .on_trim = state_on_trim,
             .on_leave = state_on_leave,
             .equal = state_may_go,
             .can_merge = state_may_go,
             .fault = state_fault,
             .check = state_check},
    .kind = RADIX_STATE,
    .usable = state_usable,
    .lock = state_lock,
    .unlock = state_unlock,
    .holds = state_holds,
    .forget_locks = state_forget_locks,
    .evict = state_evict,
};

#endif
