/* radix_window.c - windows of the tree: where a match may end, what a lock keeps, what goes first.
 *
 * All of it is told of one tier and is there once for each: the device's says where a match ends,
 * the host's what a request can load that goes on behind it. Where a node is not on the tier, its
 * window side there is empty.
 *
 * A node has the window side of its last pages, [first, end); what lies before was given back.
 *
 *     root -- [ . . o o ] -- [ o o ]           window = 3 pages
 *                 |       |      ^ a match may end here: the 3 pages before it are there
 *                 |       ^ not here: it would go back to the root
 *                 first
 *
 * A lock keeps the window before its end, by position: `starts` counts for each page how many
 * locks begin there, and lock_ref how many hold any page of the node. What a lock holds reaches
 * down to its end, and that is in this node or below it; so the held pages of a node are its last
 * ones, at most a window, and a split or a merge shares them out by counting.
 *
 *     [ . . o o o o ] -- [ o o ]      two locks, one ends with each node
 *             1 1                     starts: held_from is the 1st of them
 *
 * Eviction looks at when a window could last have been used, and not at when somebody walked
 * through, as every turn of a chat does through all that was said before:
 *
 *     long chat    | turn 1 . . . | turn 2 . . . | turn 3 . w w w |     window = 3
 *     short chat   | . w w w |
 *
 * First go pages that are before no known end (the dots), those walked through least recently
 * before others; then the windows before ends (w), by when a match or an insert ended there. An
 * end at which a chat was continued is one no more, until another match ends there.
 *
 * Invariants, verified by fault and check: end is the node's length; lock_ref is the number of
 * locks that end here plus those of the children that began above them; held_from is where the
 * first of them begins; a node with an unlocked window side is in `order` under a key that is
 * not above its own; what is promised begins no later than what is there; `there` and `held` are
 * the sums. */
#include "cache/radix_window.h"

#include "cache/radix_host.h"
#include "cache/radix_path.h"

static radix_value *value_of(const radix_window *w, radix_tree *t, uint32_t node)
{
    return &t->values[RADIX_WINDOW][w->tier][node];
}

/* Pages with a window side among the held ones. */
static uint32_t held_pages(const radix_window *w, const radix_value *v, uint32_t node)
{
    return v->end - RAD_MAX(v->first, w->nodes[node].held_from);
}

/* --- the order of eviction --- */

/* Above the keys of windows that no match is known to end behind. */
#define LIVE ((heap_key)1 << 64)

/* How many pages at the front of the node stand before more than a window of its own; with a host a
 * page more is of use, see hiradix_write.c. */
static uint32_t dead_front(const radix_window *w, const radix_tree *t, uint32_t node)
{
    uint32_t live = w->pages + (t->host.of != NULL), pages = t->nodes[node].pages;
    return pages > live ? pages - live : 0;
}

static heap_key order_key(const radix_window *w, const radix_tree *t, uint32_t node)
{
    const radix_node *n = &t->nodes[node];
    uint64_t used = w->nodes[node].used;
    if (!used || radix_window_of(t, w->tier, node)->first < dead_front(w, t, node))
        return n->last_access;
    return LIVE | used;
}

/* Files a node that may have something to give, or has something to give sooner. */
static void file(radix_window *w, const radix_tree *t, uint32_t node)
{
    if (radix_window_of(t, w->tier, node)->first >= w->nodes[node].held_from) return;
    heap_key key = order_key(w, t, node);
    if (!heap_contains(&w->order, node))
        heap_push(&w->order, node, key);
    else if (key < heap_key_of(&w->order, node))
        heap_rekey(&w->order, node, key);
}

static void used_on(radix_window *w, radix_tree *t, uint32_t node, uint32_t fresh)
{
    uint64_t old_window = fresh ? (uint64_t)fresh + w->pages : 0, back = 0;
    for (uint32_t id = node; t->nodes[id].parent; id = t->nodes[id].parent) {
        if (back < w->pages) {
            w->nodes[id].used = t->clock;
            w->nodes[id].end = node;
        } else {
            /* Behind a fork others may end. */
            if (back >= old_window || t->nodes[id].num_children != 1) return;
            w->nodes[id].used = 0;
            file(w, t, id);
        }
        back += t->nodes[id].pages;
    }
}

static void window_used(void *self, radix_tree *t, uint32_t node, uint32_t fresh)
{
    used_on(self, t, node, fresh);
    if (t->windows[RADIX_HOST]) used_on(t->windows[RADIX_HOST], t, node, fresh);
}

