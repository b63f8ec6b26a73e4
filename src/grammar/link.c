/* link.c - rules become one automaton.
 *
 * Rules are done callees first. Those that cannot call themselves and are small are copied into
 * their callers, so that a grammar without recursion is mostly one DFA; what remains are calls.
 * Rules that call each other are a component (Tarjan), and for each the following is found before
 * any becomes a DFA:
 *
 *     nullable      it has the empty text. A call of it gets an edge for nothing beside it, and
 *                   the rule itself loses the empty text, so that a call always reads a byte.
 *     productive    it has a text. Calls of others are dropped: so every state that is left leads
 *                   to the end of its rule, and what was begun can be ended.
 *
 * A rule that begins with itself, r = r a | b, becomes b a*: each state that accepts goes on where
 * the call of itself came back. Rules that begin with each other in a circle are refused. */
#include "grammar/builder.h"

enum {
    COPIED_STATES = 64, /* most states of a rule that is copied into its callers */
    COPIED_EDGES = 256,
    ROW_RANGES = 4, /* states with more ranges than that have a row */
    MOST_ROWS = 4096
};

void builder_init(gr_builder *b, const rad_env *env, const uint64_t bytes[4],
                  const grammar_limits *limits, rad_error *err)
{
    static const grammar_limits none;
    if (!limits) limits = &none;
    *b = (gr_builder){.mem = {.env = rad_env_or_default(env), .err = err}};
    b->mem.limit = limits->bytes ? limits->bytes : 64u << 20;
    b->mem.most_steps = limits->steps ? limits->steps : 25000000;
    b->mem.most_states = limits->states ? limits->states : 1u << 20;
    b->unrolled = limits->unrolled;
    nfa_init(&b->n, &b->mem, bytes);
}

void builder_fini(gr_builder *b)
{
    for (uint32_t r = 0; r < b->num_rules; r++)
        dfa_fini(&b->rules[r].d);
    GR_DROP(&b->mem, b->rules, b->cap_rules);
    nfa_fini(&b->n);
}

uint32_t builder_rule(gr_builder *b)
{
    if (!GR_GROW(&b->mem, b->rules, b->cap_rules, (uint64_t)b->num_rules + 1)) return 0;
    b->rules[b->num_rules] = (gr_rule){0};
    return b->num_rules++;
}

void builder_define(gr_builder *b, uint32_t rule, nfa_frag f)
{
    if (b->mem.status) return;
    b->rules[rule].frag = f;
    b->rules[rule].defined = true;
}

uint32_t builder_repeat(gr_builder *b, nfa_frag f, uint32_t min, uint32_t max)
{
    uint32_t rule = builder_rule(b);
    builder_define(b, rule, f);
    if (b->mem.status) return 0;
    gr_rule *r = &b->rules[rule];
    r->apart = r->repeated = r->sure = true;
    r->min = min;
    r->max = max;
    return rule;
}

bool builder_unroll(gr_builder *b)
{
    rad_error *err = b->mem.err;
    b->mem.err = NULL; /* no words: it is tried again */
    if (!b->mem.status) b->must_unroll = true;
    gr_fail(&b->mem, RAD_E_UNSUPPORTED, "it cannot be counted");
    b->mem.err = err;
    return false;
}

nfa_frag builder_times(gr_builder *b, nfa_frag f, uint32_t min, uint32_t max)
{
    nfa *n = &b->n;
    bool counts = max && builder_counts(b, min, max == NO_END ? UINT64_MAX : max, COUNTED_TIMES);
    for (uint32_t e = f.first_edge; e < n->num_edges && counts; e++)
        counts = n->edges[e].kind != NFA_BEGIN && n->edges[e].kind != NFA_END;
    if (!counts || b->mem.status) return nfa_repeat(n, f, min, max);
    const uint32_t rule = builder_repeat(b, f, min, max);
    if (!b->mem.status) b->rules[rule].sure = false;
    return nfa_rule(n, rule);
}

