/* dfa.c - a DFA of an NFA's texts, made smallest; and what two of them have in common.
 *
 * dfa_make is the subset construction: a state stands for the set of NFA states where the same
 * bytes may have led. What a set can read is gathered from its members: single bytes by counting,
 * wide ranges in a list that every interval between two borders looks through. So a set of a
 * million literals costs a pass over them and not 256.
 *
 * dfa_finish drops what is not on a way from the beginning to an accepting state, and hands the
 * rest to dfa_minimise.c. The numbers of states are those of a breadth-first walk: equal texts,
 * equal automata. */
#include "grammar/dfa.h"

#include "base/mix64.h"
#include "grammar/dfa_impl.h"
#include "grammar/keys.h"

#include <stdlib.h>

/* What a set and an automaton cost besides their members, in steps of 5 to 10 ns. */
enum { SET_STEPS = 40, DFA_STEPS = 500 };

void dfa_fini(dfa *d)
{
    if (!d->mem) return;
    GR_DROP(d->mem, d->edges, d->cap_edges);
    GR_DROP(d->mem, d->first, d->cap_first);
    GR_DROP(d->mem, d->accepts, d->cap_states);
    *d = (dfa){0};
}

void dfa_begin(dfa *d, gr_mem *mem)
{
    *d = (dfa){.mem = mem};
}

void dfa_add(dfa *d, unsigned lo, unsigned hi, uint32_t rule, uint32_t to)
{
    if (!GR_GROW(d->mem, d->edges, d->cap_edges, (uint64_t)d->num_edges + 1)) return;
    /* Of the state that is being made: a range that goes on where the last one ended. */
    uint32_t first = d->num_states ? d->first[d->num_states] : 0;
    if (rule == NO_RULE && d->num_edges > first) {
        dfa_edge *last = &d->edges[d->num_edges - 1];
        if (last->rule == NO_RULE && last->to == to && last->hi + 1u == lo) {
            last->hi = (uint8_t)hi;
            return;
        }
    }
    d->edges[d->num_edges++] =
        (dfa_edge){.to = to, .rule = rule, .lo = (uint8_t)lo, .hi = (uint8_t)hi};
}

void dfa_state(dfa *d, bool accepts)
{
    if (!GR_GROW(d->mem, d->first, d->cap_first, (uint64_t)d->num_states + 2) ||
        !GR_GROW(d->mem, d->accepts, d->cap_states, (uint64_t)d->num_states + 1))
        return;
    if (d->num_states >= d->mem->most_states) {
        gr_fail(d->mem, RAD_E_LIMIT, "the grammar takes more than %u states", d->mem->most_states);
        return;
    }
    d->accepts[d->num_states++] = accepts;
    d->first[d->num_states] = d->num_edges;
}

/* ---- subsets ---- */

typedef struct target {
    uint32_t to;
    uint8_t lo, hi;
} target;

typedef struct call_target {
    uint32_t rule, to;
} call_target;

typedef struct subsets {
    gr_mem *mem;
    nfa *n;
    uint32_t out;
    uint32_t *members; /* of all sets, one behind the other */
    uint32_t num_members, cap_members;
    uint32_t *first; /* [sets + 1] */
    uint32_t cap_first, num_sets;
    uint8_t *accepts;
    uint32_t cap_accepts;
    gr_slots slots;
    target *singles, *wides; /* what the set at hand can read */
    uint32_t num_singles, cap_singles, num_wides, cap_wides;
    call_target *calls;
    uint32_t num_calls, cap_calls;
    uint32_t *sorted; /* singles by byte */
    uint32_t cap_sorted;
} subsets;

static void subsets_fini(subsets *s)
{
    GR_DROP(s->mem, s->members, s->cap_members);
    GR_DROP(s->mem, s->first, s->cap_first);
    GR_DROP(s->mem, s->accepts, s->cap_accepts);
    gr_slots_drop(s->mem, &s->slots);
    GR_DROP(s->mem, s->singles, s->cap_singles);
    GR_DROP(s->mem, s->wides, s->cap_wides);
    GR_DROP(s->mem, s->calls, s->cap_calls);
    GR_DROP(s->mem, s->sorted, s->cap_sorted);
}

/* Adds what is reached from `state` without a byte to the set that is being made. Kept are states
 * that read something, and the end. */
