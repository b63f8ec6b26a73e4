/* kv_codec.c - picks the loops for this CPU, and holds those for any. */
#include "base/cpu.h"
#include "mem/kv_codec_loops.h"

uint32_t kv_dtype_bytes(uint32_t dtype)
{
    switch (dtype) {
    case RAD_F32: return 4;
    case RAD_BF16:
    case RAD_F16: return 2;
    case RAD_F8_E4M3:
    case RAD_F8_E5M2:
    case RAD_I8: return 1;
    default: return 0;
    }
}

static const char *const names[] = {
    [RAD_F32] = "f32",          [RAD_BF16] = "bf16",        [RAD_F16] = "f16",
    [RAD_F8_E4M3] = "fp8_e4m3", [RAD_F8_E5M2] = "fp8_e5m2", [RAD_I8] = "int8"};

const char *kv_dtype_name(uint32_t dtype)
{
    return dtype < RAD_COUNT(names) ? names[dtype] : "?";
}

bool kv_dtype_find(const char *name, rad_dtype *dtype)
{
    for (uint32_t i = 0; i < RAD_COUNT(names); i++)
        if (!strcmp(name, names[i])) {
            *dtype = (rad_dtype)i;
            return true;
        }
    return false;
}

bool kv_dtype_is_fp8(uint32_t dtype)
{
    return dtype == RAD_F8_E4M3 || dtype == RAD_F8_E5M2;
}

static const kv_codec plain = KV_CODEC("plain");

#if defined(__x86_64__)
const kv_codec *kv_codec_for(const char *isa)
{
    if (cpu_has(CPU_AVX512) && (!isa || !strcmp(isa, "avx512"))) return &kv_codec_avx512;
    if (cpu_has(CPU_AVX2) && (!isa || !strcmp(isa, "avx2"))) return &kv_codec_avx2;
    return !isa || !strcmp(isa, "plain") ? &plain : NULL;
}
#else
const kv_codec *kv_codec_for(const char *isa)
{
    return !isa || !strcmp(isa, "plain") ? &plain : NULL;
}
#endif
