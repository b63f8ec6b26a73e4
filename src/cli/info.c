/* info.c - `radish info`: what a GGUF file holds, and whether radish can serve it. */
#include "cli/cli.h"
#include "gguf/quant.h"
#include "model/weights.h"
#include "text/chat_template.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static const char *value_type(gguf_type type)
{
    static const char *const names[] = {"u8",   "i8",  "u16", "i16", "u32", "i32", "f32",
                                        "bool", "str", "arr", "u64", "i64", "f64"};
    return (size_t)type < RAD_COUNT(names) ? names[type] : "?";
}

struct summary {
    gguf_str architecture;
    uint64_t parameters;
    uint64_t tensor_bytes;
    char support[200]; /* "" = supported, else why not */
    char traits[400];  /* how the model differs from others; "" when it cannot be read */
};

static void summarize(const gguf_file *file, struct summary *s)
{
    *s = (struct summary){.architecture = {"?", 1}};
    gguf_get_str(file, "general.architecture", &s->architecture, NULL);
    uint64_t n = gguf_num_tensors(file);
    for (uint64_t i = 0; i < n; i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        s->parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        s->tensor_bytes += t->bytes;
        if (!s->support[0] && !ggml_type_decodes(t->type))
            snprintf(s->support, sizeof s->support, "tensor '%.*s' has type %s",
                     (int)RAD_MIN(t->name.len, 100u), t->name.data, ggml_type_name(t->type));
    }
    if (!n) snprintf(s->support, sizeof s->support, "no tensors: a vocabulary only");
    model_config config;
    rad_error err = {0};
    rad_status status = model_config_read(file, 0, &config, &err);
    if (status == RAD_OK) {
        model_config_describe(&config, s->traits, sizeof s->traits);
        status = model_tensors_check(file, &config, &err);
    }
    if (status != RAD_OK && n) snprintf(s->support, sizeof s->support, "%.199s", err.text);
    tokenizer *tok = NULL;
    if (n && !s->support[0] && tokenizer_create(NULL, file, &tok, &err) != RAD_OK)
        snprintf(s->support, sizeof s->support, "%.199s", err.text);
    tokenizer_destroy(tok);
}

enum { MOST_TEMPLATES = 16 }; /* that are listed */

static void print_templates(const gguf_file *file)
{
    gguf_str names[MOST_TEMPLATES];
    uint32_t count =
        RAD_MIN(chat_template_list(file, names, MOST_TEMPLATES), (uint32_t)MOST_TEMPLATES);
    for (uint32_t i = 0; i < count; i++)
        printf("%s%.*s", i ? ", " : "chat templates: ", (int)names[i].len, names[i].data);
    if (count) putchar('\n');
}

static void print_text(gguf_str text, size_t most)
{
    cli_print_json_text(text.data, RAD_MIN(text.len, most));
    if (text.len > most) printf("... (%zu bytes)", text.len);
}

static void print_array(const gguf_array *arr)
{
    printf("[");
    for (uint64_t i = 0; i < RAD_MIN(arr->count, 4u); i++) {
        if (i) printf(", ");
        if (arr->type == GGUF_STR)
            print_text(arr->strs[i], 20);
        else if (arr->type == GGUF_F32)
            printf("%g", (double)gguf_arr_f32(arr, i));
        else if (arr->type == GGUF_I32)
            printf("%d", gguf_arr_i32(arr, i));
        else {
            printf("%s", value_type(arr->type));
            break;
        }
    }
    printf("%s] %" PRIu64 " x %s", arr->count > 4 ? ", ..." : "", arr->count,
           value_type(arr->type));
}

static void print_value(const gguf_kv *kv, size_t most)
{
    switch (kv->type) {
    case GGUF_STR: print_text(kv->str, most); break;
    case GGUF_ARR: print_array(&kv->arr); break;
    case GGUF_BOOL: printf("%s", kv->u ? "true" : "false"); break;
    case GGUF_F32:
    case GGUF_F64: printf("%.9g", kv->f); break;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64: printf("%" PRIu64, kv->u); break;
    default: printf("%" PRId64, kv->i); break;
    }
}

