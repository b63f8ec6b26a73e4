/* sample.cu - from logits to the token that sampler.c chooses, on many blocks.
 *
 * What is chosen is a place in the vocabulary sorted by (x down, id up), and weights are whole
 * numbers: so it is found by counting, whoever adds first. Keys are |x| in the upper half, whose
 * bits grow with it, and the id in the lower: no two are equal.
 *
 *     rows        [ chunk 0 | chunk 1 | ... ]   a block each; every element is looked at three
 * times last block  of a row to arrive: largest logit, bucket, token */
#include "cuda/kernels/counting.h"
#include "cuda/kernels/glu.h"
#include "cuda/kernels/kernel_args.h"
#include "cuda/kernels/vectors.h"
#include "device/kernels/dialect.h"

/* OWN: numbers of a chunk that a thread has, four by four. SORTED: candidates that are put in
 * order at once. */
enum { OWN = SAMPLE_CHUNK / SAMPLE_THREADS, SORTED = 1024, WARPS = SAMPLE_THREADS / 32 };
#define CUTOFF (-40.0f)

INLINE u32 place(u32 i) /* in its chunk, of the thread's number i */
{
    return i / 4 * (4 * SAMPLE_THREADS) + 4 * THREAD_X + i % 4;
}

/* Numbers of the chunk; NaN behind the vocabulary's end. */
INLINE void read_chunk(float v[OWN], const float *row, u32 vocab)
{
    const u32 first = BLOCK_X * SAMPLE_CHUNK;
    UNROLL
    for (u32 i = 0; i < OWN; i += 4) {
        const u32 at = first + place(i);
        read4(v + i, row, at, vocab, at + 4 <= vocab && aligned16((u64)(row + at)));
        UNROLL
        for (u32 e = 0; e < 4; e++)
            if (at + e >= vocab) v[i + e] = bits_float(0x7fc00000u);
    }
}

/* Whether this block is the row's last; then it sees what the others wrote. */
INLINE int arrives_last(u32 *arrived, u32 *last /* shared */)
{
    SYNC_BLOCK();
    if (THREAD_X == 0) {
        fence_device();
        *last = atomic_add_u32(arrived, 1) == GRID_X - 1;
        if (*last) *arrived = 0;
        fence_device();
    }
    SYNC_BLOCK();
    return (int)*last;
}

INLINE best block_best(best b, best *bests /* shared, [WARPS] */)
{
    b = warp_best(b);
    SYNC_BLOCK();
    if (LANE == 0) bests[WARP] = b;
    SYNC_BLOCK();
    b = bests[0];
    UNROLL
    for (u32 w = 1; w < WARPS; w++)
        b = better(b, bests[w]);
    return b;
}

/* ---- changes, and the largest ---- */

INLINE float penalised(const sample_row *r, float logit, u32 count)
{
    logit -= r->presence_penalty + r->frequency_penalty * (float)count;
    if (r->repetition_penalty == 0) return logit;
    return logit > 0 ? divide(logit, r->repetition_penalty) : logit * r->repetition_penalty;
}

