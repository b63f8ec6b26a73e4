/* step_price.c - measures points of the two lines, and prices steps with them. */
#include "workload/step_price.h"

#include <stdlib.h>

/* ---- the log ---- */

void step_log_init(step_log *log, const rad_env *env)
{
    *log = (step_log){.env = rad_env_or_default(env)};
}

void step_log_fini(step_log *log)
{
    rad_free(&log->env, log->steps, log->cap * sizeof *log->steps);
    log->steps = NULL;
    log->count = log->cap = 0;
}

void step_log_clear(step_log *log)
{
    log->count = 0;
    log->lost = 0;
}

void step_log_add(void *arg, const step_info *step)
{
    step_log *log = arg;
    if (log->count == log->cap) {
        uint32_t cap = RAD_MAX(2 * log->cap, 4096u);
        step_info *moved = rad_alloc(&log->env, cap * sizeof *moved);
        if (!moved) {
            log->lost++;
            return;
        }
        if (log->count) memcpy(moved, log->steps, log->count * sizeof *moved);
        rad_free(&log->env, log->steps, log->cap * sizeof *moved);
        log->steps = moved;
        log->cap = cap;
    }
    log->steps[log->count++] = *step;
}

/* ---- prices ---- */

/* Between points a line; before the first and behind the last the nearest piece's. */
static double line_at(const cost_line *line, double x)
{
    if (line->count == 0 || x <= 0) return 0;
    if (line->count == 1) return line->seconds[0];
    uint32_t i = 1;
    while (i + 1 < line->count && x > line->at[i])
        i++;
    double x0 = line->at[i - 1], x1 = line->at[i], y0 = line->seconds[i - 1];
    double y = y0 + (line->seconds[i] - y0) * (x - x0) / (x1 - x0);
    return RAD_MAX(y, 0);
}

/* What a mixed step spared is taken for its decoding requests' and its prompts' alike. Drafts see
 * K/V that is read for their request's own token. */
static double decode_context_cost(const step_costs *c, const step_info *step)
{
    double read = 1;
    if (step->kv_read_bytes < step->kv_unshared_bytes)
        read = (double)step->kv_read_bytes / (double)step->kv_unshared_bytes;
    return (double)step->decode_context *
               (c->decode_context_s * read + c->decode_spared_s * (1 - read)) +
           (double)step->draft_context * c->decode_spared_s;
}

static double decode_cost(const step_costs *c, const step_info *step)
{
    return line_at(&c->decode, (double)step->decode_tokens + step->draft_tokens) +
           decode_context_cost(c, step);
}

double step_cost(const step_costs *c, const step_info *step)
{
    if (!step->prefill_tokens) return decode_cost(c, step);
    double logits = line_at(&c->decode, step->logits_rows) -
                    line_at(&c->prefill, step->logits_rows);
    const double rows = (double)step->prefill_tokens + step->decode_tokens + step->draft_tokens;
    return line_at(&c->prefill, rows) + RAD_MAX(logits, 0) +
           (double)step->prefill_context * c->prefill_context_s + decode_context_cost(c, step);
}

double step_log_cost(const step_costs *c, const step_log *log, double prefill_scale)
{
    double sum = 0;
    for (uint32_t i = 0; i < log->count; i++) {
        double all = step_cost(c, &log->steps[i]);
        double decode = RAD_MIN(decode_cost(c, &log->steps[i]), all);
        sum += decode + (all - decode) * prefill_scale;
    }
    return sum;
}

double step_log_seconds(const step_log *log)
{
    double sum = 0;
    for (uint32_t i = 0; i < log->count; i++)
        sum += (double)log->steps[i].forward_ns * 1e-9;
    return sum;
}

static cost_line mean_line(const cost_line *a, const cost_line *b)
{
    cost_line mean = *a;
    for (uint32_t i = 0; i < a->count && b->count; i++)
        mean.seconds[i] = (a->seconds[i] + line_at(b, a->at[i])) / 2;
    return a->count ? mean : *b;
}

step_costs step_costs_mean(const step_costs *a, const step_costs *b)
{
    return (step_costs){.prefill = mean_line(&a->prefill, &b->prefill),
                        .decode = mean_line(&a->decode, &b->decode),
                        .prefill_context_s = (a->prefill_context_s + b->prefill_context_s) / 2,
                        .decode_context_s = (a->decode_context_s + b->decode_context_s) / 2,
                        .decode_spared_s = (a->decode_spared_s + b->decode_spared_s) / 2};
}

/* ---- measuring ---- */

static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const step_info *)a)->forward_ns, y = ((const step_info *)b)->forward_ns;
    return (x > y) - (x < y);
}

/* Of a step: so many prompt tokens and decoding requests, and these attend to so many positions. */
typedef struct step_shape {
    uint32_t prefill, decode;
    uint64_t least_context, most_context;
} step_shape;

static bool has_shape(const step_info *step, const step_shape *s)
{
    return step->prefill_tokens == s->prefill && step->decode_tokens == s->decode &&
           !step->draft_tokens && step->decode_context >= s->least_context &&
           step->decode_context <= s->most_context;
}

