/* call.h - one HTTP request and the engine requests behind it.
 *
 *     engine's thread                      server's thread
 *     on_event -> item inbox (locked) ---> ready list -> merge -> chunk or answer -> evhttp
 *                                    wake
 *
 * The engine's thread only appends to an item's inbox under the server's lock and
 * links the item into the ready list; it never touches evhttp. What gathers while a client
 * reads slowly is merged, not queued, so it is bounded by the answer itself.
 *
 * A call lives until the last event of every item has been merged and evhttp has let go of
 * its request, in whichever order that happens. */
#ifndef SERVER_CALL_H
#define SERVER_CALL_H

#include "server/access.h"
#include "server/api_request.h"
#include "server/server.h"

#include <event2/buffer.h>
#include <event2/http.h>

typedef struct call call;

typedef struct byte_buf {
    char *data;
    size_t len;
    size_t cap;
} byte_buf;

typedef struct call_item {
    call *call;
    uint32_t index;
    uint64_t id; /* the engine's */

    /* Under the server's lock: */
    struct call_item *next; /* in the ready list */
    bool queued;
    bool lost; /* an event did not fit in memory */
    byte_buf new_text, new_ids, new_logprobs;
    uint32_t new_prompt_tokens, new_completion_tokens, new_cached_tokens;
    uint32_t new_loaded_tokens, new_fetched_tokens;
    req_why new_why;
    engine_finish new_finish;
    rad_status status; /* with an ERROR; written before new_finish is seen */
    char message[512];
    char *matched_stop;
    rad_token matched_token;
    double e2e_latency_s;

    /* The server's thread: */
    bool submitted; /* the engine has it: a last event will come */
    bool finished;  /* and has come */
    bool said_role, said_finish;
    byte_buf text;       /* all so far */
    byte_buf ids;        /* rad_tokens */
    byte_buf logprobs;   /* token_logprobs, 1 + num_top_logprobs for each id, when asked for */
    uint64_t chars_sent; /* of token texts, for text_offset */
    size_t text_sent;    /* of them, in chunks */
    size_t ids_sent;     /* bytes */
    uint32_t prompt_tokens, completion_tokens, cached_tokens;
    uint32_t loaded_tokens, fetched_tokens; /* of cached_tokens; as in engine_event */
    req_why why;
    engine_finish finish;
} call_item;

typedef enum call_progress {
    CALL_DONE,
    CALL_GO_ON, /* more to do, but others first */
    CALL_WAIT   /* not yet: try again some time later */
} call_progress;

/* How a dialect answers. */
typedef struct call_ops {
    const char *id_prefix;
    /* What `item` has to say since the last chunk; NULL for nothing (or no memory). */
    json_t *(*chunk)(const call *c, call_item *item);
    /* What ends a stream before [DONE], or NULL. */
    json_t *(*usage_chunk)(const call *c);
    /* All items are finished: call_reply_json, or another answer. */
    void (*answer)(call *c);
    /* For calls that a worker works off: runs there. */
    call_progress (*work)(call *c);
} call_ops;

struct call {
    server *server;
    const call_ops *ops;
    call *prev, *next;           /* all calls of the server */
    struct evhttp_request *http; /* NULL: answered, or the client is gone */
    api_request request;
    call_item *items;
    uint32_t num_items;
    uint32_t num_open; /* items submitted and not finished */
    bool started;      /* a stream's headers are out */
    uint64_t lost;     /* memory_reserve_lost() when it came */
    bool stalled;      /* the client reads too slowly; go on when its buffer is empty */
    uint64_t created_ns, last_sent_ns;
    uint64_t created_unix;
    char id[API_MAX_KEY_BYTES + 1];
    access_record access; /* its line in the log, written when it is released */

    engine_stats stats; /* admin calls: what work found */
    rad_status status;
    uint64_t timeout_ms; /* of work that waits, from created_ns on */
    bool tried;          /* work ran; the worker's */
    bool not_done;       /* a stop came before it could */
    void *work_arg;      /* malloc'ed, the call's */

    struct evbuffer *body; /* parse calls: what is parsed, as what, and what came out */
    api_kind kind;
    const call_ops *then;
    api_request *parsed; /* NULL: refused, see error */
    api_error error;
};

/* What evhttp gave us becomes a call, and starts: `request` is moved in. From here
 * on the call sees to the answer, errors included. */
void call_start(server *s, const call_ops *ops, struct evhttp_request *http, api_request *request);

/* A body too large to be parsed between two events of others: a worker parses it, then the
 * call starts as above, or says what is wrong. */
void call_start_large(server *s, const call_ops *ops, api_kind kind, struct evhttp_request *http);

/* The ready list: drained by the server's thread when it was woken. */
void calls_drain(server *s);

/* From a worker: the work of this call is done. */
void call_work_done(call *c);

/* It has waited for timeout_ms. */
bool call_is_overdue(const call *c, uint64_t now_ns);

/* A silent stream gets a comment. */
void calls_ping(server *s, uint64_t now_ns);
void calls_abort_all(server *s);

/* Answers and lets go of the HTTP request; with `json` NULL (no memory) a 503. Takes json. */
void call_reply_json(call *c, int http_status, json_t *json);
void call_reply_text(call *c, const char *content_type, struct evbuffer *body);

/* Helpers of the dialects. */
json_t *json_text(const char *bytes, size_t len); /* never NULL but for memory */
json_t *item_text(const call_item *item, size_t from_byte);
json_t *json_ids(const byte_buf *ids, size_t from_byte);
const char *call_model(const call *c); /* by the name that the request gave it */
json_t *json_usage(const call *c);
/* A count that is rounded already; null where none is told. */
json_t *json_cached_tokens(const call *c, uint64_t cached);
/* Cached tokens by tier, NULL where there is only one, or they are not told. */
json_t *json_cached_details(const call *c, uint64_t cached, uint64_t loaded, uint64_t fetched);

/* json_explain.c: where the item's cached tokens came from and why there were no more, or only
 * rounded counts; NULL when that is not known, or not told. */
json_t *json_cache_explanation(const call_item *item);
/* Logprobs of the ids from that byte of them on, in each dialect's form; JSON's null when
 * the request did not ask. */
json_t *json_chat_logprobs(const call_item *item, size_t from_byte);
json_t *json_completion_logprobs(call_item *item, size_t from_byte); /* moves chars_sent */
void json_add_sglang_logprobs(const call_item *item, json_t *meta);

/* A stream's chunk is due for an id alone, though it has added no text yet. */
bool call_tells_ids(const call *c);

const char *openai_finish_reason(engine_finish finish);

extern const call_ops completions_ops, chat_ops, generate_ops;

#endif