/* Gives back the window side of the node's pages [first, first + count). */
static void give_back(radix_window *w, const radix_tree *t, uint32_t node, uint32_t first,
                      uint32_t count)
{
    rad_page pages[128];
    w->there -= count;
    for (uint32_t lot; count; first += lot, count -= lot) {
        lot = RAD_MIN(count, (uint32_t)RAD_COUNT(pages));
        page_runs_expand(radix_regions(t, w->tier) + t->nodes[node].at, first, lot, 1, pages);
        w->drop(w->user, pages, NULL, lot);
    }
}

/* The end of the window for which the node was last of use, and in *behind the pages between the
 * two. Times are unique to a use, so that a node which has the same one is that end still. */
static uint32_t end_of_use(const radix_window *w, const radix_tree *t, uint32_t node,
                           uint32_t *behind)
{
    uint32_t end = w->nodes[node].end, id = end;
    *behind = 0;
    if (!end || !slab_is_live(&t->ids, end) || w->nodes[end].used != w->nodes[node].used)
        return node;
    for (; id && id != node; id = t->nodes[id].parent)
        *behind += t->nodes[id].pages;
    if (!id) *behind = 0;
    return id ? end : node;
}

/* A window that a match may need is about to go from the device, and the host lacks it: the last
 * chance to copy it, with the path to *end, where it ends. The nodes of a window go one after
 * another, the first one first, and then it is whole no more. */
static bool wants_saving(const radix_window *w, const radix_tree *t, uint32_t node, heap_key key,
                         uint32_t *end)
{
    if (w->tier != RADIX_DEVICE || !t->host.save || !(key & LIVE)) return false;
    uint32_t behind, pages = t->nodes[node].pages;
    *end = end_of_use(w, t, node, &behind);
    uint32_t needed = w->pages > behind ? RAD_MIN(w->pages - behind, pages) : 0;
    uint32_t first = RAD_MAX(radix_window_of(t, w->tier, node)->first, pages - needed);
    return t->windows[RADIX_HOST]->nodes[node].promised > first;
}

bool radix_window_is_unsaved(const radix_tree *t, uint32_t node)
{
    const radix_window *w = t->windows[RADIX_DEVICE];
    if (!w || !t->windows[RADIX_HOST] || !w->nodes[node].used) return false;
    uint32_t first = radix_window_of(t, RADIX_DEVICE, node)->first;
    first = RAD_MAX(first, dead_front(w, t, node));
    return t->windows[RADIX_HOST]->nodes[node].promised > first;
}

uint64_t radix_window_evict(radix_tree *t, radix_tier tier, uint64_t pages)
{
    radix_window *w = t->windows[tier];
    uint64_t done = 0;
    uint32_t saved = 0, end;
    while (done < pages && w->order.count) {
        heap_entry top = w->order.entries[0];
        uint32_t id = heap_entry_id(&top);
        radix_value *v = value_of(w, t, id);
        uint32_t dead = dead_front(w, t, id), held_from = w->nodes[id].held_from;
        if (v->first >= held_from) { /* filed again when a lock goes or a window side comes */
            heap_remove(&w->order, id);
            continue;
        }
        heap_key key = order_key(w, t, id);
        if (key != heap_entry_key(&top)) {
            heap_rekey(&w->order, id, key);
            continue;
        }
        if (id != saved && wants_saving(w, t, id, key, &end)) {
            t->host.save(t->host.user, end, 0);
            saved = id; /* or it could not be, which is not tried again at once */
            continue;   /* evicting on the host may have made another node of it */
        }
        uint32_t most = (v->first < dead ? RAD_MIN(dead, held_from) : held_from) - v->first;
        uint32_t count = (uint32_t)RAD_MIN(pages - done, (uint64_t)most);
        give_back(w, t, id, v->first, count);
        v->first += count;
        w->nodes[id].promised = v->first; /* what comes now would leave a gap */
        done += count;
    }
    return done;
}

static uint64_t window_evict(void *self, radix_tree *t, uint64_t pages)
{
    return radix_window_evict(t, ((const radix_window *)self)->tier, pages);
}

/* --- where a match may end --- */

/* From the end of the match up: [low, end) is there. A page that is not moves the end to where its
 * node begins, because every end behind it inside of this node needs that page, too. What stands
 * before page `from` is not asked about. */
