/* tls_rig.h - certificates made for a test, and a relay that speaks TLS for clients that do not.
 *
 *     client --plain--> relay --TLS--> server
 *
 * The relay hands on what either side says, its half closes, resets and slowness too, and holds no
 * more than a record each way, so that a test written for plain sockets says the same of TLS. */
#ifndef TESTS_TLS_RIG_H
#define TESTS_TLS_RIG_H

#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- certificates ---- */

struct tls_id {
    EVP_PKEY *key;
    X509 *cert;
    char cert_path[80], key_path[80];
};

static inline void tls_extend(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);
    CHECK(e && X509_add_ext(cert, e, -1));
    X509_EXTENSION_free(e);
}

/* Of 127.0.0.1, signed by `ca` (NULL: by itself), from and to so many days from now; the key's file
 * is encrypted where there is a password. Files in `dir`, which is there. */
static inline void tls_id_make(struct tls_id *id, const char *dir, const char *name,
                               const struct tls_id *ca, int from_days, int to_days,
                               const char *password)
{
    static long serial = 1;
    id->key = EVP_EC_gen("P-256");
    id->cert = X509_new();
    CHECK(id->key && id->cert);
    X509_set_version(id->cert, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(id->cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(id->cert), from_days * 86400L);
    X509_gmtime_adj(X509_getm_notAfter(id->cert), to_days * 86400L);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(id->cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(id->cert, X509_get_subject_name(ca ? ca->cert : id->cert));
    X509_set_pubkey(id->cert, id->key);
    tls_extend(id->cert, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
    if (!ca) tls_extend(id->cert, NID_basic_constraints, "critical,CA:TRUE");
    CHECK(X509_sign(id->cert, ca ? ca->key : id->key, EVP_sha256()) > 0);
    snprintf(id->cert_path, sizeof id->cert_path, "%s/%s.crt", dir, name);
    snprintf(id->key_path, sizeof id->key_path, "%s/%s.key", dir, name);
    FILE *cert = fopen(id->cert_path, "w"), *key = fopen(id->key_path, "w");
    CHECK(cert && key && PEM_write_X509(cert, id->cert));
    CHECK(PEM_write_PKCS8PrivateKey(key, id->key, password ? EVP_aes_128_cbc() : NULL, NULL, 0,
                                    NULL, (void *)(uintptr_t)password));
    fclose(cert), fclose(key);
}

static inline void tls_id_free(struct tls_id *id)
{
    unlink(id->cert_path), unlink(id->key_path);
    EVP_PKEY_free(id->key);
    X509_free(id->cert);
}

/* ---- the relay ---- */

enum { RELAY_PAIRS = 256, RELAY_BYTES = 16384 };

struct relay_way {
    char bytes[RELAY_BYTES];
    size_t at, len;
    bool ended, told; /* nothing follows, and the other side knows */
};

struct relay_pair {
    int plain; /* -1: free */
    int socket;
    SSL *ssl;
    struct relay_way up, down; /* to the server, to the client */
    bool hold_writes;          /* TLS wants to be written before it can go on */
};

struct relay {
    SSL_CTX *ctx;
    pthread_t thread;
    int listener, wake;
    uint16_t port, server_port;
    struct relay_pair pairs[RELAY_PAIRS];
};

static inline void relay_close(struct relay_pair *p, bool reset)
{
    struct linger hard = {.l_onoff = reset};
    setsockopt(p->socket, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    SSL_free(p->ssl);
    close(p->socket);
    close(p->plain);
    p->plain = -1;
}

static inline void relay_accept(struct relay *r)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(r->server_port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int plain = accept(r->listener, NULL, NULL), at = 0, on = 1;
    if (plain < 0) return;
    while (at < RELAY_PAIRS && r->pairs[at].plain >= 0)
        at++;
    if (at == RELAY_PAIRS) abort();
    struct relay_pair *p = &r->pairs[at];
    memset(&p->up, 0, sizeof p->up);
    memset(&p->down, 0, sizeof p->down);
    p->hold_writes = false;
    p->plain = plain;
    p->socket = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(p->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(plain, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    p->ssl = SSL_new(r->ctx);
    if (!p->ssl || !SSL_set_fd(p->ssl, p->socket)) abort();
    SSL_set_connect_state(p->ssl);
    if (connect(p->socket, (struct sockaddr *)&to, sizeof to) != 0) {
        relay_close(p, false);
        return;
    }
    fcntl(p->socket, F_SETFL, O_NONBLOCK);
    fcntl(plain, F_SETFL, O_NONBLOCK);
}

/* False: the pair is over. */
static inline bool relay_up(struct relay_pair *p)
{
    struct relay_way *w = &p->up;
    if (!w->ended && w->at == w->len) {
        ssize_t n = recv(p->plain, w->bytes, sizeof w->bytes, 0);
        if (n < 0 && errno != EAGAIN) return false;
        w->ended = n == 0;
        w->at = 0;
        w->len = n > 0 ? (size_t)n : 0;
    }
    ERR_clear_error();
    if (w->at < w->len) {
        int n = SSL_write(p->ssl, w->bytes + w->at, (int)(w->len - w->at));
        int why = SSL_get_error(p->ssl, n);
        p->hold_writes = why == SSL_ERROR_WANT_WRITE;
        if (n > 0) w->at += (size_t)n;
        if (n <= 0 && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) w->at = w->len;
    }
    if (w->ended && w->at == w->len && !w->told && SSL_is_init_finished(p->ssl)) {
        SSL_shutdown(p->ssl);
        w->told = true;
    }
    return true;
}

static inline bool relay_down(struct relay_pair *p)
{
    struct relay_way *w = &p->down;
    ERR_clear_error();
    if (!w->ended && w->at == w->len) {
        int n = SSL_read(p->ssl, w->bytes, sizeof w->bytes);
        int why = SSL_get_error(p->ssl, n);
        w->at = 0;
        w->len = n > 0 ? (size_t)n : 0;
        w->ended = n <= 0 && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
    }
    while (w->at < w->len) {
        ssize_t n = send(p->plain, w->bytes + w->at, w->len - w->at, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) return false;
        w->at += (size_t)n;
    }
    if (w->ended && w->at == w->len && !w->told) {
        shutdown(p->plain, SHUT_WR);
        w->told = true;
    }
    return !p->up.ended || !w->told;
}

static inline void *relay_run(void *arg)
{
    struct relay *r = arg;
    struct pollfd fds[2 + 2 * RELAY_PAIRS];
    for (;;) {
        nfds_t n = 0;
        fds[n++] = (struct pollfd){.fd = r->wake, .events = POLLIN};
        fds[n++] = (struct pollfd){.fd = r->listener, .events = POLLIN};
        for (int i = 0; i < RELAY_PAIRS; i++) {
            struct relay_pair *p = &r->pairs[i];
            if (p->plain < 0) continue;
            bool up_full = p->up.at < p->up.len, down_full = p->down.at < p->down.len;
            /* A side that has ended is asked for errors alone: a reset must be told. */
            fds[n++] = (struct pollfd){.fd = p->plain,
                                       .events = (short)((p->up.ended || up_full ? 0 : POLLIN) |
                                                         (down_full ? POLLOUT : 0))};
            fds[n++] = (struct pollfd){
                /* A server that has said its last may still have to take what was begun. */
                .fd = p->down.ended && !p->hold_writes ? -1 : p->socket,
                .events = (short)((down_full || p->down.ended ? 0 : POLLIN) |
                                  (p->hold_writes ? POLLOUT : 0))};
        }
        if (poll(fds, n, -1) < 0) continue;
        if (fds[0].revents) return NULL;
        nfds_t at = 2;
        for (int i = 0; i < RELAY_PAIRS; i++) {
            struct relay_pair *p = &r->pairs[i];
            if (p->plain < 0) continue;
            const struct pollfd *plain = &fds[at++], *far = &fds[at++];
            if (!plain->revents && !far->revents) continue;
            if (plain->revents & POLLERR)
                relay_close(p, true);
            else if (!relay_up(p) || !relay_down(p) || !relay_up(p)) /* a handshake may be over */
                relay_close(p, false);
        }
        if (fds[1].revents) relay_accept(r);
    }
}

static inline struct relay *relay_start(uint16_t server_port)
{
    struct relay *r = calloc(1, sizeof *r);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    CHECK(r != NULL);
    for (int i = 0; i < RELAY_PAIRS; i++)
        r->pairs[i].plain = -1;
    r->ctx = SSL_CTX_new(TLS_client_method());
    r->wake = eventfd(0, 0);
    r->listener = socket(AF_INET, SOCK_STREAM, 0);
    fcntl(r->listener, F_SETFL, O_NONBLOCK);
    CHECK(r->ctx && bind(r->listener, (struct sockaddr *)&at, sizeof at) == 0);
    SSL_CTX_set_mode(r->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    CHECK(listen(r->listener, 4096) == 0);
    getsockname(r->listener, (struct sockaddr *)&at, &len);
    r->port = ntohs(at.sin_port);
    r->server_port = server_port;
    CHECK(pthread_create(&r->thread, NULL, relay_run, r) == 0);
    return r;
}

static inline void relay_stop(struct relay *r)
{
    uint64_t one = 1;
    CHECK(write(r->wake, &one, sizeof one) == sizeof one);
    pthread_join(r->thread, NULL);
    for (int i = 0; i < RELAY_PAIRS; i++)
        if (r->pairs[i].plain >= 0) relay_close(&r->pairs[i], true);
    close(r->listener), close(r->wake);
    SSL_CTX_free(r->ctx);
    free(r);
}

#endif
