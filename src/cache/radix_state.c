/* radix_state.c - snapshots in the tree: where a match may end, what a lock keeps, what goes first.
 *
 * As with windows all of it is told of one tier and is there once for each.
 *
 *     root -- [ . . . ] -- [ . . . s ] -- [ . . ]      a match ends at s, or at the root
 *
 * A snapshot is behind the last page of its node, exactly there. A split leaves it with the lower
 * part; a node that has one is not merged into its child; a cut of the node's tail, or the pages'
 * leaving the tier, drops it.
 *
 * A lock keeps the snapshot that it found at its node, by count; what comes there later is not its
 * affair.
 *
 * Eviction looks at what a snapshot can still be used for:
 *
 *     chat        | turn 1  s | turn 2  s | turn 3  S |       s: superseded, S: live
 *     shared      | prompt  S -+- | question  S |             others part here: it stays live
 *                              +- | question  S |
 *
 * One that a prompt leaves behind another, with no fork between them, supersedes it: the chat goes
 * on from the last. What is superseded is of use to an edit of what came before and goes first,
 * until a match ends at it again. An answer's end supersedes nothing: templates that leave
 * reasoning out of what was said make the next turn part before it, where the answer began; if the
 * turn does go on from there, the snapshots of its prompt supersede both. Among equals the one that
 * came or was used last stays; what pins, open sessions, retention and priorities say of the node
 * stands above that, as for its pages.
 *
 * Invariants, verified by fault and check: a node with a snapshot is on the tier and the snapshot
 * at its end; it is locked at most as often as its node; without a lock it is in `order`, under a
 * key that is not above its own; `owned` has the bits of just these; `there` and `held` are the
 * sums. */
#include "cache/radix_state.h"

#include "base/bits.h"
#include "cache/evict_policy.h"
#include "cache/radix_host.h"

static radix_value *value_of(const radix_state *s, radix_tree *t, uint32_t node)
{
    return &t->values[RADIX_STATE][s->tier][node];
}

static rad_state state_of(const radix_state *s, const radix_tree *t, uint32_t node)
{
    return radix_state_of(t, s->tier, node);
}

/* --- the order of eviction --- */

/* From above: what parts say of the node (evict_policy.h), live or superseded, the node's priority
 * where the tree's policy asks for it, and the time. */
enum { TIME_BITS = EVICT_TIME_BITS - 1, LIVE_BIT = EVICT_POLICY_BITS - 1 };
static_assert(TIME_BITS + 32 == LIVE_BIT, "the parts of a key lie side by side");

static heap_key order_key(const radix_state *s, const radix_tree *t, uint32_t node)
{
    const radix_limits *l = &t->limits;
    uint32_t policy = s->tier == RADIX_DEVICE ? l->eviction.policy : l->host_eviction.policy;
    uint32_t priority = (uint32_t)t->nodes[node].priority ^ 0x80000000u;
    heap_key key = s->nodes[node].used & (((uint64_t)1 << TIME_BITS) - 1);
    if (policy == RAD_EVICT_PRIORITY) key |= (heap_key)priority << TIME_BITS;
    return radix_rank(t, node, s->tier) | (heap_key)(s->nodes[node].live != 0) << LIVE_BIT | key;
}

/* Files a node with a snapshot that nobody locked under its present key. */
static void file(radix_state *s, radix_tree *t, uint32_t node)
{
    const radix_value *v = value_of(s, t, node);
    if (!v->at || v->lock_ref) return;
    heap_key key = order_key(s, t, node);
    if (!heap_contains(&s->order, node))
        heap_push(&s->order, node, key);
    else if (key != heap_key_of(&s->order, node))
        heap_rekey(&s->order, node, key);
}

void radix_state_refile(radix_tree *t, uint32_t node)
{
    for (radix_tier tier = RADIX_DEVICE; tier < RADIX_TIERS; tier++)
        if (t->states[tier] && radix_state_of(t, tier, node)) file(t->states[tier], t, node);
}

