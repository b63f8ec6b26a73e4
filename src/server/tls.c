/* tls.c - see tls.h.
 *
 * A reload makes a new SSL_CTX; connections keep the one they began with, which OpenSSL counts.
 * Nobody is asked for a password: without one an encrypted key is an error.
 *
 * Sessions are resumed by tickets, which clients keep: the server remembers none. */
#include "server/tls.h"

#include "base/base.h"

#include <errno.h>
#include <event2/buffer.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>
#include <stdio.h>
#include <stdlib.h>

struct tls {
    tls_files files;
    BIO_METHOD *into_buffer;
    SSL_CTX *ctx;
};

struct tls_conn {
    SSL *ssl;
    bool open;   /* also after an error: it was */
    bool broken; /* OpenSSL wants no more calls after an error */
    bool met_http;
    char why[160];
};

/* ---- files ---- */

static const char *reason(void)
{
    const char *words = ERR_reason_error_string(ERR_peek_last_error());
    return words ? words : "unknown reason";
}

/* OpenSSL says what is wrong with a file's contents, libc that it cannot be read. */
static rad_status check_readable(const char *what, const char *path, rad_error *err)
{
    FILE *file = fopen(path, "r");
    char byte;
    bool readable = file && (fread(&byte, 1, 1, file) == 1 || !ferror(file));
    int why = errno;
    if (file) fclose(file);
    if (readable) return RAD_OK;
    return rad_fail(err, RAD_E_IO, "%s %s: %s", what, path, strerror(why));
}

static rad_status check_time(const char *path, const ASN1_TIME *time, const char *what,
                             rad_error *err)
{
    char when[64] = "";
    BIO *text = BIO_new(BIO_s_mem());
    if (text && ASN1_TIME_print(text, time)) {
        int len = BIO_read(text, when, sizeof when - 1);
        when[len > 0 ? len : 0] = 0;
    }
    BIO_free(text);
    return rad_fail(err, RAD_E_INVAL, "--ssl-certfile %s: the certificate %s on %s", path, what,
                    when);
}

static rad_status load_certificate(SSL_CTX *ctx, const char *path, rad_error *err)
{
    rad_status status = check_readable("--ssl-certfile", path, err);
    if (status) return status;
    if (SSL_CTX_use_certificate_chain_file(ctx, path) != 1)
        return rad_fail(err, RAD_E_FORMAT, "--ssl-certfile %s: no certificate in PEM (%s)", path,
                        reason());
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    if (X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0)
        return check_time(path, X509_get0_notAfter(cert), "expired", err);
    if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0)
        return check_time(path, X509_get0_notBefore(cert), "will first be valid", err);
    return RAD_OK;
}

typedef struct password {
    const char *text;
    bool asked;
} password;

static int give_password(char *out, int size, int writing, void *user)
{
    password *p = user;
    size_t len = p->text ? strlen(p->text) : 0;
    (void)writing;
    p->asked = true;
    if (!p->text || size < 0 || len > (size_t)size) return -1;
    memcpy(out, p->text, len);
    return (int)len;
}

static rad_status load_key(SSL_CTX *ctx, const tls_files *files, rad_error *err)
{
    const char *path = files->key ? files->key : files->certificate;
    password p = {.text = files->password};
    rad_status status = check_readable("--ssl-keyfile", path, err);
    if (status) return status;
    SSL_CTX_set_default_passwd_cb(ctx, give_password);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, &p);
    bool read = SSL_CTX_use_PrivateKey_file(ctx, path, SSL_FILETYPE_PEM) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(ctx, NULL);
    int why = ERR_GET_REASON(ERR_peek_last_error());
    bool other = !read && (why == X509_R_KEY_VALUES_MISMATCH || why == X509_R_KEY_TYPE_MISMATCH);
    if (!read && !other && p.asked)
        return rad_fail(err, RAD_E_INVAL, "--ssl-keyfile %s: %s", path,
                        p.text ? "--ssl-keyfile-password does not open it"
                               : "the key is encrypted; give --ssl-keyfile-password");
    if (!read && !other)
        return rad_fail(err, RAD_E_FORMAT, "--ssl-keyfile %s: no private key in PEM (%s)", path,
                        reason());
    if (other || SSL_CTX_check_private_key(ctx) != 1)
        return rad_fail(err, RAD_E_INVAL,
                        "--ssl-keyfile %s: the key does not belong to the certificate in %s", path,
                        files->certificate);
    return RAD_OK;
}

static rad_status load_client_ca(SSL_CTX *ctx, const char *path, rad_error *err)
{
    rad_status status = check_readable("--ssl-ca-certs", path, err);
    if (status) return status;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(path);
    if (!names || SSL_CTX_load_verify_locations(ctx, path, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return rad_fail(err, RAD_E_FORMAT, "--ssl-ca-certs %s: no certificate in PEM (%s)", path,
                        reason());
    }
    SSL_CTX_set_client_CA_list(ctx, names);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return RAD_OK;
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *offered, unsigned offered_len, void *user)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl;
    (void)user;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours - 1, offered, offered_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK; /* what it then sends the HTTP reader judges */
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static rad_status create_ctx(const tls_files *files, SSL_CTX **out, rad_error *err)
{
    static const unsigned char session_context[] = "radish";
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_session_id_context(ctx, session_context, sizeof session_context - 1) != 1) {
        SSL_CTX_free(ctx);
        return rad_fail(err, RAD_E_NOMEM, "no memory for TLS");
    }
    /* An end without a close_notify is an end: where a request or an answer ends HTTP says. */
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS); /* idle connections are many */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    rad_status status = load_certificate(ctx, files->certificate, err);
    if (!status) status = load_key(ctx, files, err);
    if (!status && files->client_ca) status = load_client_ca(ctx, files->client_ca, err);
    ERR_clear_error();
    if (status) {
        SSL_CTX_free(ctx);
        return status;
    }
    *out = ctx;
    return RAD_OK;
}

