/* rope.h - the angles by which positions turn, stretched contexts included.
 *
 * What a file asks for ends up in two things that are constant for a model: one angle per
 * position and rotation, and one factor for all that is rotated. So a key in the cache is
 * right for every later request, however long. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include "model/config.h"

/* freqs[i], i < rope_dim / 2: radians per position. divisors: [rope_dim / 2] or NULL. */
void rope_freqs(double *freqs, float base, uint32_t rope_dim, const rope_scaling *scaling,
                const float *divisors);

/* RAD_E_FORMAT: one of them is no number > 0, which would turn all that follows into NaN. */
rad_status rope_divisors_check(const rope_scaling *scaling, const float *divisors,
                               uint32_t rope_dim, rad_error *err);

/* The angles of one position, shared by all heads and layers: table holds rope_dim
 * cosines and rope_dim sines in the order in which `kind` wants them, all times
 * `magnitude`. Computed in double, so late positions are as exact as early ones. */
void rope_fill(rope_kind kind, float *table, uint32_t position, const double *freqs,
               uint32_t rope_dim, float magnitude);

/* What q at a position is multiplied by, where the model has a q_temperature: it grows with the
 * logarithm of the position, in steps. */
float rope_q_factor(const model_config *c, uint32_t position);

#endif
