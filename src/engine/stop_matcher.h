/* stop_matcher.h - finds the first stop string in a text that comes in pieces.
 *
 * Text that may be the beginning of a stop string is to be held back until it is decided:
 * stop_matcher_held says how many of the last bytes that are. */
#ifndef ENGINE_STOP_MATCHER_H
#define ENGINE_STOP_MATCHER_H

#include "base/base.h"
#include "base/memory_budget.h"

#include <stdatomic.h>

enum { STOP_MATCHER_MOST = 64, STOP_MATCHER_MOST_BYTES = 1024 }; /* strings; bytes of one */

typedef struct stop_string {
    char *text;
    uint32_t len;
    uint16_t *border; /* border[i]: longest proper prefix of text[0..i] that ends it, too */
} stop_string;

/* Stop strings, in one block: constant, and shared by the matchers of all requests that have the
 * same ones. */
typedef struct stop_set {
    rad_env env;
    _Atomic uint32_t refs;
    uint32_t num_strings;
    size_t bytes;          /* of the block */
    memory_budget *budget; /* they count against it until the last reference is gone */
    stop_string strings[];
} stop_set;

/* Copies the strings; one reference is the caller's. Without strings *out is NULL, which is a set
 * too. RAD_E_INVAL in words: too many, an empty one, too long a one. RAD_FULL: `budget` (NULL: no
 * limit), which outlives the set, has no room for it. */
rad_status stop_set_create(const rad_env *env, memory_budget *budget, const char *const *strings,
                           uint32_t num_strings, stop_set **out, rad_error *err);
stop_set *stop_set_ref(stop_set *set); /* any thread; NULL is fine, as below */
void stop_set_unref(stop_set *set);

typedef struct stop_matcher {
    rad_env env;
    stop_set *set;     /* NULL: no strings; a reference of its own */
    uint32_t *matched; /* for each string: bytes of it that the text so far ends with */
} stop_matcher;

/* RAD_E_NOMEM; the set is referenced. */
rad_status stop_matcher_init(stop_matcher *m, const rad_env *env, stop_set *set, rad_error *err);
void stop_matcher_fini(stop_matcher *m); /* a zeroed one is fine */

/* Reads text[0..len) up to the end of the first stop string. Of several that end there the
 * longest counts. NULL: none; else *end is where it ends in `text`. O(len) a string. */
const stop_string *stop_matcher_feed(stop_matcher *m, const char *text, size_t len, size_t *end);

uint32_t stop_matcher_held(const stop_matcher *m);

#endif
