/* amx.h - AMX: eight registers of 16 rows x 64 bytes, and instructions that multiply
 * two of them: AMX_DP as pairs of bf16, AMX_DP_INT8 as fours of bytes.
 *
 * A kernel is written once over AMX_CONFIGURE, AMX_LOAD, AMX_DP and so on. Before its
 * body a file includes amx_tiles.h, where these are the instructions. Tests put C in its place
 * that computes the same bits on any machine: so they run the kernel's source everywhere, and
 * on a CPU with AMX they hold the instructions against the C.
 *
 * Tile registers are a thread's own. What runs between AMX_CONFIGURE and AMX_RELEASE
 * must not call a kernel that configures them anew. */
#ifndef BASE_AMX_H
#define BASE_AMX_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    AMX_ROWS = 16,      /* of a tile, at most */
    AMX_ROW_BYTES = 64, /* at most: 16 floats, 16 pairs of bf16 */
    AMX_TILES = 8
};

/* What LDTILECFG reads: tile i has rows[i] rows of row_bytes[i] bytes. Instructions
 * touch nothing beyond these, neither in the tile nor in memory. */
typedef struct amx_config {
    uint8_t palette; /* 1 */
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;
static_assert(sizeof(amx_config) == 64, "as the instruction reads it");

/* Whether this process may use tiles with bf16 products: the CPU has them, with the
 * sizes above, and the kernel saves them. Asks the kernel for the permission the first
 * time (threads that exist or come later have it too); then it costs nothing. Any
 * thread. `why`, unless NULL, gets NULL or, where the CPU has AMX and yet it is no, a
 * reason in words that lives for ever. */
bool amx_permitted(const char **why);

/* The same for tiles with products of bytes, which a CPU may have or lack on its own. */
bool amx_int8_permitted(const char **why);

#endif
