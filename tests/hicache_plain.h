/* hicache_plain.h - of hicache_rig.h, for prompts that are told by their length and their first
 * token: a small cache, one request, one lookup, one insert. */
#ifndef TESTS_HICACHE_PLAIN_H
#define TESTS_HICACHE_PLAIN_H

#include "hicache_rig.h"

static inline hrig_options hrig_plain(uint32_t page_size)
{
    return (hrig_options){.page_size = page_size,
                          .device_pages = 256 / page_size,
                          .host_pages = 1024 / page_size,
                          .no_threads = true,
                          .layout = RAD_HOST_PAGE_FIRST,
                          .demote_tokens = UINT64_MAX};
}

static inline uint32_t hrig_serve_from(hrig *r, uint32_t tokens, rad_token first)
{
    hreq q = {0};
    hreq_ask(&q, 0, tokens, first);
    return hrig_serve(r, &q);
}

static inline rad_match hrig_look(const hrig *r, uint32_t tokens, rad_token first)
{
    hreq q = {0};
    rad_match match;
    hreq_ask(&q, 0, tokens, first);
    rad_key key = hreq_key(&q, tokens);
    CHECK_OK(rad_cache_lookup(r->cache, &key, &match));
    return match;
}

/* A key of `count` tokens from `first` on enters the tree. */
static inline rad_status hrig_put(hrig *r, uint32_t count, rad_token first)
{
    hreq q = {0};
    rad_slot slots[16];
    rad_inserted in;
    hreq_ask(&q, 0, count, first);
    rad_key key = hreq_key(&q, count);
    CHECK_OK(rad_kv_alloc(r->kv, slots, count));
    for (uint32_t i = 0; i < count; i++)
        hrig_write(r, slots[i], hreq_digest(&q, i));
    uint64_t before = rad_cache_evictable_size(r->cache);
    rad_status status = rad_cache_insert(r->cache, &key, slots, NULL, &in, NULL);
    CHECK((uint64_t)in.evictable_change == rad_cache_evictable_size(r->cache) - before);
    CHECK_OK(rad_kv_free(r->kv, slots, status ? count : in.prefix_tokens, NULL));
    return status;
}

#endif
