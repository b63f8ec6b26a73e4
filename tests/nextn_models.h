/* nextn_models.h - the fields of tiny models with a head that guesses, of the two kinds whose files
 * carry one: latent attention, and a hybrid. */
#ifndef TESTS_NEXTN_MODELS_H
#define TESTS_NEXTN_MODELS_H

#include "tiny_models.h"

enum { NEXTN_VOCAB = 60 };

/* No mixture; q is made of a few numbers. */
#define NEXTN_LATENT                                                                               \
    .arch = "deepseek2", .vocab = NEXTN_VOCAB, .layers = 2, .dim = 64, .ffn = 96, .heads = 3,      \
    .kv_heads = 1, .head_dim = 40, .v_head_dim = 32, .rope_dim = 8, .q_rank = 32, .kv_rank = 32,   \
    .key = 28, .value = 16, .nextn = 1

/* Every second layer is one of attention. */
#define NEXTN_HYBRID                                                                               \
    .arch = "qwen35", .vocab = NEXTN_VOCAB, .dim = 64, .ffn = 96, .heads = 4, .kv_heads = 2,       \
    .head_dim = 16, .v_head_dim = 16, .rope_dim = 8, .taps = 3, .attention = 2, .state_heads = 2,  \
    .state_groups = 1, .state_key = 16, .state_value = 32, .nextn = 1

#endif
