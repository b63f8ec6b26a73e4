/* cuda_products.h - the products of qwen3-0.6b's and llama-8b's steps, [n][k]. */
#ifndef BENCH_CUDA_PRODUCTS_H
#define BENCH_CUDA_PRODUCTS_H

#include "cuda/kernels/kernel_args.h"

/* Those of a layer, then the two of the logits. */
enum { LAYER_PRODUCTS = 8 };
static const struct shape {
    const char *name;
    uint32_t n, k, epilogue;
} shapes[] = {{"0.6b qkv", 4096, 1024, GEMM_PARTS},       {"0.6b o", 1024, 2048, GEMM_PARTS},
              {"0.6b gate_up", 6144, 1024, GEMM_SWIGLU},  {"0.6b down", 1024, 3072, GEMM_PARTS},
              {"8b qkv", 6144, 4096, GEMM_PARTS},         {"8b o", 4096, 4096, GEMM_PARTS},
              {"8b gate_up", 28672, 4096, GEMM_SWIGLU},   {"8b down", 4096, 14336, GEMM_PARTS},
              {"0.6b lm_head", 151936, 1024, GEMM_PARTS}, {"8b lm_head", 128256, 4096, GEMM_PARTS}};

#endif
