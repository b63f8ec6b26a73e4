/* info_text.c - prints what `radish info` tells, for a person. */
#include "cli/cli.h"
#include "cli/info_facts.h"
#include "cli/terminal_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* As the file has it, which is not ours. */
static void print_name(gguf_str name)
{
    terminal_text_write(stdout, name.data, name.len);
}

static void print_templates(const info_facts *f)
{
    for (uint32_t i = 0; i < f->num_templates; i++) {
        printf("%s", i ? ", " : "chat templates: ");
        print_name(f->templates[i]);
    }
    if (f->num_templates) putchar('\n');
}

static void print_tokenizer(const info_facts *f)
{
    if (!f->tokenizer.is_there) return;
    printf("tokenizer: ");
    print_name(f->tokenizer.model);
    printf(", %s", f->tokenizer.has_pre ? "pre " : "no pre");
    if (f->tokenizer.has_pre) print_name(f->tokenizer.pre);
    printf(", %" PRIu64 " tokens\n", f->tokenizer.num_tokens);
}

static void print_types(const info_facts *f)
{
    for (uint32_t i = 0; i < f->num_types; i++)
        printf("%s%" PRIu64 " in %s (%.1f MB)", i ? ", " : "tensors: ", f->types[i].count,
               ggml_type_name(f->types[i].type), (double)f->types[i].bytes / 1e6);
    if (f->num_types) putchar('\n');
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
    if (m->guess_bytes) printf(", up to %.1f MB more to guess from", (double)m->guess_bytes / 1e6);
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
            printf("%s", info_value_type(arr->type));
            break;
        }
    }
    printf("%s] %" PRIu64 " x %s", arr->count > 4 ? ", ..." : "", arr->count,
           info_value_type(arr->type));
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

void info_print_text(const info_facts *f, bool with_tensors)
{
    const gguf_file *file = f->file;
    printf("%s: GGUF v%u, %.1f MiB", f->path, gguf_version(file),
           (double)gguf_file_bytes(file) / (1 << 20));
    if (gguf_num_parts(file) > 1) printf(" in %u files", gguf_num_parts(file));
    putchar('\n');
    printf("architecture ");
    print_name(f->architecture);
    printf(", %.2f M parameters in %" PRIu64 " tensors (%.1f MiB)\n", (double)f->parameters / 1e6,
           gguf_num_tensors(file), (double)f->tensor_bytes / (1 << 20));
    printf("radish can serve it: %s", f->why_not[0] ? "no, " : "yes\n");
    if (f->why_not[0]) {
        terminal_text_write(stdout, f->why_not, strlen(f->why_not));
        putchar('\n');
    }
    if (f->traits[0]) printf("%s\n", f->traits);
    print_types(f);
    print_tokenizer(f);
    print_templates(f);
    if (f->foretold) print_memory(&f->memory);
    printf("\nmetadata:\n");
    for (uint64_t i = 0; i < gguf_num_kvs(file); i++) {
        const gguf_kv *kv = gguf_kv_at(file, i);
        printf("  ");
        print_name(kv->key);
        printf(" = ");
        print_value(kv, 60);
        putchar('\n');
    }
    if (!with_tensors) return;
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
