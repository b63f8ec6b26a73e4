/* kv_pool_access.c - numbers into the pool and out of it, and whole slots as bytes.
 *
 * Numbers are rounded once, when they are stored; fresh K/V are read back from here like
 * cached ones, so that a hit and a computation see the same bits. Copies move the stored
 * bytes, scales included: what comes back is what was there.
 *
 *     copy of slots a, b, c:   layer 0: K a b c | scales a b c | V a b c | scales a b c
 *                              layer 1: ...                                  (scales: int8)
 *
 * Invariant: rows of different slots never share a byte, so different slots may be written
 * from different threads. */
#include "mem/kv_pool.h"

static uint32_t group_numbers(const kv_side *s, uint32_t group)
{
    return group + 1 == s->groups ? s->last_dim : s->dim;
}

void kv_plane_store(const rad_token_to_kv_pool *pool, const kv_plane *plane, rad_slot slot,
                    uint32_t first, uint32_t count, const float *src)
{
    uint32_t dtype = pool->params.dtype;
    const kv_side *s = plane->side;
    char *row = plane->codes + (size_t)slot * plane->stride;
    if (dtype != RAD_I8) {
        size_t numbers = first + count == s->groups ? s->numbers - (size_t)first * s->dim
                                                    : (size_t)count * s->dim;
        size_t at = (size_t)first * s->dim * kv_dtype_bytes(dtype);
        pool->codec->encode(dtype, row + at, src, numbers, plane->scale);
        return;
    }
    float *scales = (float *)(void *)(plane->scales + (size_t)slot * plane->scale_stride);
    int8_t *codes = (int8_t *)row + (size_t)first * s->dim;
    for (uint32_t group = first; group < first + count; group++) {
        uint32_t numbers = group_numbers(s, group);
        scales[group] = pool->codec->encode_i8(codes, src, numbers);
        codes += numbers;
        src += numbers;
    }
}

void kv_plane_load(const rad_token_to_kv_pool *pool, const kv_plane *plane, rad_slot slot,
                   uint32_t count, float *dst)
{
    uint32_t dtype = pool->params.dtype;
    const kv_side *s = plane->side;
    const char *row = plane->codes + (size_t)slot * plane->stride;
    if (dtype != RAD_I8) {
        pool->codec->decode(dtype, dst, row,
                            count == s->groups ? s->numbers : (size_t)count * s->dim, plane->scale);
        return;
    }
    const float *scales =
        (const float *)(void *)(plane->scales + (size_t)slot * plane->scale_stride);
    for (uint32_t group = 0; group < count; group++) {
        uint32_t numbers = group_numbers(s, group);
        pool->codec->decode(dtype, dst, row, numbers, scales[group]);
        row += numbers;
        dst += numbers;
    }
}

void rad_kv_pool_set_kv_buffer(rad_token_to_kv_pool *pool, uint32_t layer, const rad_slot *loc,
                               uint32_t count, const float *k, const float *v)
{
    uint32_t index = kv_layer_index(pool, layer);
    RAD_ASSERT_ENV(&pool->env, index < pool->params.num_layers);
    for (uint32_t side = 0; side < pool->num_sides; side++) {
        const float *src = side ? v : k;
        if (!src) continue;
        kv_plane plane = kv_plane_of(pool, index, side);
        for (uint32_t i = 0; i < count; i++) {
            RAD_ASSERT_ENV(&pool->env, kv_is_slot(pool, loc[i]));
            kv_plane_store(pool, &plane, loc[i], 0, plane.side->groups, src);
            src += plane.side->numbers;
        }
    }
}

static bool are_slots(const rad_token_to_kv_pool *pool, const rad_slot *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!kv_is_slot(pool, slots[i])) return false;
    return true;
}

rad_status rad_kv_pool_get_kv(rad_token_to_kv_pool *pool, uint32_t layer, const rad_slot *loc,
                              uint32_t count, float *k, float *v)
{
    uint32_t index = kv_layer_index(pool, layer);
    if (index == pool->params.num_layers || !are_slots(pool, loc, count)) return RAD_E_INVAL;
    kv_wait_layer(pool, layer);
    for (uint32_t side = 0; side < 2; side++) {
        float *dst = side ? v : k;
        kv_plane plane = kv_plane_of(pool, index, side);
        for (uint32_t i = 0; dst && i < count; i++) {
            kv_plane_load(pool, &plane, loc[i], plane.side->groups, dst);
            dst += plane.side->numbers;
        }
    }
    return RAD_OK;
}

typedef struct copy_job { /* some slots, to or from flat bytes */
    device *device;
    const rad_slot *slots; /* NULL: first, first + 1, ... */
    rad_slot first;
    uint32_t count;
    bool into_pool;
    char *flat; /* moves on */
} copy_job;

/* How many slots from the i-th on follow each other. */
static uint32_t run_at(const copy_job *job, uint32_t i)
{
    uint32_t run = 1;
    if (!job->slots) return job->count - i;
    while (i + run < job->count && job->slots[i + run] == job->slots[i] + (rad_slot)run)
        run++;
    return run;
}

