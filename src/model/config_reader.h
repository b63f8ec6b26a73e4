/* config_reader.h - GGUF keys of one architecture, each with the range it must be in.
 *
 * The first failure stays: what is read after it does nothing, so a list of keys can be
 * read without a check behind each. */
#ifndef MODEL_CONFIG_READER_H
#define MODEL_CONFIG_READER_H

#include "model/config.h"

typedef struct config_reader {
    const gguf_file *file;
    const char *arch; /* what keys begin with */
    rad_error *err;
    rad_status status; /* the first failure */
    char key[128];     /* the one read last, for messages */
} config_reader;

/* r->key = "ARCH.NAME" */
void config_key(config_reader *r, const char *name);

/* An integer in [1, most]. `absent` is its default; 0: the key must be there. */
uint32_t config_u32(config_reader *r, const char *name, uint32_t absent, uint32_t most);

/* The same, but a 0 in the file is fine and 0 is the default. */
uint32_t config_u32_or_0(config_reader *r, const char *name, uint32_t most);

/* A finite number > 0. `absent` is its default; 0: the key must be there. */
float config_f32(config_reader *r, const char *name, float absent);

/* A finite number >= 0, with a default that may be 0. */
float config_f32_or_0(config_reader *r, const char *name, float absent);

/* A bool, with a default. */
bool config_bool(config_reader *r, const char *name, bool absent);

/* One integer for all of `count` layers, or an array with one for each; all in [least, most].
 * `absent`: what all get without the key; below `least`: the key must be there. */
void config_u32s(config_reader *r, const char *name, uint32_t absent, uint32_t least, uint32_t most,
                 uint32_t *out, uint32_t count);

/* A key that must be absent, or a number (or bool) that changes nothing. */
void config_refuse(config_reader *r, const char *name, double neutral);

bool config_str_is(gguf_str s, const char *text);

/* Fails with what r->key is and "expected ...". */
rad_status config_misfit(config_reader *r, const char *expected);

/* config_arch.c: the architecture that the file names. */
rad_status config_find_arch(const gguf_file *file, const model_arch **out, rad_error *err);

/* config_layers.c: heads, feed-forward widths, windows and RoPE tables of all layers; what is
 * the model's alone is set, but for the tables. */
rad_status config_read_layers(config_reader *r, model_config *c);

/* config_experts.c: how many there are, how they are chosen; the layers that are mixtures. */
void config_read_experts(config_reader *r, model_config *c);

/* config_latent.c: MLA's sizes, and the scale of its scores, which YaRN changes. */
rad_status config_read_latent(config_reader *r, model_config *c);
float config_latent_scale(config_reader *r, const model_config *c);

/* config_recurrent.c: which layers are recurrent, and their sizes; the others' number. */
rad_status config_read_recurrent(config_reader *r, model_config *c);

/* config_rope.c: rope.* into c->ropes; c->rope_dim and context_length are set. */
rad_status config_read_rope(config_reader *r, uint32_t context, model_config *c);

#endif
