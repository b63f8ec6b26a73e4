/* attention_few.h - units of up to 16 query rows: a request that decodes, or drafts.
 *
 * All 8 warps compute one tile, 128 positions at a time, which is as much as makes the waits
 * between warps small beside the work:
 *
 *     S    each warp 16 keys, all dims          -> maxima in shared memory
 *     P    each warp its keys                   -> weights in shared memory
 *     O    each warp its dims, both blocks of 64 keys, one after the other
 *
 * Speed: an H100 read K and V at 2.1 to 2.5 of 3.1 TB/s with the same sums in steps of 64 positions,
 * three waits of all warps in each, and took 1.6 us a step however far ahead copies were: its warps
 * waited for each other. Steps of 128 have the waits and addresses of one for as many positions
 * twice; how fast they are has not been measured.
 *
 * K and V come by turns into a ring of granules of 128 rows. Two granules are asked for in each
 * step, where two become free: V's of the step before when all warps are here, K's when all have
 * their scores. */
#ifndef CUDA_KERNELS_ATTENTION_FEW_H
#define CUDA_KERNELS_ATTENTION_FEW_H

#include "cuda/kernels/attention_f8.h"
#include "cuda/kernels/attention_tile.h"

enum {
    STEP_KEYS = 128,
    STEP_WARP_KEYS = STEP_KEYS / WARPS,
    WEIGHTS_PITCH = STEP_KEYS + 8 /* eight rows of 16 bytes in different banks */
};

/* The next granule: K or V of positions [at, at + 128) of piece p. */
typedef struct few_loader {
    piece p;
    u32 pieces, round, at, is_v;
    u32 granule; /* of the ring */
    int more;
    i32 slot; /* of the position that lane % 16 brings, or -1 */
} few_loader;

INLINE void few_slot(const attention_args *a, few_loader *l)
{
    const attention_unit *u = a->units + l->p.unit;
    u32 thread = again(THREAD_X);
    u32 position = l->at + thread / 32 * STEP_WARP_KEYS + thread % STEP_WARP_KEYS;
    l->slot = -1;
    if (position >= u->begin && position < u->end)
        l->slot = a->slots[(u64)u->slot_row * a->slots_ld + position];
}

INLINE void few_begin(const attention_args *a, few_loader *l, u32 pieces, u32 round)
{
    l->pieces = pieces;
    l->round = round;
    l->is_v = 0;
    l->granule = 0;
    l->more = piece_at(a, pieces, round, &l->p);
    l->at = a->units[l->p.unit].begin / STEP_KEYS * STEP_KEYS;
    few_slot(a, l);
}

/* One group of copies, empty behind the last piece of this kind. dim: pool_dim. */
INLINE void few_next(const attention_args *a, few_loader *l, u8 *ring, u32 granules, u32 dim)
{
    if (l->more) {
        u32 row = again(THREAD_X) / 32 * STEP_WARP_KEYS;
        copy_rows(ring + l->granule * STEP_KEYS * dim * 2, 0, row, STEP_WARP_KEYS,
                  l->is_v ? a->v : a->k, l->is_v ? a->v_stride : a->k_stride, l->slot, l->p.head,
                  dim);
        if (l->is_v) {
            l->at += STEP_KEYS;
            if (l->at >= a->units[l->p.unit].end) {
                l->more = piece_at(a, l->pieces, ++l->round, &l->p) && is_few(a, &l->p);
                if (l->more) l->at = a->units[l->p.unit].begin / STEP_KEYS * STEP_KEYS;
            }
            if (l->more) few_slot(a, l);
        }
        l->is_v ^= 1;
        l->granule = l->granule + 1 == granules ? 0 : l->granule + 1;
    }
    copy_commit();
}

typedef struct few_room {
    float *maxima; /* [16][WARPS] */
    u16 *weights;  /* [16][WEIGHTS_PITCH] */
    u8 *q;         /* [16][dim] */
    u8 *ring;
    u32 granules, now; /* the granule that is computed with */
} few_room;

