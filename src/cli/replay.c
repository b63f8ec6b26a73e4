/* replay.c - `radish replay`: what a cache of this size would find in this traffic. */
#include "cli/replay.h"
#include "base/available.h"
#include "replay/trace_budget.h"
#include "replay/trace_bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { SWEEP_CAPACITIES = 7 }; /* all that is different, half of it, ... */

typedef struct asked { /* the command line */
    cli_list policies, page_sizes, capacity_tokens, capacity_blocks, host_tokens, servers, routers;
    const char *storage_tokens, *html;
    bool sweep, opt;
    double prefill_tps, decode_tps, load_tps, fetch_tps;
} asked;

/* A whole number from 1 on; 0 for anything else. */
static uint64_t parse_count(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno ? n : 0;
}

static bool is_zero(const char *text)
{
    return strcmp(text, "0") == 0;
}

/* ROUTERS for none. */
static unsigned parse_router(const char *text)
{
    unsigned i = 0;
    while (i < ROUTERS && strcmp(text, simulate_router_name(i)) != 0)
        i++;
    return i;
}

int replay_fail(const replay_plan *p, rad_status status, const rad_error *err)
{
    if (status != RAD_E_NOMEM) return cli_fail("%s", err->text);
    return cli_fail("%s (--max-memory: %.3g GB)", err->text, p->max_memory_gb);
}

/* ---- what was asked for ---- */

static int check(const replay_plan *p, const asked *a)
{
    const struct {
        const cli_list *list;
        const char *name;
        uint64_t most;
        bool none; /* 0 is fine */
    } numbers[] = {{&a->page_sizes, "page-size", INT32_MAX, false},
                   {&a->capacity_tokens, "capacity-tokens", INT32_MAX, false},
                   {&a->capacity_blocks, "capacity-blocks", INT32_MAX, false},
                   {&a->host_tokens, "host-tokens", (uint64_t)1 << 50, true},
                   {&a->servers, "servers", SIMULATE_MOST_SERVERS, false}};
    for (size_t i = 0; i < RAD_COUNT(numbers); i++)
        for (uint32_t k = 0; k < numbers[i].list->count; k++) {
            const char *text = numbers[i].list->texts[k];
            uint64_t n = parse_count(text);
            if ((n < 1 && !(numbers[i].none && is_zero(text))) || n > numbers[i].most)
                return cli_usage("replay", "--%s wants a whole number from %d to %llu, not '%s'",
                                 numbers[i].name, !numbers[i].none,
                                 (unsigned long long)numbers[i].most, text);
        }
    if (a->capacity_tokens.count && a->capacity_blocks.count)
        return cli_usage("replay", "give --capacity-tokens or --capacity-blocks, not both");
    for (uint32_t k = 0; k < a->routers.count; k++)
        if (parse_router(a->routers.texts[k]) == ROUTERS)
            return cli_usage("replay", "--router is round-robin, hash or cache, not '%s'",
                             a->routers.texts[k]);
    if (a->storage_tokens && !parse_count(a->storage_tokens) &&
        strcmp(a->storage_tokens, "all") != 0)
        return cli_usage("replay",
                         "--storage-tokens wants a whole number from 1 on, or all, not "
                         "'%s'",
                         a->storage_tokens);
    if (!p->file) return cli_usage("replay", "which trace? (radish replay FILE)");
    return CLI_GO_ON;
}

/* Of the policies that will be played, those by default too. */
static int check_policies(const replay_plan *p, const asked *a)
{
    bool any = false;
    for (uint32_t k = 0; k < a->policies.count; k++) {
        rad_eviction_options options;
        if (strcmp(a->policies.texts[k], REPLAY_OPT) == 0) continue;
        int code = cli_eviction("replay", a->policies.texts[k], p->policy_config, &options);
        if (code != CLI_GO_ON) return code;
        any = true;
    }
    if (p->policy_config && !any)
        return cli_usage("replay", "--radix-eviction-policy-config: opt has no options");
    return CLI_GO_ON;
}

