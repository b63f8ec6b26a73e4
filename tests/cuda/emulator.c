/* emulator.c - fibers, what they meet for, and copies that land late.
 *
 * The scheduler runs on the caller's stack. A fiber leaves for it with a *meeting*: what it waits
 * for, and pointers to what it brings and wants, which lie on its own stack. When all 32 lanes of a
 * warp stand at the same meeting, the scheduler does what the instruction does for all of them.
 *
 *     scheduler --- fiber_enter ---> fiber: the kernel's code
 *               <-- meet ----------- the lane waits
 *
 * A launch that went wrong leaves its fibers where they are: the next one begins new ones on the
 * same stacks. */
#include "device/kernels/dialect.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MOST_THREADS = 1024, LANES = 32, PAGE = 4096, MOST_COPIES = 512, MOST_SHARED = 227 << 10 };

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 << 10 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif

typedef enum meeting_kind {
    RUNS, /* waits for nothing */
    SYNC_BLOCK_,
    SYNC_WARP,
    SHUFFLE,
    BALLOT,
    LOAD_MATRIX,
    LOAD_MATRIX_TRANSPOSED,
    MMA_BF16,
    MMA_I8,
    ENDED
} meeting_kind;

static const char *const kind_names[] = {"runs",
                                         "SYNC_BLOCK",
                                         "sync_warp",
                                         "a shuffle",
                                         "ballot",
                                         "load_matrix4",
                                         "load_matrix4_transposed",
                                         "mma_bf16",
                                         "mma_i8",
                                         "has ended"};

typedef struct meeting {
    meeting_kind kind;
    const char *where;
    u32 value, lane;
    void *result;
    const void *a, *b;
} meeting;

typedef struct copy {
    void *to;
    const void *from;
} copy;

typedef struct fiber {
    void *stack_pointer;
    char *stack;
    void *fake_stack; /* ASan's */
    meeting at;
    /* Copies under way, in groups: group_end[i] copies are in the first i + 1 groups. */
    u32 num_copies, num_groups;
    u32 group_end[MOST_COPIES];
    copy copies[MOST_COPIES];
} fiber;

typedef struct scheduler {
    fiber fibers[MOST_THREADS];
    u32 ready[MOST_THREADS / LANES]; /* lanes of a warp that run */
    u32 threads, warps;
    void *stack_pointer;
    const void *stack_bottom; /* for ASan */
    size_t stack_bytes;
    void *fake_stack;
    const emulated_kernel *kernel;
    const void *args;
    char *dynamic_shared;
    u32 shared_bytes;
    u64 order, random;
    tensor_core_model model;
    u64 waits_for_previous;
    bool failed;
} scheduler;

static scheduler *s; /* of the launch that runs: one at a time */
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char failure[1024];
static emulated_kernel *kernels;

uint32_t emulated_thread, emulated_block[3], emulated_grid[3];
void *emulated_dynamic_shared;

void emulator_register(emulated_kernel *kernel)
{
    if (emulator_find(kernel->name)) {
        fprintf(stderr, "emulator: two kernels are called %s\n", kernel->name);
        abort();
    }
    kernel->next = kernels;
    kernels = kernel;
}

const emulated_kernel *emulator_find(const char *name)
{
    for (emulated_kernel *kernel = kernels; kernel; kernel = kernel->next)
        if (strcmp(kernel->name, name) == 0) return kernel;
    return NULL;
}

/* ---- switching stacks ---- */

/* Puts the registers that a call preserves on this stack, its pointer to *save, and goes on with
 * those that lie at `load`. */
void emulator_switch(void **save, void *load);

#if defined(__x86_64__)
enum { SAVED_WORDS = 6 };
__asm__(".text\n"
        ".globl emulator_switch\n"
        ".hidden emulator_switch\n"
        ".type emulator_switch, @function\n"
        "emulator_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size emulator_switch, . - emulator_switch\n");

/* As if `entry` had been called from an aligned stack: its return address is never used. */
static void *new_stack(char *top, void (*entry)(void))
{
    void **word = (void **)top;
    *--word = NULL;
    *--word = (void *)entry;
    for (int i = 0; i < SAVED_WORDS; i++)
        *--word = NULL;
    return word;
}
#elif defined(__aarch64__)
enum { SAVED_WORDS = 20 };
__asm__(".text\n"
        ".globl emulator_switch\n"
        ".hidden emulator_switch\n"
        ".type emulator_switch, %function\n"
        "emulator_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size emulator_switch, . - emulator_switch\n");

