/* attention.h - attention over the slots of a paged pool: decode, extend and shared prefixes.
 *
 * A block of 8 warps walks pieces of work, a unit's rows and one KV head each (kernel_args.h). K
 * and V come to shared memory in stages of 64 positions, one stream of copies over all pieces of
 * the block, so that memory is never idle where one piece ends and the next begins:
 *
 *     slots -> addresses | copies in flight, up to `stages` - 1 blocks ahead | the block computed
 *
 * 16 query rows make a tile, the M side of mma. `share` warps compute a tile together: each has
 * the scores of 64 / share keys, the warps exchange maxima and weights, and each has the
 * weighted V of head_dim / share dims. A unit of few rows is one tile of all warps; with many rows
 * each warp has its own tile (share 1) and weights stay in its registers. Which warp computes a
 * number is all that differs: each is the same chain of mma in both ways.
 *
 *     S = Q K^T      ascending dims from 0
 *     m = max(m, S)  alpha = 2^((m_old - m) * factor)    P = bf16(2^((S - m) * factor))
 *     O = O * alpha  O += P V, ascending keys            L likewise, with a V of ones
 *
 * Keys that no row of the unit sees are zeros, not what lies in the pool: 0 * NaN is NaN. */
#ifndef CUDA_KERNELS_ATTENTION_H
#define CUDA_KERNELS_ATTENTION_H

#include "device/kernels/dialect.h"

#include "cuda/kernels/kernel_args.h"

#include "cuda/kernels/attention_math.h"

enum { WARPS = ATTN_THREADS / 32, KEYS = ATTN_KEYS, WEIGHTS_PITCH = KEYS + 8 };
enum { MOST_DIM_TILES = 16, MOST_PASSES = 8, MOST_STEPS = 16, MOST_KEY_TILES = 8 };

/* Loops over registers: the bound is a number that clang sees before it inlines, or it leaves the
 * array in memory. */
#define EACH(i, most, count)                                                                      \
    UNROLL for (u32 i = 0; i < (most); i++) if (i < (count))
#define EACH_PAIR(i, most, count)                                                                 \
    UNROLL for (u32 i = 0; i < (most); i += 2) if (i < (count))

/* Of work: a unit and a KV head. The unit's fields are read again where they are needed: they are
 * in the L1, and registers are few. */
typedef struct piece {
    u32 unit, head;
} piece;

/* Pieces are taken in rounds of one a block, each second round backwards: the host sorts units by
 * size, so that who had the largest takes the smallest then. */
INLINE int piece_at(const attention_args *a, u32 pieces, u32 round, piece *p)
{
    u32 at = round * GRID_X + (round & 1 ? GRID_X - 1 - BLOCK_X : BLOCK_X);
    p->unit = at / a->kv_heads;
    p->head = at % a->kv_heads;
    return at < pieces;
}

/* Where 16 bytes of a row lie, in bytes: rows of `dim` numbers in chunks of 16 bytes, whose places
 * within `turn` chunks are turned so that 8 neighbouring rows of one chunk are in different banks.
 * A multiple of 8 rows, or of `turn` chunks, further is a constant number of bytes further. */
INLINE u32 chunk_turn(u32 dim)
{
    return dim % 64 == 0 ? 8 : dim % 32 == 0 ? 4 : 2;
}

INLINE u32 chunk_at(u32 dim, u32 row, u32 chunk)
{
    u32 turn = chunk_turn(dim);
    return row * dim * 2 + (chunk ^ (row / (8 / turn) & (turn - 1))) * 16;
}

/* Addresses are worked out for each block again, from a number that the compiler cannot know to be
 * the same: else it keeps dozens of them in registers. And instructions add what is constant. */
#if defined(ON_GPU) && defined(__clang__)
INLINE u32 again(u32 v)
{
    asm volatile("" : "+r"(v));
    return v;
}
INLINE void load_matrix4_at(u32 r[4], const u8 *row, u32 constant)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)), "i"(constant)
                 : "memory");
}
INLINE void load_matrix4_transposed_at(u32 r[4], const u8 *row, u32 constant)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)), "i"(constant)
                 : "memory");
}
INLINE void copy16_async_if_at(u8 *shared, u32 constant, const void *global, int yes)
{
    asm volatile("cp.async.cg.shared.global [%0 + %3], [%1], 16, %2;" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(yes ? 16 : 0), "i"(constant)
                 : "memory");
}
#else
INLINE u32 again(u32 v)
{
    return v;
}
INLINE void load_matrix4_at(u32 r[4], const u8 *row, u32 constant)
{
    load_matrix4(r, row + constant);
}
INLINE void load_matrix4_transposed_at(u32 r[4], const u8 *row, u32 constant)
{
    load_matrix4_transposed(r, row + constant);
}
INLINE void copy16_async_if_at(u8 *shared, u32 constant, const void *global, int yes)
{
    copy16_async_if(shared + constant, global, yes);
}
#endif
INLINE u32 lane_now(void)
{
    return again(THREAD_X) & 31;
}

