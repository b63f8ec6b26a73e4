/* trace_bytes.c - see the header. Through zlib, which passes plain bytes on. */
#include "replay/trace_bytes.h"

#include "replay/trace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* A file on its way into memory. */
typedef struct reading {
    const char *path;
    gzFile gz;
    uint64_t packed; /* bytes of the file; 0: it is a pipe */
    trace_bytes *out;
} reading;

static bool make_room(reading *r)
{
    trace_bytes *b = r->out;
    uint64_t first = RAD_MAX(r->packed + 1, 65536u);
    return trace_grow(&b->env, (void **)&b->data, b->len, &b->cap, 1, first);
}

/* A few kilobytes can unpack to a thousand times as much. */
static bool expands_too_far(const reading *r)
{
    if (gzdirect(r->gz) || r->out->len <= TRACE_FREE_BYTES) return false;
    return (r->out->len - TRACE_FREE_BYTES) / TRACE_EXPANSION > r->packed;
}

static rad_status read_bytes(reading *r, rad_error *err)
{
    trace_bytes *b = r->out;
    for (;;) {
        if (!make_room(r))
            return rad_fail(err, RAD_E_NOMEM, "%s: no memory for more than %llu bytes of it",
                            r->path, (unsigned long long)b->len);
        int n = gzread(r->gz, b->data + b->len, (unsigned)RAD_MIN(b->cap - b->len, 1u << 24));
        int code;
        if (n < 0) return rad_fail(err, RAD_E_IO, "%s: %s", r->path, gzerror(r->gz, &code));
        if (n == 0) { /* also where a compressed file was cut: gzread gives what there is */
            (void)gzerror(r->gz, &code);
            if (code != Z_BUF_ERROR) return RAD_OK;
            return rad_fail(err, RAD_E_FORMAT, "%s: ends in the middle of its compressed data",
                            r->path);
        }
        b->len += (uint64_t)n;
        if (expands_too_far(r) && !r->packed)
            return rad_fail(err, RAD_E_LIMIT,
                            "%s: what comes compressed through a pipe may unpack to %d MiB; "
                            "unpack it first, or give the file",
                            r->path, TRACE_FREE_BYTES >> 20);
        if (expands_too_far(r))
            return rad_fail(err, RAD_E_LIMIT,
                            "%s: its %llu bytes unpack to more than %llu: more than %d MiB and %d "
                            "times what was packed is no trace",
                            r->path, (unsigned long long)r->packed, (unsigned long long)b->len,
                            TRACE_FREE_BYTES >> 20, TRACE_EXPANSION);
    }
}

static rad_status read_all(reading *r, rad_error *err)
{
    struct stat st;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return rad_fail(err, RAD_E_IO, "%s: %s", r->path, strerror(errno));
    if (fstat(fd, &st) == 0) {
        if (S_ISREG(st.st_mode)) r->packed = (uint64_t)st.st_size;
        if (S_ISDIR(st.st_mode)) { /* zlib would call it <fd:3> */
            close(fd);
            return rad_fail(err, RAD_E_IO, "%s: %s", r->path, strerror(EISDIR));
        }
    }
    r->gz = gzdopen(fd, "rb");
    if (!r->gz) {
        close(fd);
        return rad_fail(err, RAD_E_NOMEM, "%s: no memory", r->path);
    }
    gzbuffer(r->gz, 1 << 18);
    rad_status status = read_bytes(r, err);
    gzclose(r->gz);
    return status;
}

rad_status trace_bytes_read(const rad_env *env, const char *path, trace_bytes *out, rad_error *err)
{
    *out = (trace_bytes){.env = rad_env_or_default(env)};
    reading r = {.path = path, .out = out};
    rad_status status = read_all(&r, err);
    if (status != RAD_OK) trace_bytes_free(out);
    return status;
}

void trace_bytes_free(trace_bytes *b)
{
    if (b->data) rad_free(&b->env, b->data, b->cap);
    *b = (trace_bytes){0};
}
