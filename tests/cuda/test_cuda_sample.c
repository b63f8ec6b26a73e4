/* sample.cu on the emulator: for any logits and parameters the token that sampler_next chooses,
 * whatever is sampled beside it. Where RADISH_TEST_GPU names a driver, its GPU chooses the tokens
 * of the same launches as well. */
#include "cuda_rig.h"

#include "cuda/sample_plan.h"

#include <math.h>

static uint64_t state;

static uint32_t less(uint32_t n)
{
    return (uint32_t)(test_random(&state) % n);
}

static const char *const kernels[] = {"sample_adjust", "sample_count", "sample_choose"};

static void emulate_all(const cuda_sample_limits *l, const sample_args *args, bool drawn)
{
    for (int k = 0; k < (drawn ? 3 : 1); k++) {
        emulation launch = {.kernel = kernels[k],
                            .grid = {sample_chunks(l->vocab_size), args->num_rows, 1},
                            .threads = SAMPLE_THREADS,
                            .args = args,
                            .order = less(6)};
        const char *wrong = emulate(&launch);
        CHECKF(!wrong, "%s: %s\n", kernels[k], wrong);
    }
}

/* ---- a GPU beside the emulator ---- */

static struct {
    cuda_rig rig;
    cuda_module module;
    cuda_function functions[3];
} gpu;

static void gpu_open(void)
{
    gpu.rig = rig_open();
    if (!gpu.rig.has_gpu) return;
    rad_error err = {0};
    char *text = calloc(1, 1 << 20);
    rig_enter(&gpu.rig);
    FILE *in = fopen(
        gpu.rig.hopper ? "src/cuda/ptx/sample.sm90.ptx" : "src/cuda/ptx/sample.sm80.ptx", "rb");
    CHECK(in && fread(text, 1, (1 << 20) - 1, in) > 0);
    fclose(in);
    CHECKF(cuda_module_load(&gpu.rig.cu, "sample", text, &gpu.module, &err) == RAD_OK, "%s\n",
           err.text);
    for (int k = 0; k < 3; k++)
        CHECKF(cuda_function_get(&gpu.rig.cu, gpu.module, kernels[k], sizeof(sample_args), 0,
                                 &gpu.functions[k], &err) == RAD_OK,
               "%s\n", err.text);
    free(text);
}

static void gpu_close(void)
{
    if (gpu.module) gpu.rig.cu.module_unload(gpu.module);
    rig_close(&gpu.rig);
    memset(&gpu, 0, sizeof gpu);
}

static cuda_ptr gpu_alloc(size_t bytes)
{
    cuda_ptr memory = 0;
    if (gpu.rig.has_gpu) rig_did(&gpu.rig, gpu.rig.cu.mem_alloc(&memory, bytes), "memory");
    return memory;
}

static void gpu_upload(cuda_ptr to, const void *from, size_t bytes)
{
    if (!gpu.rig.has_gpu) return;
    rig_did(&gpu.rig, gpu.rig.cu.copy_to_device(to, from, bytes, gpu.rig.stream), "upload");
    rig_did(&gpu.rig, gpu.rig.cu.stream_synchronize(gpu.rig.stream), "upload");
}

static void gpu_launch_all(const cuda_sample_limits *l, const sample_args *args, bool drawn)
{
    const uint32_t grid[3] = {sample_chunks(l->vocab_size), args->num_rows, 1};
    for (int k = 0; k < (drawn ? 3 : 1); k++) {
        rad_error err = {0};
        CHECKF(cuda_launch(&gpu.rig.cu, gpu.functions[k], grid, SAMPLE_THREADS, 0, gpu.rig.stream,
                           k > 0 && gpu.rig.hopper, args, sizeof *args, &err) == RAD_OK,
               "%s\n", err.text);
    }
    gpu.rig.compared++;
}