/* ---- the stream of copies: a warp brings 8 keys of each block ---- */
enum { WARP_KEYS = KEYS / WARPS };
typedef struct loader {
    piece p;
    u32 pieces, round, block;
    int more;
    i32 slot; /* of key LANE % 8 of the next block: fetched while another one is computed; -1: none */
} loader;

INLINE u32 row_lanes(u32 dim) /* that copy a row: a power of two */
{
    return dim <= 32 ? 4 : dim <= 64 ? 8 : dim <= 128 ? 16 : 32;
}

INLINE void load_slot(const attention_args *a, loader *l)
{
    const attention_unit *u = a->units + l->p.unit;
    u32 thread = again(THREAD_X), key = thread / 32 * WARP_KEYS + thread % WARP_KEYS;
    u32 position = l->block * KEYS + key;
    l->slot = -1;
    if (position >= u->begin && position < u->end)
        l->slot = a->slots[(u64)u->slot_row * a->slots_ld + position];
}

INLINE void load_begin(const attention_args *a, loader *l)
{
    l->pieces = *a->num_units * a->kv_heads;
    l->round = 0;
    l->more = piece_at(a, l->pieces, 0, &l->p);
    if (!l->more) return;
    l->block = a->units[l->p.unit].begin / KEYS;
    load_slot(a, l);
}

/* The stream's next block comes to `stage`; K, then V. At its end, copies of nothing: so each call
 * is one group. */
INLINE void load_next(const attention_args *a, loader *l, u8 *stage, u32 dim)
{
    if (l->more) {
        u32 lanes = row_lanes(dim), rows = 32 / lanes, thread = again(THREAD_X);
        u32 first = thread % 32 / lanes, chunk = thread % lanes;
        u64 at = (u64)l->p.head * dim * 2 + chunk * 16;
        EACH(i, WARP_KEYS, div_up(WARP_KEYS, rows)) {
            i32 s = (i32)shuffle_u32((u32)l->slot, i * rows + first);
            u64 slot = s >= 0 ? (u64)s : 0;
            u8 *to = stage + chunk_at(dim, thread / 32 * WARP_KEYS + i * rows + first, chunk);
            if (chunk < dim / 8) {
                copy16_async_if_at(to, 0, a->k + slot * a->k_stride + at, s >= 0);
                copy16_async_if_at(to, KEYS * dim * 2, a->v + slot * a->v_stride + at, s >= 0);
            }
        }
        l->block++;
        if (l->block * KEYS >= a->units[l->p.unit].end) {
            l->more = piece_at(a, l->pieces, ++l->round, &l->p);
            if (l->more) l->block = a->units[l->p.unit].begin / KEYS;
        }
        if (l->more) load_slot(a, l);
    }
    copy_commit();
}

/* The stage that was asked for first is here, of what this thread copied. */
INLINE void load_wait(u32 stages)
{
    if (stages == 2)
        COPY_WAIT(0);
    else if (stages == 3)
        COPY_WAIT(1);
    else
        COPY_WAIT(2);
}

/* ---- shared memory (attention_shared_bytes in attention_plan.h) ---- */
typedef struct room {
    float *maxima; /* [WARPS][16] */
    u16 *weights;  /* [WARPS / 2][16][WEIGHTS_PITCH] */
    u8 *stages;    /* [stages][K, V][64][dim] */
    u8 *q;         /* [rows][dim] */
} room;

/* ---- the two rows of a tile that a thread has a part of: LANE / 4 and 8 further ---- */
typedef struct row_pair {
    u32 low[2], last[2]; /* positions that it sees; of no row: NO_ROW and 0 */
} row_pair;
enum { NO_ROW = 0x7fffffff };