/* Penalties, bias and ids that are held back; all threads come here or none. */
INLINE void change_chunk(const sample_args *a, const sample_row *r, float *own, u32 *counts)
{
    const u32 first = BLOCK_X * SAMPLE_CHUNK;
    const u32 n = a->vocab - first < SAMPLE_CHUNK ? a->vocab - first : SAMPLE_CHUNK;
    if (r->num_output) {
        for (u32 i = THREAD_X; i < n; i += SAMPLE_THREADS)
            counts[i] = 0;
        SYNC_BLOCK();
        for (u32 i = THREAD_X; i < r->num_output; i += SAMPLE_THREADS) {
            const u32 id = (u32)a->ids[r->output_at + i] - first;
            if (id < n) shared_add_u32(counts + id, 1);
        }
        SYNC_BLOCK();
        for (u32 i = THREAD_X; i < n; i += SAMPLE_THREADS)
            if (counts[i]) own[i] = penalised(r, own[i], counts[i]);
    }
    SYNC_BLOCK();
    for (u32 i = THREAD_X; i < r->num_bias; i += SAMPLE_THREADS) { /* no id is there twice */
        const u32 id = (u32)a->ids[r->bias_at + i] - first;
        if (id < n) own[id] += a->bias[r->bias_values_at + i];
    }
    SYNC_BLOCK();
    for (u32 i = THREAD_X; i < r->num_end_ids; i += SAMPLE_THREADS) {
        const u32 id = (u32)a->ids[r->end_ids_at + i] - first;
        if (id < n) a->held[r->end_ids_at + i] = own[id];
    }
    SYNC_BLOCK();
    for (u32 i = THREAD_X; i < r->num_end_ids; i += SAMPLE_THREADS) {
        const u32 id = (u32)a->ids[r->end_ids_at + i] - first;
        if (id < n) own[id] = NEG_INFINITY;
    }
    SYNC_BLOCK();
}

/* The first token that is allowed, of those whose logits are numbers; ~0: none. */
INLINE u32 first_allowed(const sample_args *a, const sample_row *r, best *bests)
{
    const float *logits = a->logits + (u64)r->logits_row * a->ld;
    best b = {1, ~0u};
    for (u32 id = THREAD_X; id < a->vocab && b.id == ~0u; id += SAMPLE_THREADS)
        if (a->masks[r->mask_at + id / 32] >> id % 32 & 1 && logits[id] == logits[id]) b.id = id;
    return block_best(b, bests).id;
}

/* What all chunks' bests come to. */
INLINE void finish_best(const sample_args *a, const sample_row *r, best *bests)
{
    sample_state *state = a->states + BLOCK_Y;
    best b = {0, ~0u};
    for (u32 i = THREAD_X; i < GRID_X; i += SAMPLE_THREADS) {
        const u64 packed = fresh_u64(a->bests + (u64)BLOCK_Y * GRID_X + i);
        const best of = {(u32)(packed >> 32), (u32)packed};
        b = better(b, of);
    }
    b = block_best(b, bests);
    int hopeless = r->mask_at != SAMPLE_NONE && b.order <= ORDER_OF_MINUS_INFINITY;
    if (hopeless && r->num_end_ids) { /* then they may be said; nothing else has a chance */
        best end = {0, ~0u};
        for (u32 i = THREAD_X; i < r->num_end_ids; i += SAMPLE_THREADS) {
            const u32 bits = fresh_u32((const u32 *)(a->held + r->end_ids_at + i));
            const best of = {order_of(bits_float(bits)), (u32)a->ids[r->end_ids_at + i]};
            end = better(end, of);
            a->work[(u64)BLOCK_Y * a->ld + of.id] = bits_float(bits);
        }
        end = block_best(end, bests);
        hopeless = end.order <= ORDER_OF_MINUS_INFINITY;
        if (!hopeless) b = end;
    }
    if (hopeless) b.id = first_allowed(a, r, bests);
    if (THREAD_X) return;
    const int drawn = !hopeless && b.order && !r->greedy;
    state->todo = drawn;
    state->listed = 0;
    state->max = of_order(b.order);
    if (!drawn) a->tokens[BLOCK_Y] = hopeless || b.order ? (i32)b.id : -1;
}

