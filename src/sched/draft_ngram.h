/* draft_ngram.h - what stood behind the same tokens before, in a request's own text.
 *
 *     ... to be or not | to  be  or ...... to be or not ?
 *                        ^ proposed           ^ the last tokens, found again
 *
 * Answers repeat their prompt: a file with edits, a name, a quotation. The index (suffix_index.h)
 * follows the text as it grows; NGRAM_INDEXES requests at a time have one, of 256 KB. A long prompt
 * is entered NGRAM_AT_ONCE tokens a step, so that no step waits for it (some 0.1 ms), and of one
 * longer than NGRAM_TOKENS the end: what is before it would lose its slots to that. */
#ifndef SCHED_DRAFT_NGRAM_H
#define SCHED_DRAFT_NGRAM_H

#include "sched/suffix_index.h"

enum { NGRAM_SLOTS_LOG2 = 16, NGRAM_INDEXES = 32, NGRAM_AT_ONCE = 1 << 12, NGRAM_TOKENS = 1 << 15 };

typedef struct ngram_index ngram_index;

/* Zeroed at first. */
typedef struct ngram_pool {
    ngram_index *free;
    uint32_t num_made; /* they are made when they are wanted first, and kept */
} ngram_pool;

size_t ngram_pool_bytes(void);                           /* of all indexes */
void ngram_pool_fini(ngram_pool *p, const rad_env *env); /* all have been put back */

/* An empty index; NULL: there is none. */
ngram_index *ngram_take(ngram_pool *p, const rad_env *env);
void ngram_put_back(ngram_pool *p, ngram_index *index);

/* ids[0..num_ids) is a text, of which the index knows a beginning, or nothing. Writes up to `room`
 * tokens that may follow, how many tokens before them were the same (*match), and where in the text
 * they stand (*place; 0: there are none). */
uint32_t ngram_propose(ngram_index *index, const rad_token *ids, uint32_t num_ids, rad_token *out,
                       uint32_t room, uint32_t *match, uint32_t *place);

#endif
