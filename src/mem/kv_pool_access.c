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

/* How many numbers groups [first, first + count) of a row are. */
static size_t numbers_of(const kv_side *s, uint32_t first, uint32_t count)
{
    size_t before = (size_t)first * s->dim;
    return first + count == s->groups ? s->numbers - before : (size_t)count * s->dim;
}

/* Groups [first, first + count) of a row into codes and, for int8, scales. */
static void encode_groups(const rad_token_to_kv_pool *pool, const kv_plane *plane, uint32_t first,
                          uint32_t count, const float *src, void *codes, float *scales)
{
    uint32_t dtype = pool->params.dtype;
    const kv_side *s = plane->side;
    if (dtype != RAD_I8) {
        pool->codec->encode(dtype, codes, src, numbers_of(s, first, count), plane->scale);
        return;
    }
    int8_t *to = codes;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t numbers = (uint32_t)numbers_of(s, first + i, 1);
        scales[i] = pool->codec->encode_i8(to, src, numbers);
        to += numbers;
        src += numbers;
    }
}

static void decode_groups(const rad_token_to_kv_pool *pool, const kv_plane *plane, uint32_t first,
                          uint32_t count, const void *codes, const float *scales, float *dst)
{
    uint32_t dtype = pool->params.dtype;
    const kv_side *s = plane->side;
    if (dtype != RAD_I8) {
        pool->codec->decode(dtype, dst, codes, numbers_of(s, first, count), plane->scale);
        return;
    }
    const char *from = codes;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t numbers = (uint32_t)numbers_of(s, first + i, 1);
        pool->codec->decode(dtype, dst, from, numbers, scales[i]);
        from += numbers;
        dst += numbers;
    }
}

/* ---- memory that only its device may touch: converted on the stack, some groups at a time ---- */

typedef struct stage {
    _Alignas(64) char codes[KV_STAGE_NUMBERS * 4];
    float scales[KV_STAGE_NUMBERS];
} stage;

/* Groups [first, first + count) of a slot's row, between the device and the stage. */
static rad_status move_groups(const rad_token_to_kv_pool *pool, const kv_plane *plane,
                              rad_slot slot, uint32_t first, uint32_t count, stage *s,
                              bool to_device)
{
    size_t number_bytes = kv_dtype_bytes(pool->params.dtype);
    size_t begin = (size_t)first * plane->side->dim * number_bytes;
    size_t bytes = numbers_of(plane->side, first, count) * number_bytes;
    rad_device_rows there = {plane->codes.base + begin, plane->codes.stride, &slot};
    rad_device_rows here = {s->codes, 0, NULL};
    rad_status status = device_move_rows(pool->device, there, here, bytes, 1, to_device);
    if (!status && plane->scales.base) {
        there = (rad_device_rows){plane->scales.base + first * sizeof(float), plane->scales.stride,
                                  &slot};
        here.base = s->scales;
        status = device_move_rows(pool->device, there, here, count * sizeof(float), 1, to_device);
    }
    return device_fence(pool->device, status);
}

static bool is_host_memory(const rad_token_to_kv_pool *pool)
{
    return pool->device == &pool->own.base;
}

static char *row_of(const kv_buffer *b, rad_slot slot)
{
    return b->base ? b->base + (size_t)slot * b->stride : NULL;
}

/* Of `left` groups, how many fit the stage; create refuses a pool of which none would. */
static uint32_t groups_that_fit(const kv_side *side, uint32_t left)
{
    return RAD_MIN(KV_STAGE_NUMBERS / RAD_MAX(side->dim, side->last_dim), left);
}

rad_status kv_plane_store(const rad_token_to_kv_pool *pool, const kv_plane *plane, rad_slot slot,
                          uint32_t first, uint32_t count, const float *src)
{
    const kv_side *side = plane->side;
    if (is_host_memory(pool)) {
        size_t at = (size_t)first * side->dim * kv_dtype_bytes(pool->params.dtype);
        float *scales = (float *)(void *)row_of(&plane->scales, slot);
        encode_groups(pool, plane, first, count, src, row_of(&plane->codes, slot) + at,
                      scales ? scales + first : NULL);
        return RAD_OK;
    }
    stage s;
    for (uint32_t end = first + count, n; first < end; first += n) {
        n = groups_that_fit(side, end - first);
        encode_groups(pool, plane, first, n, src, s.codes, s.scales);
        rad_status status = move_groups(pool, plane, slot, first, n, &s, true);
        if (status) return status;
        src += (size_t)n * side->dim;
    }
    return RAD_OK;
}

