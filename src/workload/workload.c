/* workload.c - building a workload, and counting what could be shared. */
#include "workload/workload.h"

void workload_init(workload *w, const rad_env *env, const char *name, const char *note)
{
    *w = (workload){.env = rad_env_or_default(env), .name = name, .note = note};
}

void workload_fini(workload *w)
{
    rad_free(&w->env, w->segments, w->segment_cap * sizeof *w->segments);
    rad_free(&w->env, w->calls, w->call_cap * sizeof *w->calls);
    rad_free(&w->env, w->prompts, w->prompt_cap * sizeof *w->prompts);
    rad_free(&w->env, w->afters, w->after_cap * sizeof *w->afters);
    *w = (workload){0};
}

/* Room for `more` entries behind `count`; the array, moved if need be. */
static void *grow(workload *w, void *array, uint32_t *cap, uint32_t count, uint32_t more,
                  size_t size)
{
    if (count + more <= *cap) return array;
    uint32_t bigger = RAD_MAX(count + more, RAD_MAX(2 * *cap, 64u));
    void *moved = rad_alloc(&w->env, bigger * size);
    if (!moved) {
        w->nomem = true;
        return array;
    }
    if (count) memcpy(moved, array, count * size);
    rad_free(&w->env, array, *cap * size);
    *cap = bigger;
    return moved;
}

uint32_t workload_add_segment(workload *w, uint32_t tokens)
{
    w->segments = grow(w, w->segments, &w->segment_cap, w->num_segments, 1, sizeof *w->segments);
    if (w->nomem) return 0;
    w->segments[w->num_segments] = (workload_segment){.tokens = tokens};
    return w->num_segments++;
}

uint32_t workload_add_call(workload *w, uint32_t program, const uint32_t *prompt, uint32_t num_segs,
                           uint32_t out, const uint32_t *after, uint32_t num_after)
{
    uint32_t output = workload_add_segment(w, out);
    w->calls = grow(w, w->calls, &w->call_cap, w->num_calls, 1, sizeof *w->calls);
    w->prompts = grow(w, w->prompts, &w->prompt_cap, w->num_prompts, num_segs, sizeof *prompt);
    w->afters = grow(w, w->afters, &w->after_cap, w->num_afters, num_after, sizeof *after);
    if (w->nomem) return 0;
    w->segments[output].output_of = w->num_calls + 1;
    w->calls[w->num_calls] =
        (workload_call){program, out, w->num_prompts, num_segs, w->num_afters, num_after, output};
    memcpy(w->prompts + w->num_prompts, prompt, num_segs * sizeof *prompt);
    if (num_after) memcpy(w->afters + w->num_afters, after, num_after * sizeof *after);
    w->num_prompts += num_segs;
    w->num_afters += num_after;
    return w->num_calls++;
}

uint32_t workload_prompt_tokens(const workload *w, uint32_t call)
{
    const workload_call *c = &w->calls[call];
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < c->num_segs; i++)
        tokens += w->segments[w->prompts[c->segs_at + i]].tokens;
    return tokens;
}

/* A trie of segments: (node, segment) -> node, in an open table. Node 0 is the root. */
typedef struct trie {
    struct edge {
        uint32_t node, segment, to;
    } * edges; /* to == 0: free */
    uint32_t mask, num_nodes;
} trie;

static uint32_t trie_step(trie *t, uint32_t node, uint32_t segment, bool *was_there)
{
    uint32_t at = (node * 0x9e3779b1u ^ segment * 0x85ebca77u) & t->mask;
    for (; t->edges[at].to; at = (at + 1) & t->mask)
        if (t->edges[at].node == node && t->edges[at].segment == segment) {
            *was_there = true;
            return t->edges[at].to;
        }
    *was_there = false;
    t->edges[at] = (struct edge){node, segment, ++t->num_nodes};
    return t->num_nodes;
}

rad_status workload_sum(const workload *w, workload_sums *out, rad_error *err)
{
    *out = (workload_sums){0};
    uint32_t places = 64;
    while (places < 2 * (w->num_prompts + w->num_calls))
        places *= 2;
    trie t = {.edges = rad_alloc(&w->env, places * sizeof *t.edges), .mask = places - 1};
    if (!t.edges) return rad_fail(err, RAD_E_NOMEM, "workload: no memory to count %s", w->name);
    for (uint32_t i = 0; i < w->num_calls; i++) {
        const workload_call *c = &w->calls[i];
        uint32_t node = 0, tokens = 0, hit = 0;
        bool live = true, there;
        for (uint32_t s = 0; s < c->num_segs; s++) {
            uint32_t segment = w->prompts[c->segs_at + s];
            node = trie_step(&t, node, segment, &there);
            live = live && there;
            tokens += w->segments[segment].tokens;
            if (live) hit = tokens;
        }
        trie_step(&t, node, c->output, &there); /* the output is kept too */
        out->prompt_tokens += tokens;
        out->cached_tokens += hit;
        out->least_computed += RAD_MAX(tokens - hit, 1u);
        out->output_tokens += c->out;
        out->longest = RAD_MAX(out->longest, tokens + c->out);
    }
    rad_free(&w->env, t.edges, places * sizeof *t.edges);
    return RAD_OK;
}
