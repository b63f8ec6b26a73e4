/* model_bench.h - what tests of a model need around it: pools, rows whose slots lie
 * scattered, and batches from a list of (row, tokens, from, to). */
#ifndef TESTS_MODEL_BENCH_H
#define TESTS_MODEL_BENCH_H

#include "test.h"

#include "model/model_runner.h"

enum { BENCH_ROWS = 4, BENCH_ROW_TOKENS = 320, BENCH_STATES = 2 * BENCH_ROWS + 8 };

typedef struct bench {
    runner *model;
    rad_req_to_token_pool *rows;
    rad_token_to_kv_pool *kv;
    rad_token_to_kv_pool *window; /* of layers whose K/V are of another shape: in the same slots */
    /* Of a model with recurrent layers: the state behind what each row holds, a second one that it
     * may go to, and what the next run is to save. */
    rad_state_pool *states;
    rad_state now[BENCH_ROWS + 1], spare[BENCH_ROWS + 1];
    const forward_state_save *saves;
    uint32_t num_saves;
    double
        *hidden_sum; /* the next run adds the hidden states of all its tokens; NULL: it does not */
    const rad_token *next_ids; /* of the next run */
} bench;

/* One request's share of a batch: tokens[from, to) behind what the row holds. */
typedef struct piece {
    rad_row row;
    const rad_token *tokens;
    uint32_t from, to;
} piece;

/* Any runner with memory for its rows; it is the bench's then. */
static inline bench bench_of(runner *model, uint32_t page_size)
{
    bench b = {.model = model};
    const uint32_t num_pages = BENCH_ROWS * BENCH_ROW_TOKENS / page_size;
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = BENCH_ROWS, .row_tokens = BENCH_ROW_TOKENS};
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &b.rows, NULL));
    const bool apart = runner_layers_differ(&b.model->info);
    CHECK_OK(runner_create_pool(b.model, NULL, apart ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS,
                                num_pages, page_size, &b.kv, NULL));
    if (apart)
        CHECK_OK(runner_create_pool(b.model, NULL, RUNNER_WINDOW_LAYERS, num_pages, page_size,
                                    &b.window, NULL));

    CHECK_OK(runner_create_state_pool(b.model, NULL, BENCH_STATES, &b.states, NULL));
    for (rad_row row = 1; b.states && row <= BENCH_ROWS; row++) {
        CHECK_OK(rad_state_alloc(b.states, &b.now[row]));
        CHECK_OK(rad_state_alloc(b.states, &b.spare[row]));
    }

    /* Pages in a scattered order: 37 has no factor in common with 2^n * 5. */
    uint32_t page = 0;
    for (rad_row row = 1; row <= BENCH_ROWS; row++)
        for (uint32_t p = 0; p < BENCH_ROW_TOKENS; p++) {
            if (p % page_size == 0) page = (page + 37) % num_pages;
            rad_req_to_token_row(b.rows, row)[p] =
                (rad_slot)((page + 1) * page_size + p % page_size);
        }
    return b;
}

