/* cuda_bench.h - a GPU for benchmarks: kernels from PTX files, a pool of random numbers that is
 * read from memory and never from the L2, and launches timed inside graphs. */
#ifndef BENCH_CUDA_BENCH_H
#define BENCH_CUDA_BENCH_H

#include "bench.h"

#include "cuda/cuda_ptx.h"
#include "device/cuda_driver.h"
#include "kernels/bench_args.h"

/* What a program may be asked beside --ptx, --bench-ptx and --json. */
typedef struct cuda_bench_option {
    const char *name;
    const char *of;     /* what its value is, for the words of usage; NULL: it is a flag */
    const char **value; /* of one with a value, */
    bool *flag;         /* of a flag */
} cuda_bench_option;

/* Folders of NAME.sm80.ptx and NAME.sm90.ptx: the runner's kernels, and the benchmarks' own. */
typedef struct cuda_bench_words {
    const char *ptx, *bench_ptx;
    const char *json; /* a file's name, or NULL */
} cuda_bench_words;

static inline void cuda_bench_usage(const char *program, const cuda_bench_option *more,
                                    uint32_t count)
{
    fprintf(stderr, "%s [--ptx DIR] [--bench-ptx DIR] [--json FILE]", program);
    for (uint32_t i = 0; i < count; i++)
        fprintf(stderr, " [%s%s%s]", more[i].name, more[i].of ? " " : "",
                more[i].of ? more[i].of : "");
    fputc('\n', stderr);
    exit(2);
}

/* What was asked; words that it does not know end the program with how it is called. */
static inline cuda_bench_words cuda_bench_read_words(int argc, char **argv,
                                                     const cuda_bench_option *more, uint32_t count)
{
    cuda_bench_words words = {.ptx = "src/cuda/ptx", .bench_ptx = "bench/ptx"};
    for (int i = 1; i < argc; i++) {
        const char **to = strcmp(argv[i], "--ptx") == 0         ? &words.ptx
                          : strcmp(argv[i], "--bench-ptx") == 0 ? &words.bench_ptx
                          : strcmp(argv[i], "--json") == 0      ? &words.json
                                                                : NULL;
        bool *flag = NULL;
        for (uint32_t m = 0; m < count; m++)
            if (strcmp(argv[i], more[m].name) == 0) to = more[m].value, flag = more[m].flag;
        if (flag)
            *flag = true;
        else if (to && i + 1 < argc)
            *to = argv[++i];
        else
            cuda_bench_usage(argv[0], more, count);
    }
    return words;
}

typedef struct cuda_bench {
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_stream stream;
    cuda_event begin, end;
    const char *ptx;
    cuda_ptr pool; /* random bf16; as fp8 it has no NaN, either */
    size_t pool_bytes;
    double read_rate; /* bytes a second: the fastest that kernels alone read the pool */
} cuda_bench;

/* Benchmarks end at the first error, with its words. */
static inline void cuda_bench_ok(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}
static inline void cuda_bench_did(const cuda_bench *b, int result, const char *what)
{
    rad_error err;
    cuda_bench_ok(cuda_ok(&b->cu, result, what, &err), &err);
}

/* Kernels of `file`: its sm_90 form where the folder has one and the GPU is 9.0. */
static inline cuda_module cuda_bench_load(const cuda_bench *b, const char *folder, const char *file)
{
    char path[512], *text = NULL;
    rad_error err;
    cuda_module module;
    FILE *in = NULL;
    const bool sm90 = b->gpu.capability == 90 && b->cu.version >= 12000; /* cuda_kernels_arch */
    if (sm90) {
        snprintf(path, sizeof path, "%s/%s.sm90.ptx", folder, file);
        in = fopen(path, "rb");
    }
    if (!in) {
        snprintf(path, sizeof path, "%s/%s.sm80.ptx", folder, file);
        in = fopen(path, "rb");
    }
    if (!in) {
        fprintf(stderr, "%s: no such file\n", path);
        exit(1);
    }
    fseek(in, 0, SEEK_END);
    const long bytes = ftell(in);
    rewind(in);
    text = calloc((size_t)bytes + 1, 1);
    if (!text || fread(text, 1, (size_t)bytes, in) != (size_t)bytes) exit(1);
    fclose(in);
    if (sm90 && strstr(text, "//griddepcontrol")) cuda_ptx_for_sm90(text);
    cuda_bench_ok(cuda_module_load(&b->cu, file, text, &module, &err), &err);
    free(text);
    return module;
}

static inline cuda_function cuda_bench_kernel(const cuda_bench *b, cuda_module module,
                                              const char *name, size_t args_bytes,
                                              uint32_t shared_bytes)
{
    rad_error err;
    cuda_function function;
    cuda_bench_ok(
        cuda_function_get(&b->cu, module, name, args_bytes, shared_bytes, &function, &err), &err);
    return function;
}

/* One launch of what is measured; `i` counts them, so that each reads another part of the pool. */
typedef struct cuda_launcher {
    void (*launch)(const cuda_bench *b, const void *of, uint32_t i, bool dependent);
    const void *of;
} cuda_launcher;

/* Seconds of a launch: the median of `repeats` replays of a graph of `count` of them. `dependent`:
 * each may begin before the one before has ended. */