/* Of row `i` of the pair, or ~0. */
INLINE u32 row_of(const attention_args *a, const piece *p, u32 tile, u32 i, u32 *head)
{
    const attention_unit *u = a->units + p->unit;
    u32 group = a->heads / a->kv_heads, row = tile * 16 + lane_now() / 4 + i * 8;
    *head = p->head * group + row % group;
    return row < u->count * group ? a->unit_tokens[u->first + row / group] : ~0u;
}

INLINE void find_rows(const attention_args *a, const piece *p, u32 tile, row_pair *r)
{
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 head, token = row_of(a, p, tile, i, &head);
        r->low[i] = NO_ROW;
        r->last[i] = 0;
        if (token == ~0u) continue;
        u32 last = a->positions[token];
        r->low[i] = a->window && last >= a->window ? last - a->window + 1 : 0;
        r->last[i] = last;
    }
}

/* Whether any row of the tile sees, or does not see, something of the keys [begin, end). */
INLINE int any_sees(const row_pair *r, u32 begin, u32 end)
{
    return ballot((r->low[0] < end && r->last[0] >= begin) ||
                  (r->low[1] < end && r->last[1] >= begin)) != 0;
}
INLINE int any_misses(const row_pair *r, u32 begin, u32 end)
{
    int first = r->low[0] != NO_ROW && (r->low[0] > begin || r->last[0] + 1 < end);
    int second = r->low[1] != NO_ROW && (r->low[1] > begin || r->last[1] + 1 < end);
    return ballot(first || second) != 0;
}

/* ---- a tile's sums ---- */
typedef struct tile_sums {
    float max[2];
    float sum[4]; /* an accumulator of mma: all columns are alike */
    float v[MOST_DIM_TILES][4];
} tile_sums;

INLINE void sums_clear(tile_sums *t, u32 dim_tiles)
{
    t->max[0] = t->max[1] = NEG_INFINITY;
    UNROLL for (u32 i = 0; i < 4; i++) t->sum[i] = 0;
    EACH(n, MOST_DIM_TILES, dim_tiles) UNROLL for (u32 i = 0; i < 4; i++) t->v[n][i] = 0;
}

typedef struct chunk16 {
    u32 words[4];
} __attribute__((aligned(16))) chunk16;

/* Q of a unit, later read as the A side of mma. By loads: to wait for copies would be to wait for
 * those of K and V, too, and would leave memory idle. */
INLINE void load_q(const attention_args *a, const piece *p, u8 *q, u32 dim)
{
    const attention_unit *u = a->units + p->unit;
    u32 group = a->heads / a->kv_heads, chunks = dim / 8, rows = u->count * group, first = u->first;
    for (u32 i = THREAD_X; i < rows * chunks; i += ATTN_THREADS) {
        u32 row = i / chunks, chunk = i % chunks;
        u32 token = a->unit_tokens[first + row / group];
        u64 head = (u64)token * a->heads + p->head * group + row % group;
        *(chunk16 *)(q + chunk_at(dim, row, chunk)) =
            *(const chunk16 *)(a->q + head * dim + chunk * 8);
    }
}

/* Registers of a loop over chunks: within a turn each has an address of its own. */
enum { MOST_TURN = 8 };

/* S: scores of the warp's keys, 8 keys a tile. */
INLINE void scores(float s[8][4], u32 q[MOST_STEPS][4], const u8 *q_rows, const u8 *k, u32 tile,
                   u32 sub, u32 dim, u32 share, int q_held)
{
    u32 key_tiles = 8 / share, turn = chunk_turn(dim);
    u32 lane = lane_now(), matrix = lane >> 3, r = lane & 7;
    const u8 *q_at[MOST_TURN], *k_at[MOST_TURN];
    EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 4; i++) s[n][i] = 0;
    if (key_tiles == 1) { /* 4 matrices: 32 dims of 8 keys */
        EACH_PAIR(c, MOST_TURN / 2, turn / 2)
            k_at[c] = k + chunk_at(dim, sub * 8 + r, c * 2 + matrix);
        EACH_PAIR(step, MOST_STEPS, dim / 16) {
            u32 b[4];
            load_matrix4_at(b, k_at[step % (turn / 2)], step / (turn / 2) * turn * 16);
            mma_bf16(s[0], q[step], b);
            mma_bf16(s[0], q[step + 1], b + 2);
        }
        return;
    }
    EACH(c, MOST_TURN / 2, turn / 2) { /* 4 matrices: 16 dims of 16 keys */
        q_at[c] = q_rows + chunk_at(dim, tile * 16 + (lane & 15), c * 2 + (lane >> 4));
        k_at[c] = k + chunk_at(dim, sub * key_tiles * 8 + (matrix >> 1) * 8 + r,
                               c * 2 + (matrix & 1));
    }
    EACH(step, MOST_STEPS, dim / 16) {
        u32 c = step % (turn / 2), further = step / (turn / 2) * turn * 16, rows[4];
        if (!q_held) load_matrix4_at(rows, q_at[c], further);
        EACH_PAIR(n, MOST_KEY_TILES, key_tiles) {
            u32 b[4];
            load_matrix4_at(b, k_at[c], further + n * 8 * dim * 2);
            mma_bf16(s[n], q_held ? q[step] : rows, b);
            mma_bf16(s[n + 1], q_held ? q[step] : rows, b + 2);
        }
    }
}

