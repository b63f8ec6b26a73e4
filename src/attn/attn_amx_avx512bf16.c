/* attn_amx_avx512bf16.c - attention by AMX instructions; base/amx.h says whether they may be
 * used. (They are assembly, base/amx_tiles.h; the rest is AVX-512 with bf16.) */
#include "attn/attn_amx.h"

#if defined(__AVX512BF16__)
#include "base/amx_tiles.h"

#include "attn/attn_amx_body.h"

void attn_amx_multiply_tiles(const attn_amx_product *p)
{
    multiply_alone(p);
}

static const attn_wide_kernels wide_kernels = ATTN_AMX_WIDE;
const attn_kernels attn_tiles_amx = ATTN_AMX_KERNELS(&wide_kernels);
#else
const attn_kernels attn_tiles_amx = {.attend = NULL}; /* not this architecture */
void attn_amx_multiply_tiles(const attn_amx_product *p)
{
    (void)p;
}
#endif
