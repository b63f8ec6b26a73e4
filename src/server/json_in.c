/* json_in.c - the look before the parse, jansson, and typed getters.
 *
 * The look is one pass that knows strings and brackets only. It counts a value for each
 * comma and opening bracket outside of strings, which is never less than the truth, so a
 * body that passes costs at most about JSON_IN_MAX_VALUES * 40 bytes beside itself. */
#include "server/json_in.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool api_fail(api_error *err, int http_status, const char *param, const char *fmt, ...)
{
    err->http_status = http_status;
    err->code = NULL;
    switch (http_status) {
    case 404: err->type = "not_found_error"; break;
    case 429: err->type = "rate_limit_error", err->code = "queue_full"; break;
    case 503: err->type = "service_unavailable_error"; break;
    default: err->type = http_status >= 500 ? "server_error" : "invalid_request_error";
    }
    snprintf(err->param, sizeof err->param, "%s", param ? param : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    return false;
}

static bool look(const char *bytes, size_t len, api_error *err)
{
    size_t depth = 0, values = 0;
    for (size_t i = 0; i < len; i++) {
        switch (bytes[i]) {
        case '"':
            for (i++; i < len && bytes[i] != '"'; i++)
                if (bytes[i] == '\\') i++;
            break;
        case '[':
        case '{':
            values++;
            if (++depth > JSON_IN_MAX_DEPTH)
                return api_fail(err, 400, NULL, "JSON is nested deeper than %d levels at byte %zu",
                                JSON_IN_MAX_DEPTH, i);
            break;
        case ']':
        case '}':
            if (depth) depth--; /* else the parser complains */
            break;
        case ',': values++; break;
        default: break;
        }
        if (values > JSON_IN_MAX_VALUES)
            return api_fail(err, 400, NULL, "JSON has more than %d values", JSON_IN_MAX_VALUES);
    }
    return true;
}

json_t *json_in_object(const char *bytes, size_t len, api_error *err)
{
    if (!len) {
        api_fail(err, 400, NULL, "the body is empty; a JSON object is wanted");
        return NULL;
    }
    if (!look(bytes, len, err)) return NULL;
    json_error_t where;
    json_t *root = json_loadb(bytes, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (!root && json_error_code(&where) == json_error_out_of_memory) {
        api_fail(err, 503, NULL, "no memory for this request");
        return NULL;
    }
    if (!root) {
        /* jansson quotes what is near the fault; keep that valid UTF-8 by leaving it out */
        char *near = strstr(where.text, " near ");
        if (near) *near = 0;
        api_fail(err, 400, NULL, "invalid JSON at line %d, column %d (byte %d): %s", where.line,
                 where.column, where.position, where.text);
        return NULL;
    }
    if (!json_is_object(root)) {
        api_fail(err, 400, NULL, "the body must be a JSON object");
        json_decref(root);
        return NULL;
    }
    return root;
}

json_t *json_in_get(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

bool json_in_bool(const json_t *object, const char *key, bool *out, api_error *err)
{
    json_t *value = json_in_get(object, key);
    if (!value) return true;
    if (!json_is_boolean(value)) return api_fail(err, 400, key, "'%s' must be true or false", key);
    *out = json_is_true(value);
    return true;
}

bool json_in_int(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out,
                 api_error *err)
{
    json_t *value = json_in_get(object, key);
    if (!value) return true;
    int64_t number;
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (json_is_real(value) && json_real_value(value) == floor(json_real_value(value)) &&
               fabs(json_real_value(value)) < 9e15) {
        number = (int64_t)json_real_value(value);
    } else {
        return api_fail(err, 400, key, "'%s' must be an integer", key);
    }
    if (number < min || number > max)
        return api_fail(err, 400, key, "'%s' must be between %lld and %lld, not %lld", key,
                        (long long)min, (long long)max, (long long)number);
    *out = number;
    return true;
}

bool json_in_float(const json_t *object, const char *key, float *out, api_error *err)
{
    json_t *value = json_in_get(object, key);
    if (!value) return true;
    if (!json_is_number(value)) return api_fail(err, 400, key, "'%s' must be a number", key);
    double number = json_number_value(value);
    if (!(fabs(number) <= 1e30)) return api_fail(err, 400, key, "'%s' is out of range", key);
    *out = (float)number;
    return true;
}

bool json_in_string(const json_t *object, const char *key, const char **out, api_error *err)
{
    json_t *value = json_in_get(object, key);
    if (!value) return true;
    if (!json_is_string(value)) return api_fail(err, 400, key, "'%s' must be a string", key);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return api_fail(err, 400, key, "'%s' must not contain a NUL character", key);
    *out = json_string_value(value);
    return true;
}