rad_status builder_refuse(gr_builder *b, rad_status status, size_t at, const char *what)
{
    return gr_fail(&b->mem, status, "at byte %zu: %s", at, what);
}

void automaton_fini(gr_automaton *a, gr_mem *mem)
{
    GR_DROP(mem, a->states, a->cap_states);
    GR_DROP(mem, a->ranges, a->cap_ranges);
    GR_DROP(mem, a->calls, a->cap_calls);
    GR_DROP(mem, a->rows, a->cap_rows);
    GR_DROP(mem, a->counters, a->cap_counters);
}

/* ---- who calls whom ---- */

typedef struct linker {
    gr_builder *b;
    uint32_t *callees; /* of all rules that were looked at */
    uint32_t num_callees, cap_callees;
    uint32_t *first_callee, *end_callee, *met, *low; /* by rule */
    uint32_t caps[4];
    uint32_t *order; /* rules, callees first */
    uint32_t num_order, cap_order;
    uint32_t num_components;
} linker;

static void linker_fini(linker *l)
{
    gr_mem *mem = &l->b->mem;
    GR_DROP(mem, l->callees, l->cap_callees);
    GR_DROP(mem, l->first_callee, l->caps[0]);
    GR_DROP(mem, l->end_callee, l->caps[1]);
    GR_DROP(mem, l->met, l->caps[2]);
    GR_DROP(mem, l->low, l->caps[3]);
    GR_DROP(mem, l->order, l->cap_order);
}

typedef enum walk_over { OVER_ALL, OVER_NULLABLE, OVER_PRODUCTIVE } walk_over;

/* Whether the rule's end can be reached by such edges. OVER_ALL notes callees besides. */
static bool walk(linker *l, uint32_t rule, walk_over over)
{
    gr_builder *b = l->b;
    nfa *n = &b->n;
    nfa_frag f = b->rules[rule].frag;
    uint32_t depth = 0, visited = 0;
    bool reached = false;
    if (!nfa_walk(n)) return false;
    nfa_meet(n, &depth, f.in);
    while (depth) {
        uint32_t s = n->stack[--depth];
        reached |= s == f.out;
        visited++;
        for (uint32_t e = n->head[s]; e != NO_EDGE; e = n->edges[e].next) {
            const nfa_edge *edge = &n->edges[e];
            visited++;
            if (edge->kind == NFA_RULE) {
                const gr_rule *callee = &b->rules[edge->rule];
                if (over == OVER_ALL) {
                    if (!GR_GROW(&b->mem, l->callees, l->cap_callees, (uint64_t)l->num_callees + 1))
                        return false;
                    l->callees[l->num_callees++] = edge->rule;
                } else if (!callee->nullable && (over == OVER_NULLABLE || !callee->productive)) {
                    continue;
                }
            } else if (edge->kind == NFA_BYTES && over == OVER_NULLABLE) {
                continue;
            }
            nfa_meet(n, &depth, edge->to);
        }
    }
    gr_work(&b->mem, visited);
    return reached;
}

static void meet(linker *l, uint32_t rule, uint32_t *met)
{
    l->met[rule] = l->low[rule] = ++*met;
    l->first_callee[rule] = l->num_callees;
    walk(l, rule, OVER_ALL);
    l->end_callee[rule] = l->num_callees;
}

