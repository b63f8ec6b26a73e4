/* inspect_node.c - GET /inspect/node?id=N&from=I&count=N: one node, who holds it, why it is kept,
 * when it would go, and, with --dashboard-text, what it says.
 *
 * Words are made of a picture that is INSPECT_FRESH_MS old at most; its tokens are asked for by id
 * and generation, so they are that node's or none. */
#include "server/server_priv.h"

#include "text/detokenize.h"

#include <stdlib.h>

typedef struct node_work {
    uint64_t id, from, count;
    engine_look look;
    rad_token tokens[INSPECT_MOST_TOKENS];
} node_work;

static bool goes_before(const tree_node_look *a, const tree_node_look *b)
{
    return a->order[0] < b->order[0] || (a->order[0] == b->order[0] && a->order[1] < b->order[1]);
}

static void write_int(json_writer *w, const char *name, uint64_t value)
{
    jw_name(w, name);
    jw_int(w, (int64_t)value);
}

static void write_bool(json_writer *w, const char *name, bool value)
{
    jw_name(w, name);
    jw_json(w, json_boolean(value));
}

/* Whether the path to `held` goes through the node. */
static bool is_on_path(const tree_picture *p, rad_ref held, uint32_t id)
{
    const tree_node_look *n = picture_find(p, held.index);
    if (!n || n->generation != held.generation) return false;
    while (n && n->id != id)
        n = picture_find(p, n->parent);
    return n != NULL;
}

static void write_holders(json_writer *w, const tree_picture *p, const engine_look *look,
                          const tree_node_look *n)
{
    jw_name(w, "requests");
    jw_open(w, '[');
    for (uint32_t i = 0; i < look->num_requests; i++)
        if (look->requests[i].node.index && is_on_path(p, look->requests[i].node, n->id))
            jw_int(w, (int64_t)look->requests[i].id);
    jw_close(w, ']');
}

