/* cuda_weights.c - see cuda_weights.h.
 *
 * Everything goes by rows as they lie on the device: a chunk is as many rows as a buffer holds,
 * threads make 16 of them at a time. What row a row comes from is the layout's to say
 * (cuda_matrix_source); padding is written as zeros. What is quantised goes by the 16 rows that lie
 * mixed there (quant_pack.h), and is rounded to q8_0 first where the file has another type. */
#include "cuda/cuda_weights.h"

#include "base/bf16.h"
#include "base/minifloat.h"
#include "base/mix64.h"
#include "cuda/kernels/kernel_args.h"
#include "cuda/quant_pack.h"
#include "model/gemm_quant.h"
#include "model/rope.h"
#include "model/tensor_rows.h"
#include "model/weights_pack.h"

#include <math.h>

enum { BUFFERS = 2, BUFFER_BYTES = 16 << 20, TILE_ROWS = 16, Q8_0_BLOCK = 2 + GEMM_XBLOCK };

typedef struct load {
    const rad_env *env;
    const cuda_gpu *gpu;
    cuda_stream stream;
    const model_config *config;
    cuda_layout *layout;
    const cuda_weights_source *source;
    cuda_ptr block;
    cuda_pinned buffers[BUFFERS];
    cuda_event copied[BUFFERS]; /* what of the buffer was copied last is there */
    uint32_t next;
    float *scratch; /* [num_threads][widest] */
    size_t scratch_bytes;
    uint32_t widest;
    float *divisors; /* of RoPE, or NULL */
    double freqs[QKV_WIDE_HEAD_DIM / 2];
    uint64_t done, total;
} load;

/* ---- buffers ---- */

static uint32_t threads_of(const load *l)
{
    return l->source->pool ? compute_pool_num_threads(l->source->pool) : 1;
}

/* A buffer whose last copy has ended. */
static rad_status take_buffer(load *l, char **out, rad_error *err)
{
    *out = l->buffers[l->next].at;
    return cuda_ok(l->gpu->cu, l->gpu->cu->event_synchronize(l->copied[l->next]),
                   "cuEventSynchronize", err);
}

static rad_status send_buffer(load *l, uint64_t to, size_t bytes, rad_error *err)
{
    const cuda_driver *cu = l->gpu->cu;
    const uint32_t i = l->next;
    l->next = (i + 1) % BUFFERS;
    rad_status status =
        cuda_ok(cu, cu->copy_to_device(l->block + to, l->buffers[i].at, bytes, l->stream),
                "cuMemcpyHtoDAsync", err);
    if (status == RAD_OK)
        status = cuda_ok(cu, cu->event_record(l->copied[i], l->stream), "cuEventRecord", err);
    return status;
}

/* Rows of one place, made by threads. */
typedef struct chunk {
    const load *l;
    const cuda_field *field;
    const gguf_tensor *tensors[CUDA_MOST_PARTS];
    uint32_t rope; /* where there is no field */
    const cuda_piece *piece;
    uint32_t piece_row; /* which row of the matrix its first one is */
    uint32_t matrix;    /* of those of the field */
    uint32_t first, count;
    size_t row_bytes;
    char *out;
} chunk;

/* Sends `rows` rows of row_bytes each to `to`, made by `tile`, tile_rows of them at a time. */
static rad_status send_rows(load *l, chunk *c, uint64_t to, uint32_t rows, uint32_t tile_rows,
                            compute_fn tile, rad_error *err)
{
    const uint32_t most = (uint32_t)(l->buffers[0].bytes / c->row_bytes);
    for (c->first = 0; c->first < rows; c->first += c->count) {
        c->count = RAD_MIN(most, rows - c->first);
        rad_status status = take_buffer(l, &c->out, err);
        if (status != RAD_OK) return status;
        compute_pool_run(l->source->pool, (c->count + tile_rows - 1) / tile_rows, tile, c);
        status = send_buffer(l, to + c->first * c->row_bytes, c->count * c->row_bytes, err);
        if (status != RAD_OK) return status;
    }
    return RAD_OK;
}

/* ---- what is in them ---- */

static void row_of_tensor(const gguf_tensor *t, uint32_t row, uint32_t cols, float *scratch,
                          uint16_t *out)
{
    if (t->type == GGML_BF16) {
        memcpy(out, tensor_row_bytes(t, row), cols * sizeof *out);
        return;
    }
    tensor_row(t, row, scratch);
    for (uint32_t i = 0; i < cols; i++)
        out[i] = bf16_from_f32(scratch[i]);
}

/* Numbers of either sign, 2^e to 2^(e + 1) large, so that a sum of `cols` products stays as large
 * as what it is of. */
