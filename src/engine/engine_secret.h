/* engine_secret.h - a store's password, from where a list of processes does not show it. */
#ifndef ENGINE_ENGINE_SECRET_H
#define ENGINE_ENGINE_SECRET_H

#include "base/base.h"

enum { ENGINE_SECRET_BYTES = 512 };
#define ENGINE_SECRET_ENV "RADISH_REDIS_PASSWORD"

/* The file's bytes without a line's end behind them. RAD_E_IO in words when it cannot be read,
 * RAD_E_INVAL when it is empty, longer than a password may be, or of more than a line. The caller
 * wipes `out`. */
rad_status engine_secret_read(const char *path, char out[ENGINE_SECRET_BYTES], rad_error *err);

#endif
