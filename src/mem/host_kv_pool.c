/* host_kv_pool.c - host memory for pages, and copies between it and the device pool.
 *
 * Each buffer of the device pool (kv_buffer) has a plane here. In both layouts a plane's block of
 * host page h lies at
 *
 *     plane.at + h * plane.step        layer_first: step = block, planes one behind another
 *                                      page_first:  step = record, at = place in the record
 *
 * so one call of the device's table copies a plane of all pages, by their numbers.
 *
 * Invariant: blocks of different host pages never share a byte, so different pages may be
 * copied in different threads. */
#include "mem/host_kv_pool.h"

#include <radish/storage.h>

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/params.h"
#include "mem/kv_pool.h"

enum { RECORD_ALIGN = 64, DISK_ALIGN = 4096, LARGE_RECORD = 16 * DISK_ALIGN };

typedef struct host_plane {
    size_t at;
    size_t step;
    size_t block; /* bytes of a page; 0: the pool has no such buffer */
} host_plane;

struct rad_host_kv_pool {
    rad_env env;
    device_cpu own;
    rad_device *copier;
    rad_token_to_kv_pool *device_pool;
    rad_kv_allocator *pages;
    char *memory;
    size_t bytes;
    size_t page_bytes;
    size_t record_step; /* page_first */
    uint32_t num_pages;
    uint32_t page_size;
    uint32_t layout;
    bool locked; /* by us */
    bool pinned; /* memory of the copier's */
    uint32_t num_planes;
    host_plane *planes; /* [num_layers][KV_BUFFERS] */
};

/* Fills in places; returns the bytes of everything, 0 when that does not fit. */
static size_t lay_out(rad_host_kv_pool *h)
{
    size_t at = 0, slots = (size_t)h->num_pages + 1;
    bool page_first = h->layout == RAD_HOST_PAGE_FIRST;
    for (uint32_t i = 0; i < h->num_planes; i++) {
        host_plane *p = &h->planes[i];
        p->block = h->device_pool->buffers[i].row_bytes * h->page_size;
        p->at = page_first ? RAD_STORAGE_HEADER_BYTES + at : at;
        p->step = page_first ? h->record_step : p->block;
        at += page_first || !p->block ? p->block : rad_mul(p->block, slots);
    }
    return page_first ? rad_mul(h->record_step, slots) : rad_mul(h->page_bytes, slots);
}

/* Pages for the params, 0 when there is no room for one. */
static uint64_t count_pages(const rad_host_kv_pool *h, const rad_host_kv_pool_params *p)
{
    if (!p->bytes) {
        double pages = p->ratio * h->device_pool->params.num_pages;
        return pages < 1 ? 0 : (uint64_t)RAD_MIN(pages, 9e18);
    }
    size_t step = p->layout == RAD_HOST_PAGE_FIRST ? h->record_step : h->page_bytes;
    uint64_t pages = p->bytes / step;
    return pages ? pages - 1 : 0; /* one is the dummy page */
}

