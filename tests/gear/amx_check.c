/* amx_check.c - numbers that reach every rule of the arithmetic; see the header. */
#include "gear/amx_check.h"

#include "base/mix64.h"

uint32_t amx_check_pair(bool left, uint32_t line, uint32_t k)
{
    uint64_t bits = mix64((uint64_t)left << 40 | (uint64_t)line << 20 | k);
    uint32_t signs_and_fractions = (uint32_t)bits & 0x807f807f, from, spread;
    switch (line % 4) {
    case 2: from = left ? 0 : 187, spread = left ? 1 : 8; break;
    case 3: from = 62, spread = 4; break;
    default: from = 122, spread = 8; break;
    }
    uint32_t low = from + (uint32_t)(bits >> 32) % spread;
    uint32_t high = from + (uint32_t)(bits >> 48) % spread;
    return signs_and_fractions | high << 23 | low << 7;
}
