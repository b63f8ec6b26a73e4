/* token_to_kv_pool.c - K and V of every layer, one buffer per layer and side.
 *
 *     layer 0:  K | page 0 (dummy) | page 1 | page 2 | ...     V | ... likewise
 *               page = page_size tokens, token = num_kv_heads x head_dim numbers
 *
 * One buffer per layer and side rather than one for all: attention of a layer walks
 * one compact block, and no single allocation has to be as large as the whole pool.
 * Scales of int8 lie in buffers of their own, so that codes stay a plain matrix.
 *
 * The pool's own memory and the caller's are the same from here on: a pointer and a
 * stride per layer and side. This file makes pools and says where things lie;
 * kv_pool_access.c moves numbers. */
#include "mem/kv_pool.h"

#include "base/params.h"

#include <float.h>

static kv_side make_side(const rad_token_to_kv_pool_params *p, bool is_v)
{
    kv_side s = {.groups = p->num_kv_heads, .dim = is_v ? p->v_head_dim : p->head_dim};
    s.last_dim = s.dim;
    if (p->kind == RAD_KV_MLA) { /* K's row: latent, then rope; V sees the latent */
        uint32_t rope = p->head_dim - p->v_head_dim;
        s.groups = rope && !is_v ? 2 : 1;
        s.dim = p->v_head_dim;
        s.last_dim = s.groups == 2 ? rope : s.dim;
    }
    s.numbers = (size_t)(s.groups - 1) * s.dim + s.last_dim; /* < 2^64 */
    s.code_bytes = rad_mul(s.numbers, kv_dtype_bytes(p->dtype));
    s.scale_bytes = p->dtype == RAD_I8 ? s.groups * sizeof(float) : 0;
    return s;
}

static rad_status check_scales(const rad_token_to_kv_pool_params *p, rad_error *err)
{
    if ((p->k_scales || p->v_scales) && !kv_dtype_is_fp8(p->dtype))
        return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: scales are for fp8, dtype is %u",
                        p->dtype);
    if (p->v_scales && p->kind == RAD_KV_MLA)
        return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: MLA has no V of its own to scale");
    for (int side = 0; side < 2; side++) {
        const float *scales = side ? p->v_scales : p->k_scales;
        for (uint32_t i = 0; scales && i < p->num_layers; i++)
            if (!(scales[i] >= FLT_MIN && scales[i] <= FLT_MAX))
                return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: %c scale of layer %u is %g",
                                side ? 'V' : 'K', p->start_layer + i, (double)scales[i]);
    }
    return RAD_OK;
}

/* Reads params of any age and fills in the defaults. */
static rad_status read_params(const rad_token_to_kv_pool_params *params,
                              rad_token_to_kv_pool_params *p, rad_error *err)
{
    rad_status status = rad_params_read(p, sizeof *p, params, "token_to_kv_pool", err);
    if (status) return status;
    p->struct_size = sizeof *p;
    if (!p->page_size) p->page_size = 1;
    if (!p->v_head_dim) p->v_head_dim = p->head_dim;
    if (p->kind == RAD_KV_MLA && !p->num_kv_heads) p->num_kv_heads = 1;
    if (p->kind > RAD_KV_MLA || !kv_dtype_bytes(p->dtype))
        return rad_fail(err, RAD_E_UNSUPPORTED, "token_to_kv_pool: kind %u with dtype %u", p->kind,
                        p->dtype);
    if (!p->num_layers || !p->num_kv_heads || !p->head_dim)
        return rad_fail(err, RAD_E_INVAL,
                        "token_to_kv_pool: %u layers, %u KV heads of %u: none may be 0",
                        p->num_layers, p->num_kv_heads, p->head_dim);
    if (p->kind == RAD_KV_MLA && (p->num_kv_heads != 1 || p->v_head_dim > p->head_dim))
        return rad_fail(err, RAD_E_INVAL,
                        "token_to_kv_pool: an MLA row of %u numbers with a latent of %u, %u heads",
                        p->head_dim, p->v_head_dim, p->num_kv_heads);
    return RAD_OK;
}

