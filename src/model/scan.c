/* scan.c - the kernels in plain C, the judge of the others, and the choice among them.
 *
 * fmaf rounds once, as the vector instruction does. */
#include "base/base.h"
#include "base/cpu.h"

#include <math.h>

typedef float vec;
enum { WIDTH = 1 };

static inline vec vec_load(const float *p)
{
    return *p;
}
static inline void vec_store(float *p, vec v)
{
    *p = v;
}
static inline vec vec_set1(float x)
{
    return x;
}
static inline vec vec_mul(vec a, vec b)
{
    return a * b;
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return fmaf(a, b, c);
}
static inline vec vec_fnma(vec a, vec b, vec c)
{
    return fmaf(-a, b, c);
}

#include "model/scan_body.h"

const scan_isa scan_scalar = {"scalar", run_delta, run_mamba};

const scan_isa *scan_find(const char *name)
{
    static const struct {
        const scan_isa *isa;
        cpu_isa wants;
    } best_first[] = {{&scan_avx512, CPU_AVX512},
                      {&scan_avx2, CPU_AVX2},
                      {&scan_neon, CPU_NEON},
                      {&scan_scalar, CPU_SCALAR}};
    for (size_t i = 0; i < RAD_COUNT(best_first); i++) {
        const scan_isa *isa = best_first[i].isa;
        const bool here = isa == &scan_scalar || (isa->name && cpu_has(best_first[i].wants));
        if (here && (!name || !strcmp(name, isa->name))) return isa;
    }
    return NULL;
}
