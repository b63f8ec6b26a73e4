/* model_digest.c - see model_digest.h. */
#include "server/model_digest.h"

#include "base/base.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENDS = 1 << 20, PIECE = 4096, PIECES = 256, SHA256_BYTES = 32 };

/* What there is of [at, at + len). */
static bool add(int fd, uint64_t at, size_t len, EVP_MD_CTX *hash)
{
    unsigned char bytes[PIECE];
    while (len) {
        const ssize_t n = pread(fd, bytes, RAD_MIN(len, sizeof bytes), (off_t)at);
        if (n < 0) return false;
        if (!n) return true; /* the end */
        if (!EVP_DigestUpdate(hash, bytes, (size_t)n)) return false;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return true;
}

static bool gather(int fd, EVP_MD_CTX *hash)
{
    struct stat file;
    unsigned char length[8];
    if (fstat(fd, &file) != 0 || file.st_size <= 0) return false;
    const uint64_t size = (uint64_t)file.st_size;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(size >> (8 * i));
    bool done = EVP_DigestUpdate(hash, length, sizeof length) && add(fd, 0, ENDS, hash) &&
                add(fd, size - RAD_MIN(size, (uint64_t)ENDS), ENDS, hash);
    for (uint64_t i = 0; done && i < PIECES; i++)
        done = add(fd, size / PIECES * i, PIECE, hash);
    return done;
}

void model_digest(const char *path, char out[MODEL_DIGEST_BYTES])
{
    unsigned char digest[SHA256_BYTES] = {0}, whole[SHA256_BYTES];
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    const int fd = hash ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) && gather(fd, hash) &&
        EVP_DigestFinal_ex(hash, whole, NULL))
        memcpy(digest, whole, sizeof digest);
    if (fd >= 0) close(fd);
    EVP_MD_CTX_free(hash);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", digest[i]);
}
