/* sampling_params.c - what a request may ask of the sampler, in words when it may not. */
#include "base/base.h"
#include "model/sampler.h"

#include <math.h>

static bool within(float x, float least, float most)
{
    return x >= least && x <= most; /* false for NaN */
}

rad_status sampling_params_check(const sampling_params *p, rad_error *err)
{
    if (!(p->temperature >= 0) || isinf(p->temperature))
        return rad_fail(err, RAD_E_INVAL, "temperature must be a number >= 0, got %g",
                        (double)p->temperature);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return rad_fail(err, RAD_E_INVAL, "top_p must be in (0, 1], got %g", (double)p->top_p);
    if (!within(p->min_p, 0, 1))
        return rad_fail(err, RAD_E_INVAL, "min_p must be in [0, 1], got %g", (double)p->min_p);
    if (!within(p->repetition_penalty, 0, 2))
        return rad_fail(err, RAD_E_INVAL, "repetition_penalty must be in (0, 2], got %g",
                        (double)p->repetition_penalty);
    if (!within(p->presence_penalty, -2, 2))
        return rad_fail(err, RAD_E_INVAL, "presence_penalty must be in [-2, 2], got %g",
                        (double)p->presence_penalty);
    if (!within(p->frequency_penalty, -2, 2))
        return rad_fail(err, RAD_E_INVAL, "frequency_penalty must be in [-2, 2], got %g",
                        (double)p->frequency_penalty);
    for (uint32_t i = 0; i < p->num_bias; i++)
        if (!within(p->bias[i].bias, -100, 100))
            return rad_fail(err, RAD_E_INVAL,
                            "logit_bias of token %d must be in [-100, 100], got %g", p->bias[i].id,
                            (double)p->bias[i].bias);
    return RAD_OK;
}