static void close_over(subsets *s, uint32_t state, bool at_begin)
{
    nfa *n = s->n;
    uint32_t depth = 0;
    nfa_meet(n, &depth, state);
    while (depth) {
        uint32_t at = n->stack[--depth], count = 0;
        bool reads = at == s->out;
        for (uint32_t e = n->head[at]; e != NO_EDGE; e = n->edges[e].next) {
            const nfa_edge *edge = &n->edges[e];
            count++;
            if (edge->kind == NFA_EMPTY || (edge->kind == NFA_BEGIN && at_begin))
                nfa_meet(n, &depth, edge->to);
            else
                reads |= edge->kind != NFA_BEGIN;
        }
        if (!gr_work(s->mem, 1 + count)) return;
        if (!reads) continue;
        if (!GR_GROW(s->mem, s->members, s->cap_members, (uint64_t)s->num_members + 1)) return;
        s->members[s->num_members++] = at;
    }
}

/* Whether the text may end where the set is: its end, or one behind edges for $. */
static bool ends(subsets *s, uint32_t first, bool at_begin)
{
    nfa *n = s->n;
    uint32_t depth = 0;
    for (uint32_t i = first; i < s->num_members; i++)
        if (s->members[i] == s->out) return true;
    if (!n->has_end || !nfa_walk(n)) return false;
    for (uint32_t i = first; i < s->num_members; i++)
        nfa_meet(n, &depth, s->members[i]);
    while (depth) {
        uint32_t at = n->stack[--depth];
        if (at == s->out) return true;
        for (uint32_t e = n->head[at]; e != NO_EDGE; e = n->edges[e].next) {
            const nfa_edge *edge = &n->edges[e];
            if (edge->kind == NFA_EMPTY || edge->kind == NFA_END ||
                (edge->kind == NFA_BEGIN && at_begin))
                nfa_meet(n, &depth, edge->to);
        }
        if (!gr_work(s->mem, 1)) return false;
    }
    return false;
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort_u32(uint32_t *ids, uint32_t count)
{
    if (count > 24) {
        qsort(ids, count, sizeof *ids, compare_u32);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        uint32_t id = ids[i], j = i;
        for (; j && ids[j - 1] > id; j--)
            ids[j] = ids[j - 1];
        ids[j] = id;
    }
}

static uint64_t hash_set(const uint32_t *ids, uint32_t count)
{
    uint64_t h = count;
    for (uint32_t i = 0; i < count; i++)
        h = (h ^ ids[i]) * 0x9e3779b97f4a7c15u + (h >> 29);
    return mix64(h);
}

static uint64_t set_hash(const void *owner, uint32_t id)
{
    const subsets *s = owner;
    return hash_set(s->members + s->first[id], s->first[id + 1] - s->first[id]);
}

/* The number of the set whose members were just gathered, from first[num_sets] on. */
static uint32_t intern(subsets *s, bool at_begin)
{
    uint32_t first = s->first[s->num_sets], count = s->num_members - first;
    sort_u32(s->members + first, count);
    if (!gr_slots_room(s->mem, &s->slots, 0, s->num_sets, set_hash, s)) return 0;
    uint64_t h = hash_set(s->members + first, count);
    for (uint32_t id; (id = *gr_slot(&s->slots, h)); h++) {
        id--;
        if (s->first[id + 1] - s->first[id] != count ||
            memcmp(s->members + s->first[id], s->members + first, count * sizeof *s->members) != 0)
            continue;
        s->num_members = first;
        return id;
    }
    if (!GR_GROW(s->mem, s->first, s->cap_first, (uint64_t)s->num_sets + 2) ||
        !GR_GROW(s->mem, s->accepts, s->cap_accepts, (uint64_t)s->num_sets + 1))
        return 0;
    if (s->num_sets >= s->mem->most_states) {
        gr_fail(s->mem, RAD_E_LIMIT, "the grammar takes more than %u states", s->mem->most_states);
        return 0;
    }
    s->accepts[s->num_sets] = ends(s, first, at_begin);
    *gr_slot(&s->slots, h) = s->num_sets + 1;
    s->first[s->num_sets + 1] = s->num_members;
    return s->num_sets++;
}

static bool gather(subsets *s, uint32_t set)
{
    nfa *n = s->n;
    s->num_singles = s->num_wides = s->num_calls = 0;
    for (uint32_t i = s->first[set]; i < s->first[set + 1]; i++) {
        for (uint32_t e = n->head[s->members[i]]; e != NO_EDGE; e = n->edges[e].next) {
            const nfa_edge *edge = &n->edges[e];
            if (edge->kind == NFA_RULE) {
                if (!GR_GROW(s->mem, s->calls, s->cap_calls, (uint64_t)s->num_calls + 1))
                    return false;
                s->calls[s->num_calls++] = (call_target){edge->rule, edge->to};
            } else if (edge->kind == NFA_BYTES) {
                target t = {edge->to, edge->lo, edge->hi};
                bool single = edge->lo == edge->hi;
                if (single
                        ? !GR_GROW(s->mem, s->singles, s->cap_singles, (uint64_t)s->num_singles + 1)
                        : !GR_GROW(s->mem, s->wides, s->cap_wides, (uint64_t)s->num_wides + 1))
                    return false;
                if (single)
                    s->singles[s->num_singles++] = t;
                else
                    s->wides[s->num_wides++] = t;
            }
        }
    }
    return gr_work(s->mem, (uint64_t)s->num_singles + s->num_wides + s->num_calls);
}

static int compare_calls(const void *a, const void *b)
{
    const call_target *x = a, *y = b;
    if (x->rule != y->rule) return (x->rule > y->rule) - (x->rule < y->rule);
    return (x->to > y->to) - (x->to < y->to);
}

static void read_calls(subsets *s, dfa *d)
{
    if (s->num_calls > 1) qsort(s->calls, s->num_calls, sizeof *s->calls, compare_calls);
    for (uint32_t i = 0; i < s->num_calls && !s->mem->status;) {
        uint32_t rule = s->calls[i].rule;
        s->n->now++;
        for (; i < s->num_calls && s->calls[i].rule == rule; i++)
            close_over(s, s->calls[i].to, false);
        dfa_add(d, 0, 0, rule, intern(s, false));
    }
}

static void read_bytes(subsets *s, dfa *d)
{
    uint32_t starts[257] = {0};
    bool border[257] = {0};
    if (!s->num_singles && !s->num_wides) return;
    if (s->num_singles + s->num_wides == 1) { /* most of a literal's states */
        target t = s->num_singles ? s->singles[0] : s->wides[0];
        s->n->now++;
        close_over(s, t.to, false);
        dfa_add(d, t.lo, t.hi, NO_RULE, intern(s, false));
        return;
    }
    if (!GR_GROW(s->mem, s->sorted, s->cap_sorted, (uint64_t)s->num_singles + 1)) return;
    for (uint32_t i = 0; i < s->num_singles; i++)
        starts[s->singles[i].lo + 1]++;
    for (unsigned b = 0; b < 256; b++) {
        if (starts[b + 1]) border[b] = border[b + 1] = true;
        starts[b + 1] += starts[b];
    }
    uint32_t fill[256];
    memcpy(fill, starts, sizeof fill);
    for (uint32_t i = 0; i < s->num_singles; i++)
        s->sorted[fill[s->singles[i].lo]++] = s->singles[i].to;
    for (uint32_t i = 0; i < s->num_wides; i++)
        border[s->wides[i].lo] = border[s->wides[i].hi + 1] = true;
    border[0] = border[256] = true;
    for (unsigned lo = 0; lo < 256 && !s->mem->status;) {
        unsigned end = lo + 1;
        while (!border[end])
            end++;
        bool any = false;
        s->n->now++;
        for (uint32_t i = starts[lo]; end == lo + 1 && i < starts[lo + 1]; i++, any = true)
            close_over(s, s->sorted[i], false);
        for (uint32_t i = 0; i < s->num_wides; i++) {
            if (s->wides[i].lo > lo || s->wides[i].hi < end - 1) continue;
            close_over(s, s->wides[i].to, false);
            any = true;
        }
        gr_work(s->mem, s->num_wides);
        if (any) dfa_add(d, lo, end - 1, NO_RULE, intern(s, false));
        lo = end;
    }
}

bool dfa_make(dfa *d, nfa *n, nfa_frag f)
{
    gr_mem *mem = n->mem;
    subsets s = {.mem = mem, .n = n, .out = f.out};
    dfa_begin(d, mem);
    if (nfa_walk(n) && GR_GROW(mem, s.first, s.cap_first, 2) &&
        GR_GROW(mem, s.members, s.cap_members, 1)) {
        close_over(&s, f.in, true);
        if (!mem->status) intern(&s, true);
    }
    for (uint32_t set = 0; set < s.num_sets && !mem->status; set++) {
        if (!gr_work(mem, SET_STEPS) || !gather(&s, set)) break;
        read_bytes(&s, d);
        if (!mem->status) read_calls(&s, d);
        if (!mem->status) dfa_state(d, s.accepts[set]);
    }
    subsets_fini(&s);
    return dfa_finish(d);
}

/* ---- only what is on a way ---- */

/* Marks states that can be reached (1) and that lead to an accepting one (2). */
static bool mark_ways(const dfa *d, uint8_t *marks, uint32_t *work)
{
    gr_mem *mem = d->mem;
    uint32_t *head = NULL, *next = NULL, cap_head = 0, cap_next = 0, n = 0;
    marks[0] |= 1;
    work[n++] = 0;
    while (n) {
        uint32_t s = work[--n];
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++)
            if (!(marks[d->edges[e].to] & 1)) {
                marks[d->edges[e].to] |= 1;
                work[n++] = d->edges[e].to;
            }
    }
    /* Edges by where they lead, so that the way back can be walked. */
    if (!GR_GROW(mem, head, cap_head, d->num_states) ||
        !GR_GROW(mem, next, cap_next, (uint64_t)d->num_edges * 2 + 1)) {
        GR_DROP(mem, head, cap_head);
        return false;
    }
    for (uint32_t s = 0; s < d->num_states; s++)
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
            next[2 * e] = head[d->edges[e].to];
            next[2 * e + 1] = s;
            head[d->edges[e].to] = e + 1;
        }
    for (uint32_t s = 0; s < d->num_states; s++)
        if (d->accepts[s]) {
            marks[s] |= 2;
            work[n++] = s;
        }
    while (n) {
        uint32_t s = work[--n];
        for (uint32_t e = head[s]; e; e = next[2 * (e - 1)]) {
            uint32_t from = next[2 * (e - 1) + 1];
            if (!(marks[from] & 2)) {
                marks[from] |= 2;
                work[n++] = from;
            }
        }
    }
    GR_DROP(mem, head, cap_head);
    GR_DROP(mem, next, cap_next);
    return gr_work(mem, (uint64_t)d->num_states + 2 * (uint64_t)d->num_edges);
}

