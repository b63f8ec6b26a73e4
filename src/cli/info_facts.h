/* info_facts.h - what `radish info` tells of a model's file: the facts, found once (info_facts.c),
 * and two who print them, for a person (info_text.c) and for a program (info_json.c). */
#ifndef RADISH_CLI_INFO_FACTS_H
#define RADISH_CLI_INFO_FACTS_H

#include "engine/engine.h"
#include "gguf/gguf.h"

enum { INFO_MOST_TYPES = 64, INFO_MOST_TEMPLATES = 16 }; /* that are told */

typedef struct info_facts {
    const char *path;
    const gguf_file *file; /* its keys and its tensors, which both print one by one */
    gguf_str architecture; /* "?" when the file does not say it */
    uint64_t parameters, tensor_bytes;
    char why_not[200]; /* "": radish can serve it */
    char traits[400];  /* how the model differs from others; "" when it cannot be read */
    struct {
        uint32_t type; /* of tensors: */
        uint64_t count, bytes;
    } types[INFO_MOST_TYPES];
    uint32_t num_types;
    struct {
        bool is_there, has_pre; /* else the others are empty */
        gguf_str model, pre;
        uint64_t num_tokens;
    } tokenizer;
    gguf_str templates[INFO_MOST_TEMPLATES];
    uint32_t num_templates;
    bool foretold; /* memory is what a server would take */
    engine_memory memory;
} info_facts;

/* Texts lie in the file, and in `path`. Of tensors nothing is read. An error is one that loading
 * would meet; why it cannot be served, and that it does not fit, are facts. */
rad_status info_facts_find(const rad_env *env, const char *path, const gguf_file *file,
                           engine_params *params, info_facts *out, rad_error *err);

const char *info_value_type(gguf_type type); /* "u32" */

void info_print_text(const info_facts *f, bool with_tensors);
int info_print_json(const info_facts *f); /* the command's exit status: no memory */

#endif
