/* device_cuda_copy.c - which way the rows of a copy go.
 *
 *     both sides the host's        the CPU
 *     few long runs of bytes       the copy engines, a run each; also for plain host memory, which
 *                                  the driver stages itself
 *     plain host memory, else      through pinned memory, a half of the stage at a time: the CPU
 *                                  fills or empties one while the kernel works on the other
 *     the rest                     the kernel, all rows at once, host memory where it is
 *
 * The driver tells whose memory an address is. */
#include "device/device_cuda_impl.h"
#include "device/kernels/copy_rows_args.h"

enum { LANES_LOG2_MAX = 8, BLOCKS_A_CORE = 4, STAGE_ALIGN = 16 };

typedef enum memory_kind { PLAIN, PINNED, ON_GPU } memory_kind;

typedef struct side {
    const rad_device_rows *rows;
    memory_kind kind;
    cuda_ptr base; /* as kernels see it; of PLAIN nothing */
} side;

/* A call, or a part of its rows. */
typedef struct rows_copy {
    side dst, src;
    size_t row_bytes;
    uint32_t count;
} rows_copy;

static size_t index_of(const rad_device_rows *r, uint32_t i)
{
    return r->indices ? (uint32_t)r->indices[i] : i;
}

static char *row_at(const rad_device_rows *r, uint32_t i)
{
    return (char *)r->base + index_of(r, i) * r->stride;
}

/* By its first row, as the base need not be memory. */
static rad_status look_up(device_cuda *d, side *s)
{
    cuda_ptr first = (cuda_ptr)(uintptr_t)row_at(s->rows, 0), seen = first;
    int type = 0;
    int result = d->cu.pointer_attribute(&type, CUDA_POINTER_MEMORY_TYPE, first);
    if (result == CUDA_OK && type == CUDA_MEMORY_HOST)
        result = d->cu.pointer_attribute(&seen, CUDA_POINTER_DEVICE_ADDRESS, first);
    s->kind = PLAIN; /* what the driver does not know */
    if (result == CUDA_OK && type == CUDA_MEMORY_DEVICE) s->kind = ON_GPU;
    if (result == CUDA_OK && type == CUDA_MEMORY_HOST && seen) s->kind = PINNED;
    s->base = seen - index_of(s->rows, 0) * s->rows->stride;
    return result == CUDA_INVALID_VALUE ? RAD_OK
                                        : device_cuda_check(d, result, "cuPointerGetAttribute");
}

/* Rows from `i` on that lie behind one another on both sides. */
static uint32_t run_at(const rows_copy *c, uint32_t i)
{
    uint32_t run = 1;
    const char *to = row_at(c->dst.rows, i), *from = row_at(c->src.rows, i);
    while (i + run < c->count && row_at(c->dst.rows, i + run) == to + run * c->row_bytes &&
           row_at(c->src.rows, i + run) == from + run * c->row_bytes)
        run++;
    return run;
}

static bool runs_are_long(const rows_copy *c)
{
    uint64_t runs = 0, most = RAD_MAX(c->row_bytes * c->count / LARGE_COPY, 1u);
    for (uint32_t i = 0; i < c->count && runs <= most; i += run_at(c, i))
        runs++;
    return runs <= most;
}

static rad_status copy_run(device_cuda *d, cuda_lane *lane, const rows_copy *c, uint32_t i,
                           size_t bytes)
{
    char *to = row_at(c->dst.rows, i);
    const char *from = row_at(c->src.rows, i);
    cuda_ptr gpu_to = (cuda_ptr)(uintptr_t)to, gpu_from = (cuda_ptr)(uintptr_t)from;
    if (c->dst.kind == ON_GPU && c->src.kind == ON_GPU)
        return device_cuda_check(d, d->cu.copy_on_device(gpu_to, gpu_from, bytes, lane->stream),
                                 "cuMemcpyDtoDAsync");
    if (c->dst.kind == ON_GPU)
        return device_cuda_check(d, d->cu.copy_to_device(gpu_to, from, bytes, lane->stream),
                                 "cuMemcpyHtoDAsync");
    return device_cuda_check(d, d->cu.copy_to_host(to, gpu_from, bytes, lane->stream),
                             "cuMemcpyDtoHAsync");
}

static rad_status copy_runs(device_cuda *d, cuda_lane *lane, const rows_copy *c)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0, run; i < c->count && !status; i += run) {
        run = run_at(c, i);
        status = copy_run(d, lane, c, i, run * c->row_bytes);
    }
    return status;
}

