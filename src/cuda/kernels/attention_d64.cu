/* attention_d64.cu - attention.h for heads of 64 numbers. */
#include "cuda/kernels/attention.h"

ATTENTION(64)