/* A price of loading or saying says nothing without that of computing. */
static int check_prices(const replay_plan *p, const asked *a)
{
    if (a->decode_tps + a->load_tps + a->fetch_tps == 0 || a->prefill_tps > 0 ||
        trace_get_prices(p->t).prompt_token_s > 0)
        return CLI_GO_ON;
    return cli_usage("replay", "times need --prefill-tps: %s",
                     p->replay ? "the record's server had not measured it yet"
                               : "only a record brings a measured one");
}

/* Given ones, or those that a record's server has measured. */
static void set_prices(replay_plan *p, const asked *a)
{
    const trace_prices measured = trace_get_prices(p->t);
    simulate_prices *price = &p->prices;
    *price = (simulate_prices){.prompt_token_s = measured.prompt_token_s,
                               .pair_s = measured.pair_s,
                               .decode_s = measured.decode_s};
    if (price->prompt_token_s > 0) p->prices_from = "as the server measured them";
    if (a->prefill_tps > 0) {
        price->prompt_token_s = 1 / a->prefill_tps;
        price->pair_s = price->prompt_token_s / RAD_EVICT_COST_ATTENTION_TOKENS;
        p->prices_from = "as given";
    }
    if (a->decode_tps > 0) price->decode_s = 1 / a->decode_tps;
    if (a->load_tps > 0) price->load_token_s = 1 / a->load_tps;
    if (a->fetch_tps > 0) price->fetch_token_s = 1 / a->fetch_tps;
    if (!trace_has_times(p->t) || price->prompt_token_s <= 0) { /* nothing to wait for */
        *price = (simulate_prices){0};
        p->prices_from = NULL;
    }
}

/* ---- the cells ---- */

/* Numbers for each page size, where somebody needs them. */
static rad_status number_pages(replay_plan *p, const asked *a, rad_error *err)
{
    rad_status status = RAD_OK;
    p->pages = rad_alloc(p->env, a->page_sizes.count * sizeof *p->pages);
    if (!p->pages) return rad_fail(err, RAD_E_NOMEM, "no memory for a plan");
    p->num_pages = a->page_sizes.count;
    for (uint32_t i = 0; i < p->num_pages; i++)
        p->pages[i].page_size = (uint32_t)parse_count(a->page_sizes.texts[i]);
    for (uint32_t i = 0; i < p->num_pages && p->misses && status == RAD_OK; i++)
        status = page_chains_make(p->env, p->t, p->pages[i].page_size, &p->pages[i].chains, err);
    if (status != RAD_OK || !a->html) return status;
    replay_pages *first = &p->pages[0];
    first->has_reuse = true;
    return page_chains_reuse(p->env, first->chains, p->t, first->reuse, &first->reuse_first, err);
}

typedef struct axis { /* the capacities of a page size, in blocks */
    uint64_t blocks[64];
    uint32_t count;
} axis;

static axis capacities(const replay_plan *p, const asked *a, const replay_pages *pages)
{
    axis x = {0};
    const uint64_t block = (uint64_t)pages->page_size * trace_tokens_per_element(p->t);
    const cli_list *list = a->capacity_blocks.count ? &a->capacity_blocks : &a->capacity_tokens;
    for (uint32_t i = 0; i < list->count && x.count < RAD_COUNT(x.blocks); i++)
        x.blocks[x.count++] = parse_count(list->texts[i]) /
                              (list == &a->capacity_blocks ? 1 : block);
    if (x.count) return x;
    if (!a->sweep) {
        x.blocks[x.count++] = trace_capacity_tokens(p->t) / block;
        return x;
    }
    const uint64_t longest = trace_longest(p->t) / pages->page_size + 1;
    for (uint32_t i = SWEEP_CAPACITIES; i-- > 0;) {
        const uint64_t blocks = RAD_MIN(((uint64_t)pages->chains->num_ids + 1) >> i, INT32_MAX / 2);
        if (blocks >= longest || !i) x.blocks[x.count++] = RAD_MAX(blocks, longest);
    }
    return x;
}