/* A device's part: made once, used for many steps. */
typedef struct sampling {
    cuda_sample_limits limits;
    void *block, *scratch;
    cuda_ptr gpu_block, gpu_scratch, gpu_tokens, gpu_logits;
} sampling;

static sampling sampling_start(uint32_t vocab, uint32_t ld, uint32_t max_rows, uint32_t max_logits)
{
    sampling s = {.limits = cuda_sample_limits_of(vocab, ld, 200, max_rows)};
    size_t zero, bytes = cuda_sample_scratch_bytes(&s.limits, &zero);
    s.block = malloc(cuda_sample_block_bytes(&s.limits));
    s.scratch = malloc(bytes);
    memset(s.scratch, 0x5a, bytes);
    memset(s.scratch, 0, zero);
    s.gpu_block = gpu_alloc(cuda_sample_block_bytes(&s.limits));
    s.gpu_scratch = gpu_alloc(bytes);
    s.gpu_tokens = gpu_alloc(SAMPLE_ROWS * sizeof(rad_token));
    s.gpu_logits = gpu_alloc((size_t)max_logits * ld * sizeof(float));
    gpu_upload(s.gpu_scratch, s.scratch, bytes);
    return s;
}

static void sampling_stop(sampling *s)
{
    const cuda_ptr all[] = {s->gpu_block, s->gpu_scratch, s->gpu_tokens, s->gpu_logits};
    for (int i = 0; i < 4; i++)
        if (all[i]) gpu.rig.cu.mem_free(all[i]);
    free(s->block);
    free(s->scratch);
}

/* Tokens of all rows, in as many launches as it takes. */
static uint32_t sample_rows(sampling *s, const float *logits, const runner_sample *rows,
                            uint32_t num_rows, rad_token *tokens)
{
    uint32_t launches = 0;
    for (uint32_t at = 0; at < num_rows; launches++) {
        cuda_sample_pack pack;
        CHECK_OK(cuda_sample_fill(&s->limits, rows + at, num_rows - at, at, s->block, &pack, NULL));
        CHECK(pack.num_rows && pack.bytes <= cuda_sample_block_bytes(&s->limits));
        const uint32_t more = less(2) && pack.num_rows < s->limits.max_rows;
        if (more) cuda_sample_clear(&s->limits, s->block, pack.num_rows);
        rad_token chosen[SAMPLE_ROWS];
        const sample_args args = cuda_sample_args(&s->limits, logits, s->block, s->scratch, chosen,
                                                  pack.num_rows + more);
        emulate_all(&s->limits, &args, pack.num_drawn);
        memcpy(tokens + at, chosen, pack.num_rows * sizeof *tokens);
        if (gpu.rig.has_gpu) {
            rad_token theirs[SAMPLE_ROWS];
            const uint32_t num_logits = at + pack.num_rows;
            gpu_upload(s->gpu_block, s->block, cuda_sample_block_bytes(&s->limits));
            gpu_upload(s->gpu_logits, logits, (size_t)num_logits * s->limits.ld * sizeof(float));
            const sample_args on_gpu =
                cuda_sample_args(&s->limits, (void *)s->gpu_logits, (void *)s->gpu_block,
                                 (void *)s->gpu_scratch, (void *)s->gpu_tokens, args.num_rows);
            gpu_launch_all(&s->limits, &on_gpu, pack.num_drawn);
            rig_did(&gpu.rig,
                    gpu.rig.cu.copy_to_host(theirs, s->gpu_tokens, sizeof theirs, gpu.rig.stream),
                    "tokens");
            rig_did(&gpu.rig, gpu.rig.cu.stream_synchronize(gpu.rig.stream), "tokens");
            for (uint32_t i = 0; i < pack.num_rows; i++)
                CHECKF(!rows[at + i].params || theirs[i] == chosen[i],
                       "row %u: token %d on the GPU, %d here\n", at + i, theirs[i], chosen[i]);
        }
        at += pack.num_rows;
    }
    return launches;
}

/* ---- random requests ---- */

