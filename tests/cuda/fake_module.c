/* fake_module.c - PTX is read as far as it says what it is for, and which kernels it has.
 *
 * Its end is known, and searches stay in front of it: under ASan strstr measures all of the text
 * behind where it begins, each time, and a text has a megabyte. */
#define _GNU_SOURCE /* memmem */
#include "fake_module.h"
#include "fake_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUmod_st {
    char *ptx, *end;
    bool hopper; /* for sm_90a */
    struct CUfunc_st *functions;
    struct CUmod_st *next;
};

static struct CUmod_st *modules;

/* `what` in [at, end), or NULL. */
static const char *find(const char *at, const char *end, const char *what)
{
    return memmem(at, (size_t)(end - at), what, strlen(what));
}

/* The number behind a directive of the text, times 10: ".version 7.4" is 74, ".target sm_90a" 900.
 */
static int directive(const char *ptx, const char *ptx_end, const char *name)
{
    const char *at = find(ptx, ptx_end, name);
    if (!at) return 0;
    at += strlen(name);
    char *end;
    long whole = strtol(at, &end, 10);
    return (int)(whole * 10 + (*end == '.' ? end[1] - '0' : 0));
}

/* The text of a kernel, from its name to the next one or the end; NULL: there is none. */
static const char *find_entry(cuda_module module, const char *name, const char **end)
{
    size_t length = strlen(name);
    for (const char *at = module->ptx; (at = find(at, module->end, ".entry ")); at++) {
        if (strncmp(at + 7, name, length) != 0 || !strchr("( \n", at[7 + length])) continue;
        *end = find(at + 7, module->end, ".entry ");
        if (!*end) *end = module->end;
        return at + 7;
    }
    return NULL;
}

/* And not as a comment. */
static bool has(const char *at, const char *end, const char *what)
{
    while ((at = find(at, end, what)) && at[-1] == '/')
        at++;
    return at;
}

/* Bytes of ".shared .align 16 .b8 NAME[64];", all that stand in this text. */
static int shared_of(const char *at, const char *end)
{
    long bytes = 0;
    while ((at = find(at, end, ".shared .align "))) {
        char *next;
        const long align = strtol(at + 15, &next, 10);
        const long bits = strtol(next + 3, &next, 10), line = (long)strcspn(next, ";\n");
        const char *count = memchr(next, '[', (size_t)line);
        bytes = (bytes + align - 1) / align * align;
        bytes += bits / 8 * (count ? strtol(count + 1, NULL, 10) : 1);
        at = next;
    }
    return (int)bytes;
}

static int refuse(const char *ptx, const char *end, long driver, long capability, char why[200])
{
    int version = directive(ptx, end, ".version ");
    int target = directive(ptx, end, ".target sm_") / 10;
    int needs = version < 70   ? 0
                : version < 80 ? 11000 + (version - 70) * 10
                               : 12000 + (version - 80) * 10;
    if (!version || !target) {
        (void)snprintf(why, 200, "ptxas fatal: no .version or no .target");
        return FAKE_INVALID_PTX;
    }
    if (needs > driver) {
        (void)snprintf(why, 200, "ptxas fatal: unsupported .version %d.%d", version / 10,
                       version % 10);
        return CUDA_UNSUPPORTED_PTX;
    }
    if (target > capability || (find(ptx, end, ".target sm_90a") && capability != 90)) {
        (void)snprintf(why, 200, "ptxas fatal: SM version of PTX is sm_%d, of the GPU sm_%ld",
                       target, capability);
        return FAKE_INVALID_PTX;
    }
    return CUDA_OK;
}

int module_load(const char *ptx, long driver, long capability, char why[200], cuda_module *out)
{
    const size_t bytes = strlen(ptx);
    int refused = refuse(ptx, ptx + bytes, driver, capability, why);
    if (refused) return refused;
    cuda_module loaded = calloc(1, sizeof *loaded);
    if (!loaded || !(loaded->ptx = malloc(bytes + 1))) abort();
    memcpy(loaded->ptx, ptx, bytes + 1);
    loaded->end = loaded->ptx + bytes;
    loaded->hopper = find(loaded->ptx, loaded->end, ".target sm_90a") != NULL;
    loaded->next = modules;
    *out = modules = loaded;
    return CUDA_OK;
}

static bool module_exists(cuda_module module)
{
    for (cuda_module m = modules; m; m = m->next)
        if (m == module) return true;
    return false;
}

int module_unload(cuda_module module)
{
    if (!module_exists(module)) return FAKE_INVALID_HANDLE;
    cuda_module *link = &modules;
    while (*link != module)
        link = &(*link)->next;
    *link = module->next;
    while (module->functions) {
        cuda_function function = module->functions;
        module->functions = function->next;
        free(function);
    }
    free(module->ptx);
    free(module);
    return CUDA_OK;
}

int module_find(cuda_module module, const char *name, cuda_function *out)
{
    if (!module_exists(module)) return FAKE_INVALID_HANDLE;
    const char *end, *entry = find_entry(module, name, &end);
    if (!entry) return CUDA_NOT_FOUND;
    char hopper[128];
    (void)snprintf(hopper, sizeof hopper, "sm90:%s", name);
    const emulated_kernel *kernel = module->hopper ? emulator_find(hopper) : NULL;
    if (!kernel) kernel = emulator_find(name);
    if (!kernel) {
        fprintf(stderr, "libcuda-emulated: no C form of kernel %s is linked\n", name);
        return CUDA_NOT_FOUND;
    }
    cuda_function found = calloc(1, sizeof *found);
    if (!found) abort();
    found->kernel = kernel;
    found->waits = has(entry, end, "griddepcontrol.wait");
    found->static_shared = shared_of(entry, end);
    if (has(entry, end, "dynamic_shared")) /* which is aligned so */
        found->static_shared = (found->static_shared + 1023) / 1024 * 1024;
    found->next = module->functions;
    *out = module->functions = found;
    return CUDA_OK;
}

size_t modules_count(void)
{
    size_t count = 0;
    for (cuda_module m = modules; m; m = m->next)
        count++;
    return count;
}

void modules_reset(void)
{
    while (modules)
        (void)module_unload(modules);
}
