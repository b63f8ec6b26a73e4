/* grammar_mask.c - which tokens may come at a place.
 *
 * A place is a list of threads, and its mask the union of theirs. What a thread allows depends on
 * its state, and on its stacks only where a token goes on behind the end of the state's rule. So
 * for a state two things are kept (mask_cache.c): the tokens that stay within its rule or calls
 * from it, as bits or, where they are few, as a list; and the others as a tree of what is left of
 * them behind the rule's end. To a mask the first is joined, and the second walked with the states
 * that the thread returns to:
 *
 *     in a string:   ok, the, "            bits: nearly all tokens of the vocabulary
 *                    ",  "},  ":           a tree of , } : to be walked behind the closing quote
 *
 * In a rule that is repeated, what a state allows depends on how many more may come and how many
 * must, each as far as a token reaches: so a long string has one mask until its bound is near, and
 * strings of other bounds have the same ones. What is behind the last one is part of it, up to the
 * end of the rule that repeats:
 *
 *     in a string:   left: 1000 of at most 2000 -> "more than a token has, none must"
 *
 * A state that is met for the first time costs a walk over the vocabulary's tree. Where it reads
 * any plain text (characters without controls, " and \) up to some length, and no plain text beyond
 * it, which is true of nearly all states that read much, plain tokens are joined as a set, by
 * length, and only the tree of the others is walked. */
#include "grammar/grammar_impl.h"

/* ---- walks ---- */

/* In place of a number of threads: one.state is in a simple repeat, behind one.stacks of them. */
#define IN_REPEAT UINT32_MAX

typedef struct pop_list { /* nodes of a tree behind which the rule may end */
    uint32_t *nodes;
    uint32_t count, cap;
} pop_list;

static void set_tokens(const trie *t, uint32_t node, uint32_t *bits)
{
    for (uint32_t k = t->nodes[node].tokens; k < t->nodes[node + 1].tokens; k++)
        bits[t->order[k] / 32] |= 1u << t->order[k] % 32;
}

/* One byte in a simple repeat: where it leads from `t`, or NOWHERE. */
static thread repeat_step(const gr_automaton *a, const gr_counter *k, unsigned char byte, thread t)
{
    if (t.state == k->start && t.stacks >= k->max) return (thread){NOWHERE, 0};
    t.state = automaton_next(a, t.state, byte);
    if (t.state != NOWHERE && a->states[t.state].flags == GR_ACCEPTS)
        t = (thread){k->start, t.stacks + 1};
    return t;
}

/* Appends the threads behind `byte` of what is behind all of them; the stacks are empty there. */
static bool repeat_leave(walker *w, const gr_counter *k, unsigned char byte, threads *list)
{
    const uint32_t from = list->count;
    if (!place_enter(w, k->back, BOTTOM, list, from)) return false;
    const uint32_t before = list->count - from;
    if (!place_step(w, list, from, before, byte)) return false;
    list->count -= before;
    memmove(list->at + from, list->at + from + before, (list->count - from) * sizeof *list->at);
    return true;
}

/* Adds the node to `pops`, unless NULL, where tokens go on behind it. */
static bool add_pop(walker *w, pop_list *pops, const trie *t, uint32_t node)
{
    if (!pops || t->nodes[node].skip == node + 1) return true;
    if (!place_grow(&w->stacks->env, &pops->nodes, &pops->cap, pops->count + 1,
                    sizeof *pops->nodes))
        return false;
    pops->nodes[pops->count++] = node;
    return true;
}

/* Sets the bits of all tokens that the threads list->at[first..first + count) read. Where the
 * bottom of the stacks is met and tokens go on, the node is added to `pops`, unless NULL. Most
 * places have one thread, and most bytes lead to a state that neither calls nor returns: that is
 * done in line; and so is the one thread that is in the simple repeat `in`, unless NULL: instead of
 * stacks it has how many have come. */
