/* trace_rxtrace.c - the RXTRACE1 format: shared segments of token ids.
 *
 *     0   "RXTRACE1"  8  u64 seed  16 u32 segments  20 u32 requests
 *     24  u32 capacity in tokens   28 u32 vocabulary
 *     32  u64 tokens  40 u64 references
 *     48  u64 segment starts[segments + 1], i32 tokens[], requests of 6 u32
 *         (tenant, conversation, turn, first reference, references of the prompt, of
 *         all), u32 references[] (segment numbers)
 *
 * Little endian throughout. */
#include "replay/trace_private.h"

enum { HEADER = 48, REQUEST = 24 };

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t u64_at(const uint8_t *p)
{
    return u32_at(p) | (uint64_t)u32_at(p + 4) << 32;
}

rad_status trace_parse_rxtrace(trace *t, const uint8_t *bytes, uint64_t size, rad_error *err)
{
    if (size < HEADER) return rad_fail(err, RAD_E_FORMAT, "ends within its header");
    uint64_t segments = u32_at(bytes + 16), requests = u32_at(bytes + 20);
    uint64_t tokens = u64_at(bytes + 32), refs = u64_at(bytes + 40);
    /* Each count alone is far below 2^61 once it is below the file's size. */
    if (tokens > size / 4 || refs > size / 4 ||
        HEADER + 8 * (segments + 1) + 4 * tokens + REQUEST * requests + 4 * refs != size)
        return rad_fail(err, RAD_E_FORMAT,
                        "%llu bytes do not fit %llu segments, %llu tokens, %llu requests, "
                        "%llu references",
                        (unsigned long long)size, (unsigned long long)segments,
                        (unsigned long long)tokens, (unsigned long long)requests,
                        (unsigned long long)refs);
    const uint8_t *seg_off = bytes + HEADER;
    const uint8_t *tok = seg_off + 8 * (segments + 1);
    const uint8_t *req = tok + 4 * tokens;
    const uint8_t *ref = req + REQUEST * requests;

    t->format = "RXTRACE1";
    t->tokens_per_element = 1;
    t->capacity_tokens = u32_at(bytes + 24);
    t->num_elements = tokens;
    t->num_rows = requests;
    t->num_pieces = refs;
    t->cap_elements = tokens + 1;
    t->cap_rows = requests + 1;
    t->cap_pieces = refs + 1;
    t->elements = rad_alloc(&t->env, rad_mul(t->cap_elements, sizeof *t->elements));
    t->rows = rad_alloc(&t->env, rad_mul(t->cap_rows, sizeof *t->rows));
    t->pieces = rad_alloc(&t->env, rad_mul(t->cap_pieces, sizeof *t->pieces));
    if (!t->elements || !t->rows || !t->pieces)
        return rad_fail(err, RAD_E_NOMEM, "no memory for %llu tokens", (unsigned long long)tokens);

    for (uint64_t i = 0; i < tokens; i++) {
        uint32_t id = u32_at(tok + 4 * i);
        if (id > INT32_MAX)
            return rad_fail(err, RAD_E_FORMAT, "token %llu is negative", (unsigned long long)i);
        t->elements[i] = (rad_token)id;
    }
    for (uint64_t i = 0; i < refs; i++) {
        uint64_t s = u32_at(ref + 4 * i);
        if (s >= segments)
            return rad_fail(err, RAD_E_FORMAT, "reference %llu names segment %llu of %llu",
                            (unsigned long long)i, (unsigned long long)s,
                            (unsigned long long)segments);
        uint64_t from = u64_at(seg_off + 8 * s), to = u64_at(seg_off + 8 * s + 8);
        if (from > to || to > tokens || to - from > INT32_MAX)
            return rad_fail(err, RAD_E_FORMAT, "segment %llu is outside the tokens",
                            (unsigned long long)s);
        t->pieces[i] = (trace_piece){from, (uint32_t)(to - from)};
    }
    for (uint64_t i = 0; i < requests; i++) {
        const uint8_t *r = req + REQUEST * i;
        uint64_t first = u32_at(r + 12), prompt = u32_at(r + 16), all = u32_at(r + 20);
        if (prompt > all || first > refs || all > refs - first)
            return rad_fail(err, RAD_E_FORMAT, "request %llu is outside the references",
                            (unsigned long long)i);
        trace_row *row = &t->rows[i];
        *row = (trace_row){.first_piece = first, .num_pieces = (uint32_t)all};
        for (uint64_t k = 0; k < all; k++) {
            if (k == prompt) row->prompt_tokens = row->num_elements;
            row->num_elements += t->pieces[first + k].count;
            if (row->num_elements > INT32_MAX) break; /* refused by who asks for the longest */
        }
        if (prompt == all) row->prompt_tokens = row->num_elements;
        row->num_prompt = row->num_match = (uint32_t)RAD_MIN(row->prompt_tokens, INT32_MAX);
        row->output_tokens = row->num_elements - row->prompt_tokens;
    }
    return RAD_OK;
}
