/* sessions.c - the table of sessions, their requests' ids, and the thread that ends idle ones.
 *
 * Two lists: `open` by last use, the one idle longest first, and `ended`, of sessions that nobody
 * finds any more and whose last turn, or whose place in the engine, is still to be given back. To
 * give a place back is to wait for the scheduler, which the server's thread must not do: the
 * keeper does it.
 *
 * A request that was removed while it runs stays until it ends, for its turn's sake; nothing can be
 * asked of it, so its parent may go before it.
 *
 * Invariants, under the lock: `bytes` is the sum over all requests; a session is in one of the
 * lists, but while sessions_open or the keeper has it; `running` counts the session's requests that
 * have not ended. */
#include "server/sessions.h"

#include "base/list.h"
#include "base/timed_wait.h"
#include "server/api_fields.h"
#include "server/random_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct session_request {
    struct session_request *prev, *next; /* of the session */
    struct session_request *parent;      /* NULL: its history is its own ids */
    char *rid;
    rad_token *ids; /* its own: input, then output */
    uint32_t kept;  /* tokens of the parent's history, before its own */
    uint32_t num_ids, room, num_input;
    uint64_t engine_id; /* 0: not submitted yet */
    bool running, abort_asked;
    bool removed; /* nobody finds it any more */
    bool has_children;
} session_request;

typedef struct session {
    struct session *prev, *next;
    char *owner, *id;
    uint32_t engine_session;
    uint32_t running;
    bool streaming, is_open;
    uint64_t idle_ns, used_ns;
    struct {
        session_request *first, *last;
    } requests;
    session_request *newest; /* streaming: the last that ended well */
} session;

typedef struct session_list {
    session *first, *last;
} session_list;

struct sessions {
    sessions_params params;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t keeper;
    bool started, stop;
    session_list open, ended;
    uint32_t num_open;
    uint64_t bytes;
    uint64_t look_at_ns; /* when the keeper looks next; UINT64_MAX: not before it is woken */
};

/* ---- requests ---- */

static uint64_t bytes_of(const session_request *r)
{
    return sizeof *r + strlen(r->rid) + 1 + (uint64_t)r->room * sizeof *r->ids;
}

static void free_request(sessions *s, session *of, session_request *r)
{
    s->bytes -= bytes_of(r);
    LIST_REMOVE(&of->requests, r, prev, next);
    free(r->ids);
    free(r->rid);
    free(r);
}

static uint32_t history_of(const session_request *r)
{
    return r->kept + r->num_ids;
}

/* The first `len` tokens of r's history. */
static void copy_history(const session_request *r, uint32_t len, rad_token *out)
{
    for (; r; r = r->parent) {
        if (len > r->kept) {
            memcpy(out + r->kept, r->ids, (len - r->kept) * sizeof *out);
            len = r->kept;
        }
    }
}

static session_request *find_request(const session *of, const char *rid)
{
    for (session_request *r = of->requests.first; r; r = r->next)
        if (!r->removed && strcmp(r->rid, rid) == 0) return r;
    return NULL;
}

static void ask_to_abort(sessions *s, session_request *r)
{
    if (!r->running || r->abort_asked) return;
    r->abort_asked = true;
    if (r->engine_id) engine_abort(s->params.engine, r->engine_id);
}

static bool descends(const session_request *r, const session_request *from)
{
    while (r && r != from)
        r = r->removed ? NULL : r->parent;
    return r != NULL;
}

/* What came after `from`, or all (NULL): what runs is aborted and goes when it ends. The newest
 * first: a parent is older than its children, and whose child one is must still be known. */
static void remove_behind(sessions *s, session *of, session_request *from)
{
    for (session_request *r = of->requests.last, *prev; r; r = prev) {
        prev = r->prev;
        if (r == from || r->removed || (from && !descends(r, from))) continue;
        ask_to_abort(s, r);
        r->removed = true;
        if (!r->running) free_request(s, of, r);
    }
    if (from) from->has_children = false;
}

/* ---- sessions ---- */

static const char *or_empty(const char *owner)
{
    return owner ? owner : "";
}

