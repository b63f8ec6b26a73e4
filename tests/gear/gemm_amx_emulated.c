/* gemm_amx_emulated.c - the AMX kernel where every tile operation is plain C. */
#include "gear/amx_gear.h"

#include "gear/amx_emulated.h"
#include "model/gemm_amx_body.h"

const gemm_isa gemm_amx_emulated = {.name = "amx-emulated",
                                    .f32 = gemm_scalar_f32,
                                    .bf16_block = amx_block,
                                    .bf16w = gemm_scalar_bf16,
                                    .f16w = gemm_scalar_f16,
                                    .quant = &gemm_quant_scalar,
                                    .quant_block = gemm_amx_emulated_int8_block,
                                    .widens = false,
                                    .round_row = amx_round_row};
