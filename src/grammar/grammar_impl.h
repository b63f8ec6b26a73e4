/* grammar_impl.h - what the vocabulary, grammars and matchers know of each other. Private. */
#ifndef GRAMMAR_GRAMMAR_IMPL_H
#define GRAMMAR_GRAMMAR_IMPL_H

#include "grammar/place.h"

#include <pthread.h>
#include <stdatomic.h>

/* A tree of byte strings in the order of a walk: a node's children begin right behind it, and
 * `skip` is the node behind all that is below it. Tokens lie sorted by their bytes, so those that
 * end in node i are order[nodes[i].tokens .. nodes[i + 1].tokens), and those below it follow. */
typedef struct trie_node {
    uint32_t skip;
    uint32_t tokens;
    uint16_t depth; /* bytes from the root */
    uint8_t byte;
    uint8_t reserved;
} trie_node;

typedef struct trie {
    trie_node *nodes; /* num_nodes, and one that ends them */
    rad_token *order;
    uint32_t num_nodes, num_tokens;
} trie;

struct grammar_vocab {
    rad_env env;
    uint32_t vocab_size, words, longest;
    char *bytes;     /* of all tokens */
    uint32_t *first; /* [vocab_size + 1], in bytes */
    size_t num_bytes;
    rad_token *end_tokens;
    uint32_t num_end_tokens;
    uint64_t single[4]; /* bytes that are tokens */
    trie all;
    pthread_mutex_t lock;
    uint64_t cache_limit;
    uint64_t cache_bytes, hits, misses, evicted; /* below the lock */
};

struct grammar {
    atomic_uint refs;
    grammar_vocab *v;
    gr_automaton a;
    gr_mem mem; /* of the automaton */
    grammar_stats stats;
};

typedef struct match_step {
    uint32_t first, count; /* of threads */
    bool may_end, has_ended;
} match_step;

struct grammar_matcher {
    grammar *g;
    stacks stacks;
    threads threads; /* of all steps */
    walker walker;
    match_step *steps;
    uint32_t num_steps, cap_steps;
    uint32_t live; /* cells after the last collection */
};

static inline const match_step *matcher_now(const grammar_matcher *m)
{
    return &m->steps[m->num_steps - 1];
}

/* Sets the bits of a place's tokens (not the end tokens'). */
rad_status mask_fill(grammar_matcher *m, const match_step *at, uint32_t *bits);

#endif
