/* info_json.c - prints what `radish info` tells as one JSON object. */
#include "cli/cli.h"
#include "cli/info_facts.h"

#include <jansson.h>
#include <stdio.h>

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
        json = json_pack("{s:s, s:I}", "array_of", info_value_type(kv->arr.type), "count",
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

static json_t *json_templates(const info_facts *f)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < f->num_templates; i++)
        json_array_append_new(list, json_name(f->templates[i]));
    return list;
}

static json_t *json_types(const info_facts *f)
{
    json_t *types = json_object();
    for (uint32_t i = 0; i < f->num_types; i++)
        json_object_set_new(types, ggml_type_name(f->types[i].type),
                            json_pack("{s:I, s:I}", "tensors", (json_int_t)f->types[i].count,
                                      "bytes", (json_int_t)f->types[i].bytes));
    return types;
}

static json_t *json_tokenizer(const info_facts *f)
{
    if (!f->tokenizer.is_there) return json_null();
    return json_pack("{s:o, s:o, s:I}", "model", json_name(f->tokenizer.model), "pre",
                     f->tokenizer.has_pre ? json_name(f->tokenizer.pre) : json_null(), "tokens",
                     (json_int_t)f->tokenizer.num_tokens);
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

static json_t *json_memory(const info_facts *f)
{
    const engine_memory *m = &f->memory;
    if (!f->foretold) return json_null();
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
        (json_int_t)m->max_states, "resident_bytes", (json_int_t)m->resident_bytes, "guess_bytes",
        (json_int_t)m->guess_bytes);
}

static json_t *json_metadata(const gguf_file *file)
{
    json_t *metadata = json_object();
    for (uint64_t i = 0; i < gguf_num_kvs(file); i++) {
        const gguf_kv *kv = gguf_kv_at(file, i);
        json_t *key = json_name(kv->key);
        json_object_set_new(metadata, json_string_value(key), json_value(kv));
        json_decref(key);
    }
    return metadata;
}

static json_t *json_tensors(const gguf_file *file)
{
    json_t *tensors = json_array();
    for (uint64_t i = 0; i < gguf_num_tensors(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t->num_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->dims[d]));
        json_array_append_new(tensors, json_pack("{s:o, s:s, s:o, s:I}", "name", json_name(t->name),
                                                 "type", ggml_type_name(t->type), "shape", shape,
                                                 "bytes", (json_int_t)t->bytes));
    }
    return tensors;
}

int info_print_json(const info_facts *f)
{
    const gguf_file *file = f->file;
    json_t *path_json = json_string(f->path);
    json_t *json = json_pack(
        "{s:o, s:I, s:I, s:o, s:b, s:s?, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o}",
        "path", path_json ? path_json : json_null(), "file_bytes",
        (json_int_t)gguf_file_bytes(file), "version", (json_int_t)gguf_version(file),
        "architecture", json_name(f->architecture), "supported", !f->why_not[0], "reason",
        f->why_not[0] ? f->why_not : NULL, "traits", f->traits, "num_parameters",
        (json_int_t)f->parameters, "tensor_bytes", (json_int_t)f->tensor_bytes, "num_tensors",
        (json_int_t)gguf_num_tensors(file), "metadata", json_metadata(file), "tensors",
        json_tensors(file), "chat_templates", json_templates(f), "num_files",
        (json_int_t)gguf_num_parts(file), "tensor_types", json_types(f), "tokenizer",
        json_tokenizer(f), "memory", json_memory(f));
    if (!json) return cli_fail("no memory");
    json_dumpf(json, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(json);
    return 0;
}