static void *new_stack(char *top, void (*entry)(void))
{
    void **word = (void **)top - SAVED_WORDS;
    memset(word, 0, SAVED_WORDS * sizeof *word);
    word[11] = (void *)entry; /* x30 */
    return word;
}
#else
#error "the emulator of CUDA kernels switches stacks on x86-64 and aarch64 only"
#endif

static void fiber_enter(u32 thread)
{
    fiber *f = &s->fibers[thread];
    emulated_thread = thread;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&s->fake_stack, f->stack, STACK_BYTES);
#endif
    emulator_switch(&s->stack_pointer, f->stack_pointer);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(s->fake_stack, NULL, NULL);
#endif
}

static void fiber_leave(fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(f->at.kind == ENDED ? NULL : &f->fake_stack, s->stack_bottom,
                                   s->stack_bytes);
#endif
    emulator_switch(&f->stack_pointer, s->stack_pointer);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(f->fake_stack, &s->stack_bottom, &s->stack_bytes);
#endif
}

static void fiber_main(void)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &s->stack_bottom, &s->stack_bytes);
#endif
    s->kernel->entry(s->args);
    fiber *f = &s->fibers[emulated_thread];
    f->at.kind = ENDED;
    s->ready[emulated_thread / LANES]--;
    fiber_leave(f);
    abort(); /* nobody enters it again */
}

static void fiber_begin(fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(f->stack, STACK_BYTES); /* of a launch that was given up */
#endif
    f->stack_pointer = new_stack(f->stack + STACK_BYTES, fiber_main);
    f->at = (meeting){.kind = RUNS};
    f->num_copies = f->num_groups = 0;
}

/* ---- what a thread does ---- */

static void note_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note_failure(const char *format, ...)
{
    if (s->failed) return;
    s->failed = true;
    int n = snprintf(failure, sizeof failure, "block (%u, %u, %u): ", BLOCK_X, BLOCK_Y, BLOCK_Z);
    va_list args;
    va_start(args, format);
    vsnprintf(failure + n, sizeof failure - (size_t)n, format, args);
    va_end(args);
}

static void meet(const meeting *at)
{
    u32 me = THREAD_X;
    fiber *f = &s->fibers[me];
    f->at = *at;
    s->ready[me / LANES]--;
    fiber_leave(f);
}

/* The running thread did what it may not do: the launch ends here. */
static void give_up(const char *where, const char *what)
{
    note_failure("thread %u: %s at %s", THREAD_X, what, where);
    fiber_leave(&s->fibers[THREAD_X]);
    abort();
}

