/* sample_plan.c - see sample_plan.h. */
#include "cuda/sample_plan.h"

#include "base/base.h"

static uint32_t mask_words(uint32_t vocab_size)
{
    return (vocab_size + 31) / 32;
}

cuda_sample_limits cuda_sample_limits_of(uint32_t vocab_size, uint32_t ld, uint32_t context_length,
                                         uint32_t max_rows)
{
    max_rows = RAD_MIN(max_rows, (uint32_t)SAMPLE_ROWS);
    /* Said tokens, biases with their values, ids held back: each id at most once but the first. */
    const uint64_t one = (uint64_t)context_length + 3 * (uint64_t)vocab_size;
    const uint64_t words = one + (uint64_t)max_rows * mask_words(vocab_size);
    return (cuda_sample_limits){.vocab_size = vocab_size,
                                .ld = ld,
                                .max_rows = max_rows,
                                .max_words = (uint32_t)RAD_MIN(words, (uint64_t)UINT32_MAX / 8)};
}

size_t cuda_sample_block_bytes(const cuda_sample_limits *l)
{
    return l->max_rows * sizeof(sample_row) + (size_t)l->max_words * 4;
}

/* Where the parts of the scratch begin; sizes are rounded up to 256 bytes. */
typedef struct places {
    size_t states, masses, counts, bests, held, work, list, end;
} places;

static size_t take(size_t *at, size_t count, size_t size)
{
    const size_t begin = *at;
    *at = (begin + count * size + 255) / 256 * 256;
    return begin;
}

static places places_of(const cuda_sample_limits *l)
{
    const size_t rows = l->max_rows;
    size_t at = 0;
    places p;
    p.states = take(&at, rows, sizeof(sample_state));
    p.masses = take(&at, rows * SAMPLE_BUCKETS, sizeof(u64));
    p.counts = take(&at, rows * SAMPLE_BUCKETS, sizeof(u32));
    p.bests = take(&at, rows * sample_chunks(l->vocab_size), sizeof(u64));
    p.held = take(&at, l->max_words, sizeof(float));
    p.work = take(&at, rows * l->ld, sizeof(float));
    p.list = take(&at, rows * l->vocab_size, sizeof(u32));
    p.end = at;
    return p;
}

size_t cuda_sample_scratch_bytes(const cuda_sample_limits *l, size_t *zero_bytes)
{
    const places p = places_of(l);
    *zero_bytes = p.bests;
    return p.end;
}

sample_args cuda_sample_args(const cuda_sample_limits *l, const float *logits, const void *block,
                             void *scratch, int32_t *tokens, uint32_t num_rows)
{
    const places p = places_of(l);
    char *at = scratch;
    const void *words = (const char *)block + l->max_rows * sizeof(sample_row);
    return (sample_args){.logits = logits,
                         .rows = block,
                         .ids = words,
                         .bias = words,
                         .masks = words,
                         .tokens = tokens,
                         .states = (sample_state *)(at + p.states),
                         .masses = (u64 *)(at + p.masses),
                         .counts = (u32 *)(at + p.counts),
                         .bests = (u64 *)(at + p.bests),
                         .held = (float *)(at + p.held),
                         .work = (float *)(at + p.work),
                         .list = (u32 *)(at + p.list),
                         .num_rows = num_rows,
                         .vocab = l->vocab_size,
                         .ld = l->ld};
}

/* ---- filling the block ---- */

static uint32_t num_output_of(const runner_sample *r)
{
    return sampling_has_penalties(r->params) ? r->num_output : 0;
}

static uint32_t num_held_of(const runner_sample *r)
{
    return r->num_output < r->params->min_new_tokens ? r->params->num_end_ids : 0;
}

static uint64_t words_of(const runner_sample *r, uint32_t vocab_size)
{
    if (!r->params) return 0;
    return (uint64_t)num_output_of(r) + 2 * (uint64_t)r->params->num_bias + num_held_of(r) +
           (r->allowed ? mask_words(vocab_size) : 0);
}

/* Appends; returns where. */
static uint32_t put(uint32_t *words, uint32_t *used, const void *from, uint32_t count)
{
    const uint32_t at = *used;
    if (count) memcpy(words + at, from, (size_t)count * 4);
    *used += count;
    return at;
}

static sample_row fill_row(const runner_sample *r, uint32_t vocab_size, uint32_t logits_row,
                           uint32_t *words, uint32_t *used)
{
    const sampling_params *p = r->params;
    const sampler_choice choice = sampler_choice_of(p, vocab_size, r->position);
    sample_row row = {.random = choice.random,
                      .top_p = choice.top_p,
                      .logits_row = logits_row,
                      .greedy = choice.greedy,
                      .top_k = choice.top_k,
                      .temperature = p->temperature,
                      .least = choice.least,
                      .unit = choice.unit,
                      .repetition_penalty = p->repetition_penalty,
                      .presence_penalty = p->presence_penalty,
                      .frequency_penalty = p->frequency_penalty,
                      .num_output = num_output_of(r),
                      .num_bias = p->num_bias,
                      .num_end_ids = num_held_of(r),
                      .mask_at = SAMPLE_NONE};
    row.output_at = put(words, used, r->output, row.num_output);
    row.bias_at = *used;
    row.bias_values_at = *used + p->num_bias;
    for (uint32_t i = 0; i < p->num_bias; i++) {
        memcpy(words + row.bias_at + i, &p->bias[i].id, 4);
        memcpy(words + row.bias_values_at + i, &p->bias[i].bias, 4);
    }
    *used += 2 * p->num_bias;
    row.end_ids_at = put(words, used, p->end_ids, row.num_end_ids);
    if (r->allowed) row.mask_at = put(words, used, r->allowed, mask_words(vocab_size));
    return row;
}

rad_status cuda_sample_fill(const cuda_sample_limits *l, const runner_sample *rows,
                            uint32_t num_rows, uint32_t first_logits_row, void *block,
                            cuda_sample_pack *out, rad_error *err)
{
    sample_row *to = block;
    uint32_t *words = (uint32_t *)(to + l->max_rows), used = 0;
    *out = (cuda_sample_pack){0};
    for (uint32_t i = 0; i < num_rows && i < l->max_rows; i++) {
        const runner_sample *r = &rows[i];
        if (words_of(r, l->vocab_size) > l->max_words - used) break;
        out->num_rows++;
        if (!r->params) {
            to[i] = (sample_row){.logits_row = SAMPLE_NONE};
            continue;
        }
        to[i] = fill_row(r, l->vocab_size, first_logits_row + i, words, &used);
        out->num_drawn += !to[i].greedy;
    }
    if (num_rows && !out->num_rows)
        return rad_fail(
            err, RAD_E_INVAL,
            "a request's output, biases and mask are %llu words; %u can be sampled with",
            (unsigned long long)words_of(rows, l->vocab_size), l->max_words);
    out->bytes = l->max_rows * sizeof(sample_row) + (size_t)used * 4;
    return RAD_OK;
}

void cuda_sample_clear(const cuda_sample_limits *l, void *block, uint32_t first)
{
    sample_row *rows = block;
    for (uint32_t i = first; i < l->max_rows; i++)
        rows[i] = (sample_row){.logits_row = SAMPLE_NONE};
}
