/* span.c - descriptors in address order, holes in bins.
 *
 *     arena   | span 3 | hole 7 | span 1 | span 4 |      hole 9      |
 *     list      3  <->   7  <->   1  <->   4  <->   9
 *
 * Invariant, verified by span_arena_check(): the list covers [0, capacity) without gap
 * or overlap, no two holes touch, and a hole stands in the bin of its length. Holes
 * never touching, there is at most one more than there are spans: 2 * max_spans + 1
 * descriptors always suffice. */
#include "base/span.h"

#include "base/bits.h"

static uint32_t descriptors(uint32_t max_spans)
{
    return 2 * max_spans + 1;
}

size_t span_arena_bytes(uint32_t max_spans)
{
    return ((size_t)descriptors(max_spans) + 1) * sizeof(span_run);
}

bool span_arena_init(span_arena *a, const rad_env *env, uint32_t capacity, uint32_t max_spans)
{
    *a = (span_arena){.capacity = capacity, .env = *env};
    if (max_spans > (UINT32_MAX - 2) / 2) return false;
    a->num_spans = descriptors(max_spans);
    a->spans = rad_alloc_sparse(env, span_arena_bytes(max_spans));
    if (!a->spans) return false;
    span_arena_clear(a);
    return true;
}

void span_arena_fini(span_arena *a)
{
    rad_free_sparse(&a->env, a->spans, ((size_t)a->num_spans + 1) * sizeof *a->spans);
    *a = (span_arena){0};
}

/* Exact below 8, then eight steps to a power of two; grows with len. */
static uint32_t bin_of(uint32_t len)
{
    if (len < 8) return len;
    uint32_t log = 31 - (uint32_t)__builtin_clz(len);
    return (log - 2) * 8 + (len >> (log - 3) & 7);
}

static void bin_add(span_arena *a, uint32_t id)
{
    span_run *s = &a->spans[id];
    uint32_t bin = bin_of(s->len);
    s->bin_prev = 0;
    s->bin_next = a->bins[bin];
    if (s->bin_next) a->spans[s->bin_next].bin_prev = id;
    a->bins[bin] = id;
    a->bin_bits[bin / 64] |= (uint64_t)1 << (bin % 64);
}

static void bin_drop(span_arena *a, uint32_t id)
{
    span_run *s = &a->spans[id];
    uint32_t bin = bin_of(s->len);
    if (s->bin_next) a->spans[s->bin_next].bin_prev = s->bin_prev;
    if (s->bin_prev)
        a->spans[s->bin_prev].bin_next = s->bin_next;
    else
        a->bins[bin] = s->bin_next;
    if (!a->bins[bin]) bits_clear(a->bin_bits, bin);
}

static uint32_t take_descriptor(span_arena *a)
{
    uint32_t id = a->spare;
    if (!id) {
        RAD_ASSERT_ENV(&a->env, a->num_fresh < a->num_spans);
        return ++a->num_fresh;
    }
    a->spare = a->spans[id].next;
    return id;
}

static void give_descriptor(span_arena *a, uint32_t id)
{
    a->spans[id] = (span_run){.next = a->spare};
    a->spare = id;
}

/* A new descriptor for [at, at + len) right behind `prev` (0: the first). */
static uint32_t link_behind(span_arena *a, uint32_t prev, uint32_t at, uint32_t len)
{
    uint32_t id = take_descriptor(a);
    uint32_t next = prev ? a->spans[prev].next : a->first;
    a->spans[id] = (span_run){.at = at, .len = len, .prev = prev, .next = next};
    *(prev ? &a->spans[prev].next : &a->first) = id;
    if (next) a->spans[next].prev = id;
    return id;
}

static void unlink_descriptor(span_arena *a, uint32_t id)
{
    span_run *s = &a->spans[id];
    *(s->prev ? &a->spans[s->prev].next : &a->first) = s->next;
    if (s->next) a->spans[s->next].prev = s->prev;
    give_descriptor(a, id);
}

void span_arena_clear(span_arena *a)
{
    memset(a->bins, 0, sizeof a->bins);
    memset(a->bin_bits, 0, sizeof a->bin_bits);
    a->num_fresh = a->spare = a->first = a->used_spans = 0;
    a->free_units = a->capacity;
    if (a->capacity) bin_add(a, link_behind(a, 0, 0, a->capacity));
}

/* A hole of at least len units: one of the youngest of its own bin (who frees as much as
 * it needs finds the very hole it made, and no other is cut), else the first one of the
 * next bin up, where each fits, else one of the next few of its own bin. */
static uint32_t find_hole(const span_arena *a, uint32_t len)
{
    uint32_t own = bin_of(len), id = a->bins[own];
    for (int tries = 4; id && tries > 0; tries--, id = a->spans[id].bin_next)
        if (a->spans[id].len >= len) return id;
    for (uint32_t word = (own + 1) / 64; word < SPAN_BINS / 64; word++) {
        uint64_t bits = a->bin_bits[word];
        if (word == (own + 1) / 64) bits &= ~(uint64_t)0 << ((own + 1) % 64);
        if (bits) return a->bins[word * 64 + (uint32_t)__builtin_ctzll(bits)];
    }
    for (int tries = 12; id && tries > 0; tries--, id = a->spans[id].bin_next)
        if (a->spans[id].len >= len) return id;
    return 0;
}

