/* host_kv_pool.h - what only this library's own rooms may do with a host pool. */
#ifndef MEM_HOST_KV_POOL_H
#define MEM_HOST_KV_POOL_H

#include <radish/host_kv_pool.h>

rad_token_to_kv_pool *host_kv_pool_device_pool(const rad_host_kv_pool *pool);

#endif
