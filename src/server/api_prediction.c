/* api_prediction.c - a string, or text parts that are joined to one. */
#include "server/api_prediction.h"

#include "server/api_fields.h"

#include <string.h>

static const char KEY[] = "prediction";

static bool check_members(const json_t *object, api_error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (strcmp(name, "type") != 0 && strcmp(name, "content") != 0 && !json_is_null(value))
            return api_fail(err, 400, KEY, "'prediction' has 'type' and 'content' alone");
    }
    if (!json_in_says(json_in_get(object, "type"), "content"))
        return api_fail(err, 400, KEY, "'prediction': its 'type' must be \"content\"");
    return true;
}

static bool check_part(const json_t *part, size_t index, size_t *len, api_error *err)
{
    const json_t *text = json_in_get(part, "text");
    if (!json_in_says(json_in_get(part, "type"), "text") || !json_is_string(text))
        return api_fail(err, 400, KEY,
                        "'prediction': part %zu is not {\"type\": \"text\", \"text\": ...}", index);
    *len += json_string_length(text); /* parts of one body: cannot overflow */
    return api_check_fields(part, IN_PART, err);
}

static const char *join(api_request *r, const json_t *parts, size_t *len, api_error *err)
{
    size_t n = json_array_size(parts), at = 0;
    *len = 0;
    for (size_t i = 0; i < n; i++)
        if (!check_part(json_array_get(parts, i), i, len, err)) return NULL;
    char *joined = api_request_alloc(r, *len + 1, 1, err);
    for (size_t i = 0; i < n && joined; i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        memcpy(joined + at, json_string_value(text), json_string_length(text));
        at += json_string_length(text);
    }
    return joined;
}

bool api_parse_prediction(api_request *r, api_error *err)
{
    const json_t *object = json_in_get(r->root, KEY);
    if (!object) return true;
    if (!json_is_object(object)) return api_fail(err, 400, KEY, "'prediction' must be an object");
    if (!check_members(object, err)) return false;
    const json_t *content = json_in_get(object, "content");
    if (!json_is_string(content) && !json_is_array(content))
        return api_fail(err, 400, KEY,
                        "'prediction': its 'content' must be a string or a list of text parts");
    size_t len = json_string_length(content);
    const char *text = json_is_string(content) ? json_string_value(content)
                                               : join(r, content, &len, err);
    if (!text) return false;
    for (uint32_t i = 0; i < r->num_items; i++) {
        r->items[i].prediction = len ? text : NULL;
        r->items[i].prediction_len = len;
    }
    r->predicts = true;
    return true;
}
