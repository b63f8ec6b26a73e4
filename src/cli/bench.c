/* bench.c - `radish bench`: how fast this model is here, and what sharing prefixes gives. */
#include "cli/bench.h"

#include "base/thread_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static rad_status make_engine(bench_plan *plan, uint32_t max_running, uint64_t populate,
                              rad_error *err)
{
    bench_engine *b = &plan->engine;
    if (!max_running) max_running = plan->scaling ? BENCH_MOST_RUNNING : BENCH_RUNNING;
    if (b->e && b->max_running != max_running) bench_engine_free(plan);
    if (b->e) return bench_engine_mode(plan, BENCH_ON, err);
    b->max_running = max_running;
    step_log_init(&b->log, &plan->env);
    const engine_params params = {
        .model_path = plan->model->model,
        .dtype = plan->model->parsed_dtype,
        .dtype_by_device = plan->model->dtype_auto,
        .device = plan->model->device,
        .weights = plan->model->parsed_weights,
        .kv_cache_dtype = plan->kv_cache_dtype,
        .num_threads = plan->model->threads,
        .max_total_tokens = plan->max_total_tokens,
        .max_running_requests = max_running,
        .page_size = plan->page_size,
        .context_length = plan->context_length,
        .on_step = step_log_add,
        .step_user = &b->log,
        .random_seed = 1,
        .speculative_algorithm = plan->with_drafts ? plan->draft_sources : NULL,
        .speculative_num_draft_tokens = plan->with_drafts ? plan->draft_tokens : 0,
        .speculative_ngram_capacity = plan->with_drafts ? CLI_RECENT_TOKENS : 0,
        .kv_populate_ahead = populate,
        .progress = plan->quiet ? NULL : cli_progress,
        .progress_user = (void *)(uintptr_t)plan->model->model,
    };
    return engine_create(&plan->env, &params, &b->e, err);
}

rad_status bench_engine_start(bench_plan *plan, rad_error *err)
{
    return make_engine(plan, 0, 0, err);
}

rad_status bench_engine_make(bench_plan *plan, uint32_t max_running, rad_error *err)
{
    rad_status status = make_engine(plan, max_running, UINT64_MAX, err);
    if (status != RAD_OK) return status;
    if (!plan->quiet) fprintf(stderr, "making the memory of the KV pool ready ...\r");
    const bool ready = engine_await_populated(plan->engine.e);
    if (!plan->quiet) fputs("\033[K", stderr);
    if (!ready)
        fprintf(stderr,
                "radish bench: not all memory of the KV pool could be made ready: the first "
                "steps that write somewhere take longer (--log-level info says why)\n");
    return RAD_OK;
}

void bench_engine_free(bench_plan *plan)
{
    bench_engine *b = &plan->engine;
    engine_destroy(b->e);
    if (b->e) step_log_fini(&b->log);
    b->e = NULL;
}

rad_status bench_engine_mode(bench_plan *plan, bench_mode mode, rad_error *err)
{
    return engine_set_cache(plan->engine.e, mode == BENCH_OFF, mode == BENCH_NO_TREE, err);
}

static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; at; at = strchr(at, ','), at += at != NULL)
        if (!strncmp(at, word, len) && (!at[len] || at[len] == ',')) return true;
    return false;
}

/* Every word of the list is one of those; the first that is not, else NULL. */
static const char *unknown_word(const char *list, const char *const *known, size_t count)
{
    static char word[64];
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ","), i = 0;
        snprintf(word, sizeof word, "%.*s", (int)RAD_MIN(len, sizeof word - 1), at);
        while (i < count && strcmp(known[i], word) != 0)
            i++;
        if (i == count) return word;
        at += len + (at[len] == ',');
    }
    return NULL;
}

/* What the suite writes beside its table. */
enum { CSV = 0, SVG, MARKDOWN, FILES };
static bench_writer *const WRITERS[FILES] = {bench_write_csv, bench_write_svg,
                                             bench_write_markdown};

static int report(const bench_table *table, bench_file files[FILES], bool json)
{
    rad_error err = {0};
    rad_status status = RAD_OK;
    if (json) bench_print_json(table);
    for (int i = 0; i < FILES && status == RAD_OK; i++)
        status = bench_file_write(&files[i], table, WRITERS[i], &err);
    return status == RAD_OK ? 0 : cli_fail("%s", err.text);
}

/* With the cache on, off, and on again without reading shared blocks once, every answer is
 * the same token for token. */
static int check_answers(const bench_table *table)
{
    int code = 0;
    for (uint32_t i = 0; i < table->num_rows; i++) {
        const run_result *r = table->rows[i].runs;
        if (r[BENCH_ON].digest != r[BENCH_OFF].digest ||
            r[BENCH_ON].digest != r[BENCH_NO_TREE].digest)
            code = cli_fail("%s: the answers differ between cache on and off", table->rows[i].name);
    }
    return code;
}

