/* emulator_stale.c - launches that begin before those before them have ended.
 *
 * Blocks run one after another, so the kernels before have ended here. That a block began early is
 * made by what it sees: at its begin, memory is put back to what it was before them. When no thread
 * can run without it, memory becomes what it is, and those in wait_previous go on.
 *
 * Putting memory back takes time: the first block, the last and one in 16 begin early. */
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
