/* engine_draft.h - the small model that guesses what the served one will say
 * (sched/draft_model.h): which file can be one, what it takes, and loading it. And who guesses. */
#ifndef ENGINE_ENGINE_DRAFT_H
#define ENGINE_ENGINE_DRAFT_H

#include "engine/engine.h"
#include "model/model_runner.h"

typedef struct draft_plan {
    bool on; /* else there is none */
    bool reserved[3];
    uint32_t context_length;
    model_runner_params model; /* without threads */
    model_sizes sizes;
    uint64_t token_bytes; /* of each token of the served model's pool, beside its own */
} draft_plan;

/* Who is asked for guesses, as params->speculative_algorithm has it, as draft_bits; 0: nothing is
 * guessed. RAD_E_INVAL in words. */
rad_status draft_sources_wanted(const engine_params *params, uint32_t *bits, rad_error *err);

/* Of params->speculative_draft_model_path, for a model out of `file` that is made with `beside`.
 * Errors: those of opening and reading a model's file; RAD_E_UNSUPPORTED in words for one with
 * another vocabulary, with recurrent layers, or for embeddings. Of tensors nothing is read. */
rad_status draft_plan_load(const rad_env *env, const gguf_file *file, const engine_params *params,
                           const model_runner_params *beside, draft_plan *plan, rad_error *err);

/* Loads it. It computes with the threads of `large`, which must outlive it. */
rad_status draft_load(const rad_env *env, const engine_params *params, const draft_plan *plan,
                      const runner *large, runner **out, rad_error *err);

#endif
