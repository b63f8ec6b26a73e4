/* prefix_model.h - a cache as a list of prefixes, obviously right: what test_radix_model.c holds
 * the tree against.
 *
 * The model knows no nodes: it is a list with an entry for each cached page, named by
 * its namespace and all tokens up to its end. Matching is "how many prefixes are in the
 * list", eviction takes the unlocked page that no other entry continues and that has the
 * lowest key, found by looking at all. A page carries what a node does (times, hits,
 * priority, heat, pin, retention), so policies and pins are checked page by page, however
 * the tree cuts its nodes. */
#ifndef TESTS_PREFIX_MODEL_H
#define TESTS_PREFIX_MODEL_H

#include "test.h"

#include <radish/cache.h>

#include "cache/evict_policy.h"

enum { MOST_PAGES = 256, MOST_TOKENS = 160 };

typedef struct entry {
    uint32_t space;
    uint32_t num_tokens; /* of the prefix that ends with this page */
    rad_token tokens[MOST_TOKENS];
    rad_page page;
    uint64_t used;
    uint32_t locks;
    uint32_t hits;
    int32_t priority;
    uint32_t retention;
    uint64_t created;
    uint64_t heat;
    uint64_t pin_ttl, pin_until, idle, used_ns;
    uint64_t uncovered_at; /* the step in which the page behind it was evicted */
    bool window;           /* has a window side */
    rad_state state;       /* the snapshot at its end; 0: none */
} entry;

typedef struct model {
    entry entries[MOST_PAGES];
    uint32_t count;
    uint32_t page_size;
    uint64_t now;    /* operations */
    uint64_t now_ns; /* what env says */
    uint32_t policy;
    bool keeps;
    uint64_t max_pinned; /* pages */
    uint64_t half_life, added;
    bool (*is_taken)(void *user, rad_page page); /* by whoever hands out pages */
    void *user;
    uint32_t window; /* pages; 0: there are none */
    bool states;
    uint64_t states_dropped; /* with the pages they stood behind */
    entry worst;             /* the highest key that step `worst_at` evicted */
    uint64_t worst_at;
} model;

enum { THRESHOLD = 2, ATTENTION_TOKENS = 24, HALF_LIFE_PERCENT = 60 };

/* The user's policy: the more hits the sooner, else what was used last. Both fall by use. */
static uint64_t user_key(uint32_t hits, uint64_t used)
{
    return (uint64_t)(0xffff - (hits < 0xffff ? hits : 0xffff)) << 40 | (0xffffffffff - used);
}

static uint64_t evict_key(void *user, const rad_evict_facts *f)
{
    (void)user;
    return user_key(f->hit_count, f->last_access);
}

/* Whether `a` is to be evicted before `b`: -1, 1, or 0 for a tie, which ids decide. */
static int compare_keys(const model *m, const entry *a, const entry *b)
{
    double ka[4] = {a->pin_ttl != 0, a->retention, 0, (double)a->used};
    double kb[4] = {b->pin_ttl != 0, b->retention, 0, (double)b->used};
    switch (m->policy) {
    case RAD_EVICT_LFU: ka[2] = a->hits, kb[2] = b->hits; break;
    case RAD_EVICT_SLRU: ka[2] = a->hits >= THRESHOLD, kb[2] = b->hits >= THRESHOLD; break;
    case RAD_EVICT_PRIORITY: ka[2] = a->priority, kb[2] = b->priority; break;
    case RAD_EVICT_FIFO: ka[3] = (double)a->created, kb[3] = (double)b->created; break;
    case RAD_EVICT_FILO: ka[3] = -(double)a->created, kb[3] = -(double)b->created; break;
    case RAD_EVICT_MRU: ka[3] = -ka[3], kb[3] = -kb[3]; break;
    case RAD_EVICT_USER:
        ka[2] = -(double)a->hits, kb[2] = -(double)b->hits;
        ka[3] = -ka[3], kb[3] = -kb[3];
        break;
    case RAD_EVICT_COST:
        ka[3] = (double)(a->heat + evict_cost(a->num_tokens, ATTENTION_TOKENS));
        kb[3] = (double)(b->heat + evict_cost(b->num_tokens, ATTENTION_TOKENS));
        break;
    default: break;
    }
    for (int i = 0; i < 4; i++)
        if (ka[i] != kb[i]) return ka[i] < kb[i] ? -1 : 1;
    return 0;
}

/* Ends pins and retentions whose time has come. */
static void model_expire(model *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        entry *e = &m->entries[i];
        if (e->pin_ttl && e->pin_until <= m->now_ns) e->pin_ttl = 0;
        if (e->retention && e->idle && e->used_ns + e->idle <= m->now_ns) e->retention = 0;
    }
}

static entry *find(model *m, const rad_key *key, uint32_t space, uint32_t num_tokens)
{
    for (uint32_t i = 0; i < m->count; i++) {
        entry *e = &m->entries[i];
        if (e->space == space && e->num_tokens == num_tokens &&
            memcmp(e->tokens, key->tokens, num_tokens * sizeof *e->tokens) == 0)
            return e;
    }
    return NULL;
}

