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
#include "server/answer_parts.h"
#include "server/api_request.h"
#include "server/byte_buf.h"
#include "server/clients.h"
#include "server/dialect.h"
#include "server/json_write.h"
#include "server/server.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <stdatomic.h>

typedef struct call call;

enum { CALL_UNTOLD = UINT32_MAX };

typedef struct call_item {
    call *call;
    uint32_t index;
    uint32_t place; /* where the answer tells it; CALL_UNTOLD: it does not */
    uint64_t id;    /* the engine's */

    /* Under the server's lock: */
    struct call_item *next; /* in the ready list */
    bool queued;
    bool lost; /* an event did not fit in memory */
    byte_buf new_text, new_ids, new_logprobs, new_prompt_logprobs;
    byte_buf new_hidden;                  /* doubles: what an embedding is made of */
    byte_buf new_cuts;                    /* with a parser: ids and bytes of text of each event */
    char new_tail[TOOL_CALL_PROMPT_TAIL]; /* the prompt's end, from the first event */
    uint32_t new_tail_len;
    uint32_t new_prompt_tokens, new_completion_tokens;
    uint32_t new_prediction_tokens, new_accepted_prediction_tokens;
    draft_counts new_drafts;
    prompt_hits new_hits;
    uint64_t new_admitted_ns;
    req_why new_why;
    engine_finish new_finish;
    rad_status status; /* with an ERROR; written before new_finish is seen */
    char message[512];
    char *matched_stop;
    rad_token matched_token;
    double e2e_latency_s;

    /* The server's thread, or the worker's while the call is busy: */
    bool keep_special;         /* as the request has them */
    const char *refused_param; /* what the engine says no to, as a client calls it */
    bool submitted;            /* the engine has it: a last event will come */
    bool finished;             /* and has come */
    bool said_role, said_finish;
    uint32_t sequence;       /* Responses: of the stream's next event */
    tool_parser *parser;     /* NULL: the text is told as it is; else `parts` are: */
    bool parser_begun, over; /* over: the answer was ended with its first call */
    bool unread;             /* there was no memory for what the parser said */
    uint64_t parser_bytes;   /* that are taken of the request memory for it */
    byte_buf cuts;
    answer_parts parts;
    uint32_t reasoning_tokens;
    byte_buf text;            /* all so far; of a parser what it was not fed yet */
    byte_buf ids;             /* rad_tokens */
    byte_buf logprobs;        /* token_logprobs, item_num_logprobs for each id, when asked for; */
    byte_buf prompt_logprobs; /* and of the prompt's tokens */
    byte_buf hidden;          /* doubles */
    uint64_t chars_sent;      /* of token texts, for text_offset */
    size_t text_sent;         /* of them, in chunks */
    size_t ids_sent;          /* bytes, as the next */
    size_t prompt_sent;       /* of prompt_logprobs */
    uint32_t prompt_tokens, completion_tokens;
    uint32_t prediction_tokens, accepted_prediction_tokens; /* once it has finished, */
    draft_counts drafts;                                    /* and this */
    uint64_t first_ns;       /* when its first news came */
    uint64_t admitted_ns;    /* when it left the queue; 0: it has not */
    uint64_t tokens_counted; /* of its client's */
    prompt_hits hits;
    req_why why;
    engine_finish finish;
} call_item;

typedef enum call_progress {
    CALL_DONE,
    CALL_GO_ON, /* more to do, but others first */
    CALL_WAIT   /* not yet: try again some time later */
} call_progress;

/* How a dialect answers. What it writes may be written by a worker, which then has the call to
 * itself. */
