/* info.c - `radish info`: what a GGUF file holds, whether radish can serve it, and what that takes.
 */
#include "cli/cli.h"
#include "gguf/quant.h"
#include "mem/kv_codec.h"
#include "model/weights.h"
#include "cli/terminal_text.h"
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
    bool foretold;     /* memory is what a server would take */
    engine_memory memory;
};

/* What a server makes ready ahead of its K/V cache, by default. */
static const uint64_t POPULATE_AHEAD = 1000000000;

/* Only for a file that can be served. */
static rad_status foretell(const rad_env *env, const gguf_file *file, engine_params *p,
                           struct summary *s, rad_error *err)
{
    if (s->support[0]) return RAD_OK;
    p->kv_populate_ahead = POPULATE_AHEAD;
    rad_status status = engine_foretell(env, file, p, &s->memory, err);
    s->foretold = status == RAD_OK;
    return status;
}

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

/* As the file has it, which is not ours. */
static void print_name(gguf_str name)
{
    terminal_text_write(stdout, name.data, name.len);
}

static void print_templates(const gguf_file *file)
{
    gguf_str names[MOST_TEMPLATES];
    uint32_t count =
        RAD_MIN(chat_template_list(file, names, MOST_TEMPLATES), (uint32_t)MOST_TEMPLATES);
    for (uint32_t i = 0; i < count; i++) {
        printf("%s", i ? ", " : "chat templates: ");
        print_name(names[i]);
    }
    if (count) putchar('\n');
}

static void print_tokenizer(const gguf_file *file)
{
    gguf_str model, pre = {0};
    gguf_array tokens = {0};
    if (gguf_get_str(file, "tokenizer.ggml.model", &model, NULL) != RAD_OK) return;
    gguf_get_arr(file, "tokenizer.ggml.tokens", GGUF_STR, &tokens, NULL);
    bool has_pre = gguf_get_str(file, "tokenizer.ggml.pre", &pre, NULL) == RAD_OK;
    printf("tokenizer: ");
    print_name(model);
    printf(", %s", has_pre ? "pre " : "no pre");
    if (has_pre) print_name(pre);
    printf(", %" PRIu64 " tokens\n", tokens.count);
}

/* Tensors of one type. */
typedef struct type_sum {
    uint32_t type;
    uint64_t count, bytes;
} type_sum;

enum { MOST_TYPES = 64 };

static uint32_t sum_types(const gguf_file *file, type_sum sums[MOST_TYPES])
{
    uint32_t n = 0;
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        uint32_t k = 0;
        while (k < n && sums[k].type != t->type)
            k++;
        if (k == MOST_TYPES) continue;
        if (k == n) sums[n++] = (type_sum){.type = t->type};
        sums[k].count++;
        sums[k].bytes += t->bytes;
    }
    return n;
}

static void print_types(const gguf_file *file)
{
    type_sum sums[MOST_TYPES];
    const uint32_t n = sum_types(file, sums);
    for (uint32_t i = 0; i < n; i++)
        printf("%s%" PRIu64 " in %s (%.1f MB)", i ? ", " : "tensors: ", sums[i].count,
               ggml_type_name(sums[i].type), (double)sums[i].bytes / 1e6);
    if (n) putchar('\n');
}

