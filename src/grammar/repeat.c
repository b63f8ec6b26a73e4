/* repeat.c - which repeats can be counted, and which of them need no stack.
 *
 * A place has a stack for each way to count, so how many have come must follow from the text. Of
 * strings and lists it does, whatever is in them (sure). Of what an expression or a rule repeats it
 * is looked at here. Wherever a text of the repeat may begin or end, the states that go on read
 * different bytes:
 *
 *     where it is called        its first bytes           and all else that may come in its place
 *     where one has ended       the next one's            and what is behind the last one
 *     where one may have ended  what goes on in it        and both of these
 *
 *     [a-z]{1,900}@          counted
 *     [a-z]{1,900}[a-f]x     not: after an "a" it may be at its end
 *
 * What is behind the end of a rule is what is behind any call of it: that may be more than is
 * there, and then a repeat is written out as states although it could be counted.
 *
 * A repeat is simple if a number and a state say all there is to know: its states read or end and
 * do not lead to where one begins, and what is behind the last one begins with other bytes. Masks
 * of these are found without stacks (grammar_mask.c). */
#include "grammar/builder.h"

enum { SIMPLE_STATES = 64, LOOK_STEPS = 20, SHORTEST_STATES = 2000, SHORTEST_DEPTH = 8 };

/* A rule whose callees lead back to it takes them for one byte, and so does one of many states or
 * far below: what is found is a bound. */
uint32_t builder_shortest(gr_builder *b, uint32_t rule, unsigned depth)
{
    gr_rule *r = &b->rules[rule];
    const dfa *d = &r->d;
    uint32_t *bytes = NULL, cap = 0, least = UINT32_MAX;
    if (r->shortest) return r->shortest;
    r->shortest = 1;
    if (d->num_states > SHORTEST_STATES || depth == SHORTEST_DEPTH ||
        !GR_GROW(&b->mem, bytes, cap, d->num_states))
        return 1;
    for (bool changed = true; changed && gr_work(&b->mem, d->num_edges);) {
        changed = false;
        for (uint32_t s = 0; s < d->num_states; s++) {
            if (s && !bytes[s]) continue; /* not reached yet */
            for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
                const dfa_edge *edge = &d->edges[e];
                const uint32_t to = bytes[s] + (edge->rule == NO_RULE
                                                    ? 1
                                                    : builder_shortest(b, edge->rule, depth + 1));
                if (bytes[edge->to] && bytes[edge->to] <= to) continue;
                bytes[edge->to] = to;
                changed = true;
            }
        }
    }
    for (uint32_t s = 0; s < d->num_states; s++)
        if (d->accepts[s] && bytes[s]) least = RAD_MIN(least, bytes[s]);
    GR_DROP(&b->mem, bytes, cap);
    if (least != UINT32_MAX && !b->mem.status) r->shortest = least;
    return r->shortest;
}

typedef struct look {
    const gr_automaton *a;
    gr_mem *mem;
    uint32_t *pending; /* states that are met without reading */
    uint32_t cap_pending, count;
    uint32_t *met; /* by state: the last look that came there */
    uint32_t cap_met, now;
} look;

/* False: it was there. */
static bool look_add(look *l, uint32_t state)
{
    if (l->met[state] == l->now) return false;
    l->met[state] = l->now;
    if (GR_GROW(l->mem, l->pending, l->cap_pending, (uint64_t)l->count + 1))
        l->pending[l->count++] = state;
    return true;
}

/* All that may follow the end of the rule that `state` is of: it begins with the last state at or
 * before this one that is called. */
