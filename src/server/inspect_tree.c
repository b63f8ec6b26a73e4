/* inspect_tree.c - GET /inspect/tree: the nodes, and what changed since somebody asked last.
 *
 *     /inspect/tree                    the nodes with the most tokens below them, parents first
 *     /inspect/tree?since=VERSION      those of them that came, changed or went since that answer
 *     /inspect/tree?under=ID&limit=N   of what is below a node, likewise; never a difference
 *
 * Differences need no history: each id has the version in which it became what it is now, or went,
 * and an answer to `since` is those with a higher one. So it does not matter how many ask, how
 * often, or what they missed. Versions begin above the time of the server's start: one of another
 * server's life gets everything.
 *
 * Of a tree of more than INSPECT_MOST_SHOWN nodes those are told that have the most tokens at and
 * below them; that set is closed towards the root, as a parent has more than its child. What is
 * left out is counted in its nearest ancestor that is told.
 *
 * When a node was used the cache knows in operations. What that is in time is estimated between two
 * looks, as if operations came evenly; a value that does not change keeps its time. */
#include "server/server_priv.h"

#include <math.h>
#include <stdlib.h>

enum {
    FLAG_EVICTABLE = 1,
    FLAG_PINNED = 2,
    FLAG_RETAINED = 4,
    FLAG_STATE = 8,
    FLAG_HOST_LOCK = 16
};

/* ---- the picture ---- */

static uint64_t uptime_ms(const server *s)
{
    return (server_now_ns(s) - s->started_ns) / 1000000;
}

void picture_destroy(tree_picture *p)
{
    if (!p) return;
    free(p->look.nodes);
    free(p->at);
    free(p->order);
    free(p->below);
    free(p->rows);
    free(p);
}

const tree_node_look *picture_find(const tree_picture *p, uint32_t id)
{
    const uint32_t at = p && id && id <= p->look.most_id ? p->at[id] : 0;
    return at ? &p->look.nodes[at - 1] : NULL;
}

static bool resize(void *array, size_t count, size_t size)
{
    void *old;
    memcpy(&old, array, sizeof old);
    void *more = realloc(old, RAD_MAX(count, (size_t)1) * size);
    if (more) memcpy(array, &more, sizeof more);
    return more != NULL;
}

/* All slices; the steps go on between them. */
static rad_status look(server *s, tree_look *l)
{
    l->count = l->next = 0;
    l->done = l->cut = false;
    while (!l->done) {
        uint32_t room = RAD_MIN(l->count + TREE_LOOK_SLICE, (uint32_t)INSPECT_MOST_NODES);
        if (room > l->room) {
            room = RAD_MIN(RAD_MAX(room, 2 * l->room), (uint32_t)INSPECT_MOST_NODES);
            if (!resize(&l->nodes, room, sizeof *l->nodes)) return RAD_E_NOMEM;
            l->room = room;
        }
        rad_status status = engine_look_at_tree(s->engine, l);
        if (status) return status;
    }
    return RAD_OK;
}

/* Whether the copy has the parent that the node names. */
static const tree_node_look *parent_of(const tree_picture *p, const tree_node_look *n)
{
    const tree_node_look *parent = picture_find(p, n->parent);
    return parent && parent->generation == n->parent_generation ? parent : NULL;
}

/* Parents before their children; what hangs on nothing is left out. */
static bool put_in_order(tree_picture *p)
{
    const uint32_t count = p->look.count;
    uint32_t *first = calloc((size_t)count + 1, sizeof *first); /* [0]: of the roots */
    uint32_t *next = calloc((size_t)count + 1, sizeof *next);
    bool fine = first && next && resize(&p->at, (size_t)p->look.most_id + 1, sizeof *p->at) &&
                resize(&p->order, count, sizeof *p->order) &&
                resize(&p->below, count, sizeof *p->below);
    p->num_order = 0;
    p->tokens = 0;
    if (fine) {
        memset(p->at, 0, ((size_t)p->look.most_id + 1) * sizeof *p->at);
        for (uint32_t i = 0; i < count; i++)
            p->at[p->look.nodes[i].id] = i + 1;
        for (uint32_t i = count; i-- > 0;) {
            const tree_node_look *n = &p->look.nodes[i], *parent = parent_of(p, n);
            if (n->parent && !parent) continue;
            const uint32_t above = parent ? (uint32_t)(parent - p->look.nodes) + 1 : 0;
            next[i + 1] = first[above];
            first[above] = i + 1;
        }
        for (uint32_t i = first[0]; i; i = next[i])
            p->order[p->num_order++] = i - 1;
        for (uint32_t at = 0; at < p->num_order; at++)
            for (uint32_t i = first[p->order[at] + 1]; i; i = next[i])
                p->order[p->num_order++] = i - 1;
        for (uint32_t at = 0; at < p->num_order; at++)
            p->below[p->order[at]] = p->look.nodes[p->order[at]].num_tokens;
        for (uint32_t at = p->num_order; at-- > 0;) {
            const tree_node_look *n = &p->look.nodes[p->order[at]];
            if (n->parent)
                p->below[p->at[n->parent] - 1] += p->below[p->order[at]];
            else
                p->tokens += p->below[p->order[at]];
        }
    }
    free(first);
    free(next);
    return fine;
}