rad_status rad_host_kv_pool_create(const rad_env *env, const rad_host_kv_pool_params *params,
                                   rad_host_kv_pool **out, rad_error *err)
{
    rad_host_kv_pool_params p;
    if (!out) return rad_fail(err, RAD_E_INVAL, "host_kv_pool: no place for the result");
    *out = NULL;
    rad_status status = rad_params_read(&p, sizeof p, params, "host_kv_pool", err);
    if (!status) status = device_check(p.device, err);
    if (status) return status;
    if (!p.device_pool || p.layout > RAD_HOST_PAGE_FIRST || !(p.ratio >= 0))
        return rad_fail(err, RAD_E_INVAL,
                        "host_kv_pool: no device pool, layout %u or a ratio of %g", p.layout,
                        p.ratio);
    if (!(p.ratio > 0)) p.ratio = 2;

    rad_env full = rad_env_or_default(env);
    rad_host_kv_pool *h = rad_alloc(&full, sizeof *h);
    if (!h) return rad_fail(err, RAD_E_NOMEM, "host_kv_pool: no memory");
    h->env = full;
    device_cpu_init(&h->own, &full);
    h->device_pool = p.device_pool;
    h->copier = p.device ? p.device : p.device_pool->device;
    h->pinned = device_pins(h->copier);
    h->page_size = p.device_pool->params.page_size;
    h->layout = p.layout;
    h->page_bytes = rad_mul(p.device_pool->token_bytes, h->page_size);
    size_t record = RAD_STORAGE_HEADER_BYTES + h->page_bytes;
    /* So large a record may go to a disk past the page cache; that wants whole blocks. */
    size_t align = record >= LARGE_RECORD ? DISK_ALIGN : RECORD_ALIGN;
    h->record_step = (record + align - 1) / align * align;
    uint64_t pages = count_pages(h, &p);
    if (!pages || pages >= INT32_MAX / h->page_size) {
        rad_host_kv_pool_destroy(h);
        return rad_fail(err, RAD_E_LIMIT,
                        "host_kv_pool: %llu pages: less than one, or past 31-bit slots",
                        (unsigned long long)pages);
    }
    h->num_pages = (uint32_t)pages;
    h->num_planes = KV_BUFFERS * p.device_pool->params.num_layers;
    h->planes = rad_alloc(&full, rad_mul(h->num_planes, sizeof *h->planes));
    h->bytes = h->planes ? lay_out(h) : 0;
    h->memory = h->pinned ? h->copier->ops->alloc_pinned(h->copier, h->bytes)
                          : device_alloc(&h->own.base, h->bytes);
    rad_kv_allocator_params ids = {
        .struct_size = sizeof ids, .num_pages = h->num_pages, .page_size = h->page_size};
    if (!h->memory || rad_kv_allocator_create(&full, &ids, &h->pages, NULL)) {
        size_t bytes = h->bytes;
        rad_host_kv_pool_destroy(h);
        return rad_fail(err, RAD_E_NOMEM,
                        "host_kv_pool: no memory for %llu pages, %zu bytes in all",
                        (unsigned long long)pages, bytes);
    }
    if (p.pinned && !h->pinned && mlock(h->memory, h->bytes) != 0) {
        int why = errno;
        size_t bytes = h->bytes;
        rad_host_kv_pool_destroy(h);
        return rad_fail(err, RAD_E_LIMIT,
                        "host_kv_pool: %zu bytes cannot be locked into memory (%s); raise "
                        "RLIMIT_MEMLOCK or use plain memory",
                        bytes, strerror(why));
    }
    h->locked = p.pinned && !h->pinned;
    *out = h;
    return RAD_OK;
}

void rad_host_kv_pool_destroy(rad_host_kv_pool *h)
{
    if (!h) return;
    rad_env env = h->env;
    if (h->locked) (void)munlock(h->memory, h->bytes);
    rad_kv_allocator_destroy(h->pages);
    if (h->pinned)
        h->copier->ops->free_pinned(h->copier, h->memory, h->bytes);
    else
        device_free(&h->own.base, h->memory, h->bytes);
    rad_free(&env, h->planes, (size_t)h->num_planes * sizeof *h->planes);
    rad_free(&env, h, sizeof *h);
}

rad_kv_allocator *host_kv_pool_allocator(rad_host_kv_pool *h)
{
    return h->pages;
}

uint32_t host_kv_pool_num_pages(const rad_host_kv_pool *h)
{
    return h->num_pages;
}

size_t host_kv_pool_page_bytes(const rad_host_kv_pool *h)
{
    return h->page_bytes;
}

rad_token_to_kv_pool *host_kv_pool_device_pool(const rad_host_kv_pool *h)
{
    return h->device_pool;
}

static bool is_page(rad_page page, uint32_t num_pages)
{
    return page >= 1 && (uint32_t)page <= num_pages;
}

void *host_kv_pool_record(rad_host_kv_pool *h, rad_page page)
{
    if (h->layout != RAD_HOST_PAGE_FIRST || !is_page(page, h->num_pages)) return NULL;
    return h->memory + (size_t)page * h->record_step;
}

typedef struct page_pairs {
    const rad_page *device;
    const rad_page *host;
    uint32_t count;
    bool to_device;
} page_pairs;