/* The snapshot leaves the node, and goes back. */
static void give_back(radix_state *s, radix_tree *t, uint32_t node)
{
    radix_value *v = value_of(s, t, node);
    rad_state state = (rad_state)v->at;
    RAD_ASSERT_ENV(&t->env, state && !v->lock_ref && bits_get(s->owned, (size_t)state));
    *v = (radix_value){0};
    heap_remove(&s->order, node);
    bits_clear(s->owned, (size_t)state);
    s->there--;
    s->drop(s->user, state);
}

/* Those above, with no fork between, are superseded; above one that is they are already. */
static void supersede_above(radix_state *s, radix_tree *t, uint32_t node)
{
    uint32_t id = t->nodes[node].parent;
    for (; t->nodes[id].parent && t->nodes[id].num_children == 1; id = t->nodes[id].parent) {
        if (!state_of(s, t, id)) continue;
        if (!s->nodes[id].live) return;
        s->nodes[id].live = 0;
        file(s, t, id);
    }
}

void radix_state_supersede(radix_tree *t, uint32_t node)
{
    supersede_above(t->states[RADIX_DEVICE], t, node);
    /* The host is about to get a copy, for which one that this one supersedes should go first. */
    if (t->states[RADIX_HOST]) supersede_above(t->states[RADIX_HOST], t, node);
}

void radix_state_put(radix_tree *t, radix_tier tier, uint32_t node, rad_state state)
{
    radix_state *s = t->states[tier];
    radix_value *v = value_of(s, t, node);
    uint32_t pages = t->nodes[node].pages;
    RAD_ASSERT_ENV(&t->env, !v->at && radix_is_on(t, node, tier));
    RAD_ASSERT_ENV(&t->env, state > 0 && (uint32_t)state <= s->num_states &&
                                !bits_get(s->owned, (size_t)state));
    *v = (radix_value){.at = (uint32_t)state, .first = pages - 1, .end = pages};
    s->nodes[node] = (state_node){.used = ++t->clock, .live = 1};
    bits_set(s->owned, (size_t)state);
    s->there++;
    s->put++;
    if (tier == RADIX_HOST && radix_state_of(t, RADIX_DEVICE, node)) { /* a copy of that one */
        s->nodes[node].used = t->states[RADIX_DEVICE]->nodes[node].used;
        s->nodes[node].live = t->states[RADIX_DEVICE]->nodes[node].live;
    }
    file(s, t, node);
}

bool radix_state_is_unsaved(const radix_tree *t, uint32_t node)
{
    const radix_state *host = t->states[RADIX_HOST];
    return host && radix_state_of(t, RADIX_DEVICE, node) && !radix_state_of(t, RADIX_HOST, node) &&
           !host->nodes[node].promised;
}

/* It is about to go from the device: the last chance to copy it. What is superseded is worth a free
 * place on the host, but not that another one goes for it. */
static bool wants_saving(const radix_state *s, const radix_tree *t, uint32_t node)
{
    if (s->tier != RADIX_DEVICE || !t->host.save || !radix_state_is_unsaved(t, node)) return false;
    const radix_state *host = t->states[RADIX_HOST];
    return s->nodes[node].live || host->there < host->num_states;
}

bool radix_state_owns(const radix_tree *t, radix_tier tier, rad_state state)
{
    const radix_state *s = t->states[tier];
    return state > 0 && (uint32_t)state <= s->num_states && bits_get(s->owned, (size_t)state);
}

