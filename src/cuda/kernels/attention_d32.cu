/* attention_d32.cu - attention.h for heads of 32 numbers. */
#include "cuda/kernels/attention.h"

ATTENTION(32)
