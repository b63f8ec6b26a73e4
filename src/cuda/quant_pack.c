/* quant_pack.c - blocks of a GGUF file in the order in which a GPU's lanes read them. */
#include "cuda/quant_pack.h"

#include "base/base.h"
#include "gguf/quant.h"

enum { Q8_0_TILE = 4352, Q4_K_TILE = 2368, Q8_0_WORDS = 256, Q4_K_BOTH = 256, Q4_K_WORDS = 320 };

bool cuda_quant_packs(gemm_type type)
{
    return type == GEMM_Q8_0 || type == GEMM_Q4_K;
}

static size_t tile_bytes(gemm_type type)
{
    RAD_ASSERT(cuda_quant_packs(type));
    return type == GEMM_Q8_0 ? Q8_0_TILE : Q4_K_TILE;
}

size_t cuda_quant_bytes(gemm_type type, uint32_t n, uint32_t k)
{
    return (size_t)((n + 15) / 16) * (cuda_quant_k(k) / 256) * tile_bytes(type);
}

/* Eight words of a row, k = 0, 4, .. 28, to the lanes of 512 bytes. */
static void put_words(uint8_t *lanes, uint32_t row, const uint8_t *words)
{
    for (uint32_t j = 0; j < 8; j++)
        memcpy(lanes + (row % 8 * 4 + j % 4) * 16 + (row / 8 + j / 4 * 2) * 4, words + 4 * j, 4);
}

void cuda_quant_pack(gemm_type type, void *to, uint32_t k, uint32_t row, const void *blocks)
{
    const uint32_t tiles = cuda_quant_k(k) / 256;
    uint8_t *tile = (uint8_t *)to + (size_t)(row / 16) * tiles * tile_bytes(type);
    const uint8_t *from = blocks;
    row %= 16;
    if (type == GEMM_Q8_0) {
        for (uint32_t b = 0; b < k / 32; b++, from += 34) {
            uint8_t *at = tile + b / 8 * Q8_0_TILE;
            memcpy(at + (row * 8 + b % 8) * 2, from, 2);
            put_words(at + Q8_0_WORDS + b % 8 * 512, row, from + 2);
        }
        return;
    }
    for (uint32_t b = 0; b < k / 256; b++, from += 144, tile += Q4_K_TILE) {
        uint8_t scales[8], mins[8];
        ggml_k_scales(from + 4, scales, mins);
        for (uint32_t g = 0; g < 8; g++) {
            tile[(row * 8 + g) * 2] = scales[g];
            tile[(row * 8 + g) * 2 + 1] = mins[g];
        }
        memcpy(tile + Q4_K_BOTH + row * 4, from, 4);
        for (uint32_t g = 0; g < 4; g++)
            put_words(tile + Q4_K_WORDS + g * 512, row, from + 16 + g * 32);
    }
}
