/* trace_mooncake.c - Mooncake's JSON lines: timestamp, input_length, output_length,
 * hash_ids. A hash id names a 512-token block and all before it, so the ids of a request
 * are a path in a prefix tree and serve as key elements as they are. */
#include "replay/trace_private.h"

#include <jansson.h>

enum { BLOCK_TOKENS = 512, FIRST = 4096 /* places of an array */ };

static bool get_count(const json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static rad_status add_line(trace *t, const json_t *o, uint64_t line, rad_error *err)
{
    uint64_t input, output = 0, stamp = 0;
    const json_t *ids = json_object_get(o, "hash_ids");
    if (!json_is_array(ids) || !get_count(o, "input_length", &input))
        return rad_fail(err, RAD_E_FORMAT, "line %llu: no input_length or hash_ids",
                        (unsigned long long)line);
    get_count(o, "timestamp", &stamp);
    get_count(o, "output_length", &output);
    size_t n = json_array_size(ids);
    if (input > (uint64_t)n * BLOCK_TOKENS)
        return rad_fail(err, RAD_E_FORMAT, "line %llu: %llu tokens do not fit %zu blocks",
                        (unsigned long long)line, (unsigned long long)input, n);
    uint64_t start = t->num_elements;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return rad_fail(err, RAD_E_FORMAT, "line %llu: hash_ids[%zu] is no id",
                            (unsigned long long)line, i);
        if (!trace_grow(&t->env, (void **)&t->elements, t->num_elements, &t->cap_elements,
                        sizeof *t->elements, FIRST))
            return rad_fail(err, RAD_E_NOMEM, "no memory for the blocks");
        t->elements[t->num_elements++] = (rad_token)json_integer_value(id);
    }
    if (!trace_grow(&t->env, (void **)&t->pieces, t->num_pieces, &t->cap_pieces, sizeof *t->pieces,
                    FIRST) ||
        !trace_grow(&t->env, (void **)&t->rows, t->num_rows, &t->cap_rows, sizeof *t->rows, FIRST))
        return rad_fail(err, RAD_E_NOMEM, "no memory for the requests");
    t->rows[t->num_rows++] = (trace_row){.first_piece = t->num_pieces,
                                         .num_pieces = 1,
                                         .num_prompt = (uint32_t)n,
                                         .num_match = (uint32_t)n,
                                         .prompt_tokens = input,
                                         .output_tokens = output,
                                         .timestamp_ms = stamp,
                                         .num_elements = n};
    t->pieces[t->num_pieces++] = (trace_piece){start, (uint32_t)n};
    return RAD_OK;
}

rad_status trace_parse_mooncake(trace *t, const char *bytes, uint64_t size, rad_error *err)
{
    t->format = "mooncake";
    t->tokens_per_element = BLOCK_TOKENS;
    uint64_t line = 0;
    for (uint64_t at = 0; at < size; line++) {
        const char *from = bytes + at, *end = memchr(from, '\n', size - at);
        uint64_t len = end ? (uint64_t)(end - from) : size - at;
        at += len + 1;
        if (len == 0 || (len == 1 && *from == '\r')) continue;
        if (len > TRACE_LINE_BYTES)
            return rad_fail(err, RAD_E_LIMIT, "line %llu has %llu bytes, more than %d",
                            (unsigned long long)line + 1, (unsigned long long)len,
                            TRACE_LINE_BYTES);
        json_error_t why;
        json_t *o = json_loadb(from, len, JSON_REJECT_DUPLICATES, &why);
        if (!json_is_object(o)) {
            json_decref(o);
            return rad_fail(
                err, RAD_E_FORMAT,
                "line %llu is no Mooncake JSON line, and the file no RADREC2 or RXTRACE1",
                (unsigned long long)line + 1);
        }
        rad_status status = add_line(t, o, line + 1, err);
        json_decref(o);
        if (status) return status;
    }
    if (!t->num_rows) return rad_fail(err, RAD_E_FORMAT, "holds no request");
    return RAD_OK;
}