static bool aligned16(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

/* Static shared memory is known in builds without ASan only. */
static bool is_shared(const void *p)
{
    const char *at = p;
    if (at >= s->dynamic_shared && at < s->dynamic_shared + s->shared_bytes) return true;
    return !s->kernel->shared_begin ||
           (at >= s->kernel->shared_begin && at < s->kernel->shared_end);
}

void emulated_sync_block(const char *where)
{
    meet(&(meeting){.kind = SYNC_BLOCK_, .where = where});
}

void emulated_sync_warp(const char *where)
{
    meet(&(meeting){.kind = SYNC_WARP, .where = where});
}

u32 emulated_shuffle(u32 v, u32 lane, const char *where)
{
    u32 result;
    meet(&(meeting){
        .kind = SHUFFLE, .where = where, .value = v, .lane = lane % LANES, .result = &result});
    return result;
}

u32 emulated_ballot(int predicate, const char *where)
{
    u32 result;
    meet(&(meeting){.kind = BALLOT, .where = where, .value = predicate != 0, .result = &result});
    return result;
}

void emulated_load_matrix4(u32 r[4], const void *row, int transposed, const char *where)
{
    if (!aligned16(row)) give_up(where, "a row of a matrix is not aligned to 16 bytes");
    if (!is_shared(row)) give_up(where, "a row of a matrix is not in shared memory");
    meet(&(meeting){.kind = transposed ? LOAD_MATRIX_TRANSPOSED : LOAD_MATRIX,
                    .where = where,
                    .result = r,
                    .a = row});
}

void emulated_mma_bf16(float d[4], const u32 a[4], const u32 b[2], const char *where)
{
    meet(&(meeting){.kind = MMA_BF16, .where = where, .result = d, .a = a, .b = b});
}

void emulated_mma_i8(i32 d[4], const u32 a[4], const u32 b[2], const char *where)
{
    meet(&(meeting){.kind = MMA_I8, .where = where, .result = d, .a = a, .b = b});
}

void emulated_load16(u32 to[4], const void *from, const char *where)
{
    if (!aligned16(from)) give_up(where, "16 bytes are read at an address that is not aligned");
    memcpy(to, from, 16);
}

void emulated_copy16_async(void *shared, const void *global, int yes, const char *where)
{
    static const u32 zeros[4] __attribute__((aligned(16)));
    if (!yes) global = zeros;
    fiber *f = &s->fibers[THREAD_X];
    if (!aligned16(shared) || !aligned16(global))
        give_up(where, "a copy of 16 bytes is not aligned");
    if (!is_shared(shared)) give_up(where, "a copy does not go to shared memory");
    if (f->num_copies == MOST_COPIES) give_up(where, "too many copies are under way");
    memset(shared, 0xa5, 16);
    f->copies[f->num_copies++] = (copy){shared, global};
}

void emulated_copy_commit(const char *where)
{
    fiber *f = &s->fibers[THREAD_X];
    if (f->num_groups == MOST_COPIES)
        give_up(where, "too many groups of copies are not waited for");
    f->group_end[f->num_groups++] = f->num_copies;
}

/* All but the last `groups` land. */
void emulated_copy_wait(u32 groups)
{
    fiber *f = &s->fibers[THREAD_X];
    if (f->num_groups <= groups) return;
    u32 landing = f->num_groups - groups, copies = f->group_end[landing - 1];
    for (u32 i = 0; i < copies; i++)
        memcpy(f->copies[i].to, f->copies[i].from, 16);
    f->num_copies -= copies;
    f->num_groups = groups;
    memmove(f->copies, f->copies + copies, f->num_copies * sizeof *f->copies);
    for (u32 i = 0; i < groups; i++)
        f->group_end[i] = f->group_end[landing + i] - copies;
}

void emulated_wait_previous(void)
{
    s->waits_for_previous++;
}

/* ---- what a warp does ---- */

static void shuffle(const fiber *warp)
{
    for (u32 lane = 0; lane < LANES; lane++)
        *(u32 *)warp[lane].at.result = warp[warp[lane].at.lane].at.value;
}

static void vote(const fiber *warp)
{
    u32 all = 0;
    for (u32 lane = 0; lane < LANES; lane++)
        all |= warp[lane].at.value << lane;
    for (u32 lane = 0; lane < LANES; lane++)
        *(u32 *)warp[lane].at.result = all;
}

/* Lane 8 i + r points to row r of matrix i; each lane gets two neighbours of each matrix. */
static void load_matrices(const fiber *warp, bool transposed)
{
    u16 rows[4][8][8];
    for (u32 lane = 0; lane < LANES; lane++)
        memcpy(rows[lane / 8][lane % 8], warp[lane].at.a, 16);
    for (u32 lane = 0; lane < LANES; lane++) {
        u32 *r = warp[lane].at.result, row = lane / 4, column = lane % 4 * 2;
        for (u32 i = 0; i < 4; i++)
            r[i] = transposed ? rows[i][column][row] | (u32)rows[i][column + 1][row] << 16
                              : rows[i][row][column] | (u32)rows[i][row][column + 1] << 16;
    }
}

/* Registers to matrices. Lane l has rows l/4 and l/4 + 8 of a and d, column l/4 of b; of k the
 * 4 bytes at l%4 and, in the upper registers, those 16 bytes further. */
static void gather(const fiber *warp, char a[16][32], char b[8][32])
{
    for (u32 lane = 0; lane < LANES; lane++) {
        const u32 *from_a = warp[lane].at.a, *from_b = warp[lane].at.b;
        for (u32 i = 0; i < 4; i++)
            memcpy(a[lane / 4 + i % 2 * 8] + lane % 4 * 4 + i / 2 * 16, &from_a[i], 4);
        for (u32 i = 0; i < 2; i++)
            memcpy(b[lane / 4] + lane % 4 * 4 + i * 16, &from_b[i], 4);
    }
}

/* Of lane l: rows l/4 and l/4 + 8, columns 2 (l%4) and the next. */
static void gather_sums(const fiber *warp, u32 d[16][8])
{
    for (u32 lane = 0; lane < LANES; lane++)
        for (u32 i = 0; i < 2; i++)
            memcpy(&d[lane / 4 + i * 8][lane % 4 * 2], (const u32 *)warp[lane].at.result + i * 2,
                   8);
}

static void scatter_sums(const fiber *warp, const u32 d[16][8])
{
    for (u32 lane = 0; lane < LANES; lane++)
        for (u32 i = 0; i < 2; i++)
            memcpy((u32 *)warp[lane].at.result + i * 2, &d[lane / 4 + i * 8][lane % 4 * 2], 8);
}

static void multiply(const fiber *warp, bool integers)
{
    union {
        char bytes[16][32];
        u16 bf16[16][16];
        i8 i8[16][32];
    } a;
    union {
        char bytes[8][32];
        u16 bf16[8][16];
        i8 i8[8][32];
    } b;
    union {
        u32 bits[16][8];
        float f32[16][8];
        i32 i32[16][8];
    } d;
    gather(warp, a.bytes, b.bytes);
    gather_sums(warp, d.bits);
    if (integers)
        tensor_core_i8(d.i32, a.i8, b.i8);
    else
        tensor_core_bf16(s->model, d.f32, a.bf16, b.bf16);
    scatter_sums(warp, d.bits);
}

static bool same_place(const char *x, const char *y)
{
    return x == y || strcmp(x, y) == 0;
}

/* Where all lanes stand at one meeting of a warp, they get what they came for. */
static void meet_warp(u32 w)
{
    fiber *warp = &s->fibers[w * LANES];
    const meeting *first = &warp[0].at;
    if (first->kind == SYNC_BLOCK_ || first->kind == ENDED) return;
    for (u32 lane = 1; lane < LANES; lane++) {
        const meeting *at = &warp[lane].at;
        if (at->kind == SYNC_BLOCK_) return; /* not together: the end of all waiting tells */
        if (at->kind == ENDED)
            note_failure("warp %u: lane %u has ended, lane 0 waits in %s at %s", w, lane,
                         kind_names[first->kind], first->where);
        else if (at->kind != first->kind || !same_place(at->where, first->where))
            note_failure("warp %u: its lanes diverge: 0 waits in %s at %s, %u in %s at %s", w,
                         kind_names[first->kind], first->where, lane, kind_names[at->kind],
                         at->where);
        if (s->failed) return;
    }
    switch (first->kind) {
    case SHUFFLE: shuffle(warp); break;
    case BALLOT: vote(warp); break;
    case LOAD_MATRIX: load_matrices(warp, false); break;
    case LOAD_MATRIX_TRANSPOSED: load_matrices(warp, true); break;
    case MMA_BF16: multiply(warp, false); break;
    case MMA_I8: multiply(warp, true); break;
    default: break;
    }
    for (u32 lane = 0; lane < LANES; lane++)
        warp[lane].at.kind = RUNS;
    s->ready[w] = LANES;
}

/* ---- blocks ---- */

static u32 random_below(u32 limit)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (u32)((s->random >> 32) * limit >> 32);
}

