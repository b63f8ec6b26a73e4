/* cuda_slots.h - the rows of slots (req_to_token_pool) as the device has them.
 *
 * The host keeps what the device has, a shadow, and compares the rows of a step's requests with
 * it: what differs is sent as patches, in a block that is uploaded anyway. A decoding request has
 * one slot more than the step before; one that found a prefix, or gave up its duplicates, a range.
 *
 *     row       | 7 8 9 40 41 |        patch: row 3, position 3, 2 slots: 40 41
 *     shadow    | 7 8 9  .  . |
 *
 * Rows of window memory are true only where their request still sees (forward_batch.h): they are
 * compared from there on.
 *
 * It does not matter whose rows they are: a row of another pool is a row with other slots. */
#ifndef CUDA_CUDA_SLOTS_H
#define CUDA_CUDA_SLOTS_H

#include "attn/forward_batch.h"
#include "base/base.h"
#include "cuda/kernels/kernel_args.h"

typedef struct cuda_slots {
    rad_slot *shadow; /* [rows][ld] what is there, or will be after the step that was built last */
    uint32_t *known;  /* [rows] so many slots of the shadow are true, or NO_SLOT */
    uint32_t rows, ld;
    uint64_t compared, patched; /* slots, so far */
} cuda_slots;

static inline size_t cuda_slots_bytes(uint32_t rows, uint32_t ld)
{
    return rad_mul(rad_mul(rows, ld), sizeof(rad_slot));
}

/* RAD_E_NOMEM for the shadow. The table on the device has cuda_slots_bytes, too. */
rad_status cuda_slots_init(const rad_env *env, uint32_t rows, uint32_t ld, cuda_slots *out,
                           rad_error *err);
void cuda_slots_fini(const rad_env *env, cuda_slots *s);

/* The device may have anything: a step failed whose patches it should have got. */
void cuda_slots_forget(cuda_slots *s);

/* Compares the slots [from, count) of a row: what stands before is not looked at, and nobody reads
 * it on the device until it was compared. What changed, if anything, is written to values[at ..)
 * and *patch; the shadow has it from now on. Returns how many slots, 0: nothing changed; or
 * UINT32_MAX: there are more than `room`, and neither values nor the shadow have any of them. */
uint32_t cuda_slots_compare(cuda_slots *s, uint32_t row, const rad_slot *slots, uint32_t from,
                            uint32_t count, rad_slot *values, uint32_t at, uint32_t room,
                            slot_patch *patch);

/* The shadow has these slots of the row from now on; returns the first that changed. */
uint32_t cuda_slots_take(cuda_slots *s, uint32_t row, const rad_slot *slots, uint32_t from,
                         uint32_t count);

#endif
