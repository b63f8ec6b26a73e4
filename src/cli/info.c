/* info.c - `radish info`: what a GGUF file holds, whether radish can serve it, and what that takes.
 * The facts are in info_facts.h. */
#include "cli/cli.h"
#include "cli/info_facts.h"
#include "cli/terminal_text.h"
#include "gguf/quant.h"
#include "mem/kv_codec.h"
#include "text/chat_template.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    terminal_text_write(stdout, text.data, text.len); /* the file's, not ours */
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
         .values = "auto, f32, bf16 or q8_0",
         .target = &model.dtype,
         .help = "And for weights and KV cache of this type, as serve has it."},
        DEVICE_OPTION(&model),
        {.kind = CLI_TEXT,
         .name = "kv-cache-dtype",
         .arg = "TYPE",
         .values = CLI_KV_TYPES,
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
    info_facts facts;
    if (gguf_open(&env, model.model, &file, &err) != RAD_OK) return cli_fail("%s", err.text);
    code = 0;
    if (info_facts_find(&env, model.model, file, &params, &facts, &err) != RAD_OK)
        code = cli_fail("%s", err.text);
    else if (tensor)
        code = print_tensor(file, tensor);
    else if (template)
        code = print_template(file, template);
    else if (json)
        code = info_print_json(&facts);
    else
        info_print_text(&facts, tensors);
    gguf_close(file);
    return code;
}
