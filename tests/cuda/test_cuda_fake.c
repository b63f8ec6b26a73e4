/* The fake driver holds its callers to what a GPU's driver leaves open: fake_libcuda.h. */
#include "device/cuda_driver.h"
#include "fake_rig.h"
#include "toy_kernels.h"

#include <sys/wait.h>

static const char ptx[] = ".version 7.8\n.target sm_90\n.address_size 64\n"
                          ".visible .entry toy_reverse(\n.param .b8 p[24])\n{\n"
                          "griddepcontrol.wait;\nret;\n}\n"
                          ".visible .entry toy_sum(\n.param .b8 p[24])\n{\nret;\n}\n"
                          ".visible .entry toy_talk(\n.param .b8 p[24])\n{\nret;\n}\n";

typedef struct gpu {
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_module module;
    cuda_function reverse, sum, talk;
    cuda_stream stream, other;
    cuda_ptr from, to;
    uint32_t *pinned;
} gpu;

enum { COUNT = 1024, BYTES = COUNT * 4 };

#define DO(call) CHECK((call) == CUDA_OK)

static void open_driver(cuda_driver *cu)
{
    CHECK_OK(cuda_driver_open(RADISH_LIBCUDA_EMULATED, cu, NULL));
    the_fake()->fake_cuda_reset();
    DO(cu->init(0));
}

static void open_gpu(gpu *g)
{
    open_driver(&g->cu);
    CHECK_OK(cuda_gpu_open(&g->cu, 0, NULL, &g->gpu, NULL));
    CHECK_OK(cuda_gpu_enter(&g->gpu, NULL));
    CHECK_OK(cuda_module_load(&g->cu, "toy", ptx, &g->module, NULL));
    CHECK_OK(cuda_function_get(&g->cu, g->module, "toy_reverse", sizeof(toy_args), 0, &g->reverse,
                               NULL));
    CHECK_OK(cuda_function_get(&g->cu, g->module, "toy_sum", sizeof(toy_args), 0, &g->sum, NULL));
    CHECK_OK(cuda_function_get(&g->cu, g->module, "toy_talk", sizeof(toy_args), 0, &g->talk, NULL));
    DO(g->cu.stream_create(&g->stream, CUDA_STREAM_NON_BLOCKING));
    DO(g->cu.stream_create(&g->other, CUDA_STREAM_NON_BLOCKING));
    DO(g->cu.mem_alloc(&g->from, BYTES));
    DO(g->cu.mem_alloc(&g->to, BYTES));
    DO(g->cu.host_alloc((void **)&g->pinned, BYTES, CUDA_HOST_PORTABLE));
}

static void close_gpu(gpu *g)
{
    DO(g->cu.mem_free(g->from));
    DO(g->cu.mem_free(g->to));
    DO(g->cu.host_free(g->pinned));
    DO(g->cu.stream_destroy(g->stream));
    DO(g->cu.stream_destroy(g->other));
    DO(g->cu.module_unload(g->module));
    cuda_gpu_leave(&g->gpu);
    cuda_gpu_close(&g->gpu);
    nothing_is_left();
    cuda_driver_close(&g->cu);
}

static rad_status launch(const gpu *g, cuda_function function, uint32_t variant, cuda_stream stream)
{
    toy_args args = {(const u32 *)(uintptr_t)g->from, (u32 *)(uintptr_t)g->to, variant};
    bool reverse = function == g->reverse;
    uint32_t grid[3] = {reverse ? COUNT / 256 : 1, 1, 1};
    return cuda_launch(&g->cu, function, grid, reverse ? 256 : 64, 0, stream, false, &args,
                       sizeof args, NULL);
}

/* What is on the device, past the rules. */
static uint32_t first_of(const gpu *g, cuda_ptr memory)
{
    uint32_t first;
    DO(g->cu.copy_to_host(&first, memory, 4, g->other));
    return first;
}

