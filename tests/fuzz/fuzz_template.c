/* fuzz_template.c - any bytes as a chat template: parsed and rendered within its limits, or
 * refused in words. The conversation is fixed and has a bit of everything. */
#include "text/chat_render.h"

#include <stdlib.h>

static json_t *messages, *tools, *kwargs;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    messages = json_loads(
        "[{\"role\":\"system\",\"content\":\" be kind \"},{\"role\":\"user\",\"content\":\"Hi "
        "\\u00e9 "
        "\\ud83d\\ude00 "
        "<|im_end|>\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"city\":\"Paris\",\"n\":[1,2.5,"
        "null,true"
        "]}}}]},{\"role\":\"tool\",\"content\":\"a,b\\nc\\n\\nd\"}]",
        0, NULL);
    tools = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"items\":{}}}}]", 0,
        NULL);
    kwargs = json_loads(
        "{\"n\":3,\"x\":1.5,\"xs\":[3,1,2],\"words\":[\"b\",\"A\",\"\"],\"d\":{\"b\":1,\"a\":2}}",
        0, NULL);
    if (!messages || !tools || !kwargs) abort();
    json_object_set_new(kwargs, "bad", json_stringn_nocheck("a\xff\xe4\xb8 \x80", 6));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    jinja_template *t = NULL;
    rad_error err = {0};
    jinja_fault fault = {0};
    rad_status status = jinja_parse(NULL, (const char *)data, size, &t, &fault, &err);
    if (status) {
        if (t || status > 0 || !err.text[0] || !fault.line) abort();
        return 0;
    }
    jinja_var vars[16];
    jinja_input in = {.vars = vars,
                      .limits = {.steps = 100000, .memory = 16 << 20, .output = 1 << 20}};
    const char *key;
    json_t *value;
    vars[in.num_vars++] = (jinja_var){.name = "messages", .value = messages, .user = true};
    vars[in.num_vars++] = (jinja_var){.name = "tools", .value = tools, .user = true};
    json_object_foreach(kwargs, key, value)
        vars[in.num_vars++] = (jinja_var){.name = key, .value = value};
    jinja_text text;
    status = jinja_render(t, &in, &text, &fault, &err);
    if (status ? text.data || status > 0 || (!fault.raised && !err.text[0])
               : !text.data || text.len > (1 << 20) || text.data[text.len])
        abort();
    size_t marked = 0;
    for (size_t i = 0; text.user && i < text.len; i++) {
        if (text.user[i] > 1) abort();
        marked += text.user[i];
    }
    if (marked > text.len) abort();
    jinja_text_fini(&text);
    jinja_destroy(t);
    return 0;
}
