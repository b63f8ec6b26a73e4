/* draft_ngram.c - hash chains in a ring, as compressors have them.
 *
 *     heads[hash of three tokens] -> position behind them -> prev[position] -> ...
 *
 * Positions are entered once something stands there, so that whatever is found has a continuation.
 * Entries that the ring has overwritten are told by their distance and never followed: prev of a
 * position is right as long as that is one of the last NGRAM_TOKENS.
 *
 * Invariant: of the positions before `end` the last NGRAM_TOKENS are in the chains, in descending
 * order. */
#include "sched/draft_ngram.h"

#include "base/mix64.h"

struct ngram_index {
    ngram_index *next; /* in the pool */
    uint32_t end;
    uint32_t heads[1 << NGRAM_HEADS_LOG2]; /* 0: none */
    uint32_t prev[NGRAM_TOKENS];
};

void ngram_pool_fini(ngram_pool *p, const rad_env *env)
{
    while (p->free) {
        ngram_index *index = p->free;
        p->free = index->next;
        rad_free(env, index, sizeof *index);
    }
    *p = (ngram_pool){0};
}

ngram_index *ngram_take(ngram_pool *p, const rad_env *env)
{
    ngram_index *index = p->free;
    if (index) {
        p->free = index->next;
        index->end = 0;
        memset(index->heads, 0, sizeof index->heads);
        return index;
    }
    if (p->num_made == NGRAM_INDEXES) return NULL;
    index = rad_alloc(env, sizeof *index);
    p->num_made += index != NULL;
    return index;
}

void ngram_put_back(ngram_pool *p, ngram_index *index)
{
    index->next = p->free;
    p->free = index;
}

/* Of the tokens before position `at`. */
static uint32_t hash_before(const rad_token *ids, uint32_t at)
{
    uint64_t hash = 0;
    for (uint32_t i = at - NGRAM_KEY; i < at; i++)
        hash = mix64(hash + (uint32_t)ids[i] + 1);
    return (uint32_t)(hash >> (64 - NGRAM_HEADS_LOG2));
}

static void enter(ngram_index *index, const rad_token *ids, uint32_t num_ids)
{
    uint32_t at = RAD_MAX(index->end, (uint32_t)NGRAM_KEY);
    if (num_ids > NGRAM_TOKENS) at = RAD_MAX(at, num_ids - NGRAM_TOKENS);
    for (; at < num_ids; at++) {
        uint32_t *head = &index->heads[hash_before(ids, at)];
        index->prev[at % NGRAM_TOKENS] = *head;
        *head = at;
    }
    index->end = RAD_MAX(index->end, num_ids);
}

/* Tokens before `a` and `b` (a < b) that are the same. */
static uint32_t same_before(const rad_token *ids, uint32_t a, uint32_t b)
{
    const uint32_t most = RAD_MIN(a, (uint32_t)NGRAM_LONGEST);
    uint32_t n = 0;
    while (n < most && ids[a - 1 - n] == ids[b - 1 - n])
        n++;
    return n;
}

uint32_t ngram_propose(ngram_index *index, const rad_token *ids, uint32_t num_ids, rad_token *out,
                       uint32_t room, uint32_t *match)
{
    uint32_t best = 0;
    *match = 0;
    if (num_ids <= NGRAM_KEY) return 0;
    enter(index, ids, num_ids);
    uint32_t at = index->heads[hash_before(ids, num_ids)];
    for (int tries = 0; tries < NGRAM_TRIES && at && at + NGRAM_TOKENS > num_ids; tries++) {
        const uint32_t same = same_before(ids, at, num_ids);
        if (same > *match) best = at, *match = same;
        if (same == NGRAM_LONGEST) break; /* the latest such place */
        const uint32_t before = index->prev[at % NGRAM_TOKENS];
        if (before >= at) break;
        at = before;
    }
    if (*match < NGRAM_KEY) { /* another three of the same hash */
        *match = 0;
        return 0;
    }
    /* What repeats with a short period goes on behind its own end. */
    for (uint32_t i = 0; i < room; i++)
        out[i] = best + i < num_ids ? ids[best + i] : out[best + i - num_ids];
    return room;
}