static void usable_from(const radix_window *w, const radix_tree *t, radix_pos *pos, uint32_t from)
{
    uint32_t end = pos->pages, end_node = 0;
    for (radix_path p = radix_path_to(t, pos); radix_path_is(t, &p) && end > from;
         radix_path_up(t, &p)) {
        uint32_t first = radix_window_of(t, w->tier, p.node)->first;
        uint32_t low = RAD_MIN(p.begin + first, p.end);
        if (end - low >= w->pages || low <= from) break;
        if (!first) continue;
        end = p.begin;
        end_node = t->nodes[p.node].parent;
    }
    if (end == pos->pages) return;
    *pos = (radix_pos){.node = end_node, .pages = end};
}

static void window_usable(void *self, const radix_tree *t, radix_pos *pos)
{
    usable_from(self, t, pos, 0);
}

static void window_loadable(void *self, const radix_tree *t, radix_pos *pos, uint32_t from)
{
    const radix_window *host = t->windows[RADIX_HOST];
    (void)self;
    if (host)
        usable_from(host, t, pos, from);
    else
        *pos = (radix_pos){.pages = from};
}

static bool window_can_copy(void *self, const radix_tree *t, uint32_t node, uint32_t i)
{
    const radix_window *w = self;
    return i >= radix_window_of(t, w->tier, node)->first;
}

/* --- locks --- */

/* Adds a lock of the path's pages [from, end of `node`), or takes it away. */
static void hold(radix_window *w, radix_tree *t, uint32_t node, uint32_t end, uint32_t from)
{
    for (radix_path p = radix_path_of(t, node, end); p.end > from; radix_path_up(t, &p)) {
        radix_value *v = value_of(w, t, p.node);
        window_node *wn = &w->nodes[p.node];
        uint32_t first = RAD_MAX(from, p.begin) - p.begin;
        v->lock_ref++;
        if (from >= p.begin) w->starts[t->nodes[p.node].at + first]++;
        if (first >= wn->held_from) continue;
        w->held -= held_pages(w, v, p.node);
        wn->held_from = first;
        w->held += held_pages(w, v, p.node);
    }
}

/* Locks that begin in pages [from, end of the node). O(a window): none begins before held_from. */
static uint32_t starts_from(const radix_window *w, const radix_tree *t, uint32_t node,
                            uint32_t from)
{
    const radix_node *n = &t->nodes[node];
    uint32_t sum = 0;
    for (uint32_t i = RAD_MAX(from, w->nodes[node].held_from); i < n->pages; i++)
        sum += w->starts[n->at + i];
    return sum;
}

/* Where the first lock of the node begins. */
static uint32_t first_start(const radix_window *w, const radix_tree *t, uint32_t node)
{
    const radix_node *n = &t->nodes[node];
    uint32_t lock_ref = radix_window_of(t, w->tier, node)->lock_ref, i = w->nodes[node].held_from;
    if (!lock_ref) return n->pages;
    if (!i && starts_from(w, t, node, 0) < lock_ref) return 0; /* some began above */
    while (i < n->pages && !w->starts[n->at + i])
        i++;
    return i;
}

static void let_go(radix_window *w, radix_tree *t, uint32_t node, uint32_t end, uint32_t from)
{
    for (radix_path p = radix_path_of(t, node, end); p.end > from; radix_path_up(t, &p)) {
        radix_value *v = value_of(w, t, p.node);
        window_node *wn = &w->nodes[p.node];
        uint32_t first = RAD_MAX(from, p.begin) - p.begin;
        RAD_ASSERT_ENV(&t->env, v->lock_ref > 0);
        v->lock_ref--;
        if (from >= p.begin) {
            RAD_ASSERT_ENV(&t->env, w->starts[t->nodes[p.node].at + first] > 0);
            w->starts[t->nodes[p.node].at + first]--;
        }
        if (first != wn->held_from) continue; /* another lock began before it, and still does */
        w->held -= held_pages(w, v, p.node);
        wn->held_from = first_start(w, t, p.node);
        w->held += held_pages(w, v, p.node);
        file(w, t, p.node);
    }
}

void radix_window_lock(radix_tree *t, radix_tier tier, uint32_t node, uint32_t end, uint32_t from)
{
    radix_window *w = t->windows[tier];
    if (from >= end) return;
    hold(w, t, node, end, from);
    w->nodes[node].own++;
}

