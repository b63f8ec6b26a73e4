/* replay_print.c - a replay and its cells as text or JSON. */
#include "cli/replay.h"

#include <stdio.h>

/* ---- the replay of a record ---- */

static const char *const end_names[] = {
    [RECORD_STOPPED] = "stopped", [RECORD_LIMIT] = "limit", [RECORD_CUT] = "cut"};

static const char *end_words(record_end end)
{
    switch (end) {
    case RECORD_STOPPED: return "";
    case RECORD_LIMIT: return "; it ends at its --record-limit";
    default: return "; it has no end: the server was killed, or is running";
    }
}

static void print_counters_json(const char *name, const record_counters *c, bool tiers)
{
    printf("\"%s\":{\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"evicted_tokens\":%llu,"
           "\"inserted_tokens\":%llu,\"nodes\":%llu,\"splits\":%llu,\"merges\":%llu",
           name, (unsigned long long)c->prompt_tokens, (unsigned long long)c->cached_tokens,
           (unsigned long long)c->evicted_tokens, (unsigned long long)c->inserted_tokens,
           (unsigned long long)c->num_nodes, (unsigned long long)c->splits,
           (unsigned long long)c->merges);
    if (tiers)
        printf(",\"written_tokens\":%llu,\"loaded_tokens\":%llu,\"host_evicted_tokens\":%llu",
               (unsigned long long)c->written_tokens, (unsigned long long)c->loaded_tokens,
               (unsigned long long)c->host_evicted_tokens);
    printf("}");
}

static void print_replay_json(const replay_plan *p)
{
    const replay_result *r = p->replay;
    printf("\"replay\":{\"exact\":%s,\"end\":\"%s\",\"operations\":%llu,\"requests\":%llu,"
           "\"finished\":%llu,\"aborted\":%llu,\"failed\":%llu,\"duration_s\":%.3f,"
           "\"differences\":%llu,\"lost_operations\":%llu,\"unknown_operations\":%llu,",
           replay_is_exact(r) ? "true" : "false", end_names[r->end],
           (unsigned long long)r->operations, (unsigned long long)r->requests,
           (unsigned long long)r->finished, (unsigned long long)r->aborted,
           (unsigned long long)r->failed, 1e-6 * (double)r->duration_us,
           (unsigned long long)r->differences, (unsigned long long)r->lost,
           (unsigned long long)r->unknown);
    if (r->inexact) printf("\"why_not_exact\":\"%s\",", record_inexact_name(r->inexact));
    if (r->first_difference[0]) printf("\"first_difference\":\"%s\",", r->first_difference);
    print_counters_json("counters", &r->ours, r->has_tiers);
    printf(",");
    print_counters_json("recorded_counters", &r->recorded, r->has_tiers);
    printf("},");
}

static void print_replay_text(const replay_plan *p)
{
    const replay_result *r = p->replay;
    const record_head *h = &r->head;
    printf(
        "record: %llu requests in %.1f s, %llu operations; pool %llu tokens, pages of %llu, %s%s\n",
        (unsigned long long)r->requests, 1e-6 * (double)r->duration_us,
        (unsigned long long)r->operations, (unsigned long long)h->max_total_tokens,
        (unsigned long long)h->page_size, rad_eviction_policy_name((uint32_t)h->policy),
        end_words(r->end));
    if (r->lost || r->unknown)
        printf("  incomplete: %llu operations are missing\n",
               (unsigned long long)(r->lost + r->unknown));
    if (r->inexact) printf("  no exact replay: %s\n", record_inexact_name(r->inexact));
    if (r->differences)
        printf("  %llu answers are not the server's; the first, %s\n",
               (unsigned long long)r->differences, r->first_difference);
    if (!r->comparisons) printf("  the server's counters are not in it\n");
    printf("  %s: %llu prompt tokens, %llu cached, %llu inserted, %llu evicted\n",
           replay_is_exact(r) ? "exact, as the server counted" : "replayed",
           (unsigned long long)r->ours.prompt_tokens, (unsigned long long)r->ours.cached_tokens,
           (unsigned long long)r->ours.inserted_tokens, (unsigned long long)r->ours.evicted_tokens);
    if (r->has_tiers)
        printf("  host tier: %llu tokens written to it, %llu loaded, %llu evicted there\n",
               (unsigned long long)r->ours.written_tokens,
               (unsigned long long)r->ours.loaded_tokens,
               (unsigned long long)r->ours.host_evicted_tokens);
    printf("\nThe table is a model: one request after the other.\n");
}

/* ---- cells ---- */

