/* test_cuda_device.c - a GPU as a device, over an emulated driver (fake_libcuda.h): its memory
 * faults where the CPU touches it, and what is enqueued is done as late as the driver's rules
 * allow. */
#include "../device_pools.h"

#include <radish/device_cuda.h>
#include <radish/state_pool.h>

#include "device/cuda_driver.h"
#include "device/device_cuda_impl.h"
#include "fake_rig.h"
#include "mem/host_kv_pool.h"

#include <limits.h>

static rad_status try_device(const rad_env *env, const char *library, uint32_t ordinal,
                             rad_device **out, rad_error *err)
{
    rad_device_cuda_params p = {.struct_size = sizeof p, .ordinal = ordinal, .library = library};
    return rad_device_cuda_create(env, &p, out, err);
}

static rad_device *make_device(void)
{
    rad_error err = {0};
    rad_device *device = NULL;
    the_fake()->fake_cuda_reset();
    rad_status status = try_device(NULL, RADISH_LIBCUDA_EMULATED, 0, &device, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return device;
}

static void end_device(rad_device *device)
{
    rad_device_cuda_destroy(device);
    nothing_is_left();
}

/* ---- why there is none ---- */

static void refused(const char *library, uint32_t ordinal, rad_status status, const char *words)
{
    rad_error err = {0};
    rad_device *device = (rad_device *)&err;
    CHECK(try_device(NULL, library, ordinal, &device, &err) == status);
    CHECKF(!device && strstr(err.text, words), "%s\n", err.text);
}

TEST(where_there_is_no_gpu_the_words_say_why)
{
    refused("/nonexistent/libcuda.so.1", 0, RAD_E_UNSUPPORTED,
            "no NVIDIA driver on this machine: /nonexistent/libcuda.so.1: cannot open");
    refused("libc.so.6", 0, RAD_E_UNSUPPORTED, "has no cuInit");
    const fake_driver *f = the_fake();
    f->fake_cuda_reset();
    f->fake_cuda_machine(12040, 90, 0, CUDA_NO_DEVICE);
    refused(RADISH_LIBCUDA_EMULATED, 0, RAD_E_UNSUPPORTED, "finds no GPU");
    f->fake_cuda_machine(12040, 90, 0, CUDA_OK);
    refused(RADISH_LIBCUDA_EMULATED, 0, RAD_E_UNSUPPORTED, "finds no GPU");
    f->fake_cuda_machine(12040, 90, 1, CUDA_STUB_LIBRARY);
    refused(RADISH_LIBCUDA_EMULATED, 0, RAD_E_UNSUPPORTED, "stub");
    f->fake_cuda_machine(12040, 90, 1, CUDA_DRIVER_MISMATCH);
    refused(RADISH_LIBCUDA_EMULATED, 0, RAD_E_UNSUPPORTED, "different versions");
    f->fake_cuda_machine(12040, 90, 1, CUDA_LAUNCH_FAILED);
    refused(RADISH_LIBCUDA_EMULATED, 0, RAD_E_IO, "cuInit: CUDA_ERROR_LAUNCH_FAILED");
    f->fake_cuda_machine(11010, 90, 1, CUDA_OK);
    refused(RADISH_LIBCUDA_EMULATED, 0, RAD_E_UNSUPPORTED, "too old: it is for CUDA 11.1");
    f->fake_cuda_machine(12040, 75, 1, CUDA_OK);
    refused(RADISH_LIBCUDA_EMULATED, 0, RAD_E_UNSUPPORTED, "is sm_75; radish needs sm_80");
    f->fake_cuda_machine(12040, 90, 2, CUDA_OK);
    refused(RADISH_LIBCUDA_EMULATED, 2, RAD_E_INVAL, "there is no GPU 2: this machine has 2");
    refused(RADISH_LIBCUDA_EMULATED, UINT32_MAX, RAD_E_INVAL, "there is no GPU 4294967295");
    f->fake_cuda_reset();
    nothing_is_left();
}

/* ---- copies beside memcpy ---- */

typedef enum place { GPU, PINNED_HOST, PLAIN_HOST, PLACES } place;

/* Bytes somewhere, and what they must be. */
typedef struct bytes {
    rad_device *device;
    place place;
    size_t count;
    uint8_t *there;
    uint8_t *want;
} bytes;

static void move(rad_device *d, void *to, const void *from, size_t count)
{
    rad_device_rows dst = {to, count, NULL}, src = {(void *)(uintptr_t)from, count, NULL};
    CHECK_OK(device_copy_rows(d, dst, src, count, 1));
    CHECK_OK(device_fence(d, RAD_OK));
}

static bytes make_bytes(rad_device *d, place where, size_t count, uint64_t *rng)
{
    bytes b = {d, where, count, NULL, malloc(count)};
    b.there = where == GPU           ? d->ops->alloc(d, count)
              : where == PINNED_HOST ? d->ops->alloc_pinned(d, count)
                                     : malloc(count);
    CHECK(b.there && b.want && (where == PLAIN_HOST || (uintptr_t)b.there % 64 == 0));
    for (size_t i = 0; i < count; i++)
        b.want[i] = (uint8_t)test_random(rng);
    if (where == GPU)
        move(d, b.there, b.want, count);
    else
        memcpy(b.there, b.want, count);
    return b;
}

static void check_bytes(const bytes *b)
{
    uint8_t *got = malloc(b->count);
    CHECK(got);
    if (b->place == GPU)
        move(b->device, got, b->there, b->count);
    else
        memcpy(got, b->there, b->count);
    for (size_t i = 0; i < b->count; i++)
        CHECKF(got[i] == b->want[i], "byte %zu of %zu, place %d\n", i, b->count, b->place);
    free(got);
}

static void free_bytes(bytes *b)
{
    rad_device *d = b->device;
    if (b->place == GPU)
        d->ops->free(d, b->there, b->count);
    else if (b->place == PINNED_HOST)
        d->ops->free_pinned(d, b->there, b->count);
    else
        free(b->there);
    free(b->want);
}

typedef struct shape {
    size_t row_bytes, dst_gap, src_gap, dst_at, src_at;
    uint32_t count;
    bool dst_rows, src_rows; /* by numbers, in an order of their own */
} shape;

static int32_t *make_numbers(uint32_t count, uint32_t range, uint64_t *rng)
{
    int32_t *all = malloc(range * sizeof *all);
    CHECK(all);
    for (uint32_t i = 0; i < range; i++)
        all[i] = (int32_t)i;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = i + (uint32_t)(test_random(rng) % (range - i));
        int32_t t = all[i];
        all[i] = all[j], all[j] = t;
    }
    return all;
}

