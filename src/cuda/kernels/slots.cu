/* slots.cu - what changed in the rows of slots since the last step. One block a patch. */
#define ONE_FORM
#include "device/kernels/dialect.h"
#include "cuda/kernels/kernel_args.h"

KERNEL(patch_slots, PATCH_SLOTS_THREADS, patch_slots_args)
{
    launch_next();
    wait_previous(); /* attention of the step before may still read the rows */
    const slot_patch p = a.patches[BLOCK_X];
    for (u32 i = THREAD_X; i < p.count; i += PATCH_SLOTS_THREADS)
        a.slots[p.to + i] = a.values[p.from + i];
}
