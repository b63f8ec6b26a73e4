/* guarded.h - memory that ends where the readable world ends, and numbers to put in it. */
#ifndef TESTS_GUARDED_H
#define TESTS_GUARDED_H

#include "test.h"

#include <sys/mman.h>
#include <unistd.h>

/* Memory that ends where a page without access begins. `bytes` keeps its alignment
 * only as far as it is a multiple of it. */
typedef struct guarded {
    void *map;
    size_t map_bytes;
    void *data;
} guarded;

static inline guarded guarded_alloc(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (bytes + page - 1) / page * page;
    guarded g = {.map_bytes = body + page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(g.map != MAP_FAILED);
    CHECK(mprotect((char *)g.map + body, page, PROT_NONE) == 0);
    g.data = (char *)g.map + body - bytes;
    return g;
}

static inline void guarded_free(guarded *g)
{
    munmap(g->map, g->map_bytes);
}

/* Roughly normal. */
static inline float random_float(uint64_t *seed)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(test_random(seed) >> 40) * 0x1p-24f - 0.5f;
    return sum;
}

static inline void fill(float *x, size_t count, uint64_t *seed)
{
    for (size_t i = 0; i < count; i++)
        x[i] = random_float(seed);
}

#endif
