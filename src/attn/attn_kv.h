/* attn_kv.h - where one layer's K and V lie, for any pool: MHA or MLA, any store dtype,
 * packed or with room between tokens. Reading a number here gives what rad_kv_pool_get_kv
 * gives. */
#ifndef ATTN_ATTN_KV_H
#define ATTN_ATTN_KV_H

#include "attn/attn_common.h"
#include "mem/kv_codec.h"

typedef enum attn_kv_side { ATTN_K = 0, ATTN_V = 1 } attn_kv_side;

/* K or V of the layer. A slot's head h is at base + slot * stride + h * head_bytes. */
typedef struct attn_kv_plane {
    const char *base;
    size_t stride;     /* bytes from slot to slot */
    size_t head_bytes; /* of one head's numbers, without scales */
    uint32_t dim;      /* numbers per head */
    float scale;       /* fp8 */

    /* int8: head h has its scale at scales + slot * scale_stride + h * 4; MLA's K has two,
     * of the first `split` numbers and of the rest. */
    const char *scales;
    size_t scale_stride;
    uint32_t split; /* dim without a second scale */
} attn_kv_plane;

typedef struct attn_kv {
    attn_kv_plane plane[2]; /* ATTN_K, ATTN_V */
    const kv_codec *codec;
    uint32_t dtype;
    size_t token_bytes; /* of one token: K, V and scales, what lies twice (MLA) counted once */
} attn_kv;

/* The layer must be the pool's. Waits for it. O(1). */
attn_kv attn_kv_of(rad_token_to_kv_pool *pool, uint32_t layer);

/* dst[0..dim) = the numbers of a slot's head. O(dim). */
void attn_kv_read(const attn_kv *kv, attn_kv_side side, rad_slot slot, uint32_t head, float *dst);

/* Where the rows of a head lie, and whether one scale is all that each has: else the numbers
 * from `split` on have the next one. */
kv_rows attn_kv_rows(const attn_kv *kv, attn_kv_side side, const rad_slot *slots, uint32_t head);
bool attn_kv_has_one_scale(const attn_kv *kv, attn_kv_side side);

/* The rows of a block of slots, [first, first + count): slot slots[i]'s numbers at
 * dst + (i - first) * dim. The same bits as one by one, faster. */
void attn_kv_read_rows(const attn_kv *kv, attn_kv_side side, const rad_slot *slots, uint32_t first,
                       uint32_t count, uint32_t head, float *dst);

#endif
