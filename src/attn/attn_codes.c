/* attn_codes.c - whether narrow numbers are read as words of bf16, and what of it needs no
 * instruction of its own. */
#include "attn/attn_codes.h"

#include "base/cpu.h"

const attn_codes *attn_codes_of_cpu(void)
{
#if defined(__x86_64__)
    if (attn_codes_avx512vbmi.load_keys && cpu_has(CPU_AVX512BF16) &&
        __builtin_cpu_supports("avx512vbmi"))
        return &attn_codes_avx512vbmi;
#endif
    return NULL;
}

/* q times such a scale is neither infinite nor a denormal, unless q nearly is. */
static bool leaves_room(float scale)
{
    return scale >= 0x1p-64f && scale <= 0x1p64f;
}

bool attn_codes_take(const rad_token_to_kv_pool_params *pool, uint32_t layer)
{
    const uint32_t index = layer - pool->start_layer;
    if (pool->dtype == RAD_I8) return true;
    return kv_dtype_is_fp8(pool->dtype) &&
           (!pool->k_scales || leaves_room(pool->k_scales[index])) &&
           (!pool->v_scales || leaves_room(pool->v_scales[index]));
}
