/* qkv.cu - between the product of q, k and v and attention: one warp a token and head.
 *
 * A lane has numbers 4 lane .. 4 lane + 3 of its head, and (qkv_wide) those 128 behind them.
 * The head passes through shared memory, where each number's partner in the rotation is found
 * whatever the head's width, and where the squares are summed in the order of ops_kernels.h (16
 * chains, then halves): with the same sums in front, q, k and v are the CPU's bits. A norm over all
 * heads of a token is across warps: row_scales (norm.cu) has taken its sum before. */
#define ONE_FORM
#include "cuda/kernels/f8.h"
#include "cuda/kernels/kernel_args.h"
#include "cuda/kernels/vectors.h"
#include "device/kernels/dialect.h"

enum { HEADS = QKV_THREADS / 32 };

INLINE float head_scale(const float *head, u32 n, float eps)
{
    const u32 lane = LANE & 15;
    float s = 0;
    for (u32 i = lane; i < (n + 15) / 16 * 16; i += 16) {
        const float v = i < n ? head[i] : 0.0f;
        s += v * v;
    }
    UNROLL
    for (u32 apart = 8; apart; apart /= 2)
        s += shuffle_xor(s, apart);
    return divide(1.0f, square_root(divide(s, (float)n) + eps));
}

/* What number i of a head turns with: the number `other` times `sine` is added to it times
 * `cosine`. The table has a pair of cos and sin for each rotation. */
typedef struct turn {
    u32 other;
    float cosine, sine;
} turn;

INLINE turn turn_of(u32 i, const float *table, u32 rope_dim, u32 interleaved)
{
    const u32 half = rope_dim / 2;
    const u32 pair = interleaved ? i / 2 : i < half ? i : i - half;
    const int front = interleaved ? i % 2 == 0 : i < half;
    const float sine = table[2 * pair + 1];
    turn t = {interleaved ? i ^ 1
              : front     ? i + half
                          : i - half,
              table[2 * pair], front ? -sine : sine};
    return t;
}

/* Four numbers of K or V as codes of fp8. */
INLINE void write4_f8(u8 *row, u32 at, u32 n, int whole, const float from[4], u32 kv, float scale)
{
    u32 codes = 0;
    UNROLL
    for (u32 e = 0; e < 4; e++)
        codes |= f8_of(kv, from[e], scale) << 8 * e;
    if (whole)
        *(u32 *)(row + at) = codes;
    else
        UNROLL for (u32 e = 0; e < 4; e++)
            if (at + e < n) row[at + e] = (u8)(codes >> 8 * e);
}

/* Four numbers of Q where attention over fp8 reads them: of each 16 the even ones come first. */
INLINE void write4_turned(u16 *row, u32 at, const float from[4])
{
    u16 *to = row + at / 16 * 16 + at % 16 / 2;
    *(u32 *)to = pack_bf16(from[0], from[2]);
    *(u32 *)(to + 8) = pack_bf16(from[1], from[3]);
}

