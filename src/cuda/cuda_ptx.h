/* cuda_ptx.h - the PTX of this room's kernels, as this program carries it (ptx/, made by
 * tools/make-ptx.sh): text that ends in NUL. */
#ifndef CUDA_CUDA_PTX_H
#define CUDA_CUDA_PTX_H

/* ALL(name): in a form for every GPU, and in one for sm_90; NEW(name): in that alone; ONE(name): in
 * the first, of which cuda_ptx_for_sm90 makes the second. */
#define CUDA_PTX_FILES(ALL, NEW, ONE)                                                              \
    ONE(embed)                                                                                     \
    ONE(embed_quant)                                                                               \
    ONE(norm)                                                                                      \
    ONE(qkv)                                                                                       \
    ONE(glu)                                                                                       \
    ONE(cap)                                                                                       \
    ONE(slots)                                                                                     \
    ALL(sample)                                                                                    \
    ONE(gemm_few)                                                                                  \
    ONE(gemm_many)                                                                                 \
    ONE(gemm_quant)                                                                                \
    ALL(gemm_quant_many)                                                                           \
    ONE(gemm_quant_experts)                                                                        \
    ONE(gemm_experts)                                                                              \
    ONE(experts)                                                                                   \
    ONE(quantise_rows)                                                                             \
    NEW(gemm_wgmma)                                                                                \
    ONE(attention_d16)                                                                             \
    ONE(attention_d32)                                                                             \
    ONE(attention_d64)                                                                             \
    ONE(attention_d96)                                                                             \
    ONE(attention_d128)                                                                            \
    ONE(attention_d256)                                                                            \
    ONE(attention_d16_f8)                                                                          \
    ONE(attention_d32_f8)                                                                          \
    ONE(attention_d64_f8)                                                                          \
    ONE(attention_d96_f8)                                                                          \
    ONE(attention_d128_f8)                                                                         \
    ONE(attention_d256_f8)                                                                         \
    ONE(attention_merge)

typedef struct cuda_ptx {
    const char *name;
    const char *sm80; /* for every GPU from sm_80 on; NULL: it has no kernels for those */
    const char *sm90; /* for sm_90 alone; NULL: made of the other */
} cuda_ptx;

enum {
#define CUDA_PTX_COUNT(name) CUDA_PTX_OF_##name,
    CUDA_PTX_FILES(CUDA_PTX_COUNT, CUDA_PTX_COUNT, CUDA_PTX_COUNT)
#undef CUDA_PTX_COUNT
        CUDA_NUM_PTX
};

extern const cuda_ptx cuda_ptx_files[CUDA_NUM_PTX];

/* Makes a text of one form, for every GPU, that for sm_90, in place: with its dependent launches,
 * which stand there as comments (ONE_FORM in dialect.h). */
void cuda_ptx_for_sm90(char *text);

#endif
