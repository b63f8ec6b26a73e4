/* hiradix_recheck.c - what was stored once may be gone.
 *
 * A store loses pages without a word: to its budget, a TTL, a FLUSHALL, another process, to
 * quarantine. While the host has its copy nobody fetches such a page, so nobody would notice
 * that a restart, or another server, will miss it. So the mark that a host page is stored has
 * an age, and the next request that matches a page whose mark is old sends a check to the
 * store: a storage backup that asks first what is there, and stores what is not.
 *
 *     stored_at   | doublings, 4 bits | when, in quarters of recheck_ns, 28 bits |
 *
 * While a storage backup of the page is out, `when` lies far in the future: nobody asks about a
 * page that may be on its way there, however long that takes.
 *
 * What keeps this from becoming a storm of writes:
 *   - a page is asked about when a request matches it, and at most once in recheck_ns;
 *   - that time doubles whenever the page had to be stored anew, and halves when it is found,
 *     so a store that keeps nothing is written ever less: a page ten times in a day, not 1440;
 *   - few checks are out at a time, and like all storage backups they come behind fetches;
 *   - a store that fails is a store that did not answer: the marks stay, and are old again
 *     only after recheck_ns.
 *
 * Nor does a request look at every page of its path again: what was found to need nothing is
 * settled, up to a place in the path and until the first of its marks is old.
 *
 *     path      | settled ..................... | to be looked at .... |
 *     nodes     [ upper     ] [ node . . . . . .|. . . . . . . . . . . ]
 *                               settled[node].pages
 *
 * A mark that is taken back (the store did not take a page, or was cleared) unsettles all paths. */
#include "hicache/hiradix_impl.h"

#include "base/bits.h"
#include "cache/radix_path.h"

enum { WHEN_BITS = 28, MOST_ANEW = 15, MOST_CHECKS = 8, QUARTERS = 4 };
static const uint32_t WHEN = ((uint32_t)1 << WHEN_BITS) - 1;

uint32_t hi_recheck_time(const hiradix_cache *c)
{
    uint64_t quarter = RAD_MAX(c->params.recheck_ns / QUARTERS, (uint64_t)1);
    return (uint32_t)(c->base.env.now_ns(c->base.env.user) / quarter) & WHEN;
}

hi_need hi_what_is_needed(const hiradix_cache *c, rad_page page, uint32_t time, uint32_t *lasts)
{
    *lasts = QUARTERS; /* at least, from when the storage backup ends */
    if (!bits_get(c->store.saved, (size_t)page)) return HI_BACKUP_STORAGE;
    uint32_t mark = c->stored_at[page], age = (time - mark) & WHEN;
    if (age > WHEN / 2) return HI_NOTHING; /* a storage backup is out */
    uint32_t good_for = (uint32_t)QUARTERS << (mark >> WHEN_BITS);
    if (age >= good_for && c->checks < MOST_CHECKS) return HI_CHECK;
    *lasts = good_for - RAD_MIN(age, good_for);
    return HI_NOTHING;
}

/* ---- settled paths ---- */

static bool is_known(const hiradix_cache *c, uint32_t node)
{
    return c->settled[node].pages && c->settled[node].epoch == c->store_epoch;
}

uint32_t hi_settled_pages(const hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t time,
                          uint32_t *lasts)
{
    radix_path p = radix_path_of(c->tree, node, depth);
    for (; radix_path_is(c->tree, &p); radix_path_up(c->tree, &p)) {
        *lasts = (c->settled[p.node].until - time) & WHEN;
        if (is_known(c, p.node) && *lasts && *lasts <= WHEN / 2)
            return p.begin + c->settled[p.node].pages;
    }
    *lasts = WHEN / 2;
    return 0;
}

void hi_settle(hiradix_cache *c, uint32_t node, uint32_t depth, uint32_t end, uint32_t time,
               uint32_t lasts)
{
    uint32_t begin = depth - c->tree->nodes[node].pages;
    if (end <= begin || !lasts) return;
    c->settled[node] =
        (hi_settled){.pages = end - begin, .until = (time + lasts) & WHEN, .epoch = c->store_epoch};
}

