/* logits.c - `radish logits`: the numbers behind every position of a prompt.
 *
 * No engine: one batch over a pool made for it, so that what is printed is the model
 * and nothing else. */
#include "cli/cli.h"
#include "engine/engine_device.h"

#include <stdio.h>
#include <stdlib.h>

struct one_batch { /* what one batch of one request needs */
    rad_req_to_token_pool *rows;
    rad_token_to_kv_pool *kv;
    rad_token_to_kv_pool *window; /* of layers that see one, where their K/V are not as the others';
                                   * its slots are the same */
    rad_state_pool *states;       /* NULL: the model has none */
    runner *model;
    uint32_t *positions; /* also the logits' indices */
    rad_slot *slots;
};

static void fini(struct one_batch *p)
{
    free(p->positions);
    free(p->slots);
    rad_req_to_token_pool_destroy(p->rows);
    rad_token_to_kv_pool_destroy(p->kv); /* the runner's memory */
    rad_token_to_kv_pool_destroy(p->window);
    rad_state_pool_destroy(p->states);
    runner_destroy(p->model);
}

static rad_status init(struct one_batch *p, const rad_env *env, const model_options *o,
                       const gguf_file *file, uint32_t n, rad_error *err)
{
    model_runner_params params = {.dtype = o->parsed_dtype,
                                  .weights = o->parsed_weights,
                                  .max_batch_tokens = n,
                                  .max_batch_logits = n,
                                  .num_threads = o->threads,
                                  .progress = cli_progress,
                                  .progress_user = (void *)(uintptr_t)o->model};
    rad_status status =
        engine_make_runner(env, file, o->device, o->dtype_auto, &params, &p->model, err);
    if (status != RAD_OK) return status;
    const runner_info *info = &p->model->info;
    if (n > info->context_length)
        return rad_fail(err, RAD_E_INVAL, "the prompt has %u tokens, the context is %u tokens long",
                        n, info->context_length);
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 1, .row_tokens = n};
    status = rad_req_to_token_pool_create(env, &rows, &p->rows, err);
    if (status == RAD_OK)
        status = runner_create_pool(
            p->model, env, runner_layers_differ(info) ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS, n,
            1, &p->kv, err);
    if (status == RAD_OK && runner_layers_differ(info))
        status = runner_create_pool(p->model, env, RUNNER_WINDOW_LAYERS, n, 1, &p->window, err);
    if (status == RAD_OK) status = runner_create_state_pool(p->model, env, 1, &p->states, err);
    if (status != RAD_OK) return status;
    p->positions = calloc(n, sizeof *p->positions);
    p->slots = calloc(n, sizeof *p->slots);
    if (!p->positions || !p->slots) return rad_fail(err, RAD_E_NOMEM, "no memory for %u ids", n);
    return RAD_OK;
}

static rad_status forward(struct one_batch *p, const rad_token *ids, uint32_t n,
                          const float **logits, rad_error *err)
{
    rad_row row;
    uint32_t zero = 0;
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)ids[i] >= p->model->info.vocab_size)
            return rad_fail(err, RAD_E_INVAL, "token %d is outside the vocabulary of %u", ids[i],
                            p->model->info.vocab_size);
    rad_status status = rad_req_to_token_alloc(p->rows, &row);
    if (status != RAD_OK) return status;
    const rad_state beginning = 0;
    rad_state state = 0;
    if (p->states) status = rad_state_alloc(p->states, &state);
    if (status != RAD_OK) return status;
    rad_slot *line = rad_req_to_token_row(p->rows, row);
    for (uint32_t i = 0; i < n; i++) {
        p->positions[i] = i;
        p->slots[i] = line[i] = (rad_slot)(i + 1); /* slot 0 is the dummy page */
    }
    forward_batch batch = {
        .num_reqs = 1,
        .num_tokens = n,
        .input_ids = ids,
        .positions = p->positions,
        .out_cache_loc = p->slots,
        .req_pool_indices = &row,
        .seq_lens = &n,
        .extend_prefix_lens = &zero,
        .extend_seq_lens = &n,
        .extend_start_loc = &zero,
        .num_logits = n,
        .logits_indices = p->positions,
        .req_to_token_pool = p->rows,
        .token_to_kv_pool = p->kv,
        .window_rows = p->window ? p->rows : NULL,
        .window_kv_pool = p->window,
        .window_out_cache_loc = p->window ? p->slots : NULL,
        .state_pool = p->states,
        .state_in = &beginning,
        .state_out = &state,
    };
    return runner_forward(p->model, &batch, logits, err);
}

static void print_json(const float *logits, uint32_t n, uint32_t vocab_size)
{
    printf("{\"logits\":[");
    for (uint32_t i = 0; i < n; i++) {
        printf(i ? ",[" : "[");
        for (uint32_t v = 0; v < vocab_size; v++)
            printf("%s%.9g", v ? "," : "", (double)logits[(size_t)i * vocab_size + v]);
        printf("]");
    }
    printf("]}\n");
}

/* The five largest of each position. */
static void print_best(const rad_token *ids, const float *logits, uint32_t n, uint32_t vocab_size)
{
    for (uint32_t i = 0; i < n; i++) {
        const float *line = logits + (size_t)i * vocab_size;
        uint32_t best[5], count = 0;
        for (uint32_t v = 0; v < vocab_size; v++) {
            uint32_t at = count < 5 ? count++ : 5;
            for (; at && line[best[at - 1]] < line[v]; at--)
                if (at < 5) best[at] = best[at - 1];
            if (at < 5) best[at] = v;
        }
        printf("after %6d at %4u:", ids[i], i);
        for (uint32_t k = 0; k < count; k++)
            printf("  %u (%.4f)", best[k], (double)line[best[k]]);
        printf("\n");
    }
}

int cmd_logits(int argc, char **argv)
{
    model_options model = {0};
    const char *ids_text = NULL, *positional = NULL;
    bool json = false;
    const cli_manual manual = {
        .command = "logits",
        .usage = "logits -m MODEL --ids 1,5,9 [options]",
        .about = "Computes a prompt in one batch and prints the logits after each of its tokens.",
    };
    const cli_option options[] = {
        {.kind = CLI_TEXT,
         .name = "ids",
         .arg = "1,5,9",
         .target = &ids_text,
         .help = "The prompt as token ids."},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &json,
         .help = "Print one JSON object: {\"logits\":[[...] per position]}. Without it: the\n"
                 "five largest of each position."},
        MODEL_OPTIONS(&model),
        DEVICE_OPTION(&model),
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &positional);
    if (code == CLI_GO_ON) code = model_options_check("logits", &model, positional);
    if (code != CLI_GO_ON) return code;
    if (!ids_text) return cli_usage("logits", "which prompt? --ids 1,5,9");

    rad_token *ids;
    uint32_t n;
    if (cli_parse_ids(ids_text, &ids, &n) != 0)
        return cli_usage("logits", "--ids wants numbers and commas, not '%.60s'", ids_text);
    rad_env env = cli_env(&model);
    rad_error err = {0};
    gguf_file *file = NULL;
    struct one_batch p = {0};
    const float *logits = NULL;
    code = 0;
    if (gguf_open(&env, model.model, &file, &err) != RAD_OK ||
        init(&p, &env, &model, file, n, &err) != RAD_OK ||
        forward(&p, ids, n, &logits, &err) != RAD_OK)
        code = cli_fail("%s", err.text);
    else if (json)
        print_json(logits, n, p.model->info.vocab_size);
    else
        print_best(ids, logits, n, p.model->info.vocab_size);
    fini(&p);
    gguf_close(file);
    free(ids);
    return code;
}