static void run_warp(u32 w)
{
    u32 start = 0;
    bool backward = s->order == 1;
    if (s->order > 1) {
        start = random_below(LANES);
        backward = random_below(2);
    }
    for (u32 i = 0; i < LANES; i++) {
        u32 lane = (start + i) % LANES, thread = w * LANES + (backward ? LANES - 1 - lane : lane);
        if (s->fibers[thread].at.kind != RUNS) continue;
        fiber_enter(thread);
        if (s->failed) return;
    }
    meet_warp(w);
}

/* A warp with lanes that run; -1: all wait or have ended. */
static int choose_warp(void)
{
    u32 start = s->order > 1 ? random_below(s->warps) : 0;
    for (u32 i = 0; i < s->warps; i++) {
        u32 w = s->order == 1 ? s->warps - 1 - i : (start + i) % s->warps;
        if (s->ready[w]) return (int)w;
    }
    return -1;
}

static const char *describe(char to[256], const meeting *at)
{
    if (at->kind == ENDED) return "has ended";
    snprintf(to, 256, "waits in %s at %s", kind_names[at->kind], at->where);
    return to;
}

/* All threads wait or have ended. Goes on where all stand at one barrier; false: the block is done,
 * or can never be. */
static bool meet_block(void)
{
    const fiber *first = &s->fibers[0];
    for (u32 t = 1; t < s->threads; t++) {
        const fiber *f = &s->fibers[t];
        bool same = f->at.kind == first->at.kind;
        if (same && f->at.kind == SYNC_BLOCK_) same = same_place(f->at.where, first->at.where);
        if (same) continue;
        char one[256], other[256];
        note_failure("%s: thread 0 %s, thread %u %s",
                     f->at.kind == first->at.kind ? "barrier divergence" : "deadlock",
                     describe(one, &first->at), t, describe(other, &f->at));
        return false;
    }
    if (first->at.kind == ENDED) return false;
    for (u32 t = 0; t < s->threads; t++)
        s->fibers[t].at.kind = RUNS;
    for (u32 w = 0; w < s->warps; w++)
        s->ready[w] = LANES;
    return true;
}