KERNEL(sample_adjust, SAMPLE_THREADS, sample_args)
{
    SHARED float own[SAMPLE_CHUNK];
    SHARED u32 counts[SAMPLE_CHUNK];
    SHARED best bests[WARPS];
    SHARED u32 last;
    launch_next();
    wait_previous();
    const sample_row *r = a.rows + BLOCK_Y;
    if (r->logits_row == SAMPLE_NONE) return;
    const u32 first = BLOCK_X * SAMPLE_CHUNK;
    float v[OWN];
    read_chunk(v, a.logits + (u64)r->logits_row * a.ld, a.vocab);
    if (r->mask_at != SAMPLE_NONE) {
        UNROLL
        for (u32 i = 0; i < OWN; i += 4) {
            const u32 at = first + place(i);
            const u32 bits = at < a.vocab ? a.masks[r->mask_at + at / 32] >> at % 32 : 0;
            UNROLL
            for (u32 e = 0; e < 4; e++)
                if (!(bits >> e & 1) && at + e < a.vocab) v[i + e] = NEG_INFINITY;
        }
    }
    const int changes = r->num_output || r->num_bias || r->num_end_ids;
    if (changes) {
        UNROLL
        for (u32 i = 0; i < OWN; i++)
            own[place(i)] = v[i];
        SYNC_BLOCK();
        change_chunk(&a, r, own, counts);
        UNROLL
        for (u32 i = 0; i < OWN; i++)
            v[i] = own[place(i)];
    }
    if (!r->greedy && (changes || r->mask_at != SAMPLE_NONE)) {
        float *work = a.work + (u64)BLOCK_Y * a.ld;
        UNROLL
        for (u32 i = 0; i < OWN; i += 4) {
            const u32 at = first + place(i);
            write4(work, at, a.vocab, at + 4 <= a.vocab && aligned16((u64)(work + at)), v + i);
        }
    }
    best b = {0, ~0u};
    UNROLL
    for (u32 i = 0; i < OWN; i++) {
        const best of = {order_of(v[i]), first + place(i)};
        if (of.order > b.order) b = of; /* ids ascend */
    }
    b = block_best(b, bests);
    if (THREAD_X == 0) a.bests[(u64)BLOCK_Y * GRID_X + BLOCK_X] = (u64)b.order << 32 | b.id;
    if (arrives_last(&a.states[BLOCK_Y].arrived, &last)) finish_best(&a, r, bests);
}

/* ---- x and weights ---- */

INLINE const float *drawn_from(const sample_args *a, const sample_row *r)
{
    const int changed = r->num_output || r->num_bias || r->num_end_ids || r->mask_at != SAMPLE_NONE;
    return changed ? a->work + (u64)BLOCK_Y * a->ld : a->logits + (u64)r->logits_row * a->ld;
}
INLINE float x_of(const sample_row *r, float logit, float max)
{
    return logit == max ? 0.0f : divide(logit - max, r->temperature);
}
INLINE int filtered(const sample_row *r)
{
    return r->top_k || r->top_p;
}
INLINE float floor_of(const sample_row *r) /* of what takes part at all */
{
    return filtered(r) ? CUTOFF : r->least;
}
INLINE u64 weight_of(const sample_row *r, float x)
{
    return (u64)(exp_clamped(x) * r->unit);
}
INLINE u32 bucket_of(float x) /* x in [CUTOFF, 0] */
{
    return (u32)(x * ((SAMPLE_BUCKETS - 1) / CUTOFF));
}

/* ---- the bucket ---- */

/* The row's choice ends in the bucket that brings the sum to `want`. Weights of the whole, or
 * counts for top_k; candidates will be listed from bucket `from` on, and `want` is counted from
 * there. */