static rad_status walk(walker *w, threads *list, const trie *t, uint32_t first, uint32_t count,
                       const gr_counter *in, uint32_t *bits, pop_list *pops)
{
    const gr_automaton *a = w->a;
    struct {
        thread one; /* where there is one thread */
        uint32_t first, count, top;
    } at[GRAMMAR_MAX_PIECE + 1];
    at[0].first = first;
    at[0].count = count;
    at[0].top = list->count;
    if (count == 1) at[0].one = list->at[first];
    bool ends = false;
    w->status = RAD_OK;
    if (in) {
        at[0].count = IN_REPEAT;
        ends = a->states[in->back].flags & GR_ACCEPTS; /* no call behind it reads nothing */
    }
    for (uint32_t i = 1; i < t->num_nodes;) {
        const trie_node *node = &t->nodes[i];
        uint32_t depth = node->depth;
        bool ended = false;
        at[depth].top = at[depth - 1].top;
        if (at[depth - 1].count == 1) {
            thread from = at[depth - 1].one;
            uint32_t to = automaton_next(a, from.state, node->byte);
            if (to == NOWHERE) {
                i = node->skip;
                continue;
            }
            if (a->states[to].flags == GR_READS) {
                set_tokens(t, i++, bits);
                at[depth].one = (thread){to, from.stacks};
                at[depth].count = 1;
                continue;
            }
            list->count = at[depth].top;
            w->ended = false;
            if (!place_enter(w, to, from.stacks, list, list->count)) return w->status;
        } else if (at[depth - 1].count == IN_REPEAT) {
            const thread from = at[depth - 1].one, to = repeat_step(a, in, node->byte, from);
            const bool between = to.state == in->start && to.stacks >= in->min;
            if (to.state != NOWHERE) {
                if (between && ends && !add_pop(w, pops, t, i)) return RAD_E_NOMEM;
                set_tokens(t, i++, bits);
                at[depth].one = to;
                at[depth].count = IN_REPEAT;
                continue;
            }
            if (from.state != in->start || from.stacks < in->min) {
                i = node->skip;
                continue;
            }
            list->count = at[depth].top;
            if (!repeat_leave(w, in, node->byte, list)) return w->status;
        } else {
            list->count = at[depth].top;
            if (!place_step(w, list, at[depth - 1].first, at[depth - 1].count, node->byte))
                return w->status;
        }
        ended = w->ended;
        at[depth].first = at[depth].top;
        at[depth].count = list->count - at[depth].top;
        if (at[depth].count == 1)
            at[depth].one = list->at[at[depth].first];
        else
            at[depth].top = list->count;
        if (!at[depth].count && !ended) {
            i = node->skip;
            continue;
        }
        set_tokens(t, i, bits);
        if (ended && !add_pop(w, pops, t, i)) return RAD_E_NOMEM;
        i = at[depth].count ? i + 1 : node->skip;
    }
    return RAD_OK;
}

/* ---- plain text ---- */

enum { MOST_LEVEL = 16, MOST_PAIRS = 64 };

/* How a character goes on behind its first bytes. */
typedef enum char_part {
    FIRST,
    LAST1,
    LAST2,
    LAST3,
    AFTER_E0,
    AFTER_ED,
    AFTER_F0,
    AFTER_F4
} char_part;

static const struct char_edge {
    uint8_t part, lo, hi, to; /* to FIRST: the character is whole */
} char_edges[] = {
    {FIRST, 0x20, 0x21, FIRST},    {FIRST, 0x23, 0x5b, FIRST},    {FIRST, 0x5d, 0x7f, FIRST},
    {FIRST, 0xc2, 0xdf, LAST1},    {FIRST, 0xe0, 0xe0, AFTER_E0}, {FIRST, 0xe1, 0xec, LAST2},
    {FIRST, 0xed, 0xed, AFTER_ED}, {FIRST, 0xee, 0xef, LAST2},    {FIRST, 0xf0, 0xf0, AFTER_F0},
    {FIRST, 0xf1, 0xf3, LAST3},    {FIRST, 0xf4, 0xf4, AFTER_F4}, {LAST1, 0x80, 0xbf, FIRST},
    {LAST2, 0x80, 0xbf, LAST1},    {LAST3, 0x80, 0xbf, LAST2},    {AFTER_E0, 0xa0, 0xbf, LAST1},
    {AFTER_ED, 0x80, 0x9f, LAST1}, {AFTER_F0, 0x90, 0xbf, LAST2}, {AFTER_F4, 0x80, 0x8f, LAST2}};

typedef struct level { /* states behind so many plain characters */
    uint32_t states[MOST_LEVEL];
    uint32_t count;
} level;

typedef struct plain_look {
    const gr_automaton *a;
    bool all;   /* each state of the level reads every plain character */
    bool turns; /* one calls or returns on the way, so more may be read than is seen here */
    bool many;  /* more states than are followed */
} plain_look;