/* Tarjan's components, without recursion: order[] has callees before their callers. */
static bool find_components(linker *l, uint32_t root)
{
    gr_builder *b = l->b;
    gr_mem *mem = &b->mem;
    uint32_t *path = NULL, *open = NULL, cap_path = 0, cap_open = 0, depth = 0, num_open = 0;
    uint32_t met = 0;
    uint64_t rules = b->num_rules;
    if (GR_GROW(mem, l->first_callee, l->caps[0], rules) &&
        GR_GROW(mem, l->end_callee, l->caps[1], rules) && GR_GROW(mem, l->met, l->caps[2], rules) &&
        GR_GROW(mem, l->low, l->caps[3], rules) && GR_GROW(mem, l->order, l->cap_order, rules) &&
        GR_GROW(mem, path, cap_path, rules) && GR_GROW(mem, open, cap_open, rules)) {
        meet(l, root, &met);
        path[depth++] = open[num_open++] = root;
    }
    while (depth && !mem->status) {
        uint32_t rule = path[depth - 1];
        if (l->first_callee[rule] < l->end_callee[rule]) {
            uint32_t callee = l->callees[l->first_callee[rule]++];
            if (callee == rule) b->rules[rule].recursive = true;
            if (!l->met[callee]) {
                meet(l, callee, &met);
                path[depth++] = open[num_open++] = callee;
            } else if (!b->rules[callee].component) {
                l->low[rule] = RAD_MIN(l->low[rule], l->met[callee]);
            }
            continue;
        }
        depth--;
        if (depth) l->low[path[depth - 1]] = RAD_MIN(l->low[path[depth - 1]], l->low[rule]);
        if (l->low[rule] != l->met[rule]) continue;
        l->num_components++;
        uint32_t member, size = 0;
        do {
            member = open[--num_open];
            b->rules[member].component = l->num_components;
            l->order[l->num_order++] = member;
            size++;
        } while (member != rule);
        for (uint32_t i = 1; size > 1 && i <= size; i++)
            b->rules[l->order[l->num_order - i]].recursive = true;
    }
    GR_DROP(mem, path, cap_path);
    GR_DROP(mem, open, cap_open);
    return !mem->status;
}

/* ---- a rule's DFA ---- */

/* Rewrites the calls in a rule's NFA: copies in their place, edges for nothing beside them. */
static void rewrite_calls(linker *l, uint32_t rule)
{
    gr_builder *b = l->b;
    nfa *n = &b->n;
    nfa_frag f = b->rules[rule].frag;
    uint32_t depth = 0;
    if (!nfa_walk(n)) return;
    uint32_t old_states = n->num_states;
    nfa_meet(n, &depth, f.in);
    while (depth && !b->mem.status) {
        uint32_t s = n->stack[--depth];
        for (uint32_t e = n->head[s]; e != NO_EDGE && !b->mem.status; e = n->edges[e].next) {
            uint32_t to = n->edges[e].to;
            if (n->edges[e].kind == NFA_RULE) {
                gr_rule *callee = &b->rules[n->edges[e].rule];
                if (callee->nullable) nfa_empty(n, s, to); /* joins the list in front of us */
                if (!callee->productive) {                 /* none of what has no text is a text */
                    n->edges[e].kind = NFA_NEVER;
                    if (callee->nullable) nfa_meet(n, &depth, to);
                    continue;
                }
                if (callee->copied) {
                    nfa_frag copy = dfa_embed(n, &callee->d);
                    if (b->mem.status) return;
                    n->edges[e].kind = NFA_EMPTY;
                    n->edges[e].to = copy.in;
                    nfa_empty(n, copy.out, to);
                }
            }
            if (to < old_states) nfa_meet(n, &depth, to); /* not into copies: they are done */
        }
    }
}

/* r = r a | b becomes b a*. */
static bool unwind_left(gr_builder *b, uint32_t rule)
{
    dfa *d = &b->rules[rule].d, made;
    nfa n;
    uint32_t first = d->first[0], end = d->first[1];
    bool begins_with_itself = false;
    for (uint32_t e = first; e < end; e++)
        begins_with_itself |= d->edges[e].rule == rule;
    if (!begins_with_itself) return true;
    nfa_init(&n, &b->mem, b->n.bytes);
    nfa_frag f = dfa_embed(&n, d); /* its states lie behind `in` and `out` */
    uint32_t base = f.out + 1, start = nfa_state(&n);
    for (uint32_t e = first; e < end && !b->mem.status; e++) {
        const dfa_edge *edge = &d->edges[e];
        if (edge->rule == rule)
            nfa_empty(&n, f.out, base + edge->to);
        else
            nfa_edge_add(&n, start, base + edge->to, edge->rule == NO_RULE ? NFA_BYTES : NFA_RULE,
                         edge->lo, edge->hi, edge->rule == NO_RULE ? 0 : edge->rule);
    }
    if (d->accepts[0] && !b->mem.status) nfa_empty(&n, start, f.out);
    f.in = start;
    bool ok = !b->mem.status && dfa_make(&made, &n, f);
    nfa_fini(&n);
    if (!ok) return false;
    dfa_fini(d);
    *d = made;
    return true;
}

