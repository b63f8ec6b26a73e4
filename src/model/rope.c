/* rope.c - see rope.h.
 *
 * A context that was stretched by `factor` s turns more slowly. Linear scaling slows all
 * rotations by s. YaRN leaves the fast ones alone, which tell neighbours apart, and slows
 * those that did not complete a turn within the original context; between the two it
 * interpolates:
 *
 *     rotation i      0 ........ low ........ high ........ rope_dim / 2
 *     turns           > beta_fast   between    < beta_slow  in original_context
 *     divided by      1             ...        s                                    */
#include "model/rope.h"
#include "base/base.h"

#include <math.h>

/* The rotation (a real number) that turns `turns` times within the original context. */
static double rotation_of(const rope_scaling *s, double turns, double base, uint32_t rope_dim)
{
    const double two_pi = 6.283185307179586;
    return rope_dim * log(s->original_context / (turns * two_pi)) / (2 * log(base));
}

/* 1: not slowed, 0: slowed by the factor. */
static double kept(const rope_scaling *s, double low, double high, uint32_t i)
{
    double ramp = (i - low) / RAD_MAX(high - low, 0.001);
    return (1 - RAD_MIN(RAD_MAX(ramp, 0.0), 1.0)) * (double)s->ext_factor;
}

void rope_freqs(double *freqs, float base, uint32_t rope_dim, const rope_scaling *s,
                const float *divisors)
{
    double low = 0, high = 0;
    if (s->yarn) {
        low = RAD_MAX(0.0, floor(rotation_of(s, (double)s->beta_fast, (double)base, rope_dim)));
        high = ceil(rotation_of(s, (double)s->beta_slow, (double)base, rope_dim));
        high = RAD_MIN(high, rope_dim - 1.0);
    }
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        double plain = pow((double)base, -2.0 * i / rope_dim);
        if (divisors) plain /= (double)divisors[i];
        double share = s->yarn ? kept(s, low, high, i) : 0;
        freqs[i] = plain * (share + (1 - share) / (double)s->factor);
    }
}

rad_status rope_divisors_check(const rope_scaling *s, const float *divisors, uint32_t rope_dim,
                               rad_error *err)
{
    for (uint32_t i = 0; i < rope_dim / 2; i++)
        if (!(divisors[i] > 0) || isinf(divisors[i]))
            return rad_fail(err, RAD_E_FORMAT, "model: %s[%u] is %g, expected a number > 0",
                            s->divisors, i, (double)divisors[i]);
    return RAD_OK;
}

void rope_fill(rope_kind kind, float *table, uint32_t position, const double *freqs,
               uint32_t rope_dim, float magnitude)
{
    float *cosine = table, *sine = table + rope_dim;
    double size = (double)magnitude;
    for (uint32_t i = 0; i < rope_dim / 2; i++) {
        double angle = position * freqs[i];
        float c = (float)(size * cos(angle)), s = (float)(size * sin(angle));
        if (kind == ROPE_NEOX) {
            cosine[i] = cosine[i + rope_dim / 2] = c;
            sine[i] = sine[i + rope_dim / 2] = s;
        } else {
            cosine[2 * i] = cosine[2 * i + 1] = c;
            sine[2 * i] = -s;
            sine[2 * i + 1] = s;
        }
    }
}

float rope_q_factor(const model_config *c, uint32_t position)
{
    const double far = floor((double)position / c->q_period);
    return (float)(1 + (double)c->q_temperature * log(1 + far));
}
