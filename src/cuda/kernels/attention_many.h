/* attention_many.h - units of more than 16 query rows: prompts, and the members of a group.
 *
 * Each warp has a tile of its own, `share` 1, and weights stay in its registers. Heads of 256 are
 * too long for that: two warps share a tile, each has the scores of half the keys and the sums of
 * half the dims, and they exchange maxima and weights through shared memory.
 *
 * Speed: an H100 made 175 to 219 TFLOP/s of prompts of 2,048 to 8,192, before Q came by copies.
 *
 * K and V come in stages of 64 positions, `stages` - 1 of them ahead.
 *
 * Of fp8 a stage is what a warp widens its keys of, into one of two blocks of bf16 by turns (one
 * block, and a barrier more, where memory is small), before all of them multiply; `stages` of them
 * are ahead. */
#ifndef CUDA_KERNELS_ATTENTION_MANY_H
#define CUDA_KERNELS_ATTENTION_MANY_H

#include "cuda/kernels/attention_f8.h"
#include "cuda/kernels/attention_tile.h"

enum { WARP_KEYS = KEYS / WARPS, SHARED_PITCH = KEYS + 8 };

typedef struct many_loader {
    piece p;
    u32 pieces, round, block;
    int more;
    i32 slot; /* of key LANE % 8 of the warp's in the next block, or -1 */
} many_loader;

INLINE void many_slot(const attention_args *a, many_loader *l)
{
    const attention_unit *u = a->units + l->p.unit;
    u32 thread = again(THREAD_X), key = thread / 32 * WARP_KEYS + thread % WARP_KEYS;
    u32 position = l->block * KEYS + key;
    l->slot = -1;
    if (position >= u->begin && position < u->end)
        l->slot = a->slots[(u64)u->slot_row * a->slots_ld + position];
}

INLINE void many_begin(const attention_args *a, many_loader *l, u32 pieces, u32 round)
{
    l->pieces = pieces;
    l->round = round;
    l->more = piece_at(a, pieces, round, &l->p);
    l->block = a->units[l->p.unit].begin / KEYS;
    many_slot(a, l);
}

/* The stream's next block comes to `stage`; K, then V. One group of copies, empty at the end.
 * dim: pool_dim. */
INLINE void many_next(const attention_args *a, many_loader *l, u8 *stage, u32 dim)
{
    if (l->more) {
        u32 row = again(THREAD_X) / 32 * WARP_KEYS;
        copy_rows(stage, 0, row, WARP_KEYS, a->k, a->k_stride, l->slot, l->p.head, dim);
        copy_rows(stage, KEYS * dim * 2, row, WARP_KEYS, a->v, a->v_stride, l->slot, l->p.head,
                  dim);
        l->block++;
        if (l->block * KEYS >= a->units[l->p.unit].end) {
            l->more = piece_at(a, l->pieces, ++l->round, &l->p) && !is_few(a, &l->p);
            if (l->more) l->block = a->units[l->p.unit].begin / KEYS;
        }
        if (l->more) many_slot(a, l);
    }
    copy_commit();
}

typedef struct many_room {
    float *maxima; /* [WARPS][16], where warps share a tile */
    u16 *weights;  /* [WARPS / 2][16][SHARED_PITCH], likewise */
    u8 *q;         /* [rows][dim] */
    u8 *stages;    /* [stages][K, V][64][dim] */
    u32 now;       /* the stage that is computed with */
    u8 *blocks;    /* of fp8: [1 or 2][K, V][64][dim] bf16, */
    u32 block;     /* and the one that was computed with */
} many_room;

