/* inspect_search.c - POST /inspect/search: in which nodes a text, or a run of token ids, ends.
 *
 *     {"text": "weather in", "limit": 100}       without regard to upper and lower case of ASCII
 *     {"ids": [128, 9, 4711], "limit": 100}
 *
 * What is looked for may begin above the node in which it ends: of each node's ancestors as much is
 * looked through as could be the beginning. The keys are copied in slices like the tree; texts are
 * made of them here. Text wants --dashboard-text. Ids, too, but in the namespace of requests
 * without cache_salt and extra_key, or for an administrator: whether a guess of somebody's prompt
 * is cached in a namespace that one has not the name of is that somebody's secret. */
#include "server/api_fields.h"
#include "server/server_priv.h"

#include <stdlib.h>

typedef struct search_work {
    unsigned char text[INSPECT_NEEDLE]; /* lower case */
    rad_token ids[INSPECT_NEEDLE];
    uint32_t text_len, num_ids; /* one of them is 0 */
    uint32_t limit;
    bool everywhere; /* else in the default namespace alone */
} search_work;

/* A node's key, and what stands before it, as bytes or ids. */
typedef struct haystack {
    unsigned char *bytes;
    size_t len, room;
    bool failed;
} haystack;

static void hay_put(haystack *h, const void *bytes, size_t len)
{
    if (h->room - h->len < len) {
        const size_t room = RAD_MAX(h->len + len, 2 * h->room);
        unsigned char *more = realloc(h->bytes, room);
        h->failed = h->failed || !more;
        if (!more) return;
        h->bytes = more;
        h->room = room;
    }
    memcpy(h->bytes + h->len, bytes, len);
    h->len += len;
}

static unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

static void hay_put_token(haystack *h, const server *s, const search_work *q, rad_token id)
{
    char piece[TOKENIZER_MAX_PIECE];
    if (q->num_ids)
        hay_put(h, &id, sizeof id);
    else
        hay_put(h, piece,
                tokenizer_piece(engine_tokenizer(s->engine), id, true, piece, sizeof piece));
}

/* The tokens before the node that what is looked for may begin in: no more of them than it has
 * bytes or ids, less one. Returns how many, the last of them last in `tokens`. */
static uint32_t tokens_before(const tree_look *l, const uint32_t *at, const tree_node_look *n,
                              uint32_t most, rad_token *tokens)
{
    uint32_t count = 0;
    while (n->parent && count < most && n->parent <= l->most_id && at[n->parent]) {
        const tree_node_look *up = &l->nodes[at[n->parent] - 1];
        if (up->generation != n->parent_generation) break;
        for (uint32_t i = up->num_tokens; i-- > 0 && count < most;)
            tokens[most - 1 - count++] = l->tokens[up->tokens_at + i];
        n = up;
    }
    memmove(tokens, tokens + most - count, count * sizeof *tokens);
    return count;
}

/* Where in the haystack the needle ends first behind `from`; 0: nowhere. */
static size_t find(const haystack *h, size_t from, const search_work *q)
{
    const size_t unit = q->num_ids ? sizeof(rad_token) : 1;
    const size_t len = q->num_ids ? q->num_ids * unit : q->text_len;
    const unsigned char *needle = q->num_ids ? (const unsigned char *)q->ids : q->text;
    for (size_t at = 0; at + len <= h->len; at += unit) {
        if (at + len <= from) continue; /* it ends before the node */
        size_t same = 0;
        if (q->num_ids)
            same = memcmp(h->bytes + at, needle, len) == 0 ? len : 0;
        else
            while (same < len && lower(h->bytes[at + same]) == needle[same])
                same++;
        if (same == len) return at + len;
    }
    return 0;
}

/* Some bytes around [.., end), cut at whole characters. */
static void write_snippet(json_writer *w, const haystack *h, size_t end, size_t len)
{
    enum { AROUND = 48 };
    size_t from = end - len > AROUND ? end - len - AROUND : 0;
    size_t to = RAD_MIN(h->len, end + AROUND);
    while (from < end && (h->bytes[from] & 0xc0) == 0x80)
        from++;
    while (to > end && to < h->len && (h->bytes[to] & 0xc0) == 0x80)
        to--;
    if (json_is_utf8((const char *)h->bytes + from, to - from)) {
        jw_text(w, (const char *)h->bytes + from, to - from);
        return;
    }
    char plain[2 * AROUND + INSPECT_NEEDLE]; /* a piece of a character is left at one of the ends */
    size_t used = 0;
    for (size_t i = from; i < to && used < sizeof plain; i++)
        plain[used++] = h->bytes[i] < 0x80 ? (char)h->bytes[i] : '?';
    jw_text(w, plain, used);
}

static bool look(server *s, tree_look *l, rad_status *status)
{
    l->tokens =
        malloc(INSPECT_MOST_SEARCHED * sizeof *l->tokens); /* touched as far as it is filled */
    l->token_room = INSPECT_MOST_SEARCHED;
    *status = l->tokens ? RAD_OK : RAD_E_NOMEM;
    while (!*status && !l->done) {
        if (l->room - l->count < TREE_LOOK_SLICE && l->room < INSPECT_MOST_NODES) {
            const uint32_t room = RAD_MIN(RAD_MAX(2 * l->room, l->room + TREE_LOOK_SLICE),
                                          (uint32_t)INSPECT_MOST_NODES);
            tree_node_look *more = realloc(l->nodes, room * sizeof *l->nodes);
            if (!more) {
                *status = RAD_E_NOMEM;
                break;
            }
            l->nodes = more;
            l->room = room;
        }
        *status = engine_look_at_tree(s->engine, l);
    }
    return *status == RAD_OK;
}