static inline double cuda_bench_seconds(const cuda_bench *b, cuda_launcher l, uint32_t count,
                                        uint32_t repeats, bool dependent)
{
    double seconds[64];
    cuda_graph graph;
    cuda_graph_exec exec;
    const cuda_driver *cu = &b->cu;
    repeats = RAD_MIN(repeats, (uint32_t)RAD_COUNT(seconds));
    cuda_bench_did(b, cu->capture_begin(b->stream, CUDA_CAPTURE_THREAD_LOCAL), "capture");
    for (uint32_t i = 0; i < count; i++)
        l.launch(b, l.of, i, dependent && i);
    cuda_bench_did(b, cu->capture_end(b->stream, &graph), "capture's end");
    cuda_bench_did(b, cu->graph_instantiate(&exec, graph, 0), "graph");
    for (uint32_t r = 0; r <= repeats; r++) { /* the first one warms up */
        float ms;
        cuda_bench_did(b, cu->event_record(b->begin, b->stream), "event");
        cuda_bench_did(b, cu->graph_launch(exec, b->stream), "graph launch");
        cuda_bench_did(b, cu->event_record(b->end, b->stream), "event");
        cuda_bench_did(b, cu->event_synchronize(b->end), "running");
        cuda_bench_did(b, cu->event_elapsed(&ms, b->begin, b->end), "time");
        if (r) seconds[r - 1] = ms * 1e-3 / count;
    }
    cu->graph_exec_destroy(exec);
    cu->graph_destroy(graph);
    return bench_median(seconds, repeats);
}

typedef struct cuda_bench_reader {
    cuda_function read;
    cuda_ptr sink;
    uint32_t blocks;
} cuda_bench_reader;

static inline void cuda_bench_read(const cuda_bench *b, const void *of, uint32_t i, bool dependent)
{
    rad_error err;
    const cuda_bench_reader *r = of;
    const bench_read_args args = {(const void *)b->pool, b->pool_bytes / 16, (void *)r->sink};
    const uint32_t grid[3] = {r->blocks, 1, 1};
    (void)i;
    cuda_bench_ok(
        cuda_launch(&b->cu, r->read, grid, 512, 0, b->stream, dependent, &args, sizeof args, &err),
        &err);
}

/* Says what it found. */
static inline void cuda_bench_open(cuda_bench *b, const cuda_bench_words *words, size_t pool_bytes)
{
    rad_error err;
    *b = (cuda_bench){.ptx = words->ptx, .pool_bytes = pool_bytes};
    cuda_bench_ok(cuda_driver_open(NULL, &b->cu, &err), &err);
    cuda_bench_ok(cuda_gpu_open(&b->cu, 0, NULL, &b->gpu, &err), &err);
    cuda_bench_ok(cuda_gpu_enter(&b->gpu, &err), &err);
    cuda_bench_did(b, b->cu.stream_create(&b->stream, CUDA_STREAM_NON_BLOCKING), "stream");
    cuda_bench_did(b, b->cu.event_create(&b->begin, 0), "event");
    cuda_bench_did(b, b->cu.event_create(&b->end, 0), "event");
    cuda_bench_did(b, b->cu.mem_alloc(&b->pool, pool_bytes + 256), "memory");

    cuda_module module = cuda_bench_load(b, words->bench_ptx, "bench_memory");
    cuda_function fill = cuda_bench_kernel(b, module, "bench_fill", sizeof(bench_fill_args), 0);
    const bench_fill_args args = {(void *)b->pool, pool_bytes / 4};
    const uint32_t grid[3] = {(uint32_t)b->gpu.multiprocessors * 8, 1, 1};
    cuda_bench_ok(
        cuda_launch(&b->cu, fill, grid, 256, 0, b->stream, false, &args, sizeof args, &err), &err);

    cuda_bench_reader reader = {
        .read = cuda_bench_kernel(b, module, "bench_read", sizeof(bench_read_args), 0),
        .sink = b->pool + pool_bytes};
    for (uint32_t blocks = 1; blocks <= 4; blocks++) {
        reader.blocks = blocks * (uint32_t)b->gpu.multiprocessors;
        double s = cuda_bench_seconds(b, (cuda_launcher){cuda_bench_read, &reader}, 2, 5, false);
        if ((double)pool_bytes / s > b->read_rate) b->read_rate = (double)pool_bytes / s;
    }
    printf("%s, %d multiprocessors: reads %.2f TB/s at most\n", b->gpu.name, b->gpu.multiprocessors,
           b->read_rate * 1e-12);
}

/* Opens the file that was asked for, with what was found in it; NULL: none was. The program adds
 * `, "name": [` and its rows, and ends it with cuda_bench_json_end. */
static inline FILE *cuda_bench_json_begin(const cuda_bench *b, const cuda_bench_words *words)
{
    if (!words->json) return NULL;
    FILE *json = fopen(words->json, "w");
    if (!json) {
        fprintf(stderr, "%s: cannot be written\n", words->json);
        exit(1);
    }
    fprintf(json, "{\"gpu\": \"%s\", \"read_bytes_per_second\": %.5g", b->gpu.name, b->read_rate);
    return json;
}

static inline void cuda_bench_json_end(FILE *json)
{
    if (!json) return;
    fprintf(json, "\n]}\n");
    fclose(json);
}

static inline void cuda_bench_close(cuda_bench *b)
{
    b->cu.mem_free(b->pool);
    b->cu.event_destroy(b->begin);
    b->cu.event_destroy(b->end);
    b->cu.stream_destroy(b->stream);
    cuda_gpu_leave(&b->gpu);
    cuda_gpu_close(&b->gpu);
    cuda_driver_close(&b->cu);
}

#endif
