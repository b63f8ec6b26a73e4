/* emulator_hopper.c - what sm_90 adds: barriers that count bytes, bulk copies, wgmma.
 *
 * All that goes on by itself ends as late as it may. A box lands when every thread waits; until
 * then its place is 0xa5. A warp's part of a wgmma, 16 of the 64 rows, is computed in the
 * WARPGROUP_WAIT that covers it; its registers are garbage until then, and operands that have
 * changed since it began end the launch. Addresses of shared memory in descriptors are offsets in
 * the dynamic one. */
#include "emulator_impl.h"

#include <stdlib.h>

enum { BOX_COLUMNS = 64, BOX_ROW_BYTES = 128 };

/* ---- barriers ---- */

static barrier *find_barrier(const u64 *at, const char *where)
{
    for (u32 i = 0; i < emulated->num_barriers; i++)
        if (emulated->barriers[i].at == at) return &emulated->barriers[i];
    give_up(where, "the barrier was not initialized");
    return NULL;
}

/* A phase that has ended lets those go on that wait for its parity. */
static void check_phase(barrier *b)
{
    if (b->missing || b->bytes) return;
    u32 ended = b->parity;
    b->parity ^= 1;
    b->missing = b->arrivals;
    for (u32 t = 0; t < emulated->threads; t++) {
        const meeting *at = &emulated->fibers[t].at;
        if (at->kind == MEET_BARRIER && at->a == b && at->value == ended) resume(t);
    }
}

void emulated_barrier_init(u64 *at, u32 arrivals, const char *where)
{
    barrier *b = NULL;
    for (u32 i = 0; i < emulated->num_barriers; i++)
        if (emulated->barriers[i].at == at) b = &emulated->barriers[i];
    if (!b && emulated->num_barriers == MOST_BARRIERS) give_up(where, "too many barriers");
    if (!is_shared(at)) give_up(where, "a barrier is not in shared memory");
    if (!arrivals) give_up(where, "a barrier of no arrivals");
    if (!b) b = &emulated->barriers[emulated->num_barriers++];
    *b = (barrier){.at = at, .arrivals = arrivals, .missing = arrivals};
}

/* Of `bytes` that are to come before the phase ends, too. */
void emulated_barrier_arrive(u64 *at, u32 bytes, const char *where)
{
    barrier *b = find_barrier(at, where);
    if (!b->missing) give_up(where, "more arrivals at a barrier than it counts");
    b->missing--;
    b->bytes += (i32)bytes;
    check_phase(b);
}

void emulated_barrier_wait(u64 *at, u32 parity, const char *where)
{
    barrier *b = find_barrier(at, where);
    if (b->parity == (parity & 1))
        meet(&(meeting){.kind = MEET_BARRIER, .where = where, .value = parity & 1, .a = b});
}

/* ---- bulk copies ---- */

typedef struct matrix_map { /* what a tensor map is here */
    u64 magic;
    const char *memory;
    u64 columns, rows, stride;
    u32 box_columns, box_rows;
} matrix_map;

static const u64 map_magic = 0x70616d78697274;

bool emulator_tensor_map(void *map, const void *memory, uint64_t columns, uint64_t rows,
                         uint64_t stride, uint32_t box_columns, uint32_t box_rows)
{
    matrix_map made = {map_magic, memory, columns, rows, stride, box_columns, box_rows};
    if ((uintptr_t)memory % 16 || stride % 16 || stride < columns * 2 || !columns || !rows ||
        columns > UINT32_MAX || rows > UINT32_MAX || box_columns != BOX_COLUMNS || !box_rows ||
        box_rows > 256 || (uintptr_t)map % 64)
        return false;
    memset(map, 0, 128);
    memcpy(map, &made, sizeof made);
    return true;
}

void emulated_copy_box(void *shared, u64 map, u32 x, u32 y, u64 *at, const char *where)
{
    const matrix_map *m = (const matrix_map *)(uintptr_t)map;
    barrier *done = find_barrier(at, where);
    if (m->magic != map_magic) give_up(where, "what a copy goes by is no tensor map");
    u32 bytes = m->box_rows * BOX_ROW_BYTES;
    const char *base = emulated->dynamic_shared;
    if ((char *)shared < base || (char *)shared + bytes > base + emulated->shared_bytes)
        give_up(where, "a box does not go to dynamic shared memory");
    if (((char *)shared - base) % 1024) give_up(where, "a box is not aligned to 1024 bytes");
    if (emulated->num_boxes == MOST_BOXES) give_up(where, "too many boxes are under way");
    memset(shared, 0xa5, bytes);
    emulated->boxes[emulated->num_boxes++] = (box_copy){.to = shared,
                                                        .from = m->memory,
                                                        .stride = m->stride,
                                                        .x = (i32)x,
                                                        .y = (i32)y,
                                                        .columns = (u32)m->columns,
                                                        .rows = (u32)m->rows,
                                                        .box_rows = m->box_rows,
                                                        .done = done,
                                                        .where = where};
}

