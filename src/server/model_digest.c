/* model_digest.c - see model_digest.h. */
#include "server/model_digest.h"

#include "base/base.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENDS = 1 << 20, PIECE = 4096, PIECES = 256 };

/* What there is of [at, at + len), behind the bytes that are there. */
static bool add(int fd, uint64_t at, size_t len, unsigned char *bytes, size_t *count)
{
    while (len) {
        const ssize_t n = pread(fd, bytes + *count, len, (off_t)at);
        if (n < 0) return false;
        if (!n) return true; /* the end */
        *count += (size_t)n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

static bool gather(int fd, unsigned char *bytes, size_t *count)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || file.st_size <= 0) return false;
    const uint64_t size = (uint64_t)file.st_size;
    for (int i = 0; i < 8; i++)
        bytes[(*count)++] = (unsigned char)(size >> (8 * i));
    bool done = add(fd, 0, ENDS, bytes, count) &&
                add(fd, size - RAD_MIN(size, (uint64_t)ENDS), ENDS, bytes, count);
    for (uint64_t i = 0; done && i < PIECES; i++)
        done = add(fd, size / PIECES * i, PIECE, bytes, count);
    return done;
}

void model_digest(const char *path, char out[MODEL_DIGEST_BYTES])
{
    unsigned char digest[SHA256_DIGEST_LENGTH] = {0};
    unsigned char *bytes = malloc(8 + 2 * (size_t)ENDS + (size_t)PIECES * PIECE);
    const int fd = bytes ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    size_t count = 0;
    if (fd >= 0 && gather(fd, bytes, &count)) SHA256(bytes, count, digest);
    if (fd >= 0) close(fd);
    free(bytes);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", digest[i]);
}
