/* bpe.c - merging neighbours in the order of their ranks.
 *
 * Strings never meet here: a pair of symbol numbers leads, by one lookup, to the rank
 * of its merge and to the symbol that comes out.
 *
 *     h e l l o        (l,l): 7  (h,e): 3       rank 3 first
 *     he  l l o        (he,l): -                then 7
 *     he  ll  o        ...
 *
 * A piece of text is usually a word, so a few symbols are searched one by one; for long
 * pieces (a megabyte of one letter is a piece too) the pairs wait in a binary heap and
 * the symbols are a linked list.
 *
 * A heap entry is rank << 32 | position, so that comparing numbers gives rank first,
 * then the leftmost. Invariant: entry e is good iff node[e.position].rank == e.rank;
 * what changes a pair writes the new rank there, and old entries fall out when they
 * come up. Each merge adds at most two entries: never more than 3n in all. */
#include "text/bpe.h"

enum { FEW = 48 };
#define NO_RANK UINT32_MAX

/* ---- the table ---- */

static inline bpe_pair *find_pair(const bpe *b, uint32_t left, uint32_t right)
{
    for (size_t i = hash_mix(&b->key, (uint64_t)left << 32 | right);; i++) {
        bpe_pair *p = &b->pairs[i & (b->num_pairs - 1)];
        if ((p->left == left && p->right == right) || p->left == NO_SYMBOL) return p;
    }
}

static inline uint32_t rank_of(const bpe *b, uint32_t left, uint32_t right, uint32_t *merged)
{
    const bpe_pair *p = find_pair(b, left, right);
    if (p->left == NO_SYMBOL) return NO_RANK;
    *merged = p->merged;
    return p->rank;
}

static bool reserve_pair(bpe *b)
{
    if ((b->num_used + 1) * 2 <= b->num_pairs) return true;
    size_t more = b->num_pairs ? b->num_pairs * 2 : 1024;
    bpe_pair *old = b->pairs;
    size_t num_old = b->num_pairs;
    if (!num_old) hash_key_init(&b->key, &b->env);
    bpe_pair *pairs = rad_alloc(&b->env, rad_mul(more, sizeof *pairs));
    if (!pairs) return false;
    for (size_t i = 0; i < more; i++)
        pairs[i].left = NO_SYMBOL;
    b->pairs = pairs;
    b->num_pairs = more;
    for (size_t i = 0; i < num_old; i++)
        if (old[i].left != NO_SYMBOL) *find_pair(b, old[i].left, old[i].right) = old[i];
    rad_free(&b->env, old, num_old * sizeof *pairs);
    return true;
}

bool bpe_add(bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged)
{
    if (!reserve_pair(b)) return false;
    bpe_pair *p = find_pair(b, left, right);
    if (p->left == NO_SYMBOL)
        b->num_used++;
    else if (p->rank <= rank)
        return true;
    *p = (bpe_pair){left, right, rank, merged};
    return true;
}

void bpe_fini(bpe *b)
{
    if (b->env.alloc) rad_free(&b->env, b->pairs, b->num_pairs * sizeof *b->pairs);
}

/* One line of the merges, "left right", written as the tokens are. */
static rad_status read_merge(bpe *b, vocab *v, gguf_str line, uint32_t rank, char *bytes,
                             rad_error *err)
{
    const char *space = line.len > 1 ? memchr(line.data + 1, ' ', line.len - 1) : NULL;
    size_t left_text = space ? (size_t)(space - line.data) : 0;
    if (!space || left_text + 1 == line.len)
        return rad_fail(err, RAD_E_FORMAT, "tokenizer: merge %u is not two strings", rank);
    size_t left_len, right_len, right_text = line.len - left_text - 1;
    if (v->is_text) {
        memcpy(bytes, line.data, left_text);
        left_len = vocab_unmap_spaces(bytes, left_text);
        memcpy(bytes + left_len, space + 1, right_text);
        right_len = vocab_unmap_spaces(bytes + left_len, right_text);
    } else if (!vocab_unmap_bytes(line.data, left_text, bytes, &left_len) ||
               !vocab_unmap_bytes(space + 1, right_text, bytes + left_len, &right_len)) {
        return RAD_OK; /* not bytes: no text ever gets there */
    }

    uint32_t left, right, merged;
    rad_status status = vocab_intern(v, bytes, left_len, &left);
    if (!status) status = vocab_intern(v, bytes + left_len, right_len, &right);
    if (!status) status = vocab_intern(v, bytes, left_len + right_len, &merged);
    if (!status && !bpe_add(b, left, right, rank, merged)) status = RAD_E_NOMEM;
    return status ? rad_fail(err, status, "tokenizer: no room for merge %u", rank) : RAD_OK;
}

rad_status bpe_read_merges(bpe *b, vocab *v, const gguf_file *file, rad_error *err)
{
    gguf_array merges;
    rad_status status = gguf_get_arr(file, "tokenizer.ggml.merges", GGUF_STR, &merges, err);
    if (status < 0) return status;
    if (status == RAD_NONE)
        return rad_fail(err, RAD_E_FORMAT, "tokenizer: no merges (tokenizer.ggml.merges)");
    if (merges.count >= INT32_MAX)
        return rad_fail(err, RAD_E_LIMIT, "tokenizer: %llu merges",
                        (unsigned long long)merges.count);
    size_t longest = 1;
    for (uint64_t i = 0; i < merges.count; i++)
        longest = RAD_MAX(longest, merges.strs[i].len);
    char *bytes = rad_alloc(&b->env, longest);
    if (!bytes) return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    status = RAD_OK;
    for (uint64_t i = 0; i < merges.count && !status; i++)
        status = read_merge(b, v, merges.strs[i], (uint32_t)i, bytes, err);
    rad_free(&b->env, bytes, longest);
    return status;
}