typedef struct call_ops {
    api_kind kind;
    const dialect *dialect; /* NULL: OpenAI's */
    bool frames;            /* write_chunk writes whole events of the stream, one or several */
    const char *id_prefix;
    bool chunk_says_all; /* every chunk has all so far, not what is new */
    /* Whether `item` has something to say since the last chunk; and that. */
    bool (*has_news)(const call *c, const call_item *item);
    void (*write_chunk)(const call *c, call_item *item, json_writer *w);
    /* What ends a stream before [DONE] where the client wants its usage, or NULL. */
    void (*write_usage_chunk)(const call *c, json_writer *w);
    /* The whole answer: its head, each item in turn, its tail. */
    void (*write_head)(const call *c, json_writer *w);
    void (*write_item)(const call *c, call_item *item, json_writer *w);
    void (*write_tail)(const call *c, json_writer *w);

    /* What is said in a silent stream, where the dialect's `ping` would not do; and an error in a
     * stream, where its error_json would not. NULL: they do. */
    void (*write_ping)(const call *c, json_writer *w);
    json_t *(*stream_error)(call *c, const api_error *err);

    /* For calls whose prompts nobody computes: runs on a worker when the body is parsed; false: a
     * reason is in c->error. Then `answer`. */
    bool (*compute)(call *c);
    /* For calls without a prompt: runs on a worker, then here, which must answer. */
    call_progress (*work)(call *c);
    void (*answer)(call *c);
} call_ops;

struct call {
    server *server;
    const call_ops *ops;
    call *prev, *next;           /* all calls of the server */
    struct evhttp_request *http; /* NULL: answered, or the client is gone */
    api_request request;       /* how to answer; its JSON is gone once the engine has the prompts */
    struct session_turn *turn; /* of a session, or NULL */
    call_item *items;
    uint32_t num_items;
    uint32_t num_open; /* items submitted and not finished */
    bool started;      /* a stream's headers are out */
    bool stalled;      /* the client reads too slowly; go on when its buffer is empty */
    uint64_t lost;     /* memory_reserve_lost() when it came */
    uint64_t created_ns, last_sent_ns;
    uint64_t given_ns; /* when the engine had its prompts */
    uint64_t created_unix;
    char id[API_MAX_KEY_BYTES + 1];
    access_record access; /* its line in the log, written when it is released */

    /* A worker has it: all but the lines above `items`, and what is under the server's lock, is
     * the worker's. What the engine says meanwhile is put off. */
    bool busy;
    call_item own;       /* what workers and the ready list know the call by */
    call_item *deferred; /* items with news */
    call_progress (*work)(call *c);
    void (*done)(call *c); /* after it, on the server's thread */
    atomic_bool unwanted;  /* nobody waits for the answer any more */
    bool must_finish;      /* also when a stop is in a hurry */
    bool waited;           /* the worker's: "not yet" was its last word */
    bool not_done;         /* a stop came before it could be done */

    /* A prompt's body on its way to the engine. */
    struct evbuffer *body;
    bool parsed;
    call_item *failed; /* the engine did not take it */
    api_error error;   /* why it was not parsed; of admin calls what work says */

    /* An answer that is being written. */
    struct evbuffer *out;
    uint32_t next_item;
    uint64_t values;            /* written by this turn, or this worker */
    uint64_t bytes;             /* of the body and of all that was written */
    bool out_comma, out_failed; /* where the last piece ended; memory was short */

    engine_stats stats; /* admin calls: what work found */
    rad_status status;
    bool abort_asked;         /* by name, see calls_abort */
    bool overdue;             /* see calls_end_overdue */
    client *client;           /* NULL: without limits */
    uint32_t num_queued;      /* of its items, that wait for their first token and count as such */
    uint64_t tokens, charged; /* so far, and what the client has been charged with */
    const char *owner;        /* of the key it came with; NULL: none */
    char *model_name;         /* a name that is none of ours, where any is served; malloc'ed */
    uint64_t timeout_ms;      /* of work that waits, from created_ns on */
    void *work_arg;           /* malloc'ed, the call's */
};

/* What evhttp gave us becomes a call, and starts: its body is parsed here, or by a worker where
 * that is too much for this turn of the loop, and the engine asked. From here on the call sees to
 * the answer, errors included. */
