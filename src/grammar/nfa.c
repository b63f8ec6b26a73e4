/* nfa.c - fragments of automata, put together as the text that describes them. */
#include "grammar/nfa.h"

void nfa_init(nfa *n, gr_mem *mem, const uint64_t bytes[4])
{
    *n = (nfa){.mem = mem};
    memcpy(n->bytes, bytes, sizeof n->bytes);
}

void nfa_fini(nfa *n)
{
    if (!n->mem) return;
    GR_DROP(n->mem, n->edges, n->cap_edges);
    GR_DROP(n->mem, n->head, n->cap_states);
    GR_DROP(n->mem, n->stamp, n->cap_stamp);
    GR_DROP(n->mem, n->stack, n->cap_stack);
    *n = (nfa){0};
}

bool nfa_walk(nfa *n)
{
    n->now++;
    return GR_GROW(n->mem, n->stamp, n->cap_stamp, n->num_states) &&
           GR_GROW(n->mem, n->stack, n->cap_stack, 1);
}

uint32_t nfa_state(nfa *n)
{
    if (!GR_GROW(n->mem, n->head, n->cap_states, (uint64_t)n->num_states + 1)) return 0;
    n->head[n->num_states] = NO_EDGE;
    return n->num_states++;
}

void nfa_edge_add(nfa *n, uint32_t from, uint32_t to, nfa_kind kind, uint8_t lo, uint8_t hi,
                  uint32_t rule)
{
    if (!GR_GROW(n->mem, n->edges, n->cap_edges, (uint64_t)n->num_edges + 1)) return;
    n->edges[n->num_edges] = (nfa_edge){
        .to = to, .next = n->head[from], .rule = rule, .kind = (uint8_t)kind, .lo = lo, .hi = hi};
    n->head[from] = n->num_edges++;
    n->has_end |= kind == NFA_END;
}

void nfa_raw(nfa *n, uint32_t from, uint32_t to, unsigned lo, unsigned hi)
{
    nfa_edge_add(n, from, to, NFA_BYTES, (uint8_t)lo, (uint8_t)hi, 0);
}

void nfa_range(nfa *n, uint32_t from, uint32_t to, unsigned lo, unsigned hi)
{
    for (unsigned b = lo; b <= hi; b++) {
        if (!(n->bytes[b / 64] >> b % 64 & 1)) continue;
        unsigned last = b;
        while (last < hi && n->bytes[(last + 1) / 64] >> (last + 1) % 64 & 1)
            last++;
        nfa_raw(n, from, to, b, last);
        b = last;
    }
}

static nfa_frag begin(nfa *n)
{
    nfa_frag f = {.first_state = n->num_states, .first_edge = n->num_edges};
    f.in = f.out = nfa_state(n);
    return f;
}

nfa_frag nfa_nothing(nfa *n)
{
    return begin(n);
}

nfa_frag nfa_never(nfa *n)
{
    nfa_frag f = begin(n);
    f.out = nfa_state(n);
    return f;
}

nfa_frag nfa_literal(nfa *n, const char *bytes, size_t len)
{
    nfa_frag f = begin(n);
    for (size_t i = 0; i < len && !n->mem->status; i++) {
        uint32_t to = nfa_state(n);
        nfa_range(n, f.out, to, (unsigned char)bytes[i], (unsigned char)bytes[i]);
        f.out = to;
    }
    return f;
}

nfa_frag nfa_rule(nfa *n, uint32_t rule)
{
    nfa_frag f = begin(n);
    f.out = nfa_state(n);
    nfa_edge_add(n, f.in, f.out, NFA_RULE, 0, 0, rule);
    return f;
}

nfa_frag nfa_anchor(nfa *n, nfa_kind kind)
{
    nfa_frag f = begin(n);
    f.out = nfa_state(n);
    nfa_edge_add(n, f.in, f.out, kind, 0, 0, 0);
    return f;
}

/* A byte that UTF-8 never has, then 24 bits of the token's id. */
nfa_frag nfa_control(nfa *n, uint32_t token)
{
    nfa_frag f = begin(n);
    for (int i = 3; i >= 0; i--) {
        uint32_t to = nfa_state(n), byte = i == 3 ? 0xff : token >> 8 * i & 0xff;
        nfa_raw(n, f.out, to, byte, byte);
        f.out = to;
    }
    return f;
}

nfa_frag nfa_concat(nfa *n, nfa_frag a, nfa_frag b)
{
    nfa_empty(n, a.out, b.in);
    a.out = b.out;
    return a;
}

nfa_frag nfa_either(nfa *n, nfa_frag a, nfa_frag b)
{
    uint32_t in = nfa_state(n), out = nfa_state(n);
    nfa_empty(n, in, a.in);
    nfa_empty(n, in, b.in);
    nfa_empty(n, a.out, out);
    nfa_empty(n, b.out, out);
    a.in = in;
    a.out = out;
    return a;
}

/* Copies the states and edges of `f`, which end before those numbers. */
static nfa_frag copy(nfa *n, nfa_frag f, uint32_t end_state, uint32_t end_edge)
{
    uint32_t by = n->num_states - f.first_state, edges_by = n->num_edges - f.first_edge;
    nfa_frag to = {f.in + by, f.out + by, n->num_states, n->num_edges};
    if (!gr_work(n->mem, (end_state - f.first_state) + (end_edge - f.first_edge)) ||
        !GR_GROW(n->mem, n->head, n->cap_states,
                 (uint64_t)n->num_states + (end_state - f.first_state)) ||
        !GR_GROW(n->mem, n->edges, n->cap_edges,
                 (uint64_t)n->num_edges + (end_edge - f.first_edge)))
        return f;
    for (uint32_t s = f.first_state; s < end_state; s++) {
        uint32_t head = n->head[s];
        /* Edges that were added behind the fragment's end lead out of it: they come first in the
         * list, and are not copied. */
        while (head != NO_EDGE && head >= end_edge)
            head = n->edges[head].next;
        n->head[s + by] = head == NO_EDGE ? NO_EDGE : head + edges_by;
    }
    for (uint32_t e = f.first_edge; e < end_edge; e++) {
        nfa_edge edge = n->edges[e];
        edge.to += by;
        if (edge.next != NO_EDGE) edge.next += edges_by;
        n->edges[e + edges_by] = edge;
    }
    n->num_states += end_state - f.first_state;
    n->num_edges += end_edge - f.first_edge;
    return to;
}

nfa_frag nfa_repeat(nfa *n, nfa_frag a, uint32_t min, uint32_t max)
{
    uint32_t end_state = n->num_states, end_edge = n->num_edges;
    nfa_frag whole = a;
    uint32_t copies = max == UINT32_MAX ? RAD_MAX(min, 1u) : max;
    uint32_t in = nfa_state(n), out = nfa_state(n);
    uint32_t at = in;
    if (!max) { /* nothing, and what cannot be reached */
        whole.in = whole.out = in;
        return whole;
    }
    for (uint32_t i = 0; i < copies && !n->mem->status; i++) {
        nfa_frag each = i ? copy(n, a, end_state, end_edge) : a;
        if (i >= min) nfa_empty(n, at, out); /* enough of them */
        nfa_empty(n, at, each.in);
        if (max == UINT32_MAX && i + 1 == copies) {
            /* Over a state of its own: `a` may lead from its end to its beginning itself. */
            uint32_t again = nfa_state(n);
            nfa_empty(n, each.out, again);
            nfa_empty(n, again, each.in);
            at = again;
        } else {
            at = each.out;
        }
    }
    nfa_empty(n, at, out);
    whole.in = in;
    whole.out = out;
    return whole;
}
