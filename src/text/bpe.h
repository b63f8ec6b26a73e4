/* bpe.h - the merge engine behind both tokenizer models: which two neighbours become one.
 * Private to this room. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "text/vocab.h"

typedef struct bpe_pair {
    uint32_t left, right;
    uint32_t rank; /* lower merges first */
    uint32_t merged;
} bpe_pair;

typedef struct bpe {
    rad_env env;
    bpe_pair *pairs;  /* open addressing; left == NO_SYMBOL: free */
    size_t num_pairs; /* places, a power of two, or 0 */
    size_t num_used;
    hash_key key; /* drawn with the first pair */
} bpe;

/* Working memory of one caller, kept between calls. */
typedef struct bpe_scratch {
    const rad_env *env;
    void *memory;
    size_t bytes;
} bpe_scratch;

/* left and right become `merged`; of two entries for a pair the lower rank counts.
 * false: no memory. bpe must be zeroed but for env. */
bool bpe_add(bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);
void bpe_fini(bpe *b);

/* Reads the ranked merges (tokenizer.ggml.merges) into `b`, adding symbols to `v`. */
rad_status bpe_read_merges(bpe *b, vocab *v, const gguf_file *file, rad_error *err);

/* Merges symbols[0..*count) in place until no pair of neighbours has an entry: always
 * the lowest rank, the leftmost of equals. O(n log n), and RAD_E_NOMEM only for long
 * input. */
rad_status bpe_merge(const bpe *b, bpe_scratch *scratch, uint32_t *symbols, size_t *count);
void bpe_scratch_fini(bpe_scratch *scratch);

#endif
