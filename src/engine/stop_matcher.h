/* stop_matcher.h - finds the first stop string in a text that comes in pieces.
 *
 * Text that may be the beginning of a stop string is to be held back until it is decided:
 * stop_matcher_held says how many of the last bytes that are. */
#ifndef ENGINE_STOP_MATCHER_H
#define ENGINE_STOP_MATCHER_H

#include "base/base.h"

enum { STOP_MATCHER_MOST = 64, STOP_MATCHER_MOST_BYTES = 1024 }; /* strings; bytes of one */

typedef struct stop_string {
    char *text;
    uint32_t len;
    uint32_t matched; /* bytes of it that the text so far ends with */
    uint16_t *border; /* border[i]: longest proper prefix of text[0..i] that ends it, too */
} stop_string;

typedef struct stop_matcher {
    rad_env env;
    stop_string *strings;
    uint32_t num_strings;
} stop_matcher;

/* Copies the strings. RAD_E_INVAL in words: too many, an empty one, too long a one. */
rad_status stop_matcher_init(stop_matcher *m, const rad_env *env, const char *const *strings,
                             uint32_t num_strings, rad_error *err);
void stop_matcher_fini(stop_matcher *m); /* a zeroed one is fine */

/* Reads text[0..len) up to the end of the first stop string. Of several that end there the
 * longest counts. NULL: none; else *end is where it ends in `text`. O(len) a string. */
const stop_string *stop_matcher_feed(stop_matcher *m, const char *text, size_t len, size_t *end);

uint32_t stop_matcher_held(const stop_matcher *m);

#endif