/* ---- records go into an evbuffer ---- */

static int write_into_buffer(BIO *bio, const char *bytes, int len)
{
    return evbuffer_add(BIO_get_data(bio), bytes, (size_t)len) == 0 ? len : -1;
}

static long control_buffer(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH; /* the only one that has to work */
}

static BIO_METHOD *create_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "evbuffer");
    if (m && BIO_meth_set_write(m, write_into_buffer) == 1 &&
        BIO_meth_set_ctrl(m, control_buffer) == 1)
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* ---- life ---- */

rad_status tls_create(const tls_files *files, tls **out, rad_error *err)
{
    *out = NULL;
    tls *t = calloc(1, sizeof *t);
    if (!t) return rad_fail(err, RAD_E_NOMEM, "no memory for TLS");
    t->files = *files;
    t->into_buffer = create_method();
    rad_status status = t->into_buffer ? create_ctx(&t->files, &t->ctx, err)
                                       : rad_fail(err, RAD_E_NOMEM, "no memory for TLS");
    if (status)
        tls_destroy(t);
    else
        *out = t;
    return status;
}

void tls_destroy(tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->ctx);
    BIO_meth_free(t->into_buffer);
    free(t);
}

rad_status tls_reload(tls *t, rad_error *err)
{
    SSL_CTX *now;
    rad_status status = create_ctx(&t->files, &now, err);
    if (status) return status;
    SSL_CTX_free(t->ctx);
    t->ctx = now;
    return RAD_OK;
}

tls_conn *tls_accept(tls *t, int fd, struct evbuffer *out)
{
    tls_conn *c = calloc(1, sizeof *c);
    BIO *in = BIO_new_socket(fd, BIO_NOCLOSE), *into = BIO_new(t->into_buffer);
    if (c) c->ssl = SSL_new(t->ctx);
    if (!c || !c->ssl || !in || !into) {
        BIO_free(in);
        BIO_free(into);
        tls_close(c);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_data(into, out);
    BIO_set_init(into, 1);
    SSL_set_bio(c->ssl, in, into);
    SSL_set_accept_state(c->ssl);
    return c;
}

void tls_close(tls_conn *c)
{
    if (!c) return;
    SSL_free(c->ssl);
    free(c);
}

/* ---- bytes ---- */

bool tls_is_open(const tls_conn *c)
{
    return c->open;
}

static void note_error(tls_conn *c)
{
    unsigned long first = ERR_peek_error();
    const char *words = ERR_reason_error_string(first);
    long verified = SSL_get_verify_result(c->ssl);
    c->broken = true;
    c->met_http = ERR_GET_LIB(first) == ERR_LIB_SSL && ERR_GET_REASON(first) == SSL_R_HTTP_REQUEST;
    snprintf(c->why, sizeof c->why, "%s%s%s", words ? words : "the connection ended",
             verified == X509_V_OK ? "" : ": ",
             verified == X509_V_OK ? "" : X509_verify_cert_error_string(verified));
    ERR_clear_error();
}

ssize_t tls_recv(tls_conn *c, void *bytes, size_t size)
{
    if (!c->broken) {
        ERR_clear_error();
        int n = SSL_read(c->ssl, bytes, (int)RAD_MIN(size, (size_t)INT32_MAX));
        if (!c->open) c->open = SSL_is_init_finished(c->ssl);
        if (n > 0) return n;
        switch (SSL_get_error(c->ssl, n)) {
        case SSL_ERROR_ZERO_RETURN: return 0;
        case SSL_ERROR_WANT_READ: errno = EAGAIN; return -1;
        default: note_error(c); break;
        }
    }
    errno = EPROTO;
    return -1;
}

const char *tls_why(const tls_conn *c)
{
    return c->why;
}

bool tls_met_http(const tls_conn *c)
{
    return c->met_http;
}

bool tls_write(tls_conn *c, const void *bytes, size_t len)
{
    const char *at = bytes;
    if (!c->open || c->broken) return false;
    ERR_clear_error();
    while (len) {
        int n = SSL_write(c->ssl, at, (int)RAD_MIN(len, (size_t)TLS_RECORD_BYTES));
        if (n <= 0) {
            note_error(c);
            return false;
        }
        at += n;
        len -= (size_t)n;
    }
    return true;
}

void tls_say_end(tls_conn *c)
{
    if (!c->open || c->broken) return;
    ERR_clear_error();
    if (SSL_shutdown(c->ssl) < 0) note_error(c);
}
