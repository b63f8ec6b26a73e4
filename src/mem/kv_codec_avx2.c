/* kv_codec_avx2.c - the same loops in eight lanes. */
#if defined(__x86_64__)
#include "mem/kv_codec_loops.h"

const kv_codec kv_codec_avx2 = KV_CODEC("avx2");
#endif