static void add_returns(look *l, uint32_t state)
{
    const gr_automaton *a = l->a;
    uint32_t first = 0;
    for (uint32_t c = 0; c < a->num_calls; c++)
        if (a->calls[c].start <= state) first = RAD_MAX(first, a->calls[c].start);
    for (uint32_t c = 0; c < a->num_calls; c++) {
        if (a->calls[c].start != first) continue;
        const uint32_t back = a->calls[c].back;
        if (!automaton_counts(a, back)) {
            look_add(l, back);
            continue;
        }
        look_add(l, automaton_counter(a, back)->start);
        look_add(l, automaton_counter(a, back)->back);
    }
    gr_work(l->mem, 2 * (uint64_t)a->num_calls);
}

/* Whether two of the states `one`, `other` and those that they lead to without reading read the
 * same byte. `beyond`: also past the ends of their rules. `inner`: this one does not end. */
static bool clash(look *l, uint32_t one, uint32_t other, bool beyond, uint32_t inner)
{
    const gr_automaton *a = l->a;
    bool read[256] = {0}, twice = false;
    l->count = 0;
    l->now++;
    look_add(l, one);
    look_add(l, other);
    for (uint32_t i = 0; i < l->count && gr_work(l->mem, LOOK_STEPS); i++) {
        const uint32_t at = l->pending[i];
        const gr_state *s = &a->states[at];
        for (uint32_t r = s->ranges; r < s[1].ranges; r++)
            for (unsigned b = a->ranges[r].lo; b <= a->ranges[r].hi; b++) {
                twice |= read[b];
                read[b] = true;
            }
        /* What is called in two ways reads the same. */
        for (uint32_t c = s->calls; c < s[1].calls; c++)
            twice |= !look_add(l, a->calls[c].start);
        if (s->flags & GR_ACCEPTS && beyond && at != inner) add_returns(l, at);
    }
    return twice;
}

/* Whether some text can be counted in two ways. `caller`: the state that calls. */
static bool is_ambiguous(look *l, const gr_counter *k, uint32_t caller)
{
    const gr_automaton *a = l->a;
    bool is = clash(l, caller, caller, true, NOWHERE);
    if (k->min < k->max) /* else the count alone says when it ends */
        is |= clash(l, k->start, k->back, true, NOWHERE);
    for (uint32_t s = k->start; s < k->start + k->states && !is; s++) {
        if (!(a->states[s].flags & GR_ACCEPTS) || a->states[s].flags == GR_ACCEPTS) continue;
        is |= clash(l, s, k->start, true, s);
        is |= clash(l, s, k->back, true, s);
    }
    return is;
}

static bool is_simple(look *l, const gr_counter *k)
{
    const gr_automaton *a = l->a;
    if (k->states > SIMPLE_STATES) return false;
    for (uint32_t s = k->start; s < k->start + k->states; s++) {
        const gr_state *state = &a->states[s];
        if (state->flags != GR_READS && (state->flags != GR_ACCEPTS || s == k->start)) return false;
        for (uint32_t r = state->ranges; r < state[1].ranges; r++)
            if (a->ranges[r].to == k->start) return false;
    }
    return !clash(l, k->start, k->back, false, NOWHERE);
}

bool repeats_check(gr_builder *b, gr_automaton *a)
{
    look l = {.a = a, .mem = &b->mem};
    bool ambiguous = false;
    gr_counter *k = a->counters; /* each is of one call, in the order of calls */
    if (GR_GROW(&b->mem, l.met, l.cap_met, (uint64_t)a->num_states + 1)) {
        for (uint32_t s = 0; s < a->num_states && !ambiguous && !b->mem.status; s++) {
            for (uint32_t c = a->states[s].calls; c < a->states[s + 1].calls; c++) {
                if (!automaton_counts(a, a->calls[c].back)) continue;
                ambiguous = ambiguous || (!k->sure && is_ambiguous(&l, k, s));
                k->simple = is_simple(&l, k);
                k++;
            }
        }
    }
    GR_DROP(&b->mem, l.pending, l.cap_pending);
    GR_DROP(&b->mem, l.met, l.cap_met);
    return ambiguous && !b->mem.status ? builder_unroll(b) : !b->mem.status;
}
