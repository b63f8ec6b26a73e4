/* json_in.h - JSON from strangers: strict, bounded, and with errors that name the place.
 *
 * The bytes are looked over before the parser allocates for them: nesting and the
 * number of values have limits, because a value costs 40 times its two bytes. Getters
 * take a missing key and null as "not given" and leave *out alone. */
#ifndef SERVER_JSON_IN_H
#define SERVER_JSON_IN_H

#include <jansson.h>
#include <radish/status.h>
#include <stdbool.h>

enum { JSON_IN_MAX_DEPTH = 64, JSON_IN_MAX_VALUES = 4 << 20 };

/* An answer other than 200, in OpenAI's words. */
typedef struct api_error {
    int http_status;
    const char *type; /* "invalid_request_error", ... */
    const char *code; /* NULL = null */
    char param[64];   /* "" = null */
    char message[600];
} api_error;

/* Fills err (type and code by http_status; `param` may be NULL) and returns false. */
bool api_fail(api_error *err, int http_status, const char *param, const char *fmt, ...)
    RAD_PRINTF(4, 5);

/* An object, or NULL and a 400 that says where and what. Duplicate keys, bad UTF-8 and
 * anything behind the value are refused. */
json_t *json_in_object(const char *bytes, size_t len, api_error *err);

/* False: the value has the wrong type or is out of range; err names the key. */
bool json_in_bool(const json_t *object, const char *key, bool *out, api_error *err);
bool json_in_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                 api_error *err);
bool json_in_float(const json_t *object, const char *key, float *out, api_error *err);

/* The string lives as long as the object; one with a NUL inside is refused. */
bool json_in_string(const json_t *object, const char *key, const char **out, api_error *err);

/* The member, or NULL when it is missing or null. */
json_t *json_in_get(const json_t *object, const char *key);

#endif
