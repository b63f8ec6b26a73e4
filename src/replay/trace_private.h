/* trace_private.h - what the readers fill in: requests as runs of pieces.
 *
 * RXTRACE1 shares segments between requests, so a request is a list of pieces of one big
 * element array, and so is a record's, whose pages have numbers in a row; a Mooncake request is a
 * single piece. */
#ifndef REPLAY_TRACE_PRIVATE_H
#define REPLAY_TRACE_PRIVATE_H

#include "base/base.h"
#include "replay/trace.h"
#include "replay/trace_bytes.h"
#include "trace/record_format.h"

typedef struct trace_piece {
    uint64_t start; /* in elements */
    uint32_t count;
} trace_piece;

typedef struct trace_row {
    uint64_t first_piece;
    uint32_t num_pieces;
    uint32_t num_prompt, num_match; /* elements, see trace_request */
    uint32_t number;
    uint64_t prompt_tokens, output_tokens;
    uint64_t timestamp_ms;
    uint64_t num_elements; /* of all its pieces */
} trace_row;

struct trace {
    rad_env env;
    const char *format;
    rad_token *elements;
    trace_piece *pieces;
    trace_row *rows;
    uint64_t num_elements, num_pieces, num_rows;
    uint64_t cap_elements, cap_pieces, cap_rows; /* what there is memory for */
    uint64_t capacity_tokens;
    trace_prices prices;
    uint32_t tokens_per_element;
    uint32_t longest;
};

/* Makes room for one more in a growing array, which has `first` places at first. False: no memory,
 * and the array is as it was. */
bool trace_grow(const rad_env *env, void **array, uint64_t count, uint64_t *cap, size_t size,
                uint64_t first);

/* Each parses bytes[0..size) into an empty trace. */
rad_status trace_parse_rxtrace(trace *t, const uint8_t *bytes, uint64_t size, rad_error *err);
rad_status trace_parse_record(trace *t, const uint8_t *bytes, uint64_t size, rad_error *err);
rad_status trace_parse_mooncake(trace *t, const char *bytes, uint64_t size, rad_error *err);

#endif