static void run_block(void)
{
    const emulated_kernel *kernel = s->kernel;
    if (kernel->shared_begin)
        memset(kernel->shared_begin, 0xa5, (size_t)(kernel->shared_end - kernel->shared_begin));
    if (s->shared_bytes) memset(s->dynamic_shared, 0xa5, s->shared_bytes);
    for (u32 t = 0; t < s->threads; t++)
        fiber_begin(&s->fibers[t]);
    for (u32 w = 0; w < s->warps; w++)
        s->ready[w] = LANES;
    do {
        for (int w; !s->failed && (w = choose_warp()) >= 0;)
            run_warp((u32)w);
    } while (!s->failed && meet_block());
}

static void run_grid(void)
{
    u64 per_plane = (u64)GRID_X * GRID_Y, blocks = per_plane * emulated_grid[2];
    u64 start = s->order > 1 ? random_below(blocks > ~0u ? ~0u : (u32)blocks) : 0;
    for (u64 i = 0; i < blocks && !s->failed; i++) {
        u64 block = s->order == 1 ? blocks - 1 - i : (start + i) % blocks;
        emulated_block[0] = (u32)(block % GRID_X);
        emulated_block[1] = (u32)(block / GRID_X % GRID_Y);
        emulated_block[2] = (u32)(block / per_plane);
        run_block();
    }
}

/* ---- launches ---- */

/* A page below each stack faults, as a stack that is too small should. */
static scheduler *create_scheduler(void)
{
    scheduler *created = calloc(1, sizeof *created);
    char *stacks = mmap(NULL, (size_t)MOST_THREADS * (STACK_BYTES + PAGE), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!created || stacks == MAP_FAILED) abort();
    for (u32 t = 0; t < MOST_THREADS; t++) {
        char *guard = stacks + (size_t)t * (STACK_BYTES + PAGE);
        if (mprotect(guard, PAGE, PROT_NONE)) abort();
        created->fibers[t].stack = guard + PAGE;
    }
    return created;
}

static const char *refuse(const emulation *launch, const emulated_kernel *kernel)
{
    if (!kernel)
        snprintf(failure, sizeof failure, "there is no kernel %s", launch->kernel);
    else if (!launch->threads || launch->threads > kernel->threads || launch->threads % LANES)
        snprintf(failure, sizeof failure, "%s: %u threads a block; it takes 32, 64, ... %u",
                 kernel->name, launch->threads, kernel->threads);
    else if (!launch->grid[0] || !launch->grid[1] || !launch->grid[2] || launch->grid[1] > 65535 ||
             launch->grid[2] > 65535 || launch->grid[0] > INT32_MAX)
        snprintf(failure, sizeof failure, "%s: no grid is %u x %u x %u", kernel->name,
                 launch->grid[0], launch->grid[1], launch->grid[2]);
    else if (launch->shared_bytes > MOST_SHARED)
        snprintf(failure, sizeof failure, "%s: %u bytes of shared memory, of at most %u",
                 kernel->name, launch->shared_bytes, (u32)MOST_SHARED);
    else
        return NULL;
    return failure;
}

const char *emulate(const emulation *launch)
{
    const emulated_kernel *kernel = emulator_find(launch->kernel);
    const char *refused = refuse(launch, kernel);
    if (refused) return refused;
    pthread_mutex_lock(&running);
    if (!s) s = create_scheduler();
    void *shared = NULL;
    if (posix_memalign(&shared, 1024, launch->shared_bytes + !launch->shared_bytes)) abort();
    s->kernel = kernel;
    s->args = launch->args;
    s->threads = launch->threads;
    s->warps = launch->threads / LANES;
    s->dynamic_shared = emulated_dynamic_shared = shared;
    s->shared_bytes = launch->shared_bytes;
    s->order = launch->order;
    s->random = launch->order * 0x9e3779b97f4a7c15u | 1;
    s->model = launch->model;
    s->waits_for_previous = 0;
    s->failed = false;
    memcpy(emulated_grid, launch->grid, sizeof emulated_grid);
    run_grid();
    bool failed = s->failed;
    free(shared);
    pthread_mutex_unlock(&running);
    return failed ? failure : NULL;
}

uint64_t emulator_waits_for_previous(void)
{
    return s ? s->waits_for_previous : 0;
}
