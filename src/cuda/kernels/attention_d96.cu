/* attention_d96.cu - attention.h for heads of 96 numbers. */
#include "cuda/kernels/attention.h"

ATTENTION(96)