/* The kernel for rows [0, count), count at most INDEX_HALF, whose numbers are on the GPU. */
static rad_status launch(device_cuda *d, cuda_lane *lane, const copy_rows_args *rows, bool to_host)
{
    copy_rows_args a = *rows;
    u64 all = (u64)(uintptr_t)a.dst | (u64)(uintptr_t)a.src | a.dst_stride | a.src_stride |
              a.row_bytes;
    a.unit = all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
    uint32_t units = a.row_bytes / a.unit;
    while (a.lanes_log2 < LANES_LOG2_MAX && (1u << a.lanes_log2) < units)
        a.lanes_log2++;
    a.pieces = (units + (1u << a.lanes_log2) - 1) >> a.lanes_log2;
    a.items = a.count * a.pieces;
    uint32_t a_block = (COPY_ROWS_THREADS >> a.lanes_log2) * COPY_ROWS_FLIGHT;
    uint32_t blocks = (a.items + a_block - 1) / a_block;
    uint32_t most = to_host ? d->copy_blocks : (uint32_t)d->gpu.multiprocessors * BLOCKS_A_CORE;
    uint32_t grid[3] = {RAD_MIN(blocks, RAD_MAX(most, 1u)), 1, 1};
    rad_error err;
    rad_status status = cuda_launch(&d->cu, d->copy_rows, grid, COPY_ROWS_THREADS, 0, lane->stream,
                                    false, &a, sizeof a, &err);
    return status ? device_cuda_failed(d, &err) : RAD_OK;
}

/* A side's address and the numbers of its rows [first, first + count). */
static rad_status place_side(device_cuda *d, cuda_lane *lane, int which, const side *s,
                             uint32_t first, uint32_t count, cuda_ptr *base, cuda_ptr *numbers)
{
    *base = s->base;
    *numbers = 0;
    if (s->rows->indices)
        return lane_upload_numbers(d, lane, which, s->rows->indices + first, count, numbers);
    *base += (cuda_ptr)first * s->rows->stride;
    return RAD_OK;
}

static rad_status copy_by_kernel(device_cuda *d, cuda_lane *lane, const rows_copy *c)
{
    bool host = c->dst.kind != ON_GPU || c->src.kind != ON_GPU;
    rad_status status = RAD_OK;
    for (uint32_t i = 0, some; i < c->count && !status; i += some) {
        some = RAD_MIN(c->count - i, INDEX_HALF / 2u);
        cuda_ptr to, from, to_numbers, from_numbers = 0;
        status = lane_reserve(d, lane, 2 * some);
        if (!status) status = place_side(d, lane, 0, &c->dst, i, some, &to, &to_numbers);
        if (!status) status = place_side(d, lane, 1, &c->src, i, some, &from, &from_numbers);
        if (status) break;
        copy_rows_args a = {.dst = (u8 *)(uintptr_t)to,
                            .src = (const u8 *)(uintptr_t)from,
                            .dst_stride = c->dst.rows->stride,
                            .src_stride = c->src.rows->stride,
                            .dst_rows = (const i32 *)(uintptr_t)to_numbers,
                            .src_rows = (const i32 *)(uintptr_t)from_numbers,
                            .row_bytes = (u32)c->row_bytes,
                            .count = some};
        status = launch(d, lane, &a, host);
    }
    return status;
}

/* Rows that are on their way through a half of the stage. */
typedef struct staged_part {
    uint32_t first, count;
} staged_part;

/* Between the plain rows of a part and the stage, by the CPU. */
static void copy_plain(const rows_copy *c, staged_part part, char *stage, size_t step, bool to_gpu)
{
    for (uint32_t i = 0; i < part.count; i++) {
        char *packed = stage + i * step;
        if (to_gpu)
            memcpy(packed, row_at(c->src.rows, part.first + i), c->row_bytes);
        else
            memcpy(row_at(c->dst.rows, part.first + i), packed, c->row_bytes);
    }
}

