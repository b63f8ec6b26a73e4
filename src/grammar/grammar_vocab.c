/* grammar_vocab.c - the bytes of a vocabulary as a tree.
 *
 * Tokens are sorted by their bytes; a walk over the sorted list makes the tree's nodes in the order
 * in which a mask walks them: each node behind its parent, with the number of the next node that is
 * not below it. So a walk is one loop over an array, and what is not allowed is skipped by an
 * index.
 *
 * Plain tokens, whole characters without controls, quotes and backslashes, are most of a vocabulary
 * and most of what a JSON string allows. They are kept as sets, too, by how many characters they
 * have, and all others as a second tree: a mask that joins a set walks only that one.
 *
 * A control token stands in the tree under four bytes: 0xff, which UTF-8 never has, and its id. A
 * token that has this byte itself is left out, so that nobody can spell one. */
#include "grammar/grammar_impl.h"

#include "base/utf8.h"

#include <stdlib.h>

static int compare_tokens(const void *a, const void *b)
{
    const trie_piece *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, RAD_MIN(x->len, y->len));
    if (order) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint32_t common(const trie_piece *a, const trie_piece *b)
{
    uint32_t n = 0;
    while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

void trie_fini(trie *t, const rad_env *env)
{
    rad_free(env, t->nodes, ((size_t)t->num_nodes + 1) * sizeof *t->nodes);
    rad_free(env, t->order, (size_t)t->num_tokens * sizeof *t->order);
    *t = (trie){0};
}

uint64_t trie_bytes(const trie *t)
{
    return t->nodes ? ((uint64_t)t->num_nodes + 1) * sizeof *t->nodes +
                          (uint64_t)t->num_tokens * sizeof *t->order
                    : 0;
}

/* Node 0 is the root. */
bool trie_make(trie *t, const rad_env *env, trie_piece *tokens, uint32_t count)
{
    if (count > 1) qsort(tokens, count, sizeof *tokens, compare_tokens);
    uint32_t open[GRAMMAR_MAX_PIECE + 1] = {0}, depth = 0, n = 1;
    uint64_t nodes = 1;
    for (uint32_t i = 0; i < count; i++)
        nodes += tokens[i].len - (i ? common(&tokens[i - 1], &tokens[i]) : 0);
    if (nodes >= UINT32_MAX) return false;
    t->num_nodes = (uint32_t)nodes;
    t->num_tokens = count;
    t->nodes = rad_alloc(env, ((size_t)nodes + 1) * sizeof *t->nodes);
    t->order = count ? rad_alloc(env, (size_t)count * sizeof *t->order) : NULL;
    if (!t->nodes || (count && !t->order)) return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t shared = i ? common(&tokens[i - 1], &tokens[i]) : 0;
        for (; depth > shared; depth--)
            t->nodes[open[depth]].skip = n;
        while (depth < tokens[i].len) {
            t->nodes[n] = (trie_node){.tokens = i, .byte = tokens[i].bytes[depth]};
            t->nodes[n].depth = (uint16_t)++depth;
            open[depth] = n++;
        }
        t->order[i] = tokens[i].id;
    }
    for (; depth; depth--)
        t->nodes[open[depth]].skip = n;
    t->nodes[0].skip = n;
    t->nodes[n] = (trie_node){.skip = n, .tokens = count};
    return true;
}

static rad_status check_params(const grammar_vocab_params *p, rad_error *err)
{
    for (uint32_t i = 0; i < p->vocab_size; i++)
        if (p->pieces[i].len > GRAMMAR_MAX_PIECE)
            return rad_fail(err, RAD_E_INVAL, "grammar: token %u has %u bytes, more than %d", i,
                            p->pieces[i].len, GRAMMAR_MAX_PIECE);
    for (uint32_t i = 0; i < p->num_end_tokens; i++)
        if (p->end_tokens[i] < 0 || (uint32_t)p->end_tokens[i] >= p->vocab_size)
            return rad_fail(err, RAD_E_INVAL, "grammar: end token %d is not in a vocabulary of %u",
                            p->end_tokens[i], p->vocab_size);
    return RAD_OK;
}

static bool is_end(const grammar_vocab_params *p, uint32_t id)
{
    for (uint32_t i = 0; i < p->num_end_tokens; i++)
        if ((uint32_t)p->end_tokens[i] == id) return true;
    return false;
}

/* Copies all bytes, and sorts those that have any. */
static bool take_bytes(grammar_vocab *v, const grammar_vocab_params *p, trie_piece *sorted,
                       uint32_t *count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < p->vocab_size; i++)
        total += p->pieces[i].control ? 4 : p->pieces[i].len;
    if (total > UINT32_MAX) return false;
    v->num_bytes = (size_t)total;
    v->bytes = rad_alloc(&v->env, RAD_MAX(v->num_bytes, 1u));
    v->first = rad_alloc(&v->env, ((size_t)p->vocab_size + 1) * sizeof *v->first);
    if (!v->bytes || !v->first) return false;
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->vocab_size; i++) {
        const grammar_piece *piece = &p->pieces[i];
        bool end = is_end(p, i); /* it has no other meaning */
        v->first[i] = at;
        if (piece->control && !end) {
            unsigned char name[4] = {0xff, (unsigned char)(i >> 16), (unsigned char)(i >> 8),
                                     (unsigned char)i};
            memcpy(v->bytes + at, name, sizeof name);
            at += (uint32_t)sizeof name;
        } else if (!end && piece->len && !memchr(piece->bytes, 0xff, piece->len)) {
            memcpy(v->bytes + at, piece->bytes, piece->len);
            at += piece->len;
            unsigned char b = (unsigned char)piece->bytes[0];
            if (piece->len == 1) v->single[b / 64] |= (uint64_t)1 << b % 64;
        }
        if (at > v->first[i])
            sorted[(*count)++] = (trie_piece){(const unsigned char *)v->bytes + v->first[i],
                                              at - v->first[i], (rad_token)i};
        v->longest = RAD_MAX(v->longest, at - v->first[i]);
    }
    v->first[p->vocab_size] = at;
    return true;
}