void radix_window_unlock(radix_tree *t, radix_tier tier, uint32_t node, uint32_t end, uint32_t from)
{
    radix_window *w = t->windows[tier];
    if (from >= end) return; /* it holds nothing any more */
    let_go(w, t, node, end, from);
    w->nodes[node].own--;
}

static uint32_t window_lock(void *self, radix_tree *t, uint32_t node)
{
    const radix_window *w = self;
    uint32_t end = radix_depth(t, node), from = end > w->pages ? end - w->pages : 0;
    radix_window_lock(t, w->tier, node, end, from);
    return from;
}

static void window_unlock(void *self, radix_tree *t, uint32_t node, uint32_t from)
{
    radix_window_unlock(t, ((const radix_window *)self)->tier, node, radix_depth(t, node), from);
}

static void window_forget_locks(void *self, radix_tree *t)
{
    radix_window *w = self;
    uint32_t depth;
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_node *n = &t->nodes[id];
        value_of(w, t, id)->lock_ref = 0;
        w->nodes[id].own = 0;
        w->nodes[id].held_from = n->pages;
        memset(w->starts + n->at, 0, n->pages * sizeof *w->starts);
        file(w, t, id);
    }
    w->held = 0;
}

/* A receipt is the caller's memory: what it says is checked, so that no count goes below zero. */
static bool window_holds(void *self, const radix_tree *t, uint32_t node, uint32_t from)
{
    const radix_window *w = self;
    uint32_t end = radix_depth(t, node);
    if (from == end) return t->cold[node].own > w->nodes[node].own;
    if (from > end || !w->nodes[node].own || end - from > w->pages) return false;
    radix_path p = radix_path_of(t, node, end);
    for (; p.begin > from; radix_path_up(t, &p))
        if (!radix_window_of(t, w->tier, p.node)->lock_ref) return false;
    return w->starts[t->nodes[p.node].at + (from - p.begin)] > 0;
}

uint32_t radix_window_advance(radix_tree *t, uint32_t node, uint32_t from, uint32_t to)
{
    radix_window *w = t->windows[RADIX_DEVICE];
    uint32_t end = radix_depth(t, node);
    to = RAD_MIN(to, end);
    if (to <= from) return from;
    hold(w, t, node, end, to); /* first, so that nothing between is let go and held again */
    let_go(w, t, node, end, from);
    if (to == end) w->nodes[node].own--;
    return to;
}

uint32_t radix_window_missing(const radix_tree *t, uint32_t node, uint32_t from)
{
    radix_path p = radix_path_of(t, node, radix_depth(t, node));
    for (; p.end > from && radix_path_is(t, &p); radix_path_up(t, &p)) {
        uint32_t first = radix_window_of(t, RADIX_DEVICE, p.node)->first;
        if (first) return RAD_MAX(p.begin + first, from) - from;
    }
    return 0;
}

/* --- what the tree does --- */

void radix_window_grow(radix_tree *t, radix_tier tier, uint32_t node, uint32_t first)
{
    radix_window *w = t->windows[tier];
    radix_value *v = value_of(w, t, node);
    RAD_ASSERT_ENV(&t->env, first < v->first);
    w->held -= held_pages(w, v, node);
    w->there += v->first - first;
    v->first = first;
    w->nodes[node].promised = RAD_MIN(w->nodes[node].promised, first);
    w->held += held_pages(w, v, node);
    file(w, t, node);
}

static void window_on_add(void *self, radix_tree *t, uint32_t leaf)
{
    radix_window *w = self;
    const radix_node *n = &t->nodes[leaf];
    *value_of(w, t, leaf) = (radix_value){.first = n->pages, .end = n->pages};
    w->nodes[leaf] = (window_node){.used = t->clock, .held_from = n->pages, .promised = n->pages};
    memset(w->starts + n->at, 0, n->pages * sizeof *w->starts);
}

static void window_on_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    radix_window *w = self;
    radix_value *u = value_of(w, t, upper), *c = value_of(w, t, child);
    uint32_t at = t->nodes[upper].pages, held_from = w->nodes[child].held_from;
    uint32_t promised = w->nodes[child].promised;
    *u = (radix_value){.first = RAD_MIN(c->first, at), .end = at};
    c->first = RAD_MAX(c->first, at) - at;
    c->end -= at;
    /* Nobody ended at the upper one's end yet: whoever does says so. */
    w->nodes[upper] =
        (window_node){.held_from = RAD_MIN(held_from, at), .promised = RAD_MIN(promised, at)};
    w->nodes[child].held_from = RAD_MAX(held_from, at) - at;
    w->nodes[child].promised = RAD_MAX(promised, at) - at;
    u->lock_ref = c->lock_ref - starts_from(w, t, child, 0);
    file(w, t, upper);
}