INLINE void finish_count(const sample_args *a, const sample_row *r, u64 *warp_sums)
{
    enum { EACH = SAMPLE_BUCKETS / SAMPLE_THREADS };
    sample_state *state = a->states + BLOCK_Y;
    u64 *masses = a->masses + (u64)BLOCK_Y * SAMPLE_BUCKETS + THREAD_X * EACH;
    u32 *counts = a->counts + (u64)BLOCK_Y * SAMPLE_BUCKETS + THREAD_X * EACH;
    u64 each[EACH], sum = 0;
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        each[i] = r->top_k ? fresh_u32(counts + i) : fresh_u64(masses + i);
        sum += each[i];
        masses[i] = 0;
        counts[i] = 0;
    }
    const u64 until = block_scan(sum, warp_sums);
    SYNC_BLOCK();
    if (THREAD_X == SAMPLE_THREADS - 1) warp_sums[0] = until;
    SYNC_BLOCK();
    const u64 all = warp_sums[0];
    u64 want = r->top_k   ? (r->top_k < all ? r->top_k : all)
               : r->top_p ? share_of(r->top_p, all)
                          : upper_product(r->random, all) + 1;
    u64 before = until - sum;
    UNROLL
    for (u32 i = 0; i < EACH; i++) {
        if (before < want && want <= before + each[i]) {
            const u32 bucket = THREAD_X * EACH + i;
            state->bucket = bucket;
            state->from = filtered(r) ? 0 : bucket;
            state->want = filtered(r) ? want : want - before;
        }
        before += each[i];
    }
}

KERNEL(sample_count, SAMPLE_THREADS, sample_args)
{
    SHARED u64 masses[SAMPLE_BUCKETS];
    SHARED u32 counts[SAMPLE_BUCKETS];
    SHARED u64 warp_sums[WARPS];
    SHARED u32 last;
    launch_next();
    wait_previous();
    const sample_row *r = a.rows + BLOCK_Y;
    if (r->logits_row == SAMPLE_NONE || !a.states[BLOCK_Y].todo) return;
    float v[OWN];
    read_chunk(v, drawn_from(&a, r), a.vocab);
    for (u32 i = THREAD_X; i < SAMPLE_BUCKETS; i += SAMPLE_THREADS)
        masses[i] = counts[i] = 0;
    SYNC_BLOCK();
    const float max = a.states[BLOCK_Y].max, least = floor_of(r);
    UNROLL
    for (u32 i = 0; i < OWN; i++) {
        const float x = x_of(r, v[i], max);
        if (!(x >= least)) continue;
        const u32 b = bucket_of(x);
        if (r->top_k)
            shared_add_u32(counts + b, 1);
        else
            shared_add_u64(masses + b, weight_of(r, x));
    }
    SYNC_BLOCK();
    for (u32 i = THREAD_X; i < SAMPLE_BUCKETS; i += SAMPLE_THREADS) {
        if (masses[i]) global_add_u64(a.masses + (u64)BLOCK_Y * SAMPLE_BUCKETS + i, masses[i]);
        if (counts[i]) atomic_add_u32(a.counts + (u64)BLOCK_Y * SAMPLE_BUCKETS + i, counts[i]);
    }
    if (arrives_last(&a.states[BLOCK_Y].arrived, &last)) finish_count(&a, r, warp_sums);
}

/* ---- the token ---- */

typedef struct chooser { /* shared */
    u64 keys[SORTED];
    u64 sums[SORTED]; /* of weights of the keys until there; digits of a range, while it is cut */
    u64 warp_sums[WARPS];
    best bests[WARPS];
    u64 end, mass, before_mass;
    u32 last, listed, before_count, in_range, digit;
} chooser;

typedef struct candidates {
    const sample_row *row;
    const float *logits;
    const u32 *list;
    u32 count;
    float max;
} candidates;

INLINE u64 key_at(const candidates *c, u32 i)
{
    const u32 id = fresh_u32(c->list + i);
    const float x = x_of(c->row, c->logits[id], c->max);
    return (u64)(float_bits(x) & 0x7fffffffu) << 32 | id;
}
INLINE float x_of_key(u64 key)
{
    return -bits_float((u32)(key >> 32));
}
/* The first bits of a key, 8 * (8 - digits behind them). */
INLINE int in_range(u64 key, u64 range, u32 behind)
{
    return behind == 64 || key >> behind == range;
}

