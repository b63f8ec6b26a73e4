/* step_info.h - what one forward pass did and took, for whoever watches. */
#ifndef SCHED_STEP_INFO_H
#define SCHED_STEP_INFO_H

#include <stdint.h>

typedef struct step_info {
    uint32_t prefill_tokens;  /* new prompt tokens */
    uint32_t decode_tokens;   /* of answers: one of each decoding request */
    uint64_t prefill_context; /* positions that the prompt tokens attended to, their own included */
    uint64_t decode_context;
    uint64_t draft_context;     /* of drafts: positions whose K/V their requests read anyway */
    uint64_t kv_read_bytes;     /* K/V that attention read; 0 of a runner that does not count */
    uint64_t kv_unshared_bytes; /* that it would have read without groups */
    uint64_t forward_ns;
    uint32_t logits_rows; /* of the decoding requests, of the prompts that ended, and of those whose
                           * logprobs are wanted */
    uint32_t draft_tokens; /* rows beside decode_tokens */
} step_info;

#endif
