/* tickets.c - see the header.
 *
 * Records lie in one array by their ids.
 *
 *     records   | . | 1 | 2 | 3 | ...        id of a slab, and a generation in its number
 *     units     | host, device of 2 | host, device, chain of 1 | ...
 *
 * Invariant, verified by tickets_check: each counter is what the live tickets add up to, and a
 * write is in the list of writes from its submission to its settling. */
#include "hicache/tickets.h"

#include <stdio.h>

static hi_ticket *record(const tickets *ts, uint32_t id)
{
    return (hi_ticket *)(void *)(ts->records + id * ts->params.record_bytes);
}

static uint64_t now(const tickets *ts)
{
    return ts->env->now_ns(ts->env->user);
}

static rad_status run(void *user, transfer *t, uint32_t worker)
{
    const tickets *ts = user;
    return ts->params.ops->run[t->kind](ts->params.user, (hi_ticket *)t, worker);
}

rad_status tickets_init(tickets *ts, const rad_env *env, const ticket_params *params,
                        rad_error *err)
{
    const ticket_params *p = params;
    *ts = (tickets){.env = env, .params = *p};
    uint32_t units = (uint32_t)RAD_MIN(p->list_units, (uint64_t)INT32_MAX);
    bool ok = slab_init(&ts->ids, env, p->max) && span_arena_init(&ts->runs, env, units, p->max);
    ts->records = rad_alloc(env, rad_mul((size_t)p->max + 1, p->record_bytes));
    ts->units = rad_alloc(env, ts->runs.capacity * sizeof *ts->units);
    if (!ok || !ts->records || !ts->units)
        return rad_fail(err, RAD_E_NOMEM, "%s: no memory for %u transfers", p->ops->who, p->max);
    ts->workers = (controller_params){.copy_threads = p->copy_threads,
                                      .store_threads = p->store_threads,
                                      .deterministic = p->deterministic,
                                      .run = run,
                                      .user = ts};
    return controller_create(env, &ts->workers, &ts->controller, err);
}

void tickets_fini(tickets *ts)
{
    const rad_env *env = ts->env;
    controller_destroy(ts->controller);
    rad_free(env, ts->records, ((size_t)ts->params.max + 1) * ts->params.record_bytes);
    rad_free(env, ts->units, ts->runs.capacity * sizeof *ts->units);
    rad_free(env, ts->script, ts->params.max * sizeof *ts->script);
    if (ts->ids.generation || ts->ids.free) slab_fini(&ts->ids);
    if (ts->runs.spans) span_arena_fini(&ts->runs);
}

size_t tickets_bytes(const tickets *ts)
{
    uint32_t max = ts->params.max;
    return slab_bytes(max) + ((size_t)max + 1) * ts->params.record_bytes + span_arena_bytes(max) +
           ts->runs.capacity * sizeof *ts->units;
}

/* ---- one ticket ---- */

hi_ticket *tickets_take(tickets *ts, transfer_kind kind, uint32_t count, uint32_t num_windows)
{
    if (slab_available(&ts->ids) <= controller_kept_tickets(kind, ts->params.max) ||
        count > INT32_MAX / 16 || num_windows > INT32_MAX / 16)
        return NULL;
    bool with_store = kind >= TRANSFER_FETCH;
    uint32_t hashes = with_store ? TICKET_HASH_UNITS : 0;
    uint32_t units = (TICKET_LISTS + hashes) * count + TICKET_LISTS * num_windows;
    uint32_t span = span_alloc(&ts->runs, RAD_MAX(units, 1u)); /* one that moves a state has none */
    if (!span) return NULL;
    uint32_t id = slab_alloc(&ts->ids);
    hi_ticket *k = record(ts, id);
    memset(k, 0, ts->params.record_bytes);
    k->t.kind = kind;
    k->id = id;
    k->run = span;
    k->count = count;
    k->num_windows = num_windows;
    k->host = ts->units + ts->runs.spans[span].at;
    k->device = k->host + count;
    k->host_windows = k->device + count;
    k->device_windows = k->host_windows + num_windows;
    if (hashes) k->chain = (rad_page_hash *)(void *)(k->device_windows + num_windows);
    k->start_ns = now(ts);
    ts->pending_loads += kind == TRANSFER_LOAD;
    ts->storage_ops += with_store;
    return k;
}

void tickets_submit(tickets *ts, hi_ticket *k)
{
    if (k->t.kind == TRANSFER_WRITE) {
        k->older = ts->newest_write;
        *(k->older ? &k->older->newer : &ts->oldest_write) = k;
        ts->newest_write = k;
        ts->writes++;
    }
    ts->pending_loads -= k->t.kind == TRANSFER_LOAD;
    k->submitted = true;
    k->acked = false;
    controller_submit(ts->controller, &k->t);
}

