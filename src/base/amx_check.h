/* amx_check.h - what the kernels for AMX have in common that prove themselves at start.
 *
 * Few of the machines that this is built on have AMX. So before a process relies on a
 * kernel, the kernel's `agrees` multiplies something small by the instructions and in C.
 * One different bit, and the instructions are not used. */
#ifndef BASE_AMX_CHECK_H
#define BASE_AMX_CHECK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* One kernel's proof: a static variable of its file. */
typedef struct amx_proof {
    bool (*permitted)(const char **why); /* as amx_permitted has it */
    bool (*agrees)(void);
    const char *differs; /* what `why` says if it does not */
    pthread_mutex_t lock;
    bool asked, usable;
    const char *refusal;
} amx_proof;

/* Whether the instructions may be used and have been seen to compute what they should;
 * found out the first time. `why`, unless NULL, gets NULL or, where the CPU has AMX and
 * yet it is no, a reason in words that lives for ever. Any thread. */
bool amx_proved(amx_proof *p, const char **why);

/* Pair of bf16 number `k` of a row (`left`) or a column. Lines come in four kinds: two
 * ordinary ones, where a chain's order shows in the last bit; denormals against large
 * numbers; and numbers whose products lie around the smallest normal one. */
uint32_t amx_check_pair(bool left, uint32_t line, uint32_t k);

#endif
