/* trace.c - reads a file whole (through zlib, which passes plain bytes on), picks the
 * reader by the first bytes, and hands out requests. */
#include "replay/trace_private.h"

#include "base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

/* A trace of more is refused: it would not fit next to the simulation. */
static const uint64_t MOST_BYTES = (uint64_t)8 << 30;

static rad_status read_all(const char *path, uint8_t **bytes, uint64_t *size, rad_error *err)
{
    errno = 0;
    gzFile f = gzopen(path, "rb");
    if (!f) return rad_fail(err, RAD_E_IO, "%s: %s", path, errno ? strerror(errno) : "no memory");
    gzbuffer(f, 1 << 18);
    uint64_t cap = 0, len = 0;
    uint8_t *data = NULL;
    rad_status status = RAD_OK;
    for (;;) {
        if (len == cap) {
            uint64_t more = cap ? cap * 2 : 1 << 20;
            uint8_t *grown = more > MOST_BYTES ? NULL : realloc(data, more);
            if (!grown) {
                status = rad_fail(err, RAD_E_LIMIT, "%s: larger than %llu bytes", path,
                                  (unsigned long long)cap);
                break;
            }
            data = grown;
            cap = more;
        }
        int n = gzread(f, data + len, (unsigned)RAD_MIN(cap - len, 1u << 30));
        if (n < 0) {
            int code;
            status = rad_fail(err, RAD_E_IO, "%s: %s", path, gzerror(f, &code));
            break;
        }
        if (n == 0) break;
        len += (uint64_t)n;
    }
    gzclose(f);
    if (status) {
        free(data);
        return status;
    }
    *bytes = data;
    *size = len;
    return RAD_OK;
}

/* Fills `longest` and the scratch row. */
static rad_status finish(trace *t, rad_error *err)
{
    for (uint64_t i = 0; i < t->num_rows; i++) {
        uint64_t n = 0;
        for (uint32_t k = 0; k < t->rows[i].num_pieces; k++)
            n += t->pieces[t->rows[i].first_piece + k].count;
        if (n > INT32_MAX)
            return rad_fail(err, RAD_E_LIMIT, "request %llu has %llu elements",
                            (unsigned long long)i, (unsigned long long)n);
        t->longest = RAD_MAX(t->longest, (uint32_t)n);
    }
    t->scratch = malloc((t->longest + 1u) * sizeof *t->scratch);
    return t->scratch ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "no memory for a request");
}

rad_status trace_load(const char *path, trace **out, rad_error *err)
{
    uint8_t *bytes = NULL;
    uint64_t size = 0;
    *out = NULL;
    rad_status status = read_all(path, &bytes, &size, err);
    if (status) return status;
    trace *t = calloc(1, sizeof *t);
    if (!t) {
        free(bytes);
        return rad_fail(err, RAD_E_NOMEM, "no memory for a trace");
    }
    rad_error why = {0};
    if (size >= 8 && memcmp(bytes, "RXTRACE1", 8) == 0)
        status = trace_parse_rxtrace(t, bytes, size, &why);
    else
        status = trace_parse_mooncake(t, (const char *)bytes, size, &why);
    free(bytes);
    if (!status) status = finish(t, &why);
    if (status) {
        trace_free(t);
        return rad_fail(err, status, "%s: %s", path, why.text);
    }
    *out = t;
    return RAD_OK;
}

void trace_free(trace *t)
{
    if (!t) return;
    free(t->elements);
    free(t->pieces);
    free(t->rows);
    free(t->scratch);
    free(t);
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
