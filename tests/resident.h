/* resident.h - which part of a piece of memory has pages behind it. */
#ifndef TESTS_RESIDENT_H
#define TESTS_RESIDENT_H

#include "test.h"

#include <radish/token_to_kv_pool.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of the pages that the bytes lie in, 0 to 1. */
static inline double resident_share(const void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)memory;
    uintptr_t start = at & -page, end = (at + bytes + page - 1) & -page;
    size_t count = (end - start) / page, there = 0;
    unsigned char *map = calloc(count + 1, 1);
    CHECK(map && mincore((void *)start, end - start, map) == 0);
    for (size_t i = 0; i < count; i++)
        there += map[i] & 1;
    free(map);
    return count ? (double)there / (double)count : 1;
}

static inline bool can_populate(void)
{
    rad_token_to_kv_pool_params p = {.struct_size = sizeof p,
                                     .num_pages = 4,
                                     .num_layers = 1,
                                     .num_kv_heads = 1,
                                     .head_dim = 8,
                                     .dtype = RAD_F32};
    rad_token_to_kv_pool *pool = NULL;
    CHECK_OK(rad_token_to_kv_pool_create(NULL, &p, &pool, NULL));
    rad_status status = rad_kv_pool_populate(pool, 0, 0, 1);
    rad_token_to_kv_pool_destroy(pool);
    return status != RAD_E_UNSUPPORTED;
}

#define NEED_POPULATE() SKIP_UNLESS(can_populate(), "this kernel cannot populate memory")

#endif
