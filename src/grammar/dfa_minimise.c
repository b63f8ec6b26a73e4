/* dfa_minimise.c - the smallest automaton with the same texts.
 *
 * States and edges are both kept in blocks that are split until they fit each other (Valmari's form
 * of Hopcroft's algorithm, for automata that lack edges): two edges stay together as long as they
 * have one label and lead into one block of states, two states as long as each block of edges
 * begins in both or in neither. The smaller half of a block becomes the new one: O(edges *
 * log(edges)).
 *
 * Labels are classes of bytes that no edge of this automaton tells apart, and rules. An edge for a
 * wide range counts once for each class in it; where that is too many, states stay as they are: the
 * automaton is then right and not smallest. */
#include "grammar/dfa_impl.h"

#include <stdlib.h>

enum { MOST_PARTS = 4000000 };

typedef struct blocks {
    uint32_t *item, *place; /* items in the order of their blocks; where each is */
    uint32_t *of;           /* block by item */
    uint32_t *first, *end;  /* by block, in item[] */
    uint32_t *marked;       /* how many of a block, at its beginning */
    uint32_t *touched;      /* blocks with marked items */
    uint32_t num_touched, count;
    uint32_t caps[7];
} blocks;

static bool blocks_init(blocks *b, gr_mem *mem, uint32_t items)
{
    uint64_t room = (uint64_t)items + 1;
    *b = (blocks){.count = items ? 1 : 0};
    if (!GR_GROW(mem, b->item, b->caps[0], room) || !GR_GROW(mem, b->place, b->caps[1], room) ||
        !GR_GROW(mem, b->of, b->caps[2], room) || !GR_GROW(mem, b->first, b->caps[3], room) ||
        !GR_GROW(mem, b->end, b->caps[4], room) || !GR_GROW(mem, b->marked, b->caps[5], room) ||
        !GR_GROW(mem, b->touched, b->caps[6], room))
        return false;
    for (uint32_t i = 0; i < items; i++)
        b->item[i] = b->place[i] = i;
    b->end[0] = items;
    return true;
}

static void blocks_fini(blocks *b, gr_mem *mem)
{
    GR_DROP(mem, b->item, b->caps[0]);
    GR_DROP(mem, b->place, b->caps[1]);
    GR_DROP(mem, b->of, b->caps[2]);
    GR_DROP(mem, b->first, b->caps[3]);
    GR_DROP(mem, b->end, b->caps[4]);
    GR_DROP(mem, b->marked, b->caps[5]);
    GR_DROP(mem, b->touched, b->caps[6]);
}

static void mark(blocks *b, uint32_t item)
{
    uint32_t block = b->of[item], at = b->place[item], to = b->first[block] + b->marked[block];
    if (at < to) return; /* it is already */
    uint32_t other = b->item[to];
    b->item[at] = other;
    b->place[other] = at;
    b->item[to] = item;
    b->place[item] = to;
    if (!b->marked[block]++) b->touched[b->num_touched++] = block;
}

/* The marked and the others of each touched block part; the smaller half gets a new number. */
static void split(blocks *b)
{
    while (b->num_touched) {
        uint32_t block = b->touched[--b->num_touched], marked = b->marked[block];
        uint32_t border = b->first[block] + marked, fresh = b->count;
        b->marked[block] = 0;
        if (border == b->end[block]) continue;
        if (marked <= b->end[block] - border) {
            b->first[fresh] = b->first[block];
            b->end[fresh] = b->first[block] = border;
        } else {
            b->first[fresh] = border;
            b->end[fresh] = b->end[block];
            b->end[block] = border;
        }
        b->marked[fresh] = 0;
        for (uint32_t i = b->first[fresh]; i < b->end[fresh]; i++)
            b->of[b->item[i]] = fresh;
        b->count++;
    }
}

typedef struct part {
    uint32_t from, to, label;
} part;

static int compare_parts(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return (x->label > y->label) - (x->label < y->label);
}