static void random_row(uint64_t seed, uint32_t row, uint32_t cols, uint16_t *out)
{
    const int e = (int)floorf(log2f(0.65f / sqrtf((float)cols)));
    const uint64_t exponent = (uint64_t)(127 + e) << 7 & 0x7f80;
    const uint64_t set = exponent * 0x0001000100010001u;
    uint64_t at = mix64(seed ^ mix64(row));
    for (uint32_t i = 0; i < cols; i += 4) {
        at += 0x9e3779b97f4a7c15u;
        uint64_t four = (at ^ at >> 29) * 0xbf58476d1ce4e5b9u;
        four = ((four ^ four >> 32) & 0x807f807f807f807fu) | set;
        memcpy(out + i, &four, RAD_MIN(cols - i, 4u) * sizeof *out);
    }
}

/* The tensor that row *row of a stack lies in, of matrix `matrix` of a field that has several; *row
 * becomes its row there. */
static const gguf_tensor *tensor_of_row(const chunk *c, uint32_t matrix, uint32_t *row)
{
    uint32_t part = 0;
    while (*row >= c->field->parts[part].rows)
        *row -= c->field->parts[part++].rows;
    *row += matrix * c->field->parts[part].rows;
    return c->tensors[part];
}

static void matrix_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const chunk *c = arg;
    const cuda_matrix *m = c->field->matrix;
    const uint32_t end = RAD_MIN((tile + 1) * TILE_ROWS, c->count);
    float *scratch = c->l->scratch + (size_t)thread * c->l->widest;
    for (uint32_t i = tile * TILE_ROWS; i < end; i++) {
        uint16_t *out = (uint16_t *)(void *)(c->out + i * c->row_bytes);
        const uint32_t matrix = (c->first + i) / m->rows;
        uint32_t row = cuda_matrix_source(m, (c->first + i) % m->rows), cols = m->k;
        if (row == UINT32_MAX) {
            cols = 0;
        } else if (!c->l->source->file) {
            random_row(c->l->source->seed ^ m->at, matrix * m->n + row, cols, out);
        } else {
            const gguf_tensor *t = tensor_of_row(c, matrix, &row);
            row_of_tensor(t, row, cols, scratch, out);
        }
        memset(out + cols, 0, (m->ld - cols) * sizeof *out);
    }
}

/* Blocks of q8_0, whose numbers are as large. */
static void random_blocks(uint64_t seed, uint32_t row, uint32_t cols, uint8_t *out)
{
    const uint16_t d = f16_from_f32(0.01f / sqrtf((float)cols));
    uint64_t at = mix64(seed ^ mix64(row));
    for (uint32_t b = 0; b < (cols + GEMM_XBLOCK - 1) / GEMM_XBLOCK; b++, out += Q8_0_BLOCK) {
        memcpy(out, &d, sizeof d);
        for (uint32_t i = 0; i < GEMM_XBLOCK; i += 8) {
            const uint64_t eight = mix64(at += 0x9e3779b97f4a7c15u);
            memcpy(out + 2 + i, &eight, sizeof eight);
        }
        for (uint32_t i = b * GEMM_XBLOCK; i < (b + 1) * GEMM_XBLOCK; i++)
            if (i >= cols) out[2 + i % GEMM_XBLOCK] = 0;
    }
}

/* A row as blocks of q8_0, in the place of its floats: they are read before they are overwritten.
 */
static void round_row(float *row, uint32_t cols)
{
    uint8_t *out = (uint8_t *)row, block[Q8_0_BLOCK];
    for (uint32_t i = 0; i < cols; i += GEMM_XBLOCK, out += Q8_0_BLOCK) {
        gemm_quant_round_block(row + i, RAD_MIN(cols - i, (uint32_t)GEMM_XBLOCK), block);
        memcpy(out, block, sizeof block);
    }
}

/* Row `row` of a piece as blocks of its type: in the file, or in `scratch`. */
static const void *blocks_of_row(const chunk *c, uint32_t row, float *scratch)
{
    const uint32_t cols = c->field->matrix->k;
    if (!c->l->source->file) {
        random_blocks(c->l->source->seed ^ (c->piece->at + c->matrix * c->field->matrix->bytes),
                      row, cols, (uint8_t *)scratch);
        return scratch;
    }
    row += c->piece_row;
    const gguf_tensor *t = tensor_of_row(c, c->matrix, &row);
    if (weights_native_type(t->type) == c->piece->type) return tensor_row_bytes(t, row);
    tensor_row(t, row, scratch);
    round_row(scratch, cols);
    return scratch;
}

/* Sixteen rows. */
static void piece_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const chunk *c = arg;
    const uint32_t first = (c->first + tile) * TILE_ROWS;
    float *scratch = c->l->scratch + (size_t)thread * c->l->widest;
    char *out = c->out + tile * c->row_bytes;
    memset(out, 0, c->row_bytes);
    for (uint32_t i = 0; i < TILE_ROWS && first + i < c->piece->rows; i++)
        cuda_quant_pack(c->piece->type, out, c->field->matrix->k, i,
                        blocks_of_row(c, first + i, scratch));
}