static session *find(const sessions *s, const char *owner, const char *id)
{
    for (session *at = s->open.first; at; at = at->next)
        if (strcmp(at->id, id) == 0 && strcmp(at->owner, or_empty(owner)) == 0) return at;
    return NULL;
}

static void free_session(sessions *s, session *at)
{
    while (at->requests.first)
        free_request(s, at, at->requests.first);
    free(at->owner);
    free(at->id);
    free(at);
}

/* Nobody finds it any more; its histories go at once, but for what runs. */
static void end_session(sessions *s, session *at)
{
    LIST_REMOVE(&s->open, at, prev, next);
    LIST_APPEND(&s->ended, at, prev, next);
    s->num_open--;
    at->is_open = false;
    at->newest = NULL;
    for (session_request *r = at->requests.first, *next; r; r = next) {
        next = r->next;
        r->removed = true;
        if (!r->running) free_request(s, at, r);
    }
    pthread_cond_signal(&s->wake);
}

static uint64_t due_ns(const session *at)
{
    return at->used_ns + at->idle_ns < at->used_ns ? UINT64_MAX : at->used_ns + at->idle_ns;
}

static void use(sessions *s, session *at)
{
    at->used_ns = monotonic_ns();
    if (!at->is_open) return;
    LIST_REMOVE(&s->open, at, prev, next);
    LIST_APPEND(&s->open, at, prev, next);
    if (due_ns(at) < s->look_at_ns) pthread_cond_signal(&s->wake);
}

/* Ends those idle longest until there is room for `bytes` more. */
static bool make_room(sessions *s, const session *mine, uint64_t bytes)
{
    for (session *at = s->open.first, *next; at && s->bytes + bytes > s->params.max_bytes;
         at = next) {
        next = at->next;
        if (at != mine && !at->running) end_session(s, at);
    }
    return s->bytes + bytes <= s->params.max_bytes;
}

/* Appends to its ids; false: no memory, or more than all histories may have together. */
static bool append_ids(sessions *s, const session *at, session_request *r, const rad_token *ids,
                       uint32_t count)
{
    if (!count) return true;
    uint32_t want = r->num_ids + count;
    if (want > r->room) {
        uint32_t room = RAD_MAX(want, r->room + r->room / 2);
        uint64_t more = (uint64_t)(room - r->room) * sizeof *r->ids;
        rad_token *grown = make_room(s, at, more) ? realloc(r->ids, room * sizeof *grown) : NULL;
        if (!grown) return false;
        r->ids = grown;
        r->room = room;
        s->bytes += more;
    }
    memcpy(r->ids + r->num_ids, ids, count * sizeof *ids);
    r->num_ids = want;
    return true;
}

/* ---- the keeper ---- */

/* With the lock, which it lets go of meanwhile: its place in the engine, and the session. */
static void give_back(sessions *s, session *at)
{
    LIST_REMOVE(&s->ended, at, prev, next);
    if (at->engine_session) {
        pthread_mutex_unlock(&s->lock);
        (void)engine_session_close(s->params.engine, at->engine_session, NULL);
        pthread_mutex_lock(&s->lock);
    }
    free_session(s, at);
}

static session *first_over(const sessions *s)
{
    session *at = s->ended.first;
    while (at && at->running)
        at = at->next;
    return at;
}

/* Ends what was idle for its time, and finds out when the next one is due. */
static void end_idle(sessions *s)
{
    uint64_t now_ns = monotonic_ns();
    s->look_at_ns = UINT64_MAX;
    for (session *at = s->open.first, *next; at; at = next) {
        next = at->next;
        if (at->running) continue;
        if (due_ns(at) <= now_ns)
            end_session(s, at);
        else
            s->look_at_ns = RAD_MIN(s->look_at_ns, due_ns(at));
    }
}

