/* draft_ngram.h - what stood behind the same tokens before, in a request's own text.
 *
 *     ... to be or not | to  be  or ...... to be or not ?
 *                        ^ proposed           ^ the last tokens, found again
 *
 * Answers repeat their prompt: a file with edits, a name, a quotation. An index has, for each three
 * tokens in a row, where they stood last, and from there where they stood before; of the latest
 * places the one is taken before which most tokens are the same.
 *
 * Bounded in everything: the last NGRAM_TOKENS tokens of a request are in its index, NGRAM_INDEXES
 * requests have one, a token is entered in O(1), and a search compares NGRAM_TRIES * NGRAM_LONGEST
 * tokens at most, whatever the text. An index is 128 KB. */
#ifndef SCHED_DRAFT_NGRAM_H
#define SCHED_DRAFT_NGRAM_H

#include "base/base.h"
#include <radish/types.h>

enum {
    NGRAM_KEY = 3,          /* tokens that must be the same */
    NGRAM_TOKENS = 1 << 14, /* a power of two */
    NGRAM_HEADS_LOG2 = 14,
    NGRAM_TRIES = 8,
    NGRAM_LONGEST = 32, /* tokens that are compared */
    NGRAM_INDEXES = 32
};

typedef struct ngram_index ngram_index;

/* Zeroed at first. */
typedef struct ngram_pool {
    ngram_index *free;
    uint32_t num_made; /* they are made when they are wanted first, and kept */
} ngram_pool;

void ngram_pool_fini(ngram_pool *p, const rad_env *env); /* all have been put back */

/* An empty index; NULL: there is none. */
ngram_index *ngram_take(ngram_pool *p, const rad_env *env);
void ngram_put_back(ngram_pool *p, ngram_index *index);

/* ids[0..num_ids) is a text, of which the index knows a beginning, or nothing. Writes up to `room`
 * tokens that may follow, and how many tokens before them were the same (*match). */
uint32_t ngram_propose(ngram_index *index, const rad_token *ids, uint32_t num_ids, rad_token *out,
                       uint32_t room, uint32_t *match);

#endif