/* Bitonic, ascending; n a power of two. */
INLINE void sort_keys(u64 *keys, u32 n)
{
    for (u32 run = 2; run <= n; run *= 2)
        for (u32 apart = run / 2; apart; apart /= 2) {
            SYNC_BLOCK();
            for (u32 i = THREAD_X; i < n / 2; i += SAMPLE_THREADS) {
                const u32 low = 2 * i - (i & (apart - 1)), high = low + apart;
                const u64 l = keys[low], h = keys[high];
                if ((l > h) == !(low & run)) keys[low] = h, keys[high] = l;
            }
        }
    SYNC_BLOCK();
}

/* Digits of 8 bits until no more than SORTED keys are left in which the sum reaches `want`. What
 * comes before them is counted in the chooser. */
INLINE u64 cut_range(const candidates *c, chooser *s, int by_mass, u64 want, u32 *behind)
{
    u64 range = 0;
    u64 *masses = s->sums, *counts = s->sums + 256;
    while (s->in_range > SORTED) {
        masses[THREAD_X] = counts[THREAD_X] = 0;
        SYNC_BLOCK();
        for (u32 i = THREAD_X; i < c->count; i += SAMPLE_THREADS) {
            const u64 key = key_at(c, i);
            if (!in_range(key, range, *behind)) continue;
            const u32 digit = (u32)(key >> (*behind - 8)) & 255;
            shared_add_u64(counts + digit, 1);
            shared_add_u64(masses + digit, weight_of(c->row, x_of_key(key)));
        }
        SYNC_BLOCK();
        const u64 mass = masses[THREAD_X], count = counts[THREAD_X];
        const u64 mass_until = s->before_mass + block_scan(mass, s->warp_sums);
        const u64 count_until = s->before_count + block_scan(count, s->warp_sums);
        const u64 until = by_mass ? mass_until : count_until, own = by_mass ? mass : count;
        SYNC_BLOCK(); /* all have read what came before */
        if (until - own < want && want <= until) {
            s->digit = THREAD_X;
            s->in_range = (u32)count;
            s->before_mass = mass_until - mass;
            s->before_count = (u32)(count_until - count);
        }
        SYNC_BLOCK();
        range = range << 8 | s->digit;
        *behind -= 8;
    }
    return range;
}

/* Finds the key that brings the sum of weights, or the count, to `want` (which is not more than
 * all of them have): s->end, and s->mass of all until there. */
INLINE void find_end(const candidates *c, chooser *s, int by_mass, u64 want, int *sorted)
{
    enum { EACH = SORTED / SAMPLE_THREADS };
    if (!*sorted) {
        u32 behind = 64;
        SYNC_BLOCK();
        if (THREAD_X == 0) {
            s->in_range = c->count;
            s->before_mass = s->before_count = s->listed = 0;
        }
        SYNC_BLOCK();
        const u64 range = cut_range(c, s, by_mass, want, &behind);
        u32 n = 32;
        while (n < s->in_range)
            n *= 2;
        for (u32 i = THREAD_X; i < SORTED; i += SAMPLE_THREADS)
            s->keys[i] = ~0ull;
        SYNC_BLOCK();
        for (u32 i = THREAD_X; i < c->count; i += SAMPLE_THREADS) {
            const u64 key = key_at(c, i);
            if (in_range(key, range, behind)) s->keys[shared_add_u32(&s->listed, 1)] = key;
        }
        sort_keys(s->keys, n);
        u64 each[EACH], sum = 0;
        UNROLL
        for (u32 i = 0; i < EACH; i++) {
            const u32 at = THREAD_X * EACH + i;
            if (at < s->in_range) sum += weight_of(c->row, x_of_key(s->keys[at]));
            each[i] = sum;
        }
        const u64 before = block_scan(sum, s->warp_sums) - sum + s->before_mass;
        UNROLL
        for (u32 i = 0; i < EACH; i++)
            s->sums[THREAD_X * EACH + i] = before + each[i];
        *sorted = c->count <= SORTED; /* all of them: they serve again */
    }
    SYNC_BLOCK();
    for (u32 i = THREAD_X; i < s->in_range; i += SAMPLE_THREADS) {
        const u64 until = by_mass ? s->sums[i] : s->before_count + i + 1;
        const u64 before = !by_mass ? until - 1 : i ? s->sums[i - 1] : s->before_mass;
        if (before < want && want <= until) {
            s->end = s->keys[i];
            s->mass = s->sums[i];
        }
    }
    SYNC_BLOCK();
}

