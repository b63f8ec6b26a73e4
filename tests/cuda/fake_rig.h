/* fake_rig.h - the emulated driver's own controls (fake_libcuda.h), for tests that open it. */
#ifndef TESTS_CUDA_FAKE_RIG_H
#define TESTS_CUDA_FAKE_RIG_H

#include "../test.h"
#include "fake_libcuda.h"

#include <dlfcn.h>

typedef struct fake_driver {
#define FAKE_MEMBER(type, name, parameters) type(*name) parameters;
    FAKE_CUDA_FUNCTIONS(FAKE_MEMBER)
#undef FAKE_MEMBER
} fake_driver;

static inline const fake_driver *the_fake(void)
{
    static fake_driver f;
    if (f.fake_cuda_reset) return &f;
    void *library = dlopen(RADISH_LIBCUDA_EMULATED, RTLD_NOW | RTLD_LOCAL), *function;
    CHECKF(library, "%s\n", dlerror());
#define FAKE_FIND(type, name, parameters)                                                          \
    function = dlsym(library, #name);                                                              \
    CHECK(function);                                                                               \
    memcpy(&f.name, &function, sizeof function);
    FAKE_CUDA_FUNCTIONS(FAKE_FIND)
#undef FAKE_FIND
    return &f;
}

static inline void nothing_is_left(void)
{
    size_t device_bytes, pinned_bytes, objects;
    the_fake()->fake_cuda_live(&device_bytes, &pinned_bytes, &objects);
    CHECKF(!device_bytes && !pinned_bytes && !objects, "%zu on the GPU, %zu pinned, %zu objects\n",
           device_bytes, pinned_bytes, objects);
}

#endif
