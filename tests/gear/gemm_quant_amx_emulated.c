/* gemm_quant_amx_emulated.c - quantised products by AMX where every tile operation is plain
 * C, for tests on any machine. */
#include "gear/amx_emulated.h"
#include "gear/amx_gear.h"
#include "model/gemm_amx_int8_body.h"

void gemm_amx_emulated_int8_block(gemm_type type, const gemm_tile *block, uint32_t columns)
{
    amx_int8_block(type, block, columns);
}
