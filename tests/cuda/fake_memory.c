/* fake_memory.c - device memory is one reservation that is opened and closed as a whole.
 *
 *     | block | gap | block | ...            | never used: PROT_NONE from the start
 *     ^ arena                                ^ top: as far as it was ever used
 *
 * Blocks lie in a list by address; an allocation takes the first gap that is large enough. Between
 * blocks 512 bytes are left free, which ASan is told of. */
#include "fake_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { ALIGNMENT = 512, PAGE = 4096, FILLED = 1 << 20 };
static const size_t ARENA_BYTES = (size_t)1 << 36; /* addresses, not memory */

typedef struct block {
    char *at;
    size_t bytes;
    char *then;   /* what memory_remember found; NULL: nothing */
    char *fenced; /* for memory_share */
    struct block *next;
} block;

static char *arena;
static size_t top, total = (size_t)1 << 30, used, pinned_bytes;
static block *blocks, *pinned;
static int windows;
static emulator_stale *stale;
static size_t num_stale, most_stale;
static emulator_shared *shared;

void memory_set_total(size_t bytes)
{
    total = bytes < ARENA_BYTES ? bytes : ARENA_BYTES;
}
size_t memory_total(void)
{
    return total;
}
size_t memory_used(void)
{
    return used;
}
size_t memory_pinned(void)
{
    return pinned_bytes;
}

static void set_access(int access)
{
    if (top && mprotect(arena, top, access)) abort();
}

void memory_window_begin(void)
{
    if (windows++ == 0) set_access(PROT_READ | PROT_WRITE);
}

void memory_window_end(void)
{
    if (--windows == 0) set_access(PROT_NONE);
}

static void add_block(block **link, void *at, size_t bytes)
{
    block *b = malloc(sizeof *b);
    if (!b) abort();
    *b = (block){.at = at, .bytes = bytes, .next = *link};
    *link = b;
}

static size_t with_gap(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
}

/* What was remembered is not compared any more. */
static void forget(void)
{
    for (block *b = blocks; b; b = b->next) {
        free(b->then);
        b->then = NULL;
    }
}

void memory_remember(void)
{
    for (block *b = blocks; b; b = b->next) {
        if (!b->then && !(b->then = malloc(b->bytes))) abort();
        memcpy(b->then, b->at, b->bytes);
    }
}

static void add_stale(char *at, const char *then, size_t bytes)
{
    emulator_stale *last = num_stale ? &stale[num_stale - 1] : NULL;
    if (last && last->at + last->bytes == at && last->then + last->bytes == then) {
        last->bytes += bytes;
        return;
    }
    if (num_stale == most_stale) {
        most_stale = most_stale * 2 + 64;
        stale = realloc(stale, most_stale * sizeof *stale);
        if (!stale) abort();
    }
    stale[num_stale++] = (emulator_stale){at, then, bytes};
}

uint32_t memory_compare(const emulator_stale **out)
{
    enum { PIECE = 256 };
    num_stale = 0;
    for (block *b = blocks; b; b = b->next)
        for (size_t i = 0; b->then && i < b->bytes; i += PIECE) {
            size_t bytes = b->bytes - i < PIECE ? b->bytes - i : PIECE;
            if (memcmp(b->at + i, b->then + i, bytes) != 0)
                add_stale(b->at + i, b->then + i, bytes);
        }
    *out = stale;
    return (uint32_t)num_stale;
}

uint32_t memory_share(const emulator_shared **out)
{
    uint32_t count = 0;
    memory_remember();
    for (block *b = blocks; b; b = b->next)
        count++;
    shared = realloc(shared, (count + 1) * sizeof *shared);
    if (!shared) abort();
    count = 0;
    for (block *b = blocks; b; b = b->next) {
        if (!b->fenced && !(b->fenced = malloc(b->bytes))) abort();
        shared[count++] = (emulator_shared){b->at, b->fenced, b->then, b->bytes};
    }
    *out = shared;
    return count;
}

void *memory_alloc(size_t bytes)
{
    if (!bytes || used > total || bytes > total - used) return NULL;
    if (!arena) {
        arena =
            mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) abort();
    }
    char *at = arena;
    block **link = &blocks;
    while (*link && (size_t)((*link)->at - at) < with_gap(bytes)) {
        at = (*link)->at + with_gap((*link)->bytes);
        link = &(*link)->next;
    }
    if ((size_t)(at - arena) + with_gap(bytes) > ARENA_BYTES) return NULL;
    forget();
    add_block(link, at, bytes);
    used += bytes;

    size_t end = ((size_t)(at - arena) + with_gap(bytes) + PAGE - 1) / PAGE * PAGE;
    if (end > top) {
        top = end;
        if (windows) set_access(PROT_READ | PROT_WRITE);
    }
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
    ASAN_POISON_MEMORY_REGION(at + bytes, with_gap(bytes) - bytes);
    memory_window_begin();
    memset(at, 0xa5, bytes < FILLED ? bytes : FILLED);
    memory_window_end();
    return at;
}

static block *take(block **list, const void *at)
{
    for (block **link = list; *link; link = &(*link)->next)
        if ((*link)->at == at) {
            block *b = *link;
            *link = b->next;
            return b;
        }
    return NULL;
}

bool memory_free(void *memory)
{
    block *b = take(&blocks, memory);
    if (!b) return false;
    used -= b->bytes;
    forget();
    free(b->then);
    free(b->fenced);
    ASAN_POISON_MEMORY_REGION(b->at, b->bytes);
    free(b);
    return true;
}

static bool is_inside(const block *list, const void *memory, size_t bytes)
{
    for (const block *b = list; b; b = b->next) {
        size_t offset = (size_t)((const char *)memory - b->at);
        if ((const char *)memory >= b->at && offset < b->bytes && bytes <= b->bytes - offset)
            return true;
    }
    return false;
}

void *pinned_alloc(size_t bytes)
{
    void *memory;
    if (!bytes || posix_memalign(&memory, PAGE, bytes)) return NULL;
    add_block(&pinned, memory, bytes);
    pinned_bytes += bytes;
    return memory;
}

bool pinned_free(void *memory)
{
    block *b = take(&pinned, memory);
    if (!b) return false;
    pinned_bytes -= b->bytes;
    free(memory);
    free(b);
    return true;
}

memory_kind memory_kind_of(const void *memory, size_t bytes)
{
    return is_inside(blocks, memory, bytes)   ? MEMORY_DEVICE
           : is_inside(pinned, memory, bytes) ? MEMORY_PINNED
                                              : MEMORY_OTHER;
}

bool memory_is_arena(const void *memory)
{
    return arena && (const char *)memory >= arena && (const char *)memory < arena + ARENA_BYTES;
}

void memory_reset(void)
{
    while (blocks)
        memory_free(blocks->at);
    while (pinned)
        pinned_free(pinned->at);
    free(stale);
    free(shared);
    stale = NULL;
    shared = NULL;
    num_stale = most_stale = 0;
}
