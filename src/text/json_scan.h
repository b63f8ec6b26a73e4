/* json_scan.h - JSON's grammar, a byte at a time: where a value ends, and where it is none.
 *
 * Nothing is kept of the value but its nesting. Stricter than what models write in one point only:
 * bytes below 0x20 inside of strings are let through, for the caller to escape. */
#ifndef TEXT_JSON_SCAN_H
#define TEXT_JSON_SCAN_H

#include "base/base.h"

enum { JSON_SCAN_DEPTH = 64 };

typedef struct json_scan {
    uint64_t objects; /* one bit a level: an object, not a list */
    uint8_t depth, state, more;
    bool is_key;
    const char *word; /* what is left of true, false or null */
} json_scan;

typedef enum json_scanned {
    JSON_BAD = -1,
    JSON_MORE = 0,
    JSON_DONE = 1,  /* the value ends with this byte */
    JSON_BEFORE = 2 /* it had ended before it (numbers) */
} json_scanned;

static inline void json_scan_begin(json_scan *s)
{
    *s = (json_scan){0};
}

json_scanned json_scan_push(json_scan *s, char c);
bool json_scan_in_string(const json_scan *s);

/* How long the value at text[0..len) is; 0: it has not ended yet; -1: it is none. A number at the
 * very end has not ended. */
ptrdiff_t json_scan_value(const char *text, size_t len);

#endif
