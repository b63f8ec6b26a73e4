/* attn_load_keys_body.h - a block's keys transposed, W of them at a time: load_keys_f32 and
 * load_keys_bf16 of attn_kernels_body.h.
 *
 * A file that includes this has defined W, HELPER, and load_words_of_keys(bf16, key, at, some, kt):
 * of W keys from byte `at` on `some` dimensions, a vector of words at most, to kt. */
enum { LINE_VECTORS = 64 / (W * (int)sizeof(float)) };

HELPER void load_keys(const bool bf16, const attn_rows_at *keys, uint32_t dim, float *kt,
                      attn_ahead *ahead)
{
    const uint32_t step = bf16 ? 2 * W : W;
    const size_t size = bf16 ? 2 : 4;
    for (uint32_t j = 0; j < ATTN_BLOCK; j += W) {
        const char *key[W];
#pragma GCC unroll 8
        for (uint32_t i = 0; i < W; i++)
            key[i] = attn_row_at(keys, j + i);
        uint32_t d = 0;
        for (; d + step <= dim; d += step) {
            if (d % (LINE_VECTORS * step) == 0) attn_ahead_fetch(ahead, W); /* a line of each */
            load_words_of_keys(bf16, key, d * size, step, kt + (size_t)d * ATTN_BLOCK + j);
        }
        if (d == dim) continue;
        char rest[W][W * sizeof(float)] = {{0}}; /* nothing behind a row is read */
        for (uint32_t i = 0; i < W; i++) {
            memcpy(rest[i], key[i] + d * size, (dim - d) * size);
            key[i] = rest[i];
        }
        load_words_of_keys(bf16, key, 0, dim - d, kt + (size_t)d * ATTN_BLOCK + j);
    }
}

static void load_keys_f32(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    load_keys(false, keys, dim, to, ahead);
}

static void load_keys_bf16(const attn_rows_at *keys, uint32_t dim, void *to, attn_ahead *ahead)
{
    load_keys(true, keys, dim, to, ahead);
}