static const step_info *median_of(step_log *log, step_shape s)
{
    uint32_t fits = 0;
    if (log->count) qsort(log->steps, log->count, sizeof *log->steps, by_time);
    for (uint32_t i = 0; i < log->count; i++)
        fits += has_shape(&log->steps[i], &s);
    uint32_t faster = fits / 2;
    for (uint32_t i = 0; i < log->count; i++)
        if (has_shape(&log->steps[i], &s) && faster-- == 0) return &log->steps[i];
    return NULL;
}

const step_info *step_log_median(step_log *log, uint32_t prefill, uint32_t decode)
{
    return median_of(log, (step_shape){prefill, decode, 0, UINT64_MAX});
}

const step_info *step_log_median_behind(step_log *log, uint32_t decode, uint32_t context,
                                        uint32_t within)
{
    uint64_t least = context - RAD_MIN(context, within), most = (uint64_t)context + within;
    return median_of(log, (step_shape){0, decode, least * decode, most * decode});
}

typedef struct meter {
    engine *e;
    step_log *log;
    uint32_t seed; /* another one for each run: nothing is found again */
    rad_error *err;
} meter;

/* Prompts of `tokens` each, `out` generated by each. */
typedef struct load {
    uint32_t calls, tokens, out;
    uint32_t prefix; /* tokens before these that another call has computed */
    bool one_prefix; /* for all of them; else one for each */
    bool one_by_one; /* else side by side */
} load;

static rad_status run_load(meter *m, load l)
{
    workload w;
    run_result r;
    workload_init(&w, &m->log->env, "calibration", "");
    uint32_t prompt[2] = {0}, after[2], last = 0;
    for (uint32_t i = 0; i < l.calls; i++) {
        uint32_t segs = 0, afters = 0;
        if (l.prefix && (i == 0 || !l.one_prefix)) {
            prompt[0] = workload_add_segment(&w, l.prefix);
            after[0] = workload_add_call(&w, i, prompt, 1, 0, NULL, 0);
        }
        if (l.prefix) segs = afters = 1;
        if (l.one_by_one && i) after[afters++] = last;
        prompt[segs++] = workload_add_segment(&w, l.tokens);
        last = workload_add_call(&w, i, prompt, segs, l.out, after, afters);
    }
    step_log_clear(m->log);
    /* Else a model that is fast could be done with the first before the last is there. */
    run_params p = {
        .concurrency = RAD_MAX(l.calls, 1u), .seed = ++m->seed, .together = !l.one_by_one};
    rad_status status = w.nomem ? rad_fail(m->err, RAD_E_NOMEM, "no memory to calibrate")
                                : engine_flush_cache(m->e);
    if (status == RAD_OK) status = workload_run(m->e, &w, &p, &r, m->err);
    engine_stats barrier;
    engine_get_stats(m->e, &barrier);
    workload_fini(&w);
    return status;
}

/* The median step of a prompt of l.tokens. Prompts come one right after the other: a step that
 * the threads had to be woken for takes longer than it does in a run. */
static rad_status measure_prefill(meter *m, load l, step_info *out)
{
    l.one_by_one = true;
    l.out = 1;
    rad_status status = run_load(m, l);
    if (status != RAD_OK) return status;
    const step_info *mid = step_log_median(m->log, l.tokens, 0);
    *out = mid ? *mid : (step_info){0}; /* evicted in a small pool, or in chunks */
    return RAD_OK;
}

/* The median step in which all calls decode. Long prompts come in one after the other: the first
 * call may be done before the last begins, then they shall generate more. */
static rad_status measure_decode(meter *m, load l, uint32_t most_out, step_info *out)
{
    *out = (step_info){0};
    for (l.out = 24; l.out <= most_out; l.out *= 2) {
        rad_status status = run_load(m, l);
        if (status != RAD_OK) return status;
        const step_info *mid = step_log_median(m->log, 0, l.calls);
        if (mid) *out = *mid;
        if (mid) break;
    }
    return RAD_OK;
}

static double seconds_of(const step_info *step)
{
    return (double)step->forward_ns * 1e-9;
}

/* Time against context for a fixed number of new tokens: the slope. Negative noise is 0. */
static double slope(const step_info *far, const step_info *near, double contexts)
{
    if (!far->forward_ns || !near->forward_ns || contexts <= 0) return 0;
    return RAD_MAX(seconds_of(far) - seconds_of(near), 0) / contexts;
}

static void add_point(cost_line *line, uint32_t at, const step_info *step, double context_cost)
{
    if (!step->forward_ns) return;
    line->at[line->count] = at;
    line->seconds[line->count++] = RAD_MAX(seconds_of(step) - context_cost, 0);
}

/* ---- the two lines, and what their contexts add ---- */

enum { SHORT = 8, MOST_OUT = 192, SMALL = 128, SMALL_REPEATS = 5, LARGE_REPEATS = 3 };

