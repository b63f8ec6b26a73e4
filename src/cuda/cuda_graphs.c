/* cuda_graphs.c - see cuda_graphs.h. */
#include "cuda/cuda_graphs.h"

static const uint32_t sizes[CUDA_NUM_GRAPHS] = {1, 2, 4, 8, 16, 24, 32, 48, CUDA_GRAPH_TOKENS};

rad_status cuda_graphs_init(const rad_env *env, const cuda_gpu *gpu, uint32_t num_layers, bool off,
                            cuda_graphs *out, rad_error *err)
{
    *out = (cuda_graphs){.gpu = gpu, .num_layers = num_layers, .off = off};
    out->kv = rad_alloc(env, num_layers * sizeof *out->kv);
    return out->kv ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "cuda: no memory for graphs");
}

static void drop(cuda_graphs *g)
{
    for (uint32_t i = 0; i < CUDA_NUM_GRAPHS; i++) {
        if (g->execs[i]) g->gpu->cu->graph_exec_destroy(g->execs[i]);
        g->execs[i] = NULL;
    }
}

void cuda_graphs_fini(const rad_env *env, cuda_graphs *g)
{
    drop(g);
    rad_free(env, g->kv, g->num_layers * sizeof *g->kv);
    *g = (cuda_graphs){0};
}

static uint32_t index_of(uint32_t tokens)
{
    uint32_t i = 0;
    while (sizes[i] < tokens)
        i++;
    return i;
}

uint32_t cuda_graphs_tokens(const cuda_graphs *g, const forward_batch *batch,
                            const cuda_step_limits *l)
{
    const uint32_t n = batch->num_tokens;
    if (g->off || n != batch->num_reqs || n > CUDA_GRAPH_TOKENS || !batch->num_logits) return 0;
    const uint32_t padded = sizes[index_of(n)];
    return padded <= RAD_MIN(RAD_MIN(l->tokens, l->logits), l->requests) ? padded : 0;
}

/* Whether the pools are those that were captured; if not, they will be. */
static rad_status look_at_pools(cuda_graphs *g, const cuda_pass *p, rad_error *err)
{
    const bool windows = p->window_pool != NULL;
    bool same = g->windows == windows;
    g->windows = windows;
    for (uint32_t i = 0; i < g->num_layers; i++) {
        const cuda_kv was = g->kv[i];
        rad_status status = cuda_pass_kv(p, i, &g->kv[i], err);
        if (status != RAD_OK) return status;
        same = same && g->kv[i].at.k == was.at.k && g->kv[i].at.v == was.at.v &&
               g->kv[i].at.k_stride == was.at.k_stride && g->kv[i].at.v_stride == was.at.v_stride &&
               g->kv[i].k_scale == was.k_scale && g->kv[i].v_scale == was.v_scale;
    }
    if (!same) drop(g);
    return RAD_OK;
}

/* Other threads go on allocating and copying meanwhile: the capture is this thread's alone. */
static rad_status capture(cuda_graphs *g, const cuda_pass *p, const cuda_step *s, cuda_queue *q,
                          cuda_graph_exec *out)
{
    const cuda_driver *cu = g->gpu->cu;
    cuda_graph graph = NULL;
    rad_status status = cuda_ok(cu, cu->capture_begin(q->stream, CUDA_CAPTURE_THREAD_LOCAL),
                                "cuStreamBeginCapture", q->err);
    if (status != RAD_OK) return status;
    status = cuda_forward(p, s, q);
    const rad_status ended = cuda_ok(cu, cu->capture_end(q->stream, &graph), "cuStreamEndCapture",
                                     status == RAD_OK ? q->err : NULL);
    if (status == RAD_OK) status = ended;
    if (ended != RAD_OK && !graph) cu->capture_end(q->stream, &graph); /* it may go on capturing */
    if (status == RAD_OK)
        status = cuda_ok(cu, cu->graph_instantiate(out, graph, 0), "cuGraphInstantiate", q->err);
    if (status != RAD_OK) *out = NULL;
    if (graph) cu->graph_destroy(graph);
    g->captured += status == RAD_OK;
    return status;
}

rad_status cuda_graphs_run(cuda_graphs *g, const cuda_pass *p, const cuda_step *s, cuda_queue *q)
{
    const cuda_driver *cu = g->gpu->cu;
    rad_status status = look_at_pools(g, p, q->err);
    if (status != RAD_OK) return status;
    cuda_graph_exec *exec = &g->execs[index_of(s->tokens)];
    if (!*exec) status = capture(g, p, s, q, exec);
    if (status != RAD_OK) return status;
    return cuda_ok(cu, cu->graph_launch(*exec, q->stream), "cuGraphLaunch", q->err);
}