enum { MOST_OUTPUT = 40, MOST_BIAS = 4, MOST_ENDS = 3 };
typedef struct request {
    sampling_params params;
    rad_token output[MOST_OUTPUT], ends[MOST_ENDS];
    logit_bias bias[MOST_BIAS];
    uint32_t *mask;
    float *logits;
    runner_sample row;
} request;

static void random_logits(float *logits, uint32_t vocab)
{
    const uint32_t kinds = 1 + less(less(3) ? 1000000 : 5), shape = less(8);
    const float width = (float[]){1, 10, 100}[less(3)];
    for (uint32_t i = 0; i < vocab; i++) {
        logits[i] = ((float)less(kinds) / (float)kinds - 0.5f) * width;
        if (shape == 0 && !less(9)) logits[i] = NAN;
        if (shape == 1 && !less(9)) logits[i] = -INFINITY;
        if (shape == 2 && !less(30)) logits[i] = INFINITY;
        if (shape == 3) logits[i] = less(2) ? -0.0f : 0.0f;
        if (shape == 4) logits[i] = less(2) ? NAN : -INFINITY;
    }
}

static void random_request(request *r, uint32_t vocab)
{
    random_logits(r->logits, vocab);
    sampling_params p = {.top_p = 1, .seed = test_random(&state)};
    if (less(4)) p.temperature = 0.01f + (float)less(1000) / 300.0f;
    if (less(2)) p.top_k = (int32_t)(less(4) ? 1 + less(20) : 1 + less(2 * vocab));
    if (less(2)) p.top_p = less(8) ? (float)(1 + less(999)) / 1000.0f : 1e-20f;
    if (less(3) == 0) p.min_p = (float)(1 + less(1000)) / 1000.0f;
    r->row = (runner_sample){.position = less(100000), .output = r->output};
    if (!less(3)) {
        p.repetition_penalty = (float)less(20) / 10.0f;
        p.presence_penalty = (float)less(5) / 2 - 1;
        p.frequency_penalty = (float)less(5) / 2 - 1;
    }
    r->row.num_output = less(MOST_OUTPUT);
    for (uint32_t i = 0; i < r->row.num_output; i++)
        r->output[i] = (rad_token)less(RAD_MIN(vocab, 30u));
    if (!less(3)) p.num_bias = less(RAD_MIN(vocab, (uint32_t)MOST_BIAS) + 1);
    const uint32_t first = less(vocab);
    for (uint32_t i = 0; i < p.num_bias; i++)
        r->bias[i] = (logit_bias){(rad_token)((first + i) % vocab), (float)less(100) - 50};
    p.bias = r->bias;
    if (!less(3)) p.num_end_ids = 1 + less(MOST_ENDS);
    for (uint32_t i = 0; i < p.num_end_ids; i++)
        r->ends[i] = (rad_token)less(vocab);
    p.end_ids = r->ends;
    p.min_new_tokens = less(MOST_OUTPUT);
    const uint32_t words = (vocab + 31) / 32, kind = less(6);
    r->row.allowed = kind < 3 ? r->mask : NULL;
    for (uint32_t w = 0; w < words && kind < 3; w++)
        r->mask[w] = kind ? (less(3) ? 0 : 1u << less(32)) : (uint32_t)test_random(&state);
    if (kind == 1 && p.num_end_ids) /* the rule has ended, the least number has not */
        for (uint32_t w = 0; w < words; w++)
            r->mask[w] = w == (uint32_t)r->ends[0] / 32 ? 1u << r->ends[0] % 32 : 0;
    r->params = p;
    r->row.params = less(20) ? &r->params : NULL;
}