/* 64 keys for a tile. */
INLINE void many_block(const attention_args *a, tile_sums *t, u32 q[MOST_STEPS][4],
                       const row_pair *r, const many_room *m, const u8 *stage, u32 begin,
                       float factor, u32 dim, u32 share, int q_held)
{
    float s[MOST_KEY_TILES][4], base[2], alpha[2];
    u32 p[4][4], key_tiles = 8 / share, keys = KEYS / share, dim_tiles = dim / 8 / share;
    u32 warp = again(THREAD_X) / 32, tile = warp / share, sub = warp % share, lane = lane_now();
    float *maxima = m->maxima + tile * share * 16 + lane / 4;
    u16 *weights = m->weights + tile * 16 * SHARED_PITCH;
    scores(s, q, m->q, tile * 16, stage, sub * keys, key_tiles, dim, q_held);
    mask_scores(a, s, r, begin + sub * keys, key_tiles);

    UNROLL for (u32 i = 0; i < 2; i++) {
        base[i] = most_of_row(s, i, key_tiles);
        if (share > 1 && (lane & 3) == 0) maxima[sub * 16 + i * 8] = base[i];
    }
    if (share > 1) SYNC_BLOCK();
    UNROLL for (u32 i = 0; i < 2; i++) {
        if (share > 1)
            EACH(w, WARPS, share) base[i] = larger(base[i], maxima[w * 16 + i * 8]);
        float now = larger(t->max[i], base[i]), b = max_base(now);
        alpha[i] = exp2_negative((t->max[i] - b) * factor);
        base[i] = -(b * factor);
        t->max[i] = now;
    }
    EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 2; i++) {
        u32 both = weights_of(s[n], i, factor, base[i]);
        if (share == 1)
            p[n / 2][n % 2 * 2 + i] = both;
        else
            *(u32 *)(weights + (lane / 4 + i * 8) * SHARED_PITCH + sub * keys + n * 8 +
                     (lane & 3) * 2) = both;
    }
    if (share > 1) {
        SYNC_BLOCK();
        UNROLL for (u32 step = 0; step < 4; step++)
            load_matrix4(p[step],
                         weights + (lane & 15) * SHARED_PITCH + step * 16 + (lane >> 4) * 8);
    }
    scale_sums(t, alpha, dim_tiles);
    weigh(t, p, stage + KEYS * dim * 2, sub * dim_tiles, dim_tiles, dim);
}

/* Bytes of a stage. */
INLINE u32 many_stage(u32 dim, const int f8)
{
    return KEYS * 2 * pool_dim(dim, f8) * 2;
}

INLINE u32 many_stages(const attention_args *a)
{
    return a->stages & 255;
}

/* The next block is here; the stage that comes last is asked for. */
INLINE const u8 *many_step(const attention_args *a, many_loader *l, many_room *m, int first, u32 dim)
{
    u32 stages = many_stages(a), free = m->now == 0 ? stages - 1 : m->now - 1;
    const u8 *block = m->stages + m->now * many_stage(dim, 0);
    copies_wait(first ? 0 : stages - 2); /* Q came last */
    SYNC_BLOCK(); /* it is here of all threads, and the stage before is free */
    many_next(a, l, m->stages + free * many_stage(dim, 0), dim);
    m->now = m->now + 1 == stages ? 0 : m->now + 1;
    return block;
}

/* The same of fp8. Between the widening of a block and the one before lies a barrier that all come
 * to when they are done with the block before that: with two of them, one is free. */
INLINE const u8 *many_step_f8(const attention_args *a, many_loader *l, many_room *m, int first,
                              u32 dim)
{
    u32 stages = many_stages(a), row = again(THREAD_X) / 32 * WARP_KEYS;
    u8 *stage = m->stages + m->now * many_stage(dim, 1);
    u8 *block = m->blocks;
    copies_wait(first ? 0 : stages - 1);
    if (a->stages >> 24 == 1)
        SYNC_BLOCK(); /* all are done with the block */
    else
        sync_warp(); /* its lanes' copies are here */
    m->block ^= 1;
    if (a->stages >> 24 == 2) block += m->block * many_stage(dim, 0);
    if (a->kv == ATTN_KV_E4M3)
        widen_rows(block, stage, row, dim, ATTN_KV_E4M3);
    else
        widen_rows(block, stage, row, dim, ATTN_KV_E5M2);
    SYNC_BLOCK(); /* all rows are bf16, Q is here, and the stage is free */
    many_next(a, l, stage, pool_dim(dim, 1));
    m->now = m->now + 1 == stages ? 0 : m->now + 1;
    return block;
}

