/* gemm_amx.c - the AMX kernel made of instructions; base/amx.h says whether they may be used. */
#include "model/gemm_kernels.h"

#if defined(__AMX_BF16__) && defined(__AVX512F__)
#include "base/amx_tiles.h"
#include "model/gemm_amx_body.h"
#include "model/gemm_tile_avx512.h"

const gemm_isa gemm_amx = {.name = "amx",
                           .f32 = avx512_f32,
                           .bf16_block = amx_block,
                           .bf16w = gemm_avx512_widened,
                           .f16w = gemm_avx512_f16,
                           .quant = &gemm_quant_avx512vnni,
                           .quant_block = gemm_amx_int8_block,
                           .widens = false,
                           .round_row = amx_round_row};
const gemm_isa gemm_amx_vnni = {.name = "amx",
                                .f32 = avx512_f32,
                                .bf16_block = amx_block,
                                .bf16w = gemm_avx512_widened,
                                .f16w = gemm_avx512_f16,
                                .quant = &gemm_quant_avx512vnni,
                                .widens = false,
                                .round_row = amx_round_row};
#else
const gemm_isa gemm_amx = {.name = "amx"}, gemm_amx_vnni = {.name = "amx"}; /* not here */
#endif