uint64_t radix_state_evict(radix_tree *t, radix_tier tier, uint64_t count)
{
    radix_state *s = t->states[tier];
    uint64_t done = 0;
    uint32_t saved = 0;
    radix_before_eviction(t);
    while (done < count && s->order.count) {
        heap_entry top = s->order.entries[0];
        uint32_t id = heap_entry_id(&top);
        if (value_of(s, t, id)->lock_ref) { /* filed again when the lock goes */
            heap_remove(&s->order, id);
            continue;
        }
        heap_key key = order_key(s, t, id);
        if (key != heap_entry_key(&top)) { /* its priority has grown */
            heap_rekey(&s->order, id, key);
            continue;
        }
        if (id != saved && wants_saving(s, t, id)) {
            t->host.save(t->host.user, id, 0);
            saved = id; /* or it could not be, which is not tried again at once */
            continue;   /* evicting on the host may have made another node of it */
        }
        give_back(s, t, id);
        done++;
        radix_rejoin(t, id); /* the cut has perhaps lost its reason; `id` may go with that */
    }
    s->evicted += done;
    return done;
}

static uint64_t state_evict(void *self, radix_tree *t, uint64_t count)
{
    return radix_state_evict(t, ((const radix_state *)self)->tier, count);
}

static void used_on(radix_tree *t, radix_tier tier, uint32_t node)
{
    radix_state *s = t->states[tier];
    if (!s || !state_of(s, t, node)) return;
    s->nodes[node].used = t->clock;
    s->nodes[node].live = 1;
    file(s, t, node);
}

/* An insert uses no snapshot: it comes from a request that has gone on. */
static void state_used(void *self, radix_tree *t, uint32_t node, uint32_t fresh)
{
    (void)self;
    if (fresh) return;
    used_on(t, RADIX_DEVICE, node);
    used_on(t, RADIX_HOST, node);
}

/* --- where a match may end --- */

/* Moves the end up to the next snapshot of the tier, not past page `from`. */
static void usable_from(const radix_state *s, const radix_tree *t, radix_pos *pos, uint32_t from)
{
    if (!pos->child && (!t->nodes[pos->node].parent || state_of(s, t, pos->node))) return;
    uint32_t id = pos->node, end = pos->pages - pos->part;
    while (end > from && t->nodes[id].parent && !state_of(s, t, id)) {
        end -= t->nodes[id].pages;
        id = t->nodes[id].parent;
    }
    *pos = (radix_pos){.node = id, .pages = end};
}

static void state_usable(void *self, const radix_tree *t, radix_pos *pos)
{
    usable_from(self, t, pos, 0);
}

static void state_loadable(void *self, const radix_tree *t, radix_pos *pos, uint32_t from)
{
    const radix_state *host = t->states[RADIX_HOST];
    (void)self;
    if (host)
        usable_from(host, t, pos, from);
    else
        *pos = (radix_pos){.pages = from};
}

/* --- locks --- */

uint32_t radix_state_lock(radix_tree *t, radix_tier tier, uint32_t node)
{
    radix_state *s = t->states[tier];
    radix_value *v = value_of(s, t, node);
    if (!v->at) return 0;
    s->held += v->lock_ref++ == 0;
    return 1;
}

void radix_state_unlock(radix_tree *t, radix_tier tier, uint32_t node, uint32_t held)
{
    if (!held) return;
    radix_state *s = t->states[tier];
    radix_value *v = value_of(s, t, node);
    RAD_ASSERT_ENV(&t->env, v->lock_ref > 0);
    if (--v->lock_ref) return;
    s->held--;
    file(s, t, node);
}

static uint32_t state_lock(void *self, radix_tree *t, uint32_t node)
{
    return radix_state_lock(t, ((const radix_state *)self)->tier, node);
}

static void state_unlock(void *self, radix_tree *t, uint32_t node, uint32_t held)
{
    radix_state_unlock(t, ((const radix_state *)self)->tier, node, held);
}

/* A receipt is the caller's memory: what it says is checked, so that no count goes below zero. */
static bool state_holds(void *self, const radix_tree *t, uint32_t node, uint32_t held)
{
    const radix_state *s = self;
    uint32_t lock_ref = t->values[RADIX_STATE][s->tier][node].lock_ref;
    return held ? held == 1 && lock_ref > 0 : lock_ref < t->cold[node].own;
}

