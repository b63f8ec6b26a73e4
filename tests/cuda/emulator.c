/* emulator.c - fibers, blocks, launches.
 *
 * The scheduler runs on the caller's stack. A fiber leaves for it with a *meeting*: what it waits
 * for (emulator_impl.h), and goes on when that has come.
 *
 *     scheduler --- fiber_enter ---> fiber: the kernel's code
 *               <-- meet ----------- the lane waits
 *
 * A launch that went wrong leaves its fibers where they are: the next one begins new ones on the
 * same stacks. */
#include "emulator_impl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 256 << 10 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif

scheduler *emulated;
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

/* The next lane of this turn; -1: all of them wait. */
static int next_in_turn(void)
{
    turn *t = &emulated->turn;
    while (t->next < LANES) {
        u32 lane = (t->start + t->next++) % LANES;
        u32 thread = t->warp * LANES + (t->backward ? LANES - 1 - lane : lane);
        if (emulated->fibers[thread].at.kind == MEET_NOBODY) return (int)thread;
    }
    return -1;
}

/* From the scheduler. */
static void fiber_enter(u32 thread)
{
    fiber *f = &emulated->fibers[thread];
    emulated_thread = thread;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&emulated->fake_stack, f->stack, STACK_BYTES);
#endif
    emulator_switch(&emulated->stack_pointer, f->stack_pointer);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(emulated->fake_stack, NULL, NULL);
#endif
}

/* To the next lane of this turn, or to the scheduler. */
static void fiber_leave(fiber *f)
{
    int next = emulated->failed ? -1 : next_in_turn();
    void *to = next < 0 ? emulated->stack_pointer : emulated->fibers[next].stack_pointer;
    if (next >= 0) emulated_thread = (u32)next;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(f->at.kind == MEET_ENDED ? NULL : &f->fake_stack,
                                   next < 0 ? emulated->stack_bottom : emulated->fibers[next].stack,
                                   next < 0 ? emulated->stack_bytes : (size_t)STACK_BYTES);
#endif
    emulator_switch(&f->stack_pointer, to);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
#endif
}

/* The first fiber of a launch learns where the scheduler's stack is. */
static __attribute__((noinline)) void fiber_arrive(void)
{
#ifdef __SANITIZE_ADDRESS__
    const void *from;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &from, &bytes);
    if (!emulated->stack_bottom) {
        emulated->stack_bottom = from;
        emulated->stack_bytes = bytes;
    }
#endif
}

/* It never returns, so nothing of its own may lie on the stack: ASan would guard it forever. */
static void fiber_main(void)
{
    fiber_arrive();
    emulated->kernel->entry(emulated->args);
    fiber *f = &emulated->fibers[emulated_thread];
    f->at.kind = MEET_ENDED;
    emulated->ready[emulated_thread / LANES]--;
    fiber_leave(f);
    abort(); /* nobody enters it again */
}

static void fiber_begin(u32 thread)
{
    fiber *f = &emulated->fibers[thread];
    f->stack_pointer = new_stack(f->stack + STACK_BYTES, fiber_main);
    f->at = (meeting){.kind = MEET_NOBODY};
    emulated->copies[thread].num_copies = emulated->copies[thread].num_groups = 0;
}

/* What frames of a launch that was given up left on the stacks is no frame any more. */
static void clean_stacks(void)
{
#ifdef __SANITIZE_ADDRESS__
    for (u32 t = 0; t < MOST_THREADS; t++)
        __asan_unpoison_memory_region(emulated->fibers[t].stack, STACK_BYTES);
#endif
}

/* ---- waiting ---- */

void note_failure(const char *format, ...)
{
    if (emulated->failed) return;
    emulated->failed = true;
    int n = snprintf(failure, sizeof failure, "block (%u, %u, %u): ", BLOCK_X, BLOCK_Y, BLOCK_Z);
    va_list args;
    va_start(args, format);
    vsnprintf(failure + n, sizeof failure - (size_t)n, format, args);
    va_end(args);
}

void meet(const meeting *at)
{
    u32 me = THREAD_X;
    fiber *f = &emulated->fibers[me];
    f->at = *at;
    emulated->ready[me / LANES]--;
    fiber_leave(f);
}

void resume(u32 thread)
{
    emulated->fibers[thread].at.kind = MEET_NOBODY;
    emulated->ready[thread / LANES]++;
}

void give_up(const char *where, const char *what)
{
    note_failure("thread %u: %s at %s", THREAD_X, what, where);
    fiber_leave(&emulated->fibers[THREAD_X]);
    abort();
}

/* ---- blocks ---- */

u32 random_below(u32 limit)
{
    emulated->random ^= emulated->random << 13;
    emulated->random ^= emulated->random >> 7;
    emulated->random ^= emulated->random << 17;
    return (u32)((emulated->random >> 32) * limit >> 32);
}