/* Of valid params; 0 when it does not fit. */
static size_t bytes_per_token(const rad_token_to_kv_pool_params *p)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < (p->kind == RAD_KV_MLA ? 1 : 2); i++) {
        kv_side s = make_side(p, i);
        if (!s.code_bytes || __builtin_add_overflow(sum, s.code_bytes, &sum) ||
            __builtin_add_overflow(sum, s.scale_bytes, &sum))
            return 0;
    }
    return rad_mul(p->num_layers, sum);
}

size_t rad_kv_pool_bytes_per_token(const rad_token_to_kv_pool_params *params)
{
    rad_token_to_kv_pool_params p;
    return read_params(params, &p, NULL) ? 0 : bytes_per_token(&p);
}

/* What is wrong with a caller's buffer, NULL when nothing is; fills in its stride. */
static const char *adopt(kv_buffer *b, size_t align, size_t num_slots)
{
    if (!b->stride) b->stride = b->row_bytes;
    if (!b->base) return "is missing";
    if ((uintptr_t)b->base % align || b->stride % align) return "is not aligned";
    if (b->stride < b->row_bytes) return "has a stride shorter than a token";
    if (!rad_mul(num_slots, b->stride)) return "is larger than an address space";
    return NULL;
}

static rad_status adopt_layer(rad_token_to_kv_pool *pool, uint32_t i, const rad_kv_buffers *given,
                              rad_error *err)
{
    static const char *const names[KV_BUFFERS] = {"K", "K's scales", "V", "V's scales"};
    const kv_buffer all[KV_BUFFERS] = {{given->k, given->k_stride, 0},
                                       {(char *)given->k_scale, given->k_scale_stride, 0},
                                       {given->v, given->v_stride, 0},
                                       {(char *)given->v_scale, given->v_scale_stride, 0}};
    kv_buffer *b = kv_buffers_of(pool, i);
    const char *why = NULL;
    uint32_t n = 0;
    for (; n < KV_BUFFERS; n++) {
        size_t row_bytes = b[n].row_bytes;
        size_t align = n % 2 ? sizeof(float) : kv_dtype_bytes(pool->params.dtype);
        b[n] = all[n];
        b[n].row_bytes = row_bytes;
        if (row_bytes)
            why = adopt(&b[n], align, pool->num_slots);
        else if (b[n].base)
            why = n / 2 >= pool->num_sides ? "is given, but an MLA pool has one buffer a layer"
                                           : "is given, but only int8 has such";
        if (why) break;
    }
    if (!why) return RAD_OK;
    return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: %s of layer %u %s", names[n],
                    pool->params.start_layer + i, why);
}

static bool own_layer(rad_token_to_kv_pool *pool, uint32_t i)
{
    kv_buffer *b = kv_buffers_of(pool, i);
    for (uint32_t n = 0; n < KV_BUFFERS; n++) {
        if (!b[n].row_bytes) continue;
        b[n].stride = b[n].row_bytes;
        b[n].base = device_alloc(pool->device, rad_mul(pool->num_slots, b[n].row_bytes));
        if (!b[n].base) return false;
    }
    return true;
}

/* Strides, memory and scales of all layers. */
static rad_status fill_layers(rad_token_to_kv_pool *pool, const rad_token_to_kv_pool_params *p,
                              rad_error *err)
{
    pool->packed = pool->num_sides == 2;
    for (uint32_t i = 0; i < p->num_layers; i++) {
        kv_buffer *b = kv_buffers_of(pool, i);
        for (uint32_t n = 0; n < 2 * pool->num_sides; n++)
            b[n].row_bytes = n % 2 ? pool->side[n / 2].scale_bytes : pool->side[n / 2].code_bytes;
        rad_status status = p->buffers           ? adopt_layer(pool, i, &p->buffers[i], err)
                            : own_layer(pool, i) ? RAD_OK
                                                 : RAD_E_NOMEM;
        if (status) return status;
        for (uint32_t n = 0; n < KV_BUFFERS; n++)
            pool->packed &= b[n].stride == b[n].row_bytes;
    }
    for (uint32_t i = 0; pool->scales && i < p->num_layers; i++) {
        pool->scales[i] = p->k_scales ? p->k_scales[i] : 1;
        pool->scales[(size_t)p->num_layers + i] =
            p->kind == RAD_KV_MLA ? pool->scales[i] : (p->v_scales ? p->v_scales[i] : 1);
    }
    return RAD_OK;
}

