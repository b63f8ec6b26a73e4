/* attention_tile.h - 16 query rows and what is done with them: the parts that attention_few.h and
 * attention_many.h are made of.
 *
 * 16 rows are the M side of mma, keys or dims its N side. A thread has a part of two rows, LANE / 4
 * and 8 further. What is one chain of mma here, over ascending dims or keys, is the same chain
 * whichever warp computes it. */
#ifndef CUDA_KERNELS_ATTENTION_TILE_H
#define CUDA_KERNELS_ATTENTION_TILE_H

#include "device/kernels/dialect.h"

#include "cuda/kernels/kernel_args.h"

#include "cuda/kernels/attention_math.h"

enum { WARPS = ATTN_THREADS / 32, KEYS = ATTN_KEYS };
enum { MOST_DIM_TILES = 16, MOST_STEPS = 16, MOST_KEY_TILES = 8 };

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

INLINE int is_few(const attention_args *a, const piece *p)
{
    return a->units[p->unit].count * (a->heads / a->kv_heads) <= ATTN_FEW_ROWS;
}

/* Where 16 bytes of a row lie, in bytes: rows of `dim` numbers in chunks of 16 bytes, whose places
 * within `turn` chunks are turned so that 8 neighbouring rows of one chunk are in different banks.
 * A multiple of 8 rows, or of `turn` chunks, further is a constant number of bytes further. */
