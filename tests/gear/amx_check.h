/* amx_check.h - the numbers that hold the kernels for AMX against the same in plain C. */
#ifndef GEAR_AMX_CHECK_H
#define GEAR_AMX_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* Pair of bf16 number `k` of a row (`left`) or a column. Lines come in four kinds: two
 * ordinary ones, where a chain's order shows in the last bit; denormals against large
 * numbers; and numbers whose products lie around the smallest normal one. */
uint32_t amx_check_pair(bool left, uint32_t line, uint32_t k);

#endif