static void copy_and_compare(rad_device *d, place to, place from, shape s, uint64_t *rng)
{
    uint32_t range = s.count + s.count / 2 + 1; /* rows there are; some stay as they were */
    size_t dst_stride = s.row_bytes + s.dst_gap, src_stride = s.row_bytes + s.src_gap;
    bytes dst = make_bytes(d, to, s.dst_at + range * dst_stride, rng);
    bytes src = make_bytes(d, from, s.src_at + range * src_stride, rng);
    int32_t *dst_rows = s.dst_rows ? make_numbers(s.count, range, rng) : NULL;
    int32_t *src_rows = s.src_rows ? make_numbers(s.count, range, rng) : NULL;
    for (uint32_t i = 0; i < s.count; i++)
        memcpy(dst.want + s.dst_at + (dst_rows ? (uint32_t)dst_rows[i] : i) * dst_stride,
               src.want + s.src_at + (src_rows ? (uint32_t)src_rows[i] : i) * src_stride,
               s.row_bytes);
    rad_device_rows there = {dst.there + s.dst_at, dst_stride, dst_rows};
    rad_device_rows here = {src.there + s.src_at, src_stride, src_rows};
    CHECK_OK(device_copy_rows(d, there, here, s.row_bytes, s.count));
    if (dst_rows) memset(dst_rows, 0x7f, s.count * sizeof *dst_rows); /* the caller's again */
    if (src_rows) memset(src_rows, 0x7f, s.count * sizeof *src_rows);
    CHECK_OK(device_fence(d, RAD_OK));
    check_bytes(&dst);
    check_bytes(&src);
    free(dst_rows);
    free(src_rows);
    free_bytes(&dst);
    free_bytes(&src);
}