INLINE u32 chunk_turn(u32 dim)
{
    return dim % 64 == 0 ? 8 : dim % 32 == 0 ? 4 : dim % 16 == 0 ? 2 : 1;
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

INLINE u32 row_lanes(u32 dim) /* that copy a row: a power of two */
{
    return dim <= 32 ? 4 : dim <= 64 ? 8 : dim <= 128 ? 16 : 32;
}

/* 16 bytes of a lane and row: where a warp copies `keys` rows of K or V to, whose slots its lanes
 * 0 to keys - 1 have. `first` of them is in row `row` of shared memory. A slot of -1 is zeros. */
INLINE void copy_rows(u8 *to, u32 constant, u32 row, u32 keys, const u8 *pool, u64 stride, i32 slot,
                      u32 head, u32 dim)
{
    u32 lanes = row_lanes(dim), rows = 32 / lanes, lane = lane_now();
    u32 first = lane / lanes, chunk = lane % lanes;
    pool += (u64)head * dim * 2 + chunk * 16;
    EACH(i, 16, div_up(keys, rows)) {
        i32 s = (i32)shuffle_u32((u32)slot, i * rows + first);
        u64 at = (u64)(u32)(s < 0 ? 0 : s) * (u32)stride;
        if (chunk < dim / 8 && i * rows + first < keys)
            copy16_async_if_at(to + chunk_at(dim, row + i * rows + first, chunk), constant,
                               pool + at, s >= 0);
    }
}

/* Copies that were asked for last and may still be under way. */
INLINE void copies_wait(u32 groups)
{
    if (groups == 0) COPY_WAIT(0);
    if (groups == 1) COPY_WAIT(1);
    if (groups == 2) COPY_WAIT(2);
    if (groups == 3) COPY_WAIT(3);
    if (groups == 4) COPY_WAIT(4);
    if (groups >= 5) COPY_WAIT(5);
}

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

/* Q of a unit, later read as the A side of mma. By copies where there are many rows. A few come by
 * loads: to wait for copies would be to wait for those of K and V, too, and leave memory idle. */
INLINE void load_q(const attention_args *a, const piece *p, u8 *q, u32 dim, int by_copies)
{
    const attention_unit *u = a->units + p->unit;
    u32 group = a->heads / a->kv_heads, chunks = dim / 8, rows = u->count * group, first = u->first;
    for (u32 i = THREAD_X; i < rows * chunks; i += ATTN_THREADS) {
        u32 row = i / chunks, chunk = i % chunks;
        u32 token = a->unit_tokens[first + row / group];
        u64 head = (u64)token * a->heads + p->head * group + row % group;
        u8 *to = q + chunk_at(dim, row, chunk);
        const u16 *from = a->q + head * dim + chunk * 8;
        if (by_copies)
            copy16_async_if(to, from, 1);
        else
            *(chunk16 *)to = *(const chunk16 *)from;
    }
}

/* Registers of a loop over chunks: within a turn each has an address of its own. */
enum { MOST_TURN = 8 };

/* S: scores of keys [first, first + 8 key_tiles) of k's rows; 4 matrices are 16 dims of 16 keys.
 * q_rows: where the tile's rows of Q are, unless the registers hold them. */
INLINE void scores(float s[MOST_KEY_TILES][4], u32 q[MOST_STEPS][4], const u8 *q_rows, u32 q_row,
                   const u8 *k, u32 first, u32 key_tiles, u32 dim, int q_held)
{
    u32 turn = chunk_turn(dim), lane = lane_now(), matrix = lane >> 3, r = lane & 7;
    const u8 *q_at[MOST_TURN], *k_at[MOST_TURN];
    EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 4; i++) s[n][i] = 0;
    EACH(c, MOST_TURN / 2, turn / 2) {
        if (!q_held) q_at[c] = q_rows + chunk_at(dim, q_row + (lane & 15), c * 2 + (lane >> 4));
        k_at[c] = k + chunk_at(dim, first + (matrix >> 1) * 8 + r, c * 2 + (matrix & 1));
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

/* O += P V and L += P 1: 64 keys, dims [8 first, 8 first + 8 dim_tiles). */
INLINE void weigh(tile_sums *t, const u32 p[4][4], const u8 *v, u32 first, u32 dim_tiles, u32 dim)
{
    const u32 ones[2] = {0x3f803f80, 0x3f803f80};
    u32 turn = chunk_turn(dim), lane = lane_now(), matrix = lane >> 3, r = lane & 7;
    const u8 *v_at[MOST_TURN];
    UNROLL for (u32 step = 0; step < 4; step++) mma_bf16(t->sum, p[step], ones);
    if (dim_tiles == 1) { /* 4 matrices: 8 dims of 32 keys */
        v_at[0] = v + chunk_at(dim, matrix * 8 + r, first);
        UNROLL for (u32 step = 0; step < 4; step += 2) {
            u32 b[4];
            load_matrix4_transposed_at(b, v_at[0], step * 16 * dim * 2);
            mma_bf16(t->v[0], p[step], b);
            mma_bf16(t->v[0], p[step + 1], b + 2);
        }
        return;
    }
    EACH(c, MOST_TURN / 2, turn / 2) /* 4 matrices: 16 dims of 16 keys */
        v_at[c] = v + chunk_at(dim, (matrix & 1) * 8 + r, first + c * 2 + (matrix >> 1));
    UNROLL for (u32 step = 0; step < 4; step++) EACH_PAIR(n, MOST_DIM_TILES, dim_tiles) {
        u32 b[4];
        load_matrix4_transposed_at(b, v_at[n % turn / 2],
                                   step * 16 * dim * 2 + n / turn * turn * 16);
        mma_bf16(t->v[n], p[step], b);
        mma_bf16(t->v[n + 1], p[step], b + 2);
    }
}

/* Scores that a row does not see become -infinity. */
INLINE void mask_scores(const attention_args *a, float s[MOST_KEY_TILES][4], const row_pair *r,
                        u32 begin, u32 key_tiles)
{
    u32 column = (lane_now() & 3) * 2;
    if (a->cap > 0) {
        float of_cap = divide(a->scale, a->cap);
        EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 4; i++)
            s[n][i] = capped_score(s[n][i], of_cap, a->cap);
    }
    if (any_misses(r, begin, begin + key_tiles * 8))
        EACH(n, MOST_KEY_TILES, key_tiles) UNROLL for (u32 i = 0; i < 4; i++) {
            u32 position = begin + n * 8 + column + (i & 1);
            if (position < r->low[i >> 1] || position > r->last[i >> 1]) s[n][i] = NEG_INFINITY;
        }
}

/* Of the warp's keys; the same in all four lanes of a row. */
INLINE float most_of_row(float s[MOST_KEY_TILES][4], u32 i, u32 key_tiles)
{
    float most = larger(s[0][i * 2], s[0][i * 2 + 1]);
    EACH(n, MOST_KEY_TILES, key_tiles)
        most = larger(most, larger(s[n][i * 2], s[n][i * 2 + 1]));
    most = larger(most, shuffle_xor(most, 1));
    return larger(most, shuffle_xor(most, 2));
}

/* Two weights beside each other, of row i of the pair. */
INLINE u32 weights_of(const float s[4], u32 i, float factor, float base)
{
    return pack_bf16_numbers(exp2_weight(FMA(s[i * 2], factor, base)),
                             exp2_weight(FMA(s[i * 2 + 1], factor, base)));
}

/* The sums so far, where a row's maximum has grown. */
INLINE void scale_sums(tile_sums *t, const float alpha[2], u32 dim_tiles)
{
    if (!ballot(alpha[0] != 1.0f || alpha[1] != 1.0f)) return; /* x * 1 would be x */
    UNROLL for (u32 i = 0; i < 4; i++) t->sum[i] *= alpha[i >> 1];
    EACH(n, MOST_DIM_TILES, dim_tiles) UNROLL for (u32 i = 0; i < 4; i++) t->v[n][i] *= alpha[i >> 1];
}

INLINE void hold_q(u32 q[MOST_STEPS][4], const u8 *q_rows, u32 row, u32 dim)
{
    u32 lane = lane_now();
    EACH(step, MOST_STEPS, dim / 16)
        load_matrix4(q[step], q_rows + chunk_at(dim, row + (lane & 15), step * 2 + (lane >> 4)));
}

typedef struct float_pair {
    float x, y;
} __attribute__((aligned(8))) float_pair;

typedef struct float_four {
    float x, y, z, w;
} __attribute__((aligned(16))) float_four;

/* Columns 2c and 2c + 1 of a tile, c of this lane: 2 dims behind each other; or, of fp8, every second
 * one of 16 dims (attention_f8.h), and a pair of tiles is 4 behind each other. */
INLINE u32 columns_at(u32 tile, const int f8)
{
    u32 c = lane_now() & 3;
    return f8 ? tile / 2 * 16 + c * 4 + tile % 2 : tile * 8 + c * 2;
}

/* A span's sums of the rows that see it. */
INLINE void store_part(const attention_args *a, const piece *p, const tile_sums *t,
                       const row_pair *r, u32 span, u32 tile, u32 first, u32 dim_tiles, u32 dim,
                       const int f8)
{
    u32 lane = lane_now();
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 head, token = row_of(a, p, tile, i, &head);
        if (token == ~0u || span < r->low[i] / ATTN_SPAN || span > r->last[i] / ATTN_SPAN) continue;
        u64 part = a->parts_at[token] + (span - r->low[i] / ATTN_SPAN), at = part * a->heads + head;
        if (first == 0 && (lane & 3) == 0) {
            float_pair ms = {t->max[i], t->sum[i * 2]};
            *(float_pair *)(a->part_ms + at * 2) = ms;
        }
        float *to = a->part_v + at * dim + columns_at(first, f8);
        if (f8 && dim_tiles == 1) {
            to[0] = t->v[0][i * 2];
            to[2] = t->v[0][i * 2 + 1];
        } else if (f8) {
            EACH_PAIR(n, MOST_DIM_TILES, dim_tiles) {
                float_four v = {t->v[n][i * 2], t->v[n + 1][i * 2], t->v[n][i * 2 + 1],
                                t->v[n + 1][i * 2 + 1]};
                *(float_four *)(to + n * 8) = v;
            }
        } else {
            EACH(n, MOST_DIM_TILES, dim_tiles) {
                float_pair v = {t->v[n][i * 2], t->v[n][i * 2 + 1]};
                *(float_pair *)(to + n * 8) = v;
            }
        }
    }
}

