/* engine_secret.c - see the header. */
#include "engine/engine_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

rad_status engine_secret_read(const char *path, char out[ENGINE_SECRET_BYTES], rad_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && len < ENGINE_SECRET_BYTES) {
        n = read(fd, out + len, ENGINE_SECRET_BYTES - len);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            len += (size_t)n;
    }
    int why = errno;
    if (fd >= 0) close(fd);
    if (n < 0) return rad_fail(err, RAD_E_IO, "the password file %.200s: %s", path, strerror(why));
    if (len && len < ENGINE_SECRET_BYTES && out[len - 1] == '\n') len--;
    if (len && len < ENGINE_SECRET_BYTES && out[len - 1] == '\r') len--;
    if (!len || len >= ENGINE_SECRET_BYTES || memchr(out, '\n', len) || memchr(out, 0, len))
        return rad_fail(err, RAD_E_INVAL,
                        "the password file %.200s must hold one line of 1 to %d bytes", path,
                        ENGINE_SECRET_BYTES - 1);
    out[len] = 0;
    return RAD_OK;
}