/* O += P V and L += P 1 */
INLINE void weigh(tile_sums *t, const u32 p[4][4], const u8 *v, u32 sub, u32 dim, u32 share)
{
    const u32 ones[2] = {0x3f803f80, 0x3f803f80};
    u32 dim_tiles = dim / 8 / share, turn = chunk_turn(dim);
    u32 lane = lane_now(), matrix = lane >> 3, r = lane & 7;
    const u8 *v_at[MOST_TURN];
    UNROLL for (u32 step = 0; step < 4; step++) mma_bf16(t->sum, p[step], ones);
    if (dim_tiles % 2) { /* 4 matrices: 8 dims of 32 keys */
        EACH(c, MOST_TURN, dim_tiles)
            v_at[c] = v + chunk_at(dim, matrix * 8 + r, sub * dim_tiles + c);
        UNROLL for (u32 step = 0; step < 4; step += 2) EACH(n, MOST_TURN, dim_tiles) {
            u32 b[4];
            load_matrix4_transposed_at(b, v_at[n], step * 16 * dim * 2);
            mma_bf16(t->v[n], p[step], b);
            mma_bf16(t->v[n], p[step + 1], b + 2);
        }
        return;
    }
    EACH(c, MOST_TURN / 2, turn / 2) /* 4 matrices: 16 dims of 16 keys */
        v_at[c] = v + chunk_at(dim, (matrix & 1) * 8 + r,
                               sub * dim_tiles + c * 2 + (matrix >> 1));
    UNROLL for (u32 step = 0; step < 4; step++) EACH_PAIR(n, MOST_DIM_TILES, dim_tiles) {
        u32 b[4];
        load_matrix4_transposed_at(b, v_at[n % turn / 2],
                                   step * 16 * dim * 2 + n / turn * turn * 16);
        mma_bf16(t->v[n], p[step], b);
        mma_bf16(t->v[n + 1], p[step], b + 2);
    }
}

