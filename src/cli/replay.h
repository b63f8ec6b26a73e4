/* replay.h - what the files of `radish replay` share: a plan, and its cells.
 *
 * replay.c has the options, replay_sweep.c runs the cells on threads, replay_print.c prints them,
 * replay_html.c writes the report. */
#ifndef CLI_REPLAY_H
#define CLI_REPLAY_H

#include "cli/cli.h"
#include "replay/replay_record.h"
#include "replay/simulate.h"

#define REPLAY_OPT "opt" /* in the place of a policy: the offline optimum */

typedef struct replay_cell {
    const char *policy;
    uint32_t page_size; /* elements */
    uint32_t servers;
    uint64_t capacity_blocks; /* pages of each pool */
    uint64_t host_blocks;     /* of each host tier */
    simulate_router router;
    bool optimum; /* of a cache as large as the largest tier of all servers together */
    simulate_result r;
} replay_cell;

typedef struct replay_pages { /* what is computed once for a page size */
    uint32_t page_size;
    page_chains *chains; /* NULL: nobody needs them */
    bool has_reuse;
    uint64_t reuse[REUSE_BUCKETS], reuse_first;
} replay_pages;

typedef struct replay_plan {
    const char *file;
    trace *t;
    const rad_env *env;
    const char *policy_config;
    simulate_prices prices;
    const char *prices_from; /* in words; NULL: there are none */
    uint64_t storage_tokens;
    uint32_t threads;
    double max_memory_gb;
    bool json, misses, tiers, fleet; /* what the table tells of */

    replay_cell *cells;
    uint32_t num_cells;
    replay_pages *pages;
    uint32_t num_pages;

    const replay_result *replay; /* of a record; NULL: it is none */
} replay_plan;

/* An error's words, and which option it is about. */
int replay_fail(const replay_plan *p, rad_status status, const rad_error *err);

/* All cells, with a line of progress on stderr where that is a terminal. */
rad_status replay_run(replay_plan *p, rad_error *err);

const replay_pages *replay_pages_of(const replay_plan *p, uint32_t page_size);

void replay_print(const replay_plan *p); /* a table, or JSON */

/* False: errno says why not. */
bool replay_write_html(const replay_plan *p, const char *path);

static inline double replay_ratio(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static inline uint64_t replay_block_tokens(const replay_plan *p, const replay_cell *c)
{
    return (uint64_t)c->page_size * trace_tokens_per_element(p->t);
}

#endif