/* Of `launches` random batches, each checked against the CPU row by row. */
static void hold_against_cpu(uint32_t vocab, uint32_t launches, uint32_t max_rows, uint64_t *chosen)
{
    enum { ROWS = 40 };
    static request requests[ROWS];
    const uint32_t ld = vocab + less(5);
    sampling s = sampling_start(vocab, ld, 1 + less(max_rows), max_rows);
    float *logits = malloc((size_t)max_rows * ld * sizeof *logits);
    uint32_t *masks = malloc((size_t)max_rows * (vocab + 31) / 32 * 4 + max_rows * 4);
    void *scratch = malloc(sampler_scratch_bytes(vocab));
    while (launches--) {
        const uint32_t num_rows = 1 + less(max_rows);
        runner_sample rows[ROWS];
        rad_token tokens[ROWS];
        for (uint32_t i = 0; i < num_rows; i++) {
            requests[i].logits = logits + (size_t)i * ld;
            requests[i].mask = masks + (size_t)i * ((vocab + 31) / 32);
            random_request(&requests[i], vocab);
            rows[i] = requests[i].row;
        }
        sample_rows(&s, logits, rows, num_rows, tokens);
        for (uint32_t i = 0; i < num_rows; i++) {
            const runner_sample *r = &rows[i];
            if (!r->params) continue;
            const rad_token want = sampler_next(requests[i].logits, vocab, r->params, r->output,
                                                r->num_output, r->position, r->allowed, scratch);
            CHECKF(tokens[i] == want,
                   "vocabulary %u, row %u of %u: token %d, not %d; temperature %g, top_k %d, "
                   "top_p %g, min_p %g, mask %d, %u ends\n",
                   vocab, i, num_rows, tokens[i], want, (double)r->params->temperature,
                   r->params->top_k, (double)r->params->top_p, (double)r->params->min_p,
                   r->allowed != NULL, r->params->num_end_ids);
            ++*chosen;
        }
    }
    sampling_stop(&s);
    free(logits), free(masks), free(scratch);
}

TEST(small_vocabularies_give_the_token_of_the_cpu)
{
    state = test_told_seed();
    gpu_open();
    const uint64_t wanted = test_scale(1000, 100000);
    for (uint64_t chosen = 0; chosen < wanted;)
        hold_against_cpu(1 + less(less(3) ? 60 : 600), 3, 30, &chosen);
    gpu_close();
}

TEST(vocabularies_of_many_chunks_give_the_token_of_the_cpu)
{
    state = test_told_seed();
    gpu_open();
    const uint64_t wanted = test_scale(30, 3000);
    for (uint64_t chosen = 0; chosen < wanted;)
        hold_against_cpu(2000 + less(9000), 1, 8, &chosen);
    gpu_close();
}

TEST(a_vocabulary_of_today_gives_the_token_of_the_cpu)
{
    state = test_told_seed();
    gpu_open();
    const uint64_t wanted = test_scale(2, 200);
    for (uint64_t chosen = 0; chosen < wanted;)
        hold_against_cpu(151936, 1, 1, &chosen);
    gpu_close();
}

TEST(what_does_not_fit_is_said_in_words)
{
    cuda_sample_limits l = {.vocab_size = 100, .ld = 100, .max_rows = 4, .max_words = 10};
    char block[4 * sizeof(sample_row) + 40];
    rad_token output[40] = {0};
    sampling_params p = {.temperature = 1, .top_p = 1, .presence_penalty = 1};
    runner_sample rows[] = {{.params = &p, .output = output, .num_output = 6},
                            {.params = &p, .output = output, .num_output = 6},
                            {.params = &p, .output = output, .num_output = 11}};
    cuda_sample_pack pack;
    rad_error err;
    CHECK_OK(cuda_sample_fill(&l, rows, 3, 0, block, &pack, NULL));
    CHECK(pack.num_rows == 1);
    CHECK_OK(cuda_sample_fill(&l, rows + 1, 2, 0, block, &pack, NULL));
    CHECK(pack.num_rows == 1);
    CHECK(cuda_sample_fill(&l, rows + 2, 1, 0, block, &pack, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "11 words"));
}

TEST_MAIN()
