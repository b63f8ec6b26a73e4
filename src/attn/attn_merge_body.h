/* attn_merge_body.h - how blocks become a row's result, for any vector and either
 * arithmetic: a file that includes this has defined vf, TILE and exp_vf (weights of x <= 0,
 * exactly 1 at 0). */

static float exp_one(float x)
{
    float lanes[W];
    vf_store(lanes, exp_vf(vf_set1(x)));
    return lanes[0];
}

static void fold(float *max, float *sum, const float *block_max, const float *block_sum,
                 float *scale, float *block_scale)
{
    for (int i = 0; i < ATTN_FOLD_ROWS; i += W) {
        vf old = vf_load(max + i), block = vf_load(block_max + i);
        vf larger = vf_max(block, old); /* `old` when the block's is NaN: it shows in the scale */
        vf s = exp_vf(vf_sub(old, larger)), bs = exp_vf(vf_sub(block, larger));
        vf_store(max + i, larger);
        vf_store(scale + i, s);
        vf_store(block_scale + i, bs);
        vf_store(sum + i, vf_fma(vf_load(block_sum + i), bs, vf_mul(vf_load(sum + i), s)));
    }
}

static void merge(uint32_t dim, float *total, float scale, const float *part, float part_scale)
{
    uint32_t at = 0;
    vf s = vf_set1(scale), ps = vf_set1(part_scale);
    for (; at + W <= dim; at += W)
        vf_store(total + at, vf_fma(vf_load(part + at), ps, vf_mul(vf_load(total + at), s)));
    if (at < dim)
        vf_store_n(
            total + at,
            vf_fma(vf_load_n(part + at, dim - at), ps, vf_mul(vf_load_n(total + at, dim - at), s)),
            dim - at);
}

static void divide(uint32_t dim, float *total, float sum)
{
    uint32_t at = 0;
    for (; at + W <= dim; at += W)
        vf_store(total + at, vf_div(vf_load(total + at), vf_set1(sum)));
    if (at < dim)
        vf_store_n(total + at, vf_div(vf_load_n(total + at, dim - at), vf_set1(sum)), dim - at);
}
