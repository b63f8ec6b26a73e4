/* trace.h - request traces: what was asked, in which order.
 *
 * A trace is a list of requests; a request is a sequence of key elements of which the
 * first num_prompt are the prompt and the rest what was generated. What an element is
 * depends on the format:
 *
 *     RXTRACE1   a token id; one element stands for one token
 *     Mooncake   JSON lines with hash_ids; a hash id names a block of 512 tokens and all
 *                before it, so one element stands for 512 tokens (the last one for fewer)
 *     RADREC2    what `radish serve --record` writes (trace/record_format.h); an element is a page
 *                of the server's, of a request that it admitted; what is no whole page is none
 *
 * Files are not trusted: counts and offsets are checked before they are used. Plain or
 * gzip-compressed, found out by looking at the bytes; what is compressed may expand to
 * TRACE_EXPANSION times its size (of a pipe: none) and TRACE_FREE_BYTES more, a line has at most
 * TRACE_LINE_BYTES. A trace is held in memory whole, all of which comes from the env (but a line's
 * JSON), so that the env may bound it (trace_budget.h); it does not change after load. */
#ifndef REPLAY_TRACE_H
#define REPLAY_TRACE_H

#include <radish/env.h>
#include <radish/types.h>
#include <stdbool.h>

enum {
    TRACE_EXPANSION = 200, /* real traces: 3 to 20 */
    TRACE_FREE_BYTES = 64 << 20,
    TRACE_LINE_BYTES = 1 << 20 /* 100,000 blocks: prompts of 50 million tokens */
};

typedef struct trace trace;

typedef struct trace_prices { /* seconds, as a record's server has measured them; 0: not known */
    double prompt_token_s;    /* of a prompt token that attends to nothing, */
    double pair_s;            /* and of each position that it attends to */
    double decode_s;          /* of a token that a request says, in a step with others */
} trace_prices;

typedef struct trace_request {
    const rad_token *elements; /* as long as the trace and the scratch that was given */
    uint32_t num_elements;     /* prompt and output */
    uint32_t num_prompt;       /* elements of the prompt */
    uint32_t num_match;        /* of these, such as may come from a cache: a record's server
                                * computes the last token always */
    uint32_t number;           /* of its namespace; 0: the one without a name */
    uint64_t prompt_tokens;    /* what the prompt is in tokens */
    uint64_t output_tokens;    /* likewise; 0 when the format has none */
    uint64_t timestamp_ms;     /* 0 when the format has none */
} trace_request;

/* Errors: RAD_E_IO, RAD_E_FORMAT (with the byte or line), RAD_E_NOMEM; RAD_E_LIMIT: it expands too
 * far, or a line is too long. `env` may be NULL. */
rad_status trace_parse(const rad_env *env, const void *bytes, uint64_t size, trace **out,
                       rad_error *err);
bool trace_is_record(const void *bytes, uint64_t size);

/* A file's, whose path is in the words of an error. */
rad_status trace_load(const rad_env *env, const char *path, trace **out, rad_error *err);
void trace_free(trace *t); /* NULL is fine */

const char *trace_format(const trace *t); /* "RXTRACE1", "RADREC2", "mooncake" */
uint64_t trace_num_requests(const trace *t);
uint64_t trace_capacity_tokens(const trace *t); /* what the file suggests; 0 = nothing */
uint32_t trace_tokens_per_element(const trace *t);
uint32_t trace_longest(const trace *t); /* elements of the longest request */
trace_prices trace_get_prices(const trace *t);
bool trace_has_times(const trace *t);

/* `scratch` has trace_longest(t) places; NULL: the numbers alone, without elements. Any thread. */
void trace_get(const trace *t, uint64_t i, rad_token *scratch, trace_request *out);

#endif