static void *keeper_main(void *arg)
{
    sessions *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        end_idle(s);
        session *over = first_over(s);
        if (over)
            give_back(s, over);
        else if (s->look_at_ns == UINT64_MAX)
            pthread_cond_wait(&s->wake, &s->lock);
        else
            (void)wait_until(&s->wake, &s->lock, s->look_at_ns);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

rad_status sessions_create(const sessions_params *p, sessions **out)
{
    sessions *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return RAD_E_NOMEM;
    s->params = *p;
    s->look_at_ns = UINT64_MAX;
    pthread_mutex_init(&s->lock, NULL);
    cond_init_monotonic(&s->wake);
    if (p->max_sessions && pthread_create(&s->keeper, NULL, keeper_main, s) != 0) {
        sessions_destroy(s);
        return RAD_E_IO;
    }
    s->started = p->max_sessions > 0;
    *out = s;
    return RAD_OK;
}

void sessions_destroy(sessions *s)
{
    if (!s) return;
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->keeper, NULL);
    }
    pthread_mutex_lock(&s->lock);
    while (s->open.first)
        end_session(s, s->open.first);
    while (s->ended.first)
        give_back(s, s->ended.first);
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- open and close ---- */

static bool refuse_open(const sessions *s, bool streaming, const char *id, api_error *err)
{
    if (!s->params.max_sessions)
        return api_fail(err, 400, NULL, "this server has no sessions (--max-sessions)");
    if (streaming && !s->params.streaming)
        return api_fail(err, 400, "streaming",
                        "this server has no streaming sessions (--enable-streaming-session)");
    if (id && (!*id || strlen(id) >= SESSION_ID_BYTES))
        return api_fail(err, 400, "session_id", "'session_id' has 1 to %d bytes",
                        SESSION_ID_BYTES - 1);
    return true;
}

static session *create_session(const char *owner, const char *id)
{
    session *at = calloc(1, sizeof *at);
    if (!at) return NULL;
    at->owner = strdup(or_empty(owner));
    at->id = strdup(id);
    if (at->owner && at->id) return at;
    free(at->owner);
    free(at->id);
    free(at);
    return NULL;
}

/* Puts it into the table unless that is full or has one of its name. */
static bool add_session(sessions *s, session *at, api_error *err)
{
    char word[48];
    bool taken = find(s, at->owner, at->id) != NULL, full = s->num_open >= s->params.max_sessions;
    if (taken)
        return api_fail(err, 400, "session_id", "the session '%s' is open already",
                        api_shown(at->id, word, sizeof word));
    if (full)
        return api_fail(err, 429, NULL, "%u sessions are open, as many as may be (--max-sessions)",
                        s->num_open);
    LIST_APPEND(&s->open, at, prev, next);
    s->num_open++;
    at->is_open = true;
    use(s, at);
    return true;
}

bool sessions_open(sessions *s, const char *owner, const char *id, bool streaming, uint64_t idle_ns,
                   char name[SESSION_ID_BYTES], api_error *err)
{
    char made[RANDOM_ID_BYTES];
    rad_error why = {0};
    if (!refuse_open(s, streaming, id, err)) return false;
    if (!id) {
        random_id(made);
        id = made;
    }
    session *at = create_session(owner, id);
    if (!at) return api_fail(err, 503, NULL, "no memory for a session");
    at->streaming = streaming;
    at->idle_ns = idle_ns ? idle_ns : s->params.idle_ns;
    if (streaming == s->params.streaming) {
        rad_status status = engine_session_open(s->params.engine, &at->engine_session, &why);
        if (status) {
            api_fail(err, status == RAD_FULL ? 429 : 503, NULL, "%s",
                     why.text[0] ? why.text : rad_status_name(status));
            free_session(s, at);
            return false;
        }
    }
    pthread_mutex_lock(&s->lock);
    bool added = add_session(s, at, err);
    pthread_mutex_unlock(&s->lock);
    if (added) {
        snprintf(name, SESSION_ID_BYTES, "%s", id);
        return true;
    }
    if (at->engine_session) (void)engine_session_close(s->params.engine, at->engine_session, NULL);
    free_session(s, at);
    return false;
}

static bool not_open(const char *param, const char *id, int http_status, api_error *err)
{
    char word[80];
    return api_fail(err, http_status, param,
                    "invalid session id: '%s' is not open; it was closed, was idle for too long, "
                    "had to make room, or never was",
                    api_shown(id, word, sizeof word));
}

