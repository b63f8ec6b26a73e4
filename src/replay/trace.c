/* trace.c - reads a file whole (through zlib, which passes plain bytes on), picks the
 * reader by the first bytes, and hands out requests. */
#include "replay/trace_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* A file on its way into memory. */
typedef struct reading {
    const rad_env *env;
    const char *path;
    gzFile gz;
    uint64_t packed; /* bytes of the file; 0: it is a pipe */
    uint8_t *data;
    uint64_t cap, len;
} reading;

bool trace_grow(const rad_env *env, void **array, uint64_t count, uint64_t *cap, size_t size,
                uint64_t first)
{
    if (count < *cap) return true;
    uint64_t more = *cap ? *cap * 2 : first;
    void *grown = rad_alloc(env, rad_mul(more, size));
    if (!grown) return false;
    if (count) memcpy(grown, *array, count * size);
    rad_free(env, *array, *cap * size);
    *array = grown;
    *cap = more;
    return true;
}

static bool make_room(reading *r)
{
    uint64_t first = RAD_MAX(r->packed + 1, 65536u);
    return trace_grow(r->env, (void **)&r->data, r->len, &r->cap, 1, first);
}

/* A few kilobytes can unpack to a thousand times as much. */
static bool expands_too_far(const reading *r)
{
    if (gzdirect(r->gz) || r->len <= TRACE_FREE_BYTES) return false;
    return (r->len - TRACE_FREE_BYTES) / TRACE_EXPANSION > r->packed;
}

static rad_status read_bytes(reading *r, rad_error *err)
{
    for (;;) {
        if (!make_room(r))
            return rad_fail(err, RAD_E_NOMEM, "%s: no memory for more than %llu bytes of it",
                            r->path, (unsigned long long)r->len);
        int n = gzread(r->gz, r->data + r->len, (unsigned)RAD_MIN(r->cap - r->len, 1u << 24));
        int code;
        if (n < 0) return rad_fail(err, RAD_E_IO, "%s: %s", r->path, gzerror(r->gz, &code));
        if (n == 0) { /* also where a compressed file was cut: gzread gives what there is */
            (void)gzerror(r->gz, &code);
            if (code != Z_BUF_ERROR) return RAD_OK;
            return rad_fail(err, RAD_E_FORMAT, "%s: ends in the middle of its compressed data",
                            r->path);
        }
        r->len += (uint64_t)n;
        if (expands_too_far(r) && !r->packed)
            return rad_fail(err, RAD_E_LIMIT,
                            "%s: what comes compressed through a pipe may unpack to %d MiB; "
                            "unpack it first, or give the file",
                            r->path, TRACE_FREE_BYTES >> 20);
        if (expands_too_far(r))
            return rad_fail(err, RAD_E_LIMIT,
                            "%s: its %llu bytes unpack to more than %llu: more than %d MiB and %d "
                            "times what was packed is no trace",
                            r->path, (unsigned long long)r->packed, (unsigned long long)r->len,
                            TRACE_FREE_BYTES >> 20, TRACE_EXPANSION);
    }
}

static rad_status read_all(reading *r, rad_error *err)
{
    struct stat st;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return rad_fail(err, RAD_E_IO, "%s: %s", r->path, strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) r->packed = (uint64_t)st.st_size;
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

/* Fills `longest` and the scratch row. */
static rad_status finish(trace *t, rad_error *err)
{
    for (uint64_t i = 0; i < t->num_rows; i++) {
        uint64_t n = t->rows[i].num_elements;
        if (n > INT32_MAX)
            return rad_fail(err, RAD_E_LIMIT, "request %llu has %llu elements",
                            (unsigned long long)i, (unsigned long long)n);
        t->longest = RAD_MAX(t->longest, (uint32_t)n);
    }
    t->scratch = rad_alloc(&t->env, ((size_t)t->longest + 1) * sizeof *t->scratch);
    return t->scratch
               ? RAD_OK
               : rad_fail(err, RAD_E_NOMEM, "no memory for a request of %u elements", t->longest);
}

rad_status trace_load(const rad_env *env, const char *path, trace **out, rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    reading r = {.env = &full, .path = path};
    trace *t = rad_alloc(&full, sizeof *t);
    if (!t) return rad_fail(err, RAD_E_NOMEM, "no memory for a trace");
    t->env = full;
    rad_status status = read_all(&r, err);
    if (!status) {
        rad_error why = {0};
        bool rxtrace = r.len >= 8 && memcmp(r.data, "RXTRACE1", 8) == 0;
        status = rxtrace ? trace_parse_rxtrace(t, r.data, r.len, &why)
                         : trace_parse_mooncake(t, (const char *)r.data, r.len, &why);
        if (!status) status = finish(t, &why);
        if (status) rad_fail(err, status, "%s: %s", path, why.text);
    }
    rad_free(&full, r.data, r.cap);
    if (status)
        trace_free(t);
    else
        *out = t;
    return status;
}

void trace_free(trace *t)
{
    if (!t) return;
    rad_env env = t->env;
    rad_free(&env, t->elements, t->cap_elements * sizeof *t->elements);
    rad_free(&env, t->pieces, t->cap_pieces * sizeof *t->pieces);
    rad_free(&env, t->rows, t->cap_rows * sizeof *t->rows);
    if (t->scratch) rad_free(&env, t->scratch, ((size_t)t->longest + 1) * sizeof *t->scratch);
    rad_free(&env, t, sizeof *t);
}

const char *trace_format(const trace *t)
{
    return t->format;
}
uint64_t trace_num_requests(const trace *t)
{
    return t->num_rows;
}
uint64_t trace_capacity_tokens(const trace *t)
{
    return t->capacity_tokens;
}
uint32_t trace_tokens_per_element(const trace *t)
{
    return t->tokens_per_element;
}
uint32_t trace_longest(const trace *t)
{
    return t->longest;
}

void trace_get(trace *t, uint64_t i, trace_request *out)
{
    const trace_row *row = &t->rows[i];
    const trace_piece *piece = &t->pieces[row->first_piece];
    *out = (trace_request){.prompt_tokens = row->prompt_tokens, .timestamp_ms = row->timestamp_ms};
    if (row->num_pieces == 1) {
        out->elements = t->elements + piece->start;
        out->num_elements = piece->count;
        out->num_prompt = row->num_prompt_pieces ? piece->count : 0;
        return;
    }
    out->elements = t->scratch;
    for (uint32_t k = 0; k < row->num_pieces; k++) {
        memcpy(t->scratch + out->num_elements, t->elements + piece[k].start,
               piece[k].count * sizeof *t->scratch);
        out->num_elements += piece[k].count;
        if (k < row->num_prompt_pieces) out->num_prompt = out->num_elements;
    }
}
