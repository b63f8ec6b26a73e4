/* grammar_matcher.c - one sequence's way through a grammar.
 *
 * A matcher keeps the places behind its last tokens (steps), each a run of threads in one array,
 * and the cells of their stacks. Taking tokens back drops steps; nothing is computed. What no step
 * reaches any more is collected when it is as much as what is reached. */
#include "grammar/grammar_impl.h"

enum { MOST_STEPS = 2 * GRAMMAR_ROLLBACK, COLLECT_CELLS = 1024 };

static bool push_step(grammar_matcher *m, match_step step)
{
    if (m->num_steps == MOST_STEPS) { /* the older half is forgotten */
        uint32_t drop = MOST_STEPS - GRAMMAR_ROLLBACK, by = m->steps[drop].first;
        memmove(m->threads.at, m->threads.at + by, (m->threads.count - by) * sizeof *m->threads.at);
        m->threads.count -= by;
        step.first -= by;
        for (uint32_t i = drop; i < m->num_steps; i++) {
            m->steps[i - drop] = m->steps[i];
            m->steps[i - drop].first -= by;
        }
        m->num_steps -= drop;
    }
    m->steps[m->num_steps++] = step;
    return true;
}

grammar_matcher *grammar_matcher_create(grammar *g)
{
    const rad_env *env = &g->v->env;
    grammar_matcher *m = rad_alloc(env, sizeof *m);
    if (!m) return NULL;
    m->g = grammar_ref(g);
    m->cap_steps = MOST_STEPS;
    m->steps = rad_alloc(env, MOST_STEPS * sizeof *m->steps);
    bool ok = stacks_init(&m->stacks, env) && m->steps;
    m->walker = (walker){.a = &g->a, .stacks = &m->stacks};
    ok = ok && place_enter(&m->walker, g->a.start, BOTTOM, &m->threads, 0);
    if (!ok) {
        grammar_matcher_destroy(m);
        return NULL;
    }
    push_step(m, (match_step){.count = m->threads.count, .may_end = g->a.empty});
    return m;
}

grammar_matcher *grammar_matcher_copy(const grammar_matcher *m)
{
    const rad_env *env = &m->g->v->env;
    grammar_matcher *to = rad_alloc(env, sizeof *to);
    if (!to) return NULL;
    to->g = grammar_ref(m->g);
    to->cap_steps = MOST_STEPS;
    to->steps = rad_alloc(env, MOST_STEPS * sizeof *to->steps);
    bool ok = stacks_copy(&to->stacks, &m->stacks) && to->steps;
    to->walker = (walker){.a = &to->g->a, .stacks = &to->stacks};
    if (!ok || !threads_grow(&to->walker, &to->threads, m->threads.count)) {
        grammar_matcher_destroy(to);
        return NULL;
    }
    if (m->threads.count)
        memcpy(to->threads.at, m->threads.at, m->threads.count * sizeof *to->threads.at);
    to->threads.count = m->threads.count;
    memcpy(to->steps, m->steps, m->num_steps * sizeof *to->steps);
    to->num_steps = m->num_steps;
    to->live = m->live;
    return to;
}

void grammar_matcher_destroy(grammar_matcher *m)
{
    if (!m) return;
    rad_env env = m->g->v->env;
    if (m->walker.stacks) walker_fini(&m->walker);
    rad_free(&env, m->threads.at, (size_t)m->threads.cap * sizeof *m->threads.at);
    rad_free(&env, m->steps, MOST_STEPS * sizeof *m->steps);
    rad_free(&env, m->bits, m->g->v->words * sizeof *m->bits);
    if (m->stacks.env.alloc) stacks_fini(&m->stacks);
    grammar_unref(m->g);
    rad_free(&env, m, sizeof *m);
}

/* Drops cells that no step reaches. Without memory for it they stay. */
static void collect(grammar_matcher *m)
{
    stacks *s = &m->stacks;
    if (s->count < 2 * m->live + COLLECT_CELLS) return;
    size_t bytes = (size_t)s->count * sizeof(uint32_t);
    uint32_t *marks = rad_alloc(&s->env, bytes);
    if (!marks) return;
    for (uint32_t i = 0; i < m->threads.count; i++)
        marks[m->threads.at[i].stacks] = 1;
    stacks_collect(s, marks);
    for (uint32_t i = 0; i < m->threads.count; i++)
        m->threads.at[i].stacks = marks[m->threads.at[i].stacks];
    rad_free(&s->env, marks, bytes);
    m->live = s->count;
}

static bool is_end_token(const grammar_vocab *v, rad_token token)
{
    for (uint32_t i = 0; i < v->num_end_tokens; i++)
        if (v->end_tokens[i] == token) return true;
    return false;
}

rad_status grammar_accept(grammar_matcher *m, rad_token token)
{
    const grammar_vocab *v = m->g->v;
    match_step now = *matcher_now(m);
    threads *t = &m->threads;
    uint32_t count = t->count, cells = m->stacks.count;
    if (token < 0 || (uint32_t)token >= v->vocab_size || now.has_ended) return RAD_NONE;
    if (is_end_token(v, token)) {
        if (!now.may_end) return RAD_NONE;
        push_step(m, (match_step){.first = count, .may_end = true, .has_ended = true});
        return RAD_OK;
    }
    uint32_t at = v->first[token], end = v->first[token + 1];
    match_step next = now;
    rad_status status = at == end ? RAD_NONE : RAD_OK;
    m->walker.status = RAD_OK;
    for (; at < end && !status; at++) {
        uint32_t first = t->count;
        if (!place_step(&m->walker, t, next.first, next.count, (unsigned char)v->bytes[at]))
            status = m->walker.status;
        next = (match_step){.first = first, .count = t->count - first, .may_end = m->walker.ended};
        if (!status && !next.count && !(next.may_end && at + 1 == end)) status = RAD_NONE;
    }
    if (status) {
        t->count = count;
        stacks_cut(&m->stacks, cells);
        return status;
    }
    if (next.count) memmove(t->at + count, t->at + next.first, next.count * sizeof *t->at);
    next.first = count;
    t->count = count + next.count;
    push_step(m, next);
    collect(m);
    return RAD_OK;
}

