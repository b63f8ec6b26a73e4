/* attention_d256.cu - attention.h for heads of 256 numbers. */
#include "cuda/kernels/attention.h"

ATTENTION(256)
