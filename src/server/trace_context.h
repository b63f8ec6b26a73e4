/* trace_context.h - W3C's header `traceparent`: which trace a request belongs to. */
#ifndef SERVER_TRACE_CONTEXT_H
#define SERVER_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

enum { TRACE_ID_DIGITS = 32, SPAN_ID_DIGITS = 16 };

typedef struct trace_context {
    char trace_id[TRACE_ID_DIGITS + 1]; /* lower-case hex; "": none */
    char
        parent_id[SPAN_ID_DIGITS + 1]; /* the caller's span; "": it is ours that begins the trace */
    char span_id[SPAN_ID_DIGITS + 1];  /* ours */
    bool sampled;                      /* whoever began the trace wants it recorded */
} trace_context;

/* What the header says, with a span of ours; false, and *t is empty: NULL, or it says nothing. */
bool trace_context_read(const char *traceparent, trace_context *t);

/* A trace that begins here. */
void trace_context_begin(trace_context *t);

/* So many random hex digits, not all 0. */
void trace_random(char *digits, size_t count);

#endif
