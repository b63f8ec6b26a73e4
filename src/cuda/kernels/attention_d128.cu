/* attention_d128.cu - attention.h for heads of 128 numbers. */
#include "cuda/kernels/attention.h"

ATTENTION(128)
