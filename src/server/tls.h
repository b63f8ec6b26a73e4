/* tls.h - who the server is (certificate and key), and TLS over one connection.
 *
 * OpenSSL reads the socket by itself, a record at a time, and writes nowhere: the records that it
 * makes go into an evbuffer, and whoever owns the connection (wire.c) sends them. So there is one
 * place that writes to a socket, with or without TLS, and limits see what they always saw.
 *
 * TLS 1.2 and 1.3; no compression, renegotiation or early data. Of protocols that a client offers
 * HTTP/1.1 is taken. The server's thread only. */
#ifndef SERVER_TLS_H
#define SERVER_TLS_H

#include <radish/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct evbuffer;

typedef struct tls tls;
typedef struct tls_conn tls_conn;

typedef struct tls_files {
    const char *certificate; /* PEM: the server's, then those of its chain; NULL: no TLS */
    const char *key;         /* PEM; NULL: in the certificate's file */
    const char *password;    /* of an encrypted key, or NULL */
    const char *client_ca;   /* PEM: who may sign clients' certificates; NULL: they need none */
} tls_files;

/* RAD_E_IO, RAD_E_FORMAT or RAD_E_INVAL in words that name the file: it cannot be read, is no PEM,
 * is not (or no longer) valid, or the key is another certificate's. The names outlive the tls. */
rad_status tls_create(const tls_files *files, tls **out, rad_error *err);
void tls_destroy(tls *t); /* after all its connections; NULL is fine */

/* Reads the files again, for connections from now on. With an error those before stay. */
rad_status tls_reload(tls *t, rad_error *err);

/* `out` gets what is to be sent, and outlives the connection. NULL: no memory. */
tls_conn *tls_accept(tls *t, int fd, struct evbuffer *out);
void tls_close(tls_conn *c); /* NULL is fine */

/* The two sides know each other, or did before an error; before it nothing can be written. */
bool tls_is_open(const tls_conn *c);

/* As recv on a socket that does not block: 0 at the end, which may be the client's alone; EAGAIN;
 * EPROTO with a reason below. With room for TLS_RECORD_BYTES nothing stays behind in OpenSSL that
 * the socket does not tell of. */
enum { TLS_RECORD_BYTES = 16384 };
ssize_t tls_recv(tls_conn *c, void *bytes, size_t size);
const char *tls_why(const tls_conn *c); /* after an EPROTO */
bool tls_met_http(const tls_conn *c);   /* what came was a request in the clear */

/* Into `out`, as records. False: no memory, or the connection had an error: `out` may have a part
 * of it, and must not be sent. */
bool tls_write(tls_conn *c, const void *bytes, size_t len);

/* "Nothing follows", into `out`. */
void tls_say_end(tls_conn *c);

#endif