/* Rows of every alignment, in every direction, with and without numbers and gaps. */
TEST(rows_come_as_memcpy_would_bring_them)
{
    static const size_t sizes[] = {1, 3, 4, 16, 52, 256, 1040, 4100};
    uint64_t rng = test_seed();
    rad_device *d = make_device();
    for (int way = 0; way < PLACES * PLACES; way++)
        for (size_t i = 0; i < RAD_COUNT(sizes); i++)
            for (int form = (way + (int)i) & 1; form < 4; form += 2) {
                shape s = {.row_bytes = sizes[i],
                           .dst_gap = form & 1 ? test_random(&rng) % 40 : 0,
                           .src_gap = form & 2 ? 16 * (test_random(&rng) % 3) : 0,
                           .dst_at = test_random(&rng) % 3 ? 16 : 5,
                           .count = 1 + (uint32_t)(test_random(&rng) % 12),
                           .dst_rows = form != 1,
                           .src_rows = form != 2};
                copy_and_compare(d, way / PLACES, way % PLACES, s, &rng);
            }
    end_device(d);
}

/* Long runs go by the copy engines; many rows in several launches; and plain memory through more
 * than both halves of the stage. */
TEST(large_copies_go_in_parts)
{
    uint64_t rng = test_seed();
    rad_device *d = make_device();
    for (int way = 0; way < PLACES * PLACES; way++) {
        shape rows = {.row_bytes = LARGE_COPY + 20, .count = 3, .dst_rows = true, .src_gap = 12};
        shape run = {.row_bytes = 1000, .count = 200};
        copy_and_compare(d, way / PLACES, way % PLACES, rows, &rng);
        copy_and_compare(d, way / PLACES, way % PLACES, run, &rng);
    }
    shape many = {.row_bytes = 4, .count = INDEX_HALF + 100, .dst_rows = true, .src_rows = true};
    copy_and_compare(d, GPU, PINNED_HOST, many, &rng);
    shape staged = {.row_bytes = 1500, .count = 5 * STAGE_HALF / 3000, .dst_rows = true};
    copy_and_compare(d, GPU, PLAIN_HOST, staged, &rng);
    copy_and_compare(d, PLAIN_HOST, GPU, staged, &rng);
    end_device(d);
}

/* Numbers of rows are kept in a ring until they were read, and uploaded once while they stay the
 * same. */
TEST(calls_without_a_fence_between_them_keep_their_rows)
{
    enum { ROWS = 3000, CALLS = 14 };
    uint64_t rng = test_seed();
    rad_device *d = make_device();
    bytes from = make_bytes(d, PINNED_HOST, ROWS * 4, &rng);
    bytes to = make_bytes(d, GPU, CALLS * ROWS * 4, &rng);
    int32_t *last = NULL;
    for (int call = 0; call < CALLS; call++) {
        int32_t *numbers = call % 3 == 1 ? last : make_numbers(ROWS, ROWS, &rng);
        uint8_t *at = to.want + (size_t)call * ROWS * 4;
        for (uint32_t i = 0; i < ROWS; i++)
            memcpy(at + (call & 1 ? i : (uint32_t)numbers[i]) * 4,
                   from.want + (call & 1 ? (uint32_t)numbers[i] : i) * 4, 4);
        rad_device_rows dst = {to.there + (at - to.want), 4, call & 1 ? NULL : numbers};
        rad_device_rows src = {from.there, 4, call & 1 ? numbers : NULL};
        CHECK_OK(device_copy_rows(d, dst, src, 4, ROWS));
        if (numbers != last) free(last);
        last = numbers;
    }
    free(last);
    CHECK_OK(device_fence(d, RAD_OK));
    check_bytes(&to);
    free_bytes(&from);
    free_bytes(&to);
    end_device(d);
}