uint32_t span_alloc(span_arena *a, uint32_t len)
{
    uint32_t id = len <= a->free_units ? find_hole(a, len) : 0;
    if (!id) return 0;
    bin_drop(a, id);
    uint32_t rest = a->spans[id].len - len;
    a->spans[id].len = len;
    a->spans[id].refs = 1;
    a->spans[id].bin_next = 0;
    if (rest) bin_add(a, link_behind(a, id, a->spans[id].at + len, rest));
    a->free_units -= len;
    a->used_spans++;
    return id;
}

/* `id` has become a hole: joins its neighbours when they are holes too. */
static void settle_hole(span_arena *a, uint32_t id)
{
    uint32_t prev = a->spans[id].prev, next = a->spans[id].next;
    if (next && !a->spans[next].refs) {
        bin_drop(a, next);
        a->spans[id].len += a->spans[next].len;
        unlink_descriptor(a, next);
    }
    if (prev && !a->spans[prev].refs) {
        bin_drop(a, prev);
        a->spans[prev].len += a->spans[id].len;
        unlink_descriptor(a, id);
        id = prev;
    }
    bin_add(a, id);
}

void span_unref(span_arena *a, uint32_t id)
{
    span_run *s = &a->spans[id];
    RAD_ASSERT_ENV(&a->env, s->refs > 0);
    if (--s->refs) return;
    a->free_units += s->len;
    a->used_spans--;
    settle_hole(a, id);
}

void span_cut_tail(span_arena *a, uint32_t id, uint32_t len)
{
    span_run *s = &a->spans[id];
    RAD_ASSERT_ENV(&a->env, s->refs > 0 && len < s->len);
    if (!len) return;
    s->len -= len;
    a->free_units += len;
    settle_hole(a, link_behind(a, id, s->at + s->len, len));
}

void span_cut_head(span_arena *a, uint32_t id, uint32_t len)
{
    span_run *s = &a->spans[id];
    RAD_ASSERT_ENV(&a->env, s->refs > 0 && len < s->len);
    if (!len) return;
    uint32_t at = s->at;
    s->at += len;
    s->len -= len;
    a->free_units += len;
    settle_hole(a, link_behind(a, s->prev, at, len));
}

/* The neighbours whose holes add up to `len` at the price of the fewest units moved.
 * Also forgets how far spans went in an earlier compaction. O(descriptors).
 *
 * Two ends go through the list: `hi` takes descriptors in until the holes suffice, `lo` leaves
 * them behind as long as they still do. `used` is what would move. The best window begins and
 * ends with a hole, since a span at either end only adds to `used`. */
static void find_window(span_arena *a, uint32_t len, uint32_t *first, uint32_t *last)
{
    uint32_t lo = a->first, used = 0, best = UINT32_MAX, free_units = 0;
    for (uint32_t hi = a->first; hi; hi = a->spans[hi].next) {
        span_run *s = &a->spans[hi];
        if (s->refs) {
            used += s->len;
            s->bin_next = 0;
            continue;
        }
        free_units += s->len;
        for (; free_units >= len; lo = a->spans[lo].next) {
            if (used < best) {
                best = used;
                *first = lo;
                *last = hi;
            }
            *(a->spans[lo].refs ? &used : &free_units) -= a->spans[lo].len; /* lo leaves */
        }
    }
}

void span_compact(span_arena *a, uint32_t len, span_move_fn move, void *user)
{
    uint32_t first = 0, last = 0;
    RAD_ASSERT_ENV(&a->env, len > 0 && len <= a->free_units);
    find_window(a, len, &first, &last);
    uint32_t to = a->spans[first].at, end = a->spans[last].at + a->spans[last].len;
    uint32_t before = a->spans[first].prev, behind = a->spans[last].next;
    for (uint32_t id = first, next; id != behind; id = next) {
        span_run *s = &a->spans[id];
        next = s->next;
        if (!s->refs) {
            bin_drop(a, id);
            unlink_descriptor(a, id);
            continue;
        }
        s->bin_next = s->at - to; /* what span_moved() says: a used span is in no bin */
        if (s->at != to) move(user, to, s->at, s->len);
        s->at = to;
        to += s->len;
        before = id;
    }
    /* The window ended with a hole, so a span follows: the new hole touches no other one. It is the
     * first of its bin, where the next span_alloc looks. */
    bin_add(a, link_behind(a, before, to, end - to));
    a->compactions++;
}

bool span_arena_check(const span_arena *a)
{
    uint32_t at = 0, prev = 0, used = 0, free_units = 0, holes = 0, in_bins = 0, known = 0;
    for (uint32_t id = a->first; id; prev = id, id = a->spans[id].next) {
        const span_run *s = &a->spans[id];
        if (s->at != at || !s->len || s->prev != prev || ++known > a->num_spans) return false;
        if (!s->refs && prev && !a->spans[prev].refs) return false;
        at += s->len;
        used += s->refs != 0;
        holes += s->refs == 0;
        free_units += s->refs ? 0 : s->len;
    }
    for (uint32_t bin = 0; bin < SPAN_BINS; bin++) {
        if (!a->bins[bin] != !(a->bin_bits[bin / 64] >> (bin % 64) & 1)) return false;
        for (uint32_t id = a->bins[bin], before = 0; id; before = id, id = a->spans[id].bin_next)
            if (a->spans[id].refs || bin_of(a->spans[id].len) != bin ||
                a->spans[id].bin_prev != before || ++in_bins > holes)
                return false;
    }
    for (uint32_t id = a->spare; id; id = a->spans[id].next)
        if (++known > a->num_fresh) return false;
    return at == a->capacity && used == a->used_spans && free_units == a->free_units &&
           in_bins == holes && known == a->num_fresh;
}
