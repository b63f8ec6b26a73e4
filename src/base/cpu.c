/* cpu.c - see cpu.h. */
#include "base/cpu.h"

#include <pthread.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Not every compiler knows a name for it. */
static bool has_avxvnni(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>

/* Bits of AT_HWCAP and (I8MM2) AT_HWCAP2, as the kernel's ABI numbers them. */
enum { ASIMD = 1, ASIMDDP = 20, I8MM2 = 13 };

static bool has_bit(unsigned long type, int bit)
{
    return getauxval(type) >> bit & 1;
}
#endif

/* Those of this architecture; the others cap nothing here, and are refused. */
static const char *const names[CPU_NUM_ISAS] = {
    [CPU_SCALAR] = "scalar",
#if defined(__x86_64__)
    [CPU_AVX2] = "avx2",
    [CPU_AVXVNNI] = "avxvnni",
    [CPU_AVX512] = "avx512",
    [CPU_AVX512VNNI] = "avx512vnni",
    [CPU_AVX512BF16] = "avx512bf16",
    [CPU_AMX] = "amx",
#define KNOWN "scalar, avx2, avxvnni, avx512, avx512vnni, avx512bf16 or amx"
#elif defined(__aarch64__)
    [CPU_NEON] = "neon",
    [CPU_DOTPROD] = "dotprod",
    [CPU_I8MM] = "i8mm",
#define KNOWN "scalar, neon, dotprod or i8mm"
#else
#define KNOWN "scalar"
#endif
};

static const char *cap;
static cpu_isa highest = CPU_NUM_ISAS; /* that the cap allows; CPU_NUM_ISAS: all */

static void look(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
    const char *value = getenv("RADISH_ISA");
    if (!value || !*value) return;
    cap = value;
    for (int isa = 0; isa < CPU_NUM_ISAS; isa++)
        if (names[isa] && !strcmp(value, names[isa])) highest = (cpu_isa)isa;
}

static void look_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
}

const char *cpu_cap(void)
{
    look_once();
    return cap;
}

const char *cpu_isa_name(cpu_isa isa)
{
    return isa < CPU_NUM_ISAS ? names[isa] : NULL;
}

rad_status cpu_cap_check(rad_error *err)
{
    look_once();
    if (!cap || highest != CPU_NUM_ISAS) return RAD_OK;
    return rad_fail(err, RAD_E_INVAL, "RADISH_ISA is " KNOWN ", not '%s'", cap);
}

bool cpu_has(cpu_isa isa)
{
    look_once();
    if (isa > highest) return false;
    if (isa == CPU_SCALAR) return true;
#if defined(__x86_64__)
    /* f16c is not asked for: every CPU with AVX2 has it, and clang knows no name for it. */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == CPU_AVX2) return avx2;
    if (isa == CPU_AVXVNNI) return avx2 && has_avxvnni();
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (isa == CPU_AVX512) return avx512;
    bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    if (isa == CPU_AVX512VNNI) return vnni;
    /* Attention's bf16 kernels do not ask for VNNI; the products of that name do. */
    if (isa == CPU_AVX512BF16) return avx512 && __builtin_cpu_supports("avx512bf16");
    return isa == CPU_AMX;
#elif defined(__aarch64__)
    if (isa == CPU_NEON) return has_bit(AT_HWCAP, ASIMD);
    if (isa == CPU_DOTPROD) return has_bit(AT_HWCAP, ASIMDDP);
    if (isa == CPU_I8MM) return cpu_has(CPU_DOTPROD) && has_bit(AT_HWCAP2, I8MM2);
    return false;
#else
    return false;
#endif
}
