/* gguf_source.c - digests and compares the times of an open file; see the header.
 *
 * Times that count:
 *
 *     size, mtime   differ: the bytes differ, or may
 *     ctime         moves on its own when the file's name goes or is taken by another file, which
 *                   changes no byte; but also when somebody wrote and then set mtime back
 *
 * Invariant: `digest` is of bytes that were read when size and mtime were those of gguf_open. */
#define _GNU_SOURCE
#define XXH_INLINE_ALL
#include "gguf/gguf_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "gguf/gguf_file.h"

/* Kernels stamp files by a clock that moves every 1 to 10 ms; file systems keep 2 s at worst. */
enum { TICK_SECONDS = 2 };

typedef struct source_part {
    int fd;
    gguf_stamp opened;
} source_part;

struct gguf_source {
    rad_env env;
    source_part *parts; /* [num_parts] files, in their order */
    uint32_t num_parts;
    bool fresh; /* one was written just before it was opened */
    bool digested;
    char digest[GGUF_DIGEST_BYTES];
};

static bool same_contents(const gguf_stamp *a, const gguf_stamp *b)
{
    return a->bytes == b->bytes && a->mtime.tv_sec == b->mtime.tv_sec &&
           a->mtime.tv_nsec == b->mtime.tv_nsec;
}

static bool same_inode(const gguf_stamp *a, const gguf_stamp *b)
{
    return a->ctime.tv_sec == b->ctime.tv_sec && a->ctime.tv_nsec == b->ctime.tv_nsec;
}

gguf_stamp gguf_stamp_of(const struct stat *st)
{
    return (gguf_stamp){.bytes = (uint64_t)st->st_size,
                        .links = (uint64_t)st->st_nlink,
                        .mtime = st->st_mtim,
                        .ctime = st->st_ctim};
}

static bool digest_part(XXH3_state_t *state, int fd)
{
    char chunk[1 << 16];
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, chunk, sizeof chunk, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        if (n == 0) return true;
        XXH3_128bits_update(state, chunk, (size_t)n);
        at += n;
    }
}

/* Of the bytes of all parts; of several, each behind its length: what moves from the end of one to
 * the beginning of the next makes another model. */
static bool digest_files(const gguf_source *s, char out[GGUF_DIGEST_BYTES])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (uint32_t i = 0; i < s->num_parts; i++) {
        uint8_t length[8];
        for (int b = 0; b < 8; b++)
            length[b] = (uint8_t)(s->parts[i].opened.bytes >> 8 * b);
        if (s->num_parts > 1) XXH3_128bits_update(&state, length, sizeof length);
        if (!digest_part(&state, s->parts[i].fd)) return false;
    }
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    snprintf(out, GGUF_DIGEST_BYTES, "xxh3-128:%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
    return true;
}

static rad_status cannot_read(rad_error *err)
{
    return rad_fail(err, RAD_E_IO, "the model file cannot be read: %s", strerror(errno));
}

static rad_status changed(rad_error *err)
{
    return rad_fail(err, RAD_E_IO,
                    "the model file has been changed since it was opened to be loaded, so nothing "
                    "can be filed under its bytes; start again");
}

/* False with errno where the file's descriptor cannot be had. */
static bool take_part(gguf_source *s, uint32_t i, const gguf_file *file)
{
    struct timespec now;
    source_part *p = &s->parts[i];
    p->opened = file->stamp;
    p->fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    clock_gettime(CLOCK_REALTIME, &now);
    s->fresh = s->fresh || now.tv_sec - p->opened.mtime.tv_sec <= TICK_SECONDS;
    return p->fd >= 0;
}

rad_status gguf_source_create(const rad_env *env, const gguf_file *file, bool digest_now,
                              gguf_source **out, rad_error *err)
{
    *out = NULL;
    if (!file->mapped) return rad_fail(err, RAD_E_INVAL, "gguf: bytes in memory are no file");
    gguf_source *s = rad_alloc(env, sizeof *s);
    if (!s) return rad_fail(err, RAD_E_NOMEM, "gguf: no memory");
    s->env = *env;
    s->num_parts = gguf_num_parts(file);
    s->parts = rad_alloc(env, s->num_parts * sizeof *s->parts);
    bool read = true;
    for (uint32_t i = 0; s->parts && i < s->num_parts; i++)
        s->parts[i].fd = -1;
    for (uint32_t i = 0; s->parts && i < s->num_parts && read; i++)
        read = take_part(s, i, i ? file->others[i - 1] : file);
    s->digested = s->parts && read && (digest_now || s->fresh);
    if (s->digested) read = digest_files(s, s->digest);
    rad_status status = RAD_OK;
    if (!read) status = cannot_read(err);
    if (!s->parts) status = rad_fail(err, RAD_E_NOMEM, "gguf: no memory");
    if (status) {
        gguf_source_destroy(s);
        return status;
    }
    *out = s;
    return RAD_OK;
}

void gguf_source_destroy(gguf_source *s)
{
    if (!s) return;
    for (uint32_t i = 0; s->parts && i < s->num_parts; i++)
        if (s->parts[i].fd >= 0) close(s->parts[i].fd);
    rad_env env = s->env;
    rad_free(&env, s->parts, s->num_parts * sizeof *s->parts);
    rad_free(&env, s, sizeof *s);
}

/* What a part's times tell: that it is as it was, that it is not, or neither (*read_again). */
static rad_status check_part(const gguf_source *s, const source_part *p, bool *read_again,
                             rad_error *err)
{
    struct stat st;
    if (fstat(p->fd, &st)) return cannot_read(err);
    gguf_stamp now = gguf_stamp_of(&st);
    if (!same_contents(&now, &p->opened)) return changed(err);
    if (same_inode(&now, &p->opened) && !s->fresh) return RAD_OK;
    *read_again = *read_again || s->digested;
    /* Undigested, only a name that went explains the ctime: there is nothing to compare with. */
    return s->digested || now.links != p->opened.links ? RAD_OK : changed(err);
}

rad_status gguf_source_check(gguf_source *s, rad_error *err)
{
    char again[GGUF_DIGEST_BYTES];
    bool read_again = false;
    for (uint32_t i = 0; i < s->num_parts; i++) {
        rad_status status = check_part(s, &s->parts[i], &read_again, err);
        if (status) return status;
    }
    if (!read_again) return RAD_OK;
    if (!digest_files(s, again)) return cannot_read(err);
    return strcmp(again, s->digest) == 0 ? RAD_OK : changed(err);
}

rad_status gguf_source_digest(gguf_source *s, const char **digest, rad_error *err)
{
    *digest = s->digest;
    if (s->digested) return RAD_OK;
    char fresh[GGUF_DIGEST_BYTES];
    if (!digest_files(s, fresh)) return cannot_read(err);
    rad_status status = gguf_source_check(s, err); /* after reading: what was read is what it was */
    if (status) return status;
    memcpy(s->digest, fresh, sizeof fresh);
    s->digested = true;
    return RAD_OK;
}
