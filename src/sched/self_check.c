/* self_check.c - promise P2, held against what is there.
 *
 * Each piece looks at the state as it is when the piece runs, so requests may come and go
 * between two pieces of a round. What a violation means cannot be known here (a lost page is
 * harmless, a page with two owners is not), so it is counted and logged, and serving goes on. */
#include "sched/scheduler_impl.h"

enum { QUIET_NS = 200000000, MOST_LINES = 16 };

/* Takes a fault in words; how many there were. NULL: only the first matters. */
typedef struct fault_log {
    const scheduler *s;
    uint64_t count;
} fault_log;

static void log_fault(void *user, const char *words)
{
    fault_log *log = user;
    if (log->count++ < MOST_LINES) rad_log(&log->s->env, RAD_LOG_ERROR, "self-check: %s", words);
}

/* ---- the pieces ---- */

static rad_status check_rows(const scheduler *s, fault_log *log, rad_error *err)
{
    (void)log;
    const rad_req_to_token_pool *pool = s->pools.req_to_token_pool;
    rad_status status = rad_req_to_token_check(pool, err);
    if (status != RAD_OK) return status;
    uint32_t rows = rad_req_to_token_num_rows(pool) - rad_req_to_token_available(pool);
    rad_session_stats sessions = {0}; /* idle streaming ones keep a row each */
    if (s->params.streaming_sessions) rad_session_get_stats(s->pools.tree_cache, &sessions);
    if (rows != s->num_running + (s->verify.kv.row != 0) + sessions.held)
        return rad_fail(err, RAD_E_CORRUPT, "%u rows are taken by %u running requests", rows,
                        s->num_running);
    return RAD_OK;
}

/* The tiers' trees, tickets and pools, and the allocators. */
static rad_status check_cache(const scheduler *s, fault_log *log, rad_error *err)
{
    (void)log;
    return rad_cache_check(s->pools.tree_cache, err);
}

static rad_status check_requests(const scheduler *s, fault_log *log, rad_error *err)
{
    (void)log;
    rad_status status = wait_queue_check(&s->waiting, err);
    if (status != RAD_OK) return status;
    for (const req *r = s->waiting.first; r; r = r->wait_next)
        if (r->kv.row)
            return rad_fail(err, RAD_E_CORRUPT, "a waiting request holds row %u", r->kv.row);
    for (uint32_t i = 0; i < s->num_running; i++) {
        const rad_req_kv *kv = &s->running[i]->kv;
        if (!kv->row || kv->protected_len > kv->committed_len ||
            kv->committed_len != kv->allocated_len)
            return rad_fail(err, RAD_E_CORRUPT,
                            "row %u between steps: protected %u, committed %u, allocated %u",
                            kv->row, kv->protected_len, kv->committed_len, kv->allocated_len);
        const schedule_pools *pools = &s->pools;
        const rad_slot *slots = rad_req_to_token_row(pools->req_to_token_pool, kv->row);
        status = window_row_check(&pools->window, pools->kv_allocator, kv, slots, err);
        if (status == RAD_OK) status = state_check(&pools->states, kv, err);
        if (status != RAD_OK) return status;
    }
    return RAD_OK;
}

/* Every slot has one owner: nobody, the cache, or one of the requests. */
static rad_status check_ownership(const scheduler *s, fault_log *log, rad_error *err)
{
    bool verifying = s->verify.kv.row != 0;
    size_t bytes = (s->num_running + 1 + verifying) * sizeof(rad_req_kv *);
    const rad_req_kv **kvs = rad_alloc(&s->env, bytes);
    if (!kvs) return rad_fail(err, RAD_E_NOMEM, "no memory for the ownership check");
    for (uint32_t i = 0; i < s->num_running; i++)
        kvs[i] = &s->running[i]->kv;
    if (verifying) kvs[s->num_running] = &s->verify.kv;
    rad_status status = rad_cache_report_ownership(
        s->pools.tree_cache, kvs, s->num_running + verifying, log ? log_fault : NULL, log, err);
    rad_free(&s->env, kvs, bytes);
    return status;
}

static rad_status (*const pieces[])(const scheduler *s, fault_log *log, rad_error *err) = {
    check_rows, check_cache, check_requests, check_ownership};

rad_status scheduler_check(const scheduler *s, rad_error *err)
{
    rad_status status = RAD_OK;
    for (size_t i = 0; i < RAD_COUNT(pieces) && status == RAD_OK; i++)
        status = pieces[i](s, NULL, err);
    return status;
}

/* ---- now and then ---- */

uint64_t scheduler_self_check_due_ns(const scheduler *s)
{
    if (!s->params.self_check_ns || !scheduler_is_idle(s)) return UINT64_MAX;
    uint64_t now = s->env.now_ns(s->env.user), due = s->check.quiet_ns;
    due += RAD_MIN((uint64_t)QUIET_NS, s->params.self_check_ns);
    if (!s->check.next_piece) due = RAD_MAX(due, s->check.last_ns + s->params.self_check_ns);
    return due > now ? due - now : 0;
}

void scheduler_self_check(scheduler *s)
{
    self_check_stats *stats = &s->stats.self_check;
    fault_log log = {.s = s};
    rad_error err = {0};
    if (scheduler_self_check_due_ns(s)) return;

    uint64_t start = s->env.now_ns(s->env.user);
    rad_status status = pieces[s->check.next_piece](s, &log, &err);
    if (status == RAD_E_NOMEM)
        rad_log(&s->env, RAD_LOG_WARN, "self-check: %s; it is tried again later", err.text);
    else if (status != RAD_OK && !log.count)
        log_fault(&log, err.text);
    if (log.count > MOST_LINES)
        rad_log(&s->env, RAD_LOG_ERROR, "self-check: and %llu more",
                (unsigned long long)(log.count - MOST_LINES));
    stats->num_violations += log.count;
    s->check.incomplete |= status == RAD_E_NOMEM;

    uint64_t end = s->env.now_ns(s->env.user);
    stats->longest_ns = RAD_MAX(stats->longest_ns, end - start);
    if (++s->check.next_piece < RAD_COUNT(pieces)) return;
    if (!s->check.incomplete) stats->num_checks++;
    s->check = (self_check){.last_ns = end, .quiet_ns = s->check.quiet_ns};
}