void tickets_give(tickets *ts, hi_ticket *k)
{
    bool load = k->t.kind == TRANSFER_LOAD;
    ts->params.ops->unlock(ts->params.user, k);
    ts->pending_loads -= load && !k->submitted;
    if (load && k->orphan) {
        ts->orphans--;
        ts->orphan_pages -= k->count;
        ts->orphan_windows -= k->num_windows;
    }
    ts->storage_ops -= k->t.kind >= TRANSFER_FETCH;
    tickets_reserve(ts, k, 0);
    span_unref(&ts->runs, k->run);
    slab_free(&ts->ids, k->id);
}

void tickets_drop(tickets *ts, hi_ticket *k)
{
    ts->params.ops->free_pages(ts->params.user, k);
    tickets_give(ts, k);
}

static void acknowledge(tickets *ts, hi_ticket *k)
{
    k->acked = true;
    if (k->t.kind != TRANSFER_WRITE) /* those are settled in their order */
        ts->params.ops->done[k->t.kind](ts->params.user, k);
}

void tickets_orphan(tickets *ts, hi_ticket *k)
{
    k->orphan = true;
    if (k->t.kind == TRANSFER_LOAD) {
        ts->orphans++;
        ts->orphan_pages += k->count;
        ts->orphan_windows += k->num_windows;
    }
    if (k->submitted) {
        controller_cancel(ts->controller, &k->t);
        tickets_take_done(ts);
        return;
    }
    k->t.status = RAD_NONE;
    acknowledge(ts, k);
}

uint32_t tickets_number(const tickets *ts, const hi_ticket *k)
{
    return slab_name(&ts->ids, k->id);
}

hi_ticket *tickets_find(const tickets *ts, uint32_t number)
{
    uint32_t id = slab_find(&ts->ids, number);
    return id ? record(ts, id) : NULL;
}

hi_ticket *tickets_next(const tickets *ts, const hi_ticket *k)
{
    for (uint32_t id = k ? k->id + 1 : 1; id <= ts->ids.num_fresh; id++)
        if (slab_is_live(&ts->ids, id)) return record(ts, id);
    return NULL;
}

/* ---- fetches ---- */

void tickets_reserve(tickets *ts, hi_ticket *k, uint32_t pages)
{
    ts->reserved += pages;
    ts->reserved -= k->reserve;
    k->reserve = pages;
}

hi_ticket *tickets_find_fetch(const tickets *ts, uint32_t number)
{
    hi_ticket *k = tickets_find(ts, number);
    return k && k->t.kind == TRANSFER_FETCH && !k->orphan ? k : NULL;
}

void tickets_leave_fetch(tickets *ts, hi_ticket *k)
{
    if (k->ended)
        tickets_drop(ts, k);
    else
        tickets_orphan(ts, k);
}

/* ---- loads ---- */

void tickets_submit_loads(tickets *ts)
{
    for (hi_ticket *k = NULL; ts->pending_loads && (k = tickets_next(ts, k));)
        if (k->t.kind == TRANSFER_LOAD && !k->submitted) tickets_submit(ts, k);
}

static rad_status state_of(tickets *ts, uint32_t number, hi_ticket **found)
{
    hi_ticket *k = *found = tickets_find(ts, number);
    if (!k || k->t.kind != TRANSFER_LOAD) return RAD_E_IO;
    if (!k->acked) tickets_take_done(ts);
    if (!k->acked) return RAD_AGAIN;
    return k->t.status == RAD_OK ? RAD_OK : RAD_E_IO;
}

/* All its layers have, though it may not have said so yet. */
static bool has_arrived(const tickets *ts, const hi_ticket *k)
{
    if (!ts->script) return atomic_load(&k->t.layers_done) >= ts->params.load_steps;
    for (uint32_t i = ts->script_at; i < ts->script_end; i++)
        if (ts->script[i].ticket == k->id && ts->script[i].look & 1) return true;
    return false;
}

rad_status tickets_load_status(tickets *ts, uint32_t number)
{
    hi_ticket *k;
    rad_status status = state_of(ts, number, &k);
    if (status != RAD_AGAIN || !has_arrived(ts, k)) return status;
    if (!ts->script) controller_wait(ts->controller, &k->t); /* it is about to say so */
    ts->waited = true;
    status = state_of(ts, number, &k);
    ts->waited = false;
    return status;
}

rad_status tickets_settle_load(tickets *ts, uint32_t *load, uint32_t row, rad_error *err)
{
    const char *who = ts->params.ops->who;
    if (!*load) return RAD_OK;
    rad_status status = tickets_load_status(ts, *load);
    if (status == RAD_AGAIN)
        return rad_fail(err, RAD_AGAIN, "%s: row %u: its load is still under way", who, row);
    if (status)
        return rad_fail(err, status, "%s: row %u: its load failed, it cannot be published", who,
                        row);
    hi_ticket *k = tickets_find(ts, *load);
    if (k) tickets_give(ts, k);
    *load = 0;
    return RAD_OK;
}

