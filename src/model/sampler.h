/* sampler.h - from logits to a token.
 *
 * Sampling is a pure function of (logits, params, what the request has said, position):
 * the random number is a hash of the request's seed and the absolute position of the token,
 * and penalties count the request's own output. So a request that is retracted, chunked or
 * batched otherwise draws the same. */
#ifndef MODEL_SAMPLER_H
#define MODEL_SAMPLER_H

#include <radish/types.h>
#include <stdbool.h>

typedef struct logit_bias {
    rad_token id;
    float bias; /* added to its logit; [-100, 100] */
} logit_bias;

/* The arrays are the caller's and live as long as the request. */
typedef struct sampling_params {
    float temperature; /* 0 = greedy */
    float top_p;       /* 1 = off */
    float min_p;       /* 0 = off */
    int32_t top_k;     /* <= 0 = off */
    uint64_t seed;

    /* Of tokens in the output so far, as SGLang has them (the prompt does not count). */
    float repetition_penalty; /* logit / p where it is positive, else * p; (0, 2]; 0 or 1 = off */
    float presence_penalty;   /* subtracted once; [-2, 2] */
    float frequency_penalty;  /* subtracted for each time; [-2, 2] */
    uint32_t num_bias;
    const logit_bias *bias;   /* [num_bias] ids are in the vocabulary; each at most once */
    const rad_token *end_ids; /* [num_end_ids] not chosen before min_new_tokens are out */
    uint32_t num_end_ids;
    uint32_t min_new_tokens;

    bool logprobs; /* of what is chosen; the caller wants them, see sampler_logprobs */
    uint32_t num_top_logprobs;
    uint32_t num_id_logprobs;
    const rad_token *id_logprobs; /* [num_id_logprobs] as `bias`: told at every position */
} sampling_params;

/* How likely the model found a token: the natural logarithm, -INFINITY for impossible. */
typedef struct token_logprob {
    rad_token id; /* -1: none, the vocabulary ended */
    float logprob;
} token_logprob;

/* Temperatures below this are greedy, as SGLang's are. */
#define SAMPLER_GREEDY_BELOW 1e-6f

/* What the choice of one token comes down to, for whoever makes it. Of x = (logit - max) /
 * temperature and weights of e^x * unit, cut to a whole number: the tokens in order of (logit down,
 * id up) are cut to the first top_k, to the fewest of these that weigh `top_p` / 2^64 of them, and
 * to those whose x is at least `least`. If those weigh M, the token is the first of them that
 * weighs, with all before it, more than `random` / 2^64 * M. Tokens whose x is below SAMPLER_CUTOFF
 * are left out of everything. */
typedef struct sampler_choice {
    bool greedy;    /* the first is it */
    uint32_t top_k; /* 0: off */
    uint64_t top_p; /* 0: off */
    uint64_t random;
    float least;
    float unit; /* a power of two: the weights of a vocabulary stay below 2^63 */
} sampler_choice;

#define SAMPLER_CUTOFF (-40.0f)

sampler_choice sampler_choice_of(const sampling_params *params, uint32_t vocab_size,
                                 uint32_t position);

/* Whether penalties of these parameters change any logit of a token that was said. */
bool sampling_has_penalties(const sampling_params *params);

/* Words for a person when a parameter is out of range; RAD_OK otherwise. */
rad_status sampling_params_check(const sampling_params *params, rad_error *err);

/* Bytes of scratch that the two functions below need. */
static inline size_t sampler_scratch_bytes(uint32_t vocab_size)
{
    return (size_t)vocab_size * 12;
}

/* The whole way: the mask, penalties (presence, frequency, then repetition), bias and end_ids
 * change a copy of the logits, in this order, then sampler_sample chooses: temperature and the
 * filters see only what is left. output[num_output] is what the request has said so far. `allowed`
 * has bit i % 32 of allowed[i / 32] set for each token i that may be chosen, NULL: every one. What
 * is chosen is among them, whatever the logits: end_ids are not held back where nothing else is
 * allowed, and among tokens that the model gives no chance the first one is taken; -1 where their
 * logits are all NaN, or there is none. A request that asks for none of it costs what
 * sampler_sample does; else O(vocab_size + num_output). */
rad_token sampler_next(const float *logits, uint32_t vocab_size, const sampling_params *params,
                       const rad_token *output, uint32_t num_output, uint32_t position,
                       const uint32_t *allowed, void *scratch);

/* How many of them there are at a position: the token's own, the likeliest, and those asked for. */
static inline size_t sampler_num_logprobs(const sampling_params *params)
{
    return 1 + (size_t)params->num_top_logprobs + params->num_id_logprobs;
}

/* log softmax of the model's own logits, before temperature, penalties and filters. out[0]
 * is `token`'s, out[1 .. num_top] are the likeliest, best first, the smaller id among equals;
 * behind these id_logprobs. NaN logits are left out (for a token that is named: -INFINITY).
 * O(vocab_size * log num_top) for logits in no special order. */
void sampler_logprobs(const float *logits, uint32_t vocab_size, rad_token token,
                      const sampling_params *params, token_logprob *out);

/* The choice alone. scratch: vocab_size entries of 8 bytes; not needed (NULL) for greedy. Greedy
 * takes the smallest id among equals. Order of the filters: temperature, top_k,
 * top_p, min_p, as SGLang's; top_p is a share of the mass that top_k left. NaN logits
 * are never chosen; -1 when all are NaN (the caller fails the request). Expected
 * O(vocab_size), nothing is sorted. */
rad_token sampler_sample(const float *logits, uint32_t vocab_size, const sampling_params *params,
                         uint32_t position, void *scratch);

/* The same of some tokens of a vocabulary, in the order of their ids, as if all others had no
 * chance: logits[count], and the answer is an index of these. */
rad_token sampler_sample_some(const float *logits, uint32_t count, uint32_t vocab_size,
                              const sampling_params *params, uint32_t position, void *scratch);

#endif
