/* random_id.c - names that nobody can guess: 128 bits of the kernel's randomness.
 *
 * A client that could tell the next answer's name from its own could look for it, or abort it,
 * through whatever takes a name. */
#include "server/random_id.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

void random_id(char id[RANDOM_ID_BYTES])
{
    uint64_t word[2] = {0};
    /* So few bytes come whole or not at all, and not at all only before the machine is up. */
    while (getrandom(word, sizeof word, 0) != sizeof word)
        ;
    snprintf(id, RANDOM_ID_BYTES, "%016llx%016llx", (unsigned long long)word[0],
             (unsigned long long)word[1]);
}