static void state_forget_locks(void *self, radix_tree *t)
{
    radix_state *s = self;
    uint32_t depth;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        value_of(s, t, id)->lock_ref = 0;
        file(s, t, id);
    }
    s->held = 0;
}

/* --- what the tree does --- */

static void state_on_add(void *self, radix_tree *t, uint32_t leaf)
{
    const radix_state *s = self;
    *value_of(s, t, leaf) = (radix_value){0};
    s->nodes[leaf] = (state_node){0};
}

/* What there is stays at the end of the node, which has another length now. */
static void stand_at_end(const radix_state *s, radix_tree *t, uint32_t node)
{
    radix_value *v = value_of(s, t, node);
    if (!v->at) return;
    v->end = t->nodes[node].pages;
    v->first = v->end - 1;
}

static void state_on_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    const radix_state *s = self;
    *value_of(s, t, upper) = (radix_value){0};
    s->nodes[upper] = (state_node){0};
    stand_at_end(s, t, child);
}

static void state_on_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    const radix_state *s = self;
    bool is_lost = state_of(s, t, upper) != 0;
    RAD_ASSERT_ENV(&t->env, !is_lost);
    stand_at_end(s, t, lower);
}

static void go_with_pages(radix_state *s, radix_tree *t, uint32_t node)
{
    if (!state_of(s, t, node)) return;
    s->dropped++;
    give_back(s, t, node);
}

static void state_on_trim(void *self, radix_tree *t, uint32_t leaf, uint32_t kept)
{
    (void)kept;
    go_with_pages(self, t, leaf);
}

static void state_on_leave(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    radix_state *s = self;
    if (tier == s->tier) go_with_pages(s, t, node);
}

static void state_on_drop(void *self, radix_tree *t, uint32_t node)
{
    go_with_pages(self, t, node);
}

static bool state_may_merge(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    (void)lower;
    return !state_of(self, t, upper);
}

/* A root that takes such a node's place has none. */
static void give_back_owned(radix_state *s, radix_tree *t)
{
    for (uint32_t id = 1; id <= t->ids.num_fresh; id++)
        *value_of(s, t, id) = (radix_value){0};
    for (uint32_t state = 1; state <= s->num_states; state++) {
        if (!bits_get(s->owned, state)) continue;
        bits_clear(s->owned, state);
        s->drop(s->user, (rad_state)state);
    }
    heap_clear(&s->order);
    s->there = s->held = 0;
}

void radix_state_drop_all(radix_tree *t, radix_tier tier)
{
    if (t->states[tier]) give_back_owned(t->states[tier], t);
}

static void state_clear(void *self, radix_tree *t)
{
    give_back_owned(self, t);
}

void radix_state_visit(const radix_tree *t, radix_tier tier,
                       void (*visit)(void *user, rad_state state), void *user)
{
    const radix_state *s = t->states[tier];
    for (uint32_t state = 1; s && state <= s->num_states; state++)
        if (bits_get(s->owned, state)) visit(user, (rad_state)state);
}

/* --- the checker --- */

static const char *state_fault(void *self, const radix_tree *t, uint32_t node)
{
    const radix_state *s = self;
    const radix_value *v = &t->values[RADIX_STATE][s->tier][node];
    bool host = s->tier == RADIX_HOST;
    if (!v->at) return v->first || v->end || v->lock_ref ? "has a part of a snapshot" : NULL;
    if (!radix_is_on(t, node, s->tier)) return "has a snapshot on a tier that it is not on";
    if (v->end != t->nodes[node].pages || v->first + 1 != v->end)
        return "has a snapshot that is not at its end";
    if (v->at > s->num_states || !bits_get(s->owned, v->at)) return "has a snapshot of nobody's";
    if (v->lock_ref > (host ? t->host.of[node].own : t->cold[node].own))
        return "has a snapshot that is locked without a lock";
    if (v->lock_ref) return NULL;
    if (!heap_contains(&s->order, node)) return "has a snapshot that cannot be evicted";
    return heap_key_of(&s->order, node) > order_key(s, t, node)
               ? "stands too late in the order of snapshots"
               : NULL;
}