static rad_status measure_prefills(meter *m, uint32_t most, uint32_t room, step_costs *out)
{
    step_info steps[COST_POINTS], small = {0}, far = {0};
    uint32_t at[COST_POINTS], count = 0;
    rad_status status = RAD_OK;
    /* From some tens of tokens on the line is straight. */
    for (uint32_t n = 1; n <= most && status == RAD_OK; n *= n < SMALL ? 2 : 4) {
        uint32_t repeats = n <= SMALL ? SMALL_REPEATS : LARGE_REPEATS;
        at[count] = n;
        status = measure_prefill(m, (load){.calls = repeats, .tokens = n}, &steps[count]);
        if (n == SMALL) small = steps[count];
        count++;
    }
    const load behind = {.calls = SMALL_REPEATS,
                         .tokens = SMALL,
                         .prefix = RAD_MIN(1024u, room - 2 * SMALL),
                         .one_prefix = true};
    if (status == RAD_OK && most >= SMALL) status = measure_prefill(m, behind, &far);
    out->prefill_context_s =
        slope(&far, &small, (double)far.prefill_context - (double)small.prefill_context);
    for (uint32_t i = 0; i < count; i++)
        add_point(&out->prefill, at[i], &steps[i],
                  (double)steps[i].prefill_context * out->prefill_context_s);
    return status;
}

/* From a step of `calls` requests behind one prefix: its time is that of their new tokens, of what
 * was read, and of what was spared. */
static double spared_cost(const step_info *shared, double base, double read_s)
{
    double context = (double)shared->decode_context;
    if (!shared->forward_ns || shared->kv_read_bytes >= shared->kv_unshared_bytes) return read_s;
    double read = (double)shared->kv_read_bytes / (double)shared->kv_unshared_bytes;
    double spared = ((seconds_of(shared) - base) / context - read_s * read) / (1 - read);
    return RAD_MIN(RAD_MAX(spared, 0), read_s);
}

static rad_status measure_decodes(meter *m, uint32_t most, uint32_t room, uint64_t pool,
                                  step_costs *out)
{
    step_info steps[COST_POINTS], near = {0}, far = {0}, shared = {0};
    uint32_t at[COST_POINTS], count = 0, some = 1;
    rad_status status = RAD_OK;
    for (uint32_t n = 1; n <= most && count < COST_POINTS && status == RAD_OK; n *= 2) {
        at[count] = n;
        status = measure_decode(m, (load){.calls = n, .tokens = SHORT}, MOST_OUT, &steps[count]);
        some = n, near = steps[count];
        count++;
    }
    /* With as many requests as can be: a position costs two to three times as much when four read
     * theirs as when a dozen do, and what four share spares them nothing. */
    load behind = {
        .calls = some, .tokens = SHORT, .prefix = RAD_MIN(384u, room - MOST_OUT - SHORT)};
    if ((uint64_t)some * (behind.prefix + SHORT + MOST_OUT) > pool) some = 0; /* no room for it */
    if (status == RAD_OK && some) status = measure_decode(m, behind, MOST_OUT, &far);
    behind.one_prefix = true;
    if (status == RAD_OK && some) status = measure_decode(m, behind, MOST_OUT, &shared);
    out->decode_context_s =
        slope(&far, &near, (double)far.decode_context - (double)near.decode_context);
    double base = seconds_of(&near) - (double)near.decode_context * out->decode_context_s;
    out->decode_spared_s = spared_cost(&shared, base, out->decode_context_s);
    for (uint32_t i = 0; i < count; i++)
        add_point(&out->decode, at[i], &steps[i],
                  (double)steps[i].decode_context * out->decode_context_s);
    return status;
}

rad_status step_costs_measure(engine *e, step_log *log, uint32_t most_decodes, step_costs *out,
                              rad_error *err)
{
    const engine_info *info = engine_get_info(e);
    uint32_t chunk = info->chunked_prefill_size ? info->chunked_prefill_size : UINT32_MAX;
    uint32_t room = (uint32_t)RAD_MIN((uint64_t)info->context_length, info->max_total_tokens);
    if (room < 512)
        return rad_fail(err, RAD_E_INVAL,
                        "a context of %u tokens in a pool of %llu is too short to measure costs: "
                        "512 are needed",
                        info->context_length, (unsigned long long)info->max_total_tokens);
    meter m = {.e = e, .log = log, .seed = 1000, .err = err};
    *out = (step_costs){0};
    most_decodes = RAD_MIN(RAD_MAX(most_decodes, 1u), info->max_running_requests);
    most_decodes = RAD_MIN(most_decodes, (uint32_t)(info->max_total_tokens / (SHORT + MOST_OUT)));
    rad_status status = run_load(&m, (load){.calls = 1, .tokens = 64, .out = 1}); /* warms up */
    if (status == RAD_OK)
        status = measure_prefills(&m, RAD_MIN(RAD_MIN(chunk, 2048u), room - 1), room, out);
    if (status == RAD_OK)
        status = measure_decodes(&m, most_decodes, room, info->max_total_tokens, out);
    if (status == RAD_OK) status = engine_flush_cache(e);
    step_log_clear(log);
    return status;
}
