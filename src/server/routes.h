/* routes.h - what is at which path: the one list of the server's endpoints.
 *
 * A new endpoint is a line here and its handler, in any file of this room that includes this
 * one (server_priv.h does). A path is compared whole, but for those that a
 * name stands behind. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include <event2/http.h>

#include "server/server.h"

#define ROUTE_GET    (EVHTTP_REQ_GET | EVHTTP_REQ_HEAD)
#define ROUTE_POST   EVHTTP_REQ_POST
#define ROUTE_NAMED  (ROUTE_GET | EVHTTP_REQ_POST | EVHTTP_REQ_DELETE)
#define ROUTE_CHANGE (ROUTE_GET | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE)

/* Beside the methods: who may ask without a key, and what an administrator's key is for. */
#define ROUTE_OPEN  (1u << 24)
#define ROUTE_ADMIN (1u << 25)

/* clang-format off */
#define SERVER_ROUTES(ROUTE)                                                                       \
    ROUTE("/v1/completions",          ROUTE_POST,   handle_completions)                            \
    ROUTE("/v1/chat/completions",     ROUTE_POST,   handle_chat)                                   \
    ROUTE("/v1/embeddings",           ROUTE_POST,   handle_embeddings)                             \
    ROUTE("/generate",                ROUTE_POST,   handle_generate)                               \
    ROUTE("/v1/messages",             ROUTE_POST,   handle_messages)                               \
    ROUTE("/v1/messages/count_tokens", ROUTE_POST,  handle_count_tokens)                           \
    ROUTE("/v1/responses",            ROUTE_POST,   handle_responses)                              \
    ROUTE("/api/chat",                ROUTE_POST,   handle_ollama_chat)                            \
    ROUTE("/api/generate",            ROUTE_POST,   handle_ollama_generate)                        \
    ROUTE("/api/embed",               ROUTE_POST,   handle_ollama_embed)                           \
    ROUTE("/api/embeddings",          ROUTE_POST,   handle_ollama_embeddings)                      \
    ROUTE("/api/tags",                ROUTE_GET,    handle_ollama_tags)                            \
    ROUTE("/api/ps",                  ROUTE_GET,    handle_ollama_ps)                              \
    ROUTE("/api/show",                ROUTE_POST,   handle_ollama_show)                            \
    ROUTE("/api/version",             ROUTE_GET,    handle_ollama_version)                         \
    ROUTE("/",           ROUTE_OPEN | ROUTE_GET,    handle_root)                                   \
    ROUTE("/tokenize",                ROUTE_POST,   handle_tokenize)                               \
    ROUTE("/detokenize",              ROUTE_POST,   handle_detokenize)                             \
    ROUTE("/v1/models",               ROUTE_GET,    handle_models)                                 \
    ROUTE("/health",     ROUTE_OPEN | ROUTE_GET,    handle_health)                                 \
    ROUTE("/health_generate",         ROUTE_GET,    handle_health_generate)                        \
    ROUTE("/get_load",                ROUTE_GET,    handle_get_load)                               \
    ROUTE("/abort_request",           ROUTE_POST,   handle_abort_request)                          \
    ROUTE("/open_session",            ROUTE_POST,   handle_open_session)                           \
    ROUTE("/close_session",           ROUTE_POST,   handle_close_session)                          \
    ROUTE("/pin_prefix",              ROUTE_POST,   handle_pin_prefix)                             \
    ROUTE("/unpin_prefix",            ROUTE_POST,   handle_unpin_prefix)                           \
    ROUTE("/hicache/pin_prefix",      ROUTE_POST,   handle_pin_prefix)                             \
    ROUTE("/model_info",              ROUTE_GET,    handle_model_info)                             \
    ROUTE("/get_model_info",          ROUTE_GET,    handle_model_info)                             \
    ROUTE("/server_info",             ROUTE_GET,    handle_server_info)                            \
    ROUTE("/get_server_info",         ROUTE_GET,    handle_server_info)                            \
    ROUTE("/metrics",                 ROUTE_GET,    handle_metrics)                                \
    ROUTE("/inspect/status", ROUTE_ADMIN | ROUTE_GET, handle_inspect_status)                       \
    ROUTE("/inspect/tree",   ROUTE_ADMIN | ROUTE_GET, handle_inspect_tree)                         \
    ROUTE("/inspect/node",   ROUTE_ADMIN | ROUTE_GET, handle_inspect_node)                         \
    ROUTE("/inspect/search", ROUTE_ADMIN | ROUTE_POST, handle_inspect_search)                      \
    ROUTE("/flush_cache", ROUTE_ADMIN | ROUTE_POST, handle_flush_cache)                            \
    ROUTE("/kv_events",   ROUTE_ADMIN | ROUTE_GET,  handle_kv_events)                              \
    ROUTE("/hicache/storage-backend", ROUTE_ADMIN | ROUTE_CHANGE, handle_storage_backend)

/* A name stands behind these: /v1/responses/resp_1234. */
#define SERVER_NAMED_ROUTES(ROUTE)                                                                 \
    ROUTE("/v1/models/",              ROUTE_GET,    handle_models)                                 \
    ROUTE("/v1/responses/",           ROUTE_NAMED,  handle_stored_response)
/* clang-format on */

/* On the loop's thread; answers now or later (reply.c, call.h). */
#define DECLARE_HANDLER(path, methods, handle) void handle(server *s, struct evhttp_request *http);
SERVER_ROUTES(DECLARE_HANDLER)
SERVER_NAMED_ROUTES(DECLARE_HANDLER)
#undef DECLARE_HANDLER

#endif