INLINE u32 few_dim_tiles(u32 dim) /* of a warp; the last warps may have none */
{
    return div_up(dim / 8, WARPS);
}

INLINE float most_of_four(const float *maxima)
{
    float_four f = *(const float_four *)maxima;
    return larger(larger(f.x, f.y), larger(f.z, f.w));
}

INLINE const u8 *few_granule(few_room *m, u32 dim) /* pool_dim */
{
    const u8 *at = m->ring + m->now * STEP_KEYS * dim * 2;
    m->now = m->now + 1 == m->granules ? 0 : m->now + 1;
    return at;
}

/* S of the warp's keys. */
INLINE void few_scores(const attention_args *a, float s[MOST_KEY_TILES][4], u32 q[MOST_STEPS][4],
                       const few_room *m, const u8 *k, u32 dim, const int f8)
{
    u32 first = again(THREAD_X) / 32 * STEP_WARP_KEYS;
    if (!f8)
        scores(s, q, m->q, 0, k, first, STEP_WARP_KEYS / 8, dim, 1);
    else if (a->kv == ATTN_KV_E4M3)
        scores_f8(s, q, k, first, dim, ATTN_KV_E4M3);
    else
        scores_f8(s, q, k, first, dim, ATTN_KV_E5M2);
}

/* The weights of a block of 64 keys with the warp's dims. */
INLINE void few_weigh(const attention_args *a, tile_sums *t, const u32 p[4][4], const u8 *v,
                      u32 first, u32 dim_tiles, u32 dim, const int f8)
{
    if (!f8)
        weigh(t, p, v, first, dim_tiles, dim);
    else if (a->kv == ATTN_KV_E4M3)
        weigh_f8(t, p, v, first, dim_tiles, dim, ATTN_KV_E4M3);
    else
        weigh_f8(t, p, v, first, dim_tiles, dim, ATTN_KV_E5M2);
}

/* Positions [begin, begin + 128), of which the unit sees some: blocks before `first` or behind
 * `last` are not looked at. */
INLINE void few_step(const attention_args *a, few_loader *l, few_room *m, tile_sums *t,
                     u32 q[MOST_STEPS][4], const row_pair *r, u32 begin, u32 first, u32 last,
                     float factor, u32 dim, const int f8)
{
    float s[MOST_KEY_TILES][4], now[2][2], alpha[2][2]; /* of each block: of both rows */
    u32 warp = again(THREAD_X) / 32, block = warp / (WARPS / 2), lane = lane_now();
    u32 row = lane / 4, dim_tiles = few_dim_tiles(dim), of_pool = pool_dim(dim, f8);

    copies_wait(m->granules - 2);
    SYNC_BLOCK(); /* K is here of all threads, and V of the step before is free */
    few_next(a, l, m->ring, m->granules, of_pool);
    few_scores(a, s, q, m, few_granule(m, of_pool), dim, f8);
    mask_scores(a, s, r, begin + warp * STEP_WARP_KEYS, STEP_WARP_KEYS / 8);
    UNROLL for (u32 i = 0; i < 2; i++) {
        float most = most_of_row(s, i, STEP_WARP_KEYS / 8);
        if ((lane & 3) == 0) m->maxima[(row + i * 8) * WARPS + warp] = most;
    }
    SYNC_BLOCK(); /* maxima are here, and K is free */
    few_next(a, l, m->ring, m->granules, of_pool);

    UNROLL for (u32 i = 0; i < 2; i++) UNROLL for (u32 b = 0; b < 2; b++) {
        float before = b ? now[0][i] : t->max[i];
        now[b][i] = larger(before, most_of_four(m->maxima + (row + i * 8) * WARPS + b * 4));
        alpha[b][i] = exp2_negative((before - max_base(now[b][i])) * factor);
    }
    UNROLL for (u32 i = 0; i < 2; i++) {
        float base = -(max_base(block ? now[1][i] : now[0][i]) * factor);
        u16 *to = m->weights + (row + i * 8) * WEIGHTS_PITCH + warp * STEP_WARP_KEYS;
        UNROLL for (u32 n = 0; n < STEP_WARP_KEYS / 8; n++)
            *(u32 *)(to + n * 8 + (lane & 3) * 2) = weights_of(s[n], i, factor, base);
        t->max[i] = now[1][i];
    }
    copies_wait(m->granules - 1);
    SYNC_BLOCK(); /* weights and V are here */
    const u8 *v = few_granule(m, of_pool);
    if (warp * dim_tiles >= dim / 8) return;
    UNROLL for (u32 b = 0; b < 2; b++) {
        u32 p[4][4];
        if (begin + (b + 1) * KEYS <= first || begin + b * KEYS >= last) continue;
        UNROLL for (u32 step = 0; step < 4; step++)
            load_matrix4(p[step], m->weights + (lane & 15) * WEIGHTS_PITCH + b * KEYS + step * 16 +
                                      (lane >> 4) * 8);
        scale_sums(t, alpha[b], dim_tiles);
        few_weigh(a, t, p, v + b * KEYS * of_pool * 2, warp * dim_tiles, dim_tiles, dim, f8);
    }
}

