/* emulator_impl.h - what the emulator's files share: emulator.c has fibers, blocks and launches,
 * emulator_warp.c what a thread does and a warp together, emulator_hopper.c barriers that count
 * bytes, bulk copies and wgmma, emulator_memory.c what blocks see of it where others are at work.
 */
#ifndef TESTS_CUDA_EMULATOR_IMPL_H
#define TESTS_CUDA_EMULATOR_IMPL_H

#define HOPPER /* the whole dialect */
#include "device/kernels/dialect.h"

#include <stdbool.h>

enum {
    LANES = 32,
    MOST_THREADS = 1024,
    MOST_WARPS = MOST_THREADS / LANES,
    MOST_COPIES = 512,       /* of a thread, under way */
    MOST_SHARED = 227 << 10, /* bytes of a block */
    MOST_BARRIERS = 64,      /* of a block */
    MOST_BOXES = 128,        /* of a block, under way */
    MOST_PRODUCTS = 128      /* wgmma of a warp, under way */
};

/* What a thread waits in. Those before MEET_BARRIER are of a whole warp. */
typedef enum meeting_kind {
    MEET_NOBODY, /* it runs */
    MEET_WARP,
    MEET_SHUFFLE,
    MEET_BALLOT,
    MEET_LOAD_MATRIX,
    MEET_LOAD_MATRIX_TRANSPOSED,
    MEET_MMA_BF16,
    MEET_MMA_I8,
    MEET_WARPGROUP_FENCE,
    MEET_WARPGROUP_MMA,
    MEET_WARPGROUP_COMMIT,
    MEET_WARPGROUP_WAIT,
    MEET_BARRIER, /* the thread alone, as in the next */
    MEET_PREVIOUS,
    MEET_BLOCK,
    MEET_ENDED
} meeting_kind;

typedef struct meeting {
    meeting_kind kind;
    const char *where;
    u32 value, lane;
    void *result;
    const void *a, *b;
} meeting;

typedef struct copy {
    void *to;
    const void *from; /* NULL: it was read early */
    u32 early[4];
} copy;

typedef struct fiber {
    void *stack_pointer;
    char *stack;
    void *fake_stack; /* ASan's */
    meeting at;
} fiber;

/* Copies under way of a thread, in groups: group_end[i] are in the first i + 1 groups. */
typedef struct thread_copies {
    u32 num_copies, num_groups;
    u32 group_end[MOST_COPIES];
    copy copies[MOST_COPIES];
} thread_copies;

/* The lanes of a warp that run in turn until each waits, from `start` on. */
typedef struct turn {
    u32 warp, start, next;
    bool backward;
} turn;

typedef struct barrier {
    const u64 *at; /* where it lies in shared memory; what counts is here */
    u32 arrivals, missing, parity;
    i32 bytes; /* that are to come */
} barrier;

typedef struct box_copy {
    char *to;
    const char *from; /* column x, row y */
    u64 stride;
    i32 x, y;
    u32 columns, rows; /* of the matrix */
    u32 box_rows;
    barrier *done;
    const char *where;
} box_copy;

/* The registers that products under way add to: d of each lane, which is garbage meanwhile. */
typedef struct accumulators {
    float *d[LANES];
    float values[LANES][128];
    u32 n, products; /* under way */
} accumulators;

typedef struct product {
    accumulators *to;
    u32 n, accumulate;
    u64 a, b;
    u64 digest; /* of the operands, as they were */
    const char *where;
} product;

/* What a warp has under way of wgmma, in groups as copies are. */
typedef struct warp_products {
    bool fenced;
    u32 num_products, num_groups;
    u32 group_end[MOST_PRODUCTS];
    product products[MOST_PRODUCTS];
} warp_products;

typedef struct scheduler {
    fiber fibers[MOST_THREADS];
    thread_copies copies[MOST_THREADS];
    turn turn;
    u32 ready[MOST_WARPS]; /* lanes that run */
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
    bool failed, rounded;
    const emulation *launch;
    char *fresh; /* what the stale memory of this block is now; NULL: all memory is as it is */
    u32 num_barriers, num_boxes;
    barrier barriers[MOST_BARRIERS];
    box_copy boxes[MOST_BOXES];
    warp_products wgmma[MOST_WARPS];
} scheduler;

extern scheduler *emulated; /* the launch that runs: one at a time */

/* ---- emulator.c ---- */
void note_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
void meet(const meeting *at); /* the running thread waits */
/* The running thread did what it may not do: the launch ends here. */
void give_up(const char *where, const char *what);
void resume(u32 thread); /* that waits alone */
u32 random_below(u32 limit);

/* ---- emulator_warp.c ---- */
bool is_shared(const void *p);
/* Where all lanes stand at one meeting of a warp, they get what they came for. */
void meet_warp(u32 warp);
bool same_place(const char *where, const char *other);
const char *describe_meeting(char to[256], const meeting *at);

/* A product of 16 x 16 by 16 x 8 numbers, and where the lanes of a warp have sums: in registers
 * [at, at + 4). */
void gather_sums(float *const *registers, u32 at, u32 d[16][8]);
void scatter_sums(float *const *registers, u32 at, const u32 d[16][8]);

/* ---- emulator_memory.c ---- */
void stale_begin_block(u64 block);
/* By kernels that may run beside this launch, of which some byte changed. */
bool is_written_before(const void *at, size_t bytes);
bool stale_end(void); /* memory is as it is from now on; false: it has been */
void hidden_begin_block(void);
void hidden_end_block(void);
void hidden_end_launch(void);

/* ---- emulator_hopper.c ---- */
void hopper_begin_block(void);
bool hopper_land_box(void); /* one; false: none is under way */
void hopper_end_block(void);
void hopper_meet(u32 warp);

#endif
