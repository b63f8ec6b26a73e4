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

/* A piece of a tree that is made: bytes that `id` ends with. */
typedef struct trie_piece {
    const unsigned char *bytes;
    uint32_t len;
    rad_token id;
} trie_piece;

/* Sorts the pieces. */
bool trie_make(trie *t, const rad_env *env, trie_piece *pieces, uint32_t count);
void trie_fini(trie *t, const rad_env *env);
uint64_t trie_bytes(const trie *t);

enum {
    PLAIN_LENGTHS = 64,     /* characters of the longest token that counts as plain */
    MASK_BUCKETS = 4096,    /* of the table of masks */
    MOST_REMAINDERS = 65536 /* tokens of a state that go on behind its rule */
};

/* What a state allows: grammar_mask.c. Bits, or a list where they are few. */
typedef struct mask_entry {
    struct grammar *owner; /* NULL: shared by all */
    uint32_t state, refs;
    uint64_t left; /* 0, or in a rule that is repeated what its count leaves open: mask_left */
    bool kept;
    bool direct; /* to be walked with its stacks each time */
    uint32_t *bits;
    rad_token *tokens;
    uint32_t num_tokens;
    trie rest; /* what is left of other tokens behind the rule's end */
    uint64_t bytes;
    struct mask_entry *next_in_bucket, *used_before, *used_after, *owned_before, *owned_after;
} mask_entry;

typedef struct mask_list {
    mask_entry *first, *last;
} mask_list;

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
    trie rest;       /* of tokens that are not plain */
    uint32_t *plain; /* [PLAIN_LENGTHS][words]: plain tokens of so many characters and fewer */
    uint64_t cache_limit;
    pthread_mutex_t lock; /* of what follows */
    mask_list used;       /* what was used last stands last */
    mask_entry *buckets[MASK_BUCKETS];
    uint64_t cache_bytes, hits, misses, evicted;
};

struct grammar {
    atomic_uint refs;
    grammar_vocab *v;
    gr_automaton a;
    gr_mem mem;      /* of the automaton */
    mask_list masks; /* below the vocabulary's lock */
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
    uint32_t live;  /* cells after the last collection */
    uint32_t *bits; /* of a state that is met for the first time; NULL until one is */
};

static inline const match_step *matcher_now(const grammar_matcher *m)
{
    return &m->steps[m->num_steps - 1];
}

rad_status mask_entry_make(grammar_vocab *v, const uint32_t *bits, trie_piece *pieces,
                           uint32_t num_pieces, bool direct, mask_entry **out);
void mask_entry_free(grammar_vocab *v, mask_entry *e);

/* A found entry, and one that was made, is held until it is released. */
mask_entry *mask_cache_find(grammar_vocab *v, grammar *g, uint32_t state, uint64_t left);
void mask_cache_keep(grammar_vocab *v, grammar *g, uint32_t state, uint64_t left, mask_entry *e);
void mask_cache_release(grammar_vocab *v, mask_entry *e);
void mask_cache_drop(grammar_vocab *v, grammar *g); /* all of a grammar that ends */
void mask_cache_fini(grammar_vocab *v);

/* Sets the bits of a place's tokens (not the end tokens'). */
rad_status mask_fill(grammar_matcher *m, const match_step *at, uint32_t *bits);

/* It is a control token that does not end a text: grammars can name it. */
bool vocab_names(const grammar_vocab *v, uint32_t token);

#endif
