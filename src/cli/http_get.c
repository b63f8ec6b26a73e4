/* http_get.c - libevent's client, waited for. */
#include "cli/http_get.h"

#include "base/log_text.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_S = 10, MAX_BODY = 64 << 20, MAX_HEADERS = 64 << 10 };

struct http_server {
    struct event_base *base;
    SSL_CTX *tls; /* NULL: http */
    char host[256], prefix[512], authorization[600];
    uint16_t port;
};

static rad_status parse_url(http_server *s, const char *url, bool *https, rad_error *err)
{
    char with_scheme[1024];
    const char *scheme = strstr(url, "://") ? "" : "http://";
    if (snprintf(with_scheme, sizeof with_scheme, "%s%s", scheme, url) >= (int)sizeof with_scheme)
        return rad_fail(err, RAD_E_INVAL, "the URL is too long");
    struct evhttp_uri *uri = evhttp_uri_parse(with_scheme);
    rad_status status = RAD_OK;
    const char *name = uri ? evhttp_uri_get_scheme(uri) : NULL;
    const char *host = uri ? evhttp_uri_get_host(uri) : NULL;
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    size_t len = path ? strlen(path) : 0;
    while (len && path[len - 1] == '/')
        len--;
    *https = name && strcmp(name, "https") == 0;
    if (!host || !*host || (!*https && strcmp(name, "http") != 0) ||
        strlen(host) >= sizeof s->host || len >= sizeof s->prefix) {
        status =
            rad_fail(err, RAD_E_INVAL, "'%.200s' is no URL of a server (http://HOST:PORT)", url);
    } else {
        const size_t host_len = strlen(host);
        const bool brackets = host[0] == '[' && host[host_len - 1] == ']';
        const int port = evhttp_uri_get_port(uri);
        memcpy(s->host, host + brackets, host_len - 2 * brackets);
        memcpy(s->prefix, path, len);
        s->port = port > 0 ? (uint16_t)port : *https ? 443 : 30000;
    }
    if (uri) evhttp_uri_free(uri);
    return status;
}

static rad_status open_tls(http_server *s, const char *ca_file, bool insecure, rad_error *err)
{
    s->tls = SSL_CTX_new(TLS_client_method());
    if (!s->tls) return rad_fail(err, RAD_E_NOMEM, "no memory for TLS");
    SSL_CTX_set_min_proto_version(s->tls, TLS1_2_VERSION);
    if (insecure) return RAD_OK;
    SSL_CTX_set_verify(s->tls, SSL_VERIFY_PEER, NULL);
    const int known = ca_file ? SSL_CTX_load_verify_locations(s->tls, ca_file, NULL)
                              : SSL_CTX_set_default_verify_paths(s->tls);
    if (known == 1) return RAD_OK;
    return rad_fail(err, RAD_E_IO, "'%s' holds no certificates",
                    ca_file ? ca_file : "this machine");
}

rad_status http_server_open(const char *url, const char *key, const char *ca_file, bool insecure,
                            http_server **out, rad_error *err)
{
    http_server *s = calloc(1, sizeof *s);
    bool https = false;
    *out = NULL;
    if (!s) return rad_fail(err, RAD_E_NOMEM, "no memory for a client");
    rad_status status = parse_url(s, url, &https, err);
    if (status == RAD_OK && https) status = open_tls(s, ca_file, insecure, err);
    if (status == RAD_OK && key &&
        (strpbrk(key, "\r\n") || snprintf(s->authorization, sizeof s->authorization, "Bearer %s",
                                          key) >= (int)sizeof s->authorization))
        status = rad_fail(err, RAD_E_INVAL, "this is no key of a server");
    if (status == RAD_OK && !(s->base = event_base_new()))
        status = rad_fail(err, RAD_E_NOMEM, "no memory for a client");
    if (status == RAD_OK)
        *out = s;
    else
        http_server_close(s);
    return status;
}

void http_server_close(http_server *s)
{
    if (!s) return;
    if (s->base) event_base_free(s->base);
    SSL_CTX_free(s->tls);
    free(s);
}

rad_status server_options_open(const server_options *o, const char *url, http_server **out,
                               rad_error *err)
{
    const char *key = o->key ? o->key : getenv("RADISH_API_KEY");
    return http_server_open(url, key, o->ca_file, o->insecure, out, err);
}

/* ---- one answer ---- */

typedef struct answer {
    struct event_base *base;
    int code; /* 0: none came */
    char *body;
    size_t len;
} answer;

