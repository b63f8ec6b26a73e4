/* test_figures.c - the table of figures: each name once, the values of a metric together, and
 * each value read where it lies. */
#include "test.h"

#include "base/base.h"
#include "server/figures.h"

TEST(each_figure_has_a_name_of_its_own)
{
    size_t count;
    const figure *rows = figures_table(&count);
    for (size_t i = 0; i < count; i++) {
        const figure *a = &rows[i];
        CHECK(a->name || a->metric);
        CHECK(!a->metric == !a->label);
        CHECK(a->at < sizeof(server_figures));
        if (a->seconds && a->name)
            CHECKF(strstr(a->name, "_ns"), "%s is counted in nanoseconds\n", a->name);
        for (size_t k = i + 1; k < count; k++) {
            const figure *b = &rows[k];
            CHECKF(!a->name || !b->name || strcmp(a->name, b->name), "%s twice\n", a->name);
            CHECKF(!a->metric || !b->metric || strcmp(a->metric, b->metric) ||
                       strcmp(a->label, b->label),
                   "%s%s twice\n", a->metric, a->label);
        }
    }
}

/* Help and type come once, before a metric's first value, as the format has it; whoever is not
 * told one of its values is told none. */
TEST(the_values_of_a_metric_stand_together)
{
    size_t count;
    const figure *rows = figures_table(&count), *before = NULL;
    for (size_t i = 0; i < count; i++) {
        const figure *row = &rows[i];
        if (!row->metric) continue;
        bool same = before && strcmp(before->metric, row->metric) == 0;
        CHECKF(same == !row->type && !row->type == !row->help, "%s\n", row->metric);
        if (row->type) /* others' names have no colon: promtool */
            CHECKF(!strchr(row->metric, ':') || !strncmp(row->metric, "sglang:", 7), "%s\n",
                   row->metric);
        if (same) CHECK(row->tells == before->tells && row->tiers == before->tiers);
        if (same) CHECK(row->window == before->window && row->states == before->states);
        bool counts = row->type && strcmp(row->type, "counter") == 0;
        if (row->type)
            CHECKF(counts ==
                       (strstr(row->metric, "_total") != NULL && !strstr(row->metric, "_total_")),
                   "%s\n", row->metric);
        for (size_t k = 0; !same && k < i; k++)
            CHECKF(!rows[k].metric || strcmp(rows[k].metric, row->metric), "%s\n", row->metric);
        before = row;
    }
}

static const figure *find(const char *name)
{
    size_t count;
    const figure *rows = figures_table(&count);
    for (size_t i = 0; i < count; i++)
        if ((rows[i].name && !strcmp(rows[i].name, name)) ||
            (rows[i].metric && !strcmp(rows[i].metric, name)))
            return &rows[i];
    fail_msg("no figure is called %s", name);
    return NULL;
}

TEST(a_figure_is_read_where_it_lies)
{
    server_figures f = {.engine = {.requests = {.num_requests = 11},
                                   .sched = {.num_running = 3,
                                             .prompt_tokens = 1000,
                                             .cached_tokens = 250,
                                             .loaded_tokens = 90,
                                             .fetched_tokens = 40,
                                             .max_total_tokens = 400,
                                             .available_tokens = 100,
                                             .evictable_tokens = 200,
                                             .window_total_tokens = 80,
                                             .window_available_tokens = 50,
                                             .window_evictable_tokens = 6,
                                             .kv_errors = 5,
                                             .forward_ns = 1500000000,
                                             .self_check = {.num_checks = 7, .num_violations = 2},
                                             .tiers = {.refused_loads = {0, 0, 0, 6}}}}};
    figures_derive(&f);
    const struct {
        const char *name;
        double value;
    } wanted[] = {{"num_requests", 11},
                  {"num_running_reqs", 3},
                  {"kv_errors", 5},
                  {"self_checks", 7},
                  {"radish_self_check_violations_total", 2},
                  {"forward_ns", 1.5},
                  {"sglang:cached_tokens_total", 160}, /* the first of it, the device's */
                  {"fetched_tokens", 40},
                  {"sglang:num_used_tokens", 100},
                  {"sglang:kv_used_tokens", 300},
                  {"sglang:token_usage", 0.3}, /* of both pools the fuller one's */
                  {"sglang:full_token_usage", 0.25},
                  {"swa_max_total_num_tokens", 80},
                  {"swa_available_tokens", 50},
                  {"sglang:swa_evictable_tokens", 6},
                  {"sglang:swa_used_tokens", 30},
                  {"sglang:swa_num_used_tokens", 24},
                  {"sglang:swa_token_usage", 0.3},
                  {"sglang:cache_hit_rate", 0.25}};
    for (size_t i = 0; i < RAD_COUNT(wanted); i++) {
        double value = figure_value(find(wanted[i].name), &f);
        CHECKF(value == wanted[i].value, "%s is %g\n", wanted[i].name, value);
    }
    CHECK(figure_count(find("forward_ns"), &f) == 1500000000);
}

/* ---- docs/metrics.md ---- */

static char *read_docs(void)
{
    FILE *f = fopen(RADISH_SOURCE_DIR "/docs/metrics.md", "r");
    char *text = calloc(1, 1 << 16);
    CHECK(f && text);
    size_t len = fread(text, 1, (1 << 16) - 1, f);
    CHECK(len > 1000 && len < (1 << 16) - 1);
    fclose(f);
    return text;
}

static bool is_metric(const char *name, size_t len)
{
    static const char *const others[] = {"radish_http_responses_total", "radish_device_info",
                                         "radish_build_info"};
    size_t count;
    const figure *rows = figures_table(&count);
    for (size_t i = 0; i < count; i++)
        if (rows[i].metric && strlen(rows[i].metric) == len && !memcmp(rows[i].metric, name, len))
            return true;
    for (int kind = 0; kind < LATENCY_KINDS; kind++)
        if (strlen(latency_metrics[kind].metric) == len &&
            !memcmp(latency_metrics[kind].metric, name, len))
            return true;
    for (size_t i = 0; i < RAD_COUNT(others); i++)
        if (strlen(others[i]) == len && !memcmp(others[i], name, len)) return true;
    return false;
}

/* With its type and the same words; and no other is there. */
TEST(each_metric_has_its_row_in_the_docs)
{
    size_t count;
    const figure *rows = figures_table(&count);
    char *docs = read_docs(), row[400];
    for (size_t i = 0; i < count; i++) {
        if (!rows[i].metric || !rows[i].type) continue;
        snprintf(row, sizeof row, "\n| `%s` | %s | %s", rows[i].metric, rows[i].type, rows[i].help);
        CHECKF(strstr(docs, row) != NULL, "docs/metrics.md has no row %s\n", row + 1);
    }
    for (int kind = 0; kind < LATENCY_KINDS; kind++) {
        snprintf(row, sizeof row, "\n| `%s` | histogram | %s", latency_metrics[kind].metric,
                 latency_metrics[kind].help);
        CHECKF(strstr(docs, row) != NULL, "docs/metrics.md has no row %s\n", row + 1);
    }
    for (const char *at = docs; (at = strstr(at, "\n| `"));) {
        at += 4;
        size_t len = strcspn(at, "`");
        CHECKF(is_metric(at, len), "docs/metrics.md: %.*s is no metric\n", (int)len, at);
    }
    free(docs);
}

TEST_MAIN()
