/* attention_d16.cu - attention.h for heads of 16 numbers. */
#define ONE_FORM
#include "cuda/kernels/attention.h"

ATTENTION(16)
