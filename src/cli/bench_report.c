/* bench_report.c - the suite's results as a table, JSON, CSV, Markdown and a picture. */
#include "cli/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static double hit_rate(uint64_t cached, uint64_t prompt)
{
    return prompt ? (double)cached / (double)prompt : 0;
}

static double best_hit_rate(const bench_row *r)
{
    return hit_rate(r->sums.prompt_tokens - r->sums.least_computed, r->sums.prompt_tokens);
}

static double rate(const run_result *r)
{
    return (double)(r->prompt_tokens + r->output_tokens) / r->wall_s;
}

void bench_print_row(const bench_row *r, bool first)
{
    const run_result *on = &r->runs[BENCH_ON], *off = &r->runs[BENCH_OFF];
    if (first)
        printf("%-24s %5s %6s %6s %8s %8s %7s %7s %7s %6s %11s %11s %6s\n", "workload", "pairs",
               "hits", "best", "off s", "on s", "gain", "bound", "of it", "tree", "first tok",
               "(off)", "sched");
    printf("%-24s %5u %5.1f%% %5.1f%% %8.2f %8.2f %6.2fx %6.2fx %6.0f%% %5.2fx %8.1f ms %8.1f ms "
           "%5.2f%%\n",
           r->name, r->pairs, 100 * hit_rate(on->cached_tokens, on->prompt_tokens),
           100 * best_hit_rate(r), off->wall_s, on->wall_s, r->speedup, r->bound,
           100 * r->speedup / r->bound, r->tree_speedup, on->ttft_p50_s * 1e3,
           off->ttft_p50_s * 1e3, 100 * r->schedule_share);
    fflush(stdout);
}

static void print_run(const char *name, const run_result *r)
{
    printf("\"%s\":{\"wall_s\":%.6f,\"tokens_per_s\":%.1f,\"cached_tokens\":%llu,"
           "\"ttft_p50_s\":%.6f,\"ttft_p99_s\":%.6f,\"latency_p50_s\":%.6f,"
           "\"latency_p99_s\":%.6f,\"digest\":\"%016llx\"},",
           name, r->wall_s, rate(r), (unsigned long long)r->cached_tokens, r->ttft_p50_s,
           r->ttft_p99_s, r->latency_p50_s, r->latency_p99_s, (unsigned long long)r->digest);
}

void bench_print_json(const bench_table *t)
{
    for (uint32_t i = 0; i < t->num_rows; i++) {
        const bench_row *r = &t->rows[i];
        printf("{\"bench\":\"suite\",\"workload\":\"%s\",\"calls\":%u,\"prompt_tokens\":%llu,"
               "\"output_tokens\":%llu,\"best_hit_rate\":%.4f,\"hit_rate\":%.4f,",
               r->name, r->runs[BENCH_ON].calls, (unsigned long long)r->sums.prompt_tokens,
               (unsigned long long)r->sums.output_tokens, best_hit_rate(r),
               hit_rate(r->runs[BENCH_ON].cached_tokens, r->sums.prompt_tokens));
        print_run("on", &r->runs[BENCH_ON]);
        print_run("off", &r->runs[BENCH_OFF]);
        print_run("no_tree_attention", &r->runs[BENCH_NO_TREE]);
        printf("\"speedup\":%.4f,\"bound\":%.4f,\"of_bound\":%.4f,\"tree_speedup\":%.4f,"
               "\"price_drift\":%.4f,\"on_priced\":%.4f,\"off_priced\":%.4f,\"schedule_share\":%."
               "6f,\"concurrency\":%u,\"pairs\":%u,\"pairs_again\":%u}\n",
               r->speedup, r->bound, r->speedup / r->bound, r->tree_speedup, r->price_drift,
               r->on_priced, r->off_priced, r->schedule_share, t->concurrency, r->pairs,
               r->pairs_again);
    }
}

/* ---- files ---- */

/* For appending: nothing that is there is lost before there is something to put in its place. */
rad_status bench_file_open(bench_file *f, rad_error *err)
{
    if (!f->path) return RAD_OK;
    f->made = access(f->path, F_OK) != 0;
    f->to = fopen(f->path, "a");
    if (f->to) return RAD_OK;
    return rad_fail(err, RAD_E_IO, "cannot write '%s': %s", f->path, strerror(errno));
}

rad_status bench_file_write(bench_file *f, const bench_table *t, bench_writer *write,
                            rad_error *err)
{
    if (!f->to) return RAD_OK;
    struct stat st;
    bool failed = fstat(fileno(f->to), &st) != 0 ||
                  (S_ISREG(st.st_mode) && ftruncate(fileno(f->to), 0) != 0);
    if (!failed) write(t, f->to);
    failed = failed || ferror(f->to);
    failed = fclose(f->to) != 0 || failed;
    f->to = NULL;
    if (!failed) return RAD_OK;
    return rad_fail(err, RAD_E_IO, "cannot write '%s': %s", f->path, strerror(errno));
}

void bench_file_discard(bench_file *f)
{
    if (!f->to) return;
    fclose(f->to);
    if (f->made) remove(f->path);
    f->to = NULL;
}