hi_ticket *tickets_leave_load(tickets *ts, uint32_t *load, rad_status *status)
{
    *status = *load ? tickets_load_status(ts, *load) : RAD_OK;
    hi_ticket *k = *load ? tickets_find(ts, *load) : NULL;
    *load = 0;
    if (*status && k && !k->acked) return k;
    if (k) tickets_give(ts, k);
    return NULL;
}

/* ---- writes ---- */

static void settle_writes(tickets *ts)
{
    bool in_turn = true;
    for (hi_ticket *k = ts->oldest_write, *next; k; k = next) {
        next = k->newer;
        in_turn = in_turn && k->acked;
        if (!k->acked || (!in_turn && k->t.status == RAD_OK)) continue;
        *(k->older ? &k->older->newer : &ts->oldest_write) = k->newer;
        *(k->newer ? &k->newer->older : &ts->newest_write) = k->older;
        ts->writes--;
        ts->params.ops->done[TRANSFER_WRITE](ts->params.user, k);
    }
}

bool tickets_give_up_a_write(tickets *ts, ticket_holds_fn holds)
{
    hi_ticket *k = ts->newest_write;
    while (k && (k->acked || atomic_load(&k->t.cancelled) || (holds && !holds(k))))
        k = k->older;
    if (!k) return false;
    controller_cancel(ts->controller, &k->t);
    tickets_take_done(ts);
    return true;
}

/* ---- what is done ---- */

static bool is_under_way(const hi_ticket *k)
{
    return k->submitted && !k->acked;
}

/* What the script says of this look. */
static void play_script(tickets *ts, uint64_t look)
{
    for (; ts->script_at < ts->script_end && ts->script[ts->script_at].look == look;
         ts->script_at++) {
        const hi_completion *next = &ts->script[ts->script_at];
        const bool live = next->ticket && next->ticket <= ts->ids.num_fresh &&
                          slab_is_live(&ts->ids, next->ticket);
        hi_ticket *k = live ? record(ts, next->ticket) : NULL;
        if (k && is_under_way(k) && k->t.state == TRANSFER_QUEUED)
            controller_end(ts->controller, &k->t, next->status);
        else
            ts->script_missed++;
    }
}

void tickets_take_done(tickets *ts)
{
    bool writes = false;
    const uint64_t look = 2 * ++ts->looks + ts->waited;
    if (ts->script) play_script(ts, look);
    for (transfer *t; (t = controller_take(ts->controller));) {
        hi_ticket *k = (hi_ticket *)t;
        writes |= t->kind == TRANSFER_WRITE;
        ts->complained = false;
        ts->last_done_ns = now(ts);
        if (ts->tell) ts->tell(ts->tell_user, &(hi_completion){look, k->id, t->status});
        acknowledge(ts, k);
    }
    if (writes) settle_writes(ts);
    store_trouble_tell(&ts->trouble, ts->env, ts->params.ops->who);
}

/* Something is under way and nothing ended for long: says what, once, until something does. */
static void watch(tickets *ts)
{
    enum { PATIENCE_S = 60 };
    if (!ts->ids.num_live || ts->complained) return;
    uint64_t moment = now(ts), oldest = moment;
    for (const hi_ticket *k = NULL; (k = tickets_next(ts, k));)
        if (is_under_way(k)) oldest = RAD_MIN(oldest, RAD_MAX(k->start_ns, ts->last_done_ns));
    if (moment - oldest < (uint64_t)PATIENCE_S * 1000000000) return;
    char text[1024];
    ts->complained = true;
    tickets_describe(ts, text, sizeof text);
    rad_log(ts->env, RAD_LOG_WARN, "%s: no transfer has ended for %d s\n%s", ts->params.ops->who,
            PATIENCE_S, text);
}

void tickets_poll(tickets *ts)
{
    tickets_take_done(ts);
    watch(ts);
    ts->params.ops->demote(ts->params.user);
}

void tickets_abandon_all(tickets *ts)
{
    for (hi_ticket *k = NULL; (k = tickets_next(ts, k));)
        if (is_under_way(k)) controller_cancel(ts->controller, &k->t);
    for (hi_ticket *k = NULL; (k = tickets_next(ts, k));)
        if (is_under_way(k)) controller_wait(ts->controller, &k->t);
    while (controller_take(ts->controller)) {
    }
    for (hi_ticket *k = NULL; (k = tickets_next(ts, k));)
        tickets_drop(ts, k);
    ts->oldest_write = ts->newest_write = NULL;
    ts->writes = 0;
}