/* Numbers that are there still are not written over by those of the other side. */
TEST(numbers_that_come_again_stay_until_the_kernel_has_read_them)
{
    enum { ROWS = INDEX_HALF / 11 };
    uint64_t rng = test_seed();
    rad_device *d = make_device();
    bytes from = make_bytes(d, PINNED_HOST, ROWS * 4, &rng);
    bytes to = make_bytes(d, GPU, ROWS * 4, &rng);
    int32_t *again = make_numbers(ROWS, ROWS, &rng);
    for (int period = 14; period < 20; period++)
        for (int call = 0; call < period; call++) {
            bool with_again = call == period - 1;
            int32_t *numbers = make_numbers(ROWS, ROWS, &rng);
            for (uint32_t i = 0; i < ROWS; i++)
                memcpy(to.want + (with_again ? (uint32_t)again[i] : i) * 4,
                       from.want + (uint32_t)numbers[i] * 4, 4);
            rad_device_rows dst = {to.there, 4, with_again ? again : NULL};
            rad_device_rows src = {from.there, 4, numbers};
            CHECK_OK(device_copy_rows(d, dst, src, 4, ROWS));
            free(numbers);
            if (with_again) check_bytes(&to);
        }
    free(again);
    free_bytes(&from);
    free_bytes(&to);
    end_device(d);
}

/* What a thread copied to pinned memory is what it copies on from, also by the CPU. */
TEST(copies_of_a_thread_follow_one_another)
{
    enum { BYTES = 300 };
    uint64_t rng = test_seed();
    rad_device *d = make_device();
    bytes gpu = make_bytes(d, GPU, BYTES, &rng);
    uint8_t *pinned = d->ops->alloc_pinned(d, BYTES), plain[BYTES];
    rad_device_rows a = {gpu.there, 3, NULL}, b = {pinned, 3, NULL}, c = {plain, 3, NULL};
    CHECK_OK(device_copy_rows(d, b, a, 3, BYTES / 3));
    CHECK_OK(device_copy_rows(d, c, b, 3, BYTES / 3));
    CHECK_OK(device_fence(d, RAD_OK));
    CHECK(memcmp(plain, gpu.want, BYTES) == 0);
    d->ops->free_pinned(d, pinned, BYTES);
    free_bytes(&gpu);
    end_device(d);
}

/* ---- order against streams of an engine ---- */

typedef struct engine_stream {
    cuda_driver cu;
    cuda_gpu gpu;
    cuda_stream stream;
} engine_stream;

static void open_engine(engine_stream *e, void *context)
{
    CHECK_OK(cuda_driver_open(RADISH_LIBCUDA_EMULATED, &e->cu, NULL));
    CHECK_OK(cuda_gpu_open(&e->cu, 0, context, &e->gpu, NULL));
    CHECK_OK(cuda_gpu_enter(&e->gpu, NULL));
    CHECK(e->cu.stream_create(&e->stream, CUDA_STREAM_NON_BLOCKING) == CUDA_OK);
}

static void close_engine(engine_stream *e)
{
    CHECK(e->cu.stream_destroy(e->stream) == CUDA_OK);
    cuda_gpu_leave(&e->gpu);
    cuda_gpu_close(&e->gpu);
    cuda_driver_close(&e->cu);
}

TEST(copies_wait_for_what_a_stream_was_said_to_have)
{
    enum { BYTES = 512 };
    rad_device *d = make_device();
    rad_device_cuda_info info = {.struct_size = sizeof info};
    CHECK_OK(rad_device_cuda_get_info(d, &info, NULL));
    engine_stream e, f;
    open_engine(&e, info.context);
    open_engine(&f, info.context);
    uint8_t *on_gpu = d->ops->alloc(d, BYTES), *host = d->ops->alloc_pinned(d, BYTES);
    cuda_ptr there = (cuda_ptr)(uintptr_t)on_gpu;

    /* The emulated driver is as late as may be: else this test would not see a missing wait. */
    CHECK(e.cu.set_bytes(there, 1, BYTES, e.stream) == CUDA_OK);
    move(d, host, on_gpu, BYTES);
    CHECK(host[0] == 0 && host[BYTES - 1] == 0);

    for (int twice = 0; twice < 2; twice++) {
        CHECK(e.cu.set_bytes(there, (uint8_t)(2 + twice), BYTES / 2, e.stream) == CUDA_OK);
        CHECK_OK(rad_device_cuda_copy_after(d, e.stream, NULL));
        CHECK(f.cu.set_bytes(there + BYTES / 2, (uint8_t)(4 + twice), BYTES / 2, f.stream) == 0);
        CHECK_OK(rad_device_cuda_copy_after(d, f.stream, NULL));
        move(d, host, on_gpu, BYTES);
        CHECK(host[0] == 2 + twice && host[BYTES - 1] == 4 + twice);
    }

    /* And a stream for copies: without the CPU waiting, in the place of a fence. */
    memset(host, 9, BYTES);
    rad_device_rows dst = {on_gpu, BYTES, NULL}, src = {host, BYTES, NULL};
    CHECK_OK(device_copy_rows(d, dst, src, BYTES, 1));
    CHECK_OK(rad_device_cuda_stream_after(d, e.stream, NULL));
    uint8_t *back = d->ops->alloc_pinned(d, BYTES);
    CHECK(e.cu.copy_to_host(back, there, BYTES, e.stream) == CUDA_OK);
    CHECK(e.cu.stream_synchronize(e.stream) == CUDA_OK);
    CHECK(back[0] == 9 && back[BYTES - 1] == 9);
    CHECK(lane_of_thread((device_cuda *)d) == NULL);
    CHECK_OK(rad_device_cuda_stream_after(d, e.stream, NULL)); /* nothing to wait for */

    d->ops->free_pinned(d, back, BYTES);
    d->ops->free_pinned(d, host, BYTES);
    d->ops->free(d, on_gpu, BYTES);
    close_engine(&f);
    close_engine(&e);
    end_device(d);
}