void bench_write_csv(const bench_table *t, FILE *out)
{
    fprintf(out, "workload,calls,prompt_tokens,output_tokens,best_hit_rate,hit_rate,off_s,on_s,"
                 "no_tree_s,on_tokens_per_s,off_tokens_per_s,on_ttft_p50_s,off_ttft_p50_s,"
                 "on_ttft_p99_s,off_ttft_p99_s,speedup,bound,of_bound,tree_speedup,"
                 "price_drift,on_priced,off_priced,schedule_share,pairs,pairs_again\n");
    for (uint32_t i = 0; i < t->num_rows; i++) {
        const bench_row *r = &t->rows[i];
        const run_result *on = &r->runs[BENCH_ON], *off = &r->runs[BENCH_OFF];
        fprintf(out, "%s,%u,%llu,%llu,%.4f,%.4f,%.4f,%.4f,%.4f,%.1f,%.1f,%.6f,%.6f,%.6f,%.6f,",
                r->name, on->calls, (unsigned long long)r->sums.prompt_tokens,
                (unsigned long long)r->sums.output_tokens, best_hit_rate(r),
                hit_rate(on->cached_tokens, on->prompt_tokens), off->wall_s, on->wall_s,
                r->runs[BENCH_NO_TREE].wall_s, rate(on), rate(off), on->ttft_p50_s, off->ttft_p50_s,
                on->ttft_p99_s, off->ttft_p99_s);
        fprintf(out, "%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.6f,%u,%u\n", r->speedup, r->bound,
                r->speedup / r->bound, r->tree_speedup, r->price_drift, r->on_priced, r->off_priced,
                r->schedule_share, r->pairs, r->pairs_again);
    }
}

void bench_write_markdown(const bench_table *t, FILE *out)
{
    fprintf(out, "%s, %s, %s, %s, %u calls at a time, page size %u.\n\n", t->model_name, t->dtype,
            t->attn_backend, t->computes_on, t->concurrency, t->page_size);
    fprintf(out,
            "| workload | pairs | prompt + output tokens | hit rate (best) | off s | on s | gain | "
            "bound | of it | tree attention | first token on / off |\n"
            "|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < t->num_rows; i++) {
        const bench_row *r = &t->rows[i];
        const run_result *on = &r->runs[BENCH_ON], *off = &r->runs[BENCH_OFF];
        fprintf(out,
                "| %s | %u | %llu + %llu | %.3f (%.3f) | %.2f | %.2f | %.2fx | %.2fx | %.0f%% | "
                "%.2fx | %.1f / %.1f ms |\n",
                r->name, r->pairs, (unsigned long long)r->sums.prompt_tokens,
                (unsigned long long)r->sums.output_tokens,
                hit_rate(on->cached_tokens, on->prompt_tokens), best_hit_rate(r), off->wall_s,
                on->wall_s, r->speedup, r->bound, 100 * r->speedup / r->bound, r->tree_speedup,
                on->ttft_p50_s * 1e3, off->ttft_p50_s * 1e3);
    }
}

/* Bars on a logarithmic axis from 1/2 to the largest bound: a gain of 40 beside one of 2. */
void bench_write_svg(const bench_table *t, FILE *out)
{
    enum { LEFT = 190, BAR = 500, ROW = 26, TOP = 70, RIGHT = 90 };
    double most = 2;
    for (uint32_t i = 0; i < t->num_rows; i++)
        most = RAD_MAX(most, RAD_MAX(t->rows[i].bound, t->rows[i].speedup));
    double least = 0.5, width = BAR / log2(most / least);
    unsigned height = TOP + t->num_rows * ROW + 30;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
            "viewBox=\"0 0 %d %u\" font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
            "<text x=\"16\" y=\"24\" font-size=\"16\" fill=\"#222\">Shared prefixes: time without "
            "the cache / time with it</text>\n"
            "<text x=\"16\" y=\"44\" fill=\"#666\">%s, %s, %s, %u calls at a time. Bar: "
            "measured. Line: the best that sharing could give.</text>\n",
            LEFT + BAR + RIGHT, height, LEFT + BAR + RIGHT, height, t->model_name, t->dtype,
            t->computes_on, t->concurrency);
    for (double x = least; x <= most; x *= 2) {
        double at = LEFT + log2(x / least) * width;
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%u\" stroke=\"%s\"/>\n"
                "<text x=\"%.1f\" y=\"%u\" text-anchor=\"middle\" fill=\"#666\">%gx</text>\n",
                at, TOP - 8, at, height - 26, x == 1 ? "#888" : "#e4e4e4", at, height - 8, x);
    }
    for (uint32_t i = 0; i < t->num_rows; i++) {
        const bench_row *r = &t->rows[i];
        double one = LEFT + log2(1 / least) * width, y = TOP + i * ROW;
        double end = LEFT + log2(RAD_MAX(r->speedup, least) / least) * width;
        double bound = LEFT + log2(RAD_MAX(r->bound, least) / least) * width;
        fprintf(out,
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#222\">%s</text>\n"
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\" fill=\"#c2185b\"/>\n"
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#222\" "
                "stroke-width=\"2\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" fill=\"#222\">%.2fx</text>\n",
                LEFT - 10, y + 13, r->name, RAD_MIN(one, end), y, RAD_MAX(fabs(end - one), 1.0),
                bound, y - 3, bound, y + 19, RAD_MAX(end, bound) + 6, y + 13, r->speedup);
    }
    fprintf(out, "</svg>\n");
}