rad_status kv_plane_load(const rad_token_to_kv_pool *pool, const kv_plane *plane, rad_slot slot,
                         float *dst)
{
    const kv_side *side = plane->side;
    if (is_host_memory(pool)) {
        decode_groups(pool, plane, 0, side->groups, row_of(&plane->codes, slot),
                      (const float *)(void *)row_of(&plane->scales, slot), dst);
        return RAD_OK;
    }
    stage s;
    for (uint32_t first = 0, n; first < side->groups; first += n) {
        n = groups_that_fit(side, side->groups - first);
        rad_status status = move_groups(pool, plane, slot, first, n, &s, false);
        if (status) return status;
        decode_groups(pool, plane, first, n, s.codes, s.scales, dst);
        dst += (size_t)n * side->dim;
    }
    return RAD_OK;
}

rad_status rad_kv_pool_set_kv_buffer(rad_token_to_kv_pool *pool, uint32_t layer,
                                     const rad_slot *loc, uint32_t count, const float *k,
                                     const float *v)
{
    uint32_t index = kv_layer_index(pool, layer);
    RAD_ASSERT_ENV(&pool->env, index < pool->params.num_layers);
    for (uint32_t side = 0; side < pool->num_sides; side++) {
        const float *src = side ? v : k;
        if (!src) continue;
        kv_plane plane = kv_plane_of(pool, index, side);
        for (uint32_t i = 0; i < count; i++) {
            RAD_ASSERT_ENV(&pool->env, kv_is_slot(pool, loc[i]));
            rad_status status = kv_plane_store(pool, &plane, loc[i], 0, plane.side->groups, src);
            if (status) return status;
            src += plane.side->numbers;
        }
    }
    return RAD_OK;
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
            rad_status status = kv_plane_load(pool, &plane, loc[i], dst);
            if (status) return status;
            dst += plane.side->numbers;
        }
    }
    return RAD_OK;
}

typedef struct copy_job {  /* some slots, to or from flat bytes */
    const rad_slot *slots; /* NULL: first, first + 1, ... */
    rad_slot first;
    uint32_t count;
    bool into_pool;
    char *flat; /* moves on */
} copy_job;

/* Copies slots that have been checked, all layers. */
static rad_status copy_slots(rad_token_to_kv_pool *pool, copy_job job)
{
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < pool->params.num_layers * KV_BUFFERS && !status; i++) {
        const kv_buffer *b = &pool->buffers[i];
        uint32_t layer = pool->params.start_layer + i / KV_BUFFERS;
        if (!job.into_pool && i % KV_BUFFERS == 0) kv_wait_layer(pool, layer);
        rad_device_rows there = {row_of(b, job.slots ? 0 : job.first), b->stride, job.slots};
        rad_device_rows here = {job.flat, b->row_bytes, NULL};
        if (b->row_bytes)
            status =
                device_move_rows(pool->device, there, here, b->row_bytes, job.count, job.into_pool);
        job.flat += job.count * b->row_bytes;
    }
    return device_fence(pool->device, status);
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

rad_status rad_kv_pool_copy_slots(rad_token_to_kv_pool *pool, rad_slot from, rad_slot to,
                                  uint32_t count)
{
    if (!count) return RAD_OK;
    rad_slot first = RAD_MIN(from, to), second = RAD_MAX(from, to);
    if (first < 0 || (uint32_t)(second - first) < count || (size_t)second + count > pool->num_slots)
        return RAD_E_INVAL;
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < pool->params.num_layers * KV_BUFFERS && !status; i++) {
        const kv_buffer *b = &pool->buffers[i];
        rad_device_rows there = {row_of(b, to), b->stride, NULL};
        rad_device_rows here = {row_of(b, from), b->stride, NULL};
        if (b->row_bytes) status = device_copy_rows(pool->device, there, here, b->row_bytes, count);
    }
    return device_fence(pool->device, status);
}