/* Edges as parts, one for each class of bytes, in the order of labels. False: too many. */
static bool make_parts(const dfa *d, part **parts, uint32_t *cap, uint32_t *count)
{
    gr_mem *mem = d->mem;
    bool border[257] = {0};
    uint8_t class_of[256];
    uint32_t per_label[257] = {0}, n = 0, calls = 0;
    for (uint32_t e = 0; e < d->num_edges; e++)
        if (d->edges[e].rule == NO_RULE) border[d->edges[e].lo] = border[d->edges[e].hi + 1] = true;
    unsigned classes = 0;
    for (unsigned b = 0; b < 256; b++) {
        if (b && border[b]) classes++;
        class_of[b] = (uint8_t)classes;
    }
    uint64_t total = 0;
    for (uint32_t e = 0; e < d->num_edges; e++) {
        const dfa_edge *edge = &d->edges[e];
        if (edge->rule != NO_RULE) {
            calls++;
            continue;
        }
        total += class_of[edge->hi] - class_of[edge->lo] + 1u;
        for (unsigned c = class_of[edge->lo]; c <= class_of[edge->hi]; c++)
            per_label[c + 1]++;
    }
    if (total + calls > MOST_PARTS || !GR_GROW(mem, *parts, *cap, total + calls + 1)) return false;
    for (unsigned c = 0; c < 256; c++)
        per_label[c + 1] += per_label[c];
    n = (uint32_t)total;
    for (uint32_t s = 0; s < d->num_states; s++) {
        for (uint32_t e = d->first[s]; e < d->first[s + 1]; e++) {
            const dfa_edge *edge = &d->edges[e];
            if (edge->rule != NO_RULE) {
                (*parts)[n++] = (part){s, edge->to, 256 + edge->rule};
                continue;
            }
            for (unsigned c = class_of[edge->lo]; c <= class_of[edge->hi]; c++)
                (*parts)[per_label[c]++] = (part){s, edge->to, c};
        }
    }
    if (calls > 1) qsort(*parts + total, calls, sizeof **parts, compare_parts);
    *count = n;
    return gr_work(mem, n);
}

/* The edges into each state: into[first[s] .. first[s + 1]). */
static bool make_into(const dfa *d, const part *parts, uint32_t count, uint32_t **first,
                      uint32_t *cap_first, uint32_t **into, uint32_t *cap_into)
{
    if (!GR_GROW(d->mem, *first, *cap_first, (uint64_t)d->num_states + 2) ||
        !GR_GROW(d->mem, *into, *cap_into, (uint64_t)count + 1))
        return false;
    for (uint32_t i = 0; i < count; i++)
        (*first)[parts[i].to + 2]++;
    for (uint32_t s = 0; s < d->num_states; s++)
        (*first)[s + 2] += (*first)[s + 1];
    for (uint32_t i = 0; i < count; i++)
        (*into)[(*first)[parts[i].to + 1]++] = i;
    return true;
}

static void refine(blocks *states, blocks *edges, const part *parts, const uint32_t *first,
                   const uint32_t *into, gr_mem *mem)
{
    uint32_t done = 1; /* of blocks of states; one of them may stay out */
    for (uint32_t c = 0; c < edges->count; c++) {
        gr_work(mem, edges->end[c] - edges->first[c]);
        for (uint32_t i = edges->first[c]; i < edges->end[c]; i++)
            mark(states, parts[edges->item[i]].from);
        split(states);
        for (; done < states->count; done++) {
            for (uint32_t i = states->first[done]; i < states->end[done]; i++) {
                uint32_t s = states->item[i];
                for (uint32_t e = first[s]; e < first[s + 1]; e++)
                    mark(edges, into[e]);
            }
            split(edges);
        }
    }
}

bool dfa_minimise(dfa *d)
{
    gr_mem *mem = d->mem;
    blocks states = {0}, edges = {0};
    part *parts = NULL;
    uint32_t cap_parts = 0, count = 0, *first = NULL, cap_first = 0, *into = NULL, cap_into = 0;
    bool fits = d->num_states > 1 && make_parts(d, &parts, &cap_parts, &count) &&
                make_into(d, parts, count, &first, &cap_first, &into, &cap_into) &&
                blocks_init(&states, mem, d->num_states) && blocks_init(&edges, mem, count);
    bool ok = !mem->status;
    if (ok && fits) {
        for (uint32_t s = 0; s < d->num_states; s++)
            if (d->accepts[s]) mark(&states, s);
        split(&states);
        for (uint32_t i = 0; i < count; i++) { /* a block for each label */
            uint32_t b = i && parts[i].label == parts[i - 1].label ? edges.count - 1
                         : i                                       ? edges.count++
                                                                   : 0;
            if (!i || parts[i].label != parts[i - 1].label) edges.first[b] = i;
            edges.end[b] = i + 1;
            edges.of[i] = b;
        }
        refine(&states, &edges, parts, first, into, mem);
        ok = !mem->status && (states.count == d->num_states || dfa_select(d, states.of, 0));
    }
    blocks_fini(&states, mem);
    blocks_fini(&edges, mem);
    GR_DROP(mem, parts, cap_parts);
    GR_DROP(mem, first, cap_first);
    GR_DROP(mem, into, cap_into);
    return ok;
}