static void print_friendly(const char *path, const gguf_file *file, const struct summary *s,
                           bool tensors)
{
    printf("%s: GGUF v%u, %.1f MiB\n", path, gguf_version(file),
           (double)gguf_file_bytes(file) / (1 << 20));
    printf("architecture %.*s, %.2f M parameters in %" PRIu64 " tensors (%.1f MiB)\n",
           (int)s->architecture.len, s->architecture.data, (double)s->parameters / 1e6,
           gguf_num_tensors(file), (double)s->tensor_bytes / (1 << 20));
    printf("radish can serve it: %s%s\n", s->support[0] ? "no, " : "yes", s->support);
    if (s->traits[0]) printf("%s\n", s->traits);
    print_templates(file);
    printf("\nmetadata:\n");
    for (uint64_t i = 0; i < gguf_num_kvs(file); i++) {
        const gguf_kv *kv = gguf_kv_at(file, i);
        printf("  %.*s = ", (int)kv->key.len, kv->key.data);
        print_value(kv, 60);
        putchar('\n');
    }
    if (!tensors) return;
    printf("\ntensors:\n");
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        printf("  %-6s %.*s [", ggml_type_name(t->type), (int)t->name.len, t->name.data);
        for (uint32_t d = 0; d < t->num_dims; d++)
            printf("%s%" PRIu64, d ? ", " : "", t->dims[d]);
        printf("]\n");
    }
}

/* A real that is not finite has no JSON; it becomes null. */
static json_t *json_value(const gguf_kv *kv)
{
    json_t *json = NULL;
    switch (kv->type) {
    case GGUF_STR: json = json_stringn(kv->str.data, kv->str.len); break;
    case GGUF_BOOL: json = json_boolean(kv->u != 0); break;
    case GGUF_F32:
    case GGUF_F64: json = json_real(kv->f); break;
    case GGUF_ARR:
        json = json_pack("{s:s, s:I}", "array_of", value_type(kv->arr.type), "count",
                         (json_int_t)kv->arr.count);
        break;
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64: json = json_integer((json_int_t)kv->u); break;
    default: json = json_integer((json_int_t)kv->i); break;
    }
    return json ? json : json_null();
}

static json_t *json_name(gguf_str name)
{
    json_t *json = json_stringn(name.len ? name.data : "", name.len);
    return json ? json : json_string("(not UTF-8)");
}

static json_t *json_templates(const gguf_file *file)
{
    gguf_str names[MOST_TEMPLATES];
    uint32_t count =
        RAD_MIN(chat_template_list(file, names, MOST_TEMPLATES), (uint32_t)MOST_TEMPLATES);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, json_name(names[i]));
    return list;
}

static int print_json(const char *path, const gguf_file *file, const struct summary *s)
{
    json_t *metadata = json_object(), *tensors = json_array();
    for (uint64_t i = 0; i < gguf_num_kvs(file); i++) {
        const gguf_kv *kv = gguf_kv_at(file, i);
        json_t *key = json_name(kv->key);
        json_object_set_new(metadata, json_string_value(key), json_value(kv));
        json_decref(key);
    }
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->num_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_array_append_new(tensors, json_pack("{s:o, s:s, s:o, s:I}", "name", json_name(t->name),
                                                 "type", ggml_type_name(t->type), "shape", shape,
                                                 "bytes", (json_int_t)t->bytes));
    }
    json_t *path_json = json_string(path);
    json_t *json = json_pack(
        "{s:o, s:I, s:I, s:o, s:b, s:s?, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "path",
        path_json ? path_json : json_null(), "file_bytes", (json_int_t)gguf_file_bytes(file),
        "version", (json_int_t)gguf_version(file), "architecture", json_name(s->architecture),
        "supported", !s->support[0], "reason", s->support[0] ? s->support : NULL, "traits",
        s->traits, "num_parameters", (json_int_t)s->parameters, "tensor_bytes",
        (json_int_t)s->tensor_bytes, "num_tensors", (json_int_t)gguf_num_tensors(file), "metadata",
        metadata, "tensors", tensors, "chat_templates", json_templates(file));
    if (!json) return cli_fail("no memory");
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
    return 0;
}

