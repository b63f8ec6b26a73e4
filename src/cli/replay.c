/* replay.c - `radish replay`: what a cache of this size would find in this traffic. */
#include "cli/cli.h"
#include "replay/simulate.h"
#include "replay/trace_budget.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cell {
    const char *policy;
    uint32_t page_size;
    uint64_t capacity_blocks; /* pages of the pool */
    simulate_result r;
} cell;

typedef struct plan {
    const char *file;
    cli_list policies, page_sizes, capacity_tokens, capacity_blocks;
    const char *policy_config;
    bool json;
    double max_memory_gb;
} plan;

/* A whole number from 1 on; 0 for anything else. */
static uint64_t parse_count(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno ? n : 0;
}

static double ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static void print_cell_json(const cell *c, uint64_t tokens_per_block, bool first)
{
    printf("%s{\"policy\":\"%s\",\"page_size\":%u,\"capacity_blocks\":%llu,"
           "\"capacity_tokens\":%llu,\"block_hit_rate\":%.6f,\"token_hit_rate\":%.6f,"
           "\"hit_blocks\":%llu,\"hit_tokens\":%llu,\"prompt_blocks\":%llu,"
           "\"prompt_tokens\":%llu,\"compute_saved_rate\":%.6f,"
           "\"evicted_blocks\":%llu,\"too_large\":%llu,"
           "\"requests\":%llu,\"seconds\":%.6f}",
           first ? "" : ",", c->policy, c->page_size, (unsigned long long)c->capacity_blocks,
           (unsigned long long)(c->capacity_blocks * tokens_per_block),
           ratio(c->r.hit_blocks, c->r.prompt_blocks), ratio(c->r.hit_tokens, c->r.prompt_tokens),
           (unsigned long long)c->r.hit_blocks, (unsigned long long)c->r.hit_tokens,
           (unsigned long long)c->r.prompt_blocks, (unsigned long long)c->r.prompt_tokens,
           c->r.prompt_cost > 0 ? c->r.hit_cost / c->r.prompt_cost : 0,
           (unsigned long long)(c->r.evicted_elements / c->page_size),
           (unsigned long long)c->r.too_large, (unsigned long long)c->r.requests, c->r.seconds);
}

/* The head of the table stands above the first line: an error is not a table. */
static void print_cell_text(const cell *c, uint64_t tokens_per_block, bool first)
{
    if (first)
        printf("%-10s %9s %15s %15s %10s %10s %9s\n", "policy", "page size", "capacity blocks",
               "capacity tokens", "block hits", "token hits", "seconds");
    printf("%-10s %9u %15llu %15llu %10.4f %10.4f %9.3f\n", c->policy, c->page_size,
           (unsigned long long)c->capacity_blocks,
           (unsigned long long)(c->capacity_blocks * tokens_per_block),
           ratio(c->r.hit_blocks, c->r.prompt_blocks), ratio(c->r.hit_tokens, c->r.prompt_tokens),
           c->r.seconds);
    if (c->r.too_large)
        printf("    %llu requests did not fit this pool even alone and were not kept\n",
               (unsigned long long)c->r.too_large);
}

/* An error's words, and which option it is about. */
static int fail(const plan *p, rad_status status, const rad_error *err)
{
    if (status != RAD_E_NOMEM) return cli_fail("%s", err->text);
    return cli_fail("%s (--max-memory: %.3g GB)", err->text, p->max_memory_gb);
}

/* Every policy with every page size and capacity. */
static int run(const plan *p, const rad_env *env, trace *t)
{
    uint32_t per_element = trace_tokens_per_element(t);
    bool blocks = p->capacity_blocks.count > 0;
    const cli_list *caps = blocks ? &p->capacity_blocks : &p->capacity_tokens;
    uint32_t num_caps = caps->count ? caps->count : 1;
    bool first = true;
    if (p->json) printf("{\"file\":\"%s\",\"format\":\"%s\",\"cells\":[", p->file, trace_format(t));
    for (uint32_t i = 0; i < p->policies.count; i++)
        for (uint32_t k = 0; k < p->page_sizes.count; k++)
            for (uint32_t m = 0; m < num_caps; m++) {
                rad_error err = {0};
                cell c = {.policy = p->policies.texts[i],
                          .page_size = (uint32_t)parse_count(p->page_sizes.texts[k])};
                uint64_t block_tokens = (uint64_t)c.page_size * per_element;
                uint64_t cap = caps->count ? parse_count(caps->texts[m]) : trace_capacity_tokens(t);
                c.capacity_blocks = blocks ? cap : cap / block_tokens;
                simulate_params params = {.page_size = c.page_size,
                                          .capacity_elements = c.capacity_blocks * c.page_size};
                cli_eviction("replay", c.policy, p->policy_config, &params.eviction); /* checked */
                rad_status status = simulate(env, t, &params, &c.r, &err);
                if (status != RAD_OK) {
                    if (p->json) printf("]}\n");
                    return fail(p, status, &err);
                }
                if (p->json)
                    print_cell_json(&c, block_tokens, first);
                else
                    print_cell_text(&c, block_tokens, first);
                first = false;
            }
    if (p->json) printf("]}\n");
    return 0;
}

