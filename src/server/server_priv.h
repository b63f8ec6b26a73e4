/* server_priv.h - the server's inside, for the files of this room. */
#ifndef SERVER_SERVER_PRIV_H
#define SERVER_SERVER_PRIV_H

#include "base/base.h"
#include "server/answer_counts.h"
#include "server/api_keys.h"
#include "server/browsers.h"
#include "server/call.h"
#include "server/clients.h"
#include "server/connection.h"
#include "server/figures.h"
#include "server/inspect.h"
#include "server/model_digest.h"
#include "server/otlp.h"
#include "server/random_id.h"
#include "server/response_store.h"
#include "server/routes.h"
#include "server/sessions.h"
#include "server/tls.h"

#include <event2/event.h>
#include <pthread.h>

struct evconnlistener;
struct evhttp_bound_socket;

/* Of items by their `next`: each is in one at most. */
typedef struct item_list {
    call_item *first, *last; /* last is meaningless without a first */
} item_list;

static inline void item_list_push(item_list *list, call_item *item)
{
    item->next = NULL;
    if (list->first)
        list->last->next = item;
    else
        list->first = item;
    list->last = item;
}

/* A thread with jobs; all under the server's lock. */
typedef struct worker {
    server *server;
    pthread_t thread;
    pthread_cond_t wake;
    item_list list, waiting;
    uint64_t attempt_at_ns; /* when one of those that wait may be tried, of the monotonic clock */
    bool trim; /* give free memory back to the system when there is nothing else to do */
    bool started, stop;
} worker;

/* Each with its work, so that none waits for another's. */
enum {
    WORKER_ADMIN,        /* figures */
    WORKER_INSPECT,      /* the cache as people look at it */
    WORKER_WAITER,       /* what may have to wait: flushing, changes of the store */
    WORKER_PARSER,       /* bodies, */
    WORKER_LARGE_PARSER, /* large ones, */
    WORKER_WRITER,       /* and answers that are too much for a turn */
    NUM_WORKERS
};

/* What one turn of the event loop may do before others are looked at, in units of about a quarter
 * of a microsecond: see turn.c. The server's thread. */
typedef struct turn {
    uint64_t units; /* in this one */
    uint64_t most;  /* in any so far */
    struct event *over;
} turn;

/* What the newest flush of memory came to. */
typedef struct flush_result {
    uint64_t begun_ns;
    uint32_t tiers;
    rad_status status;
    char words[512];
} flush_result;

/* How this model's answers are read: output_formats.c. */
typedef struct output_formats {
    const tool_format *calls; /* NULL: none is known, and calls are text */
    const reasoning_format *reasoning;
    rad_token ids[TOOL_CALL_MOST_IDS];           /* that stay in the text where calls are read, */
    rad_token reasoning_ids[TOOL_CALL_MOST_IDS]; /* and where they are not */
    uint32_t num_ids, num_reasoning_ids;
} output_formats;

struct server {
    rad_env env;
    engine *engine;
    server_params params;
    output_formats output;
    uint16_t port;
    struct event_base *base;
    struct evhttp *http;
    struct evconnlistener *listener; /* NULL once a stop has begun */
    struct evhttp_bound_socket *bound;
    struct event *wake_event, *tick_event, *accept_event, *sigint_event, *sigterm_event;
    struct event *sighup_event; /* with TLS */
    int wake_fd;

    /* The server's thread: */
    connections connections;
    clients *clients; /* NULL: nobody has limits of his own */
    struct tls *tls;  /* NULL: in the clear */
    browser_rules browsers;
    struct {
        call *first, *last;
    } calls;
    uint32_t num_calls;
    uint32_t num_unsent; /* answers that evhttp is still writing */
    bool can_pin;        /* constant, as the next */
    char model_digest[MODEL_DIGEST_BYTES];
    bool stopping;
    bool aborted;
    uint64_t stop_at_ns;
    uint64_t num_http_requests;
    uint64_t num_failed_requests; /* of these, answered with an error */
    answer_counts answers;        /* by endpoint and status */
    otlp *otlp;                   /* NULL: no spans are sent */
    access_record access;         /* of the request that is being looked at */
    const char *owner;            /* and whose key it has; NULL: nobody's */
    bool is_admin;                /* an administrator's key */
    uint64_t passed_bytes;        /* of memory that requests took and gave back; see on_tick */
    bool trim_again;

    /* Under `lock`: */
    pthread_mutex_t lock;
    item_list ready;
    bool stop_asked;

    bool hurry; /* a stop: work that waits for something gives up */

    response_store *responses; /* any thread */
    sessions *sessions;        /* likewise */
    worker workers[NUM_WORKERS];
    flush_result flushed; /* the waiter's */
    struct tree_picture *picture; /* that worker's; NULL until somebody looks */
    struct dashboard *dashboard;  /* the loop's; likewise */
    uint64_t started_ns;
    turn turn;
};

uint64_t server_now_ns(const server *s);
const char *server_endpoint_name(uint32_t endpoint); /* a path; "/v1/models/..."; or "other" */
void server_wake(server *s);
void server_leave_when_done(server *s); /* ends the loop when a stop has nothing to wait for */

/* A call without a prompt: ops->work runs on the worker, then ops->answer here. work_arg is
 * malloc'ed (or NULL) and the call's from here on. */
