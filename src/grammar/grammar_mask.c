/* grammar_mask.c - which tokens may come at a place. */
#include "grammar/grammar_impl.h"

rad_status mask_fill(grammar_matcher *m, const match_step *at, uint32_t *bits)
{
    const trie *t = &m->g->v->all;
    uint32_t first[GRAMMAR_MAX_PIECE + 1], count[GRAMMAR_MAX_PIECE + 1];
    first[0] = at->first;
    count[0] = at->count;
    m->walker.status = RAD_OK;
    for (uint32_t i = 1; i < t->num_nodes;) {
        const trie_node *node = &t->nodes[i];
        uint32_t depth = node->depth;
        m->threads.count = depth == 1 ? at->first + at->count : first[depth - 1] + count[depth - 1];
        first[depth] = m->threads.count;
        if (!place_step(&m->walker, &m->threads, first[depth - 1], count[depth - 1], node->byte))
            return m->walker.status;
        count[depth] = m->threads.count - first[depth];
        if (!count[depth] && !m->walker.ended) {
            i = node->skip;
            continue;
        }
        for (uint32_t k = node->tokens; k < node[1].tokens; k++)
            bits[t->order[k] / 32] |= 1u << t->order[k] % 32;
        i = count[depth] ? i + 1 : node->skip;
    }
    return RAD_OK;
}
