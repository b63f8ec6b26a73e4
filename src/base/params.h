/* params.h - reading a caller's params struct of another age.
 *
 * Params begin with struct_size and only grow at their end. So an old program hands
 * us fewer bytes than we know (the rest is zero, the default), and a new program more
 * (which we can obey only as long as they are zero). */
#ifndef BASE_PARAMS_H
#define BASE_PARAMS_H

#include "base/base.h"

/* Fills dst[0..known) from `src`. RAD_E_INVAL with words that name `what` when src is
 * NULL, its struct_size is too small to be one, or it asks for a field we lack. */
static inline rad_status rad_params_read(void *dst, size_t known, const void *src, const char *what,
                                         rad_error *err)
{
    size_t given;
    if (!src) return rad_fail(err, RAD_E_INVAL, "%s: params are missing", what);
    memcpy(&given, src, sizeof given);
    if (given < sizeof given || given > 65536)
        return rad_fail(err, RAD_E_INVAL, "%s: struct_size %zu is not a params struct", what,
                        given);
    for (size_t i = known; i < given; i++)
        if (((const unsigned char *)src)[i])
            return rad_fail(err, RAD_E_INVAL,
                            "%s: params set a field at byte %zu that this library does not know",
                            what, i);
    memset(dst, 0, known);
    memcpy(dst, src, RAD_MIN(known, given));
    return RAD_OK;
}

#endif
