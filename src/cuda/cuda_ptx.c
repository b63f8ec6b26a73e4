/* cuda_ptx.c - see cuda_ptx.h. The assembler reads the files; the build knows that it does. */
#include "cuda/cuda_ptx.h"

#include "device/ptx_text.h"

#include <stddef.h>

#define NEW(name) PTX_TEXT(cuda_ptx_##name##_sm90, "cuda/ptx/" #name ".sm90.ptx");
#define ALL(name)                                                                                  \
    PTX_TEXT(cuda_ptx_##name##_sm80, "cuda/ptx/" #name ".sm80.ptx");                               \
    NEW(name)
CUDA_PTX_FILES(ALL, NEW)

#define ENTRY_NEW(name) {#name, NULL, cuda_ptx_##name##_sm90},
#define ENTRY_ALL(name) {#name, cuda_ptx_##name##_sm80, cuda_ptx_##name##_sm90},
const cuda_ptx cuda_ptx_files[CUDA_NUM_PTX] = {CUDA_PTX_FILES(ENTRY_ALL, ENTRY_NEW)};