/* One buffer's rows of all slots; neighbours without a gap go as one block. */
static rad_status copy_rows(copy_job *job, char *base, size_t stride, size_t row_bytes)
{
    for (uint32_t i = 0, run; i < job->count; i += run) {
        rad_slot slot = job->slots ? job->slots[i] : job->first + (rad_slot)i;
        run = stride == row_bytes ? run_at(job, i) : 1;
        char *here = base + (size_t)slot * stride;
        size_t bytes = run * row_bytes;
        rad_status status = job->into_pool ? device_copy(job->device, here, job->flat, bytes)
                                           : device_copy(job->device, job->flat, here, bytes);
        if (status) return status;
        job->flat += bytes;
    }
    return RAD_OK;
}

/* Copies slots that have been checked, all layers. */
static rad_status copy_slots(rad_token_to_kv_pool *pool, copy_job job)
{
    job.device = &pool->device.base;
    for (uint32_t i = 0; i < pool->params.num_layers; i++) {
        if (!job.into_pool) kv_wait_layer(pool, pool->params.start_layer + i);
        for (uint32_t side = 0; side < pool->num_sides; side++) {
            kv_plane p = kv_plane_of(pool, i, side);
            rad_status status = copy_rows(&job, p.codes, p.stride, p.side->code_bytes);
            if (!status && p.side->scale_bytes)
                status = copy_rows(&job, p.scales, p.scale_stride, p.side->scale_bytes);
            if (status) return status;
        }
    }
    return RAD_OK;
}

static rad_status copy_listed(rad_token_to_kv_pool *pool, const rad_slot *slots, uint32_t count,
                              char *flat, size_t bytes, bool into_pool)
{
    if (bytes != rad_mul(count, pool->token_bytes) || !are_slots(pool, slots, count))
        return RAD_E_INVAL;
    if (!count) return RAD_OK;
    return copy_slots(
        pool, (copy_job){.slots = slots, .count = count, .into_pool = into_pool, .flat = flat});
}

rad_status rad_kv_pool_get_cpu_copy(rad_token_to_kv_pool *pool, const rad_slot *slots,
                                    uint32_t count, void *dst, size_t bytes)
{
    return copy_listed(pool, slots, count, dst, bytes, false);
}

rad_status rad_kv_pool_load_cpu_copy(rad_token_to_kv_pool *pool, const rad_slot *slots,
                                     uint32_t count, const void *src, size_t bytes)
{
    /* The cast: `flat` is only read when it goes into the pool. */
    return copy_listed(pool, slots, count, (char *)(uintptr_t)src, bytes, true);
}

static rad_status copy_page(rad_token_to_kv_pool *pool, rad_page page, char *flat, size_t bytes,
                            bool into_pool)
{
    const rad_token_to_kv_pool_params *p = &pool->params;
    if (page < 0 || (uint32_t)page > p->num_pages ||
        bytes != rad_mul(p->page_size, pool->token_bytes))
        return RAD_E_INVAL;
    return copy_slots(pool, (copy_job){.first = page * (rad_slot)p->page_size,
                                       .count = p->page_size,
                                       .into_pool = into_pool,
                                       .flat = flat});
}

rad_status rad_kv_pool_get_page(rad_token_to_kv_pool *pool, rad_page page, void *dst, size_t bytes)
{
    return copy_page(pool, page, dst, bytes, false);
}

rad_status rad_kv_pool_set_page(rad_token_to_kv_pool *pool, rad_page page, const void *src,
                                size_t bytes)
{
    return copy_page(pool, page, (char *)(uintptr_t)src, bytes, true); /* only read */
}

/* One buffer's rows. */
static rad_status move_rows(rad_token_to_kv_pool *pool, char *base, size_t stride, size_t row_bytes,
                            rad_slot from, rad_slot to, uint32_t count)
{
    bool dense = stride == row_bytes;
    uint32_t blocks = dense ? 1 : count;
    size_t bytes = dense ? count * row_bytes : row_bytes;
    for (uint32_t i = 0; i < blocks; i++) {
        rad_status status = device_copy(&pool->device.base, base + ((size_t)to + i) * stride,
                                        base + ((size_t)from + i) * stride, bytes);
        if (status) return status;
    }
    return RAD_OK;
}

rad_status rad_kv_pool_copy_slots(rad_token_to_kv_pool *pool, rad_slot from, rad_slot to,
                                  uint32_t count)
{
    if (!count) return RAD_OK;
    rad_slot first = RAD_MIN(from, to), second = RAD_MAX(from, to);
    if (first < 0 || (uint32_t)(second - first) < count || (size_t)second + count > pool->num_slots)
        return RAD_E_INVAL;
    for (uint32_t i = 0; i < pool->params.num_layers; i++)
        for (uint32_t side = 0; side < pool->num_sides; side++) {
            kv_plane p = kv_plane_of(pool, i, side);
            rad_status status =
                move_rows(pool, p.codes, p.stride, p.side->code_bytes, from, to, count);
            if (!status && p.side->scale_bytes)
                status =
                    move_rows(pool, p.scales, p.scale_stride, p.side->scale_bytes, from, to, count);
            if (status) return status;
        }
    return RAD_OK;
}