void call_start(server *s, const call_ops *ops, struct evhttp_request *http);

/* The ready list: drained by the server's thread when it was woken, for as much as a turn may
 * do. */
void calls_drain(server *s);

/* From a worker: the work of this call is done. */
void call_work_done(call *c);

/* It has waited for timeout_ms. */
bool call_is_overdue(const call *c, uint64_t now_ns);

/* A silent stream gets a comment. */
void calls_ping(server *s, uint64_t now_ns);
void calls_abort_all(server *s);
/* Requests that took longer than answer_timeout_ms end with an error. */
void calls_end_overdue(server *s, uint64_t now_ns);
/* Those of that name, or all (NULL), that are of that key's owner; what they said so far is their
 * answer. How many. */
uint32_t calls_abort(server *s, const char *id, const char *owner);

/* Answers and lets go of the HTTP request; with `json` NULL (no memory) a 503. Takes json. */
void call_reply_json(call *c, int http_status, json_t *json);
void call_reply_text(call *c, const char *content_type, struct evbuffer *body); /* drained */

/* The ids of one prompt, for ops->compute; false: the reason is in c->error. */
bool call_encode(call *c, const engine_request *q, const char *param, token_buf *out);

/* Helpers of the dialects. */
static inline int64_t call_load_ns(const call *c) /* until the engine had its prompts */
{
    return c->given_ns > c->created_ns ? (int64_t)(c->given_ns - c->created_ns) : 0;
}
json_t *json_text(const char *bytes, size_t len); /* never NULL but for memory */
void put_item_text(json_writer *w, const call_item *item, size_t from_byte);
void put_ids(json_writer *w, const byte_buf *ids, size_t from_byte);
const char *call_model(const call *c); /* as the client called it */
json_t *json_usage(const call *c);
/* Of counts that are rounded already; null where none are told. */
json_t *json_cached_tokens(const call *c, prompt_hits shown);
/* Cached tokens by tier, NULL where there is only one, or they are not told. */
json_t *json_cached_details(const call *c, prompt_hits shown);

/* OpenAI's: up to the open list of choices; what ends a choice; from the end of the list on,
 * `usage` (taken) with it unless NULL. */
void put_openai_head(json_writer *w, const call *c, const char *object);
void put_openai_extras(json_writer *w, const call_item *item, size_t from_ids);
void put_openai_tail(json_writer *w, json_t *usage);
void write_openai_tail(const call *c, json_writer *w); /* of both endpoints' answers */

/* json_explain.c: where the item's cached tokens came from and why there were no more, or only
 * rounded counts; NULL when that is not known, or not told. */
json_t *json_cache_explanation(const call_item *item);
/* The tiers' part of it, exact, and why something was evicted (rad_eviction_cause) in a word. */
json_t *json_explain_hits(const prompt_hits *hits, const req_why *why);
const char *json_eviction_cause(uint32_t cause);
/* Logprobs of the ids from that byte of them on, in each dialect's form; null when the request
 * did not ask. With `echo` those of the prompt that were not sent come before them. */
void put_chat_logprobs(json_writer *w, const call_item *item, size_t from_byte);
void put_completion_logprobs(json_writer *w, call_item *item, size_t from_byte); /* chars_sent */
void put_sglang_logprobs(json_writer *w, const call_item *item); /* members of meta_info */
void put_vllm_prompt_logprobs(json_writer *w, const call_item *item);

/* At a position: its token's own, the likeliest, and those asked for by id. */
size_t item_num_logprobs(const call_item *item);

/* The mean of the answer's logprobs; -INFINITY for an empty one. */
double item_mean_logprob(const call_item *item);

/* A stream's chunk is due for an id alone, though it has added no text yet. */
bool call_tells_ids(const call *c);

const char *openai_finish_reason(const call_item *item);

/* It ended by itself and with calls that are whole: the client's turn to run them. */
bool item_called(const call_item *item);

extern const call_ops completions_ops, chat_ops, generate_ops;

#endif