/* A row of vectors: norms are 1 where there is no file, biases 0. */
static void vector_row(const chunk *c, uint32_t row, float *out)
{
    const cuda_field *f = c->field;
    const bool norm = strstr(f->parts[0].name.text, "norm") != NULL;
    for (uint32_t part = 0; part < f->num_parts; out += f->parts[part++].rows)
        if (c->l->source->file) {
            tensor_row(c->tensors[part], row, out);
            for (uint32_t i = 0; i < f->parts[part].rows; i++)
                out[i] *= f->scale;
        } else {
            for (uint32_t i = 0; i < f->parts[part].rows; i++)
                out[i] = norm ? f->scale : 0;
        }
}

static void vector_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const chunk *c = arg;
    const cuda_field *f = c->field;
    const uint32_t end = RAD_MIN((tile + 1) * TILE_ROWS, c->count);
    uint16_t *random = (uint16_t *)(c->l->scratch + (size_t)thread * c->l->widest);
    for (uint32_t i = tile * TILE_ROWS; i < end; i++) {
        float *out = (float *)(void *)(c->out + i * c->row_bytes);
        if (c->l->source->file || !f->router) {
            vector_row(c, c->first + i, out);
            continue;
        }
        random_row(c->l->source->seed ^ *f->vector, c->first + i, f->rows, random);
        for (uint32_t k = 0; k < f->rows; k++)
            out[k] = bf16_to_f32(random[k]);
    }
}

static void rope_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const chunk *c = arg;
    const rope_config *rope = &c->l->config->ropes[c->rope];
    const uint32_t end = RAD_MIN((tile + 1) * TILE_ROWS, c->count), pairs = rope->dim / 2;
    float *table = c->l->scratch + (size_t)thread * c->l->widest;
    for (uint32_t i = tile * TILE_ROWS; i < end; i++) {
        float *out = (float *)(void *)(c->out + i * c->row_bytes);
        rope_fill(ROPE_NEOX, table, c->first + i, c->l->freqs, rope->dim, rope->scaling.magnitude);
        for (uint32_t p = 0; p < pairs; p++) {
            out[2 * p] = table[p];
            out[2 * p + 1] = table[rope->dim + p];
        }
    }
}

static void factor_tile(void *arg, uint32_t tile, uint32_t thread)
{
    const chunk *c = arg;
    float *out = (float *)(void *)c->out;
    (void)thread;
    for (uint32_t i = tile * TILE_ROWS; i < RAD_MIN((tile + 1) * TILE_ROWS, c->count); i++)
        out[i] = rope_q_factor(c->l->config, c->first + i);
}

/* ---- fields ---- */

static rad_status find_tensors(const load *l, chunk *c, rad_error *err)
{
    const gguf_file *file = l->source->file;
    if (!file) return RAD_OK;
    rad_status status = cuda_field_tensors(file, c->field, c->tensors, err);
    for (uint32_t i = 0; i < c->field->num_parts && status == RAD_OK; i++)
        gguf_will_need(file, c->tensors[i], 0, c->tensors[i]->bytes);
    return status;
}

static void report(load *l, const chunk *c)
{
    for (uint32_t i = 0; i < c->field->num_parts && l->source->file; i++) {
        gguf_forget(l->source->file, c->tensors[i]);
        l->done += c->tensors[i]->bytes;
    }
    if (l->source->progress) l->source->progress(l->source->progress_user, l->done, l->total);
}

static rad_status load_pieces(load *l, chunk *c, rad_error *err)
{
    const cuda_matrix *m = c->field->matrix;
    const uint64_t to = c->matrix * m->bytes;
    rad_status status = RAD_OK;
    c->piece_row = 0;
    for (uint32_t i = 0; i < m->num_pieces && status == RAD_OK; i++) {
        c->piece = &m->pieces[i];
        c->row_bytes = cuda_quant_bytes(c->piece->type, TILE_ROWS, m->k);
        status = send_rows(l, c, c->piece->at + to, (c->piece->rows + TILE_ROWS - 1) / TILE_ROWS, 1,
                           piece_tile, err);
        c->piece_row += c->piece->rows;
    }
    return status;
}

