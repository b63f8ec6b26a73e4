/* py_random.h - the random numbers of Python's `random.Random(n)`, number for number.
 *
 * The workload suite is defined by a Python program that draws its lengths from that
 * generator; with the same draws our suite has the same lengths. MT19937 (Matsumoto and
 * Nishimura, 1998), seeded through its init_by_array; the ways from 32 bits to floats and
 * ranges are those that Python documents. */
#ifndef WORKLOAD_PY_RANDOM_H
#define WORKLOAD_PY_RANDOM_H

#include <stdint.h>

typedef struct py_random {
    uint32_t state[624];
    uint32_t next;
} py_random;

void py_random_seed(py_random *r, uint32_t seed);

double py_random_random(py_random *r);                                 /* [0, 1) */
double py_random_uniform(py_random *r, double low, double high);       /* random.uniform */
uint32_t py_random_randint(py_random *r, uint32_t low, uint32_t high); /* both included */
void py_random_shuffle(py_random *r, uint32_t *items, uint32_t count);

/* random.choices(range(count), weights)[0] */
uint32_t py_random_choice(py_random *r, const double *weights, uint32_t count);

#endif
