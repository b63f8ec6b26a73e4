/* gemm_quant_amx.c - quantised products by AMX, made of instructions; base/amx.h says whether
 * they may be used. */
#include "model/gemm_kernels.h"

#if defined(__AMX_TILE__) && defined(__AVX512F__)
#include "base/amx_tiles.h"
#include "model/gemm_amx_int8_body.h"

void gemm_amx_int8_block(gemm_type type, const gemm_tile *block, uint32_t columns)
{
    amx_int8_block(type, block, columns);
}
#else
void gemm_amx_int8_block(gemm_type type, const gemm_tile *block, uint32_t columns)
{
    (void)type, (void)block, (void)columns; /* not this architecture: gemm_amx has no use */
}
#endif