/* Whether the pages of both that have a window side are in one run. */
static bool is_one_run(const radix_window *w, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    const radix_value *u = radix_window_of(t, w->tier, upper);
    return radix_window_of(t, w->tier, lower)->first == 0 || u->first == u->end;
}

static bool window_equal(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    return is_one_run(self, t, upper, lower);
}

/* Else the upper one loses its window side, which nobody may have locked. */
static bool window_can_merge(void *self, const radix_tree *t, uint32_t upper, uint32_t lower)
{
    const radix_window *w = self;
    const radix_value *u = radix_window_of(t, w->tier, upper);
    return is_one_run(w, t, upper, lower) || w->nodes[upper].held_from == u->end;
}

static void window_on_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    radix_window *w = self;
    radix_value *u = value_of(w, t, upper), *l = value_of(w, t, lower);
    window_node *un = &w->nodes[upper], *ln = &w->nodes[lower];
    uint32_t at = u->end;
    if (!is_one_run(w, t, upper, lower)) { /* both lie in the lower one's region by now */
        give_back(w, t, lower, u->first, at - u->first);
        u->first = un->promised = at;
    }
    if (ln->promised || un->promised >= at) un->promised = at;
    ln->promised = un->promised < at ? un->promised : at + ln->promised;
    RAD_ASSERT_ENV(&t->env, !un->own && (un->held_from == at || !ln->held_from));
    ln->held_from = un->held_from < at ? un->held_from : at + ln->held_from;
    l->first = u->first < at ? u->first : at + l->first;
    l->end += at;
    heap_remove(&w->order, upper);
    file(w, t, lower);
}

static void window_on_trim(void *self, radix_tree *t, uint32_t leaf, uint32_t kept)
{
    radix_window *w = self;
    radix_value *v = value_of(w, t, leaf);
    uint32_t first = RAD_MIN(v->first, kept);
    w->there -= (v->end - v->first) - (kept - first);
    *v = (radix_value){.first = first, .end = kept};
    w->nodes[leaf].held_from = kept;
    w->nodes[leaf].promised = RAD_MIN(w->nodes[leaf].promised, kept);
}

/* Its pages have gone back, and their window sides with them. */
static void window_on_leave(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    radix_window *w = self;
    radix_value *v = value_of(w, t, node);
    if (tier != w->tier) return;
    RAD_ASSERT_ENV(&t->env, !v->lock_ref);
    w->there -= v->end - v->first;
    v->first = w->nodes[node].promised = v->end;
    heap_remove(&w->order, node);
}

static void window_on_drop(void *self, radix_tree *t, uint32_t node)
{
    (void)t;
    heap_remove(&((radix_window *)self)->order, node);
}

static void window_on_move(void *self, radix_tree *t, uint32_t to, uint32_t from, uint32_t len)
{
    radix_window *w = self;
    (void)t;
    memmove(w->starts + to, w->starts + from, len * sizeof *w->starts);
}

static void window_clear(void *self, radix_tree *t)
{
    radix_window *w = self;
    (void)t;
    heap_clear(&w->order);
    w->there = w->held = 0;
}

/* --- the checker --- */

static const char *window_fault(void *self, const radix_tree *t, uint32_t node)
{
    const radix_window *w = self;
    const radix_node *n = &t->nodes[node];
    const radix_value *v = radix_window_of(t, w->tier, node);
    const window_node *wn = &w->nodes[node];
    bool host = w->tier == RADIX_HOST;
    uint64_t locks = wn->own, starts = 0;
    if (v->first > v->end || v->end != n->pages) return "has a window side of another length";
    if (v->first < v->end && !radix_is_on(t, node, w->tier))
        return "has a window side on a tier that it is not on";
    if (wn->promised > v->first) return "has a window side that nobody promised";
    if (v->lock_ref > (host ? radix_host_locks(t, node) : n->lock_ref) ||
        wn->own > (host ? t->host.of[node].own : t->cold[node].own))
        return "has window locks without locks";
    for (uint32_t i = 0; i < n->pages; i++) {
        starts += w->starts[n->at + i];
        if (w->starts[n->at + i] && i < wn->held_from) return "has a window lock before its first";
    }
    if (starts > v->lock_ref) return "has more window locks that begin than there are";
    if (wn->held_from > n->pages || first_start(w, t, node) != wn->held_from ||
        (wn->held_from && starts < v->lock_ref))
        return "has window locks that begin elsewhere";
    /* A write to the host holds a page more. A load from there may end inside of a node, and holds
     * all from its window to the node's end. */
    uint32_t most = w->pages + (t->host.of != NULL);
    if (!host && n->pages - wn->held_from > most) return "has more than a window locked";
    for (uint32_t c = n->first_child; c; c = t->nodes[c].next)
        locks += radix_window_of(t, w->tier, c)->lock_ref - starts_from(w, t, c, 0);
    if (locks != v->lock_ref) return "has other window locks than its children and receipts";
    if (v->first >= wn->held_from) return NULL;
    if (!heap_contains(&w->order, node)) return "has a window side that cannot be evicted";
    return heap_key_of(&w->order, node) > order_key(w, t, node)
               ? "stands too late in the order of windows"
               : NULL;
}

