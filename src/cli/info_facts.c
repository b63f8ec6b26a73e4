/* info_facts.c - what is to be told of a model's file. */
#include "cli/info_facts.h"

#include "gguf/quant.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

#include <stdio.h>

/* What a server makes ready ahead of its K/V cache, by default. */
static const uint64_t POPULATE_AHEAD = 1000000000;

const char *info_value_type(gguf_type type)
{
    static const char *const names[] = {"u8",   "i8",  "u16", "i16", "u32", "i32", "f32",
                                        "bool", "str", "arr", "u64", "i64", "f64"};
    return (size_t)type < RAD_COUNT(names) ? names[type] : "?";
}

static void count_type(info_facts *f, const gguf_tensor *t)
{
    uint32_t k = 0;
    while (k < f->num_types && f->types[k].type != t->type)
        k++;
    if (k == INFO_MOST_TYPES) return;
    if (k == f->num_types) f->types[f->num_types++].type = t->type;
    f->types[k].count++;
    f->types[k].bytes += t->bytes;
}

static void find_tensors(info_facts *f)
{
    uint64_t n = gguf_num_tensors(f->file);
    for (uint64_t i = 0; i < n; i++) {
        const gguf_tensor *t = gguf_tensor_at(f->file, i);
        f->parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        f->tensor_bytes += t->bytes;
        count_type(f, t);
        if (!f->why_not[0] && !ggml_type_decodes(t->type))
            snprintf(f->why_not, sizeof f->why_not, "tensor '%.*s' has type %s",
                     (int)RAD_MIN(t->name.len, 100u), t->name.data, ggml_type_name(t->type));
    }
    if (!n) snprintf(f->why_not, sizeof f->why_not, "no tensors: a vocabulary only");
}

/* Whether what loading asks of the file is there. */
static void find_support(info_facts *f)
{
    bool has_tensors = gguf_num_tensors(f->file) > 0;
    model_config config;
    rad_error err = {0};
    rad_status status = model_config_read(f->file, 0, &config, &err);
    if (status == RAD_OK) {
        model_config_describe(&config, f->traits, sizeof f->traits);
        status = model_tensors_check(f->file, &config, &err);
    }
    if (status != RAD_OK && has_tensors)
        snprintf(f->why_not, sizeof f->why_not, "%.199s", err.text);
    tokenizer *tok = NULL;
    if (has_tensors && !f->why_not[0] && tokenizer_create(NULL, f->file, &tok, &err) != RAD_OK)
        snprintf(f->why_not, sizeof f->why_not, "%.199s", err.text);
    tokenizer_destroy(tok);
}

static void find_tokenizer(info_facts *f)
{
    gguf_array tokens = {0};
    if (gguf_get_str(f->file, "tokenizer.ggml.model", &f->tokenizer.model, NULL) != RAD_OK) return;
    f->tokenizer.is_there = true;
    f->tokenizer.has_pre = gguf_get_str(f->file, "tokenizer.ggml.pre", &f->tokenizer.pre, NULL) ==
                           RAD_OK;
    gguf_get_arr(f->file, "tokenizer.ggml.tokens", GGUF_STR, &tokens, NULL);
    f->tokenizer.num_tokens = tokens.count;
}

rad_status info_facts_find(const rad_env *env, const char *path, const gguf_file *file,
                           engine_params *params, info_facts *out, rad_error *err)
{
    *out = (info_facts){.path = path, .file = file, .architecture = {"?", 1}};
    gguf_get_str(file, "general.architecture", &out->architecture, NULL);
    find_tensors(out);
    find_support(out);
    find_tokenizer(out);
    out->num_templates = RAD_MIN(chat_template_list(file, out->templates, INFO_MOST_TEMPLATES),
                                 (uint32_t)INFO_MOST_TEMPLATES);
    if (out->why_not[0]) return RAD_OK;
    params->kv_populate_ahead = POPULATE_AHEAD;
    rad_status status = engine_foretell(env, file, params, &out->memory, err);
    out->foretold = status == RAD_OK;
    return status;
}