bool dfa_select(dfa *d, const uint32_t *name, uint32_t start)
{
    gr_mem *mem = d->mem;
    dfa to;
    uint32_t *order = NULL, *number = NULL, cap_order = 0, cap_number = 0, count = 0;
    dfa_begin(&to, mem);
    if (GR_GROW(mem, order, cap_order, (uint64_t)d->num_states + 1) &&
        GR_GROW(mem, number, cap_number, (uint64_t)d->num_states + 1)) {
        order[count++] = start;
        number[name[start]] = count;
        for (uint32_t i = 0; i < count && !mem->status; i++) {
            uint32_t s = order[i];
            for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
                const dfa_edge *edge = &d->edges[e];
                uint32_t block = name[edge->to];
                if (block == DFA_DROPPED) continue;
                if (!number[block]) {
                    order[count++] = edge->to;
                    number[block] = count;
                }
                dfa_add(&to, edge->lo, edge->hi, edge->rule, number[block] - 1);
            }
            dfa_state(&to, d->accepts[s]);
        }
    }
    GR_DROP(mem, order, cap_order);
    GR_DROP(mem, number, cap_number);
    dfa_fini(d);
    *d = to;
    return !mem->status;
}

bool dfa_finish(dfa *d)
{
    gr_mem *mem = d->mem;
    uint8_t *marks = NULL;
    uint32_t *name = NULL, cap_marks = 0, cap_name = 0;
    bool ok = gr_work(mem, DFA_STEPS);
    if (ok && !d->num_states) dfa_state(d, false);
    ok = ok && GR_GROW(mem, marks, cap_marks, d->num_states) &&
         GR_GROW(mem, name, cap_name, (uint64_t)d->num_states + 1) && mark_ways(d, marks, name);
    if (ok && marks[0] != 3) { /* no text at all */
        d->num_states = d->num_edges = 0;
        dfa_state(d, false);
        name[0] = 0;
    }
    for (uint32_t s = 0; ok && s < d->num_states; s++)
        name[s] = marks[s] == 3 || !s ? s : DFA_DROPPED;
    ok = ok && dfa_select(d, name, 0);
    GR_DROP(mem, marks, cap_marks);
    GR_DROP(mem, name, cap_name);
    ok = ok && dfa_minimise(d);
    if (!ok) dfa_fini(d);
    return ok;
}