/* The weight of candidates whose x is at least `least`. */
INLINE u64 mass_from(const candidates *c, chooser *s, float least)
{
    u64 sum = 0;
    for (u32 i = THREAD_X; i < c->count; i += SAMPLE_THREADS) {
        const float x = x_of_key(key_at(c, i));
        if (x >= least) sum += weight_of(c->row, x);
    }
    sum = block_scan(sum, s->warp_sums);
    SYNC_BLOCK();
    if (THREAD_X == SAMPLE_THREADS - 1) s->mass = sum;
    SYNC_BLOCK();
    return s->mass;
}

INLINE void finish_choice(const candidates *c, chooser *s, u64 want)
{
    const sample_row *r = c->row;
    int sorted = 0;
    enum { BY_TOP_K, BY_TOP_P, DRAW };
    for (int step = BY_TOP_K; step <= DRAW; step++) { /* one text of find_end serves all */
        if (step == BY_TOP_K && !r->top_k) continue;
        if (step == BY_TOP_P && !r->top_p) continue;
        if (step == BY_TOP_P && r->top_k) want = share_of(r->top_p, s->mass);
        if (step == DRAW && filtered(r)) {
            u64 mass = s->mass;
            if (x_of_key(s->end) < r->least) mass = mass_from(c, s, r->least);
            want = upper_product(r->random, mass) + 1;
        }
        find_end(c, s, step != BY_TOP_K, want, &sorted);
    }
}

/* ptxas would keep it to 32 registers, for 8 blocks on a multiprocessor, and spill. */
KERNEL_ALONE(sample_choose, SAMPLE_THREADS, sample_args)
{
    SHARED chooser s;
    launch_next();
    wait_previous();
    const sample_row *r = a.rows + BLOCK_Y;
    sample_state *state = a.states + BLOCK_Y;
    if (r->logits_row == SAMPLE_NONE || !state->todo) return;
    float v[OWN];
    candidates c = {r, drawn_from(&a, r), a.list + (u64)BLOCK_Y * a.vocab, 0, state->max};
    read_chunk(v, c.logits, a.vocab);
    if (THREAD_X == 0) s.listed = 0;
    SYNC_BLOCK();
    const float least = floor_of(r);
    const u32 from = state->from, bucket = state->bucket;
    u32 ours = 0, at = 0;
    UNROLL
    for (u32 i = 0; i < OWN; i++) {
        const float x = x_of(r, v[i], c.max);
        if (!(x >= least)) continue;
        const u32 b = bucket_of(x);
        if (b >= from && b <= bucket) ours |= 1u << i;
    }
    UNROLL
    for (u32 i = 0; i < OWN; i++)
        at += ours >> i & 1;
    if (at) at = shared_add_u32(&s.listed, at);
    SYNC_BLOCK();
    if (THREAD_X == 0 && s.listed) s.in_range = atomic_add_u32(&state->listed, s.listed);
    SYNC_BLOCK();
    if (ours) at += s.in_range;
    UNROLL
    for (u32 i = 0; i < OWN; i++)
        if (ours >> i & 1)
            a.list[(u64)BLOCK_Y * a.vocab + at++] = BLOCK_X * SAMPLE_CHUNK + place(i);
    if (!arrives_last(&state->arrived, &s.last)) return;
    c.count = fresh_u32(&state->listed);
    finish_choice(&c, &s, state->want);
    if (THREAD_X == 0) a.tokens[BLOCK_Y] = (i32)(u32)s.end;
}