/* The same texts but the empty one. */
static bool drop_empty(dfa *d)
{
    gr_mem *mem = d->mem;
    dfa to;
    if (!d->accepts[0]) return true;
    dfa_begin(&to, mem);
    for (uint32_t e = d->first[0]; e < d->first[1]; e++)
        dfa_add(&to, d->edges[e].lo, d->edges[e].hi, d->edges[e].rule, d->edges[e].to + 1);
    dfa_state(&to, false);
    for (uint32_t s = 0; s < d->num_states && !mem->status; s++) {
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++)
            dfa_add(&to, d->edges[e].lo, d->edges[e].hi, d->edges[e].rule, d->edges[e].to + 1);
        dfa_state(&to, d->accepts[s]);
    }
    dfa_fini(d);
    *d = to;
    return dfa_finish(d);
}

static bool make_rule(linker *l, uint32_t rule)
{
    gr_builder *b = l->b;
    rewrite_calls(l, rule);
    if (b->mem.status) return false;
    dfa made;
    bool ok = dfa_make(&made, &b->n, b->rules[rule].frag);
    gr_rule *r = &b->rules[rule];
    r->d = made;
    if (!ok || !unwind_left(b, rule)) return false;
    if (r->repeated && made.accepts[0]) return builder_unroll(b);
    r->copied = !r->recursive && !r->apart && r->d.num_states <= COPIED_STATES &&
                r->d.num_edges <= COPIED_EDGES;
    return true;
}

static bool make_component(linker *l, uint32_t first, uint32_t end)
{
    gr_builder *b = l->b;
    for (bool changed = true; changed && !b->mem.status;) {
        changed = false;
        for (uint32_t i = first; i < end && !b->mem.status; i++) {
            gr_rule *r = &b->rules[l->order[i]];
            if (!r->nullable && (r->repeated ? !r->min : walk(l, l->order[i], OVER_NULLABLE)))
                r->nullable = changed = true;
            if (!r->productive && walk(l, l->order[i], OVER_PRODUCTIVE))
                r->productive = changed = true;
        }
    }
    for (uint32_t i = first; i < end && !b->mem.status; i++)
        if (!make_rule(l, l->order[i])) return false;
    return !b->mem.status;
}

/* ---- the automaton ---- */

/* How many numbers a counter of this rule has. */
static uint64_t numbers_of(const gr_rule *r)
{
    return r->max == NO_END ? (uint64_t)r->min + 1 : r->max;
}

/* Rules that are still called from the root, those that are repeated last, and where their states
 * begin. */