void call_start_work(server *s, worker *w, const call_ops *ops, struct evhttp_request *http,
                     uint64_t timeout_ms, void *work_arg);

/* ---- replies for requests that never become calls ---- */
/* They leave a line in the log: of the request that on_request, or a worker, handed over last. */
void reply_json(struct evhttp_request *http, int http_status, json_t *json); /* takes json */
void reply_text(struct evhttp_request *http, const char *json, size_t len);  /* JSON already */
/* Taken; NULL (no memory) is a 503. */
void reply_body(struct evhttp_request *http, const char *content_type, struct evbuffer *body);
void reply_error(struct evhttp_request *http, const api_error *err);

/* ---- the same without a line, for calls, which leave theirs at their end ---- */
/* Takes json, NULL: no memory; the status it goes out with, 503 where there was none for words. */
int send_json(struct evhttp_request *http, int http_status, json_t *json);
/* Drains `body` (NULL: none). A HEAD gets its length and not its bytes: libevent would send
 * them, and the client take them for the next answer. */
void send_bytes(struct evhttp_request *http, int http_status, struct evbuffer *body);
json_t *error_json(const api_error *err);
bool json_to_buffer(const json_t *json, struct evbuffer *out);
const char *http_reason(int http_status);

/* ---- turns ---- */
enum {
    TURN_UNITS =
        SERVER_TURN_UNITS,  /* of one turn; past it work waits for the next, or goes to a worker */
    UNITS_REQUEST = 100,    /* a request, whatever it holds */
    UNITS_PROMPT = 20,      /* one of its prompts */
    UNITS_EVENT = 20,       /* one event of the engine's */
    UNITS_METRICS = 2000,   /* all figures as text */
    UNITS_LOGPROB = 8,      /* one alternative written with its bytes */
    UNITS_HANDSHAKE = 4000, /* of TLS, with a key of RSA */
    BYTES_A_UNIT = 2 /* of JSON to be parsed: a value has no fewer; of text to be written 64 */
};
rad_status turn_init(server *s, rad_error *err);
void turn_fini(server *s);
bool turn_has(const server *s, uint64_t units); /* as much is left of this turn */
void turn_spend(server *s, uint64_t units);

/* ---- output_formats.c ---- */
/* By the params' names, or the template. RAD_E_INVAL: no such name. */
rad_status output_formats_choose(server *s, rad_error *err);

/* ---- workers ---- */
rad_status worker_start(server *s, worker *w, rad_error *err);
void worker_join(worker *w); /* one that never started is fine */
void worker_push(worker *w, call_item *item);
void worker_trim(worker *w);
void worker_wake(worker *w); /* it looks at `hurry`; with the server's lock */

/* ---- models.c: the names that are served ---- */
const char *models_name(const server *s,
                        uint32_t i); /* the first is answers' where none was said */
const char *models_find(const server *s, const char *name); /* ours of that name, or NULL */
bool models_any(const server *s);                           /* any other is one, too */
uint32_t models_count(const server *s);
/* NULL is fine: it names none; false: a 404 in err. The second reads "NAME:latest" as NAME. */
bool models_check_tagged(const server *s, const char *name, api_error *err);
bool models_check(const server *s, const char *name, api_error *err);

/* ---- browsers_http.c ---- */
/* False: *err says why the request is not taken. A named origin may read whatever the answer is. */
bool browser_admit(server *s, struct evhttp_request *http, api_error *err);
/* Answers what a browser asks before it sends a request of a named origin's page; false: it is no
 * such question. After browser_admit. */
bool browser_preflight(server *s, struct evhttp_request *http);

/* ---- session_turns.c ---- */
/* The request is a turn of a session: its prompt becomes that history's ids and its own. Before it
 * is submitted; false: the reason is in c->error. Encodes, and so takes its time. */
bool call_begin_turn(call *c);
/* Its news, and that it is over. */
void call_hear_turn(call *c, const call_item *item);
/* What the session did; NULL where it is none, or memory is short. */
json_t *json_session(const call *c);

/* ---- response_ids.c ---- */
/* The prompt of /v1/responses in ids, those of the answer before it where the rendering agrees with
 * them. Before it is submitted; encodes. */
void call_go_on(call *c);
void response_ids_write(const call_item *item, struct evbuffer *out); /* nothing without memory */
/* What became of it; NULL where nothing was gone on from, or memory is short. */
json_t *json_history(const call *c);

/* ---- pins.c ---- */
/* Where a cache_control in the middle of the prompt stands in its ids. Before it is submitted; where it
 * cannot be found all of the prompt is kept. Encodes. */
void call_find_mark(call *c);

/* ---- admin ---- */
/* An object of the request's body, small and not counted; NULL and words. */
json_t *read_small_body(struct evhttp_request *http, api_error *err);
/* Of /server_info: where KV events are published. */
json_t *json_kv_events(const engine_info *info);
/* POST /flush_cache where storage is among the tiers. */
void flush_storage(server *s, struct evhttp_request *http, uint32_t tiers, uint64_t wait_ms);
void prometheus_write(struct evbuffer *out, const engine_info *info, const server_figures *f,
                      const answer_counts *answers, bool cache_figures); /* those too that tell what a request found */

#endif