static rad_status window_check(void *self, const radix_tree *t, rad_error *err)
{
    const radix_window *w = self;
    uint64_t there = 0, held = 0;
    uint32_t depth;
    if (!heap_check(&w->order))
        return rad_fail(err, RAD_E_CORRUPT, "radix_check: the heap of windows is inconsistent");
    for (uint32_t id = 0; (id = radix_next(t, id, &depth));) {
        const radix_value *v = radix_window_of(t, w->tier, id);
        there += v->end - v->first;
        held += held_pages(w, v, id);
    }
    if (there == w->there && held == w->held) return RAD_OK;
    return rad_fail(err, RAD_E_CORRUPT,
                    "radix_check: %llu pages have a window side, %llu are locked; the counters say "
                    "%llu, %llu",
                    (unsigned long long)there, (unsigned long long)held,
                    (unsigned long long)w->there, (unsigned long long)w->held);
}

/* --- create --- */

static void window_fini(void *self, radix_tree *t)
{
    radix_window *w = self;
    size_t nodes = (size_t)t->num_nodes + 1, arena = t->arena_pages;
    rad_free_sparse(&t->env, w->nodes, nodes * sizeof *w->nodes);
    rad_free_sparse(&t->env, w->starts, arena * sizeof *w->starts);
    heap_fini(&w->order);
    t->windows[w->tier] = NULL;
    rad_free(&t->env, w, sizeof *w);
}

static const radix_component_ops window_ops = {
    .part = {.fini = window_fini,
             .clear = window_clear,
             .on_add = window_on_add,
             .on_split = window_on_split,
             .on_merge = window_on_merge,
             .on_trim = window_on_trim,
             .on_drop = window_on_drop,
             .on_move = window_on_move,
             .on_leave = window_on_leave,
             .equal = window_equal,
             .can_merge = window_can_merge,
             .fault = window_fault,
             .check = window_check},
    .kind = RADIX_WINDOW,
    .usable = window_usable,
    .loadable = window_loadable,
    .can_copy = window_can_copy,
    .lock = window_lock,
    .unlock = window_unlock,
    .holds = window_holds,
    .forget_locks = window_forget_locks,
    .used = window_used,
    .evict = window_evict,
};

rad_status radix_window_init(radix_tree *t, radix_tier tier, uint32_t pages, radix_drop_fn drop,
                             void *user)
{
    radix_window *w = rad_alloc(&t->env, sizeof *w);
    if (!w) return RAD_E_NOMEM;
    *w = (radix_window){.pages = pages, .tier = tier, .drop = drop, .user = user};
    t->windows[tier] = w;
    size_t nodes = (size_t)t->num_nodes + 1, arena = t->arena_pages;
    rad_status status;
    if (tier == RADIX_DEVICE) {
        status = radix_add_component(t, &window_ops, w);
    } else {
        radix_add_part(t, &window_ops.part, w);
        status = radix_add_values(t, RADIX_WINDOW, tier);
    }
    w->nodes = rad_alloc_sparse(&t->env, nodes * sizeof *w->nodes);
    w->starts = rad_alloc_sparse(&t->env, arena * sizeof *w->starts);
    bool ok = heap_init(&w->order, &t->env, t->num_nodes);
    if (status || !ok || !w->nodes || !w->starts) return RAD_E_NOMEM;
    t->metadata_bytes += sizeof *w + nodes * sizeof *w->nodes + arena * sizeof *w->starts +
                         heap_bytes(t->num_nodes);
    return RAD_OK;
}