static void on_answer(struct evhttp_request *request, void *user)
{
    answer *a = user;
    if (request && evhttp_request_get_response_code(request)) {
        struct evbuffer *in = evhttp_request_get_input_buffer(request);
        a->len = evbuffer_get_length(in);
        a->body = malloc(a->len + 1);
        if (a->body) {
            evbuffer_remove(in, a->body, a->len);
            a->body[a->len] = 0;
            a->code = evhttp_request_get_response_code(request);
        }
    }
    event_base_loopbreak(a->base);
}

static SSL *tls_of(const http_server *s)
{
    SSL *tls = SSL_new(s->tls);
    if (!tls) return NULL;
    const bool verify = SSL_CTX_get_verify_mode(s->tls) != SSL_VERIFY_NONE;
    /* An address stands in a certificate as an address. */
    if (verify && X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), s->host) != 1)
        SSL_set1_host(tls, s->host);
    SSL_set_tlsext_host_name(tls, s->host);
    return tls;
}

/* bev: of the connection, where it is TLS; *tls_error: what TLS said no with, or 0. */
static bool ask(const http_server *s, const char *path, answer *a, struct bufferevent *bev,
                unsigned long *tls_error)
{
    struct evhttp_connection *connection =
        evhttp_connection_base_bufferevent_new(s->base, NULL, bev, s->host, s->port);
    if (!connection) return false;
    evhttp_connection_set_timeout(connection, TIMEOUT_S);
    evhttp_connection_set_max_body_size(connection, MAX_BODY);
    evhttp_connection_set_max_headers_size(connection, MAX_HEADERS);
    struct evhttp_request *request = evhttp_request_new(on_answer, a);
    struct evkeyvalq *headers = request ? evhttp_request_get_output_headers(request) : NULL;
    char host[300];
    snprintf(host, sizeof host, strchr(s->host, ':') ? "[%s]:%u" : "%s:%u", s->host, s->port);
    bool sent = headers && evhttp_add_header(headers, "Host", host) == 0 &&
                evhttp_add_header(headers, "Connection", "close") == 0 &&
                (!s->authorization[0] ||
                 evhttp_add_header(headers, "Authorization", s->authorization) == 0);
    if (sent)
        sent = evhttp_make_request(connection, request, EVHTTP_REQ_GET, path) == 0;
    else if (request)
        evhttp_request_free(request);
    if (sent) event_base_dispatch(s->base);
    *tls_error = bev ? bufferevent_get_openssl_error(bev) : 0;
    evhttp_connection_free(connection);
    return sent;
}

/* What a server that refuses says: OpenAI's error object, or nothing that we know. */
static rad_status refused(const answer *a, const char *path, rad_error *err)
{
    json_t *body = json_loadb(a->body, a->len, 0, NULL);
    const char *words =
        json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    rad_status status;
    if (words)
        status = rad_fail(err, RAD_E_STATE, "the server answers %d: %.400s", a->code, words);
    else
        status = rad_fail(err, RAD_E_STATE, "the server answers %d to %.100s; is it a radish?",
                          a->code, path);
    if (err) log_text_clean(err->text); /* a stranger's words on a terminal */
    json_decref(body);
    return status;
}

rad_status http_get_json(http_server *s, const char *path, json_t **out, rad_error *err)
{
    char whole[1600];
    answer a = {.base = s->base};
    struct bufferevent *bev = NULL;
    unsigned long tls_error = 0;
    if (out) *out = NULL;
    snprintf(whole, sizeof whole, "%s%s", s->prefix, path);
    if (s->tls) {
        SSL *tls = tls_of(s);
        if (tls)
            bev = bufferevent_openssl_socket_new(s->base, -1, tls, BUFFEREVENT_SSL_CONNECTING,
                                                 BEV_OPT_CLOSE_ON_FREE);
        if (!bev) return rad_fail(err, RAD_E_NOMEM, "no memory for TLS");
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    }
    const bool sent = ask(s, whole, &a, bev, &tls_error);
    if (!sent || !a.code) {
        free(a.body);
        if (tls_error)
            return rad_fail(err, RAD_E_IO, "no TLS with %s:%u: %s", s->host, s->port,
                            ERR_reason_error_string(tls_error));
        return rad_fail(err, RAD_E_IO, "nobody answers%s at %s:%u", s->tls ? " over TLS" : "",
                        s->host, s->port);
    }
    json_error_t why;
    rad_status status = RAD_OK;
    if (a.code != 200)
        status = refused(&a, whole, err);
    else if (out && !(*out = json_loadb(a.body, a.len, 0, &why)))
        status = rad_fail(err, RAD_E_STATE, "%s is no JSON: %s", path, why.text);
    free(a.body);
    return status;
}
