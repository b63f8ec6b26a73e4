/* trace_context.c - see the header. */
#include "server/trace_context.h"

#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* "00-" 32 digits "-" 16 digits "-" 2 digits; later versions may have more behind that. */
enum { TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

static bool is_hex(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!text[i] || !strchr("0123456789abcdef", text[i])) return false;
    return true;
}

static bool is_zero(const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (text[i] != '0') return false;
    return true;
}

void trace_random(char *digits, size_t count)
{
    uint8_t bytes[TRACE_ID_DIGITS / 2] = {0};
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != sizeof bytes) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        memcpy(bytes, &now, sizeof bytes);
    }
    bytes[0] |= 1; /* no id is 0 */
    for (size_t i = 0; i < count; i++)
        digits[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    digits[count] = 0;
}

bool trace_context_read(const char *h, trace_context *t)
{
    *t = (trace_context){.trace_id = ""};
    const size_t len = h ? strlen(h) : 0;
    if (len < LENGTH || !is_hex(h, 2) || strncmp(h, "ff", 2) == 0) return false;
    if (len > LENGTH && (strncmp(h, "00", 2) == 0 || h[LENGTH] != '-')) return false;
    if (h[TRACE_AT - 1] != '-' || h[PARENT_AT - 1] != '-' || h[FLAGS_AT - 1] != '-') return false;
    if (!is_hex(h + TRACE_AT, TRACE_ID_DIGITS) || is_zero(h + TRACE_AT, TRACE_ID_DIGITS))
        return false;
    if (!is_hex(h + PARENT_AT, SPAN_ID_DIGITS) || is_zero(h + PARENT_AT, SPAN_ID_DIGITS))
        return false;
    if (!is_hex(h + FLAGS_AT, 2)) return false;
    memcpy(t->trace_id, h + TRACE_AT, TRACE_ID_DIGITS);
    memcpy(t->parent_id, h + PARENT_AT, SPAN_ID_DIGITS);
    trace_random(t->span_id, SPAN_ID_DIGITS);
    t->sampled = strchr("13579bdf", h[FLAGS_AT + 1]) != NULL;
    return true;
}

void trace_context_begin(trace_context *t)
{
    *t = (trace_context){.sampled = true};
    trace_random(t->trace_id, TRACE_ID_DIGITS);
    trace_random(t->span_id, SPAN_ID_DIGITS);
}
