/* attention_d16_f8.cu - attention.h for heads of 16 numbers, over K and V of fp8. */
#define ONE_FORM
#include "cuda/kernels/attention.h"

ATTENTION_F8(16)