static bool place_rules(linker *l, uint32_t root, gr_automaton *a)
{
    gr_builder *b = l->b;
    uint32_t count = 0, kept = 0, num_repeated = 0;
    uint64_t states = 0, ranges = 0, calls = 0, counters = 0, numbers = 0;
    uint32_t *placed = l->met, *repeated = l->low; /* done with them */
    placed[count++] = root;
    b->rules[root].placed = true;
    for (uint32_t i = 0; i < count; i++) {
        gr_rule *r = &b->rules[placed[i]];
        if (!drop_empty(&r->d)) return false;
        for (uint32_t e = 0; e < r->d.num_edges; e++) {
            uint32_t callee = r->d.edges[e].rule;
            if (callee == NO_RULE) {
                ranges++;
                continue;
            }
            calls++;
            if (b->rules[callee].repeated) {
                counters++;
                numbers += numbers_of(&b->rules[callee]);
            }
            if (b->rules[callee].placed) continue;
            b->rules[callee].placed = true;
            placed[count++] = callee;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const bool last = b->rules[placed[i]].repeated;
        if (last) builder_shortest(b, placed[i], 0);
        *(last ? &repeated[num_repeated++] : &placed[kept++]) = placed[i];
    }
    memcpy(placed + kept, repeated, num_repeated * sizeof *placed);
    for (uint32_t i = 0; i < count; i++) {
        b->rules[placed[i]].first = (uint32_t)states;
        states += b->rules[placed[i]].d.num_states;
        if (i < kept) a->repeated = (uint32_t)states;
    }
    if (states > b->mem.most_states)
        gr_fail(&b->mem, RAD_E_LIMIT, "the grammar takes more than %u states", b->mem.most_states);
    if (states + numbers + 2 > NOWHERE)
        gr_fail(&b->mem, RAD_E_LIMIT, "its lengths and counts come to more than 4 billion");
    a->num_rules = count;
    return GR_GROW(&b->mem, a->states, a->cap_states, states + 1) &&
           GR_GROW(&b->mem, a->ranges, a->cap_ranges, ranges + 1) &&
           GR_GROW(&b->mem, a->calls, a->cap_calls, calls + 1) &&
           (!counters || GR_GROW(&b->mem, a->counters, a->cap_counters, counters));
}

/* The number that stands for a call of a repeated rule; `next`: the first that is free. */
static uint32_t put_counter(const gr_rule *r, uint32_t back, uint32_t *next, gr_automaton *a)
{
    const uint32_t first = *next;
    a->counters[a->num_counters++] = (gr_counter){.first = first,
                                                  .start = r->first,
                                                  .states = r->d.num_states,
                                                  .back = back,
                                                  .min = r->min,
                                                  .max = r->max,
                                                  .shortest = r->shortest,
                                                  .sure = r->sure};
    *next += (uint32_t)numbers_of(r);
    return first;
}

static void put_rule(gr_builder *b, const gr_rule *r, gr_automaton *a, uint32_t *number)
{
    const dfa *d = &r->d;
    for (uint32_t s = 0; s < d->num_states; s++) {
        gr_state *state = &a->states[a->num_states++];
        *state = (gr_state){.ranges = a->num_ranges, .calls = a->num_calls};
        if (r->shared) state->shared = r->shared << 16 | s;
        if (d->accepts[s]) state->flags |= GR_ACCEPTS;
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
            const dfa_edge *edge = &d->edges[e];
            uint32_t to = r->first + edge->to;
            if (edge->rule == NO_RULE) {
                state->flags |= GR_READS;
                a->ranges[a->num_ranges++] = (gr_range){to, edge->lo, edge->hi, 0};
            } else {
                const gr_rule *callee = &b->rules[edge->rule];
                state->flags |= GR_CALLS;
                if (callee->repeated) to = put_counter(callee, to, number, a);
                a->calls[a->num_calls++] = (gr_call){callee->first, to};
            }
        }
    }
}

static bool make_rows(gr_automaton *a, gr_mem *mem)
{
    uint32_t rows = 0;
    for (uint32_t s = 0; s < a->num_states; s++)
        rows += a->states[s + 1].ranges - a->states[s].ranges > ROW_RANGES;
    rows = RAD_MIN(rows, (uint32_t)MOST_ROWS);
    if (!rows) return true;
    if (!GR_GROW(mem, a->rows, a->cap_rows, (uint64_t)rows * 256)) return false;
    for (uint32_t s = 0; s < a->num_states && a->num_rows < rows; s++) {
        gr_state *state = &a->states[s];
        if (state[1].ranges - state->ranges <= ROW_RANGES) continue;
        uint32_t *row = a->rows + (size_t)a->num_rows * 256;
        memset(row, 0xff, 256 * sizeof *row);
        for (uint32_t r = state->ranges; r < state[1].ranges; r++)
            for (unsigned c = a->ranges[r].lo; c <= a->ranges[r].hi; c++)
                row[c] = a->ranges[r].to;
        state->row = ++a->num_rows;
    }
    return true;
}