static void search(const server *s, const search_work *q, const tree_look *l, const uint32_t *at,
                   json_writer *w, bool *cut)
{
    haystack h = {0};
    rad_token before[INSPECT_NEEDLE];
    uint32_t found = 0;
    const uint32_t most_before = (q->num_ids ? q->num_ids : q->text_len) - 1;
    for (uint32_t i = 0; i < l->count && !h.failed; i++) {
        const tree_node_look *n = &l->nodes[i];
        if (!q->everywhere && !n->in_default_namespace) continue;
        h.len = 0;
        const uint32_t num_before = tokens_before(l, at, n, most_before, before);
        for (uint32_t k = 0; k < num_before; k++)
            hay_put_token(&h, s, q, before[k]);
        const size_t begin = h.len;
        for (uint32_t k = 0; k < n->num_tokens; k++)
            hay_put_token(&h, s, q, l->tokens[n->tokens_at + k]);
        const size_t end = find(&h, begin, q);
        if (!end) continue;
        if (found++ == q->limit) {
            *cut = true;
            break;
        }
        jw_open(w, '{');
        jw_name(w, "id");
        jw_int(w, n->id);
        jw_name(w, "tokens");
        jw_int(w, n->num_tokens);
        if (q->text_len) {
            jw_name(w, "snippet");
            write_snippet(w, &h, end, q->text_len);
        }
        jw_close(w, '}');
    }
    if (h.failed) w->failed = true;
    free(h.bytes);
}

static call_progress work_search(call *c)
{
    tree_look l = {0};
    rad_status status;
    json_writer w;
    uint32_t *at = NULL;
    bool cut = false;
    if (look(c->server, &l, &status)) at = calloc((size_t)l.most_id + 1, sizeof *at);
    if (!at || !inspect_begin(c)) {
        inspect_fail(c, status ? status : RAD_E_NOMEM);
        goto end;
    }
    for (uint32_t i = 0; i < l.count; i++)
        at[l.nodes[i].id] = i + 1;
    json_writer_begin(&w, c->out);
    jw_open(&w, '{');
    jw_name(&w, "nodes");
    jw_open(&w, '[');
    search(c->server, c->work_arg, &l, at, &w, &cut);
    jw_close(&w, ']');
    jw_name(&w, "more");
    jw_json(&w, json_boolean(cut));
    jw_name(&w, "cut");
    jw_json(&w, json_boolean(l.cut));
    jw_close(&w, '}');
    if (!json_writer_end(&w)) inspect_fail(c, RAD_E_NOMEM);
end:
    free(at);
    free(l.nodes);
    free(l.tokens);
    return CALL_DONE;
}

static bool read_ids(const json_t *list, search_work *q, api_error *err)
{
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || !count || count > INSPECT_NEEDLE)
        return api_fail(err, 400, "ids", "ids is a list of 1 to %d token ids", INSPECT_NEEDLE);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return api_fail(err, 400, "ids", "ids[%zu] is no token id", i);
        q->ids[i] = (rad_token)json_integer_value(id);
    }
    q->num_ids = (uint32_t)count;
    return true;
}

static bool read_text(const char *text, search_work *q, api_error *err)
{
    const size_t len = strlen(text);
    if (!len || len > INSPECT_NEEDLE)
        return api_fail(err, 400, "text", "text is 1 to %d bytes", INSPECT_NEEDLE);
    for (size_t i = 0; i < len; i++)
        q->text[i] = lower((unsigned char)text[i]);
    q->text_len = (uint32_t)len;
    return true;
}

static bool read_search(const server *s, const json_t *json, search_work *q, api_error *err)
{
    const char *text = NULL, *name;
    json_t *value;
    int64_t limit = 100;
    json_object_foreach((json_t *)json, name, value)
    {
        (void)value;
        if (strcmp(name, "text") && strcmp(name, "ids") && strcmp(name, "limit"))
            return api_refuse_field(name, "/inspect/search: text, ids, limit", err);
    }
    const json_t *ids = json_in_get(json, "ids");
    if (!json_in_string(json, "text", &text, err) ||
        !json_in_int(json, "limit", 1, INSPECT_MOST_FOUND, &limit, err))
        return false;
    if (!text == !ids) return api_fail(err, 400, NULL, "give a 'text', or 'ids'");
    if (text && !s->params.dashboard_text)
        return api_fail(err, 403, "text",
                        "prompts' text is not shown here: start the server with --dashboard-text");
    q->limit = (uint32_t)limit;
    q->everywhere = s->params.dashboard_text || s->is_admin;
    return text ? read_text(text, q, err) : read_ids(ids, q, err);
}

static const call_ops search_ops = {.answer = inspect_answer, .work = work_search};

void handle_inspect_search(server *s, struct evhttp_request *http)
{
    api_error err;
    search_work *work = NULL;
    json_t *json = inspect_may(s, &err) ? read_small_body(http, &err) : NULL;
    if (json && !(work = calloc(1, sizeof *work)))
        api_fail(&err, 503, NULL, "no memory for this request");
    if (work && !read_search(s, json, work, &err)) {
        free(work);
        work = NULL;
    }
    json_decref(json);
    if (work)
        call_start_work(s, &s->workers[WORKER_INSPECT], &search_ops, http, 0, work);
    else
        reply_error(http, &err);
}
