/* amx_gear.h - the kernels for AMX on any CPU, and what holds the instructions against them.
 *
 * The kernels' sources (gemm_amx_body.h, gemm_amx_int8_body.h, attn_amx_body.h) are compiled here
 * over amx_emulated.h, whose tile operations are plain C with the instructions' bits. A product
 * takes some thousand times as long. */
#ifndef GEAR_AMX_GEAR_H
#define GEAR_AMX_GEAR_H

#include "attn/attn_amx.h"
#include "attn/attn_backend.h"
#include "model/gemm_kernels.h"

extern const gemm_isa gemm_amx_emulated;
gemm_quant_block gemm_amx_emulated_int8_block;
gemm_quant_block gemm_amx_emulated_int8_block_avx512; /* under the AVX-512 of the real kernel */

/* attend is NULL where it is not compiled; it needs AVX512_BF16. */
extern const attn_kernels attn_tiles_emulated;
attn_amx_multiply attn_amx_multiply_emulated;

/* gemm_isa_find and attn_cpu, which know "amx-emulated" as well. */
const gemm_isa *gear_gemm_isa(const char *name);
const attn_backend *gear_attn_cpu(const char *isa);

/* Whether small products by `isa`, or by `block`, have the bits that they must have: those of
 * gemm_amx_emulated, or of gemm_quant_scalar. */
bool gemm_amx_agrees(const gemm_isa *isa);
bool gemm_amx_int8_agrees(gemm_quant_block *block);

/* Whether products by `multiply`, and a small attention by `kernels` in both layouts, have the
 * bits of attn_amx_multiply_emulated and attn_tiles_emulated. */
bool attn_amx_agrees(attn_amx_multiply *multiply, const attn_kernels *kernels);

#endif