/* Between the stage and the GPU, by the kernel. */
static rad_status copy_staged(device_cuda *d, cuda_lane *lane, const rows_copy *c, staged_part part,
                              uint32_t half, size_t step, bool to_gpu)
{
    cuda_ptr there, numbers;
    const side *gpu = to_gpu ? &c->dst : &c->src;
    rad_status status = lane_reserve(d, lane, part.count);
    if (!status)
        status = place_side(d, lane, to_gpu ? 0 : 1, gpu, part.first, part.count, &there, &numbers);
    if (status) return status;
    char *stage = lane->stage + (size_t)half * STAGE_HALF;
    copy_rows_args a = {.row_bytes = (u32)c->row_bytes, .count = part.count};
    if (to_gpu) {
        a.dst = (u8 *)(uintptr_t)there, a.dst_stride = gpu->rows->stride;
        a.dst_rows = (const i32 *)(uintptr_t)numbers;
        a.src = (const u8 *)stage, a.src_stride = step;
    } else {
        a.src = (const u8 *)(uintptr_t)there, a.src_stride = gpu->rows->stride;
        a.src_rows = (const i32 *)(uintptr_t)numbers;
        a.dst = (u8 *)stage, a.dst_stride = step;
    }
    status = launch(d, lane, &a, true);
    if (!status)
        status = device_cuda_check(d, d->cu.event_record(lane->staged[half], lane->stream),
                                   "cuEventRecord");
    if (!status) lane->staging[half] = true;
    return status;
}

/* Waits until the half is the CPU's; what came from the GPU goes where it belongs. */
static rad_status empty_half(device_cuda *d, cuda_lane *lane, const rows_copy *c, staged_part *part,
                             uint32_t half, size_t step)
{
    rad_status status = lane->staging[half] ? lane_wait_event(d, lane->staged[half]) : RAD_OK;
    if (status) return status;
    lane->staging[half] = false;
    if (c->dst.kind == PLAIN && part->count)
        copy_plain(c, *part, lane->stage + (size_t)half * STAGE_HALF, step, false);
    part->count = 0;
    return RAD_OK;
}

static rad_status copy_by_stage(device_cuda *d, cuda_lane *lane, const rows_copy *c)
{
    bool to_gpu = c->dst.kind == ON_GPU;
    size_t step = (c->row_bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    uint32_t most = RAD_MIN((uint32_t)(STAGE_HALF / step), (uint32_t)INDEX_HALF), half = 0;
    staged_part parts[LANE_HALVES] = {0};
    rad_status status = lane_stage(d, lane);
    for (uint32_t i = 0; i < c->count && !status; i += most, half = (half + 1) % LANE_HALVES) {
        status = empty_half(d, lane, c, &parts[half], half, step);
        if (status) break;
        parts[half] = (staged_part){i, RAD_MIN(most, c->count - i)};
        char *stage = lane->stage + (size_t)half * STAGE_HALF;
        if (to_gpu) copy_plain(c, parts[half], stage, step, true);
        status = copy_staged(d, lane, c, parts[half], half, step, to_gpu);
    }
    for (int i = 0; i < LANE_HALVES && !to_gpu && !status; i++, half = (half + 1) % LANE_HALVES)
        status = empty_half(d, lane, c, &parts[half], half, step);
    return status;
}

/* What this thread copied before is what it copies on from. */
static rad_status copy_on_host(device_cuda *d, const rows_copy *c)
{
    cuda_lane *lane = lane_of_thread(d);
    rad_status status = lane ? lane_wait(d, lane) : RAD_OK;
    for (uint32_t i = 0; i < c->count && !status; i++)
        memcpy(row_at(c->dst.rows, i), row_at(c->src.rows, i), c->row_bytes);
    return status;
}

static rad_status copy(device_cuda *d, rows_copy *c)
{
    rad_status status = look_up(d, &c->dst);
    if (!status) status = look_up(d, &c->src);
    if (status) return status;
    if (c->dst.kind != ON_GPU && c->src.kind != ON_GPU) return copy_on_host(d, c);
    cuda_lane *lane = lane_enter(d, &status);
    if (!lane) return status;
    if (runs_are_long(c))
        status = copy_runs(d, lane, c);
    else if (c->dst.kind == PLAIN || c->src.kind == PLAIN)
        status = copy_by_stage(d, lane, c);
    else
        status = copy_by_kernel(d, lane, c);
    return lane_leave(d, lane, status);
}

rad_status device_cuda_copy_rows(rad_device *self, const rad_device_rows *dst,
                                 const rad_device_rows *src, size_t row_bytes, uint32_t count)
{
    device_cuda *d = (device_cuda *)self;
    rows_copy c = {{.rows = dst}, {.rows = src}, row_bytes, count};
    if (!count || !row_bytes) return RAD_OK;
    rad_error err;
    if (cuda_gpu_enter(&d->gpu, &err)) return device_cuda_failed(d, &err);
    rad_status status = copy(d, &c);
    cuda_gpu_leave(&d->gpu);
    atomic_fetch_add(&d->copy_calls, 1);
    if (!status) atomic_fetch_add(&d->copied_bytes, row_bytes * count);
    return status;
}
