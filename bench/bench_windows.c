/* bench_windows.c - how much context a gigabyte of KV cache holds when layers with a sliding
 * window have memory of their own, and when they mask; by the sizes that a server would choose
 * (engine_size.c), the arithmetic beside them. The last column is the price: running requests of
 * SHORT tokens, which need as much of the window side as of the other, beside those that a mask
 * has room for; --swa-full-tokens-ratio 1 makes it 1. */
#include "engine/engine_impl.h"
#include "sched/window_memory.h"

#include <stdio.h>

typedef struct model {
    const char *name;
    uint32_t layers, window_layers, kv_heads, head_dim, window;
} model;

static const model models[] = {{"gemma-2-2b", 26, 13, 4, 256, 4096},
                               {"gemma-2-9b", 42, 21, 8, 256, 4096},
                               {"gemma-2-27b", 46, 23, 16, 128, 4096},
                               {"mistral-7b-v0.1", 32, 32, 8, 128, 4096}};
static const uint32_t contexts[] = {8192, 32768};

enum { SHORT = 1024 };

static runner_info info_of(const model *m, uint32_t context)
{
    runner_info info = {.context_length = context,
                        .num_layers = m->layers,
                        .num_kv_heads = m->kv_heads,
                        .head_dim = m->head_dim,
                        .v_head_dim = m->head_dim,
                        .kv_dtype = RAD_BF16,
                        .window_layers = m->window_layers,
                        .sliding_window = m->window};
    return runner_with_token_bytes(info);
}

/* Contexts that both sides have room for, and the tokens in them. */
static uint64_t tokens_held(const model *m, uint32_t context, kv_sizes s)
{
    if (!s.window_tokens) return s.tokens;
    uint32_t needed = RAD_MIN(window_memory_least_pages(m->window, 1), context);
    double contexts_of_window = (double)s.window_tokens / needed;
    return (uint64_t)RAD_MIN((double)s.tokens, contexts_of_window * context);
}

int main(void)
{
    const uint64_t gigabytes = 32, bytes = gigabytes * 1000000000;
    printf("KV in bf16, pages of 1 token, chunks of 2048 tokens, %llu GB for the KV cache\n",
           (unsigned long long)gigabytes);
    printf("%-16s %7s %28s %36s %6s %6s\n", "", "context", "masked: tokens a GB",
           "apart: tokens a GB", "gain", "short");
    for (size_t i = 0; i < RAD_COUNT(models); i++)
        for (size_t k = 0; k < RAD_COUNT(contexts); k++) {
            const runner_info info = info_of(&models[i], contexts[k]);
            engine_params p = {.page_size = 1};
            const kv_sizes apart = kv_sizes_in(&p, &info, bytes);
            p.disable_hybrid_swa_memory = true;
            const kv_sizes masked = kv_sizes_in(&p, &info, bytes);
            const uint32_t layer = 2u * info.num_kv_heads * info.head_dim * 2;
            const uint64_t held = tokens_held(&models[i], contexts[k], apart);
            char by[64], here[64];
            snprintf(by, sizeof by, "%u x %u B: %llu", info.num_layers, layer,
                     (unsigned long long)(masked.tokens / gigabytes));
            snprintf(here, sizeof here, "(%u + %.3f x %u) x %u B: %llu",
                     info.num_layers - info.window_layers,
                     (double)apart.window_tokens / (double)apart.tokens, info.window_layers, layer,
                     (unsigned long long)(held / gigabytes));
            const uint64_t brief = tokens_held(&models[i], SHORT, apart);
            printf("%-16s %7u %28s %36s %5.2fx %5.2fx\n", models[i].name, contexts[k], by, here,
                   (double)held / (double)masked.tokens, (double)brief / (double)masked.tokens);
        }
    return 0;
}