/* 16-byte piece c of row r lies at 128 r + 16 (c ^ r % 8). */
static void land(const box_copy *box)
{
    for (u32 r = 0; r < box->box_rows; r++)
        for (u32 c = 0; c < 8; c++) {
            u16 piece[8] = {0};
            int64_t row = (int64_t)box->y + r;
            for (u32 i = 0; i < 8; i++) {
                int64_t column = (int64_t)box->x + c * 8 + i;
                if (row >= 0 && row < box->rows && column >= 0 && column < box->columns)
                    memcpy(&piece[i], box->from + (u64)row * box->stride + column * 2, 2);
            }
            memcpy(box->to + r * BOX_ROW_BYTES + (c ^ r % 8) * 16, piece, 16);
        }
    box->done->bytes -= (i32)(box->box_rows * BOX_ROW_BYTES);
    check_phase(box->done);
}

bool hopper_land_box(void)
{
    u32 count = emulated->num_boxes;
    if (!count) return false;
    u32 i = emulated->order == 0 ? 0 : emulated->order == 1 ? count - 1 : random_below(count);
    box_copy box = emulated->boxes[i];
    memmove(&emulated->boxes[i], &emulated->boxes[i + 1], (count - 1 - i) * sizeof box);
    emulated->num_boxes--;
    land(&box);
    return true;
}

/* ---- wgmma ---- */

void emulated_warpgroup_meet(u32 kind, u32 value, const char *where)
{
    static const meeting_kind kinds[] = {MEET_WARPGROUP_FENCE, MEET_WARPGROUP_COMMIT,
                                         MEET_WARPGROUP_WAIT};
    meet(&(meeting){.kind = kinds[kind], .where = where, .value = value});
}

void emulated_warpgroup_mma(u32 n, float *d, u64 a, u64 b, u32 accumulate, const char *where)
{
    if (n % 8 || !n || n > 256) give_up(where, "wgmma takes 8, 16, ... 256 columns");
    u64 descriptors[2] = {a, b};
    meet(&(meeting){.kind = MEET_WARPGROUP_MMA,
                    .where = where,
                    .value = n,
                    .lane = accumulate != 0,
                    .result = d,
                    .a = descriptors});
}

