/* cuda_graphs.h - steps that only decode, captured once for each number of tokens and replayed.
 *
 * A step of few tokens is as many launches as one of many, and each costs the CPU some
 * microseconds: a graph is one call for all of them. Its kernels have their arguments from the
 * capture; what differs from step to step is read from the step's block. Tokens are padded to one
 * of a few numbers. A graph is for one pool, or two: when others come, all are captured anew. */
#ifndef CUDA_CUDA_GRAPHS_H
#define CUDA_CUDA_GRAPHS_H

#include "cuda/cuda_forward.h"

enum { CUDA_NUM_GRAPHS = 9, CUDA_GRAPH_TOKENS = 64 };

typedef struct cuda_graphs {
    const cuda_gpu *gpu;
    cuda_graph_exec execs[CUDA_NUM_GRAPHS];
    cuda_kv *kv;  /* [num_layers] of the pools that they read; */
    bool windows; /* there are two */
    uint32_t num_layers;
    bool off;
    uint64_t captured;
} cuda_graphs;

rad_status cuda_graphs_init(const rad_env *env, const cuda_gpu *gpu, uint32_t num_layers, bool off,
                            cuda_graphs *out, rad_error *err);
void cuda_graphs_fini(const rad_env *env, cuda_graphs *g);

/* To how many tokens the batch is padded; 0: it is none for a graph. */
uint32_t cuda_graphs_tokens(const cuda_graphs *g, const forward_batch *batch,
                            const cuda_step_limits *l);

/* Launches a padded step, captured before if need be. Waits for all layers of the pools. */
rad_status cuda_graphs_run(cuda_graphs *g, const cuda_pass *p, const cuda_step *s, cuda_queue *q);

#endif
