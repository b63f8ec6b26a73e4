/* gemm_quant_amx_emulated_avx512.c - tiles in plain C under the AVX-512 of the real kernel:
 * tests on CPUs that have no more than that reach all of it but the tile instructions. */
#include "gear/amx_gear.h"

#if defined(__AVX512F__)
#include "gear/amx_emulated.h"
#include "model/gemm_amx_int8_body.h"

void gemm_amx_emulated_int8_block_avx512(gemm_type type, const gemm_tile *block, uint32_t columns)
{
    amx_int8_block(type, block, columns);
}
#else
void gemm_amx_emulated_int8_block_avx512(gemm_type type, const gemm_tile *block, uint32_t columns)
{
    gemm_amx_emulated_int8_block(type, block, columns); /* not this architecture */
}
#endif