static void print_memory(const engine_memory *m)
{
    printf("\nmemory for a context of %u tokens: %.1f MB\n", m->context_length,
           (double)m->total_bytes / 1e6);
    printf("  weights %.1f MB (", (double)m->weights_bytes / 1e6);
    for (uint32_t i = 0; i < m->num_types; i++)
        printf("%s%s %.1f", i ? ", " : "", m->types[i].name, (double)m->types[i].bytes / 1e6);
    printf("), K/V %.1f MB in %s, batches %.1f MB, tokenizer and template %.1f MB,\n"
           "  the program itself %.1f MB\n",
           (double)m->kv_bytes / 1e6, m->kv_cache_dtype, (double)m->batch_bytes / 1e6,
           (double)m->text_bytes / 1e6, (double)m->program_bytes / 1e6);
    if (m->draft_token_bytes)
        printf("draft model: weights %.1f MB, and %" PRIu64 " bytes a token\n",
               (double)m->draft_weights_bytes / 1e6, m->draft_token_bytes);
    if (m->why_no_nextn[0]) printf("no head guesses: %s\n", m->why_no_nextn);
    printf("cache: ");
    if (m->full_layers)
        printf("full: %u layers%s, %" PRIu64 " bytes a token", m->full_layers,
               m->nextn_layers ? " (one is a head that guesses)" : "", m->full_token_bytes);
    if (m->window_layers)
        printf("%swindow: %u layers, %" PRIu64 " bytes a token, of the last %u",
               m->full_layers ? "; " : "", m->window_layers, m->window_token_bytes,
               m->sliding_window);
    if (m->state_layers)
        printf("%sstate: %u layers, %" PRIu64 " bytes, a snapshot every %u tokens",
               m->full_layers || m->window_layers ? "; " : "", m->state_layers, m->state_bytes,
               m->state_interval);
    putchar('\n');
    if (m->device_name[0])
        printf("device %s: %s, %.1f GB of memory\n", m->device, m->device_name,
               (double)m->device_bytes / 1e9);
    else if (m->why_no_gpu[0])
        printf("device cpu: %s\n", m->why_no_gpu);
    if (m->why[0]) {
        printf("radish serve here: no: %s\n", m->why);
        return;
    }
    printf("radish serve here: a pool of %" PRIu64 " tokens", m->max_total_tokens);
    if (m->window_total_tokens) printf(" and %" PRIu64 " of windows", m->window_total_tokens);
    if (m->max_states) printf(" and %" PRIu64 " states", m->max_states);
    if (m->available_bytes)
        printf(" (mem_fraction_static %.2f of %.1f GB available)", m->mem_fraction_static,
               (double)m->available_bytes / 1e9);
    printf(",\n  %.1f MB %s", (double)m->resident_bytes / 1e6,
           m->device_name[0] ? "of the GPU's memory" : "resident once it has had one such context");
    if (m->guess_bytes)
        printf(", up to %.1f MB more to guess from", (double)m->guess_bytes / 1e6);
    putchar('\n');
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
    printf("%s: GGUF v%u, %.1f MiB", path, gguf_version(file),
           (double)gguf_file_bytes(file) / (1 << 20));
    if (gguf_num_parts(file) > 1) printf(" in %u files", gguf_num_parts(file));
    putchar('\n');
    printf("architecture ");
    print_name(s->architecture);
    printf(", %.2f M parameters in %" PRIu64 " tensors (%.1f MiB)\n", (double)s->parameters / 1e6,
           gguf_num_tensors(file), (double)s->tensor_bytes / (1 << 20));
    printf("radish can serve it: %s", s->support[0] ? "no, " : "yes\n");
    if (s->support[0]) {
        terminal_text_write(stdout, s->support, strlen(s->support));
        putchar('\n');
    }
    if (s->traits[0]) printf("%s\n", s->traits);
    print_types(file);
    print_tokenizer(file);
    print_templates(file);
    if (s->foretold) print_memory(&s->memory);
    printf("\nmetadata:\n");
    for (uint64_t i = 0; i < gguf_num_kvs(file); i++) {
        const gguf_kv *kv = gguf_kv_at(file, i);
        printf("  ");
        print_name(kv->key);
        printf(" = ");
        print_value(kv, 60);
        putchar('\n');
    }
    if (!tensors) return;
    printf("\ntensors:\n");
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        printf("  %-6s ", ggml_type_name(t->type));
        print_name(t->name);
        printf(" [");
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

static json_t *json_types(const gguf_file *file)
{
    type_sum sums[MOST_TYPES];
    const uint32_t n = sum_types(file, sums);
    json_t *types = json_object();
    for (uint32_t i = 0; i < n; i++)
        json_object_set_new(types, ggml_type_name(sums[i].type),
                            json_pack("{s:I, s:I}", "tensors", (json_int_t)sums[i].count, "bytes",
                                      (json_int_t)sums[i].bytes));
    return types;
}

static json_t *json_tokenizer(const gguf_file *file)
{
    gguf_str model, pre;
    gguf_array tokens = {0};
    if (gguf_get_str(file, "tokenizer.ggml.model", &model, NULL) != RAD_OK) return json_null();
    gguf_get_arr(file, "tokenizer.ggml.tokens", GGUF_STR, &tokens, NULL);
    bool has_pre = gguf_get_str(file, "tokenizer.ggml.pre", &pre, NULL) == RAD_OK;
    return json_pack("{s:o, s:o, s:I}", "model", json_name(model), "pre",
                     has_pre ? json_name(pre) : json_null(), "tokens", (json_int_t)tokens.count);
}

static json_t *json_cache(const engine_memory *m)
{
    json_t *cache = json_object();
    if (m->full_layers)
        json_object_set_new(cache, "full",
                            json_pack("{s:i, s:i, s:s?, s:I}", "layers", (int)m->full_layers,
                                      "nextn_layers", (int)m->nextn_layers, "why_no_nextn",
                                      m->why_no_nextn[0] ? m->why_no_nextn : NULL,
                                      "bytes_per_token", (json_int_t)m->full_token_bytes));
    if (m->window_layers)
        json_object_set_new(cache, "window",
                            json_pack("{s:i, s:I, s:I}", "layers", (int)m->window_layers,
                                      "bytes_per_token", (json_int_t)m->window_token_bytes,
                                      "window", (json_int_t)m->sliding_window));
    if (m->state_layers)
        json_object_set_new(cache, "state",
                            json_pack("{s:i, s:I, s:I}", "layers", (int)m->state_layers, "bytes",
                                      (json_int_t)m->state_bytes, "interval",
                                      (json_int_t)m->state_interval));
    if (m->draft_token_bytes)
        json_object_set_new(cache, "draft",
                            json_pack("{s:I, s:I}", "weights_bytes",
                                      (json_int_t)m->draft_weights_bytes, "bytes_per_token",
                                      (json_int_t)m->draft_token_bytes));
    return cache;
}

static json_t *json_memory(const struct summary *s)
{
    const engine_memory *m = &s->memory;
    if (!s->foretold) return json_null();
    json_t *weights = json_object();
    for (uint32_t i = 0; i < m->num_types; i++)
        json_object_set_new(weights, m->types[i].name, json_integer((json_int_t)m->types[i].bytes));
    return json_pack(
        "{s:I, s:I, s:I, s:o, s:I, s:s, s:I, s:I, s:I, s:o, s:{s:s, s:s, s:s, s:I, s:b, s:s?, s:I, "
        "s:f, s:I, s:I, "
        "s:I, s:I, s:I}}",
        "context_length", (json_int_t)m->context_length, "total_bytes", (json_int_t)m->total_bytes,
        "weights_bytes", (json_int_t)m->weights_bytes, "matrices", weights, "kv_bytes",
        (json_int_t)m->kv_bytes, "kv_cache_dtype", m->kv_cache_dtype, "batch_bytes",
        (json_int_t)m->batch_bytes, "text_bytes", (json_int_t)m->text_bytes, "program_bytes",
        (json_int_t)m->program_bytes, "cache", json_cache(m), "server", "device", m->device,
        "device_name", m->device_name, "why_no_gpu", m->why_no_gpu, "device_bytes",
        (json_int_t)m->device_bytes, "fits", !m->why[0], "why", m->why[0] ? m->why : NULL,
        "available_bytes", (json_int_t)m->available_bytes, "mem_fraction_static",
        m->mem_fraction_static, "max_total_tokens", (json_int_t)m->max_total_tokens,
        "window_total_tokens", (json_int_t)m->window_total_tokens, "max_mamba_cache_size",
        (json_int_t)m->max_states, "resident_bytes", (json_int_t)m->resident_bytes,
        "guess_bytes", (json_int_t)m->guess_bytes);
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
        "{s:o, s:I, s:I, s:o, s:b, s:s?, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o}",
        "path", path_json ? path_json : json_null(), "file_bytes",
        (json_int_t)gguf_file_bytes(file), "version", (json_int_t)gguf_version(file),
        "architecture", json_name(s->architecture), "supported", !s->support[0], "reason",
        s->support[0] ? s->support : NULL, "traits", s->traits, "num_parameters",
        (json_int_t)s->parameters, "tensor_bytes", (json_int_t)s->tensor_bytes, "num_tensors",
        (json_int_t)gguf_num_tensors(file), "metadata", metadata, "tensors", tensors,
        "chat_templates", json_templates(file), "num_files", (json_int_t)gguf_num_parts(file),
        "tensor_types", json_types(file), "tokenizer", json_tokenizer(file), "memory",
        json_memory(s));
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
    print_name(text);
    return 0;
}