TEST(the_callers_context_is_used_and_stays_current)
{
    the_fake()->fake_cuda_reset();
    engine_stream e;
    open_engine(&e, NULL);
    rad_device_cuda_params p = {
        .struct_size = sizeof p, .context = e.gpu.context, .library = RADISH_LIBCUDA_EMULATED};
    rad_device *d = NULL;
    CHECK_OK(rad_device_cuda_create(NULL, &p, &d, NULL));
    rad_device_cuda_info info = {.struct_size = sizeof info};
    CHECK_OK(rad_device_cuda_get_info(d, &info, NULL));
    CHECK(info.context == e.gpu.context && info.capability >= 80 && *info.name);
    CHECK(info.total_bytes >= info.free_bytes && info.failures == 0 && info.ordinal == 0);
    void *memory = d->ops->alloc(d, 100);
    CHECK(memory && device_populate(d, memory, 100) == RAD_OK);
    CHECK(!d->ops->alloc(d, 0) && !d->ops->alloc_pinned(d, 0));
    CHECK(!d->ops->alloc(d, (size_t)1 << 50));
    d->ops->free(d, memory, 100);
    d->ops->free(d, NULL, 100);
    cuda_context current = NULL;
    CHECK(e.cu.context_get(&current) == CUDA_OK && current == e.gpu.context);
    rad_device_cuda_destroy(d);
    CHECK(e.cu.context_get(&current) == CUDA_OK && current == e.gpu.context);
    close_engine(&e);
    nothing_is_left();

    device_cpu cpu; /* another kind of device */
    device_cpu_init(&cpu, NULL);
    CHECK(rad_device_cuda_get_info(&cpu.base, &info, NULL) == RAD_E_INVAL);
    CHECK(rad_device_cuda_copy_after(&cpu.base, NULL, NULL) == RAD_E_INVAL);
    CHECK(rad_device_cuda_stream_after(NULL, NULL, NULL) == RAD_E_INVAL);
    rad_device_cuda_destroy(NULL);
}

/* ---- pools ---- */

TEST(pools_on_it_have_the_bytes_of_pools_on_the_host)
{
    rad_device *d = make_device();
    for (uint32_t dtype = RAD_F32; dtype <= RAD_I8; dtype++)
        for (int mla = 0; mla < 2; mla++) {
            device_pools p = device_pools_make(d, mla, dtype, dtype % 2);
            device_pools_use(&p, mla, dtype);
            device_pools_end(&p);
        }
    rad_device_cuda_info info = {.struct_size = sizeof info};
    CHECK_OK(rad_device_cuda_get_info(d, &info, NULL));
    CHECK(info.copy_calls > 0 && info.copied_bytes > 0 && info.failures == 0);
    end_device(d);
}