TEST(work_is_done_when_somebody_waits_and_pinned_memory_is_read_then)
{
    gpu g;
    open_gpu(&g);
    for (int i = 0; i < COUNT; i++)
        g.pinned[i] = (uint32_t)i;
    DO(g.cu.copy_to_device(g.from, g.pinned, BYTES, g.stream));
    CHECK_OK(launch(&g, g.reverse, WHOLE, g.stream));
    CHECK(first_of(&g, g.to) == 0xa5a5a5a5 && the_fake()->fake_cuda_launches() == 0);
    g.pinned[255] = 77; /* too early: it was not waited for */
    DO(g.cu.stream_synchronize(g.stream));
    CHECK(first_of(&g, g.to) == 77 && the_fake()->fake_cuda_launches() == 1);

    uint32_t plain = 5; /* not pinned: read at the call */
    DO(g.cu.copy_to_device(g.from, &plain, 4, g.stream));
    plain = 6;
    DO(g.cu.copy_to_host(g.pinned, g.from, 4, g.stream));
    g.pinned[0] = 1;
    DO(g.cu.stream_synchronize(g.stream));
    CHECK(g.pinned[0] == 5);

    DO(g.cu.set_bytes(g.from, 1, BYTES, g.stream));
    DO(g.cu.copy_on_device(g.to, g.from, BYTES, g.stream));
    CHECK(g.cu.stream_query(g.stream) == CUDA_NOT_READY);
    CHECK(g.cu.stream_query(g.stream) == CUDA_OK);
    CHECK(first_of(&g, g.to) == 0x01010101);
    close_gpu(&g);
}

TEST(an_event_orders_streams_and_nothing_else_does)
{
    gpu g;
    open_gpu(&g);
    cuda_event event;
    DO(g.cu.event_create(&event, 0));
    for (int ordered = 0; ordered < 2; ordered++) {
        DO(g.cu.set_bytes(g.from, 0, BYTES, g.stream));
        DO(g.cu.stream_synchronize(g.stream));
        DO(g.cu.set_bytes(g.from, 1, BYTES, g.stream));
        DO(g.cu.event_record(event, g.stream));
        CHECK(g.cu.event_query(event) == CUDA_NOT_READY); /* which does the first */
        DO(g.cu.set_bytes(g.from, 2, BYTES, g.stream));
        DO(g.cu.event_record(event, g.stream));
        DO(g.cu.set_bytes(g.from, 3, BYTES, g.stream)); /* behind the event */
        if (ordered) DO(g.cu.stream_wait_event(g.other, event, 0));
        DO(g.cu.copy_on_device(g.to, g.from, BYTES, g.other));
        DO(g.cu.stream_synchronize(g.other));
        CHECK(first_of(&g, g.to) == (ordered ? 0x02020202 : 0x01010101));
        DO(g.cu.event_synchronize(event));
        DO(g.cu.stream_synchronize(g.stream));
    }
    DO(g.cu.event_destroy(event));
    close_gpu(&g);
}

TEST(a_graph_replays_what_was_captured)
{
    gpu g;
    open_gpu(&g);
    cuda_event fork, join;
    cuda_graph graph;
    cuda_graph_exec exec;
    DO(g.cu.event_create(&fork, CUDA_EVENT_DISABLE_TIMING));
    DO(g.cu.event_create(&join, CUDA_EVENT_DISABLE_TIMING));
    DO(g.cu.capture_begin(g.stream, CUDA_CAPTURE_THREAD_LOCAL));
    DO(g.cu.event_record(fork, g.stream));
    DO(g.cu.stream_wait_event(g.other, fork, 0));
    DO(g.cu.copy_to_device(g.from, g.pinned, BYTES, g.other));
    DO(g.cu.event_record(join, g.other));
    DO(g.cu.stream_wait_event(g.stream, join, 0));
    CHECK_OK(launch(&g, g.reverse, WHOLE, g.stream));
    DO(g.cu.capture_end(g.stream, &graph));
    DO(g.cu.graph_instantiate(&exec, graph, 0));
    CHECK(first_of(&g, g.to) == 0xa5a5a5a5);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < COUNT; i++)
            g.pinned[i] = i + round;
        DO(g.cu.graph_launch(exec, g.stream));
        DO(g.cu.stream_synchronize(g.stream));
        CHECK(first_of(&g, g.to) == 255 + round);
    }

    /* What may not stand in a capture breaks it; so does work that nothing waits for. */
    cuda_graph none;
    cuda_ptr memory;
    DO(g.cu.capture_begin(g.stream, CUDA_CAPTURE_THREAD_LOCAL));
    CHECK(g.cu.mem_alloc(&memory, 4) != CUDA_OK);
    CHECK(g.cu.capture_end(g.stream, &none) != CUDA_OK);
    DO(g.cu.capture_begin(g.stream, CUDA_CAPTURE_THREAD_LOCAL));
    DO(g.cu.event_record(fork, g.stream));
    DO(g.cu.stream_wait_event(g.other, fork, 0));
    DO(g.cu.set_bytes(g.from, 0, 4, g.other));
    CHECK(g.cu.capture_end(g.stream, &none) != CUDA_OK);

    DO(g.cu.graph_exec_destroy(exec));
    DO(g.cu.graph_destroy(graph));
    DO(g.cu.event_destroy(fork));
    DO(g.cu.event_destroy(join));
    close_gpu(&g);
}

