/* trace.c - picks the reader by the first bytes, and hands out requests. */
#include "replay/trace_private.h"

#include "trace/record_read.h"

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

/* Fills `longest`. */
static rad_status finish(trace *t, rad_error *err)
{
    for (uint64_t i = 0; i < t->num_rows; i++) {
        uint64_t n = t->rows[i].num_elements;
        if (n > INT32_MAX)
            return rad_fail(err, RAD_E_LIMIT, "request %llu has %llu elements",
                            (unsigned long long)i, (unsigned long long)n);
        t->longest = RAD_MAX(t->longest, (uint32_t)n);
    }
    return RAD_OK;
}

bool trace_is_record(const void *bytes, uint64_t size)
{
    return record_is(bytes, size);
}

rad_status trace_parse(const rad_env *env, const void *bytes, uint64_t size, trace **out,
                       rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    trace *t = rad_alloc(&full, sizeof *t);
    if (!t) return rad_fail(err, RAD_E_NOMEM, "no memory for a trace");
    t->env = full;
    rad_status status = trace_is_record(bytes, size) ? trace_parse_record(t, bytes, size, err)
                        : size >= 8 && memcmp(bytes, "RXTRACE1", 8) == 0
                            ? trace_parse_rxtrace(t, bytes, size, err)
                            : trace_parse_mooncake(t, bytes, size, err);
    if (!status) status = finish(t, err);
    if (status)
        trace_free(t);
    else
        *out = t;
    return status;
}

rad_status trace_load(const rad_env *env, const char *path, trace **out, rad_error *err)
{
    trace_bytes b;
    rad_error why = {0};
    *out = NULL;
    rad_status status = trace_bytes_read(env, path, &b, err);
    if (status != RAD_OK) return status;
    status = trace_parse(env, b.data, b.len, out, &why);
    if (status != RAD_OK) rad_fail(err, status, "%s: %s", path, why.text);
    trace_bytes_free(&b);
    return status;
}

void trace_free(trace *t)
{
    if (!t) return;
    rad_env env = t->env;
    rad_free(&env, t->elements, t->cap_elements * sizeof *t->elements);
    rad_free(&env, t->pieces, t->cap_pieces * sizeof *t->pieces);
    rad_free(&env, t->rows, t->cap_rows * sizeof *t->rows);
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

void trace_get(const trace *t, uint64_t i, rad_token *scratch, trace_request *out)
{
    const trace_row *row = &t->rows[i];
    const trace_piece *piece = &t->pieces[row->first_piece];
    *out = (trace_request){.num_prompt = row->num_prompt,
                           .num_match = row->num_match,
                           .number = row->number,
                           .prompt_tokens = row->prompt_tokens,
                           .output_tokens = row->output_tokens,
                           .timestamp_ms = row->timestamp_ms,
                           .num_elements = (uint32_t)row->num_elements,
                           .elements = scratch};
    if (!scratch) return;
    if (row->num_pieces == 1) {
        out->elements = t->elements + piece->start;
        return;
    }
    for (uint32_t k = 0; k < row->num_pieces; k++) {
        memcpy(scratch, t->elements + piece[k].start, piece[k].count * sizeof *scratch);
        scratch += piece[k].count;
    }
}

trace_prices trace_get_prices(const trace *t)
{
    return t->prices;
}

bool trace_has_times(const trace *t)
{
    return t->num_rows && t->rows[t->num_rows - 1].timestamp_ms;
}