bool dfa_is_never(const dfa *d)
{
    return d->num_states == 1 && !d->accepts[0];
}

uint32_t dfa_step(const dfa *d, uint32_t s, unsigned char b)
{
    for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++)
        if (d->edges[e].rule == NO_RULE && b <= d->edges[e].hi)
            return b >= d->edges[e].lo ? d->edges[e].to : NO_RULE;
    return NO_RULE;
}

nfa_frag dfa_embed(nfa *n, const dfa *d)
{
    nfa_frag f = {.first_state = n->num_states, .first_edge = n->num_edges};
    f.in = nfa_state(n); /* nothing leads back to it */
    f.out = nfa_state(n);
    uint32_t base = n->num_states;
    for (uint32_t s = 0; s < d->num_states; s++)
        nfa_state(n);
    if (!gr_work(n->mem, (uint64_t)d->num_states + d->num_edges)) return f;
    nfa_empty(n, f.in, base);
    for (uint32_t s = 0; s < d->num_states; s++) {
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
            const dfa_edge *edge = &d->edges[e];
            nfa_edge_add(n, base + s, base + edge->to, edge->rule == NO_RULE ? NFA_BYTES : NFA_RULE,
                         edge->lo, edge->hi, edge->rule == NO_RULE ? 0 : edge->rule);
        }
        if (d->accepts[s]) nfa_empty(n, base + s, f.out);
    }
    return f;
}