static int descending(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Of order[0..num) those with the most tokens below, at most `most`, are marked with 1 in chosen[],
 * which is by place in look.nodes. False: no memory. */
static bool choose(const tree_picture *p, const uint32_t *order, uint32_t num, uint32_t most,
                   uint8_t *chosen)
{
    uint64_t least = 0, ties = UINT64_MAX;
    if (num > most) {
        uint64_t *sizes = malloc((size_t)num * sizeof *sizes);
        if (!sizes) return false;
        for (uint32_t i = 0; i < num; i++)
            sizes[i] = p->below[order[i]];
        qsort(sizes, num, sizeof *sizes, descending);
        least = most ? sizes[most - 1] : UINT64_MAX;
        ties = 0; /* how many of just that size have a place */
        for (uint32_t i = 0; i < most; i++)
            ties += sizes[i] == least;
        free(sizes);
    }
    for (uint32_t i = 0; i < num; i++) {
        const uint64_t below = p->below[order[i]];
        chosen[order[i]] = below > least || (below == least && ties > 0);
        if (below == least && ties) ties--;
    }
    return true;
}

typedef struct hidden {
    uint64_t tokens;
    uint32_t nodes;
    uint32_t reserved;
} hidden;

/* What is left out of order[0..num), counted in the nearest node above that is chosen; by place in
 * look.nodes. */
static void count_hidden(const tree_picture *p, const uint32_t *order, uint32_t num,
                         const uint8_t *chosen, hidden *h)
{
    for (uint32_t at = num; at-- > 0;) {
        const uint32_t i = order[at];
        const tree_node_look *n = &p->look.nodes[i];
        if (chosen[i] || !n->parent) continue;
        hidden *above = &h[p->at[n->parent] - 1];
        above->tokens += h[i].tokens + n->num_tokens;
        above->nodes += h[i].nodes + 1;
    }
}

static uint64_t used_ms(const tree_picture *p, const tree_row *was, uint32_t generation,
                        uint64_t last_access, uint64_t clock_before, uint64_t ms_before)
{
    if (was->generation == generation && was->last_access == last_access) return was->used_ms;
    if (p->clock <= clock_before || last_access <= clock_before) {
        const uint64_t clock = RAD_MAX(clock_before, (uint64_t)1); /* long before: evenly, too */
        return (uint64_t)((double)ms_before * (double)RAD_MIN(last_access, clock) / (double)clock);
    }
    const double part = (double)(last_access - clock_before) / (double)(p->clock - clock_before);
    return ms_before + (uint64_t)(fmin(part, 1) * (double)(p->taken_ms - ms_before));
}

static tree_row row_of(const tree_node_look *n)
{
    return (tree_row){
        .generation = n->generation,
        .parent = n->parent,
        .namespace_id = n->namespace_id,
        .tokens = n->num_tokens,
        .locks = n->lock_ref,
        .hits = n->hit_count,
        .sessions = n->sessions,
        .tiers = (n->on_device ? RAD_TIER_DEVICE : 0) | (n->on_host ? RAD_TIER_HOST : 0),
        .flags = (n->is_evictable ? FLAG_EVICTABLE : 0) | (n->pinned_ns ? FLAG_PINNED : 0) |
                 (n->retention ? FLAG_RETAINED : 0) | (n->has_state ? FLAG_STATE : 0) |
                 (n->host_lock_ref ? FLAG_HOST_LOCK : 0),
        .last_access = n->last_access};
}

static bool is_same(const tree_row *a, const tree_row *b)
{
    return a->generation == b->generation && a->parent == b->parent &&
           a->namespace_id == b->namespace_id && a->tokens == b->tokens && a->locks == b->locks &&
           a->hits == b->hits && a->sessions == b->sessions && a->tiers == b->tiers &&
           a->flags == b->flags && a->last_access == b->last_access &&
           a->hidden_nodes == b->hidden_nodes && a->hidden_tokens == b->hidden_tokens;
}

/* What became of each id since the picture before. */
static bool compare(tree_picture *p, uint64_t clock_before, uint64_t ms_before)
{
    const uint32_t ids = RAD_MAX(p->look.most_id + 1, p->num_rows);
    tree_row *rows = calloc(ids, sizeof *rows);
    uint8_t *chosen = calloc((size_t)p->look.count + 1, 1);
    hidden *h = calloc((size_t)p->look.count + 1, sizeof *h);
    if (!rows || !chosen || !h || !choose(p, p->order, p->num_order, INSPECT_MOST_SHOWN, chosen)) {
        free(rows);
        free(chosen);
        free(h);
        return false;
    }
    count_hidden(p, p->order, p->num_order, chosen, h);
    p->version++;
    p->num_shown = 0;
    p->shown_tokens = 0;
    for (uint32_t i = 0; i < p->num_order; i++) {
        const tree_node_look *n = &p->look.nodes[p->order[i]];
        if (!chosen[p->order[i]]) continue;
        rows[n->id] = row_of(n);
        rows[n->id].hidden_nodes = h[p->order[i]].nodes;
        rows[n->id].hidden_tokens = h[p->order[i]].tokens;
        p->num_shown++;
        p->shown_tokens += n->num_tokens;
    }
    static const tree_row none;
    for (uint32_t id = 0; id < ids; id++) {
        tree_row *row = &rows[id];
        const tree_row *was = id < p->num_rows ? &p->rows[id] : &none;
        if (row->generation)
            row->used_ms =
                used_ms(p, was, row->generation, row->last_access, clock_before, ms_before);
        row->changed = is_same(row, was) ? was->changed : p->version;
    }
    free(chosen);
    free(h);
    free(p->rows);
    p->rows = rows;
    p->num_rows = ids;
    return true;
}

rad_status picture_refresh(server *s)
{
    tree_picture *p = s->picture;
    if (p && p->taken_ns && server_now_ns(s) - p->taken_ns < INSPECT_FRESH_MS * UINT64_C(1000000))
        return RAD_OK;
    if (!p) {
        struct timespec now;
        p = s->picture = calloc(1, sizeof *p);
        if (!p) return RAD_E_NOMEM;
        clock_gettime(CLOCK_REALTIME, &now);
        p->base = p->version = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    }
    const uint64_t clock_before = p->clock, ms_before = p->taken_ms;
    rad_status status = look(s, &p->look);
    p->taken_ns = 0; /* until it is whole */
    if (status) return status;
    p->clock = p->look.clock;
    p->taken_ms = uptime_ms(s);
    if (!put_in_order(p) || !compare(p, clock_before, ms_before)) return RAD_E_NOMEM;
    p->taken_ns = RAD_MAX(server_now_ns(s), (uint64_t)1);
    return RAD_OK;
}

/* ---- the answer ---- */

typedef struct tree_work {
    uint64_t since, under, limit;
} tree_work;

static void write_row(json_writer *w, uint32_t id, const tree_row *r)
{
    const int64_t values[] = {id,
                              r->parent,
                              r->namespace_id,
                              r->tokens,
                              r->locks,
                              r->hits,
                              r->tiers,
                              r->sessions,
                              r->flags,
                              (int64_t)r->used_ms,
                              r->hidden_nodes,
                              (int64_t)r->hidden_tokens,
                              r->generation};
    jw_open(w, '[');
    for (size_t i = 0; i < RAD_COUNT(values); i++)
        jw_int(w, values[i]);
    jw_close(w, ']');
}

static void write_head(json_writer *w, const server *s, const tree_picture *p, bool whole)
{
    static const char *const columns[] = {
        "id",       "parent", "namespace", "tokens",       "locks",         "hits",      "tiers",
        "sessions", "flags",  "used_ms",   "hidden_nodes", "hidden_tokens", "generation"};
    jw_name(w, "version");
    jw_int(w, (int64_t)p->version);
    jw_name(w, "whole");
    jw_json(w, json_boolean(whole));
    jw_name(w, "now_ms");
    jw_int(w, (int64_t)p->taken_ms);
    jw_name(w, "page_size");
    jw_int(w, engine_get_info(s->engine)->page_size);
    jw_name(w, "nodes_total");
    jw_int(w, p->num_order);
    jw_name(w, "nodes_shown");
    jw_int(w, p->num_shown);
    jw_name(w, "tokens_total");
    jw_int(w, (int64_t)p->tokens);
    jw_name(w, "tokens_shown");
    jw_int(w, (int64_t)p->shown_tokens);
    jw_name(w, "cut");
    jw_json(w, json_boolean(p->look.cut));
    jw_name(w, "columns");
    jw_open(w, '[');
    for (size_t i = 0; i < RAD_COUNT(columns); i++)
        jw_word(w, columns[i]);
    jw_close(w, ']');
}

static void write_all(json_writer *w, const tree_picture *p)
{
    for (uint32_t i = 0; i < p->num_order; i++) {
        const uint32_t id = p->look.nodes[p->order[i]].id;
        if (p->rows[id].generation) write_row(w, id, &p->rows[id]);
    }
}

static void write_changes(json_writer *w, const tree_picture *p, uint64_t since)
{
    for (uint32_t id = 1; id < p->num_rows; id++)
        if (p->rows[id].changed > since && p->rows[id].generation) write_row(w, id, &p->rows[id]);
    jw_close(w, ']');
    jw_name(w, "removed");
    jw_open(w, '[');
    for (uint32_t id = 1; id < p->num_rows; id++)
        if (p->rows[id].changed > since && !p->rows[id].generation) jw_int(w, id);
}

/* False: no memory. */
static bool write_under(json_writer *w, const tree_picture *p, uint32_t under, uint32_t limit)
{
    const uint32_t count = p->look.count;
    uint8_t *marks = calloc((size_t)count + 1, 1); /* 1: of that node and what is below it */
    uint32_t *order = calloc((size_t)count + 1, sizeof *order);
    uint8_t *chosen = calloc((size_t)count + 1, 1);
    hidden *h = calloc((size_t)count + 1, sizeof *h);
    bool fine = marks && order && chosen && h;
    uint32_t num = 0;
    for (uint32_t i = 0; fine && i < p->num_order; i++) {
        const tree_node_look *n = &p->look.nodes[p->order[i]];
        const bool is = !under || n->id == under || (n->parent && marks[p->at[n->parent] - 1]);
        marks[p->order[i]] = is;
        if (is) order[num++] = p->order[i];
    }
    fine = fine && choose(p, order, num, limit, chosen);
    if (fine) count_hidden(p, order, num, chosen, h);
    for (uint32_t i = 0; fine && i < num; i++) {
        const tree_node_look *n = &p->look.nodes[order[i]];
        if (!chosen[order[i]]) continue;
        tree_row row = row_of(n);
        row.used_ms = p->rows[n->id].generation
                          ? p->rows[n->id].used_ms
                          : used_ms(p, &row, 0, n->last_access, p->clock, p->taken_ms);
        if (n->id == under) row.parent = 0;
        row.hidden_nodes = h[order[i]].nodes;
        row.hidden_tokens = h[order[i]].tokens;
        write_row(w, n->id, &row);
    }
    free(marks);
    free(order);
    free(chosen);
    free(h);
    return fine;
}

static call_progress work_tree(call *c)
{
    const tree_work *q = c->work_arg;
    rad_status status = picture_refresh(c->server);
    if (status || !inspect_begin(c)) {
        inspect_fail(c, status ? status : RAD_E_NOMEM);
        return CALL_DONE;
    }
    const tree_picture *p = c->server->picture;
    const bool part = q->under || q->limit < INSPECT_MOST_SHOWN;
    const bool whole = part || q->since <= p->base || q->since > p->version;
    json_writer w;
    if (q->under && !picture_find(p, (uint32_t)q->under)) {
        c->status = RAD_NONE;
        api_fail(&c->error, 404, "under", "there is no node %llu", (unsigned long long)q->under);
        return CALL_DONE;
    }
    json_writer_begin(&w, c->out);
    jw_open(&w, '{');
    write_head(&w, c->server, p, whole);
    jw_name(&w, "nodes");
    jw_open(&w, '[');
    bool fine = true;
    if (part)
        fine = write_under(&w, p, (uint32_t)q->under, (uint32_t)q->limit);
    else if (whole)
        write_all(&w, p);
    else
        write_changes(&w, p, q->since);
    jw_close(&w, ']');
    jw_close(&w, '}');
    if (!json_writer_end(&w) || !fine) inspect_fail(c, RAD_E_NOMEM);
    return CALL_DONE;
}

static const call_ops tree_ops = {.answer = inspect_answer, .work = work_tree};

void handle_inspect_tree(server *s, struct evhttp_request *http)
{
    api_error err;
    tree_work q = {.limit = INSPECT_MOST_SHOWN}, *work = NULL;
    if (inspect_may(s, &err) && inspect_query(http, "since under limit", &err) &&
        inspect_number(http, "since", UINT64_MAX >> 1, &q.since, &err) &&
        inspect_number(http, "under", UINT32_MAX, &q.under, &err) &&
        inspect_number(http, "limit", INSPECT_MOST_SHOWN, &q.limit, &err)) {
        work = malloc(sizeof *work);
        if (!work) api_fail(&err, 503, NULL, "no memory for this request");
    }
    if (!work) {
        reply_error(http, &err);
        return;
    }
    *work = q;
    call_start_work(s, &s->workers[WORKER_INSPECT], &tree_ops, http, 0, work);
}
