/* cuda_ptx.c - see cuda_ptx.h. The assembler reads the files; the build knows that it does. */
#include "cuda/cuda_ptx.h"

#include "device/ptx_text.h"

#include <stddef.h>
#include <string.h>

#define NEW(name) PTX_TEXT(cuda_ptx_##name##_sm90, "cuda/ptx/" #name ".sm90.ptx");
#define ONE(name) PTX_TEXT(cuda_ptx_##name##_sm80, "cuda/ptx/" #name ".sm80.ptx");
#define ALL(name)                                                                                  \
    ONE(name)                                                                                      \
    NEW(name)
CUDA_PTX_FILES(ALL, NEW, ONE)

#define ENTRY_NEW(name) {#name, NULL, cuda_ptx_##name##_sm90},
#define ENTRY_ALL(name) {#name, cuda_ptx_##name##_sm80, cuda_ptx_##name##_sm90},
#define ENTRY_ONE(name) {#name, cuda_ptx_##name##_sm80, NULL},
const cuda_ptx cuda_ptx_files[CUDA_NUM_PTX] = {CUDA_PTX_FILES(ENTRY_ALL, ENTRY_NEW, ENTRY_ONE)};

/* Each word is replaced by one as long. */
void cuda_ptx_for_sm90(char *text)
{
    static const char *const words[][2] = {{".version 7.4", ".version 8.0"},
                                           {".target sm_80", ".target sm_90"},
                                           {"//griddepcontrol", "  griddepcontrol"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (char *at = text; (at = strstr(at, words[i][0])); at++)
            memcpy(at, words[i][1], strlen(words[i][1]));
}
