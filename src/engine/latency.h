/* latency.h - how long requests wait, as histograms that grow from the start.
 *
 * The bounds are one table for all. Those of SGLang's histograms are among them, so that /metrics
 * can leave out the others and stay exact; neighbours are at most a factor of 2 apart, mostly 1.5,
 * so that a quantile between two looks can be read off. Any thread counts, any thread reads; a
 * reader may see a count that came between two others. */
#ifndef ENGINE_LATENCY_H
#define ENGINE_LATENCY_H

#include <stdatomic.h>
#include <stdint.h>

enum { LATENCY_BOUNDS = 52 };

typedef enum latency_kind {
    LATENCY_QUEUE,       /* submit to the first admission */
    LATENCY_FIRST_TOKEN, /* submit to the first token */
    LATENCY_INTER_TOKEN, /* a token to the next one; of several in one step the others have 0 */
    LATENCY_END_TO_END,  /* submit to the end, of requests that ended well */
    LATENCY_KINDS
} latency_kind;

extern const char *const latency_names[LATENCY_KINDS]; /* "queue", "first_token", ... */
extern const double latency_bounds[LATENCY_BOUNDS];    /* seconds, ascending */

typedef struct latency_histogram {
    uint64_t counts[LATENCY_BOUNDS + 1]; /* above the bound before, at most this; the last: above */
    uint64_t count;
    uint64_t sum_ns;
} latency_histogram;

typedef struct latency_counters {
    _Atomic uint64_t counts[LATENCY_KINDS][LATENCY_BOUNDS + 1];
    _Atomic uint64_t sum_ns[LATENCY_KINDS];
} latency_counters;

void latency_add(latency_counters *c, latency_kind kind, uint64_t ns);
void latency_get(const latency_counters *c, latency_kind kind, latency_histogram *out);

#endif
