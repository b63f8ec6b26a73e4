/* fake_module.h - modules of the fake driver: text of PTX, and the kernels that it names. Callers
 * hold the driver's lock. Functions return a cuda_result. */
#ifndef TESTS_CUDA_FAKE_MODULE_H
#define TESTS_CUDA_FAKE_MODULE_H

#include "device/cuda_driver.h"
#include "emulator.h"

enum { FAKE_INVALID_PTX = 218 };

struct CUfunc_st {
    const emulated_kernel *kernel;
    int dynamic_shared; /* as was set */
    int static_shared;  /* bytes of its own, up to where dynamic memory begins */
    bool loaded;        /* else its first launch loads it, which no capture holds */
    bool waits;         /* for the kernels before it: its PTX has griddepcontrol.wait */
    struct CUfunc_st *next;
};

/* For a GPU and a driver that may be too old for it: `why` in words, then. */
int module_load(const char *ptx, long driver, long capability, char why[200], cuda_module *out);
int module_unload(cuda_module module);
/* The emulated form of an .entry of its text. */
int module_find(cuda_module module, const char *name, cuda_function *out);

size_t modules_count(void);
void modules_reset(void); /* frees all */

#endif
