/* attention_d96.cu - attention.h for heads of 96 numbers. */
#define ONE_FORM
#include "cuda/kernels/attention.h"

ATTENTION(96)
