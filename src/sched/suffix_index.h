/* suffix_index.h - where the last tokens of a text stood before.
 *
 *     text      ... to be or not | to  be  or ...... to be or not ?
 *                                  ^ at              ^^^^^^^^^^^^ its last tokens, found again
 *
 *     slot of hash(32 tokens before `at`) -> at
 *     slot of hash(16 tokens before `at`) -> at        and 8, 4, 2, 1: the longest is asked first
 *
 * A table of fixed size, with one entry for each length: the latest place where these tokens stood.
 * What is found is compared with the text, so a slot that another has taken, or that is from a text
 * long gone, is never believed. Lengths double, so the match is longer than half of the longest
 * there is (up to SUFFIX_LONGEST): replaying edited files, drafts from this one brought 6.75 tokens
 * a step where the exact longest match brings 6.77 and hash chains of three tokens 5.73.
 *
 * Costs: a token is entered at six slots, a search reads six and compares SUFFIX_LONGEST tokens at
 * each, whatever the text; counted in `work`. Nothing is ever removed: later entries take the
 * slots. */
#ifndef SCHED_SUFFIX_INDEX_H
#define SCHED_SUFFIX_INDEX_H

#include "base/hash_key.h"
#include <radish/types.h>

enum {
    SUFFIX_LENGTHS = 6,
    SUFFIX_LONGEST = 1 << (SUFFIX_LENGTHS - 1),
    /* At most: of each token, of each call of enter and of find. */
    SUFFIX_WORK_TOKEN = 3 * SUFFIX_LENGTHS,
    SUFFIX_WORK_ENTER = 2 * SUFFIX_LONGEST,
    SUFFIX_WORK_FIND = SUFFIX_LONGEST + SUFFIX_LENGTHS * (SUFFIX_LONGEST + 2)
};

/* Positions count for ever, modulo 2^32; position p stands at ids[p & mask]. A text in one piece
 * has mask UINT32_MAX. No token of it that is negative is like any other. */
typedef struct suffix_text {
    const rad_token *ids;
    uint32_t mask;
    uint32_t begin, end; /* of what is there; end - begin <= mask + 1, if that is not 0 */
} suffix_text;

typedef struct suffix_index {
    uint32_t *slots; /* [1 << bits] */
    uint32_t bits;
    uint32_t reserved;
    uint64_t work; /* slots and tokens that were looked at, ever */
    hash_key key;
} suffix_index;

/* False: no memory. */
bool suffix_index_init(suffix_index *x, const rad_env *env, uint32_t bits);
void suffix_index_fini(suffix_index *x, const rad_env *env); /* a zeroed one is fine */

static inline size_t suffix_index_bytes(uint32_t bits)
{
    return sizeof(uint32_t) << bits;
}

/* Enters the places [from, to) of the text, each with the tokens before it; `to` is at most its
 * end, so that something stands at each. `realm`: places of another one are not found. */
void suffix_index_enter(suffix_index *x, uint32_t realm, const suffix_text *text, uint32_t from,
                        uint32_t to);

/* The place of the text before which most of the last ones of ids[0..num_ids) stand, and how many,
 * SUFFIX_LONGEST at most. 0: none. */
uint32_t suffix_index_find(suffix_index *x, uint32_t realm, const suffix_text *text,
                           const rad_token *ids, uint32_t num_ids, uint32_t *at);

/* The same, of a place in the text that the caller knows. */
uint32_t suffix_match(const suffix_text *text, uint32_t at, const rad_token *ids, uint32_t num_ids);

#endif
