/* attn_ahead_lines.h - how many lines an attn_ahead has still to fetch, by counting. */
#ifndef TESTS_ATTN_AHEAD_LINES_H
#define TESTS_ATTN_AHEAD_LINES_H

#include "attn/attn_kernels.h"

static inline uint32_t attn_ahead_lines(const attn_ahead *a)
{
    if (!a->step) return 0;
    uint32_t lines = a->left, token = a->token;
    for (uint32_t side = a->side; side < a->sides; side++, token = 0)
        lines += (a->count - token) * attn_lines_of(a->bytes[side]);
    return lines;
}

#endif