bool sessions_close(sessions *s, const char *owner, const char *id, api_error *err)
{
    pthread_mutex_lock(&s->lock);
    session *at = find(s, owner, id);
    if (at) end_session(s, at);
    if (at && !at->running) give_back(s, at); /* so that it is so when the client hears of it */
    pthread_mutex_unlock(&s->lock);
    return at || not_open("session_id", id, 404, err);
}

/* ---- turns ---- */

static bool no_request(const char *rid, api_error *err)
{
    char word[80];
    return api_fail(err, 400, "session_params",
                    "session_params: the session has no request '%s' to go on from",
                    api_shown(rid, word, sizeof word));
}

/* The request that a streaming session's turn goes on from. False: words. */
static bool find_in_chain(const session *at, const api_session *ask, session_request **parent,
                          api_error *err)
{
    const char *what = ask->replace                ? "replace"
                       : ask->offset               ? "offset"
                       : ask->drop_previous_output ? "drop_previous_output"
                                                   : NULL;
    if (what)
        return api_fail(err, 400, "session_params",
                        "session_params: a streaming session only goes on: it takes no '%s'", what);
    if (at->running)
        return api_fail(err, 400, "session_params",
                        "session_params: the streaming session already has an active request");
    *parent = at->newest;
    if (!ask->rid || (*parent && strcmp((*parent)->rid, ask->rid) == 0)) return true;
    return api_fail(err, 400, "session_params",
                    "session_params: a streaming session goes on from its last turn%s%.80s%s",
                    *parent ? ", which is '" : "; there is none yet", *parent ? (*parent)->rid : "",
                    *parent ? "'" : "");
}

static bool find_in_tree(sessions *s, session *at, const api_session *ask, session_request **parent,
                         api_error *err)
{
    *parent = ask->rid ? find_request(at, ask->rid) : NULL;
    if (ask->rid && !*parent) return no_request(ask->rid, err);
    if (*parent && (*parent)->running && !ask->replace)
        return api_fail(err, 400, "session_params",
                        "session_params: the request '%.80s' has not finished; 'replace': true "
                        "ends it",
                        (*parent)->rid);
    if (!ask->replace) return true;
    if (*parent) ask_to_abort(s, *parent);
    remove_behind(s, at, *parent);
    return true;
}

/* As Python cuts a list: below zero it counts from the end. */
static uint32_t cut_at(const api_session *ask, const session_request *parent)
{
    uint32_t len = history_of(parent), input = parent->kept + parent->num_input;
    if (ask->drop_previous_output) len = input;
    if (ask->offset > 0) len = (uint32_t)RAD_MIN((int64_t)len, ask->offset);
    if (ask->offset < 0) len = (uint32_t)RAD_MAX((int64_t)len + ask->offset, 0);
    return len;
}

static session_step step_of(const api_session *ask, const session_request *parent)
{
    if (ask->replace) return SESSION_REPLACES;
    if (!parent) return SESSION_BEGINS;
    if (ask->offset) return SESSION_CUTS;
    if (ask->drop_previous_output) return SESSION_DROPS;
    return parent->has_children ? SESSION_BRANCHES : SESSION_APPENDS;
}

static session_request *add_request(sessions *s, session *at, const char *rid,
                                    session_request *parent, uint32_t kept)
{
    session_request *r = calloc(1, sizeof *r);
    char *name = strdup(rid);
    if (!r || !name || !make_room(s, at, sizeof *r + strlen(rid) + 1)) {
        free(r);
        free(name);
        return NULL;
    }
    *r = (session_request){.parent = parent, .rid = name, .kept = kept, .running = true};
    LIST_APPEND(&at->requests, r, prev, next);
    s->bytes += bytes_of(r);
    at->running++;
    if (parent) parent->has_children = true;
    return r;
}

