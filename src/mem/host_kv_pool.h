/* host_kv_pool.h - what only this library's own rooms may do with a host pool. */
#ifndef MEM_HOST_KV_POOL_H
#define MEM_HOST_KV_POOL_H

#include <radish/host_kv_pool.h>

/* Who has which host page: 1..num_pages; the pool's own, and its owner thread's. */
rad_kv_allocator *host_kv_pool_allocator(rad_host_kv_pool *pool);

/* O(1). */
uint32_t host_kv_pool_num_pages(const rad_host_kv_pool *pool);
size_t host_kv_pool_page_bytes(const rad_host_kv_pool *pool); /* the payload */

/* The page's record, header room included, or NULL in layer_first. */
void *host_kv_pool_record(rad_host_kv_pool *pool, rad_page host_page);

/* Copies device_pages[i] to host_pages[i], all layers, or the layer back. The caller sees to
 * it that nobody writes the source meanwhile. RAD_E_INVAL, and nothing copied, for a page or
 * layer that is not the pool's; RAD_E_IO when the device failed: the target is then
 * undefined. O(bytes). */
rad_status host_kv_pool_backup(rad_host_kv_pool *pool, const rad_page *device_pages,
                               const rad_page *host_pages, uint32_t count);
rad_status host_kv_pool_load_layer(rad_host_kv_pool *pool, uint32_t layer,
                                   const rad_page *host_pages, const rad_page *device_pages,
                                   uint32_t count);

/* The payload of one page out of the pool, or into it; `bytes` must be page_bytes. For
 * storage in layer_first, and for comparisons. RAD_E_INVAL otherwise. */
rad_status host_kv_pool_get_page(const rad_host_kv_pool *pool, rad_page host_page, void *dst,
                                 size_t bytes);
rad_status host_kv_pool_set_page(rad_host_kv_pool *pool, rad_page host_page, const void *src,
                                 size_t bytes);

rad_token_to_kv_pool *host_kv_pool_device_pool(const rad_host_kv_pool *pool);

#endif
