/* emulator_memory.c - what a block sees of memory where others are at work on it.
 *
 * Blocks run one after another, kernels too. That they overlap is made by what they see:
 *
 *   stale   A launch that begins early. When a block begins, memory is put back to what it was
 *           before the kernels that may not have ended. When no thread can run without it, memory
 *           becomes what it is, and those in wait_previous go on. Putting back takes time: the
 *           first block, the last and one in 16 begin early.
 *   hidden  Blocks that speak through memory. Others see what a block wrote before a fence_device
 *           as soon as an atomic stands behind that. The rest is taken back when the block ends,
 *           and written again when the launch ends. */
#include "emulator_impl.h"

#include <stdlib.h>

void stale_begin_block(u64 block)
{
    const emulation *e = emulated->launch;
    u64 last = (u64)GRID_X * GRID_Y * emulated_grid[2] - 1;
    size_t bytes = 0, at = 0;
    if (!e->num_stale || (block && block != last && block * 0x9e3779b97f4a7c15u >> 60)) return;
    for (u32 i = 0; i < e->num_stale; i++)
        bytes += e->stale[i].bytes;
    emulated->fresh = malloc(bytes);
    if (!emulated->fresh) abort();
    for (u32 i = 0; i < e->num_stale; i++) {
        memcpy(emulated->fresh + at, e->stale[i].at, e->stale[i].bytes);
        memcpy(e->stale[i].at, e->stale[i].then, e->stale[i].bytes);
        at += e->stale[i].bytes;
    }
}

bool stale_end(void)
{
    const emulation *e = emulated->launch;
    size_t at = 0;
    if (!emulated->fresh) return false;
    for (u32 i = 0; i < e->num_stale; i++) {
        const emulator_stale *stale = &e->stale[i];
        if (memcmp(stale->at, stale->then, stale->bytes) != 0)
            note_failure("what kernels before use was written before wait_previous");
        memcpy(stale->at, emulated->fresh + at, stale->bytes);
        at += stale->bytes;
    }
    free(emulated->fresh);
    emulated->fresh = NULL;
    for (u32 t = 0; t < emulated->threads; t++)
        if (emulated->fibers[t].at.kind == MEET_PREVIOUS) resume(t);
    return true;
}

/* Pieces ascend. */
bool is_written_before(const void *at, size_t bytes)
{
    const emulation *e = emulated->launch;
    u32 low = 0, high = e->num_stale;
    while (low < high) {
        const u32 mid = (low + high) / 2;
        const emulator_stale *s = &e->stale[mid];
        if (s->at + s->bytes <= (const char *)at)
            low = mid + 1;
        else
            high = mid;
    }
    return low < e->num_stale && e->stale[low].at < (const char *)at + bytes;
}

/* ---- what is hidden ---- */

/* What was taken back: some bytes, in front of `bytes` of them. */
typedef struct hidden_write {
    struct hidden_write *next;
    char *at;
    size_t bytes;
    char written[];
} hidden_write;

static hidden_write *hidden;

void hidden_begin_block(void)
{
    const emulation *e = emulated->launch;
    for (u32 i = 0; i < e->num_shared; i++) {
        memcpy(e->shared[i].fenced, e->shared[i].at, e->shared[i].bytes);
        memcpy(e->shared[i].seen, e->shared[i].at, e->shared[i].bytes);
    }
}

void emulated_fence_device(void)
{
    const emulation *e = emulated->launch;
    for (u32 i = 0; i < e->num_shared; i++)
        memcpy(e->shared[i].fenced, e->shared[i].at, e->shared[i].bytes);
}

u32 emulated_atomic_add_u32(u32 *to, u32 v)
{
    const emulation *e = emulated->launch;
    u32 was = *to;
    *to += v;
    for (u32 i = 0; i < e->num_shared; i++) {
        const emulator_shared *m = &e->shared[i];
        size_t offset = (size_t)((char *)to - m->at);
        if (offset < m->bytes) memcpy(m->fenced + offset, to, sizeof *to);
        memcpy(m->seen, m->fenced, m->bytes);
    }
    return was;
}

static void hide(char *at, char *seen, size_t bytes)
{
    hidden_write *h = malloc(sizeof *h + bytes);
    if (!h) abort();
    h->next = hidden;
    h->at = at;
    h->bytes = bytes;
    memcpy(h->written, at, bytes);
    memcpy(at, seen, bytes);
    hidden = h;
}

void hidden_end_block(void)
{
    enum { PIECE = 256 };
    const emulation *e = emulated->launch;
    for (u32 i = 0; i < e->num_shared; i++) {
        const emulator_shared *m = &e->shared[i];
        for (size_t at = 0; at < m->bytes; at++) {
            size_t left = m->bytes - at, bytes = 0;
            if (at % PIECE == 0 && left >= PIECE && !memcmp(m->at + at, m->seen + at, PIECE)) {
                at += PIECE - 1;
                continue;
            }
            while (bytes < left && m->at[at + bytes] != m->seen[at + bytes])
                bytes++;
            if (bytes) hide(m->at + at, m->seen + at, bytes);
            at += bytes;
        }
    }
}

void hidden_end_launch(void)
{
    while (hidden) {
        hidden_write *h = hidden;
        hidden = h->next;
        memcpy(h->at, h->written, h->bytes);
        free(h);
    }
}