rad_status grammar_rollback(grammar_matcher *m, uint32_t count)
{
    if (count >= m->num_steps) return RAD_E_INVAL;
    if (!count) return RAD_OK;
    m->threads.count = m->steps[m->num_steps - count].first;
    m->num_steps -= count;
    return RAD_OK;
}

rad_status grammar_mask(grammar_matcher *m, uint32_t *bits)
{
    const grammar_vocab *v = m->g->v;
    const match_step *now = matcher_now(m);
    memset(bits, 0, v->words * sizeof *bits);
    if (now->has_ended) return RAD_OK;
    if (now->may_end)
        for (uint32_t i = 0; i < v->num_end_tokens; i++)
            bits[v->end_tokens[i] / 32] |= 1u << v->end_tokens[i] % 32;
    if (!now->count) return RAD_OK;
    uint32_t held = m->threads.count, cells = m->stacks.count;
    rad_status status = mask_fill(m, now, bits);
    m->threads.count = held;
    stacks_cut(&m->stacks, cells);
    return status;
}

bool grammar_may_end(const grammar_matcher *m)
{
    return matcher_now(m)->may_end && !matcher_now(m)->has_ended;
}

bool grammar_must_end(const grammar_matcher *m)
{
    return grammar_may_end(m) && !matcher_now(m)->count;
}

bool grammar_has_ended(const grammar_matcher *m)
{
    return matcher_now(m)->has_ended;
}

/* ---- what must come ---- */

/* The one byte that a run of threads reads, or -1. */
static int only_byte(const grammar_matcher *m, uint32_t first, uint32_t count)
{
    const gr_automaton *a = &m->g->a;
    int byte = -1;
    for (uint32_t i = first; i < first + count; i++) {
        const gr_state *s = &a->states[m->threads.at[i].state];
        if (s[1].ranges - s->ranges != 1) return -1;
        const gr_range *r = &a->ranges[s->ranges];
        if (r->lo != r->hi || (byte >= 0 && byte != r->lo)) return -1;
        byte = r->lo;
    }
    return byte;
}

size_t grammar_forced_bytes(grammar_matcher *m, char *bytes, size_t room)
{
    match_step at = *matcher_now(m);
    threads *t = &m->threads;
    uint32_t held = t->count, cells = m->stacks.count;
    size_t n = 0;
    int byte;
    m->walker.status = RAD_OK;
    while (n < room && !at.may_end && !at.has_ended &&
           (byte = only_byte(m, at.first, at.count)) >= 0) {
        uint32_t first = t->count;
        if (!place_step(&m->walker, t, at.first, at.count, (unsigned char)byte)) break;
        at = (match_step){.first = first, .count = t->count - first, .may_end = m->walker.ended};
        bytes[n++] = (char)byte;
    }
    t->count = held;
    stacks_cut(&m->stacks, cells);
    return n;
}

/* The longest token that bytes[0..len) begin with; *taken: its length. */
static rad_token longest_token(const trie *t, const char *bytes, size_t len, size_t *taken)
{
    rad_token found = -1;
    uint32_t at = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t child = at + 1, end = t->nodes[at].skip;
        while (child < end && t->nodes[child].byte != (unsigned char)bytes[i])
            child = t->nodes[child].skip;
        if (child >= end) break;
        at = child;
        if (t->nodes[at + 1].tokens > t->nodes[at].tokens) {
            found = t->order[t->nodes[at].tokens];
            *taken = i + 1;
        }
    }
    return found;
}

uint32_t grammar_forced(grammar_matcher *m, rad_token *tokens, uint32_t room)
{
    char bytes[GRAMMAR_MAX_PIECE];
    const grammar_vocab *v = m->g->v;
    uint32_t n = 0;
    if (!room) return 0;
    if (grammar_must_end(m) && v->num_end_tokens) {
        tokens[0] = v->end_tokens[0];
        return 1;
    }
    size_t len = grammar_forced_bytes(m, bytes, sizeof bytes), at = 0, taken;
    while (n < room && at < len) {
        rad_token token = longest_token(&v->all, bytes + at, len - at, &taken);
        if (token < 0) break;
        tokens[n++] = token;
        at += taken;
    }
    return n;
}

rad_status grammar_try(grammar *g, const char *bytes, size_t len, bool whole)
{
    grammar_matcher *m = grammar_matcher_create(g);
    if (!m) return RAD_E_NOMEM;
    match_step at = *matcher_now(m);
    rad_status status = RAD_OK;
    for (size_t i = 0; i < len && !status; i++) {
        uint32_t first = m->threads.count;
        if (!place_step(&m->walker, &m->threads, at.first, at.count, (unsigned char)bytes[i]))
            status = m->walker.status;
        at.count = m->threads.count - first;
        at.may_end = m->walker.ended;
        if (at.count)
            memmove(m->threads.at, m->threads.at + first, at.count * sizeof *m->threads.at);
        at.first = 0;
        m->threads.count = at.count;
        if (!status && !at.count && !(at.may_end && i + 1 == len)) status = RAD_NONE;
    }
    if (!status && whole && !at.may_end) status = RAD_NONE;
    grammar_matcher_destroy(m);
    return status;
}