static void print_cell_json(const replay_plan *p, const replay_cell *c, bool first)
{
    const simulate_result *r = &c->r;
    printf("%s{\"policy\":\"%s\",\"page_size\":%u,\"capacity_blocks\":%llu,"
           "\"capacity_tokens\":%llu,\"block_hit_rate\":%.6f,\"token_hit_rate\":%.6f,"
           "\"hit_blocks\":%llu,\"hit_tokens\":%llu,\"prompt_blocks\":%llu,"
           "\"prompt_tokens\":%llu,\"requests\":%llu,",
           first ? "" : ",", c->policy, c->page_size, (unsigned long long)c->capacity_blocks,
           (unsigned long long)(c->capacity_blocks * replay_block_tokens(p, c)),
           replay_ratio(r->hit_blocks, r->prompt_blocks),
           replay_ratio(r->hit_tokens, r->prompt_tokens), (unsigned long long)r->hit_blocks,
           (unsigned long long)r->hit_tokens, (unsigned long long)r->prompt_blocks,
           (unsigned long long)r->prompt_tokens, (unsigned long long)r->requests);
    printf("\"host_blocks\":%llu,\"servers\":%u,\"router\":\"%s\"",
           (unsigned long long)c->host_blocks, c->servers, simulate_router_name(c->router));
    if (!c->optimum) {
        printf(",\"host_tokens\":%llu,\"storage_tokens\":%llu,\"compute_saved_rate\":%.6f,"
               "\"evicted_blocks\":%llu,\"too_large\":%llu,\"seconds\":%.6f",
               (unsigned long long)r->host_tokens, (unsigned long long)r->storage_tokens,
               r->prompt_cost > 0 ? r->hit_cost / r->prompt_cost : 0,
               (unsigned long long)(r->evicted_elements / c->page_size),
               (unsigned long long)r->too_large, r->seconds);
        if (p->misses)
            printf(",\"misses\":{\"first_seen\":%llu,\"evicted\":%llu,\"other_server\":%llu,"
                   "\"other_namespace\":%llu,\"rounded\":%llu}",
                   (unsigned long long)r->misses.first_seen, (unsigned long long)r->misses.evicted,
                   (unsigned long long)r->misses.other_server,
                   (unsigned long long)r->misses.other_namespace,
                   (unsigned long long)r->misses.rounded);
        if (p->prices_from)
            printf(",\"compute_s\":%.3f,\"saved_s\":%.3f,\"first_token_s\":%.6f,"
                   "\"first_token_p95_s\":%.6f,\"busiest\":%.6f",
                   r->compute_s, r->saved_s, r->first_token_s, r->first_token_p95_s, r->busiest);
    }
    printf("}");
}

static void print_head(const replay_plan *p)
{
    printf("%-10s %9s %15s %15s", "policy", "page size", "capacity blocks", "capacity tokens");
    if (p->tiers) printf(" %11s", "host blocks");
    if (p->fleet) printf(" %7s %-11s", "servers", "router");
    printf(" %10s %10s", "block hits", "token hits");
    if (p->prices_from)
        printf(" %9s %8s %8s %6s\n", "saved s", "first s", "p95 s", "busy");
    else
        printf(" %9s\n", "seconds");
}

static void print_cell(const replay_plan *p, const replay_cell *c)
{
    const simulate_result *r = &c->r;
    printf("%-10s %9u %15llu %15llu", c->policy, c->page_size,
           (unsigned long long)c->capacity_blocks,
           (unsigned long long)(c->capacity_blocks * replay_block_tokens(p, c)));
    if (p->tiers) printf(" %11llu", (unsigned long long)c->host_blocks);
    if (p->fleet)
        printf(" %7u %-11s", c->servers,
               c->optimum || c->servers == 1 ? "" : simulate_router_name(c->router));
    printf(" %10.4f %10.4f", replay_ratio(r->hit_blocks, r->prompt_blocks),
           replay_ratio(r->hit_tokens, r->prompt_tokens));
    if (c->optimum) {
        printf("\n");
        return;
    }
    if (p->prices_from)
        printf(" %9.1f %8.3f %8.3f %6.2f\n", r->saved_s, r->first_token_s, r->first_token_p95_s,
               r->busiest);
    else
        printf(" %9.3f\n", r->seconds);
    if (r->too_large)
        printf("    %llu requests did not fit this pool even alone and were not kept\n",
               (unsigned long long)r->too_large);
}

static void print_misses(const replay_plan *p)
{
    const replay_cell *c = &p->cells[0];
    const simulate_misses *m = &c->r.misses;
    const double all = c->r.prompt_tokens ? (double)c->r.prompt_tokens : 1;
    if (!p->misses || c->optimum) return;
    printf("\nprompt tokens of the first line: %.4f found, %.4f first seen, %.4f evicted before",
           replay_ratio(c->r.hit_tokens, c->r.prompt_tokens), (double)m->first_seen / all,
           (double)m->evicted / all);
    if (p->fleet) printf(", %.4f on other servers", (double)m->other_server / all);
    printf(", %.4f in other namespaces, %.4f in no whole page\n", (double)m->other_namespace / all,
           (double)m->rounded / all);
}

void replay_print(const replay_plan *p)
{
    if (p->json) {
        printf("{\"file\":");
        cli_print_json_text(p->file, strlen(p->file));
        printf(",\"format\":\"%s\",", trace_format(p->t));
        if (p->replay) print_replay_json(p);
        if (p->prices_from)
            printf("\"prices\":{\"from\":\"%s\",\"prompt_token_s\":%.9g,\"pair_s\":%.9g,"
                   "\"decode_s\":%.9g,\"load_token_s\":%.9g,\"fetch_token_s\":%.9g},",
                   p->prices_from, p->prices.prompt_token_s, p->prices.pair_s, p->prices.decode_s,
                   p->prices.load_token_s, p->prices.fetch_token_s);
        printf("\"cells\":[");
        for (uint32_t i = 0; i < p->num_cells; i++)
            print_cell_json(p, &p->cells[i], !i);
        printf("]}\n");
        return;
    }
    if (p->replay) print_replay_text(p);
    if (p->prices_from)
        printf("Times at %.3g ms for 1,000 prompt tokens, %.3g ms for a token said (%s).\n",
               1e6 * p->prices.prompt_token_s, 1e3 * p->prices.decode_s, p->prices_from);
    print_head(p);
    for (uint32_t i = 0; i < p->num_cells; i++)
        print_cell(p, &p->cells[i]);
    print_misses(p);
}
