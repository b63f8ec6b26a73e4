/* sampler.h - from logits to a token.
 *
 * Sampling is a pure function of (logits, params, seed, position): the random
 * number is a hash of the request's seed and the absolute position of the token.
 * So a request that is retracted, chunked or batched otherwise draws the same. */
#ifndef MODEL_SAMPLER_H
#define MODEL_SAMPLER_H

#include <radish/types.h>

typedef struct sampling_params {
    float temperature; /* 0 = greedy */
    float top_p;       /* 1 = off */
    float min_p;       /* 0 = off */
    int32_t top_k;     /* <= 0 = off */
    uint64_t seed;
} sampling_params;

/* Temperatures below this are greedy, as SGLang's are. */
#define SAMPLER_GREEDY_BELOW 1e-6f

/* Words for a person when a parameter is out of range; RAD_OK otherwise. */
rad_status sampling_params_check(const sampling_params *params, rad_error *err);

/* scratch: vocab_size entries of 8 bytes; not needed (NULL) for greedy. Greedy
 * takes the smallest id among equals. Order of the filters: temperature, top_k,
 * top_p, min_p, as SGLang's; top_p is a share of the mass that top_k left. NaN logits
 * are never chosen; -1 when all are NaN (the caller fails the request). Expected
 * O(vocab_size), nothing is sorted. */
rad_token sampler_sample(const float *logits, uint32_t vocab_size, const sampling_params *params,
                         uint32_t position, void *scratch);

#endif