/* Every value of one tensor, a row a line, with the digits that give the same float back. */
static int print_tensor(const gguf_file *file, const char *name)
{
    const gguf_tensor *t = gguf_find_tensor(file, name);
    if (!t) return cli_fail("there is no tensor '%s' (--tensors lists them)", name);
    if (!ggml_type_decodes(t->type))
        return cli_fail("tensor '%s' has type %s, which radish does not read", name,
                        ggml_type_name(t->type));
    uint32_t values, bytes;
    ggml_type_layout(t->type, &values, &bytes);
    uint64_t cols = t->dims[0], rows = t->dims[1] * t->dims[2] * t->dims[3];
    float *row = malloc((size_t)cols * sizeof *row); /* cols <= the file's bytes * 2 */
    if (!row) return cli_fail("no memory for a row of %" PRIu64 " values", cols);
    const uint8_t *at = t->data;
    for (uint64_t r = 0; r < rows && !ferror(stdout); r++, at += cols / values * bytes) {
        ggml_decode(t->type, at, cols, row);
        for (uint64_t i = 0; i < cols; i++)
            printf("%.9g%c", (double)row[i], i + 1 < cols ? ' ' : '\n');
    }
    free(row);
    return 0;
}

static int print_template(const gguf_file *file, const char *name)
{
    gguf_str text;
    rad_error err = {0};
    rad_status status = chat_template_text(file, (gguf_str){name, strlen(name)}, &text, &err);
    if (status == RAD_NONE) return cli_fail("there is no chat template '%s'", name);
    if (status != RAD_OK) return cli_fail("%s", err.text);
    fwrite(text.data, 1, text.len, stdout);
    return 0;
}

int cmd_info(int argc, char **argv)
{
    model_options model = {0};
    const char *positional = NULL, *tensor = NULL, *template = NULL;
    bool json = false, tensors = false;
    const cli_manual manual = {
        .command = "info",
        .usage = "info MODEL [options]",
        .about =
            "Prints what a GGUF file holds: architecture, size, metadata, tensors, and whether\n"
            "radish can serve it.",
    };
    const cli_option options[] = {
        {.kind = CLI_TEXT,
         .letter = 'm',
         .name = "model-path",
         .arg = "FILE",
         .target = &model.model,
         .help = "The file. May also stand without -m."},
        {.kind = CLI_FLAG, .name = "tensors", .target = &tensors, .help = "List the tensors too."},
        {.kind = CLI_TEXT,
         .name = "tensor",
         .arg = "NAME",
         .target = &tensor,
         .help = "Print this tensor's values instead, a row a line."},
        {.kind = CLI_TEXT,
         .name = "chat-template",
         .arg = "NAME",
         .target = &template,
         .help = "Print this chat template instead: default, or another of those listed."},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &json,
         .help = "Print one JSON object; arrays of the metadata as type and count."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &positional);
    if (code == CLI_GO_ON) code = model_options_check("info", &model, positional);
    if (code != CLI_GO_ON) return code;

    rad_env env = cli_env(&model);
    rad_error err = {0};
    gguf_file *file = NULL;
    struct summary s;
    if (gguf_open(&env, model.model, &file, &err) != RAD_OK) return cli_fail("%s", err.text);
    summarize(file, &s);
    code = 0;
    if (tensor)
        code = print_tensor(file, tensor);
    else if (template)
        code = print_template(file, template);
    else if (json)
        code = print_json(model.model, file, &s);
    else
        print_friendly(model.model, file, &s, tensors);
    gguf_close(file);
    return code;
}
