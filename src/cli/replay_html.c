/* replay_html.c - the report of a replay: one page with pictures, without scripts or other files.
 */
#include "cli/replay.h"
#include "cli/svg_chart.h"

#include <errno.h>
#include <stdio.h>

enum { MOST_CURVES = 8, MOST_PLACES = 64, NAME_BYTES = 96 };

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<title>radish "
    "replay</title>\n<style>\n"
    ":root{color-scheme:light "
    "dark;--bg:#fff;--fg:#1c1e21;--dim:#63696f;--line:#dfe2e6;--card:#f7f8f9;\n"
    "--s1:#c2255c;--s2:#1864ab;--s3:#2b8a3e;--s4:#d9730d;--s5:#6741d9;--s6:#0b7285;--s7:#868e96;"
    "--s8:#5c3d2e}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e6e8ea;--dim:#9aa1a8;--line:#"
    "33383e;"
    "--card:#1e2125;\n"
    "--s1:#f783ac;--s2:#74c0fc;--s3:#69db7c;--s4:#ffa94d;--s5:#b197fc;--s6:#3bc9db;--s7:#868e96;"
    "--s8:#d4b8a4}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;background:var(--bg);color:var(--fg);max-width:60rem;"
    "margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}p{margin:.3rem "
    "0}.dim{color:var(--dim)}\n"
    "svg{width:100%;height:auto;background:var(--card);border-radius:6px}\n"
    "svg text{font-size:12px;fill:var(--dim)}.grid{stroke:var(--line)}\n"
    ".curve{fill:none;stroke-width:2}.curve.dashed{stroke-dasharray:6 4}\n"
    ".key{display:inline-block;margin:0 1rem .3rem 0}.key "
    "i{display:inline-block;width:1.2rem;height:0;"
    "border-top:3px solid var(--c);margin-right:.4rem;vertical-align:middle}\n"
    ".key i.dashed{border-top-style:dashed}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:.15rem .7rem;text-align:right;border-bottom:1px solid var(--line)}"
    "th{font-weight:600}td:first-child,th:first-child{text-align:left}\n"
    ".exact{color:var(--s3)}.not{color:var(--s4)}\n</style></head><body>\n";

static double hit_rate(const simulate_result *r)
{
    return replay_ratio(r->hit_tokens, r->prompt_tokens);
}

/* 1234567 as 1.23M. */
static void short_count(char *text, size_t size, double n)
{
    static const char units[] = " kMGT";
    int unit = 0;
    while (n >= 999.5 && units[unit + 1]) { /* where %.3g would write 1e+03 */
        n /= 1000;
        unit++;
    }
    snprintf(text, size, unit ? "%.3g%c" : "%.3g", n, units[unit]);
}

/* A share that is not smaller, and that five lines divide well. */
static double round_share(double share)
{
    static const double round[] = {0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75};
    for (size_t i = 0; i < RAD_COUNT(round); i++)
        if (share <= round[i]) return round[i];
    return 1;
}

/* ---- what belongs together ---- */

/* Cells of one curve differ in nothing but their capacity. */
static bool same_curve(const replay_cell *a, const replay_cell *b)
{
    return !strcmp(a->policy, b->policy) && a->page_size == b->page_size &&
           a->servers == b->servers &&
           a->host_blocks * b->page_size == b->host_blocks * a->page_size && a->router == b->router;
}

static void name_of(const replay_plan *p, const replay_cell *c, char name[NAME_BYTES])
{
    char host[16];
    int len = snprintf(name, NAME_BYTES, "%s", c->policy);
    if (p->num_pages > 1)
        len += snprintf(name + len, NAME_BYTES - (size_t)len, ", pages of %u", c->page_size);
    short_count(host, sizeof host, (double)(c->host_blocks * replay_block_tokens(p, c)));
    if (p->tiers) len += snprintf(name + len, NAME_BYTES - (size_t)len, ", host %s", host);
    if (!p->fleet) return;
    len += snprintf(name + len, NAME_BYTES - (size_t)len, ", %u server%s", c->servers,
                    c->servers > 1 ? "s" : "");
    if (c->servers > 1 && !c->optimum)
        snprintf(name + len, NAME_BYTES - (size_t)len, ", %s", simulate_router_name(c->router));
}

typedef struct places { /* capacities in tokens, ascending, and their labels */
    uint64_t tokens[MOST_PLACES];
    char text[MOST_PLACES][16];
    const char *labels[MOST_PLACES];
    uint32_t count;
} places;

