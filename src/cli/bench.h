/* bench.h - what the files of `radish bench` share. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/cli.h"
#include "workload/step_price.h"

#include <stdio.h>

typedef enum bench_mode { BENCH_ON = 0, BENCH_OFF, BENCH_NO_TREE, BENCH_MODES } bench_mode;

enum { BENCH_RUNNING = 64, BENCH_MOST_RUNNING = 512 };

/* One engine for all modes, so that runs that are compared read and write the same memory: a
 * machine's rates depend on where things lie, and two engines of one kind differ by some percent.
 */
typedef struct bench_engine {
    engine *e;
    uint32_t max_running;
    step_log log;
} bench_engine;

typedef struct bench_plan {
    rad_env env;
    const model_options *model;
    cli_list workloads; /* empty: all */
    const char *kv_cache_dtype;
    uint32_t concurrency;
    uint32_t pairs;
    bool pairs_given;
    bool with_drafts; /* the next engine has them, */
    const char *draft_sources;
    uint32_t draft_tokens;
    bool cpu_time; /* env's clock is each thread's own; one thread computes */
    uint32_t page_size;
    uint32_t context_length;
    uint64_t max_total_tokens;
    bool paper_size;
    bool scaling; /* up to BENCH_MOST_RUNNING requests will run at one time */
    bool quiet;   /* no progress on stderr */
    bool json;    /* objects instead of tables */
    bench_engine engine;
} bench_plan;

/* One workload in all modes. Times are medians over the pairs. */
typedef struct bench_row {
    const char *name, *note;
    workload_sums sums;
    run_result runs[BENCH_MODES]; /* of the last pair; wall_s: the median */
    double speedup;               /* off / on, median of the pairs' ratios */
    double tree_speedup;          /* tree attention off / on, likewise */
    double bound;
    double price_drift; /* most that a pair's price changed from before it to after it, >= 1 */
    double on_priced,
        off_priced;        /* the steps' prices / what they took: what the bound is wrong by */
    double schedule_share; /* of the run with the cache on: tree and scheduling */
    uint32_t pairs;        /* of runs that the medians are of */
    uint32_t pairs_again;  /* that do not count: prices changed by too much meanwhile */
} bench_row;

/* A workload that shares nothing has no gain to show, only what the cache costs: less than two
 * runs differ by. */
enum { BENCH_MOST_ROWS = 32, BENCH_LEAST_PAIRS_OF_NO_REUSE = 9 };

typedef struct bench_table {
    const char *model_name, *dtype, *attn_backend, *computes_on;
    uint32_t concurrency, page_size;
    uint32_t num_rows;
    bench_row rows[BENCH_MOST_ROWS];
} bench_table;

/* Makes the engine, for `max_running` requests at one time (0: for all but the suite), unless it
 * is there, and waits until all memory of its KV pool is, as far as there is so much: what a step
 * takes does not depend then on whether it is the first to write somewhere. It is in mode BENCH_ON,
 * its cache empty. RAD_OK, or words in err. */
rad_status bench_engine_make(bench_plan *plan, uint32_t max_running, rad_error *err);
void bench_engine_free(bench_plan *plan); /* not made: nothing happens */

/* Makes it as radish serve would, but for memory ahead of its use. */
rad_status bench_engine_start(bench_plan *plan, rad_error *err);

/* Switches it to a mode. The cache is empty then. */
rad_status bench_engine_mode(bench_plan *plan, bench_mode mode, rad_error *err);

/* bench_start.c: makes the engine with the cache three times; leaves none there. */
rad_status bench_start(bench_plan *plan, rad_error *err);

/* bench_suite.c: RAD_E_INVAL in words when a workload that was asked for is none of the suite nor a
 * case of drafts, whichever of them run: nothing would be measured. */
rad_status bench_suite_check(const bench_plan *plan, bool suite, bool drafts, rad_error *err);
bool bench_is_chosen(const bench_plan *plan, const char *name);

/* bench_suite.c: all chosen workloads; `table` is filled as far as it went. */
rad_status bench_suite(bench_plan *plan, bench_table *table, rad_error *err);

/* bench_speed.c: prints as it goes. */
rad_status bench_speed(bench_plan *plan, rad_error *err);

/* Calls of one shape, side by side: `tokens` of prompt, `out` generated. */
typedef struct shape {
    uint32_t calls, tokens, out;
} shape;

typedef struct shape_result {
    double prefill_s;   /* forward time of the steps that computed prompts */
    double decode_s;    /* median step in which all calls decode; 0: there was none */
    step_info decode;   /* that step */
    double longest_s;   /* longest time between two tokens of a call, as its caller sees it */
    double ttft_s;      /* of the median call */
    uint64_t prefilled; /* tokens */
    double wall_s;
    uint64_t total_tokens;
    double forward_s, sample_s, schedule_s; /* of all steps */
} shape_result;

/* Runs shapes beside each other on the engine with the cache on, each twice: the first run warms
 * up, unless the prompt is very long. The engine's log has the steps of the last run, by time. */
rad_status bench_run_shapes(bench_plan *plan, const shape *shapes, uint32_t count, uint32_t seed,
                            shape_result *out, rad_error *err);

/* bench_scaling.c: how a first token and a step grow with the work. */
rad_status bench_scaling(bench_plan *plan, rad_error *err);

/* bench_tree.c: many requests decode behind one long prefix, tree attention on and off. */
rad_status bench_tree(bench_plan *plan, rad_error *err);

/* bench_drafts.c: answers with guessed tokens and without; makes an engine of its own, and leaves
 * none. */
rad_status bench_drafts(bench_plan *plan, rad_error *err);
#define BENCH_DRAFTS_CASES(FIRST, NEXT)                                                            \
    FIRST(FILE_AGAIN, "file")                                                                      \
    NEXT(FORETOLD, "foretold")                                                                     \
    NEXT(CALLED, "calls")                                                                          \
    NEXT(AGAIN, "again")                                                                           \
    NEXT(ALIKE, "alike")                                                                           \
    NEXT(TALK, "talk")                                                                             \
    NEXT(OWN, "own")                                                                               \
    NEXT(NEVER, "never")
#define BENCH_DRAFTS_FIRST(id, name) name
#define BENCH_DRAFTS_NEXT(id, name)  ", " name
#define BENCH_DRAFTS_NAMES           BENCH_DRAFTS_CASES(BENCH_DRAFTS_FIRST, BENCH_DRAFTS_NEXT)
bool bench_drafts_has(const char *name); /* a case of it */

/* bench_report.c */
void bench_print_row(const bench_row *row, bool first);
void bench_print_json(const bench_table *table);
typedef void bench_writer(const bench_table *table, FILE *out);
bench_writer bench_write_csv, bench_write_markdown, bench_write_svg;

typedef struct bench_file {
    const char *path; /* NULL: none was asked for, and nothing happens */
    FILE *to;
    bool made; /* it was not there before */
} bench_file;

/* Opens it, so that a path that cannot be written is known before anything is measured; what is
 * in it stays until it is written or, with an engine's failure, for good: then discard also
 * takes a file away again that was not there before. RAD_E_IO in words. */
rad_status bench_file_open(bench_file *f, rad_error *err);
rad_status bench_file_write(bench_file *f, const bench_table *table, bench_writer *write,
                            rad_error *err);
void bench_file_discard(bench_file *f); /* after write: nothing happens */

#endif