/* 64 keys for a tile. */
INLINE void attend_block(const attention_args *a, tile_sums *t, u32 q[MOST_STEPS][4],
                         const row_pair *r, const room *m, const u8 *stage, u32 begin, float factor,
                         u32 dim, u32 share, int q_held)
{
    float s[8][4];
    u32 warp = again(THREAD_X) / 32, tile = warp / share, sub = warp % share;
    u32 key_tiles = 8 / share, keys = KEYS / share, lane = lane_now(), column = (lane & 3) * 2;
    scores(s, q, m->q, stage, tile, sub, dim, share, q_held);
    if (a->cap > 0) {
        float of_cap = divide(a->scale, a->cap);
        EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 4; i++)
            s[n][i] = capped_score(s[n][i], of_cap, a->cap);
    }
    if (any_misses(r, begin, begin + KEYS))
        EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 4; i++) {
            u32 position = begin + sub * keys + n * 8 + column + (i & 1);
            if (position < r->low[i >> 1] || position > r->last[i >> 1]) s[n][i] = NEG_INFINITY;
        }

    float most[2], base[2], alpha[2];
    UNROLL for (u32 i = 0; i < 2; i++) {
        most[i] = larger(s[0][i * 2], s[0][i * 2 + 1]);
        EACH(n, MOST_KEY_TILES, key_tiles)
            most[i] = larger(most[i], larger(s[n][i * 2], s[n][i * 2 + 1]));
        most[i] = larger(most[i], shuffle_xor(most[i], 1));
        most[i] = larger(most[i], shuffle_xor(most[i], 2));
    }
    if (share > 1) {
        float *maxima = m->maxima + tile * share * 16 + lane / 4;
        if ((lane & 3) == 0) {
            maxima[sub * 16] = most[0];
            maxima[sub * 16 + 8] = most[1];
        }
        SYNC_BLOCK();
        EACH(w, WARPS, share) UNROLL for (u32 i = 0; i < 2; i++)
            most[i] = larger(most[i], maxima[w * 16 + i * 8]);
    }
    UNROLL for (u32 i = 0; i < 2; i++) {
        float now = larger(t->max[i], most[i]), b = max_base(now);
        alpha[i] = exp2_negative((t->max[i] - b) * factor);
        base[i] = -(b * factor);
        t->max[i] = now;
    }

    u32 p[4][4];
    EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 2; i++) {
        float low = exp2_weight(FMA(s[n][i * 2], factor, base[i]));
        float high = exp2_weight(FMA(s[n][i * 2 + 1], factor, base[i]));
        u32 both = pack_bf16_numbers(low, high);
        if (share == 1)
            p[n / 2][n % 2 * 2 + i] = both;
        else
            *(u32 *)(m->weights + (tile * 16 + lane / 4 + i * 8) * WEIGHTS_PITCH + sub * keys +
                     n * 8 + column) = both;
    }
    if (share > 1) {
        SYNC_BLOCK();
        UNROLL for (u32 step = 0; step < 4; step++)
            load_matrix4(p[step], m->weights + (tile * 16 + (lane & 15)) * WEIGHTS_PITCH +
                                      step * 16 + (lane >> 4) * 8);
    }
    if (ballot(alpha[0] != 1.0f || alpha[1] != 1.0f)) { /* x * 1 would be x */
        UNROLL for (u32 i = 0; i < 4; i++) t->sum[i] *= alpha[i >> 1];
        EACH(n, MOST_DIM_TILES, dim / 8 / share) UNROLL for (u32 i = 0; i < 4; i++)
            t->v[n][i] *= alpha[i >> 1];
    }
    weigh(t, p, stage + KEYS * dim * 2, sub, dim, share);
}

typedef struct float_pair {
    float x, y;
} __attribute__((aligned(8))) float_pair;

/* A span's sums of the rows that see it. */
INLINE void store_part(const attention_args *a, const piece *p, const tile_sums *t,
                       const row_pair *r, u32 span, u32 dim, u32 share)
{
    u32 warp = again(THREAD_X) / 32, tile = warp / share, sub = warp % share;
    u32 dim_tiles = dim / 8 / share, lane = lane_now();
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 head, token = row_of(a, p, tile, i, &head);
        if (token == ~0u || span < r->low[i] / ATTN_SPAN || span > r->last[i] / ATTN_SPAN) continue;
        u64 part = a->parts_at[token] + (span - r->low[i] / ATTN_SPAN), at = part * a->heads + head;
        if (sub == 0 && (lane & 3) == 0) {
            float_pair ms = {t->max[i], t->sum[i * 2]};
            *(float_pair *)(a->part_ms + at * 2) = ms;
        }
        float *to = a->part_v + at * dim + sub * dim_tiles * 8 + (lane & 3) * 2;
        EACH(n, MOST_DIM_TILES, dim_tiles) {
            float_pair v = {t->v[n][i * 2], t->v[n][i * 2 + 1]};
            *(float_pair *)(to + n * 8) = v;
        }
    }
}

INLINE void store_rows(const attention_args *a, const piece *p, const tile_sums *t, float factor,
                       u32 dim, u32 share)
{
    u32 warp = again(THREAD_X) / 32, tile = warp / share, sub = warp % share;
    u32 dim_tiles = dim / 8 / share, lane = lane_now();
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 head, token = row_of(a, p, tile, i, &head);
        if (token == ~0u) continue;
        float w = close_weight(t->max[i], t->sum[i * 2], factor, a->sinks, head);
        u16 *to = a->out + (u64)token * a->out_ld + head * dim + sub * dim_tiles * 8 +
                  (lane & 3) * 2;
        EACH(n, MOST_DIM_TILES, dim_tiles)
            *(u32 *)(to + n * 8) =
                pack_bf16(close_row(t->v[n][i * 2], w), close_row(t->v[n][i * 2 + 1], w));
    }
}