static uint64_t capacity_tokens(const replay_plan *p, const replay_cell *c)
{
    return c->capacity_blocks * replay_block_tokens(p, c);
}

static void add_place(places *x, uint64_t tokens)
{
    uint32_t at = 0;
    while (at < x->count && x->tokens[at] < tokens)
        at++;
    if (x->count == MOST_PLACES || (at < x->count && x->tokens[at] == tokens)) return;
    memmove(&x->tokens[at + 1], &x->tokens[at], (x->count++ - at) * sizeof *x->tokens);
    x->tokens[at] = tokens;
}

static places find_places(const replay_plan *p)
{
    places x = {0};
    for (uint32_t i = 0; i < p->num_cells; i++)
        add_place(&x, capacity_tokens(p, &p->cells[i]));
    return x;
}

static void label_places(places *x)
{
    for (uint32_t i = 0; i < x->count; i++) {
        short_count(x->text[i], sizeof x->text[i], (double)x->tokens[i]);
        x->labels[i] = x->text[i];
    }
}

/* The first cell of each curve; how many. */
static uint32_t find_curves(const replay_plan *p, const replay_cell *firsts[MOST_CURVES], bool *all)
{
    uint32_t count = 0;
    *all = true;
    for (uint32_t i = 0; i < p->num_cells; i++) {
        uint32_t k = 0;
        while (k < count && !same_curve(firsts[k], &p->cells[i]))
            k++;
        if (k < count) continue;
        if (count == MOST_CURVES) {
            *all = false;
            return count;
        }
        firsts[count++] = &p->cells[i];
    }
    return count;
}

/* ---- pictures ---- */

static void put_capacities(FILE *out, const replay_plan *p, places *x)
{
    const replay_cell *firsts[MOST_CURVES];
    bool all;
    const uint32_t count = find_curves(p, firsts, &all);
    svg_chart c = {
        .title = "hit rate by capacity", .percent = true, .count = x->count, .labels = x->labels};
    for (uint32_t i = 0; i < p->num_cells; i++)
        c.most = RAD_MAX(c.most, hit_rate(&p->cells[i].r));
    c.most = round_share(c.most);
    fputs("<h2>Prompt tokens found, by capacity</h2>\n<p class=\"dim\">Tokens of a server's pool.",
          out);
    fputs(all ? "</p>\n" : " The first curves; the table has all.</p>\n", out);
    char names[MOST_CURVES][NAME_BYTES];
    for (uint32_t k = 0; k < count; k++) {
        name_of(p, firsts[k], names[k]);
        svg_legend(out, k, firsts[k]->optimum, names[k]);
    }
    svg_begin(out, &c);
    for (uint32_t k = 0; k < count; k++) {
        double values[MOST_PLACES];
        for (uint32_t i = 0; i < x->count; i++)
            values[i] = -1;
        for (uint32_t i = 0; i < p->num_cells; i++)
            for (uint32_t m = 0; m < x->count && same_curve(firsts[k], &p->cells[i]); m++)
                if (x->tokens[m] == capacity_tokens(p, &p->cells[i]))
                    values[m] = hit_rate(&p->cells[i].r);
        svg_curve(out, &c, k, firsts[k]->optimum, names[k], values);
    }
    svg_end(out);
}

static void put_over_time(FILE *out, const replay_plan *p, const replay_cell *first)
{
    const char *labels[SIMULATE_SPANS];
    svg_chart c = {.title = "hit rate over time",
                   .percent = true,
                   .most = 1,
                   .count = SIMULATE_SPANS,
                   .labels = labels};
    for (uint32_t i = 0; i < SIMULATE_SPANS; i++)
        labels[i] = "";
    labels[0] = "begin";
    labels[SIMULATE_SPANS - 1] = "end";
    char name[NAME_BYTES], curve[NAME_BYTES];
    name_of(p, first, curve);
    fprintf(out,
            "<h2>Prompt tokens found, over time</h2>\n<p class=\"dim\">%s, by capacity, in %d "
            "equal spans.</p>\n",
            curve, SIMULATE_SPANS);
    for (int pass = 0; pass < 2; pass++) {
        uint32_t k = 0;
        if (pass) svg_begin(out, &c);
        for (uint32_t i = 0; i < p->num_cells && k < MOST_CURVES; i++) {
            const replay_cell *cell = &p->cells[i];
            if (!same_curve(first, cell)) continue;
            short_count(name, sizeof name, (double)capacity_tokens(p, cell));
            double values[SIMULATE_SPANS];
            for (uint32_t s = 0; s < SIMULATE_SPANS; s++)
                values[s] = cell->r.span_prompt[s]
                                ? replay_ratio(cell->r.span_hit[s], cell->r.span_prompt[s])
                                : -1;
            if (pass)
                svg_curve(out, &c, k, false, name, values);
            else
                svg_legend(out, k, false, name);
            k++;
        }
    }
    svg_end(out);
}