static inline bench bench_create_with(const gguf_file *file, rad_dtype dtype,
                                      weights_policy weights, uint32_t page_size,
                                      const attn_backend *attn, uint32_t num_threads)
{
    runner *model;
    rad_error err = {0};
    const model_runner_params params = {.dtype = dtype,
                                        .weights = weights,
                                        .max_batch_tokens = BENCH_ROWS * BENCH_ROW_TOKENS,
                                        .max_batch_logits = BENCH_ROWS * BENCH_ROW_TOKENS,
                                        .attn = attn,
                                        .num_threads = num_threads};
    rad_status status = model_runner_create(NULL, file, &params, &model, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return bench_of(model, page_size);
}

static inline bench bench_create(const gguf_file *file, rad_dtype dtype, uint32_t page_size,
                                 const attn_backend *attn, uint32_t num_threads)
{
    return bench_create_with(file, dtype, WEIGHTS_AS_DTYPE, page_size, attn, num_threads);
}

static inline void bench_destroy(bench *b)
{
    rad_token_to_kv_pool_destroy(b->kv);
    rad_token_to_kv_pool_destroy(b->window);
    rad_state_pool_destroy(b->states);
    runner_destroy(b->model);
    rad_req_to_token_pool_destroy(b->rows);
}

/* Where the row's state comes from and goes to: in place behind an odd number of tokens. */
static inline void bench_next_state(bench *b, const piece *p, rad_state *in, rad_state *out)
{
    *in = p->from ? b->now[p->row] : 0;
    if (!b->states || (*in && p->from % 2)) {
        *out = *in;
        return;
    }
    *out = b->spare[p->row];
    b->spare[p->row] = b->now[p->row];
    b->now[p->row] = *out;
}

/* Runs the pieces as one batch. logits[i] (NULL: not asked for) gets those of piece i, one
 * row of vocab_size per token. */
static inline void bench_run(bench *b, const piece *pieces, uint32_t num_pieces, float **logits)
{
    enum { MOST = BENCH_ROWS * BENCH_ROW_TOKENS };
    static rad_token ids[MOST];
    static uint32_t positions[MOST], at[MOST];
    static rad_slot loc[MOST];
    rad_row rows[BENCH_ROWS];
    uint32_t lens[BENCH_ROWS], prefix[BENCH_ROWS], extend[BENCH_ROWS], start[BENCH_ROWS];
    rad_state state_in[BENCH_ROWS], state_out[BENCH_ROWS];
    uint32_t n = 0, num_logits = 0;
    for (uint32_t i = 0; i < num_pieces; i++) {
        const piece *p = &pieces[i];
        bench_next_state(b, p, &state_in[i], &state_out[i]);
        rows[i] = p->row, lens[i] = p->to, prefix[i] = p->from;
        extend[i] = p->to - p->from, start[i] = n;
        for (uint32_t pos = p->from; pos < p->to; pos++, n++) {
            ids[n] = p->tokens[pos];
            positions[n] = pos;
            loc[n] = rad_req_to_token_row(b->rows, p->row)[pos];
            if (logits[i]) at[num_logits++] = n;
        }
    }
    const forward_pool pool = {0, n, b->hidden_sum};
    const forward_batch batch = {.num_reqs = num_pieces,
                                 .num_tokens = n,
                                 .input_ids = ids,
                                 .positions = positions,
                                 .out_cache_loc = loc,
                                 .req_pool_indices = rows,
                                 .seq_lens = lens,
                                 .extend_prefix_lens = prefix,
                                 .extend_seq_lens = extend,
                                 .extend_start_loc = start,
                                 .num_logits = num_logits,
                                 .logits_indices = at,
                                 .num_pools = b->hidden_sum != NULL,
                                 .pools = &pool,
                                 .req_to_token_pool = b->rows,
                                 .token_to_kv_pool = b->kv,
                                 .window_rows = b->window ? b->rows : NULL,
                                 .window_kv_pool = b->window,
                                 .window_out_cache_loc = b->window ? loc : NULL,
                                 .state_pool = b->states,
                                 .state_in = state_in,
                                 .state_out = state_out,
                                 .num_state_saves = b->num_saves,
                                 .state_saves = b->saves,
                                 .next_ids = b->next_ids};
    const float *out = NULL;
    rad_error err = {0};
    rad_status status = runner_forward(b->model, &batch, &out, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    b->num_saves = 0;
    b->hidden_sum = NULL;
    b->next_ids = NULL;
    for (uint32_t i = 0; i < num_pieces; i++) {
        if (!logits[i]) continue;
        size_t count = (size_t)extend[i] * b->model->info.vocab_size;
        memcpy(logits[i], out, count * sizeof *out);
        out += count;
    }
}

/* The whole of one sequence in one batch. */
static inline void bench_prefill(bench *b, rad_row row, const rad_token *tokens, uint32_t n,
                                 float *logits)
{
    bench_run(b, &(piece){row, tokens, 0, n}, 1, &logits);
}

/* Fails the 1st allocation of making the model, then the 2nd, ... until it is made. Whatever
 * breaks, create must say so in words and give every byte back. */
static inline void bench_fail_every_allocation(const gguf_file *file, rad_dtype dtype)
{
    const model_runner_params params = {.dtype = dtype, .max_batch_tokens = 4, .num_threads = 1};
    runner *r = NULL;
    long n = 0;
    for (; !r; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_error err = {0};
        rad_status status = model_runner_create(&env, file, &params, &r, &err);
        CHECK(status == (r ? RAD_OK : RAD_E_NOMEM));
        CHECK(r || strlen(err.text) > 10);
        runner_destroy(r);
        CHECK(t.bytes == 0);
    }
    CHECK(n > 10);
}

#endif