TEST(a_cpu_that_touches_device_memory_faults)
{
    gpu g;
    open_gpu(&g);
    DO(g.cu.set_bytes(g.from, 0, BYTES, g.stream));
    DO(g.cu.stream_synchronize(g.stream));
    (void)fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile char *)(uintptr_t)g.from);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    close_gpu(&g);
}

TEST(what_a_kernel_did_wrong_fails_every_later_call)
{
    gpu g;
    open_gpu(&g);
    (void)fflush(stderr);
    DO(g.cu.set_bytes(g.from, 0, BYTES, g.stream));
    CHECK_OK(launch(&g, g.talk, LINES_DIFFER, g.stream));
    CHECK(g.cu.stream_synchronize(g.stream) == CUDA_LAUNCH_FAILED);
    CHECK(g.cu.set_bytes(g.from, 0, BYTES, g.other) == CUDA_LAUNCH_FAILED);
    CHECK(launch(&g, g.talk, TALK, g.stream) != RAD_OK);
    cuda_gpu_leave(&g.gpu);
    cuda_driver_close(&g.cu);
}

/* from -> to -> from -> to, reversed each time; the second and third may begin early. One of them
 * reads or writes what the one before wrote, or the one before that; or it reads it late enough,
 * but by a load that is for what nobody writes meanwhile. */
TEST(what_a_kernel_reads_or_writes_before_wait_previous_shows)
{
    for (uint32_t variant = WHOLE; variant <= READS_AS_CONSTANT; variant++) {
        if (variant == NO_BARRIER) continue;
        gpu g;
        open_gpu(&g);
        the_fake()->fake_cuda_early(1);
        for (uint32_t i = 0; i < COUNT; i++)
            g.pinned[i] = i;
        DO(g.cu.copy_to_device(g.from, g.pinned, BYTES, g.stream));
        for (int i = 0; i < 3; i++) {
            toy_args args = {(const u32 *)(uintptr_t)(i & 1 ? g.to : g.from),
                             (u32 *)(uintptr_t)(i & 1 ? g.from : g.to),
                             i == (variant == WRITES_EARLY ? 2 : 1) ? variant : WHOLE};
            uint32_t grid[3] = {COUNT / 256, 1, 1};
            CHECK_OK(cuda_launch(&g.cu, g.reverse, grid, 256, 0, g.stream, i > 0, &args,
                                 sizeof args, NULL));
        }
        DO(g.cu.copy_to_host(g.pinned, g.to, BYTES, g.stream));
        int result = g.cu.stream_synchronize(g.stream);
        CHECK((result != CUDA_OK) == (variant >= WRITES_EARLY));
        bool right = true;
        for (uint32_t i = 0; i < COUNT; i++)
            right &= g.pinned[i] == i / 256 * 256 + 255 - i % 256;
        CHECK(right == (variant == WHOLE));
        if (result) {
            cuda_gpu_leave(&g.gpu);
            cuda_driver_close(&g.cu);
        } else {
            close_gpu(&g);
        }
    }
}

TEST(blocks_see_of_each_other_what_stands_before_a_fence)
{
    for (uint32_t variant = WHOLE; variant <= NO_FENCE; variant += NO_FENCE) {
        gpu g;
        open_gpu(&g);
        the_fake()->fake_cuda_fences(1);
        for (uint32_t i = 0; i < COUNT; i++)
            g.pinned[i] = i;
        DO(g.cu.copy_to_device(g.from, g.pinned, BYTES, g.stream));
        DO(g.cu.set_bytes(g.to, 0, BYTES, g.stream));
        toy_args args = {(const u32 *)(uintptr_t)g.from, (u32 *)(uintptr_t)g.to, variant};
        CHECK_OK(cuda_launch(&g.cu, g.sum, (uint32_t[]){8, 1, 1}, 32, 0, g.stream, false, &args,
                             sizeof args, NULL));
        DO(g.cu.copy_to_host(g.pinned, g.to, BYTES, g.stream));
        DO(g.cu.stream_synchronize(g.stream));
        CHECK((g.pinned[0] == 255 * 256 / 2) == (variant == WHOLE));
        for (uint32_t i = 0; i < 256; i++) /* all is there in the end */
            CHECK(g.pinned[2 + i] == i);
        CHECK(g.pinned[1] == 8);
        close_gpu(&g);
    }
}