static int measure(bench_plan *plan, const char *what, bench_file files[FILES])
{
    static bench_table table;
    rad_error err = {0};
    rad_status status =
        bench_suite_check(plan, has_word(what, "suite"), has_word(what, "drafts"), &err);
    int code = 0;
    for (int i = 0; i < FILES && status == RAD_OK; i++)
        status = bench_file_open(&files[i], &err);
    if (status == RAD_OK && has_word(what, "start")) status = bench_start(plan, &err);
    if (status == RAD_OK && has_word(what, "speed")) status = bench_speed(plan, &err);
    if (status == RAD_OK && has_word(what, "tree")) status = bench_tree(plan, &err);
    if (status == RAD_OK && has_word(what, "drafts")) status = bench_drafts(plan, &err);
    if (status == RAD_OK && plan->scaling) status = bench_scaling(plan, &err);
    if (status == RAD_OK && has_word(what, "suite")) {
        status = bench_suite(plan, &table, &err);
        if (status == RAD_OK) {
            code = report(&table, files, plan->json);
            if (!code) code = check_answers(&table);
        }
    }
    return status == RAD_OK ? code : cli_fail("%s", err.text);
}

/* Of the thread that asks. */
static uint64_t own_cpu_ns(void *user)
{
    (void)user;
    return thread_time_ns();
}