static void add_state(plain_look *p, level *l, uint32_t state)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->states[i] == state) return;
    if (l->count == MOST_LEVEL)
        p->many = true;
    else
        l->states[l->count++] = state;
}

static void read_plain(plain_look *p, uint32_t state, level *next)
{
    const gr_automaton *a = p->a;
    struct {
        uint32_t state, part;
    } pairs[MOST_PAIRS];
    uint32_t count = 0;
    pairs[count].state = state;
    pairs[count++].part = FIRST;
    for (uint32_t i = 0; i < count; i++) {
        for (size_t e = 0; e < RAD_COUNT(char_edges); e++) {
            const struct char_edge *edge = &char_edges[e];
            if (edge->part != pairs[i].part) continue;
            unsigned covered = edge->lo;
            const gr_state *s = &a->states[pairs[i].state];
            for (uint32_t r = s->ranges; r < s[1].ranges; r++) {
                const gr_range *range = &a->ranges[r];
                if (range->hi < edge->lo || range->lo > edge->hi) continue;
                if (range->lo > covered) p->all = false;
                covered = range->hi + 1u;
                p->turns |= (a->states[range->to].flags & GR_TURNS) != 0;
                if (edge->to == FIRST) {
                    add_state(p, next, range->to);
                    continue;
                }
                bool known = false;
                for (uint32_t k = 0; k < count; k++)
                    known |= pairs[k].state == range->to && pairs[k].part == edge->to;
                if (known) continue;
                if (count == MOST_PAIRS) {
                    p->many = true;
                    continue;
                }
                pairs[count].state = range->to;
                pairs[count++].part = edge->to;
            }
            if (covered <= edge->hi) p->all = false;
        }
    }
}

static bool same_level(const level *a, const level *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; i < a->count && same; i++) {
        bool found = false;
        for (uint32_t k = 0; k < b->count; k++)
            found |= a->states[i] == b->states[k];
        same = found;
    }
    return same;
}

/* How many plain characters `state` reads whatever they are, at most PLAIN_LENGTHS; *exactly: and
 * no plain text that is longer. */
static uint32_t plain_length(const gr_automaton *a, uint32_t state, bool *exactly)
{
    plain_look p = {.a = a, .all = true};
    level now = {.states = {state}, .count = 1};
    *exactly = false;
    for (uint32_t length = 0;; length++) {
        level next = {.count = 0};
        for (uint32_t i = 0; i < now.count; i++)
            read_plain(&p, now.states[i], &next);
        if (p.many) return length;
        if (!next.count) {
            *exactly = !p.turns;
            return length;
        }
        if (!p.all) return length;
        if (length + 1 >= PLAIN_LENGTHS || same_level(&now, &next)) {
            *exactly = true; /* longer tokens count as not plain */
            return PLAIN_LENGTHS;
        }
        now = next;
    }
}

/* How many plain characters a simple repeat of any such one reads whatever they are, and none more;
 * 0: it is another. `last`: nothing is behind the rule. */
static uint32_t plain_repeats(const gr_automaton *a, const gr_counter *k, uint32_t come, bool last)
{
    plain_look p = {.a = a, .all = true};
    level one = {.count = 0};
    const uint32_t most = RAD_MIN(k->max - come, (uint32_t)PLAIN_LENGTHS);
    /* What is behind the repeat begins with none (is_simple); behind the rule there may be some. */
    const bool ends = !last && a->states[k->back].flags & GR_ACCEPTS;
    read_plain(&p, k->start, &one);
    bool plain = p.all && !p.many && (!ends || most == PLAIN_LENGTHS);
    for (uint32_t i = 0; i < one.count; i++)
        plain = plain && a->states[one.states[i]].flags == GR_ACCEPTS;
    return plain ? most : 0;
}

/* ---- one state ---- */

/* What is left of the tokens below the nodes where the rule may end, as pieces to be sorted. Not of
 * those that are allowed whatever is behind it: in a repeat they are many. */
static rad_status list_remainders(const grammar_vocab *v, const trie *t, const pop_list *pops,
                                  const uint32_t *bits, trie_piece **pieces, uint32_t *count,
                                  uint32_t *cap)
{
    for (uint32_t i = 0; i < pops->count; i++) {
        const trie_node *node = &t->nodes[pops->nodes[i]];
        uint32_t first = node[1].tokens, end = t->nodes[node->skip].tokens;
        if (!place_grow(&v->env, pieces, cap, *count + (end - first), sizeof **pieces))
            return RAD_E_NOMEM;
        for (uint32_t k = first; k < end; k++) {
            rad_token id = t->order[k];
            uint32_t at = v->first[id] + node->depth;
            if (bits[id / 32] >> id % 32 & 1) continue;
            if (*count == MOST_REMAINDERS) return RAD_FULL;
            (*pieces)[(*count)++] =
                (trie_piece){(const unsigned char *)v->bytes + at, v->first[id + 1] - at, id};
        }
    }
    return RAD_OK;
}