/* ---- two at once ---- */

#define NO_STATE UINT32_MAX /* in the second place: `b` has no such text any more */

static bool product(dfa *d, const dfa *a, const dfa *b, bool without)
{
    gr_mem *mem = a->mem;
    gr_keys p;
    keys_init(&p, mem);
    dfa_begin(d, mem);
    keys_add(&p, 0);
    for (uint32_t i = 0; i < p.count && !mem->status; i++) {
        uint32_t sa = (uint32_t)(p.key[i] >> 32), sb = (uint32_t)p.key[i];
        uint32_t eb = sb == NO_STATE ? 0 : b->first[sb];
        uint32_t end_b = sb == NO_STATE ? 0 : b->first[sb + 1];
        for (uint32_t ea = a->first[sa]; ea < a->first[sa + 1] && !mem->status; ea++) {
            unsigned lo = a->edges[ea].lo, hi = a->edges[ea].hi;
            while (lo <= hi && !mem->status) {
                while (eb < end_b && b->edges[eb].hi < lo)
                    eb++;
                bool in_b = eb < end_b && b->edges[eb].lo <= lo;
                unsigned last = in_b ? RAD_MIN(hi, (unsigned)b->edges[eb].hi)
                                : eb < end_b && b->edges[eb].lo <= hi ? b->edges[eb].lo - 1u
                                                                      : hi;
                if (in_b || without)
                    dfa_add(d, lo, last, NO_RULE,
                            keys_add(&p, (uint64_t)a->edges[ea].to << 32 |
                                             (in_b ? b->edges[eb].to : NO_STATE)));
                lo = last + 1;
                gr_work(mem, 1);
            }
        }
        bool b_accepts = sb != NO_STATE && b->accepts[sb];
        if (!mem->status) dfa_state(d, a->accepts[sa] && b_accepts != without);
    }
    keys_fini(&p);
    return dfa_finish(d);
}

bool dfa_both(dfa *d, const dfa *a, const dfa *b)
{
    return product(d, a, b, false);
}
bool dfa_without(dfa *d, const dfa *a, const dfa *b)
{
    return product(d, a, b, true);
}