TEST(a_chip_takes_ptx_that_it_can_and_functions_that_are_in_it)
{
    gpu g;
    open_gpu(&g);
    cuda_module module;
    cuda_function function;
    rad_error err;
    static const char hopper[] = ".version 8.0\n.target sm_90a\n.visible .entry toy_talk(\n)";
    CHECK_OK(cuda_module_load(&g.cu, "hopper", hopper, &module, NULL));
    CHECK_OK(cuda_function_get(&g.cu, module, "toy_talk", sizeof(toy_args), 0, &function, NULL));
    CHECK(cuda_function_get(&g.cu, module, "toy_reverse", sizeof(toy_args), 0, &function, NULL));
    CHECK(cuda_function_get(&g.cu, module, "toy_tal", sizeof(toy_args), 0, &function, NULL));
    CHECK(cuda_function_get(&g.cu, module, "toy_talk", 8, 0, &function, &err));
    CHECK(strstr(err.text, "takes 24 bytes, and the program has 8 for it"));
    the_fake()->fake_cuda_machine(12040, 80, 1, 0);
    CHECK(cuda_module_load(&g.cu, "hopper", hopper, &module, &err));
    CHECK(strstr(err.text, "SM version of PTX is sm_90, of the GPU sm_80"));
    the_fake()->fake_cuda_machine(11040, 90, 1, 0);
    CHECK(cuda_module_load(&g.cu, "hopper", hopper, &module, &err));
    CHECK(strstr(err.text, "unsupported .version 8.0"));
    CHECK(cuda_function_get(&g.cu, g.module, "toy_talk", sizeof(toy_args), 228 << 10, &function,
                            NULL));
    the_fake()->fake_cuda_reset();
    cuda_driver_close(&g.cu);
}