/* Where a mask is wanted: a state, and in a rule that is repeated, how many have come. */
typedef struct mask_place {
    uint32_t state, come;
    const gr_counter *k; /* or NULL */
} mask_place;

/* What matters of the count: how many may come yet, and how many must, as far as a token's bytes
 * reach. 0 in no repeat. Of a rule that is the same in all grammars so is what is behind it. */
static uint64_t mask_left(const grammar *g, mask_place p)
{
    if (!p.k) return 0;
    /* A byte may end the one at hand; each other takes as many as it has. And one more, which no
     * token ends: so a number that is cut off to this one is met by none. */
    const uint32_t reach = 2 + g->v->longest / p.k->shortest;
    const uint64_t may = p.k->max == NO_END ? reach : RAD_MIN(p.k->max - p.come, reach);
    const uint64_t must = p.k->min > p.come ? RAD_MIN(p.k->min - p.come, reach) : 0;
    const uint64_t which = (uint64_t)(p.k - g->a.counters) + 1;
    return (g->a.states[p.state].shared ? 0 : which << 32) | may << 16 | must;
}

/* The stacks of a place whose rule returns to the bottom. */
static uint32_t mask_stacks(stacks *s, mask_place p)
{
    if (!p.k) return BOTTOM;
    const uint32_t back = stacks_push(s, p.k->back, BOTTOM);
    return s->status ? NO_STACKS : stacks_push(s, p.k->first + p.come, back);
}

/* The entry of a place, whose first byte is read by its own ranges, with nothing known of where its
 * rule returns to. */
static rad_status compute(grammar *g, mask_place place, uint32_t *bits, mask_entry **out)
{
    grammar_vocab *v = g->v;
    stacks cells;
    threads list = {0};
    walker w = {.a = &g->a, .stacks = &cells};
    pop_list pops = {0};
    trie_piece *pieces = NULL;
    uint32_t count = 0, cap = 0;
    bool exactly, direct = false;
    memset(bits, 0, v->words * sizeof *bits);
    rad_status status = stacks_init(&cells, &v->env) && threads_grow(&w, &list, 64) ? RAD_OK
                                                                                    : RAD_E_NOMEM;
    const gr_counter *in = place.k && place.k->simple ? place.k : NULL;
    uint32_t below = place.come;
    if (!status && !in) {
        below = mask_stacks(&cells, place);
        status = cells.status;
    }
    if (!status) {
        const bool last = (place.k ? place.k->back : place.state) < g->a.last;
        uint32_t plain = 0;
        if (in && place.state == in->start) plain = plain_repeats(&g->a, in, place.come, last);
        exactly = plain > 0;
        if (!plain) plain = plain_length(&g->a, place.state, &exactly);
        const trie *t = exactly ? &v->rest : &v->all;
        if (plain && exactly)
            memcpy(bits, v->plain + (size_t)(plain - 1) * v->words, v->words * sizeof *bits);
        list.at[0] = (thread){place.state, below};
        list.count = 1;
        status = walk(&w, &list, t, 0, 1, in, bits, last ? NULL : &pops);
        if (!status) status = list_remainders(v, t, &pops, bits, &pieces, &count, &cap);
        direct = status == RAD_FULL;
        if (direct) status = RAD_OK;
    }
    if (!status) status = mask_entry_make(v, bits, pieces, direct ? 0 : count, direct, out);
    rad_free(&v->env, pieces, (size_t)cap * sizeof *pieces);
    rad_free(&v->env, pops.nodes, (size_t)pops.cap * sizeof *pops.nodes);
    rad_free(&v->env, list.at, (size_t)list.cap * sizeof *list.at);
    walker_fini(&w);
    stacks_fini(&cells);
    return status;
}

/* The entry of a place, held: one that is kept, or made now and kept. *bits: room for a mask, which
 * is made with the first that is computed; the caller frees it. */