static void reason(json_writer *w, const char *name, const char *format, ...) RAD_PRINTF(3, 4);
static void reason(json_writer *w, const char *name, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    jw_open(w, '{');
    jw_name(w, "reason");
    jw_word(w, name);
    jw_name(w, "text");
    jw_word(w, text);
    jw_close(w, '}');
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* What would go before it when pages are needed now. */
static void write_turn(json_writer *w, const tree_picture *p, const tree_node_look *n,
                       const char *policy)
{
    uint64_t leaves = 0, tokens = 0;
    for (uint32_t i = 0; i < p->look.count; i++) {
        const tree_node_look *other = &p->look.nodes[i];
        if (!other->is_evictable || !goes_before(other, n)) continue;
        leaves++;
        tokens += other->num_tokens;
    }
    if (!leaves)
        reason(w, "evictable", "nothing holds it: by %s it goes first when pages are needed",
               policy);
    else
        reason(w, "evictable",
               "nothing holds it: by %s it goes when %llu leaf%s with %llu token%s have gone",
               policy, (unsigned long long)leaves, leaves == 1 ? "" : "s",
               (unsigned long long)tokens, plural(tokens));
}

static void write_why(json_writer *w, const server *s, const tree_picture *p,
                      const tree_node_look *n)
{
    jw_name(w, "why");
    jw_open(w, '[');
    if (n->lock_ref)
        reason(w, "locked", "%u request%s, or transfers, go on from here or from below it",
               n->lock_ref, plural(n->lock_ref));
    if (n->host_lock_ref)
        reason(w, "locked_host", "%u transfer%s between the tiers at work on its host pages",
               n->host_lock_ref, plural(n->host_lock_ref));
    if (n->pinned_ns)
        reason(w, "pinned", "pinned for %.0f s more, unless it is used",
               (double)n->pinned_ns * 1e-9);
    if (n->retention) reason(w, "retained", "retained with priority %u", n->retention);
    if (n->sessions)
        reason(w, "session",
               "%u open session%s may come back to it: it goes after what no session has",
               n->sessions, plural(n->sessions));
    if (n->has_state) reason(w, "state", "a snapshot of the recurrent layers stands at its end");
    if (n->is_evictable)
        write_turn(w, p, n, engine_get_info(s->engine)->eviction_policy);
    else if (!n->lock_ref && n->on_device && n->num_children)
        reason(w, "children", "%u node%s on it: %s", n->num_children,
               n->num_children == 1 ? " stands" : "s stand",
               n->num_children == 1 ? "that goes first, from its end"
                                    : "they go first, from their ends");
    if (!n->on_device && n->on_host)
        reason(w, "host", "it has left the device and can be loaded back from the host");
    jw_close(w, ']');
}

/* The ids, and their text as a whole. */
static void write_tokens(json_writer *w, const server *s, node_work *q, const tree_node_look *n)
{
    uint32_t count = (uint32_t)q->count, total = 0;
    text_buf text = {0};
    detokenizer d;
    const rad_ref ref = {.index = n->id, .generation = n->generation};
    rad_status status =
        engine_look_at_tokens(s->engine, ref, (uint32_t)q->from, q->tokens, &count, &total);
    if (status) count = 0; /* it has gone since the picture was taken */
    detokenizer_init(&d, engine_tokenizer(s->engine), false, false);
    write_int(w, "from", q->from);
    jw_name(w, "ids");
    jw_open(w, '[');
    for (uint32_t i = 0; i < count; i++) {
        jw_int(w, q->tokens[i]);
        if (!status) status = detokenizer_push(&d, q->tokens[i], &text);
    }
    jw_close(w, ']');
    if (!status) status = detokenizer_finish(&d, &text);
    if (status == RAD_E_NOMEM) w->failed = true;
    jw_name(w, "text");
    jw_text(w, text.data ? text.data : "", text.len);
    text_buf_fini(&text);
}

static void write_path(json_writer *w, const tree_picture *p, const tree_node_look *n)
{
    enum { MOST = 256 };
    uint32_t ids[MOST], count = 0;
    uint64_t depth = 0;
    for (const tree_node_look *up = n; up; up = picture_find(p, up->parent)) {
        if (count < MOST) ids[count++] = up->id;
        depth += up->num_tokens;
    }
    write_int(w, "depth_tokens", depth);
    jw_name(w, "path");
    jw_open(w, '[');
    while (count)
        jw_int(w, ids[--count]);
    jw_close(w, ']');
}

static call_progress work_node(call *c)
{
    node_work *q = c->work_arg;
    server *s = c->server;
    rad_status status = picture_refresh(s);
    if (!status) status = engine_look_at(s->engine, &q->look);
    if (status || !inspect_begin(c)) {
        inspect_fail(c, status ? status : RAD_E_NOMEM);
        return CALL_DONE;
    }
    const tree_picture *p = s->picture;
    const tree_node_look *n = picture_find(p, (uint32_t)q->id);
    if (!n) {
        c->status = RAD_NONE;
        api_fail(&c->error, 404, "id", "there is no node %llu (any more)",
                 (unsigned long long)q->id);
        return CALL_DONE;
    }
    const tree_row *row = n->id < p->num_rows ? &p->rows[n->id] : NULL;
    json_writer w;
    json_writer_begin(&w, c->out);
    jw_open(&w, '{');
    write_int(&w, "id", n->id);
    write_int(&w, "generation", n->generation);
    write_int(&w, "parent", n->parent);
    write_int(&w, "namespace", n->namespace_id);
    write_bool(&w, "default_namespace", n->in_default_namespace);
    write_int(&w, "tokens", n->num_tokens);
    write_int(&w, "tokens_below", p->below[n - p->look.nodes] - n->num_tokens);
    write_int(&w, "children", n->num_children);
    write_path(&w, p, n);
    write_bool(&w, "on_device", n->on_device);
    write_bool(&w, "on_host", n->on_host);
    write_int(&w, "locks", n->lock_ref);
    write_int(&w, "host_locks", n->host_lock_ref);
    write_int(&w, "hits", n->hit_count);
    write_int(&w, "sessions", n->sessions);
    jw_name(&w, "priority");
    jw_int(&w, n->priority);
    write_int(&w, "retention", n->retention);
    write_int(&w, "window_tokens", n->window_tokens);
    write_bool(&w, "state", n->has_state);
    jw_name(&w, "pinned_s");
    jw_real(&w, (double)n->pinned_ns * 1e-9);
    if (row && row->generation == n->generation) {
        jw_name(&w, "idle_s");
        jw_real(&w, (double)(p->taken_ms - RAD_MIN(p->taken_ms, row->used_ms)) * 1e-3);
    }
    write_holders(&w, p, &q->look, n);
    write_why(&w, s, p, n);
    write_bool(&w, "text_hidden", !s->params.dashboard_text);
    if (s->params.dashboard_text) write_tokens(&w, s, q, n);
    jw_close(&w, '}');
    if (!json_writer_end(&w)) inspect_fail(c, RAD_E_NOMEM);
    return CALL_DONE;
}

static const call_ops node_ops = {.answer = inspect_answer, .work = work_node};

void handle_inspect_node(server *s, struct evhttp_request *http)
{
    api_error err;
    node_work *work = NULL;
    uint64_t id = 0, from = 0, count = 512;
    if (inspect_may(s, &err) && inspect_query(http, "id from count", &err) &&
        inspect_number(http, "id", UINT32_MAX, &id, &err) &&
        inspect_number(http, "from", UINT32_MAX, &from, &err) &&
        inspect_number(http, "count", INSPECT_MOST_TOKENS, &count, &err)) {
        if (!id)
            api_fail(&err, 400, "id", "give the id of a node, as /inspect/tree tells it");
        else if (!(work = malloc(sizeof *work)))
            api_fail(&err, 503, NULL, "no memory for this request");
    }
    if (!work) {
        reply_error(http, &err);
        return;
    }
    work->id = id;
    work->from = from;
    work->count = count;
    call_start_work(s, &s->workers[WORKER_INSPECT], &node_ops, http, 0, work);
}