/* 16 numbers of row r of an operand: the swizzle takes the address with all offsets added. */
static const char *operand_piece(u64 descriptor, u32 row, u32 piece)
{
    u64 at = (descriptor & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
    at += row / 8 * stride + row % 8 * BOX_ROW_BYTES + piece * 16;
    at ^= at >> 3 & 0x70;
    if (at + 16 > emulated->shared_bytes || descriptor >> 62 != 1) return NULL;
    return emulated->dynamic_shared + at;
}

static bool load_operand(u64 descriptor, u32 first, u32 rows, u16 (*to)[16])
{
    for (u32 r = 0; r < rows; r++)
        for (u32 piece = 0; piece < 2; piece++) {
            const char *from = operand_piece(descriptor, first + r, piece);
            if (!from) return false;
            memcpy(&to[r][piece * 8], from, 16);
        }
    return true;
}

/* Loads both operands of a warp's part; false: they are not in shared memory as they should be. */
static bool load_operands(const product *p, u32 w, u16 a[16][16], u16 b[256][16], u64 *digest)
{
    if (!load_operand(p->a, w % 4 * 16, 16, a) || !load_operand(p->b, 0, p->n, b)) return false;
    *digest = 14695981039346656037u;
    for (u32 i = 0; i < 16 * 4; i++)
        *digest = (*digest ^ ((const u64 *)(const void *)a)[i]) * 1099511628211u;
    for (u32 i = 0; i < p->n * 4; i++)
        *digest = (*digest ^ ((const u64 *)(const void *)b)[i]) * 1099511628211u;
    return true;
}

static void begin_product(u32 w)
{
    const fiber *warp = &emulated->fibers[w * LANES];
    const meeting *at = &warp->at;
    warp_products *all = &emulated->wgmma[w];
    if (!all->fenced) note_failure("no warpgroup_fence before %s", at->where);
    if (all->num_products == MOST_PRODUCTS) note_failure("too much wgmma under way, %s", at->where);
    if (emulated->failed) return;
    const u64 *descriptors = at->a;
    product *p = &all->products[all->num_products];
    *p = (product){.n = at->value,
                   .accumulate = at->lane,
                   .a = descriptors[0],
                   .b = descriptors[1],
                   .where = at->where};
    for (u32 lane = 1; lane < LANES; lane++) {
        const meeting *other = &warp[lane].at;
        if (other->value != p->n || other->lane != p->accumulate ||
            memcmp(other->a, descriptors, 2 * sizeof *descriptors) != 0)
            note_failure("lanes of warp %u differ in operands of %s", w, at->where);
    }
    u16 a[16][16] __attribute__((aligned(8))), b[256][16] __attribute__((aligned(8)));
    if (!load_operands(p, w, a, b, &p->digest))
        note_failure("an operand of %s is not in shared memory in rows of 128 bytes", at->where);
    for (u32 i = 0; i < all->num_products && !p->to; i++)
        if (all->products[i].to->d[0] == at->result) p->to = all->products[i].to;
    if (!p->to) {
        p->to = calloc(1, sizeof *p->to);
        if (!p->to) abort();
        p->to->n = p->n;
        for (u32 lane = 0; lane < LANES; lane++) {
            p->to->d[lane] = warp[lane].at.result;
            memcpy(p->to->values[lane], p->to->d[lane], p->n / 2 * sizeof(float));
            memset(p->to->d[lane], 0xa5, p->n / 2 * sizeof(float));
        }
    }
    if (p->to->n != p->n) note_failure("one register in products of two shapes, %s", at->where);
    p->to->products++;
    all->num_products++;
}

static void end_product(u32 w, const product *p)
{
    u16 a[16][16] __attribute__((aligned(8))), b[256][16] __attribute__((aligned(8)));
    u64 digest = 0;
    if (!load_operands(p, w, a, b, &digest) || digest != p->digest)
        note_failure("shared memory changed under %s of warp %u", p->where, w);
    float *registers[LANES];
    for (u32 lane = 0; lane < LANES; lane++)
        registers[lane] = p->to->values[lane];
    for (u32 tile = 0; tile < p->n / 8; tile++) {
        union {
            u32 bits[16][8];
            float f32[16][8];
        } d = {{{0}}};
        if (p->accumulate) gather_sums(registers, tile * 4, d.bits);
        tensor_core_bf16(emulated->model, d.f32, a, b + tile * 8);
        emulated->rounded = true;
        scatter_sums(registers, tile * 4, d.bits);
    }
    if (--p->to->products) return;
    for (u32 lane = 0; lane < LANES; lane++)
        memcpy(p->to->d[lane], p->to->values[lane], p->n / 2 * sizeof(float));
    free(p->to);
}

static void end_groups(u32 w, u32 but)
{
    warp_products *all = &emulated->wgmma[w];
    if (all->num_groups <= but) return;
    u32 ending = all->num_groups - but, products = all->group_end[ending - 1];
    for (u32 i = 0; i < products; i++)
        end_product(w, &all->products[i]);
    all->num_products -= products;
    all->num_groups = but;
    memmove(all->products, all->products + products, all->num_products * sizeof *all->products);
    for (u32 i = 0; i < but; i++)
        all->group_end[i] = all->group_end[ending + i] - products;
}

void hopper_meet(u32 w)
{
    const meeting *at = &emulated->fibers[w * LANES].at;
    warp_products *all = &emulated->wgmma[w];
    switch (at->kind) {
    case MEET_WARPGROUP_FENCE: all->fenced = true; break;
    case MEET_WARPGROUP_MMA: begin_product(w); break;
    case MEET_WARPGROUP_COMMIT:
        if (all->num_groups == MOST_PRODUCTS)
            note_failure("too many groups of wgmma are not waited for, %s", at->where);
        else
            all->group_end[all->num_groups++] = all->num_products;
        break;
    default: end_groups(w, at->value);
    }
}

/* ---- blocks ---- */

/* What a launch that failed left under way is dropped. */
void hopper_begin_block(void)
{
    emulated->num_barriers = emulated->num_boxes = 0;
    for (u32 w = 0; w < emulated->warps; w++) {
        warp_products *all = &emulated->wgmma[w];
        for (u32 i = 0; i < all->num_products; i++)
            if (--all->products[i].to->products == 0) free(all->products[i].to);
        all->num_products = all->num_groups = 0;
        all->fenced = false;
    }
}

void hopper_end_block(void)
{
    if (emulated->num_boxes)
        note_failure("the block ended while a box was under way, of %s", emulated->boxes[0].where);
    for (u32 w = 0; w < emulated->warps; w++)
        if (emulated->wgmma[w].num_products)
            note_failure("warp %u ended while wgmma was under way, of %s", w,
                         emulated->wgmma[w].products[0].where);
}