static rad_status load_field(void *user, const cuda_field *f, rad_error *err)
{
    load *l = user;
    chunk c = {.l = l, .field = f};
    rad_status status = find_tensors(l, &c, err);
    if (status != RAD_OK) return status;
    if (f->matrix && f->matrix->num_pieces) {
        for (; c.matrix < f->count && status == RAD_OK; c.matrix++)
            status = load_pieces(l, &c, err);
    } else if (f->matrix) {
        c.row_bytes = f->matrix->ld * sizeof(uint16_t);
        status = send_rows(l, &c, f->matrix->at, f->matrix->count * f->matrix->rows, TILE_ROWS,
                           matrix_tile, err);
    } else {
        c.row_bytes = f->rows * sizeof(float);
        status = send_rows(l, &c, *f->vector, f->count, TILE_ROWS, vector_tile, err);
    }
    if (status == RAD_OK) report(l, &c);
    return status;
}

static rad_status load_divisors(load *l, rad_error *err)
{
    const rope_config *rope = &l->config->ropes[0];
    const gguf_tensor *t;
    if (!rope->scaling.divisors || !l->source->file) return RAD_OK;
    rad_status status =
        tensor_find(l->source->file, rope->scaling.divisors, 0, rope->dim / 2, &t, err);
    if (status != RAD_OK) return status;
    l->divisors = rad_alloc(l->env, rope->dim / 2 * sizeof *l->divisors);
    if (!l->divisors) return rad_fail(err, RAD_E_NOMEM, "cuda: no memory for RoPE's divisors");
    tensor_row(t, 0, l->divisors);
    return rope_divisors_check(&rope->scaling, l->divisors, rope->dim, err);
}

static rad_status load_ropes(load *l, rad_error *err)
{
    rad_status status = load_divisors(l, err);
    for (uint32_t r = 0; r < l->config->num_ropes && status == RAD_OK; r++) {
        const rope_config *rope = &l->config->ropes[r];
        chunk c = {.l = l, .rope = r, .row_bytes = rope->dim * sizeof(float)};
        rope_freqs(l->freqs, rope->base, rope->dim, &rope->scaling,
                   rope->scaling.divisors ? l->divisors : NULL);
        status =
            send_rows(l, &c, l->layout->rope[r], l->layout->context, TILE_ROWS, rope_tile, err);
    }
    if (status != RAD_OK || !l->layout->q_factors) return status;
    chunk c = {.l = l, .row_bytes = sizeof(float)};
    return send_rows(l, &c, l->layout->q_factors, l->layout->context, TILE_ROWS, factor_tile, err);
}

static rad_status load_all(load *l, rad_error *err)
{
    const cuda_driver *cu = l->gpu->cu;
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < BUFFERS && status == RAD_OK; i++) {
        status = cuda_pinned_alloc(l->gpu, RAD_MIN(BUFFER_BYTES, l->layout->bytes),
                                   "a buffer to load weights", &l->buffers[i], err);
        if (status == RAD_OK)
            status = cuda_ok(cu, cu->event_create(&l->copied[i], CUDA_EVENT_DISABLE_TIMING),
                             "cuEventCreate", err);
    }
    if (status == RAD_OK) status = cuda_layout_visit(l->config, l->layout, load_field, l, err);
    if (status == RAD_OK) status = load_ropes(l, err);
    return status;
}

rad_status cuda_weights_load(const rad_env *env, const cuda_gpu *gpu, cuda_stream stream,
                             const model_config *config, cuda_layout *layout,
                             const cuda_weights_source *source, cuda_ptr block, rad_error *err)
{
    load l = {.env = env,
              .gpu = gpu,
              .stream = stream,
              .config = config,
              .layout = layout,
              .source = source,
              .block = block,
              .widest = RAD_MAX(tensors_widest(config), 2 * config->rope_dim)};
    l.widest = RAD_MAX(l.widest, (uint32_t)GEMM_XBLOCK); /* a row as a block is not longer */
    rad_status status;
    for (uint64_t i = 0; source->file && i < gguf_num_tensors(source->file); i++)
        l.total += gguf_tensor_at(source->file, i)->bytes;
    l.scratch_bytes = rad_mul(rad_mul(threads_of(&l), l.widest), sizeof *l.scratch);
    l.scratch = rad_alloc(env, l.scratch_bytes);
    if (l.scratch)
        status = load_all(&l, err);
    else
        status = rad_fail(err, RAD_E_NOMEM, "cuda: no memory to convert weights (%zu bytes)",
                          l.scratch_bytes);

    /* Buffers are read until the copies have ended, also those before one that failed. */
    const rad_status done = cuda_ok(gpu->cu, gpu->cu->stream_synchronize(stream),
                                    "cuStreamSynchronize", status == RAD_OK ? err : NULL);
    if (status == RAD_OK) status = done;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (l.copied[i]) gpu->cu->event_destroy(l.copied[i]);
        cuda_pinned_free(gpu, &l.buffers[i]);
    }
    rad_free(env, l.divisors, config->ropes[0].dim / 2 * sizeof *l.divisors);
    rad_free(env, l.scratch, l.scratch_bytes);
    return status;
}
