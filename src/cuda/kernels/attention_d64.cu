/* attention_d64.cu - attention.h for heads of 64 numbers. */
#define ONE_FORM
#include "cuda/kernels/attention.h"

ATTENTION(64)
