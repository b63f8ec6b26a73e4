/* dnnl_yardstick.h - oneDNN's matmul on the same problem, through dlopen.
 *
 * Weights are reordered into the layout that oneDNN asks for before the clock runs,
 * as ours are. Without the library or its header there is no yardstick. */
#ifndef BENCH_DNNL_YARDSTICK_H
#define BENCH_DNNL_YARDSTICK_H

#include "bench.h"

/* int8: products of bytes into f32, without scales. */
typedef enum dnnl_kind { DNNL_KIND_F32, DNNL_KIND_BF16, DNNL_KIND_INT8 } dnnl_kind;

#if defined(__has_include)
#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#endif
#endif

#if defined(DNNL_VERSION_MAJOR) && DNNL_VERSION_MAJOR == 2
#include <dlfcn.h>

typedef struct dnnl_job {
    dnnl_status_t (*execute)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t *);
    dnnl_status_t (*wait)(dnnl_stream_t);
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_exec_arg_t args[3];
} dnnl_job;

static void dnnl_call(void *arg)
{
    dnnl_job *job = arg;
    job->execute(job->primitive, job->stream, 3, job->args);
    job->wait(job->stream);
}

/* Median seconds of out[m][n] = x[m][k] * W, or 0 when oneDNN is not there. The
 * numbers do not matter; x already is in the weight's dtype, which favours it. Leaks
 * its buffers on failure: the program ends soon. */
static double dnnl_yardstick(uint32_t m, uint32_t n, uint32_t k, dnnl_kind kind, double budget)
{
    static void *lib;
    if (!lib) {
        setenv("OMP_WAIT_POLICY", "active", 0);
        lib = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    }
    if (!lib) return 0;
#define LOAD(name)                                                                                 \
    __typeof__(&name) p_##name = (__typeof__(&name))dlsym(lib, #name);                             \
    if (!p_##name) return 0
    LOAD(dnnl_engine_create);
    LOAD(dnnl_stream_create);
    LOAD(dnnl_stream_wait);
    LOAD(dnnl_memory_desc_init_by_tag);
    LOAD(dnnl_matmul_desc_init);
    LOAD(dnnl_primitive_desc_create);
    LOAD(dnnl_primitive_desc_query_md);
    LOAD(dnnl_primitive_create);
    LOAD(dnnl_primitive_execute);
    LOAD(dnnl_primitive_destroy);
    LOAD(dnnl_primitive_desc_destroy);
    LOAD(dnnl_memory_create);
    LOAD(dnnl_memory_destroy);
#undef LOAD
    static dnnl_engine_t engine;
    static dnnl_stream_t stream;
    if (!engine && p_dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) return 0;
    if (!stream && p_dnnl_stream_create(&stream, engine, 0) != dnnl_success) return 0;

    dnnl_data_type_t type = kind == DNNL_KIND_BF16 ? dnnl_bf16 : dnnl_f32, x_type = type;
    if (kind == DNNL_KIND_INT8) type = dnnl_s8, x_type = dnnl_u8;
    dnnl_memory_desc_t x_md, any_md, out_md;
    p_dnnl_memory_desc_init_by_tag(&x_md, 2, (dnnl_dims_t){m, k}, x_type, dnnl_ab);
    p_dnnl_memory_desc_init_by_tag(&any_md, 2, (dnnl_dims_t){k, n}, type, dnnl_format_tag_any);
    p_dnnl_memory_desc_init_by_tag(&out_md, 2, (dnnl_dims_t){m, n}, dnnl_f32, dnnl_ab);
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_job job = {
        .execute = p_dnnl_primitive_execute, .wait = p_dnnl_stream_wait, .stream = stream};
    if (p_dnnl_matmul_desc_init(&desc, &x_md, &any_md, NULL, &out_md) != dnnl_success ||
        p_dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL) != dnnl_success ||
        p_dnnl_primitive_create(&job.primitive, pd) != dnnl_success)
        return 0;
    const dnnl_memory_desc_t *w_md = p_dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    job.args[0].arg = DNNL_ARG_SRC;
    job.args[1].arg = DNNL_ARG_WEIGHTS;
    job.args[2].arg = DNNL_ARG_DST;
    const dnnl_memory_desc_t *mds[3] = {&x_md, w_md, &out_md};
    for (int i = 0; i < 3; i++)
        if (p_dnnl_memory_create(&job.args[i].memory, mds[i], engine, DNNL_MEMORY_ALLOCATE) !=
            dnnl_success)
            return 0;
    double seconds = bench_measure(dnnl_call, &job, budget).p50;
    for (int i = 0; i < 3; i++)
        p_dnnl_memory_destroy(job.args[i].memory);
    p_dnnl_primitive_destroy(job.primitive);
    p_dnnl_primitive_desc_destroy(pd);
    return seconds;
}
#else
static double dnnl_yardstick(uint32_t m, uint32_t n, uint32_t k, dnnl_kind kind, double budget)
{
    (void)m, (void)n, (void)k, (void)kind, (void)budget;
    return 0;
}
#endif

#endif
