/* server.h - an engine behind HTTP: OpenAI's, SGLang's, Anthropic's and Ollama's interfaces.
 *
 *     POST /v1/completions  /v1/chat/completions  /generate      (plain and SSE)
 *     POST /v1/responses  /v1/messages  /v1/messages/count_tokens  /api/chat  /api/generate
 *     POST /tokenize  /detokenize  /open_session  /close_session  /pin_prefix  /unpin_prefix
 *     GET  /v1/models  /health  /model_info  /server_info  /metrics
 *     POST /flush_cache
 *     GET, PUT, DELETE /hicache/storage-backend
 *     GET  /  /inspect/status  /inspect/tree  /inspect/node   POST /inspect/search   (inspect.h)
 *
 * One thread runs the server (server_run); the engine's threads hand their events
 * over. The engine is not owned and must outlive the server. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "engine/engine.h"
#include "server/clients.h"
#include "server/tls.h"

typedef struct server server;
struct access_record;

/* What clients are told of the tokens that their prompts found, see cached_tokens.h. */
typedef enum report_cached_tokens {
    REPORT_CACHED_EXACT = 0,
    REPORT_CACHED_ROUNDED, /* down to whole cached_tokens_grain, each prompt for itself */
    REPORT_CACHED_OFF
} report_cached_tokens;

enum { REPORT_CACHED_GRAIN = 256 }; /* unless another is said */

typedef struct server_params {
    const char *host; /* NULL = 127.0.0.1; a numeric address or "localhost" */
    uint16_t port;    /* 0 = any free one; see server_port */
    uint16_t reserved;
    uint32_t max_connections;       /* 0 = 4096, or what the file descriptors allow; past it the one
                                       that has waited longest without a request makes room */
    uint64_t max_body_bytes;        /* 0 = 64 MiB; past it 413 */
    uint32_t ping_ms;               /* a comment after so much silence in a stream; 0 = 10000 */
    uint32_t drain_ms;              /* how long a stop waits for running requests; 0 = 5000 */
    uint64_t response_store_bytes;  /* of answers kept for /v1/responses; 0 = 64 MiB */
    uint32_t response_store_s;      /* and for how long; 0 = 3600 */
    uint64_t session_history_bytes; /* of all sessions' histories; 0 = 64 MiB */
    uint32_t session_timeout_s;  /* idle sessions end, unless they name their own time; 0 = 3600 */
    uint32_t max_header_bytes;   /* with the request line; 0 = 16384; past it 431 */
    uint32_t request_timeout_ms; /* from a request's first byte to its last, and a second more
                                    for each min_bytes_per_s of it; 0 = 30000; past it 408 */
    uint32_t answer_timeout_ms;  /* from a whole request to the end of its answer; past it 504, or
                                    an error in the stream; 0 = any time */
    uint32_t keep_alive_ms;      /* a connection without a request; 0 = 120000 */
    uint32_t send_timeout_ms;    /* how long an answer may wait for its client, in all: and a
                                    second more for each min_bytes_per_s that it took.
                                    0 = 120000; while all connections are busy at most 10000 */
    uint32_t min_bytes_per_s;    /* of a slow client, either way; 0 = 16384 */
    uint32_t num_allow_origins, num_allow_hosts;
    const char *const *allow_origins; /* pages that may use the server; see browsers.h for all */
    const char *const *allow_hosts;   /* names in Host beside those of loopback. Both valid as
                                         long as the server */
    memory_budget *request_memory;    /* what is parsed of requests, and gathered of their answers;
                                         the engine's as well. NULL: no limit; outlives the server */
    client_limits per_client;         /* by API key, else by address */
    tls_files tls;                    /* without a certificate: HTTP in the clear. SIGHUP, where
                                         signals are taken, reads the files again */
    const struct api_keys *api_keys;  /* NULL: everybody may ask; outlives the server */
    bool shared_cache;                /* keys share one namespace; else each has its own */
    bool storage_admin;               /* clients may attach and detach a store */
    uint32_t storage_timeout_ms; /* for an answer about a change of the store, which goes on after
                                    it; 0 = 30000; past it 504 */
    const char *const *served_model_names; /* what requests may call the model, valid as long as
                                    the server; the first is in answers to those that name none;
                                    "*": any */
    uint32_t num_served_model_names;       /* 0: the engine's model_name alone */
    report_cached_tokens report_cached_tokens;
    uint32_t cached_tokens_grain; /* with ROUNDED; 0 = REPORT_CACHED_GRAIN */
    bool report_cache_figures;    /* in /metrics and /server_info all the same */
    bool no_dashboard;            /* neither /inspect/... nor the page at / */
    bool dashboard_text;          /* they show prompts, as text and as token ids */
    const char *tool_call_parser; /* how the model writes calls, see tool_call.h; "none": they are
                                   * text. NULL or "auto": by its chat template */
    const char *reasoning_parser; /* and reasoning, likewise */
    const char *otlp_endpoint;    /* spans go there (otlp.h); NULL: nowhere */
    /* A request is over: in place of its line in the log. NULL: the line. The server's thread. */
    void (*on_access)(void *access_user, const struct access_record *record, double seconds);
    void *access_user;
} server_params;

/* Bounds what all connections of the process together hold in buffers: unread bodies and
 * unsent answers. Past it the connection that wants more is dropped. Once per process, before
 * the first server_create (it sets libevent's allocator); without it there is no such bound. */
void server_limit_buffers(uint64_t bytes);

/* Binds and listens; from then on connections wait until server_run. RAD_E_IO names the
 * address that cannot be bound. */
rad_status server_create(const rad_env *env, engine *e, const server_params *params, server **out,
                         rad_error *err);

/* From now on, also before server_run, SIGINT and SIGTERM stop it, and SIGHUP has it read its
 * certificate again. */
rad_status server_catch_signals(server *s, rad_error *err);

/* Serves until server_stop or such a signal. A stop refuses new connections and answers 503 on
 * old ones; running requests may finish for drain_ms and are then aborted; a second signal aborts
 * at once. Returns when the last event of every request has come. */
rad_status server_run(server *s, rad_error *err);

/* From any thread, or before server_run. */
void server_stop(server *s);

void server_destroy(server *s); /* not while server_run runs; NULL is fine */

uint16_t server_port(const server *s);

/* Test hook: the most that any turn of the event loop has done with bodies and answers, in units
 * of about a quarter of a microsecond (turn.c); once server_run has returned. And the limit, which
 * one body, answer or event may pass by less than itself. */
uint64_t server_most_per_turn(const server *s);
enum { SERVER_TURN_UNITS = 20000 };

#endif