static rad_status state_check(void *self, const radix_tree *t, rad_error *err)
{
    const radix_state *s = self;
    uint64_t there = 0, held = 0, owned = 0;
    uint32_t depth;
    if (!heap_check(&s->order))
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: the heap of snapshots is inconsistent");
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_value *v = &t->values[RADIX_STATE][s->tier][id];
        there += v->at != 0;
        held += v->lock_ref != 0;
    }
    for (size_t i = 0; i < bits_words((size_t)s->num_states + 1); i++)
        owned += (uint64_t)__builtin_popcountll(s->owned[i]);
    if (there == s->there && held == s->held && owned == there) return RAD_OK;
    return rad_fail(err, RAD_E_CORRUPT,
                    "radix_check: %llu snapshots, %llu locked; the counters say %llu, %llu, and "
                    "%llu states are marked",
                    (unsigned long long)there, (unsigned long long)held,
                    (unsigned long long)s->there, (unsigned long long)s->held,
                    (unsigned long long)owned);
}

/* --- create --- */

static size_t owned_bytes(const radix_state *s)
{
    return bits_words((size_t)s->num_states + 1) * sizeof *s->owned;
}

static void state_fini(void *self, radix_tree *t)
{
    radix_state *s = self;
    rad_free_sparse(&t->env, s->nodes, ((size_t)t->num_nodes + 1) * sizeof *s->nodes);
    rad_free(&t->env, s->owned, owned_bytes(s));
    heap_fini(&s->order);
    t->states[s->tier] = NULL;
    rad_free(&t->env, s, sizeof *s);
}

static const radix_component_ops state_ops = {
    .part = {.fini = state_fini,
             .clear = state_clear,
             .on_add = state_on_add,
             .on_split = state_on_split,
             .on_merge = state_on_merge,
             .on_trim = state_on_trim,
             .on_drop = state_on_drop,
             .on_leave = state_on_leave,
             .equal = state_may_merge,
             .can_merge = state_may_merge,
             .fault = state_fault,
             .check = state_check},
    .kind = RADIX_STATE,
    .usable = state_usable,
    .loadable = state_loadable,
    .lock = state_lock,
    .unlock = state_unlock,
    .holds = state_holds,
    .forget_locks = state_forget_locks,
    .used = state_used,
    .evict = state_evict,
};

rad_status radix_state_init(radix_tree *t, radix_tier tier, uint32_t num_states,
                            radix_drop_state_fn drop, void *user)
{
    radix_state *s = rad_alloc(&t->env, sizeof *s);
    if (!s) return RAD_E_NOMEM;
    *s = (radix_state){.tier = tier, .num_states = num_states, .drop = drop, .user = user};
    t->states[tier] = s;
    size_t nodes = (size_t)t->num_nodes + 1;
    rad_status status;
    if (tier == RADIX_DEVICE) {
        status = radix_add_component(t, &state_ops, s);
    } else {
        radix_add_part(t, &state_ops.part, s);
        status = radix_add_values(t, RADIX_STATE, tier);
    }
    s->nodes = rad_alloc_sparse(&t->env, nodes * sizeof *s->nodes);
    s->owned = rad_alloc(&t->env, owned_bytes(s));
    bool ok = heap_init(&s->order, &t->env, t->num_nodes);
    if (status || !ok || !s->nodes || !s->owned) return RAD_E_NOMEM;
    t->metadata_bytes += sizeof *s + nodes * sizeof *s->nodes + owned_bytes(s) +
                         heap_bytes(t->num_nodes);
    return RAD_OK;
}