static bool is_any(const double *values, uint32_t count)
{
    while (count && !values[count - 1])
        count--;
    return count;
}

static void put_misses(FILE *out, const replay_plan *p, const replay_cell *first)
{
    static const char *const names[] = {"found",
                                        "evicted before",
                                        "on other servers",
                                        "in other namespaces",
                                        "in no whole page",
                                        "first seen"};
    static const unsigned colours[] = {2, 0, 4, 3, 5, 6};
    places x = {0};
    double parts[RAD_COUNT(names)][MOST_PLACES] = {{0}}, base[MOST_PLACES] = {0};
    for (uint32_t i = 0; i < p->num_cells; i++)
        if (same_curve(first, &p->cells[i])) add_place(&x, capacity_tokens(p, &p->cells[i]));
    label_places(&x);
    for (uint32_t i = 0; i < p->num_cells; i++)
        for (uint32_t m = 0; m < x.count && same_curve(first, &p->cells[i]); m++) {
            const simulate_result *r = &p->cells[i].r;
            if (x.tokens[m] != capacity_tokens(p, &p->cells[i])) continue;
            const uint64_t tokens[] = {r->hit_tokens,          r->misses.evicted,
                                       r->misses.other_server, r->misses.other_namespace,
                                       r->misses.rounded,      r->misses.first_seen};
            for (size_t k = 0; k < RAD_COUNT(names); k++)
                parts[k][m] = replay_ratio(tokens[k], r->prompt_tokens);
        }
    const svg_chart c = {.title = "where prompt tokens come from",
                         .percent = true,
                         .most = 1,
                         .count = x.count,
                         .labels = x.labels};
    char curve[NAME_BYTES];
    name_of(p, first, curve);
    fprintf(out,
            "<h2>Where prompt tokens come from</h2>\n<p class=\"dim\">%s, by capacity. First seen: "
            "no cache would "
            "have them.</p>\n",
            curve);
    for (size_t k = 0; k < RAD_COUNT(names); k++)
        if (is_any(parts[k], x.count)) svg_legend(out, colours[k], false, names[k]);
    svg_begin(out, &c);
    for (size_t k = 0; k < RAD_COUNT(names); k++) {
        svg_bars(out, &c, colours[k], names[k], base, parts[k]);
        for (uint32_t m = 0; m < x.count; m++)
            base[m] += parts[k][m];
    }
    svg_end(out);
}

static void put_reuse(FILE *out, const replay_plan *p, const replay_pages *pages)
{
    char text[REUSE_BUCKETS][16];
    const char *labels[REUSE_BUCKETS];
    double shares[REUSE_BUCKETS], sums[REUSE_BUCKETS];
    uint64_t all = pages->reuse_first, sum = 0;
    uint32_t count = 1;
    for (uint32_t i = 0; i < REUSE_BUCKETS; i++) {
        all += pages->reuse[i];
        if (pages->reuse[i]) count = i + 1;
    }
    const double block = (double)pages->page_size * trace_tokens_per_element(p->t);
    for (uint32_t i = 0; i < count; i++) {
        sum += pages->reuse[i];
        shares[i] = replay_ratio(pages->reuse[i], all);
        sums[i] = replay_ratio(sum, all);
        short_count(text[i], sizeof text[i], block * (double)((uint64_t)2 << i));
        labels[i] = count > 12 && i % 2 ? "" : text[i];
    }
    const svg_chart c = {.title = "reuse distances",
                         .percent = true,
                         .most = round_share(sums[count - 1]),
                         .count = count,
                         .labels = labels};
    fputs("<h2>How far apart uses are</h2>\n<p class=\"dim\">Of each page that is asked for: other "
          "pages of "
          "fewer than so many tokens were used since it was used last. The curve is the sum up to "
          "there: "
          "about what an LRU cache of so many tokens finds. ",
          out);
    fprintf(out, "Never used before: %.1f%%.</p>\n", 100 * replay_ratio(pages->reuse_first, all));
    svg_legend(out, 1, false, "of all pages asked for");
    svg_legend(out, 0, false, "their sum");
    svg_begin(out, &c);
    svg_bars(out, &c, 1, "at this distance", NULL, shares);
    svg_curve(out, &c, 0, false, "up to this distance", sums);
    svg_end(out);
}