/* ---- few symbols: look at all of them ---- */

static size_t merge_few(const bpe *b, uint32_t *symbols, size_t n)
{
    uint32_t rank[FEW], merged[FEW];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, symbols[i], symbols[i + 1], &merged[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        symbols[best] = merged[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            symbols[i] = symbols[i + 1];
            rank[i - 1] = rank[i];
            merged[i - 1] = merged[i];
        }
        if (best > 0)
            rank[best - 1] = rank_of(b, symbols[best - 1], symbols[best], &merged[best - 1]);
        if (best + 1 < n) rank[best] = rank_of(b, symbols[best], symbols[best + 1], &merged[best]);
    }
    return n;
}

/* ---- many: a heap of pairs over a list of symbols ---- */

#define NOWHERE UINT32_MAX

typedef struct node {
    uint32_t symbol;
    uint32_t rank; /* of the pair with the next one */
    uint32_t prev, next;
} node;

typedef struct heap {
    uint64_t *entries;
    size_t count;
} heap;

static void heap_down(heap *h, size_t i)
{
    uint64_t moving = h->entries[i];
    for (size_t child; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && h->entries[child + 1] < h->entries[child]) child++;
        if (moving <= h->entries[child]) break;
        h->entries[i] = h->entries[child];
    }
    h->entries[i] = moving;
}

static void heap_push(heap *h, uint64_t entry)
{
    size_t i = h->count++;
    for (; i > 0 && entry < h->entries[(i - 1) / 2]; i = (i - 1) / 2)
        h->entries[i] = h->entries[(i - 1) / 2];
    h->entries[i] = entry;
}

static uint64_t heap_pop(heap *h)
{
    uint64_t least = h->entries[0];
    h->entries[0] = h->entries[--h->count];
    if (h->count) heap_down(h, 0);
    return least;
}

/* The pair at `i` has changed: its new rank into the node and, if any, into the heap. */
static void pair_changed(const bpe *b, heap *h, node *nodes, uint32_t i)
{
    uint32_t merged;
    uint32_t next = nodes[i].next;
    nodes[i].rank = next == NOWHERE ? NO_RANK
                                    : rank_of(b, nodes[i].symbol, nodes[next].symbol, &merged);
    if (nodes[i].rank != NO_RANK) heap_push(h, (uint64_t)nodes[i].rank << 32 | i);
}

/* nodes: n; entries: 3 n. */
static size_t merge_many(const bpe *b, uint32_t *symbols, size_t n, node *nodes, uint64_t *entries)
{
    heap h = {.entries = entries};
    uint32_t merged = NO_SYMBOL;
    for (uint32_t i = 0; i < n; i++) {
        nodes[i] = (node){symbols[i], NO_RANK, i ? i - 1 : NOWHERE, i + 1 < n ? i + 1 : NOWHERE};
        if (i + 1 < n) nodes[i].rank = rank_of(b, symbols[i], symbols[i + 1], &merged);
        if (nodes[i].rank != NO_RANK) entries[h.count++] = (uint64_t)nodes[i].rank << 32 | i;
    }
    for (size_t i = h.count / 2; i-- > 0;)
        heap_down(&h, i);

    while (h.count) {
        uint64_t entry = heap_pop(&h);
        uint32_t i = (uint32_t)entry;
        if (nodes[i].rank != (uint32_t)(entry >> 32)) continue;
        uint32_t gone = nodes[i].next;
        rank_of(b, nodes[i].symbol, nodes[gone].symbol, &merged);
        nodes[i].symbol = merged;
        nodes[i].next = nodes[gone].next;
        nodes[gone].rank = NO_RANK;
        if (nodes[i].next != NOWHERE) nodes[nodes[i].next].prev = i;
        if (nodes[i].prev != NOWHERE) pair_changed(b, &h, nodes, nodes[i].prev);
        pair_changed(b, &h, nodes, i);
    }
    size_t left = 0;
    for (uint32_t i = 0; i != NOWHERE; i = nodes[i].next)
        symbols[left++] = nodes[i].symbol;
    return left;
}

rad_status bpe_merge(const bpe *b, bpe_scratch *scratch, uint32_t *symbols, size_t *count)
{
    size_t n = *count;
    if (n < 2 || !b->num_pairs) return RAD_OK;
    if (n <= FEW) {
        *count = merge_few(b, symbols, n);
        return RAD_OK;
    }
    if (n >= NOWHERE) return RAD_E_LIMIT;
    size_t wanted = rad_mul(n, sizeof(node) + 3 * sizeof(uint64_t));
    if (wanted > scratch->bytes) {
        bpe_scratch_fini(scratch);
        scratch->memory = scratch->env->alloc(scratch->env->user, wanted);
        if (!scratch->memory) return RAD_E_NOMEM;
        scratch->bytes = wanted;
    }
    node *nodes = (node *)((uint64_t *)scratch->memory + 3 * n);
    *count = merge_many(b, symbols, n, nodes, scratch->memory);
    return RAD_OK;
}

void bpe_scratch_fini(bpe_scratch *scratch)
{
    rad_free(scratch->env, scratch->memory, scratch->bytes);
    scratch->memory = NULL;
    scratch->bytes = 0;
}
