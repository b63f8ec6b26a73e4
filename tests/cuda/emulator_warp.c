/* emulator_warp.c - what a thread does by itself, and what the lanes of a warp do together.
 *
 * A lane leaves with pointers to what it brings and wants, which lie on its own stack. When all 32
 * stand at one meeting, the scheduler does for all of them what the instruction does. */
#include "emulator_impl.h"

#include <stdio.h>

static const char *const kind_names[] = {
    "runs",          "sync_warp",        "a shuffle",
    "ballot",        "load_matrix4",     "load_matrix4_transposed",
    "mma_bf16",      "mma_i8",           "warpgroup_fence",
    "warpgroup_mma", "warpgroup_commit", "WARPGROUP_WAIT",
    "barrier_wait",  "wait_previous",    "SYNC_BLOCK",
    "has ended"};

/* ---- a thread ---- */

static bool aligned16(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

/* Static shared memory is known in builds without ASan only. */
bool is_shared(const void *p)
{
    const char *at = p;
    const scheduler *s = emulated;
    if (at >= s->dynamic_shared && at < s->dynamic_shared + s->shared_bytes) return true;
    return !s->kernel->shared_begin ||
           (at >= s->kernel->shared_begin && at < s->kernel->shared_end);
}

void emulated_sync_block(const char *where)
{
    meet(&(meeting){.kind = MEET_BLOCK, .where = where});
}

void emulated_sync_warp(const char *where)
{
    meet(&(meeting){.kind = MEET_WARP, .where = where});
}

u32 emulated_shuffle(u32 v, u32 lane, const char *where)
{
    u32 result;
    meet(&(meeting){
        .kind = MEET_SHUFFLE, .where = where, .value = v, .lane = lane % LANES, .result = &result});
    return result;
}

u32 emulated_ballot(int predicate, const char *where)
{
    u32 result;
    meet(&(meeting){
        .kind = MEET_BALLOT, .where = where, .value = predicate != 0, .result = &result});
    return result;
}

void emulated_load_matrix4(u32 r[4], const void *row, int transposed, const char *where)
{
    if (!aligned16(row)) give_up(where, "a row of a matrix is not aligned to 16 bytes");
    if (!is_shared(row)) give_up(where, "a row of a matrix is not in shared memory");
    meet(&(meeting){.kind = transposed ? MEET_LOAD_MATRIX_TRANSPOSED : MEET_LOAD_MATRIX,
                    .where = where,
                    .result = r,
                    .a = row});
}

void emulated_mma_bf16(float d[4], const u32 a[4], const u32 b[2], const char *where)
{
    meet(&(meeting){.kind = MEET_MMA_BF16, .where = where, .result = d, .a = a, .b = b});
}

void emulated_mma_i8(i32 d[4], const u32 a[4], const u32 b[2], const char *where)
{
    meet(&(meeting){.kind = MEET_MMA_I8, .where = where, .result = d, .a = a, .b = b});
}

void emulated_load16(u32 to[4], const void *from, const char *where)
{
    if (!aligned16(from)) give_up(where, "16 bytes are read at an address that is not aligned");
    /* Also behind wait_previous: ld.global.nc is for what nobody writes while the kernel runs. */
    if (is_written_before(from, 16))
        give_up(where, "load16 reads what a kernel has written that this one may run beside");
    memcpy(to, from, 16);
}

void emulated_copy16_async(void *shared, const void *global, int yes, const char *where)
{
    static const u32 zeros[4] __attribute__((aligned(16)));
    thread_copies *c = &emulated->copies[THREAD_X];
    if (!yes) global = zeros;
    if (!aligned16(shared) || !aligned16(global))
        give_up(where, "a copy of 16 bytes is not aligned");
    if (!is_shared(shared)) give_up(where, "a copy does not go to shared memory");
    if (c->num_copies == MOST_COPIES) give_up(where, "too many copies are under way");
    memset(shared, 0xa5, 16);
    copy *made = &c->copies[c->num_copies++];
    *made = (copy){.to = shared, .from = global};
    if (emulated->fresh) { /* what is not there yet may be read now as well as later */
        memcpy(made->early, global, 16);
        made->from = NULL;
    }
}

void emulated_copy_commit(const char *where)
{
    thread_copies *c = &emulated->copies[THREAD_X];
    if (c->num_groups == MOST_COPIES)
        give_up(where, "too many groups of copies are not waited for");
    c->group_end[c->num_groups++] = c->num_copies;
}

/* All but the last `groups` land. */
void emulated_copy_wait(u32 groups)
{
    thread_copies *c = &emulated->copies[THREAD_X];
    if (c->num_groups <= groups) return;
    u32 landing = c->num_groups - groups, copies = c->group_end[landing - 1];
    for (u32 i = 0; i < copies; i++)
        memcpy(c->copies[i].to, c->copies[i].from ? c->copies[i].from : c->copies[i].early, 16);
    c->num_copies -= copies;
    c->num_groups = groups;
    memmove(c->copies, c->copies + copies, c->num_copies * sizeof *c->copies);
    for (u32 i = 0; i < groups; i++)
        c->group_end[i] = c->group_end[landing + i] - copies;
}

void emulated_wait_previous(const char *where)
{
    emulated->waits_for_previous++;
    if (emulated->fresh) meet(&(meeting){.kind = MEET_PREVIOUS, .where = where});
}

/* ---- a warp ---- */

static void shuffle(const fiber *warp)
{
    for (u32 lane = 0; lane < LANES; lane++)
        *(u32 *)warp[lane].at.result = warp[warp[lane].at.lane].at.value;
}

static void vote(const fiber *warp)
{
    u32 all = 0;
    for (u32 lane = 0; lane < LANES; lane++)
        all |= warp[lane].at.value << lane;
    for (u32 lane = 0; lane < LANES; lane++)
        *(u32 *)warp[lane].at.result = all;
}

/* Lane 8 i + r points to row r of matrix i; each lane gets two neighbours of each matrix. */
static void load_matrices(const fiber *warp, bool transposed)
{
    u16 rows[4][8][8];
    for (u32 lane = 0; lane < LANES; lane++)
        memcpy(rows[lane / 8][lane % 8], warp[lane].at.a, 16);
    for (u32 lane = 0; lane < LANES; lane++) {
        u32 *r = warp[lane].at.result, row = lane / 4, column = lane % 4 * 2;
        for (u32 i = 0; i < 4; i++)
            r[i] = transposed ? rows[i][column][row] | (u32)rows[i][column + 1][row] << 16
                              : rows[i][row][column] | (u32)rows[i][row][column + 1] << 16;
    }
}

/* Registers to matrices. Lane l has rows l/4 and l/4 + 8 of a, column l/4 of b; of k the 4 bytes at
 * l%4 and, in the upper registers, those 16 bytes further. */
static void gather(const fiber *warp, char a[16][32], char b[8][32])
{
    for (u32 lane = 0; lane < LANES; lane++) {
        const u32 *from_a = warp[lane].at.a, *from_b = warp[lane].at.b;
        for (u32 i = 0; i < 4; i++)
            memcpy(a[lane / 4 + i % 2 * 8] + lane % 4 * 4 + i / 2 * 16, &from_a[i], 4);
        for (u32 i = 0; i < 2; i++)
            memcpy(b[lane / 4] + lane % 4 * 4 + i * 16, &from_b[i], 4);
    }
}

/* Of lane l: rows l/4 and l/4 + 8, columns 2 (l%4) and the next. */
void gather_sums(float *const *registers, u32 at, u32 d[16][8])
{
    for (u32 lane = 0; lane < LANES; lane++)
        for (u32 i = 0; i < 2; i++)
            memcpy(&d[lane / 4 + i * 8][lane % 4 * 2], registers[lane] + at + i * 2, 8);
}

void scatter_sums(float *const *registers, u32 at, const u32 d[16][8])
{
    for (u32 lane = 0; lane < LANES; lane++)
        for (u32 i = 0; i < 2; i++)
            memcpy(registers[lane] + at + i * 2, &d[lane / 4 + i * 8][lane % 4 * 2], 8);
}

static void multiply(const fiber *warp, bool integers)
{
    union {
        char bytes[16][32];
        u16 bf16[16][16];
        i8 i8[16][32];
    } a;
    union {
        char bytes[8][32];
        u16 bf16[8][16];
        i8 i8[8][32];
    } b;
    union {
        u32 bits[16][8];
        float f32[16][8];
        i32 i32[16][8];
    } d;
    float *registers[LANES];
    for (u32 lane = 0; lane < LANES; lane++)
        registers[lane] = warp[lane].at.result;
    gather(warp, a.bytes, b.bytes);
    gather_sums(registers, 0, d.bits);
    if (integers)
        tensor_core_i8(d.i32, a.i8, b.i8);
    else
        tensor_core_bf16(emulated->model, d.f32, a.bf16, b.bf16);
    scatter_sums(registers, 0, d.bits);
}

/* ---- meetings ---- */

bool same_place(const char *x, const char *y)
{
    return x == y || strcmp(x, y) == 0;
}

const char *describe_meeting(char to[256], const meeting *at)
{
    if (at->kind == MEET_ENDED) return "has ended";
    (void)snprintf(to, 256, "waits in %s at %s", kind_names[at->kind], at->where);
    return to;
}

/* Whether all lanes wait for one another; complains where they never will. */
static bool warp_is_together(u32 w)
{
    const fiber *warp = &emulated->fibers[w * LANES];
    const meeting *first = &warp[0].at;
    /* Somebody waits for more than this warp: the end of all waiting tells whether that ends. */
    for (u32 lane = 0; lane < LANES; lane++)
        if (warp[lane].at.kind >= MEET_BARRIER && warp[lane].at.kind <= MEET_BLOCK) return false;
    for (u32 lane = 1; lane < LANES; lane++) {
        const meeting *at = &warp[lane].at;
        char one[256], other[256];
        if (at->kind == first->kind &&
            (at->kind == MEET_ENDED || same_place(at->where, first->where)))
            continue;
        note_failure("warp %u: its lanes diverge: lane 0 %s, lane %u %s", w,
                     describe_meeting(one, first), lane, describe_meeting(other, at));
        return false;
    }
    return first->kind != MEET_ENDED;
}

void meet_warp(u32 w)
{
    if (!warp_is_together(w)) return;
    fiber *warp = &emulated->fibers[w * LANES];
    switch (warp->at.kind) {
    case MEET_SHUFFLE: shuffle(warp); break;
    case MEET_BALLOT: vote(warp); break;
    case MEET_LOAD_MATRIX: load_matrices(warp, false); break;
    case MEET_LOAD_MATRIX_TRANSPOSED: load_matrices(warp, true); break;
    case MEET_MMA_BF16:
        multiply(warp, false);
        emulated->rounded = true;
        break;
    case MEET_MMA_I8: multiply(warp, true); break;
    case MEET_WARPGROUP_FENCE:
    case MEET_WARPGROUP_MMA:
    case MEET_WARPGROUP_COMMIT:
    case MEET_WARPGROUP_WAIT: hopper_meet(w); break;
    default: break;
    }
    for (u32 lane = 0; lane < LANES; lane++)
        warp[lane].at.kind = MEET_NOBODY;
    emulated->ready[w] = LANES;
}
