/* quant_pack.c - blocks of a GGUF file in the order in which a GPU's lanes read them. */
#include "cuda/quant_pack.h"

#include "base/base.h"
#include "gguf/quant.h"

enum { Q8_0_TILE = 4352, Q8_0_WORDS = 256 };
enum { MXFP4_TILE = 2176, MXFP4_WORDS = 128 };
enum { Q4_K_TILE = 2368, Q4_K_BOTH = 256, Q4_K_WORDS = 320 };
enum { Q6_K_TILE = 3360, Q6_K_D = 256, Q6_K_WORDS = 288, Q6_K_UPPER = 288 + 2048 };

static const uint16_t tiles[GEMM_NUM_TYPES] = {[GEMM_Q8_0] = Q8_0_TILE,
                                               [GEMM_MXFP4] = MXFP4_TILE,
                                               [GEMM_Q4_K] = Q4_K_TILE,
                                               [GEMM_Q6_K] = Q6_K_TILE};

bool cuda_quant_packs(gemm_type type)
{
    return tiles[type] > 0;
}

static size_t tile_bytes(gemm_type type)
{
    RAD_ASSERT(cuda_quant_packs(type));
    return tiles[type];
}

size_t cuda_quant_bytes(gemm_type type, uint32_t n, uint32_t k)
{
    return (size_t)((n + 15) / 16) * (cuda_quant_k(k) / 256) * tile_bytes(type);
}

uint32_t cuda_quant_last_bytes(gemm_type type, uint32_t k)
{
    const uint32_t blocks = (k % 256 + 31) / 32;
    if (!blocks) return (uint32_t)tile_bytes(type);
    if (type == GEMM_Q8_0) return Q8_0_WORDS + blocks * 512;
    return type == GEMM_MXFP4 ? MXFP4_WORDS + (blocks + 1) / 2 * 512 : (uint32_t)tile_bytes(type);
}

/* Eight words of a row, k = 0, 4, .. 28, to the lanes of 512 bytes. */
static void put_words(uint8_t *lanes, uint32_t row, const uint8_t *words)
{
    for (uint32_t j = 0; j < 8; j++)
        memcpy(lanes + (row % 8 * 4 + j % 4) * 16 + (row / 8 + j / 4 * 2) * 4, words + 4 * j, 4);
}

static void pack_q8_0(uint8_t *tile, uint32_t row, uint32_t blocks, const uint8_t *from)
{
    for (uint32_t b = 0; b < blocks; b++, from += 34) {
        uint8_t *at = tile + b / 8 * Q8_0_TILE;
        memcpy(at + (row * 8 + b % 8) * 2, from, 2);
        put_words(at + Q8_0_WORDS + b % 8 * 512, row, from + 2);
    }
}

/* In the file k and k + 16 share a byte. */
static void pack_mxfp4(uint8_t *tile, uint32_t row, uint32_t blocks, const uint8_t *from)
{
    for (uint32_t b = 0; b < blocks; b++, from += 17) {
        uint8_t *at = tile + b / 8 * MXFP4_TILE;
        at[row * 8 + b % 8] = from[0];
        for (uint32_t k = 0; k < 32; k += 2) {
            const uint8_t *two = from + 1 + k % 16;
            const int down = k < 16 ? 0 : 4;
            uint8_t *lane = at + MXFP4_WORDS + b % 8 / 2 * 512 + (row % 8 * 4 + k / 4 % 4) * 16;
            lane[(row / 8 + k / 16 * 2) * 4 + b % 2 * 2 + k % 4 / 2] =
                (uint8_t)((two[0] >> down & 15) | (two[1] >> down & 15) << 4);
        }
    }
}

static void pack_q4_k(uint8_t *tile, uint32_t row, const uint8_t *from)
{
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

/* In the file two groups of 32 share 32 bytes of low halves, those of k and k + 64 of 128; four
 * share 32 bytes of two upper bits each. Here two that follow each other share words. */
static void pack_q6_k(uint8_t *tile, uint32_t row, const uint8_t *from)
{
    memcpy(tile + row * 16, from + 192, 16);
    memcpy(tile + Q6_K_D + row * 2, from + 208, 2);
    for (uint32_t two = 0; two < 4; two++) {
        uint8_t low[32];
        for (uint32_t i = 0; i < 32; i++) {
            const uint8_t *nibbles = from + two / 2 * 64 + i;
            const int down = two % 2 * 4;
            low[i] = (uint8_t)((nibbles[0] >> down & 15) | (nibbles[32] >> down & 15) << 4);
            /* Of byte i % 4 of a word of this row: bits 0, 2 the even group's i < 16 and others. */
            const uint8_t upper = from[128 + two / 2 * 32 + i];
            uint8_t *to = tile + Q6_K_UPPER + two * 256 + (row % 8 * 4 + i / 4 % 4) * 8 +
                          row / 8 * 4 + i % 4;
            *to |= (uint8_t)((upper >> down & 3) << i / 16 * 2);
            *to |= (uint8_t)((upper >> (down + 2) & 3) << (4 + i / 16 * 2));
        }
        put_words(tile + Q6_K_WORDS + two * 512, row, low);
    }
}

void cuda_quant_pack(gemm_type type, void *to, uint32_t k, uint32_t row, const void *blocks)
{
    uint8_t *tile = (uint8_t *)to + (size_t)(row / 16) * (cuda_quant_k(k) / 256) * tile_bytes(type);
    const uint8_t *from = blocks;
    row %= 16;
    if (type == GEMM_Q8_0) {
        pack_q8_0(tile, row, (k + 31) / 32, from);
        return;
    }
    if (type == GEMM_MXFP4) {
        pack_mxfp4(tile, row, (k + 31) / 32, from);
        return;
    }
    for (uint32_t b = 0; b < k / 256; b++, tile += tile_bytes(type))
        if (type == GEMM_Q4_K)
            pack_q4_k(tile, row, from + (size_t)b * 144);
        else
            pack_q6_k(tile, row, from + (size_t)b * 210);
}