/* With the lock. */
static bool begin(sessions *s, session *at, const api_session *ask, const char *rid,
                  session_turn *t, token_buf *history, api_error *err)
{
    session_request *parent = NULL;
    if (find_request(at, rid))
        return api_fail(err, 400, "rid", "the session has a request '%.80s' already", rid);
    if (!(at->streaming ? find_in_chain(at, ask, &parent, err)
                        : find_in_tree(s, at, ask, &parent, err)))
        return false;
    uint32_t kept = parent ? cut_at(ask, parent) : 0;
    *t = (session_turn){.of = s,
                        .session = at,
                        .step = step_of(ask, parent),
                        .engine_session = at->engine_session,
                        .history_tokens = kept,
                        .left_tokens = parent ? history_of(parent) - kept : 0,
                        .streaming = at->streaming};
    api_shown(at->id, t->id, sizeof t->id);
    if (parent) api_shown(parent->rid, t->from, sizeof t->from);
    for (uint32_t i = history->len; i < kept; i++)
        if (token_buf_push(history, 0)) return api_fail(err, 503, NULL, "no memory for this turn");
    if (parent) copy_history(parent, kept, history->ids);
    t->request = add_request(s, at, rid, parent, kept);
    if (!t->request) return api_fail(err, 503, NULL, "no memory for this turn of a session");
    use(s, at);
    return true;
}

session_turn *sessions_begin(sessions *s, const char *owner, const api_session *ask,
                             const char *rid, token_buf *history, api_error *err)
{
    session_turn *t = calloc(1, sizeof *t);
    if (!t) {
        api_fail(err, 503, NULL, "no memory for this turn");
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    session *at = find(s, owner, ask->id);
    bool begun = at ? begin(s, at, ask, rid, t, history, err)
                    : not_open("session_params", ask->id, 400, err);
    pthread_mutex_unlock(&s->lock);
    if (begun) return t;
    free(t);
    return NULL;
}

bool session_turn_input(session_turn *t, const rad_token *ids, uint32_t num_ids, api_error *err)
{
    sessions *s = t->of;
    pthread_mutex_lock(&s->lock);
    bool kept = append_ids(s, t->session, t->request, ids, num_ids);
    t->request->num_input = t->request->num_ids;
    pthread_mutex_unlock(&s->lock);
    t->input_tokens = num_ids;
    return kept || api_fail(err, 429, NULL,
                            "the histories of all sessions have no room for this turn; close "
                            "sessions that are not needed");
}

void session_turn_submitted(session_turn *t, uint64_t engine_id)
{
    pthread_mutex_lock(&t->of->lock);
    t->request->engine_id = engine_id;
    bool abort = t->request->abort_asked;
    pthread_mutex_unlock(&t->of->lock);
    if (abort) engine_abort(t->of->params.engine, engine_id);
}

void session_turn_heard(session_turn *t, const rad_token *ids, uint32_t num_ids)
{
    if (t->ended || num_ids <= t->heard_tokens) return;
    pthread_mutex_lock(&t->of->lock);
    if (!t->broken && !t->request->removed &&
        !append_ids(t->of, t->session, t->request, ids + t->heard_tokens,
                    num_ids - t->heard_tokens))
        t->broken = true; /* what would be missing in the middle cannot be gone on from */
    pthread_mutex_unlock(&t->of->lock);
    t->heard_tokens = num_ids;
}

void session_turn_end(session_turn *t, engine_finish finish)
{
    sessions *s = t->of;
    session *at = t->session;
    session_request *r = t->request;
    if (t->ended) return;
    t->ended = true;
    bool well = finish == ENGINE_FINISH_STOP || finish == ENGINE_FINISH_LENGTH;
    bool stays = !t->broken && (well || (finish == ENGINE_FINISH_ABORT && !t->streaming));
    pthread_mutex_lock(&s->lock);
    r->running = false;
    at->running--;
    use(s, at);
    /* Nothing goes on from one that runs, unless it was cut short for that: then it has children.
     */
    if (r->removed || (!stays && !r->has_children))
        free_request(s, at, r);
    else if (at->streaming)
        at->newest = r;
    if (!at->is_open && !at->running) pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

void session_turn_free(session_turn *t)
{
    if (t) session_turn_end(t, ENGINE_FINISH_ERROR);
    free(t);
}

const char *session_step_name(session_step step)
{
    static const char *const names[] = {
        "begin", "append", "branch", "offset", "drop_previous_output", "replace"};
    return names[step];
}

uint64_t sessions_bytes(sessions *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t bytes = s->bytes;
    pthread_mutex_unlock(&s->lock);
    return bytes;
}