rad_status rad_token_to_kv_pool_create(const rad_env *env,
                                       const rad_token_to_kv_pool_params *params,
                                       rad_token_to_kv_pool **out, rad_error *err)
{
    rad_token_to_kv_pool_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: no place for the result");
    *out = NULL;
    rad_status status = read_params(params, &p, err);
    if (!status) status = check_scales(&p, err);
    if (!status) status = device_check(p.device, err);
    if (status) return status;
    if (!p.num_pages) return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: num_pages is 0");
    if (((uint64_t)p.num_pages + 1) * p.page_size > INT32_MAX)
        return rad_fail(err, RAD_E_LIMIT,
                        "token_to_kv_pool: %u pages of %u tokens do not fit 31-bit slots",
                        p.num_pages, p.page_size);
    if ((uint64_t)p.start_layer + p.num_layers > UINT32_MAX)
        return rad_fail(err, RAD_E_LIMIT, "token_to_kv_pool: %u layers from layer %u on",
                        p.num_layers, p.start_layer);

    rad_env full = rad_env_or_default(env);
    rad_token_to_kv_pool *pool = NULL;
    if (!bytes_per_token(&p)) goto nomem;
    pool = rad_alloc(&full, sizeof *pool);
    if (!pool) goto nomem;
    pool->env = full;
    device_cpu_init(&pool->own, &full);
    pool->device = p.device ? p.device : &pool->own.base;
    pool->codec = kv_codec_for(NULL);
    pool->params = p;
    pool->params.buffers = NULL;
    pool->owns_memory = !p.buffers;
    pool->num_slots = ((size_t)p.num_pages + 1) * p.page_size;
    pool->token_bytes = bytes_per_token(&p);
    pool->num_sides = p.kind == RAD_KV_MLA ? 1 : 2;
    pool->side[0] = make_side(&p, false);
    pool->side[1] = make_side(&p, true);
    pool->buffers = rad_alloc(&full, (size_t)p.num_layers * KV_BUFFERS * sizeof *pool->buffers);
    if (!pool->buffers) goto nomem;
    if (kv_dtype_is_fp8(p.dtype)) {
        pool->scales = rad_alloc(&full, (size_t)p.num_layers * 2 * sizeof *pool->scales);
        if (!pool->scales) goto nomem;
        pool->params.k_scales = pool->scales;
        pool->params.v_scales = p.kind == RAD_KV_MLA ? NULL : pool->scales + p.num_layers;
    }
    for (uint32_t i = 0; p.device && i < pool->num_sides; i++)
        if (RAD_MAX(pool->side[i].dim, pool->side[i].last_dim) > KV_STAGE_NUMBERS) {
            rad_token_to_kv_pool_destroy(pool);
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "token_to_kv_pool: heads of more than %d numbers on a device",
                            KV_STAGE_NUMBERS);
        }
    status = fill_layers(pool, &p, err);
    if (status == RAD_E_NOMEM) goto nomem;
    if (status) {
        rad_token_to_kv_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return RAD_OK;
nomem:
    rad_token_to_kv_pool_destroy(pool);
    return rad_fail(err, RAD_E_NOMEM,
                    "token_to_kv_pool: no memory for %u pages of %u tokens at %zu bytes a token",
                    p.num_pages, p.page_size, bytes_per_token(&p));
}

