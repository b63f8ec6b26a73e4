/* attention_d32.cu - attention.h for heads of 32 numbers. */
#define ONE_FORM
#include "cuda/kernels/attention.h"

ATTENTION(32)
