/* draft_ngram.c - a suffix index over a request's ids, and those that wait for a request.
 *
 * An index that is put back keeps its slots: what they say of the next text is compared with that
 * before it is believed, as all they say.
 *
 * Invariant: the places before `end` have been entered, but for what was too far from the text's
 * end by then. */
#include "sched/draft_ngram.h"

struct ngram_index {
    ngram_index *next; /* in the pool */
    uint32_t end;
    uint32_t reserved;
    suffix_index suffixes;
};

size_t ngram_pool_bytes(void)
{
    return NGRAM_INDEXES * (sizeof(ngram_index) + suffix_index_bytes(NGRAM_SLOTS_LOG2));
}

void ngram_pool_fini(ngram_pool *p, const rad_env *env)
{
    while (p->free) {
        ngram_index *index = p->free;
        p->free = index->next;
        suffix_index_fini(&index->suffixes, env);
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
        return index;
    }
    if (p->num_made == NGRAM_INDEXES) return NULL;
    index = rad_alloc(env, sizeof *index);
    if (index && !suffix_index_init(&index->suffixes, env, NGRAM_SLOTS_LOG2)) {
        rad_free(env, index, sizeof *index);
        return NULL;
    }
    p->num_made += index != NULL;
    return index;
}

void ngram_put_back(ngram_pool *p, ngram_index *index)
{
    index->next = p->free;
    p->free = index;
}

uint32_t ngram_propose(ngram_index *index, const rad_token *ids, uint32_t num_ids, rad_token *out,
                       uint32_t room, uint32_t *match, uint32_t *place)
{
    const suffix_text text = {.ids = ids, .mask = UINT32_MAX, .end = num_ids};
    *place = 0;
    const uint32_t from = RAD_MAX(index->end, num_ids - RAD_MIN(num_ids, (uint32_t)NGRAM_TOKENS));
    index->end = RAD_MIN(num_ids, from + NGRAM_AT_ONCE);
    suffix_index_enter(&index->suffixes, 0, &text, from, index->end);
    *match = suffix_index_find(&index->suffixes, 0, &text, ids, num_ids, place);
    if (!*match) return 0;
    const uint32_t at = *place;
    /* What repeats with a short period goes on behind its own end. */
    for (uint32_t i = 0; i < room; i++)
        out[i] = at + i < num_ids ? ids[at + i] : out[at + i - num_ids];
    return room;
}