/* Constants of the kernels: `rounds` of 128 numbers, and `whole`, see vectors.h. */
INLINE void qkv_head(const qkv_args *a, const u32 rounds, const int whole,
                     float *own /* of the warp */)
{
    launch_next();
    const u64 t = BLOCK_X;
    const u32 head = BLOCK_Y * HEADS + WARP, of_k = a->heads + a->kv_heads;
    const int is_q = head < a->heads, is_v = head >= of_k, none = head >= of_k + a->kv_heads;
    const u32 n = none ? 0 : is_v ? a->v_head_dim : a->head_dim;
    const u32 begin = is_v ? of_k * a->head_dim + (head - of_k) * a->v_head_dim
                           : head * a->head_dim;
    const float *norm = is_v ? 0 : is_q ? a->q_norm : a->k_norm;
    if (norm && a->row_scales) norm += (u64)(is_q ? head : head - a->heads) * n;
    const float *table = 0;
    if (a->rope && !is_v) table = a->rope + (u64)a->positions[t] * a->rope_dim;
    const u64 slot = is_q ? 0 : (u32)a->slots[t];
    const u32 turning = table ? a->rope_dim : 0;
    const float warmth = is_q && a->q_factors ? a->q_factors[a->positions[t]] : 1.0f;
    float b[2][4], w[2][4], v[2][4];
    turn turns[2][4];
    UNROLL
    for (u32 i = 0; i < rounds; i++)
        if (4 * LANE + 128 * i < n) {
            if (a->bias) load4(b[i], a->bias + begin, 4 * LANE + 128 * i, n, whole);
            if (norm) load4(w[i], norm, 4 * LANE + 128 * i, n, whole);
            UNROLL
            for (u32 e = 0; e < 4; e++)
                if (4 * LANE + 128 * i + e < turning)
                    turns[i][e] =
                        turn_of(4 * LANE + 128 * i + e, table, a->rope_dim, a->interleaved);
        }

    wait_previous();
    UNROLL
    for (u32 i = 0; i < rounds; i++) {
        const u32 at = 4 * LANE + 128 * i;
        if (at >= n) continue;
        add_parts(v[i], a->y + t * a->ldy + begin, (u64)a->tokens * a->ldy, a->parts, at, n, whole);
        if (a->bias) add4(v[i], b[i]);
        UNROLL
        for (int e = 0; e < 4; e++)
            own[at + e] = v[i][e]; /* wider than any head */
    }
    sync_warp();
    if (norm) {
        const float by = a->row_scales ? a->row_scales[2 * t + !is_q] : head_scale(own, n, a->eps);
        sync_warp();
        UNROLL
        for (u32 i = 0; i < rounds; i++) {
            const u32 at = 4 * LANE + 128 * i;
            if (at >= n) continue;
            UNROLL
            for (int e = 0; e < 4; e++)
                own[at + e] = v[i][e] = v[i][e] * by * w[i][e];
        }
        sync_warp();
    }
    const u64 number = attention_kv_bytes(a->kv);
    u8 *to = is_q   ? (u8 *)(a->q + (t * a->heads + head) * n)
             : is_v ? a->v + slot * a->v_stride + (u64)(head - of_k) * n * number
                    : a->k + slot * a->k_stride + (u64)(head - a->heads) * n * number;
    UNROLL
    for (u32 i = 0; i < rounds; i++) {
        const u32 at = 4 * LANE + 128 * i;
        if (at >= n) continue;
        UNROLL
        for (u32 e = 0; e < 4; e++)
            if (at + e < turning)
                v[i][e] = v[i][e] * turns[i][e].cosine + own[turns[i][e].other] * turns[i][e].sine;
        if (is_q && a->q_factors) {
            UNROLL
            for (int e = 0; e < 4; e++)
                v[i][e] *= warmth;
        }
        if (a->kv == ATTN_KV_BF16)
            write4_bf16((u16 *)to, at, n, whole, v[i]);
        else if (is_q)
            write4_turned((u16 *)to, at, v[i]);
        else
            write4_f8(to, at, n, whole, v[i], a->kv, is_v ? a->v_scale : a->k_scale);
    }
}

INLINE int all_whole(const qkv_args *a)
{
    return (a->head_dim | a->v_head_dim | a->ldy) % 4 == 0 &&
           (a->k_stride | a->v_stride) % 8 == 0 &&
           aligned16((u64)a->y | (u64)a->bias | (u64)a->q_norm | (u64)a->k_norm | (u64)a->q |
                     (u64)a->k | (u64)a->v);
}

KERNEL(qkv, QKV_THREADS, qkv_args) /* heads <= QKV_HEAD_DIM wide */
{
    SHARED float heads[HEADS][QKV_HEAD_DIM];
    if (all_whole(&a))
        qkv_head(&a, 1, 1, heads[WARP]);
    else
        qkv_head(&a, 1, 0, heads[WARP]);
}
KERNEL(qkv_wide, QKV_THREADS, qkv_args)
{
    SHARED float heads[HEADS][QKV_WIDE_HEAD_DIM];
    if (all_whole(&a))
        qkv_head(&a, 2, 1, heads[WARP]);
    else
        qkv_head(&a, 2, 0, heads[WARP]);
}