static rad_status entry_of(grammar *g, mask_place p, uint32_t **bits, mask_entry **out)
{
    grammar_vocab *v = g->v;
    const uint64_t left = mask_left(g, p);
    *out = mask_cache_find(v, g, p.state, left);
    if (*out) return RAD_OK;
    if (!*bits) *bits = rad_alloc(&v->env, v->words * sizeof **bits);
    if (!*bits) return RAD_E_NOMEM;
    rad_status status = compute(g, p, *bits, out);
    if (!status) mask_cache_keep(v, g, p.state, left, *out);
    return status;
}

static void join(const mask_entry *e, uint32_t *bits, uint32_t words)
{
    if (e->bits)
        for (uint32_t i = 0; i < words; i++)
            bits[i] |= e->bits[i];
    for (uint32_t i = 0; i < e->num_tokens; i++)
        bits[e->tokens[i] / 32] |= 1u << e->tokens[i] % 32;
}

/* Joins what `t` allows, which is at `p`; `returns` are the stacks below its rule. */
static rad_status join_place(grammar_matcher *m, mask_place p, thread t, uint32_t returns,
                             uint32_t *bits)
{
    grammar *g = m->g;
    grammar_vocab *v = g->v;
    threads *list = &m->threads;
    uint32_t before = list->count;
    mask_entry *e;
    rad_status status = entry_of(g, p, &m->bits, &e);
    if (status) return status;
    if (e->direct) {
        /* Its tokens end its rule everywhere: what is left would be the whole vocabulary. */
        if (!threads_grow(&m->walker, list, before + 1)) status = m->walker.status;
        if (!status) list->at[list->count++] = t;
        if (!status) status = walk(&m->walker, list, &v->all, before, 1, NULL, bits, NULL);
    } else {
        join(e, bits, v->words);
        m->walker.status = RAD_OK;
        if (e->rest.num_nodes > 1) {
            if (!place_return(&m->walker, returns, list, before))
                status = m->walker.status;
            else if (list->count > before)
                status = walk(&m->walker, list, &e->rest, before, list->count - before, NULL, bits,
                              NULL);
        }
    }
    list->count = before;
    mask_cache_release(v, e);
    return status;
}

static rad_status join_thread(grammar_matcher *m, thread t, uint32_t *bits)
{
    const gr_automaton *a = &m->g->a;
    stacks *s = &m->stacks;
    rad_status status = RAD_OK;
    if (t.state < a->repeated)
        return join_place(m, (mask_place){.state = t.state}, t, t.stacks, bits);
    /* On top of a repeated rule's stacks are counts alone. */
    for (uint32_t c = t.stacks; c && !status; c = s->cells[c].beside) {
        const stack_cell cell = s->cells[c];
        const gr_counter *k = automaton_counter(a, cell.back);
        const mask_place p = {t.state, cell.back - k->first, k};
        const thread one = {t.state, stacks_push(s, cell.back, cell.below)};
        status = s->status;
        if (!status) status = join_place(m, p, one, s->cells[cell.below].below, bits);
    }
    return status;
}

rad_status mask_fill(grammar_matcher *m, const match_step *at, uint32_t *bits)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < at->count && !status; i++)
        status = join_thread(m, m->threads.at[at->first + i], bits);
    return status;
}

/* Makes the entries that a grammar shares with all others. */
static rad_status warm(grammar_vocab *v, const grammar_spec *spec)
{
    grammar *g;
    uint32_t *bits = NULL;
    rad_status status = grammar_compile(v, spec, NULL, &g, NULL);
    if (status) return status;
    for (uint32_t s = 0; s < g->a.num_states && !status; s++) {
        if (!(g->a.states[s].flags & GR_READS) || !g->a.states[s].shared) continue;
        const mask_place p = {.state = s, .k = s < g->a.repeated ? NULL : g->a.counters};
        mask_entry *e;
        status = entry_of(g, p, &bits, &e);
        if (!status) mask_cache_release(v, e);
    }
    rad_free(&v->env, bits, v->words * sizeof *bits);
    grammar_unref(g);
    return status;
}

rad_status grammar_vocab_warm(grammar_vocab *v)
{
    static const char text[] = "{\"type\": \"string\", \"maxLength\": 1000000}";
    const grammar_spec object = {.kind = GRAMMAR_JSON_OBJECT};
    const grammar_spec string = {.kind = GRAMMAR_JSON_SCHEMA, .text = text, .len = sizeof text - 1};
    const rad_status status = warm(v, &object);
    return status ? status : warm(v, &string);
}