static bool add_cell(replay_plan *p, uint32_t *cap, const replay_cell *cell)
{
    if (p->num_cells == *cap) {
        const uint32_t more = *cap ? 2 * *cap : 64;
        replay_cell *cells = more > 1 << 20 ? NULL : realloc(p->cells, more * sizeof *cells);
        if (!cells) return false;
        p->cells = cells;
        *cap = more;
    }
    p->cells[p->num_cells++] = *cell;
    return true;
}

static rad_status too_small(const replay_plan *p, const asked *a, const replay_cell *c, uint32_t at,
                            rad_error *err)
{
    const char *given = at < a->capacity_tokens.count ? a->capacity_tokens.texts[at]
                                                      : "what the file says";
    return rad_fail(err, RAD_E_INVAL, "--capacity-tokens: %s is less than a page of %llu tokens",
                    given, (unsigned long long)replay_block_tokens(p, c));
}

/* Every policy with every page size, capacity, host tier, number of servers and router. */
static rad_status make_cells(replay_plan *p, const asked *a, rad_error *err)
{
    uint32_t cap = 0;
    bool ok = true;
    for (uint32_t i = 0; i < a->policies.count; i++)
        for (uint32_t k = 0; k < p->num_pages; k++) {
            const axis x = capacities(p, a, &p->pages[k]);
            for (uint32_t m = 0; m < x.count; m++)
                for (uint32_t h = 0; h < a->host_tokens.count; h++)
                    for (uint32_t s = 0; s < a->servers.count; s++)
                        for (uint32_t r = 0; ok && r < a->routers.count; r++) {
                            replay_cell c = {.policy = a->policies.texts[i],
                                             .page_size = p->pages[k].page_size,
                                             .capacity_blocks = x.blocks[m],
                                             .router = parse_router(a->routers.texts[r])};
                            c.servers = (uint32_t)parse_count(a->servers.texts[s]);
                            c.host_blocks = parse_count(a->host_tokens.texts[h]) /
                                            replay_block_tokens(p, &c);
                            c.optimum = strcmp(c.policy, REPLAY_OPT) == 0;
                            if (!c.capacity_blocks) return too_small(p, a, &c, m, err);
                            /* One server has no router before it, and the optimum none at all. */
                            if (r && (c.servers == 1 || c.optimum)) continue;
                            ok = add_cell(p, &cap, &c);
                        }
        }
    return ok ? RAD_OK : rad_fail(err, RAD_E_LIMIT, "more cells than a plan may have");
}

static int run(replay_plan *p, const asked *a)
{
    rad_error err = {0};
    set_prices(p, a);
    rad_status status = number_pages(p, a, &err);
    if (status == RAD_OK) status = make_cells(p, a, &err);
    if (status == RAD_OK) status = replay_run(p, &err);
    int code = status == RAD_OK ? 0 : replay_fail(p, status, &err);
    if (!code) replay_print(p);
    if (!code && a->html && !replay_write_html(p, a->html))
        code = cli_fail("%s: %s", a->html, strerror(errno));
    for (uint32_t i = 0; i < p->num_pages; i++)
        page_chains_free(p->pages[i].chains);
    rad_free(p->env, p->pages, p->num_pages * sizeof *p->pages);
    free(p->cells);
    return code;
}

/* ---- a file ---- */

static void set_default(cli_list *list, const char *text)
{
    if (!list->count) list->texts[list->count++] = text;
}

static void add_optimum(cli_list *policies)
{
    for (uint32_t i = 0; i < policies->count; i++)
        if (strcmp(policies->texts[i], REPLAY_OPT) == 0) return;
    if (policies->count < CLI_LIST_MAX) policies->texts[policies->count++] = REPLAY_OPT;
}