static int check(const plan *p)
{
    const cli_list *numbers[] = {&p->page_sizes, &p->capacity_tokens, &p->capacity_blocks};
    static const char *const names[] = {"page-size", "capacity-tokens", "capacity-blocks"};
    for (size_t i = 0; i < RAD_COUNT(numbers); i++)
        for (uint32_t k = 0; k < numbers[i]->count; k++) {
            uint64_t n = parse_count(numbers[i]->texts[k]);
            if (n < 1 || n > INT32_MAX)
                return cli_usage("replay", "--%s wants a whole number from 1 to %d, not '%s'",
                                 names[i], INT32_MAX, numbers[i]->texts[k]);
        }
    if (p->capacity_tokens.count && p->capacity_blocks.count)
        return cli_usage("replay", "give --capacity-tokens or --capacity-blocks, not both");
    for (uint32_t k = 0; k < p->policies.count; k++) {
        rad_eviction_options options;
        int code = cli_eviction("replay", p->policies.texts[k], p->policy_config, &options);
        if (code != CLI_GO_ON) return code;
    }
    if (!p->file) return cli_usage("replay", "which trace? (radish replay FILE)");
    return CLI_GO_ON;
}

int cmd_replay(int argc, char **argv)
{
    plan p = {0};
    char policies[160];
    const cli_manual manual = {
        .command = "replay",
        .usage = "replay FILE [options]",
        .about =
            "Plays a trace of requests through the cache itself, indices only, and says how much\n"
            "of the prompts it finds. Per request: match, lock, evict what is short, insert\n"
            "prompt and output, unlock. FILE is RXTRACE1 or Mooncake JSON lines, plain or gzip.\n"
            "A Mooncake hash id names a block of 512 tokens: one key element, page size 1.\n"
            "A line has at most 1 MiB; gzip may unpack to 200 times the file and 64 MiB.",
        .after = "  radish replay conversation_trace.jsonl.gz --capacity-blocks 10000 --json\n"
                 "  radish replay day.rxtrace --page-size 1 --page-size 16\n",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING,
         .help = "Cache (each may be given more than once; all are combined):"},
        {.kind = CLI_LIST,
         .name = "policy",
         .arg = "P",
         .target = &p.policies,
         .help = cli_eviction_names(policies, sizeof policies)},
        {.kind = CLI_TEXT,
         .name = "radix-eviction-policy-config",
         .arg = "JSON",
         .target = &p.policy_config,
         .help = "Options of the policy, as for serve: '{\"protected_threshold\":4}'."},
        {.kind = CLI_LIST,
         .name = "page-size",
         .arg = "N",
         .target = &p.page_sizes,
         .help = "Key elements per page. Default: 1."},
        {.kind = CLI_LIST,
         .name = "capacity-tokens",
         .arg = "N",
         .target = &p.capacity_tokens,
         .help = "Size of the pool in tokens. Default: what the file says."},
        {.kind = CLI_LIST,
         .name = "capacity-blocks",
         .arg = "N",
         .target = &p.capacity_blocks,
         .help = "Size of the pool in pages."},
        {.kind = CLI_F64,
         .name = "max-memory",
         .arg = "GB",
         .target = &p.max_memory_gb,
         .max = 1e6,
         .help = "The trace and one simulation may take so much. Default: half of what is\n"
                 "available; 0 = default."},
        {.kind = CLI_HEADING, .help = "Output:"},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &p.json,
         .help = "Print one JSON object with cells[]."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &p.file);
    if (!p.policies.count) p.policies = (cli_list){.texts = {"lru"}, .count = 1};
    if (code == CLI_GO_ON) code = check(&p);
    if (code != CLI_GO_ON) return code;
    if (!p.page_sizes.count) p.page_sizes = (cli_list){.texts = {"1"}, .count = 1};

    rad_error err = {0};
    trace *t = NULL;
    trace_budget budget;
    if (p.max_memory_gb == 0) p.max_memory_gb = (double)trace_budget_default() * 1e-9;
    rad_env env = trace_budget_env(&budget, NULL, (uint64_t)(p.max_memory_gb * 1e9));
    rad_status status = trace_load(&env, p.file, &t, &err);
    if (status != RAD_OK) return fail(&p, status, &err);
    if (!trace_capacity_tokens(t) && !p.capacity_tokens.count && !p.capacity_blocks.count)
        code = cli_usage("replay",
                         "%s names no capacity: give --capacity-tokens or "
                         "--capacity-blocks",
                         p.file);
    else
        code = run(&p, &env, t);
    trace_free(t);
    return code;
}