/* ---- words and the table ---- */

static void put_summary(FILE *out, const replay_plan *p)
{
    const simulate_result *r = &p->cells[0].r;
    char tokens[16];
    fputs("<h1>radish replay</h1>\n<p>", out);
    svg_text(out, p->file);
    short_count(tokens, sizeof tokens, (double)r->prompt_tokens);
    fprintf(out, ": %llu requests, %s prompt tokens.</p>\n", (unsigned long long)r->requests,
            tokens);
    const replay_result *replay = p->replay;
    if (replay && replay_is_exact(replay))
        fprintf(out,
                "<p class=\"exact\">At the recorded setting the replay is exact: %llu of %llu "
                "prompt tokens cached, "
                "%llu evicted, as the server counted. Everything below is a model.</p>\n",
                (unsigned long long)replay->ours.cached_tokens,
                (unsigned long long)replay->ours.prompt_tokens,
                (unsigned long long)replay->ours.evicted_tokens);
    else if (replay)
        fprintf(out,
                "<p class=\"not\">The replay is not exact: %s. Everything below is a model.</p>\n",
                replay->inexact                   ? record_inexact_name(replay->inexact)
                : replay->lost || replay->unknown ? "operations are missing in the record"
                : replay->differences             ? "answers are not the server's"
                                      : "the record has no end with the server's counters");
    else
        fputs("<p>A model: one request after the other, in the order of the trace.</p>\n", out);
    if (p->prices_from)
        fprintf(out,
                "<p class=\"dim\">Times at %.3g ms for 1,000 prompt tokens and %.3g ms for a token "
                "of an answer, %s.</p>\n",
                1e6 * p->prices.prompt_token_s, 1e3 * p->prices.decode_s, p->prices_from);
}

static void put_table(FILE *out, const replay_plan *p)
{
    fputs("<h2>All cells</h2>\n<div "
          "class=\"wide\"><table><tr><th>policy<th>page<th>capacity<th>host<th>servers<th>router"
          "<th>found<th>host<th>storage<th>evicted before",
          out);
    if (p->prices_from) fputs("<th>saved s<th>first token s<th>95% s<th>busiest", out);
    fputs("</tr>\n", out);
    for (uint32_t i = 0; i < p->num_cells; i++) {
        const replay_cell *c = &p->cells[i];
        const simulate_result *r = &c->r;
        const double all = r->prompt_tokens ? (double)r->prompt_tokens : 1;
        char capacity[16], host[16];
        short_count(capacity, sizeof capacity, (double)capacity_tokens(p, c));
        short_count(host, sizeof host, (double)(c->host_blocks * replay_block_tokens(p, c)));
        fprintf(out, "<tr><td>%s<td>%u<td>%s<td>%s<td>%u<td>%s<td>%.2f%%", c->policy, c->page_size,
                capacity, host, c->servers,
                c->servers > 1 && !c->optimum ? simulate_router_name(c->router) : "",
                100 * hit_rate(r));
        if (c->optimum) {
            fputs("</tr>\n", out);
            continue;
        }
        fprintf(out, "<td>%.2f%%<td>%.2f%%<td>%.2f%%", 100 * (double)r->host_tokens / all,
                100 * (double)r->storage_tokens / all, 100 * (double)r->misses.evicted / all);
        if (p->prices_from)
            fprintf(out, "<td>%.1f<td>%.3f<td>%.3f<td>%.0f%%", r->saved_s, r->first_token_s,
                    r->first_token_p95_s, 100 * r->busiest);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

bool replay_write_html(const replay_plan *p, const char *path)
{
    FILE *out = fopen(path, "we");
    if (!out) return false;
    places x = find_places(p);
    label_places(&x);
    const replay_cell *first = &p->cells[0]; /* that is simulated */
    for (uint32_t i = 0; first->optimum && i < p->num_cells; i++)
        first = &p->cells[i];
    fputs(head, out);
    put_summary(out, p);
    put_capacities(out, p, &x);
    if (!first->optimum) {
        put_misses(out, p, first);
        put_over_time(out, p, first);
    }
    if (p->pages[0].has_reuse) put_reuse(out, p, &p->pages[0]);
    put_table(out, p);
    fputs("</body></html>\n", out);
    const bool written = !ferror(out);
    const int why = errno;
    if (fclose(out) == 0 && written) return true;
    if (!written) errno = why;
    return false;
}