/* What counts is what the PTX says, not what the emulated kernel happens to do. */
TEST(launches_are_held_to_shared_memory_and_to_what_waits)
{
    enum { KB = 1 << 10, OWN = 3 * 4 + 4 /* aligned to 16 */ + 40 * KB };
    static const char text[] = ".version 7.8\n.target sm_90\n"
                               ".extern .shared .align 1024 .b8 dynamic_shared[];\n"
                               ".visible .entry toy_reverse(\n.param .b8 p[24])\n{\n"
                               "\t.shared .align 4 .u32 counts[3];\n"
                               "\t.shared .align 16 .b8 own[40960];\n\tret;\n}\n"
                               ".visible .entry toy_talk(\n.param .b8 p[24])\n{\n"
                               "\t.shared .align 8 .u64 barrier;\n"
                               "\tmov.u32 %r1, dynamic_shared;\n\tret;\n}\n";
    static const struct {
        const char *kernel;
        int asked, bytes; /* asked for by CUDA_FUNC_DYNAMIC_SHARED, 0: not */
        bool can_ask, can_launch;
    } cases[] = {{"toy_reverse", 0, 48 * KB - OWN, true, true},
                 {"toy_reverse", 0, 48 * KB - OWN + 1, true, false},
                 {"toy_reverse", 227 * KB - OWN, 227 * KB - OWN, true, true},
                 {"toy_reverse", 227 * KB - OWN + 1, 0, false, true},
                 {"toy_reverse", 9 * KB, 9 * KB + 1, true, false},
                 {"toy_talk", 226 * KB, 226 * KB, true, true},
                 {"toy_talk", 226 * KB + 1, 0, false, true}};
    gpu g;
    open_gpu(&g);
    cuda_module module;
    const toy_args args = {(const u32 *)(uintptr_t)g.from, (u32 *)(uintptr_t)g.to, WHOLE};
    CHECK_OK(cuda_module_load(&g.cu, "own", text, &module, NULL));
    for (size_t i = 0; i < RAD_COUNT(cases); i++) {
        cuda_function function;
        CHECK_OK(
            cuda_function_get(&g.cu, module, cases[i].kernel, sizeof args, 0, &function, NULL));
        if (cases[i].asked)
            CHECK((g.cu.function_set(function, CUDA_FUNC_DYNAMIC_SHARED, cases[i].asked) ==
                   CUDA_OK) == cases[i].can_ask);
        const rad_status status = cuda_launch(&g.cu, function, (uint32_t[]){1, 1, 1}, 32,
                                              (uint32_t)cases[i].bytes, g.stream, false, &args,
                                              sizeof args, NULL);
        CHECKF((status == RAD_OK) == cases[i].can_launch, "case %zu\n", i);
    }

    /* toy_reverse waits, and here its text does not say so. */
    cuda_function says_nothing;
    cuda_graph graph;
    (void)fflush(stderr);
    CHECK_OK(cuda_function_get(&g.cu, module, "toy_reverse", sizeof args, 0, &says_nothing, NULL));
    CHECK(cuda_launch(&g.cu, says_nothing, (uint32_t[]){1, 1, 1}, 32, 0, g.stream, true, &args,
                      sizeof args, NULL) != RAD_OK);
    for (int driver = 12020; driver <= 12030; driver += 10) {
        the_fake()->fake_cuda_machine(driver, 90, 1, 0);
        DO(g.cu.capture_begin(g.stream, CUDA_CAPTURE_THREAD_LOCAL));
        CHECK((cuda_launch(&g.cu, g.reverse, (uint32_t[]){1, 1, 1}, 32, 0, g.stream, true, &args,
                           sizeof args, NULL) == RAD_OK) == (driver == 12030));
        const int result = g.cu.capture_end(g.stream, &graph);
        CHECK((result == CUDA_OK) == (driver == 12030));
        if (result == CUDA_OK) DO(g.cu.graph_destroy(graph));
    }
    cuda_function lazy; /* in a capture only what is on the GPU already */
    DO(g.cu.module_function(&lazy, module, "toy_talk"));
    DO(g.cu.capture_begin(g.stream, CUDA_CAPTURE_THREAD_LOCAL));
    CHECK(cuda_launch(&g.cu, lazy, (uint32_t[]){1, 1, 1}, 32, 0, g.stream, false, &args,
                      sizeof args, NULL) != RAD_OK);
    CHECK(g.cu.capture_end(g.stream, &graph) != CUDA_OK);
    DO(g.cu.capture_begin(g.stream, CUDA_CAPTURE_THREAD_LOCAL));
    CHECK(cuda_module_load(&g.cu, "own", text, &g.module, NULL) != RAD_OK);
    CHECK(g.cu.capture_end(g.stream, &graph) != CUDA_OK);
    the_fake()->fake_cuda_reset();
    cuda_driver_close(&g.cu);
}

TEST(memory_has_an_end_and_any_call_can_fail)
{
    gpu g;
    open_gpu(&g);
    size_t left, total;
    cuda_ptr memory, more;
    the_fake()->fake_cuda_memory(1 << 20);
    DO(g.cu.mem_info(&left, &total));
    CHECK(total == 1 << 20 && left == total - 2 * BYTES);
    CHECK(g.cu.mem_alloc(&memory, left + 1) == CUDA_OUT_OF_MEMORY);
    DO(g.cu.mem_alloc(&memory, left));
    CHECK(g.cu.mem_alloc(&more, 1) == CUDA_OUT_OF_MEMORY);
    DO(g.cu.mem_free(memory));
    CHECK(g.cu.mem_free(memory) == CUDA_INVALID_VALUE);
    CHECK(g.cu.copy_on_device(g.from, g.to, BYTES + 1, g.stream) == CUDA_INVALID_VALUE);

    long calls = the_fake()->fake_cuda_calls();
    the_fake()->fake_cuda_fail_at(calls + 1, CUDA_OUT_OF_MEMORY);
    DO(g.cu.mem_info(&left, &total));
    CHECK(g.cu.mem_info(&left, &total) == CUDA_OUT_OF_MEMORY);
    DO(g.cu.mem_info(&left, &total));
    CHECK(the_fake()->fake_cuda_calls() == calls + 3);
    close_gpu(&g);
}

TEST_MAIN()
