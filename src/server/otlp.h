/* otlp.h - requests as OpenTelemetry's spans, sent over OTLP/HTTP in JSON.
 *
 *     POST /v1/chat/completions ------------------------------------------
 *       queue ------ prefill ------------ decode ------------------------
 *
 * The event loop hands a request that is over to a queue of OTLP_QUEUE and goes on; a thread of its
 * own sends them, some hundred at a time, once a second. A collector that is slow or away costs
 * spans, which are counted, and nothing else. */
#ifndef SERVER_OTLP_H
#define SERVER_OTLP_H

#include "base/base.h"
#include "server/access.h"

typedef struct otlp otlp;

enum { OTLP_QUEUE = 2048 };

typedef struct otlp_span {
    access_record access; /* with its trace */
    uint64_t end_ns;      /* of the env's clock */
} otlp_span;

typedef struct otlp_stats {
    uint64_t sent;    /* requests that the collector took, */
    uint64_t failed;  /* that it did not take, */
    uint64_t dropped; /* and that there was no room for */
} otlp_stats;

/* "http://HOST:PORT[/PATH]", to which /v1/traces is added. RAD_E_INVAL in words: it is none, or
 * https, which a collector on this machine does not need, or has a user or a query. */
rad_status otlp_check(const char *endpoint, rad_error *err);

rad_status otlp_create(const rad_env *env, const char *endpoint, const char *model, otlp **out,
                       rad_error *err);
void otlp_destroy(otlp *o); /* sends what is queued, within some seconds; NULL is fine */

void otlp_push(otlp *o, const otlp_span *span); /* never waits */
void otlp_get_stats(otlp *o, otlp_stats *stats);

#endif
