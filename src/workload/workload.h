/* workload.h - calls of a language model whose prompts share segments.
 *
 * A workload is a list of calls in a legal order. A call has a prompt, a number of tokens
 * to generate, and calls that must have ended before it starts. A prompt is a list of
 * segments; a segment is a run of tokens, or the output of an earlier call. Two prompts
 * share exactly the leading segments that they have in common (segments are filled so
 * that different ones differ in their first token), so a trie of segments is the radix
 * tree of the tokens, and the best possible hit rate can be counted without a model.
 *
 * The suite is that of SGLang's paper (Zheng et al., NeurIPS 2024), scaled to a CPU:
 * lengths about a quarter, contexts up to 1,024; or in the paper's size. */
#ifndef WORKLOAD_WORKLOAD_H
#define WORKLOAD_WORKLOAD_H

#include "base/base.h"

typedef struct workload_segment {
    uint32_t tokens;
    uint32_t output_of; /* call + 1, or 0: a run of tokens of its own */
} workload_segment;

typedef struct workload_call {
    uint32_t program;             /* calls of one program belong together */
    uint32_t out;                 /* tokens to generate; 0: the prompt is only scored */
    uint32_t segs_at, num_segs;   /* in workload.prompts */
    uint32_t after_at, num_after; /* in workload.afters */
    uint32_t output;              /* the segment of its output */
} workload_call;

typedef struct workload {
    rad_env env;
    const char *name, *note;
    workload_segment *segments;
    workload_call *calls;
    uint32_t *prompts, *afters; /* segment numbers; call numbers */
    uint32_t num_segments, num_calls, num_prompts, num_afters;
    uint32_t segment_cap, call_cap, prompt_cap, after_cap;
    bool nomem; /* an addition found no memory: the workload is of no use */
} workload;

/* ---- building ---- */

void workload_init(workload *w, const rad_env *env, const char *name, const char *note);
void workload_fini(workload *w); /* a zeroed one is fine */

uint32_t workload_add_segment(workload *w, uint32_t tokens);

/* Returns the call's number; the segment of its output is workload_output of it. */
uint32_t workload_add_call(workload *w, uint32_t program, const uint32_t *prompt, uint32_t num_segs,
                           uint32_t out, const uint32_t *after, uint32_t num_after);

static inline uint32_t workload_output(const workload *w, uint32_t call)
{
    return w->nomem ? 0 : w->calls[call].output;
}

/* ---- the suite ---- */

/* How many there are, and the name of each; NULL past the end. */
const char *workload_suite_name(uint32_t index);

/* Builds number `index` of the suite. All of them are drawn from one generator, so the
 * ones before it are built and thrown away. RAD_E_NOMEM; RAD_NONE: no such index. */
rad_status workload_suite_make(const rad_env *env, uint32_t index, bool paper_size, workload *out,
                               rad_error *err);

/* ---- arithmetic ---- */

typedef struct workload_sums {
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    uint64_t cached_tokens;  /* with an unbounded cache that keeps prompts and outputs */
    uint64_t least_computed; /* prompt tokens that even that cache leaves: the others, and of
                              * a prompt that is there whole its last one */
    uint32_t longest;        /* prompt and output of one call */
    uint32_t reserved;
} workload_sums;

/* RAD_E_NOMEM. O(segments of all prompts). */
rad_status workload_sum(const workload *w, workload_sums *out, rad_error *err);

/* Tokens of a call's prompt. */
uint32_t workload_prompt_tokens(const workload *w, uint32_t call);

#endif
