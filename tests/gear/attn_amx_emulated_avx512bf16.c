/* attn_amx_emulated_avx512bf16.c - attention where every tile operation is plain C; for
 * CPUs with AVX512_BF16. */
#include "gear/amx_gear.h"

#if defined(__AVX512BF16__)
#include "gear/amx_emulated.h"

#include "attn/attn_amx_body.h"

void attn_amx_multiply_emulated(const attn_amx_product *p)
{
    multiply_alone(p);
}

static const attn_wide_kernels wide_kernels = ATTN_AMX_WIDE;
const attn_kernels attn_tiles_emulated = ATTN_AMX_KERNELS(&wide_kernels);
#else
const attn_kernels attn_tiles_emulated = {.attend = NULL}; /* not this architecture */
void attn_amx_multiply_emulated(const attn_amx_product *p)
{
    (void)p;
}
#endif