static void set_defaults(replay_plan *p, asked *a)
{
    static const char *const sweep[] = {"lru", "lfu", "slru", "cost"};
    for (size_t i = 0; a->sweep && !a->policies.count && i < RAD_COUNT(sweep); i++)
        a->policies.texts[i] = sweep[i];
    if (a->sweep && !a->policies.count) a->policies.count = RAD_COUNT(sweep);
    set_default(&a->policies, "lru");
    set_default(&a->page_sizes, "1");
    set_default(&a->host_tokens, "0");
    set_default(&a->servers, "1");
    set_default(&a->routers, simulate_router_name(ROUTE_ROUND_ROBIN));
    if (a->sweep || a->opt) add_optimum(&a->policies);
    p->tiers = a->host_tokens.count > 1 || !is_zero(a->host_tokens.texts[0]);
    p->fleet = a->servers.count > 1 || parse_count(a->servers.texts[0]) > 1;
    if (a->storage_tokens)
        p->storage_tokens = strcmp(a->storage_tokens, "all") == 0 ? UINT64_MAX
                                                                  : parse_count(a->storage_tokens);
    p->misses = a->sweep || a->html || p->tiers || p->fleet || p->storage_tokens;
    for (uint32_t i = 0; i < a->policies.count; i++)
        p->misses = p->misses || strcmp(a->policies.texts[i], REPLAY_OPT) == 0;
    if (!p->threads) p->threads = cpus_available();
}

static int replay_bytes(replay_plan *p, asked *a, const trace_bytes *b)
{
    rad_error err = {0}, why = {0};
    replay_result result;
    rad_status status = RAD_OK;
    if (trace_is_record(b->data, b->len)) {
        status = replay_record(p->env, b->data, b->len, &result, &why);
        p->replay = &result;
    }
    if (status == RAD_OK) status = trace_parse(p->env, b->data, b->len, &p->t, &why);
    int code;
    if (status != RAD_OK) {
        rad_fail(&err, status, "%s: %s", p->file, why.text);
        code = replay_fail(p, status, &err);
    } else if (!trace_capacity_tokens(p->t) && !a->capacity_tokens.count &&
               !a->capacity_blocks.count && !a->sweep) {
        code = cli_usage("replay",
                         "%s names no capacity: give --capacity-tokens or "
                         "--capacity-blocks",
                         p->file);
    } else {
        code = check_prices(p, a);
        if (code == CLI_GO_ON) code = run(p, a);
    }
    trace_free(p->t);
    return code;
}

