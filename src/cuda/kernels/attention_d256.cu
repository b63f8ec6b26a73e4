/* attention_d256.cu - attention.h for heads of 256 numbers. */
#define ONE_FORM
#include "cuda/kernels/attention.h"

ATTENTION(256)