INLINE void few_piece(const attention_args *a, few_loader *l, const piece *p, few_room *m, u32 dim,
                      const int f8)
{
    float factor = score_factor(a->scale, a->cap);
    u32 q[MOST_STEPS][4], dim_tiles = few_dim_tiles(dim);
    tile_sums span, total;
    row_pair r;

    load_q(a, p, m->q, dim, 0);
    find_rows(a, p, 0, &r);
    SYNC_BLOCK();
    hold_q(q, m->q, 0, dim);
    sums_clear(&span, dim_tiles);
    sums_clear(&total, dim_tiles);
    u32 first = a->units[p->unit].begin, last = a->units[p->unit].end;
    u32 direct = a->units[p->unit].direct;
    for (u32 begin = first / STEP_KEYS * STEP_KEYS; begin < last; begin += STEP_KEYS) {
        few_step(a, l, m, &span, q, &r, begin, first, last, factor, dim, f8);
        if ((begin + STEP_KEYS) % ATTN_SPAN != 0 && begin + STEP_KEYS < last) continue;
        u32 mine = again(THREAD_X) / 32 * dim_tiles;
        if (f8) scale_span(&span, a->v_scale, dim_tiles);
        if (direct)
            fold_span(&total, &span, factor, dim_tiles);
        else if (mine < dim / 8)
            store_part(a, p, &span, &r, begin / ATTN_SPAN, 0, mine, dim_tiles, dim, f8);
        sums_clear(&span, dim_tiles);
    }
    u32 mine = again(THREAD_X) / 32 * dim_tiles;
    if (direct && mine < dim / 8) store_rows(a, p, &total, factor, 0, mine, dim_tiles, dim, f8);
}

/* Pieces from `round` on, as long as they have few rows; the round behind them. */
INLINE u32 few_pieces(const attention_args *a, u8 *shared, u32 pieces, u32 round, u32 dim,
                      const int f8)
{
    few_loader l;
    few_room m;
    piece p;
    m.maxima = (float *)shared;
    m.weights = (u16 *)(m.maxima + 16 * WARPS);
    m.q = (u8 *)(m.weights + 16 * WEIGHTS_PITCH);
    m.ring = m.q + 16 * dim * 2;
    m.granules = a->stages >> 8 & 255;
    m.now = 0;
    few_begin(a, &l, pieces, round);
    for (u32 i = 0; i + 1 < m.granules; i++)
        few_next(a, &l, m.ring, m.granules, pool_dim(dim, f8));
    for (; piece_at(a, pieces, round, &p) && is_few(a, &p); round++)
        few_piece(a, &l, &p, &m, dim, f8);
    return round;
}

#endif
