/* amx_check.c - one proof per kernel and process, and the numbers it is made with. */
#include "base/amx_check.h"

#include "base/mix64.h"

bool amx_proved(amx_proof *p, const char **why)
{
    pthread_mutex_lock(&p->lock);
    if (!p->asked && p->permitted(&p->refusal)) {
        p->usable = p->agrees();
        if (!p->usable) p->refusal = p->differs;
    }
    p->asked = true;
    if (why) *why = p->refusal;
    bool usable = p->usable;
    pthread_mutex_unlock(&p->lock);
    return usable;
}

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
