/* json_in.c - the look before the parse, jansson, and typed getters. */
#include "server/json_in.h"

#include "base/json_look.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool api_fail(api_error *err, int http_status, const char *param, const char *fmt, ...)
{
    err->http_status = http_status;
    err->code = NULL;
    err->prompt_tokens = err->context_tokens = 0;
    switch (http_status) {
    case 401: err->type = "authentication_error", err->code = "invalid_api_key"; break;
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

bool json_room_take(json_room *room, const char *bytes, size_t len, api_error *err)
{
    json_look look;
    json_look_at(&look, bytes, len);
    uint64_t values = json_look_values(&look), needed = json_look_bytes(&look);
    if (look.depth > JSON_IN_MAX_DEPTH)
        return api_fail(err, 400, NULL, "JSON is nested deeper than %d levels at byte %zu",
                        JSON_IN_MAX_DEPTH, look.deepest_at);
    if (values + room->values > JSON_IN_MAX_VALUES)
        return api_fail(err, 400, NULL, "JSON has more than %d values", JSON_IN_MAX_VALUES);
    if (room->budget && room->taken + needed > room->budget->limit)
        return api_fail(err, 413, NULL,
                        "the %llu values of this request take %llu bytes; all requests together "
                        "may have %llu",
                        (unsigned long long)(values + room->values),
                        (unsigned long long)(room->taken + needed),
                        (unsigned long long)room->budget->limit);
    if (!memory_budget_take(room->budget, needed))
        return api_fail(err, 503, NULL,
                        "no memory for this request now: it takes %llu bytes, and others have "
                        "%llu of %llu; try again soon",
                        (unsigned long long)needed, (unsigned long long)room->budget->used,
                        (unsigned long long)room->budget->limit);
    room->values += values;
    room->taken += needed;
    return true;
}

void json_room_give_back(json_room *room)
{
    memory_budget_give(room->budget, room->taken);
    room->taken = 0;
}

json_t *json_in_object(const char *bytes, size_t len, json_room *room, api_error *err)
{
    if (!len) {
        api_fail(err, 400, NULL, "the body is empty; a JSON object is wanted");
        return NULL;
    }
    json_room unlimited = {0};
    if (!json_room_take(room ? room : &unlimited, bytes, len, err)) return NULL;
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

bool json_in_says(const json_t *value, const char *word)
{
    size_t len = strlen(word);
    return json_is_string(value) && json_string_length(value) == len &&
           !memcmp(json_string_value(value), word, len);
}