TEST(states_on_it_are_copied_whole)
{
    enum { STATE = 70000 }; /* by the copy engines */
    rad_device *d = make_device();
    rad_state_pool *pool = NULL;
    rad_state_pool_params p = {
        .struct_size = sizeof p, .state_bytes = STATE, .num_states = 3, .device = d};
    CHECK_OK(rad_state_pool_create(NULL, &p, &pool, NULL));
    static uint8_t wrote[STATE], got[STATE];
    for (size_t i = 0; i < STATE; i++)
        wrote[i] = (uint8_t)(i * 7 + i / 256);
    move(d, rad_state_address(pool, 1), wrote, STATE);
    CHECK_OK(rad_state_copy(pool, 1, 3));
    move(d, got, rad_state_address(pool, 3), STATE);
    CHECK(memcmp(got, wrote, STATE) == 0);
    CHECK_OK(rad_state_copy(pool, 0, 3));
    move(d, got, rad_state_address(pool, 3), STATE);
    for (size_t i = 0; i < STATE; i++)
        CHECK(got[i] == 0);
    rad_state_pool_destroy(pool);
    end_device(d);
}

/* ---- threads ---- */

enum { MANY = LANES + 4, THREAD_ROWS = 24, THREAD_ROW = 96, ROUNDS = 2 };

typedef struct copier {
    rad_device *device;
    pthread_barrier_t *all_copied;
    uint8_t *on_gpu, *host; /* [THREAD_ROWS][THREAD_ROW], this thread's */
    uint32_t number, wrong;
} copier;

static void *copy_often(void *arg)
{
    copier *c = arg;
    rad_device *d = c->device;
    int32_t rows[THREAD_ROWS];
    uint8_t *back = malloc(THREAD_ROWS * THREAD_ROW); /* plain */
    for (int i = 0; i < THREAD_ROWS; i++)
        rows[i] = (i * 7 + (int)c->number) % THREAD_ROWS;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREAD_ROWS * THREAD_ROW; i++)
            c->host[i] = (uint8_t)(i + 31 * round + 7 * (int)c->number);
        rad_device_rows gpu = {c->on_gpu, THREAD_ROW, rows}, host = {c->host, THREAD_ROW, NULL};
        rad_device_rows plain = {back, THREAD_ROW, NULL};
        c->wrong += device_copy_rows(d, gpu, host, THREAD_ROW, THREAD_ROWS) != RAD_OK;
        pthread_barrier_wait(c->all_copied); /* all have a lane, or none is left for them */
        c->wrong += device_fence(d, RAD_OK) != RAD_OK;
        c->wrong += device_copy_rows(d, plain, gpu, THREAD_ROW, THREAD_ROWS) != RAD_OK;
        c->wrong += device_fence(d, RAD_OK) != RAD_OK;
        c->wrong += memcmp(back, c->host, THREAD_ROWS * THREAD_ROW) != 0;
    }
    free(back);
    return NULL;
}

TEST(threads_copy_beside_one_another_and_leave_nothing)
{
    rad_device *d = make_device();
    pthread_barrier_t all_copied;
    pthread_t threads[MANY];
    copier copiers[MANY];
    const size_t each = (size_t)THREAD_ROWS * THREAD_ROW;
    uint8_t *on_gpu = d->ops->alloc(d, MANY * each);
    uint8_t *host = d->ops->alloc_pinned(d, MANY * each);
    pthread_barrier_init(&all_copied, NULL, MANY);
    for (uint32_t generation = 0; generation < 2; generation++) {
        for (uint32_t i = 0; i < MANY; i++) {
            copiers[i] = (copier){d, &all_copied, on_gpu + i * each, host + i * each, i, 0};
            CHECK(pthread_create(&threads[i], NULL, copy_often, &copiers[i]) == 0);
        }
        for (uint32_t i = 0; i < MANY; i++) {
            pthread_join(threads[i], NULL);
            CHECK(copiers[i].wrong == 0);
        }
        for (uint32_t i = 0; i < LANES; i++)
            CHECK(!((device_cuda *)d)->lanes[i].taken);
    }
    pthread_barrier_destroy(&all_copied);
    d->ops->free(d, on_gpu, MANY * each);
    d->ops->free_pinned(d, host, MANY * each);
    end_device(d);
}

/* ---- what fails ---- */

static uint32_t logged;

static void count_log(void *user, rad_log_level level, const char *message)
{
    (void)user, (void)level;
    CHECK(strncmp(message, "cuda: ", 6) == 0);
    logged++;
}

static long calls_then; /* when live_once had copied all */

/* A life of a device with each kind of copy; false: something said that it failed. What did not is
 * right. */