static uint32_t model_match(model *m, const rad_key *key, uint32_t space, bool touch)
{
    uint32_t len = 0;
    for (entry *e;
         len + m->page_size <= key->num_tokens && (e = find(m, key, space, len + m->page_size));
         len += m->page_size)
        if (touch) {
            e->used = m->now;
            e->used_ns = m->now_ns;
            if (e->pin_ttl) e->pin_until = m->now_ns + e->pin_ttl;
        }
    return len;
}

/* Whether a match may end behind the first `len` tokens, which are cached. */
static bool model_can_end(model *m, const rad_key *key, uint32_t space, uint32_t len)
{
    uint32_t ps = m->page_size, end = len;
    if (!len) return true;
    if (m->states && !find(m, key, space, len)->state) return false;
    for (uint32_t i = 0; i < m->window && end; i++, end -= ps)
        if (!find(m, key, space, end)->window) return false;
    return true;
}

/* What a match answers: the longest prefix behind which everything can go on. */
static uint32_t model_usable(model *m, const rad_key *key, uint32_t space)
{
    uint32_t len = model_match(m, key, space, false);
    while (!model_can_end(m, key, space, len))
        len -= m->page_size;
    return len;
}

static bool has_continuation(const model *m, const entry *e)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->entries[i].space == e->space &&
            m->entries[i].num_tokens == e->num_tokens + m->page_size &&
            memcmp(m->entries[i].tokens, e->tokens, e->num_tokens * sizeof *e->tokens) == 0)
            return true;
    return false;
}

/* Takes the page with the lowest key of those that end a path.
 *
 * Under `cost` keys can be equal, as heat is rounded, and which of two goes first decides
 * what comes to light below it. There the cache is believed about the pages themselves, and
 * untouched_fault looks whether anything with a lower key was left. */
static bool model_evict_page(model *m)
{
    bool ties = m->policy == RAD_EVICT_COST;
    entry *victim = NULL;
    for (uint32_t i = 0; i < m->count; i++) {
        entry *e = &m->entries[i];
        if (e->locks || (victim && compare_keys(m, e, victim) >= 0)) continue;
        if ((ties && m->is_taken(m->user, e->page)) || has_continuation(m, e)) continue;
        victim = e;
    }
    if (!victim) return false;
    if (ties) {
        if (m->worst_at != m->now || compare_keys(m, victim, &m->worst) > 0) m->worst = *victim;
        m->worst_at = m->now;
        rad_key path = {.tokens = victim->tokens, .num_tokens = victim->num_tokens};
        entry *above = find(m, &path, victim->space, victim->num_tokens - m->page_size);
        if (above) above->uncovered_at = m->now;
    }
    m->states_dropped += victim->state != 0;
    *victim = m->entries[--m->count];
    return true;
}

/* Whether this step evicted a page although one with a lower key ended a path all the time. */
static bool untouched_fault(const model *m)
{
    if (m->worst_at != m->now) return false;
    for (uint32_t i = 0; i < m->count; i++) {
        const entry *e = &m->entries[i];
        if (!e->locks && e->uncovered_at != m->now && e->created != m->now &&
            !has_continuation(m, e) && compare_keys(m, e, &m->worst) < 0)
            return true;
    }
    return false;
}

/* The tree gave this page up and somebody has it anew: nobody else's entry names it. */
static void forget_page(model *m, rad_page page)
{
    for (uint32_t i = m->count; i-- > 0;)
        if (m->entries[i].page == page) m->entries[i] = m->entries[--m->count];
}

static uint64_t model_time(void *user)
{
    return ((model *)user)->now_ns;
}

static uint32_t model_pin(model *m, const rad_key *key, uint32_t space, uint64_t ttl)
{
    uint32_t len = model_match(m, key, space, false), ps = m->page_size;
    uint64_t pinned = 0;
    for (uint32_t i = 0; i < m->count; i++)
        pinned += m->entries[i].pin_ttl != 0;
    for (uint32_t end = ps; end <= len; end += ps)
        pinned += !find(m, key, space, end)->pin_ttl;
    for (; ttl && pinned > m->max_pinned; len -= ps)
        pinned -= !find(m, key, space, len)->pin_ttl;
    for (uint32_t end = ps; end <= len; end += ps) {
        entry *e = find(m, key, space, end);
        uint64_t until = m->now_ns + ttl;
        if (!e->pin_ttl || until > e->pin_until) e->pin_until = until;
        e->pin_ttl = ttl ? (ttl > e->pin_ttl ? ttl : e->pin_ttl) : 0;
    }
    return len;
}

static uint32_t model_retain(model *m, const rad_key *key, uint32_t space, uint32_t priority,
                             uint64_t idle)
{
    uint32_t len = model_match(m, key, space, false), ps = m->page_size;
    for (uint32_t end = ps; end <= len; end += ps) {
        entry *e = find(m, key, space, end);
        bool longer = e->idle && (!idle || idle > e->idle);
        if (!priority || priority > e->retention || (priority == e->retention && longer)) {
            e->retention = priority;
            e->idle = idle;
        }
        e->used_ns = m->now_ns;
    }
    return len;
}

#endif