INLINE void store_rows(const attention_args *a, const piece *p, const tile_sums *t, float factor,
                       u32 tile, u32 first, u32 dim_tiles, u32 dim, const int f8)
{
    UNROLL for (u32 i = 0; i < 2; i++) {
        u32 head, token = row_of(a, p, tile, i, &head);
        if (token == ~0u) continue;
        float w = close_weight(t->max[i], t->sum[i * 2], factor, a->sinks, head);
        u16 *to = a->out + (u64)token * a->out_ld + head * dim + columns_at(first, f8);
        if (f8 && dim_tiles == 1) {
            to[0] = (u16)float_bf16(close_row(t->v[0][i * 2], w));
            to[2] = (u16)float_bf16(close_row(t->v[0][i * 2 + 1], w));
        } else if (f8) {
            EACH_PAIR(n, MOST_DIM_TILES, dim_tiles) {
                u32 *at = (u32 *)(to + n * 8);
                at[0] = pack_bf16(close_row(t->v[n][i * 2], w), close_row(t->v[n + 1][i * 2], w));
                at[1] = pack_bf16(close_row(t->v[n][i * 2 + 1], w),
                                  close_row(t->v[n + 1][i * 2 + 1], w));
            }
        } else {
            EACH(n, MOST_DIM_TILES, dim_tiles)
                *(u32 *)(to + n * 8) =
                    pack_bf16(close_row(t->v[n][i * 2], w), close_row(t->v[n][i * 2 + 1], w));
        }
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

#endif