int cmd_info(int argc, char **argv)
{
    model_options model = {0};
    const char *positional = NULL, *tensor = NULL, *template = NULL;
    bool json = false, tensors = false;
    engine_params params = {.max_pinned_tokens = ENGINE_PIN_QUARTER,
                            .max_sessions = ENGINE_USUAL_SESSIONS,
                            .speculative_algorithm = CLI_DRAFT_SOURCES,
                            .speculative_num_draft_tokens = CLI_DRAFT_TOKENS,
                            .speculative_ngram_capacity = CLI_RECENT_TOKENS}; /* as serve has it */
    const cli_manual manual = {
        .command = "info",
        .usage = "info MODEL [options]",
        .about =
            "Prints what a GGUF file holds: architecture, size, metadata, tensors; whether radish\n"
            "can serve it, else the key or tensor that it cannot; the memory that takes for a\n"
            "context; which parts of the cache it uses and what a token costs there. Of tensors\n"
            "nothing is read.",
    };
    const cli_option options[] = {
        {.kind = CLI_TEXT,
         .letter = 'm',
         .name = "model-path",
         .arg = "FILE",
         .target = &model.model,
         .help = "The file. May also stand without -m."},
        {.kind = CLI_U32,
         .name = "context-length",
         .arg = "N",
         .target = &params.context_length,
         .max = INT32_MAX,
         .help = "Tell the memory for contexts of N tokens. Default: the model's."},
        {.kind = CLI_TEXT,
         .name = "dtype",
         .arg = "TYPE",
         .target = &model.dtype,
         .help = "And for weights and KV cache of this type, as serve has it."},
        DEVICE_OPTION(&model),
        {.kind = CLI_TEXT,
         .name = "kv-cache-dtype",
         .arg = "TYPE",
         .target = &params.kv_cache_dtype,
         .help = "And for a KV cache of this one."},
        {.kind = CLI_TEXT,
         .name = "speculative-algorithm",
         .arg = "NAME",
         .target = &params.speculative_algorithm,
         .help = "And with those who guess, as serve has them: of these nextn takes memory."},
        {.kind = CLI_TEXT,
         .name = "speculative-draft-model-path",
         .arg = "FILE",
         .target = &params.speculative_draft_model_path,
         .help = "And with this draft model beside it, as serve has it."},
        {.kind = CLI_U32,
         .name = "speculative-ngram-capacity",
         .arg = "N",
         .target = &params.speculative_ngram_capacity,
         .max = 1 << 28,
         .help = "And with so many tokens of recent answers to guess from."},
        {.kind = CLI_U32,
         .name = "max-mamba-cache-size",
         .arg = "N",
         .target = &params.max_mamba_cache_size,
         .max = 1 << 24,
         .help = "And with so many states of recurrent layers, as serve has it,"},
        {.kind = CLI_F64,
         .name = "mamba-full-memory-ratio",
         .arg = "F",
         .target = &params.mamba_full_memory_ratio,
         .max = 100,
         .help = "or with so many bytes of states for each of K and V,"},
        {.kind = CLI_U32,
         .name = "mamba-track-interval",
         .arg = "N",
         .target = &params.mamba_track_interval,
         .max = 1 << 24,
         .help = "and a snapshot every so many tokens of a long prompt."},
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
    rad_dtype kv_dtype;
    if (params.kv_cache_dtype && strcmp(params.kv_cache_dtype, "auto") != 0 &&
        !kv_dtype_find(params.kv_cache_dtype, &kv_dtype))
        return cli_usage("info", "no --kv-cache-dtype is '%s'", params.kv_cache_dtype);
    params.model_path = model.model;
    params.dtype = model.parsed_dtype;
    params.dtype_by_device = model.dtype_auto;
    params.device = model.device;
    params.weights = model.parsed_weights;

    rad_env env = cli_env(&model);
    rad_error err = {0};
    gguf_file *file = NULL;
    struct summary s;
    if (gguf_open(&env, model.model, &file, &err) != RAD_OK) return cli_fail("%s", err.text);
    summarize(file, &s);
    code = 0;
    if (foretell(&env, file, &params, &s, &err) != RAD_OK)
        code = cli_fail("%s", err.text);
    else if (tensor)
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
