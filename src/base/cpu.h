/* cpu.h - which instructions a process uses: what the CPU has, up to RADISH_ISA.
 *
 * The environment variable RADISH_ISA caps the kernels of products, attention, norms and the KV
 * cache's codecs: "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16" or "amx", on
 * aarch64 "scalar", "neon", "dotprod" or "i8mm", each of which includes those before it. So a
 * machine computes as an older one does, for a test or to share pages with it. Unset or empty: no
 * cap. It is read once. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include "base/base.h"

#include <stdbool.h>

/* In ascending order; each architecture's own behind CPU_SCALAR. */
typedef enum cpu_isa {
    CPU_SCALAR,
    CPU_AVX2,       /* with FMA and F16C */
    CPU_AVXVNNI,    /* AVX2 and AVX-VNNI; not every CPU with AVX512 has it */
    CPU_AVX512,     /* AVX2 and AVX-512's F, BW, VL, DQ */
    CPU_AVX512VNNI, /* these, and VNNI */
    CPU_AVX512BF16, /* AVX512 and BF16 */
    CPU_AMX,        /* true unless the cap forbids it; amx.h asks the CPU */
    CPU_NEON,       /* what every aarch64 has */
    CPU_DOTPROD,    /* and FEAT_DotProd's SDOT */
    CPU_I8MM,       /* and FEAT_I8MM's SMMLA */
    CPU_NUM_ISAS
} cpu_isa;

/* The CPU has it and the cap allows it. Any thread. */
bool cpu_has(cpu_isa isa);

/* RADISH_ISA where it is set, or NULL. */
const char *cpu_cap(void);

/* RAD_E_INVAL with the known names, if RADISH_ISA is none of them; then it caps nothing. */
rad_status cpu_cap_check(rad_error *err);

/* The name of one of this architecture's sets, NULL of another's. */
const char *cpu_isa_name(cpu_isa isa);

#endif
