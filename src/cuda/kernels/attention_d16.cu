/* attention_d16.cu - attention.h for heads of 16 numbers. */
#include "cuda/kernels/attention.h"

ATTENTION(16)