/* Refuses rules that begin with each other in a circle. Only first states are looked at: no other
 * state is met again without a byte. */
static bool check_left(linker *l, const uint32_t *placed, uint32_t num_placed)
{
    gr_builder *b = l->b;
    gr_mem *mem = &b->mem;
    uint8_t *seen = NULL; /* 1: on the path, 2: done */
    uint32_t *path = NULL, *next = NULL, cap_seen = 0, cap_path = 0, cap_next = 0;
    if (GR_GROW(mem, seen, cap_seen, b->num_rules) &&
        GR_GROW(mem, path, cap_path, (uint64_t)b->num_rules + 1) &&
        GR_GROW(mem, next, cap_next, (uint64_t)b->num_rules + 1)) {
        for (uint32_t i = 0; i < num_placed && !mem->status; i++) {
            uint32_t depth = 0;
            if (seen[placed[i]]) continue;
            path[depth++] = placed[i];
            seen[placed[i]] = 1;
            next[placed[i]] = 0;
            while (depth && !mem->status) {
                gr_rule *r = &b->rules[path[depth - 1]];
                uint32_t e = next[path[depth - 1]]++;
                if (e >= r->d.first[1]) {
                    seen[path[--depth]] = 2;
                    continue;
                }
                uint32_t callee = r->d.edges[e].rule;
                if (callee == NO_RULE || seen[callee] == 2) continue;
                if (seen[callee] == 1) {
                    const gr_rule *c = &b->rules[callee];
                    gr_fail(mem, RAD_E_UNSUPPORTED,
                            "the rule %.*s begins with itself by way of others (left recursion)",
                            c->name ? (int)RAD_MIN(c->name_len, 100u) : 1, c->name ? c->name : "?");
                    break;
                }
                seen[callee] = 1;
                next[callee] = 0;
                path[depth++] = callee;
            }
        }
    }
    GR_DROP(mem, seen, cap_seen);
    GR_DROP(mem, path, cap_path);
    GR_DROP(mem, next, cap_next);
    return !mem->status;
}

static void link_rules(linker *l, uint32_t root, gr_automaton *a)
{
    gr_builder *b = l->b;
    if (!find_components(l, root)) return;
    for (uint32_t first = 0; first < l->num_order;) {
        uint32_t end = first, component = b->rules[l->order[first]].component;
        while (end < l->num_order && b->rules[l->order[end]].component == component)
            end++;
        if (!make_component(l, first, end)) return;
        first = end;
    }
    if (!b->rules[root].productive || dfa_is_never(&b->rules[root].d)) { /* a^b */
        gr_fail(&b->mem, RAD_E_INVAL, "no text has this form");
        return;
    }
    a->empty = b->rules[root].nullable;
    if (!place_rules(l, root, a) || !check_left(l, l->met, a->num_rules)) return;
    const gr_rule *last = &b->rules[l->met[a->num_rules - 1]];
    uint32_t number = last->first + last->d.num_states + 1;
    for (uint32_t i = 0; i < a->num_rules; i++)
        put_rule(b, &b->rules[l->met[i]], a, &number);
    a->last = b->rules[root].d.num_states;
    for (uint32_t c = 0; c < a->num_calls; c++)
        if (!a->calls[c].start) a->last = 0;
    a->states[a->num_states] = (gr_state){.ranges = a->num_ranges, .calls = a->num_calls};
    a->start = 0;
    if (a->num_counters && !repeats_check(b, a)) return;
    make_rows(a, &b->mem);
}

rad_status builder_link(gr_builder *b, uint32_t root, gr_automaton *out)
{
    linker l = {.b = b};
    if (b->mem.status) return b->mem.status;
    link_rules(&l, root, out);
    linker_fini(&l);
    return b->mem.status;
}
