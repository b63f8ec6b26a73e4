/* attention_d128.cu - attention.h for heads of 128 numbers. */
#define ONE_FORM
#include "cuda/kernels/attention.h"

ATTENTION(128)