int cmd_replay(int argc, char **argv)
{
    replay_plan p = {0};
    asked a = {0};
    char policies[200], names[160], words[170];
    snprintf(words, sizeof words, "%s, opt", cli_eviction_names(names, sizeof names));
    const cli_manual manual = {
        .command = "replay",
        .usage = "replay FILE [options]",
        .about =
            "Plays a trace of requests through the cache itself, indices only, and says how much\n"
            "of the prompts it finds. Per request: match, lock, evict what is short, insert\n"
            "prompt and output, unlock. FILE is a record (radish serve --record), RXTRACE1 or\n"
            "Mooncake JSON lines, plain or gzip. A Mooncake hash id names a block of 512 tokens:\n"
            "one key element, page size 1. Of a record an element is a page of its server's; its\n"
            "operations are replayed first as they were, and compared with what the server\n"
            "counted. A line has at most 1 MiB; gzip may unpack to 200 times the file and 64 MiB.",
        .after = "  radish replay conversation_trace.jsonl.gz --capacity-blocks 10000 --json\n"
                 "  radish replay day.rxtrace --page-size 1 --page-size 16\n"
                 "  radish replay server.rec --sweep --html report.html\n",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING,
         .help = "Cache (each may be given up to 16 times; all are combined):"},
        {.kind = CLI_LIST,
         .name = "policy",
         .arg = "P",
         .values = words,
         .target = &a.policies,
         .help = cli_wrap(policies, sizeof policies, "%s; or opt, what nobody could do better.",
                          names)},
        {.kind = CLI_LIST,
         .name = "page-size",
         .arg = "N",
         .target = &a.page_sizes,
         .help = "Key elements per page. Default: 1."},
        {.kind = CLI_LIST,
         .name = "capacity-tokens",
         .arg = "N",
         .target = &a.capacity_tokens,
         .help = "Size of the pool in tokens. Default: what the file says."},
        {.kind = CLI_LIST,
         .name = "capacity-blocks",
         .arg = "N",
         .target = &a.capacity_blocks,
         .help = "Size of the pool in pages."},
        {.kind = CLI_LIST,
         .name = "host-tokens",
         .arg = "N",
         .target = &a.host_tokens,
         .help = "Size of the host tier below it; 0, the default: none."},
        {.kind = CLI_LIST,
         .name = "servers",
         .arg = "N",
         .target = &a.servers,
         .help = "So many of them, with a router before them. Default: 1."},
        {.kind = CLI_LIST,
         .name = "router",
         .arg = "R",
         .values = "round-robin, hash or cache",
         .target = &a.routers,
         .help = "round-robin (default); hash: of a prompt's first 4 pages; cache: to the server\n"
                 "that has most of it, unless it is far busier."},
        {.kind = CLI_HEADING, .help = "Plan:"},
        {.kind = CLI_TEXT,
         .name = "radix-eviction-policy-config",
         .arg = "JSON",
         .target = &p.policy_config,
         .help = "Options of the policy, as for serve: '{\"protected_threshold\":4}'."},
        {.kind = CLI_FLAG,
         .name = "sweep",
         .target = &a.sweep,
         .help =
             "What is not given: up to seven capacities, the last of all that is different; lru,\n"
             "lfu, slru, cost; and opt."},
        {.kind = CLI_FLAG,
         .name = "opt",
         .target = &a.opt,
         .help = "The offline optimum too: with the largest tier of all servers in one cache."},
        {.kind = CLI_TEXT,
         .name = "storage-tokens",
         .arg = "N|all",
         .target = &a.storage_tokens,
         .help = "A storage that all servers share. Default: none."},
        {.kind = CLI_F64,
         .name = "prefill-tps",
         .arg = "N",
         .target = &a.prefill_tps,
         .max = 1e12,
         .help = "Prompt tokens that a server computes a second: tells of times, where the trace\n"
                 "has some. Default: what a record's server has measured; 0 = default."},
        {.kind = CLI_F64,
         .name = "decode-tps",
         .arg = "N",
         .target = &a.decode_tps,
         .max = 1e12,
         .help = "Tokens that it says a second, all its requests together; 0 = default, likewise."},
        {.kind = CLI_F64,
         .name = "load-tps",
         .arg = "N",
         .target = &a.load_tps,
         .max = 1e12,
         .help = "Tokens that it loads from its host tier a second; 0 = default: in no time."},
        {.kind = CLI_F64,
         .name = "fetch-tps",
         .arg = "N",
         .target = &a.fetch_tps,
         .max = 1e12,
         .help = "And from the storage."},
        {.kind = CLI_U32,
         .name = "threads",
         .arg = "N",
         .target = &p.threads,
         .max = 256,
         .help = "Cells at one time. Default: one per CPU; 0 = default."},
        {.kind = CLI_F64,
         .name = "max-memory",
         .arg = "GB",
         .target = &p.max_memory_gb,
         .max = 1e6,
         .help = "The trace and the simulations may take so much. Default: half of what is\n"
                 "available; 0 = default."},
        {.kind = CLI_HEADING, .help = "Output:"},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &p.json,
         .help = "Print one JSON object with cells[]."},
        {.kind = CLI_TEXT,
         .name = "html",
         .arg = "FILE",
         .target = &a.html,
         .help = "Write a report with pictures, one page that needs nothing else."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &p.file);
    if (code == CLI_GO_ON) code = check(&p, &a);
    if (code != CLI_GO_ON) return code;
    set_defaults(&p, &a);
    code = check_policies(&p, &a);
    if (code != CLI_GO_ON) return code;

    rad_error err = {0};
    trace_budget budget;
    trace_bytes bytes;
    if (p.max_memory_gb == 0) p.max_memory_gb = (double)trace_budget_default() * 1e-9;
    rad_env env = trace_budget_env(&budget, NULL, (uint64_t)(p.max_memory_gb * 1e9));
    p.env = &env;
    rad_status status = trace_bytes_read(&env, p.file, &bytes, &err);
    if (status != RAD_OK) return replay_fail(&p, status, &err);
    code = replay_bytes(&p, &a, &bytes);
    trace_bytes_free(&bytes);
    return code;
}