bool hi_settled_is_sound(const hiradix_cache *c, uint32_t node)
{
    const radix_node *n = &c->tree->nodes[node];
    const hi_settled *s = &c->settled[node];
    uint32_t time = hi_recheck_time(c), left = (s->until - time) & WHEN, lasts;
    if (!is_known(c, node) || !left || left > WHEN / 2) return true;
    if (s->pages > n->pages) return false;
    for (uint32_t i = 0; i < s->pages; i++)
        if (hi_what_is_needed(c, radix_host_page_at(c->tree, n, i), time, &lasts) || !lasts)
            return false;
    n = &c->tree->nodes[n->parent];
    for (uint32_t i = 0; i < n->pages; i++) /* of all that is before it, the last node */
        if (hi_what_is_needed(c, radix_host_page_at(c->tree, n, i), time, &lasts) || !lasts)
            return false;
    return true;
}

void hi_forget_stored(hiradix_cache *c)
{
    page_store_forget(&c->store);
    page_store_forget(&c->window_store);
    page_store_forget(&c->state_store);
    c->store_epoch++;
}

static void settled_on_enter(void *self, radix_tree *t, uint32_t node, radix_tier tier)
{
    (void)t;
    if (tier == RADIX_HOST) ((hiradix_cache *)self)->settled[node].pages = 0;
}

static void keep_front(hi_settled *s, uint32_t pages)
{
    s->pages = RAD_MIN(s->pages, pages);
}

static void settled_on_cut(void *self, radix_tree *t, uint32_t leaf, radix_tier tier, uint32_t kept)
{
    (void)t;
    if (tier == RADIX_HOST) keep_front(&((hiradix_cache *)self)->settled[leaf], kept);
}

static void settled_on_split(void *self, radix_tree *t, uint32_t upper, uint32_t child)
{
    hi_settled *s = ((hiradix_cache *)self)->settled;
    s[upper] = s[child];
    keep_front(&s[upper], t->nodes[upper].pages);
    s[child].pages -= s[upper].pages;
}

static void settled_on_merge(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    hiradix_cache *c = self;
    if (is_known(c, lower)) /* with all that is before it */
        c->settled[lower].pages += t->nodes[upper].pages;
    else
        c->settled[lower] = c->settled[upper];
}

static void settled_on_shift(void *self, radix_tree *t, uint32_t upper, uint32_t lower)
{
    hi_settled *s = ((hiradix_cache *)self)->settled;
    keep_front(&s[upper], t->nodes[upper].pages);
    s[lower].pages = 0; /* other pages are its first ones now */
}

const node_part_ops hi_settled_part = {
    .on_enter = settled_on_enter,
    .on_cut = settled_on_cut,
    .on_split = settled_on_split,
    .on_merge = settled_on_merge,
    .on_shift = settled_on_shift,
};

/* ---- marks ---- */

void hi_mark_stored(hiradix_cache *c, rad_page page, uint32_t time)
{
    if (!c->store.pool) return; /* all layers see a window */
    bits_set(c->store.saved, (size_t)page);
    c->stored_at[page] = (c->stored_at[page] & ~WHEN) | time;
}

void hi_mark_out(hiradix_cache *c, rad_page page, uint32_t time)
{
    hi_mark_stored(c, page, (time + WHEN / 2) & WHEN);
}

void hi_mark_found(hiradix_cache *c, rad_page page)
{
    uint32_t anew = c->stored_at[page] >> WHEN_BITS;
    if (anew) c->stored_at[page] -= (uint32_t)1 << WHEN_BITS;
    c->stats.rechecked_tokens += c->page_size;
}

void hi_mark_stored_anew(hiradix_cache *c, rad_page page)
{
    uint32_t anew = c->stored_at[page] >> WHEN_BITS;
    if (anew < MOST_ANEW) c->stored_at[page] += (uint32_t)1 << WHEN_BITS;
    c->stats.stored_anew_tokens += c->page_size;
}
