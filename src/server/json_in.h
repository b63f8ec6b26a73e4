/* json_in.h - JSON from strangers: strict, bounded, and with errors that name the place.
 *
 * The bytes are looked over before the parser allocates for them: nesting, the number of
 * values and what they will take in memory have limits (base/json_look.h), because a value costs
 * up to 125 times its two bytes. Getters
 * take a missing key and null as "not given" and leave *out alone. */
#ifndef SERVER_JSON_IN_H
#define SERVER_JSON_IN_H

#include "base/memory_budget.h"

#include <jansson.h>
#include <radish/status.h>
#include <stdbool.h>

enum { JSON_IN_MAX_DEPTH = 64, JSON_IN_MAX_VALUES = 4 << 20 };

/* An answer other than 200, in OpenAI's words; other protocols' are made of it (dialect.h). */
typedef struct api_error {
    int http_status;
    const char *type; /* "invalid_request_error", ... */
    const char *code; /* NULL = null */
    char param[64];   /* "" = null */
    char message[600];
    uint32_t prompt_tokens, context_tokens; /* of a prompt that does not fit; 0: not that */
} api_error;

/* Fills err (type and code by http_status; `param` may be NULL) and returns false. */
bool api_fail(api_error *err, int http_status, const char *param, const char *fmt, ...)
    RAD_PRINTF(4, 5);

/* What the JSON of one request may have together, its body and the JSON inside its strings. */
typedef struct json_room {
    memory_budget *budget; /* of all requests; NULL: no limit */
    uint64_t taken;        /* of it, by this one */
    uint64_t values;       /* so far */
} json_room;

/* Takes what a parser needs for these bytes. False: 400 (too deep, too many values), 413 (more
 * than the whole budget) or 503 (more than is left now). */
bool json_room_take(json_room *room, const char *bytes, size_t len, api_error *err);
void json_room_give_back(json_room *room); /* all that it took */

/* An object, or NULL and a 400 that says where and what. Duplicate keys, bad UTF-8 and
 * anything behind the value are refused; so is what `room` has no place for (see there). Its memory
 * is the room's until json_room_give_back; without a room (NULL) only the limits above hold. */
json_t *json_in_object(const char *bytes, size_t len, json_room *room, api_error *err);

/* False: the value has the wrong type or is out of range; err names the key. */
bool json_in_bool(const json_t *object, const char *key, bool *out, api_error *err);
bool json_in_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                 api_error *err);
bool json_in_float(const json_t *object, const char *key, float *out, api_error *err);

/* The string lives as long as the object; one with a NUL inside is refused. */
bool json_in_string(const json_t *object, const char *key, const char **out, api_error *err);

/* Whether it is this string, whole: not what has more behind a NUL character. */
bool json_in_says(const json_t *value, const char *word);

/* The member, or NULL when it is missing or null. */
json_t *json_in_get(const json_t *object, const char *key);

#endif