void rad_token_to_kv_pool_destroy(rad_token_to_kv_pool *pool)
{
    if (!pool) return;
    rad_env env = pool->env;
    size_t num_layers = pool->params.num_layers, num_buffers = num_layers * KV_BUFFERS;
    for (size_t i = 0; pool->buffers && pool->owns_memory && i < num_buffers; i++)
        device_free(pool->device, pool->buffers[i].base,
                    pool->num_slots * pool->buffers[i].row_bytes);
    rad_free(&env, pool->buffers, num_buffers * sizeof *pool->buffers);
    rad_free(&env, pool->scales, num_layers * 2 * sizeof *pool->scales);
    rad_free(&env, pool, sizeof *pool);
}

rad_status rad_kv_pool_populate(rad_token_to_kv_pool *pool, uint32_t layer, size_t first,
                                size_t count)
{
    uint32_t index = kv_layer_index(pool, layer);
    if (index == pool->params.num_layers || first > pool->num_slots ||
        count > pool->num_slots - first)
        return RAD_E_INVAL;
    const kv_buffer *b = kv_buffers_of(pool, index);
    rad_status status = RAD_OK;
    for (uint32_t n = 0; n < KV_BUFFERS && count && !status; n++)
        if (b[n].row_bytes)
            status = device_populate(pool->device, b[n].base + first * b[n].stride,
                                     (count - 1) * b[n].stride + b[n].row_bytes);
    return status;
}

size_t rad_kv_pool_size_bytes(const rad_token_to_kv_pool *pool)
{
    return rad_mul(pool->num_slots, pool->token_bytes);
}

const rad_token_to_kv_pool_params *rad_kv_pool_params(const rad_token_to_kv_pool *pool)
{
    return &pool->params;
}

int rad_kv_pool_is_packed(const rad_token_to_kv_pool *pool)
{
    return pool->packed;
}

/* Its place among the waiters, or num_waiters. */
static uint32_t find_waiter(const rad_token_to_kv_pool *pool, rad_kv_wait_fn wait, void *user)
{
    uint32_t i = 0;
    while (i < pool->num_waiters &&
           (pool->waiters[i].wait != wait || pool->waiters[i].user != user))
        i++;
    return i;
}

rad_status rad_kv_pool_add_wait(rad_token_to_kv_pool *pool, rad_kv_wait_fn wait, void *user,
                                rad_error *err)
{
    if (!wait) return rad_fail(err, RAD_E_INVAL, "token_to_kv_pool: which function waits?");
    if (find_waiter(pool, wait, user) < pool->num_waiters)
        return rad_fail(err, RAD_E_STATE, "token_to_kv_pool: it waits for layers already");
    if (pool->num_waiters == RAD_KV_WAITERS)
        return rad_fail(err, RAD_E_LIMIT, "token_to_kv_pool: %d wait for its layers already",
                        RAD_KV_WAITERS);
    pool->waiters[pool->num_waiters++] = (kv_waiter){wait, user};
    return RAD_OK;
}

rad_status rad_kv_pool_remove_wait(rad_token_to_kv_pool *pool, rad_kv_wait_fn wait, void *user)
{
    uint32_t i = find_waiter(pool, wait, user);
    if (i == pool->num_waiters) return RAD_E_STATE;
    memmove(&pool->waiters[i], &pool->waiters[i + 1],
            (--pool->num_waiters - i) * sizeof *pool->waiters);
    return RAD_OK;
}

rad_status rad_kv_pool_get_buffers(rad_token_to_kv_pool *pool, uint32_t layer, rad_kv_buffers *out)
{
    uint32_t index = kv_layer_index(pool, layer);
    if (index == pool->params.num_layers) return RAD_E_INVAL;
    kv_wait_layer(pool, layer);
    kv_plane k = kv_plane_of(pool, index, 0), v = kv_plane_of(pool, index, 1);
    *out = (rad_kv_buffers){.k = k.codes.base,
                            .v = v.codes.base,
                            .k_scale = (float *)(void *)k.scales.base,
                            .v_scale = (float *)(void *)v.scales.base,
                            .k_stride = k.codes.stride,
                            .v_stride = v.codes.stride,
                            .k_scale_stride = k.scales.stride,
                            .v_scale_stride = v.scales.stride};
    return RAD_OK;
}