/* How many characters a plain token has; 0: it is not plain. */
static uint32_t plain_characters(const trie_piece *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->len; n++) {
        utf8_char c = utf8_next(p->bytes + i, p->len - i);
        if (!c.valid || c.code < 0x20 || c.code == '"' || c.code == '\\') return 0;
        i += c.len;
    }
    return n <= PLAIN_LENGTHS ? n : 0;
}

/* The sets of plain tokens, and the tree of the others. Moves pieces about. */
static bool sort_out_plain(grammar_vocab *v, trie_piece *pieces, uint32_t count)
{
    uint32_t others = 0;
    size_t words = v->words;
    v->plain = rad_alloc(&v->env, PLAIN_LENGTHS * words * sizeof *v->plain);
    if (!v->plain) return false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t n = plain_characters(&pieces[i]), id = (uint32_t)pieces[i].id;
        if (n)
            v->plain[(n - 1) * words + id / 32] |= 1u << id % 32;
        else
            pieces[others++] = pieces[i];
    }
    for (size_t i = words; i < PLAIN_LENGTHS * words; i++)
        v->plain[i] |= v->plain[i - words];
    return trie_make(&v->rest, &v->env, pieces, others);
}

/* The byte of control tokens is in no other. */
bool vocab_names(const grammar_vocab *v, uint32_t token)
{
    if (token >= v->vocab_size || v->first[token] == v->first[token + 1]) return false;
    return (unsigned char)v->bytes[v->first[token]] == 0xff;
}

rad_status grammar_vocab_create(const rad_env *env, const grammar_vocab_params *params,
                                grammar_vocab **out, rad_error *err)
{
    rad_env full = rad_env_or_default(env);
    *out = NULL;
    if (!params->vocab_size || params->vocab_size > 1u << 24)
        return rad_fail(err, RAD_E_INVAL, "grammar: a vocabulary of %u tokens", params->vocab_size);
    rad_status status = check_params(params, err);
    if (status) return status;
    grammar_vocab *v = rad_alloc(&full, sizeof *v);
    if (!v) return rad_fail(err, RAD_E_NOMEM, "grammar: no memory for a vocabulary");
    v->env = full;
    v->vocab_size = params->vocab_size;
    v->words = grammar_mask_words(params->vocab_size);
    v->cache_limit = params->cache_bytes ? params->cache_bytes : 64u << 20;
    pthread_mutex_init(&v->lock, NULL);
    uint32_t count = 0;
    size_t sorted_bytes = (size_t)params->vocab_size * sizeof(trie_piece);
    trie_piece *sorted = rad_alloc(&full, sorted_bytes);
    v->end_tokens = rad_alloc(&full, ((size_t)params->num_end_tokens + 1) * sizeof *v->end_tokens);
    bool ok = sorted && v->end_tokens;
    if (ok) {
        v->num_end_tokens = params->num_end_tokens;
        for (uint32_t i = 0; i < v->num_end_tokens; i++)
            v->end_tokens[i] = params->end_tokens[i];
        ok = take_bytes(v, params, sorted, &count) && trie_make(&v->all, &full, sorted, count) &&
             sort_out_plain(v, sorted, count);
    }
    rad_free(&full, sorted, sorted_bytes);
    if (!ok) {
        v->num_end_tokens = params->num_end_tokens;
        grammar_vocab_destroy(v);
        return rad_fail(err, RAD_E_NOMEM, "grammar: no memory for a vocabulary");
    }
    *out = v;
    return RAD_OK;
}

void grammar_vocab_destroy(grammar_vocab *v)
{
    if (!v) return;
    rad_env env = v->env;
    mask_cache_fini(v);
    trie_fini(&v->all, &env);
    trie_fini(&v->rest, &env);
    rad_free(&env, v->plain, PLAIN_LENGTHS * (size_t)v->words * sizeof *v->plain);
    rad_free(&env, v->bytes, RAD_MAX(v->num_bytes, 1u));
    rad_free(&env, v->first, ((size_t)v->vocab_size + 1) * sizeof *v->first);
    rad_free(&env, v->end_tokens, ((size_t)v->num_end_tokens + 1) * sizeof *v->end_tokens);
    pthread_mutex_destroy(&v->lock);
    rad_free(&env, v, sizeof *v);
}

void grammar_vocab_get_stats(grammar_vocab *v, grammar_vocab_stats *out)
{
    pthread_mutex_lock(&v->lock);
    uint64_t words = (uint64_t)v->vocab_size + PLAIN_LENGTHS * (uint64_t)v->words;
    *out = (grammar_vocab_stats){.bytes = sizeof *v + v->num_bytes + trie_bytes(&v->all) +
                                          trie_bytes(&v->rest) + words * sizeof(uint32_t),
                                 .cache_bytes = v->cache_bytes,
                                 .hits = v->hits,
                                 .misses = v->misses,
                                 .evicted = v->evicted,
                                 .nodes = v->all.num_nodes};
    pthread_mutex_unlock(&v->lock);
}