rad_status tickets_begin_script(tickets *ts)
{
    if (!ts->params.deterministic || ts->ids.num_live) return RAD_E_UNSUPPORTED;
    ts->script = rad_alloc(ts->env, ts->params.max * sizeof *ts->script);
    if (!ts->script) return RAD_E_NOMEM;
    controller_begin_script(ts->controller);
    return RAD_OK;
}

rad_status tickets_add_to_script(tickets *ts, const hi_completion *done)
{
    if (!ts->script) return RAD_E_UNSUPPORTED;
    if (ts->script_end == ts->params.max) return RAD_E_LIMIT;
    ts->script[ts->script_end++] = *done;
    return RAD_OK;
}

uint32_t tickets_end_of_call(tickets *ts)
{
    const uint32_t missed = ts->script_missed + ts->script_end - ts->script_at;
    ts->script_at = ts->script_end = ts->script_missed = 0;
    return missed;
}

rad_status tickets_wait(tickets *ts, uint64_t timeout_ns)
{
    bool under_way = false;
    for (const hi_ticket *k = NULL; !under_way && (k = tickets_next(ts, k));)
        under_way = is_under_way(k);
    bool any = under_way && controller_wait_any(ts->controller, timeout_ns);
    tickets_poll(ts);
    return !under_way ? RAD_NONE : any ? RAD_OK : RAD_AGAIN;
}

static bool writes_under_way(const tickets *ts)
{
    for (const hi_ticket *k = NULL; (k = tickets_next(ts, k));)
        if (k->t.kind == TRANSFER_WRITE || k->t.kind == TRANSFER_BACKUP_STORAGE) return true;
    return false;
}

rad_status tickets_drain(tickets *ts, uint64_t timeout_ns)
{
    uint64_t start = now(ts);
    for (;;) {
        tickets_poll(ts);
        if (!writes_under_way(ts)) return RAD_OK;
        uint64_t passed = now(ts) - start;
        if (passed >= timeout_ns) return RAD_AGAIN;
        (void)controller_wait_any(ts->controller, timeout_ns - passed);
    }
}

rad_status tickets_pump(tickets *ts, uint64_t pick)
{
    if (!ts->params.deterministic) return RAD_E_UNSUPPORTED;
    return controller_pump(ts->controller, pick) ? RAD_OK : RAD_NONE;
}

void tickets_describe(const tickets *ts, char *text, size_t bytes)
{
    size_t at = controller_describe(ts->controller, text, bytes);
    uint64_t moment = now(ts);
    for (const hi_ticket *k = NULL; at < bytes && (k = tickets_next(ts, k));) {
        at += (size_t)snprintf(
            text + at, bytes - at,
            "ticket %u: %s of %u pages from page %u, %u windows, %s%s, %.3f s old\n", k->id,
            transfer_name(k->t.kind), k->count, k->begin, k->num_windows,
            k->acked       ? "done"
            : k->submitted ? "submitted"
                           : "not submitted",
            k->orphan ? ", of nobody" : "", (double)(moment - k->start_ns) * 1e-9);
    }
}

void tickets_count_queues(const tickets *ts, uint32_t queued[TRANSFER_KINDS],
                          uint32_t running[TRANSFER_KINDS])
{
    for (int kind = 0; kind < TRANSFER_KINDS; kind++) {
        queued[kind] = controller_queued(ts->controller, kind);
        running[kind] = controller_running(ts->controller, kind);
    }
}

rad_status tickets_check(const tickets *ts, rad_error *err)
{
    uint64_t reserved = 0, orphans = 0, orphan_pages = 0, pending = 0, storage = 0, writes = 0;
    uint64_t orphan_windows = 0;
    uint32_t listed = ts->writes;
    for (const hi_ticket *k = NULL; (k = tickets_next(ts, k));) {
        bool orphan = k->t.kind == TRANSFER_LOAD && k->orphan;
        reserved += k->reserve;
        storage += k->t.kind >= TRANSFER_FETCH;
        writes += k->t.kind == TRANSFER_WRITE;
        pending += k->t.kind == TRANSFER_LOAD && !k->submitted;
        orphans += orphan;
        orphan_pages += orphan ? k->count : 0;
        orphan_windows += orphan ? k->num_windows : 0;
    }
    for (const hi_ticket *k = ts->oldest_write; k; k = k->newer)
        writes--, listed--;
    if (reserved != ts->reserved || orphans != ts->orphans || pending != ts->pending_loads ||
        orphan_pages != ts->orphan_pages || orphan_windows != ts->orphan_windows ||
        storage != ts->storage_ops || writes != 0 || listed)
        return rad_fail(err, RAD_E_CORRUPT, "%s_check: the counters of tickets are wrong",
                        ts->params.ops->who);
    if (!span_arena_check(&ts->runs))
        return rad_fail(err, RAD_E_CORRUPT, "%s_check: the arena of lists is inconsistent",
                        ts->params.ops->who);
    return RAD_OK;
}
