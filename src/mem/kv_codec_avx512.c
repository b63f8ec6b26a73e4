/* kv_codec_avx512.c - the same loops in sixteen lanes. */
#if defined(__x86_64__)
#include "mem/kv_codec_loops.h"

const kv_codec kv_codec_avx512 = KV_CODEC("avx512");
#endif