int cmd_bench(int argc, char **argv)
{
    static const char *const whats[] = {"start", "speed", "tree", "drafts", "suite", "scaling"};
    model_options model = {0};
    bench_plan plan = {.concurrency = 16,
                       .pairs = 1,
                       .max_total_tokens = 0,
                       .draft_sources = CLI_DRAFT_SOURCES,
                       .draft_tokens = CLI_DRAFT_TOKENS};
    const char *positional = NULL, *what = "speed,suite", *scale = NULL;
    const char *sources = NULL;
    bench_file files[FILES] = {0};
    bool concurrency = false, pairs = false, draft_tokens = false;
    const cli_manual manual = {
        .command = "bench",
        .usage = "bench -m MODEL [options]",
        .about = "Measures prefill, decode and mixed steps, and the workloads of SGLang's paper\n"
                 "with the prefix cache on and off, each beside the best that sharing can give.\n"
                 "All of it runs in this process; answers of all runs are compared.",
        .after = "Examples:\n"
                 "  radish bench model.gguf\n"
                 "  radish bench model.gguf --what suite --workload react --pairs 5\n"
                 "  radish bench model.gguf --what suite --csv suite.csv --svg suite.svg",
    };
    const cli_option options[] = {
        {.kind = CLI_HEADING, .help = "What:"},
        {.kind = CLI_TEXT,
         .name = "what",
         .arg = "LIST",
         .target = &what,
         .help = "start (from nothing to ready for a request, three times),\n"
                 "speed (prefill, decode, mixed), tree (many requests behind one prefix, its\n"
                 "K/V read once or by each), drafts (answers with guessed tokens and without, by\n"
                 "kinds of text), suite (the paper's workloads), scaling (contexts that grow, and\n"
                 "1 to 512 running requests, each beside its bound). Default: speed,suite."},
        {.kind = CLI_LIST,
         .name = "workload",
         .arg = "NAME",
         .target = &plan.workloads,
         .help = "Only this one of the suite, or of drafts one of\n" BENCH_DRAFTS_NAMES
                 ".\nMay be given more than once."},
        {.kind = CLI_TEXT,
         .name = "scale",
         .arg = "cpu|paper",
         .target = &scale,
         .help = "Lengths of the suite: about a quarter of the paper's, or the paper's."},
        {.kind = CLI_U32,
         .name = "concurrency",
         .arg = "N",
         .target = &plan.concurrency,
         .min = 1,
         .max = 4096,
         .given = &concurrency,
         .help = "Calls of the suite that run at one time. Default 16."},
        {.kind = CLI_U32,
         .name = "pairs",
         .arg = "N",
         .target = &plan.pairs,
         .min = 1,
         .max = 101,
         .given = &pairs,
         .help = "Runs of the suite with and without the cache, in turn; medians are shown. "
                 "Default 1;\n"
                 "a workload that shares nothing gets at least 9. Of drafts: 7."},
        {.kind = CLI_TEXT,
         .name = "speculative-algorithm",
         .arg = "LIST",
         .target = &sources,
         .help = "Who guesses, of drafts: as radish serve has it. Default\n" CLI_DRAFT_SOURCES "."},
        {.kind = CLI_U32,
         .name = "speculative-num-draft-tokens",
         .arg = "N",
         .target = &plan.draft_tokens,
         .min = 1,
         .max = 64,
         .given = &draft_tokens,
         .help = "At most so many tokens of a request at one time, of drafts. Default " NUMBER(
             CLI_DRAFT_TOKENS) "."},
        {.kind = CLI_FLAG,
         .name = "cpu-time",
         .target = &plan.cpu_time,
         .help = "Of drafts: one thread computes, and its CPU time is what counts, so that others\n"
                 "on this machine hardly do."},
        {.kind = CLI_HEADING, .help = "Output:"},
        {.kind = CLI_TEXT,
         .name = "csv",
         .arg = "FILE",
         .target = &files[CSV].path,
         .help = "The suite as CSV."},
        {.kind = CLI_TEXT,
         .name = "svg",
         .arg = "FILE",
         .target = &files[SVG].path,
         .help = "The suite as a picture: measured speed-up beside its bound."},
        {.kind = CLI_TEXT,
         .name = "markdown",
         .arg = "FILE",
         .target = &files[MARKDOWN].path,
         .help = "The suite as a Markdown table."},
        {.kind = CLI_FLAG,
         .name = "json",
         .target = &plan.json,
         .help = "JSON on stdout instead of tables, an object per line."},
        MODEL_OPTIONS(&model),
        DEVICE_OPTION(&model),
        {.kind = CLI_U64,
         .name = "max-total-tokens",
         .arg = "N",
         .target = &plan.max_total_tokens,
         .help = "KV pool of the engine; all its memory is taken before anything is measured but\n"
                 "the start. Default: as radish serve would size it."},
        {.kind = CLI_TEXT,
         .name = "kv-cache-dtype",
         .arg = "TYPE",
         .values = CLI_KV_TYPES,
         .target = &plan.kv_cache_dtype,
         .help = CLI_KV_TYPES "; see radish serve --help."},
        {.kind = CLI_U32,
         .name = "page-size",
         .arg = "N",
         .target = &plan.page_size,
         .max = 1024,
         .help = "Tokens per page. Default 1."},
        {.kind = CLI_U32,
         .name = "context-length",
         .arg = "N",
         .target = &plan.context_length,
         .help = "Default: the model's. --what scaling goes up to this."},
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &positional);
    if (code == CLI_GO_ON) code = model_options_check("bench", &model, positional);
    if (code != CLI_GO_ON) return code;
    const char *unknown = unknown_word(what, whats, RAD_COUNT(whats));
    if (unknown || !*what)
        return cli_usage("bench",
                         "--what is a list of start, speed, tree, drafts, suite, scaling; not '%s'",
                         unknown ? unknown : what);
    const struct {
        const char *option;
        bool given;
    } of_suite[] = {
        {"csv", files[CSV].path},
        {"svg", files[SVG].path},
        {"markdown", files[MARKDOWN].path},
        {"workload", plan.workloads.count && !has_word(what, "drafts")},
        {"scale", scale},
        {"concurrency", concurrency},
        {"pairs", pairs && !has_word(what, "drafts")},
    };
    for (size_t i = 0; i < RAD_COUNT(of_suite) && !has_word(what, "suite"); i++)
        if (of_suite[i].given)
            return cli_usage("bench", "--%s is of the suite, and --what %s has none",
                             of_suite[i].option, what);
    if ((sources || draft_tokens) && !has_word(what, "drafts"))
        return cli_usage("bench", "--speculative-%s is of drafts, and --what %s has none",
                         sources ? "algorithm" : "num-draft-tokens", what);
    if (plan.cpu_time && strcmp(what, "drafts") != 0)
        return cli_usage("bench", "--cpu-time is of drafts alone, not of --what %s", what);
    if (plan.cpu_time && model.threads > 1)
        return cli_usage("bench", "--cpu-time is of one thread, not of %u", model.threads);
    if (plan.cpu_time) model.threads = 1;
    if (sources) plan.draft_sources = sources;
    if (!scale) scale = "cpu";
    if (strcmp(scale, "cpu") != 0 && strcmp(scale, "paper") != 0)
        return cli_usage("bench", "--scale is cpu or paper, not '%s'", scale);
    if (plan.json && (files[CSV].path || files[SVG].path || files[MARKDOWN].path))
        return cli_usage("bench", "--json goes alone, not with --csv, --svg or --markdown");
    plan.env = cli_env(&model);
    if (plan.cpu_time) plan.env.now_ns = own_cpu_ns;
    plan.model = &model;
    plan.paper_size = !strcmp(scale, "paper");
    plan.scaling = has_word(what, "scaling");
    plan.pairs_given = pairs;
    plan.quiet = plan.json || !isatty(STDERR_FILENO);

    code = measure(&plan, what, files);
    for (int i = 0; i < FILES; i++)
        bench_file_discard(&files[i]);
    bench_engine_free(&plan);
    return code;
}