INLINE void many_piece(const attention_args *a, many_loader *l, const piece *p, many_room *m,
                       u32 dim, u32 share, int q_held, const int f8)
{
    u32 warp = again(THREAD_X) / 32, tile = warp / share, dim_tiles = dim / 8 / share;
    float factor = score_factor(a->scale, a->cap);
    u32 q[MOST_STEPS][4];
    tile_sums span, total;
    row_pair r;

    /* The last piece's Q was read before a barrier, unless it is read again in each block. */
    if (share == 1 && !q_held) SYNC_BLOCK();
    load_q(a, p, m->q, dim, 1);
    copy_commit();
    find_rows(a, p, tile, &r);
    if (q_held) {
        COPY_WAIT(0);
        SYNC_BLOCK();
        hold_q(q, m->q, tile * 16, dim);
    }
    sums_clear(&span, dim_tiles);
    sums_clear(&total, dim_tiles);

    u32 last = a->units[p->unit].end;
    u32 first = a->units[p->unit].begin / KEYS * KEYS;
    for (u32 begin = first; begin < last; begin += KEYS) {
        u32 end = begin + KEYS;
        const u8 *block = f8 ? many_step_f8(a, l, m, begin == first, dim)
                             : many_step(a, l, m, begin == first, dim);
        /* Where warps share a tile all must come to their barriers. */
        if (share > 1 || any_sees(&r, begin, end))
            many_block(a, &span, q, &r, m, block, begin, factor, dim, share, q_held);
        if (end % ATTN_SPAN == 0 || end >= last) {
            u32 w = again(THREAD_X) / 32;
            if (f8) scale_span(&span, a->v_scale, dim_tiles);
            if (a->units[p->unit].direct)
                fold_span(&total, &span, factor, dim_tiles);
            else
                store_part(a, p, &span, &r, begin / ATTN_SPAN, w / share, w % share * dim_tiles,
                           dim_tiles, dim, f8);
            sums_clear(&span, dim_tiles);
        }
    }
    warp = again(THREAD_X) / 32;
    if (a->units[p->unit].direct)
        store_rows(a, p, &total, factor, warp / share, warp % share * dim_tiles, dim_tiles, dim,
                   f8);
}

/* Pieces from `round` on, as long as they have many rows; the round behind them. */
INLINE u32 many_pieces(const attention_args *a, u8 *shared, u32 pieces, u32 round, u32 dim,
                       u32 share, int q_held, const int f8)
{
    many_loader l;
    many_room m;
    piece p;
    u32 stages = many_stages(a), ahead = f8 ? stages : stages - 1;
    m.maxima = (float *)shared;
    m.weights = (u16 *)(m.maxima + WARPS * 16);
    /* Tiles without rows read on behind Q where they share a barrier: something, for nobody. */
    m.q = shared + (share > 1 ? ATTN_EXCHANGE_BYTES : 0);
    m.blocks = m.q + (a->stages >> 16 & 255) * dim * 2;
    m.stages = m.blocks + (f8 ? (a->stages >> 24) * many_stage(dim, 0) : 0);
    m.now = m.block = 0;
    many_begin(a, &l, pieces, round);
    for (u32 i = 0; i < ahead; i++)
        many_next(a, &l, m.stages + i * many_stage(dim, f8), pool_dim(dim, f8));
    for (; piece_at(a, pieces, round, &p) && !is_few(a, &p); round++)
        many_piece(a, &l, &p, &m, dim, share, q_held, f8);
    return round;
}

#endif