/* Packed, a page is one row; with gaps between tokens, each of its tokens is: then those of all
 * pages that stand at one place go together. */
static rad_status copy_plane(const rad_host_kv_pool *h, uint32_t plane, const page_pairs *pairs)
{
    const host_plane *p = &h->planes[plane];
    const kv_buffer *b = &h->device_pool->buffers[plane];
    bool packed = b->stride == b->row_bytes;
    size_t row_bytes = packed ? p->block : b->row_bytes;
    rad_status status = RAD_OK;
    for (uint32_t t = 0; p->block && t < (packed ? 1 : h->page_size) && !status; t++) {
        rad_device_rows there = {b->base + t * b->stride, b->stride * h->page_size, pairs->device};
        rad_device_rows here = {h->memory + p->at + t * b->row_bytes, p->step, pairs->host};
        status =
            device_move_rows(h->copier, there, here, row_bytes, pairs->count, pairs->to_device);
    }
    return status;
}

static bool pairs_are_sound(const rad_host_kv_pool *h, const page_pairs *pairs)
{
    for (uint32_t i = 0; i < pairs->count; i++)
        if (!is_page(pairs->device[i], h->device_pool->params.num_pages) ||
            !is_page(pairs->host[i], h->num_pages))
            return false;
    return true;
}

rad_status host_kv_pool_backup(rad_host_kv_pool *h, const rad_page *device_pages,
                               const rad_page *host_pages, uint32_t count)
{
    page_pairs all = {.device = device_pages, .host = host_pages, .count = count};
    if (!pairs_are_sound(h, &all)) return RAD_E_INVAL;
    rad_status status = RAD_OK;
    /* A record is written from front to back; layers of one kind are written side by side. */
    uint32_t lot = h->layout == RAD_HOST_PAGE_FIRST ? 1 : RAD_MAX(count, 1u);
    if (!device_is_cpu(h->copier))
        lot = RAD_MAX(count, 1u); /* there a call costs more than a line */
    for (uint32_t at = 0; at < count && !status; at += lot) {
        page_pairs some = {.device = device_pages + at,
                           .host = host_pages + at,
                           .count = RAD_MIN(lot, count - at)};
        for (uint32_t i = 0; i < h->num_planes && !status; i++)
            status = copy_plane(h, i, &some);
    }
    return device_fence(h->copier, status);
}

rad_status host_kv_pool_load_layer(rad_host_kv_pool *h, uint32_t layer, const rad_page *host_pages,
                                   const rad_page *device_pages, uint32_t count)
{
    page_pairs all = {
        .device = device_pages, .host = host_pages, .count = count, .to_device = true};
    uint32_t index = kv_layer_index(h->device_pool, layer);
    if (index == h->device_pool->params.num_layers || !pairs_are_sound(h, &all)) return RAD_E_INVAL;
    rad_status status = RAD_OK;
    for (uint32_t k = 0; k < KV_BUFFERS && !status; k++)
        status = copy_plane(h, index * KV_BUFFERS + k, &all);
    return device_fence(h->copier, status);
}

/* The blocks of a page, one behind another, from or to `flat`. */
static rad_status copy_page(const rad_host_kv_pool *h, rad_page page, char *flat, size_t bytes,
                            bool into_pool)
{
    if (!is_page(page, h->num_pages) || bytes != h->page_bytes) return RAD_E_INVAL;
    for (uint32_t i = 0; i < h->num_planes; flat += h->planes[i++].block) {
        char *block = h->memory + h->planes[i].at + (size_t)page * h->planes[i].step;
        memcpy(into_pool ? block : flat, into_pool ? flat : block, h->planes[i].block);
    }
    return RAD_OK;
}

rad_status host_kv_pool_get_page(const rad_host_kv_pool *h, rad_page page, void *dst, size_t bytes)
{
    return copy_page(h, page, dst, bytes, false);
}

rad_status host_kv_pool_set_page(rad_host_kv_pool *h, rad_page page, const void *src, size_t bytes)
{
    return copy_page(h, page, (char *)(uintptr_t)src, bytes, true); /* only read */
}