static bool live_once(rad_device *d)
{
    enum { N = 40, ROW = 48 };
    int32_t rows[N];
    uint8_t plain[N * ROW], back[N * ROW];
    for (int i = 0; i < N; i++)
        rows[i] = N - 1 - i;
    for (int i = 0; i < N * ROW; i++)
        plain[i] = (uint8_t)(i * 5);
    uint8_t *gpu = d->ops->alloc(d, N * ROW), *pinned = d->ops->alloc_pinned(d, N * ROW);
    bool well = gpu && pinned;
    rad_device_rows there = {gpu, ROW, rows}, to_pinned = {pinned, ROW, NULL};
    rad_device_rows from = {plain, ROW, NULL}, out = {back, ROW, NULL}, whole = {gpu, ROW, NULL};
    const struct {
        rad_device_rows dst, src;
    } copies[] = {{there, from}, {to_pinned, there}, {there, to_pinned}, {out, whole}};
    for (size_t i = 0; i < RAD_COUNT(copies) && well; i++) {
        rad_status status = device_copy_rows(d, copies[i].dst, copies[i].src, ROW, N);
        CHECK(status == RAD_OK || status == RAD_E_IO);
        status = device_fence(d, status);
        CHECK(status == RAD_OK || status == RAD_E_IO);
        well = !status;
    }
    for (int i = 0; i < N * ROW && well; i++)
        CHECK(back[(N - 1 - i / ROW) * ROW + i % ROW] == plain[i] && pinned[i] == plain[i]);
    rad_error err = {0};
    rad_status status = rad_device_cuda_copy_after(d, NULL, &err);
    CHECK(!status || *err.text);
    well = well && !status;
    rad_device_cuda_info info = {.struct_size = sizeof info};
    status = rad_device_cuda_get_info(d, &info, &err);
    CHECK(!status || *err.text);
    well = well && !status;
    calls_then = the_fake()->fake_cuda_calls();
    the_fake()->fake_cuda_fail_at(-1, 0); /* what is not freed is lost */
    d->ops->free(d, gpu, N * ROW);
    d->ops->free_pinned(d, pinned, N * ROW);
    return well;
}

/* Each call of the driver fails once, with what memory or the hardware would say. */
TEST(whatever_the_driver_refuses_is_said_and_nothing_is_lost)
{
    const fake_driver *f = the_fake();
    rad_env env = {.struct_size = sizeof env, .log = count_log};
    for (int why = 0; why < 2; why++) {
        bool failed = true;
        long n;
        for (n = 0; failed; n++) {
            rad_error err = {0};
            rad_device *d = NULL;
            f->fake_cuda_reset();
            calls_then = LONG_MAX;
            f->fake_cuda_fail_at(n, why ? CUDA_OUT_OF_MEMORY : CUDA_LAUNCH_FAILED);
            logged = 0;
            rad_status status = try_device(&env, RADISH_LIBCUDA_EMULATED, 0, &d, &err);
            CHECK((status == RAD_OK) == (d != NULL));
            CHECKF(!status || status == RAD_E_IO || status == RAD_E_NOMEM, "%s\n", err.text);
            CHECK(!status || strstr(err.text, "cuda: "));
            failed = !d || !live_once(d);
            CHECKF(failed == (calls_then > n), "call %ld failed and nobody said so\n", n);
            CHECK(logged <= 1);
            if (d) CHECK(live_once(d)); /* it goes on */
            end_device(d);
        }
        CHECKF(n > 60, "only %ld calls of the driver\n", n);
    }
    f->fake_cuda_reset();
}

/* The same, for memory of the host. */
TEST(create_survives_an_allocation_that_fails)
{
    the_fake()->fake_cuda_reset();
    test_env t;
    rad_env env = test_env_failing_at(&t, 0);
    rad_device *d = NULL;
    CHECK(try_device(&env, RADISH_LIBCUDA_EMULATED, 0, &d, NULL) == RAD_E_NOMEM && !d);
    CHECK(rad_device_cuda_create(NULL, NULL, &d, NULL) == RAD_E_INVAL);
    CHECK(rad_device_cuda_create(NULL, NULL, NULL, NULL) == RAD_E_INVAL);
    nothing_is_left();
}

TEST_MAIN()