INLINE void fold_span(tile_sums *total, const tile_sums *span, float factor, u32 dim_tiles)
{
    UNROLL for (u32 i = 0; i < 2; i++) {
        float keep, add;
        fold_weights(&total->max[i], span->max[i], factor, &keep, &add);
        total->sum[i * 2] = fold(total->sum[i * 2], span->sum[i * 2], keep, add);
        EACH(n, MOST_DIM_TILES, dim_tiles) UNROLL for (u32 j = 0; j < 2; j++)
            total->v[n][i * 2 + j] = fold(total->v[n][i * 2 + j], span->v[n][i * 2 + j], keep, add);
    }
}

/* A piece of work, while the stream of copies goes on behind it. */
INLINE void attend(const attention_args *a, loader *l, const piece *p, const room *m, u32 *stage,
                   u32 dim, u32 share, int q_held)
{
    u32 warp = again(THREAD_X) / 32, tile = warp / share, dim_tiles = dim / 8 / share;
    u32 stage_bytes = KEYS * dim * 4;
    float factor = score_factor(a->scale, a->cap);
    u32 q[MOST_STEPS][4];
    tile_sums span, total;
    row_pair r;

    SYNC_BLOCK(); /* nobody reads the last piece's Q any more */
    load_q(a, p, m->q, dim);
    find_rows(a, p, tile, &r);
    SYNC_BLOCK();
    if (q_held)
        EACH(step, MOST_STEPS, dim / 16) load_matrix4(
            q[step],
            m->q + chunk_at(dim, tile * 16 + (lane_now() & 15), step * 2 + (lane_now() >> 4)));
    sums_clear(&span, dim_tiles);
    sums_clear(&total, dim_tiles);

    u32 last = a->units[p->unit].end;
    for (u32 begin = a->units[p->unit].begin / KEYS * KEYS; begin < last; begin += KEYS) {
        u32 end = begin + KEYS;
        load_wait(a->stages);
        SYNC_BLOCK(); /* it is here of all threads, and the stage before is free */
        u32 behind = *stage == 0 ? a->stages - 1 : *stage - 1;
        load_next(a, l, m->stages + behind * stage_bytes, dim);
        /* Where warps share a tile all must come to their barriers. */
        if (share > 1 || any_sees(&r, begin, end))
            attend_block(a, &span, q, &r, m, m->stages + *stage * stage_bytes, begin, factor, dim,
                         share, q_held);
        *stage = *stage + 1 == a->stages ? 0 : *stage + 1;
        if (end % ATTN_SPAN == 0 || end >= last) {
            if (a->units[p->unit].direct)
                fold_span(&total, &span, factor, dim_tiles);
            else
                store_part(a, p, &span, &r, begin / ATTN_SPAN, dim, share);
            sums_clear(&span, dim_tiles);
        }
    }
    if (a->units[p->unit].direct) store_rows(a, p, &total, factor, dim, share);
}

/* few, many: warps that share a tile. */
INLINE void attention(const attention_args *a, u8 *shared, u32 dim, u32 few, u32 many)
{
    room m;
    m.maxima = (float *)shared;
    m.weights = (u16 *)(m.maxima + WARPS * 16);
    m.stages = shared + ATTN_EXCHANGE_BYTES;
    m.q = m.stages + a->stages * KEYS * dim * 4;

    loader l;
    wait_previous();
    launch_next();
    load_begin(a, &l);
    if (!l.more) return;
    u32 stage = 0, group = a->heads / a->kv_heads;
    for (u32 i = 0; i + 1 < a->stages; i++)
        load_next(a, &l, m.stages + i * KEYS * dim * 4, dim);

    piece p;
    for (u32 round = 0; piece_at(a, l.pieces, round, &p); round++) {
        if (a->units[p.unit].count * group <= WARPS / few * 16)
            attend(a, &l, &p, &m, &stage, dim, few, 1);
        else
            attend(a, &l, &p, &m, &stage, dim, many, dim == 64 || dim == 16);
    }
}

#define ATTENTION(dim, few, many)                                                                 \
    KERNEL(attention_d##dim, ATTN_THREADS, attention_args)                                        \
    {                                                                                             \
        SHARED_DYNAMIC(u8, shared);                                                               \
        attention(&a, shared, dim, few, many);                                                    \
    }

#endif