static void run_warp(u32 w)
{
    turn *t = &emulated->turn;
    *t = (turn){.warp = w, .backward = emulated->order == 1};
    if (emulated->order > 1) {
        t->start = random_below(LANES);
        t->backward = random_below(2);
    }
    int first = next_in_turn();
    if (first >= 0) fiber_enter((u32)first);
    if (!emulated->failed && !emulated->ready[w]) meet_warp(w);
}

/* A warp with lanes that run; -1: all wait or have ended. */
static int choose_warp(void)
{
    u32 start = emulated->order > 1 ? random_below(emulated->warps) : 0;
    for (u32 i = 0; i < emulated->warps; i++) {
        u32 w = emulated->order == 1 ? emulated->warps - 1 - i : (start + i) % emulated->warps;
        if (emulated->ready[w]) return (int)w;
    }
    return -1;
}

/* No thread runs. Goes on where all stand at one barrier; false: the block is done, or can never
 * be. */
static bool meet_block(void)
{
    const meeting *first = &emulated->fibers[0].at;
    bool together = first->kind == MEET_BLOCK || first->kind == MEET_ENDED;
    u32 t = 0;
    while (together && ++t < emulated->threads) {
        const meeting *at = &emulated->fibers[t].at;
        together = at->kind == first->kind &&
                   (at->kind == MEET_ENDED || same_place(at->where, first->where));
    }
    /* All that waits for less than the kernels before has come. */
    if ((!together || first->kind == MEET_ENDED) && stale_end()) return true;
    if (!together) {
        const meeting *at = &emulated->fibers[t].at;
        char one[256], other[256];
        note_failure("%s: thread 0 %s, thread %u %s",
                     t && at->kind == first->kind ? "barrier divergence" : "deadlock",
                     describe_meeting(one, first), t, describe_meeting(other, at));
    }
    if (!together || first->kind == MEET_ENDED) return false;
    for (t = 0; t < emulated->threads; t++)
        resume(t);
    return true;
}

static void run_block(u64 block)
{
    const emulated_kernel *kernel = emulated->kernel;
    if (kernel->shared_begin)
        memset(kernel->shared_begin, 0xa5, (size_t)(kernel->shared_end - kernel->shared_begin));
    if (emulated->shared_bytes) memset(emulated->dynamic_shared, 0xa5, emulated->shared_bytes);
    hopper_begin_block();
    hidden_begin_block();
    stale_begin_block(block);
    for (u32 t = 0; t < emulated->threads; t++)
        fiber_begin(t);
    for (u32 w = 0; w < emulated->warps; w++)
        emulated->ready[w] = LANES;
    do {
        for (int w; !emulated->failed && (w = choose_warp()) >= 0;) {
            run_warp((u32)w);
            if (emulated->order > 1 && random_below(8) == 0) (void)hopper_land_box();
        }
    } while (!emulated->failed && (hopper_land_box() || meet_block()));
    (void)stale_end();
    hidden_end_block();
    if (!emulated->failed) hopper_end_block();
}

static void run_grid(void)
{
    u64 per_plane = (u64)GRID_X * GRID_Y, blocks = per_plane * emulated_grid[2];
    u64 start = emulated->order > 1 ? random_below(blocks > ~0u ? ~0u : (u32)blocks) : 0;
    for (u64 i = 0; i < blocks && !emulated->failed; i++) {
        u64 block = emulated->order == 1 ? blocks - 1 - i : (start + i) % blocks;
        emulated_block[0] = (u32)(block % GRID_X);
        emulated_block[1] = (u32)(block / GRID_X % GRID_Y);
        emulated_block[2] = (u32)(block / per_plane);
        run_block(block);
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
    if (!emulated) emulated = create_scheduler();
    void *shared = NULL;
    if (posix_memalign(&shared, 1024, launch->shared_bytes + !launch->shared_bytes)) abort();
    emulated->launch = launch;
    emulated->kernel = kernel;
    emulated->args = launch->args;
    emulated->threads = launch->threads;
    emulated->warps = launch->threads / LANES;
    emulated->dynamic_shared = emulated_dynamic_shared = shared;
    emulated->shared_bytes = launch->shared_bytes;
    emulated->order = launch->order;
    emulated->random = launch->order * 0x9e3779b97f4a7c15u | 1;
    emulated->model = launch->model;
    emulated->waits_for_previous = 0;
    emulated->rounded = false;
    emulated->stack_bottom = NULL;
    if (emulated->failed) clean_stacks();
    emulated->failed = false;
    memcpy(emulated_grid, launch->grid, sizeof emulated_grid);
    run_grid();
    hidden_end_launch();
    bool failed = emulated->failed;
    free(shared);
    pthread_mutex_unlock(&running);
    return failed ? failure : NULL;
}

uint64_t emulator_waits_for_previous(void)
{
    return emulated ? emulated->waits_for_previous : 0;
}

bool emulator_rounded(void)
{
    return emulated && emulated->rounded;
}
