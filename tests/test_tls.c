/* test_tls.c - a server with a certificate: who may talk to it and how, what becomes of those who
 * cannot, and that answers come whole. That all limits hold as they do in the clear,
 * test_server_limits_tls says, which is test_server_limits through a relay. */
#define _GNU_SOURCE /* memmem */
#include "server_rig.h"

#include <event2/event.h>

static char dir[] = "/tmp/radish-tls-XXXXXX";
static struct tls_id ca, own, stranger, person, impostor;

static void forget_all(void)
{
    struct tls_id *all[] = {&ca, &own, &stranger, &person, &impostor};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tls_id_free(all[i]);
    rmdir(dir);
}

static tls_files files(void)
{
    if (!ca.cert) {
        CHECK(mkdtemp(dir) && atexit(forget_all) == 0);
        tls_id_make(&ca, dir, "ca", NULL, -1, 1, NULL);
        tls_id_make(&own, dir, "own", &ca, -1, 1, NULL);
        tls_id_make(&stranger, dir, "stranger", NULL, -1, 1, NULL);
        tls_id_make(&person, dir, "person", &ca, -1, 1, NULL);
        tls_id_make(&impostor, dir, "impostor", &stranger, -1, 1, NULL);
    }
    return (tls_files){.certificate = own.cert_path, .key = own.key_path};
}

/* ---- a log ---- */

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[16384];

static void keep_line(void *user, rad_log_level level, const char *message)
{
    (void)user;
    (void)level;
    pthread_mutex_lock(&lines_lock);
    size_t len = strlen(lines);
    snprintf(lines + len, sizeof lines - len, "%s\n", message);
    pthread_mutex_unlock(&lines_lock);
}

static bool logged(const char *words)
{
    pthread_mutex_lock(&lines_lock);
    bool found = strstr(lines, words);
    pthread_mutex_unlock(&lines_lock);
    return found;
}

static void start_tls(struct fixture *f, server_params params)
{
    rad_env env = {.struct_size = sizeof env, .log = keep_line};
    lines[0] = 0;
    if (!params.tls.certificate) params.tls = files();
    start_in(f, &env, params);
    f->relay = NULL;
}

/* ---- a client ---- */

struct client {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

static struct client prepare(const struct fixture *f, const struct tls_id *trusted)
{
    struct client c = {.ctx = SSL_CTX_new(TLS_client_method()), .fd = dial(f)};
    CHECK(c.ctx && SSL_CTX_load_verify_locations(c.ctx, trusted->cert_path, NULL) == 1);
    SSL_CTX_set_verify(c.ctx, SSL_VERIFY_PEER, NULL);
    c.ssl = SSL_new(c.ctx);
    CHECK(c.ssl && SSL_set_fd(c.ssl, c.fd) == 1);
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c.ssl), "127.0.0.1");
    return c;
}

static void leave(struct client *c)
{
    SSL_free(c->ssl);
    SSL_CTX_free(c->ctx);
    close(c->fd);
}

static struct client meet(const struct fixture *f)
{
    struct client c = prepare(f, &ca);
    CHECK(SSL_connect(c.ssl) == 1);
    return c;
}

static void put(struct client *c, const char *text)
{
    CHECK(SSL_write(c->ssl, text, (int)strlen(text)) == (int)strlen(text));
}

/* All there is until the server says that there is no more; the caller frees. */
static char *get(struct client *c)
{
    size_t room = 1 << 16, len = 0;
    char *all = malloc(room);
    for (int n;; len += (size_t)n) {
        if (room - len < 20000) all = realloc(all, room *= 2);
        CHECK(all != NULL);
        n = SSL_read(c->ssl, all + len, 16384);
        if (n > 0) continue;
        CHECKF(SSL_get_error(c->ssl, n) == SSL_ERROR_ZERO_RETURN, "no close_notify\n");
        all[len] = 0;
        return all;
    }
}

static char *talk(const struct fixture *f, const char *request)
{
    struct client c = meet(f);
    put(&c, request);
    char *answer = get(&c);
    leave(&c);
    return answer;
}

static const char HEALTH[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

static void expect_health(const struct fixture *f)
{
    char *answer = talk(f, HEALTH);
    CHECKF(strstr(answer, "200 OK") && strstr(answer, "\"ok\""), "%s\n", answer);
    free(answer);
}

static char *post(const struct fixture *f, const char *path, const char *body)
{
    char request[1024];
    snprintf(request, sizeof request,
             "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
             path, strlen(body), body);
    return talk(f, request);
}

/* ---- who the server is ---- */

static void expect_refused(tls_files use, const char *name, const char *words)
{
    server_params params = {.tls = use};
    rad_error err = {0};
    engine *e;
    server *s;
    CHECK_OK(engine_create(NULL, NULL, &e, NULL));
    CHECK(server_create(NULL, e, &params, &s, &err) < 0 && !s);
    CHECKF(strstr(err.text, name) && strstr(err.text, words), "%s\n", err.text);
    engine_destroy(e);
}

TEST(files_that_cannot_be_used_are_refused_in_words)
{
    tls_files good = files(), use;
    struct tls_id over, early, secret, kind = {0};
    snprintf(kind.key_path, sizeof kind.key_path, "%s/kind.key", dir);
    tls_id_make(&over, dir, "over", &ca, -10, -1, NULL);
    tls_id_make(&early, dir, "early", &ca, 1, 10, NULL);
    tls_id_make(&secret, dir, "secret", &ca, -1, 1, "open sesame");
    use = good, use.certificate = "/nowhere/a.crt";
    expect_refused(use, "--ssl-certfile /nowhere/a.crt", "No such file");
    use = good, use.certificate = dir;
    expect_refused(use, "--ssl-certfile", "Is a directory");
    use = good, use.certificate = own.key_path;
    expect_refused(use, own.key_path, "no certificate in PEM");
    use = good, use.key = "/nowhere/a.key";
    expect_refused(use, "--ssl-keyfile /nowhere/a.key", "No such file");
    use = good, use.key = own.cert_path;
    expect_refused(use, own.cert_path, "no private key in PEM");
    use = good, use.key = NULL; /* it would be in the certificate's file */
    expect_refused(use, own.cert_path, "no private key in PEM");
    use = good, use.key = stranger.key_path;
    expect_refused(use, stranger.key_path, "does not belong to the certificate in");
    FILE *out = fopen(kind.key_path, "w"); /* of another kind */
    kind.key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    CHECK(out && kind.key && PEM_write_PrivateKey(out, kind.key, NULL, NULL, 0, NULL, NULL));
    fclose(out);
    use = good, use.key = kind.key_path;
    expect_refused(use, kind.key_path, "does not belong to the certificate in");
    use = (tls_files){.certificate = over.cert_path, .key = over.key_path};
    expect_refused(use, over.cert_path, "expired on");
    use = (tls_files){.certificate = early.cert_path, .key = early.key_path};
    expect_refused(use, early.cert_path, "will first be valid on");
    use = (tls_files){.certificate = secret.cert_path, .key = secret.key_path};
    expect_refused(use, secret.key_path, "encrypted; give --ssl-keyfile-password");
    use.password = "sesame";
    expect_refused(use, secret.key_path, "does not open it");
    use = good, use.client_ca = "/nowhere/ca";
    expect_refused(use, "--ssl-ca-certs /nowhere/ca", "No such file");
    use = good, use.client_ca = own.key_path;
    expect_refused(use, own.key_path, "no certificate in PEM");

    struct fixture f;
    use = (tls_files){
        .certificate = secret.cert_path, .key = secret.key_path, .password = "open sesame"};
    start_tls(&f, (server_params){.tls = use});
    expect_health(&f);
    stop(&f);
    tls_id_free(&over), tls_id_free(&early), tls_id_free(&secret);
    tls_id_free(&kind);
}

/* ---- talking ---- */

TEST(a_client_gets_answers_and_streams_and_an_end)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                               "\"max_tokens\":3%s}";
    struct fixture f;
    char body[200];
    start_tls(&f, (server_params){0});
    expect_health(&f);
    snprintf(body, sizeof body, chat, "");
    char *answer = post(&f, "/v1/chat/completions", body);
    CHECKF(strstr(answer, "200 OK") && strstr(answer, "t0 t1 t2 "), "%s\n", answer);
    free(answer);
    snprintf(body, sizeof body, chat, ",\"stream\":true");
    answer = post(&f, "/v1/chat/completions", body);
    CHECKF(strstr(answer, "t2 ") && strstr(answer, "[DONE]"), "%s\n", answer);
    free(answer);
    answer = talk(&f, "GET / HTTP/1.1\r\nno colon\r\n\r\n"); /* the strict reader's */
    CHECKF(strstr(answer, " 400 ") && strstr(answer, "colon"), "%s\n", answer);
    free(answer);
    answer = talk(&f, "GET /health HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\n"
                      "Connection: close\r\n\r\n");
    CHECKF(strstr(answer, " 403 ") && strstr(answer, "allow-origin"), "%s\n", answer);
    free(answer);
    stop(&f);
    CHECK(logged("POST /v1/chat/completions 200 ") && logged("from 127.0.0.1"));
}

/* Two requests on one connection, the second sent ahead; then the client's end alone. */
TEST(a_client_may_send_ahead_and_end_its_side)
{
    struct fixture f;
    start_tls(&f, (server_params){0});
    struct client c = meet(&f);
    put(&c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 34\r\n\r\n"
            "{\"prompt\":\"slow\",\"max_tokens\":3}  GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
    SSL_shutdown(c.ssl);
    char *answer = get(&c);
    CHECKF(!strncmp(answer, "HTTP/1.1 200 OK", 15) && strstr(answer, "t2 ") &&
               strstr(answer, "HTTP/1.1 404 "),
           "%s\n", answer);
    free(answer);
    leave(&c);
    stop(&f);
}

/* Megabytes of text: more than any buffer between the two, read with pauses. Meanwhile the client
 * changes its keys, so that what the server has to say to that goes between the answer's records.
 */
TEST(a_long_answer_comes_whole)
{
    enum { LONG = 8000000 };
    struct fixture f;
    char some[16384];
    size_t letters = 0;
    start_tls(&f, (server_params){0});
    struct client c = meet(&f);
    setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &(int){1 << 16}, sizeof(int));
    put(&c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 41"
            "\r\n\r\n{\"prompt\":\"burst\",\"max_tokens\":8000000}   ");
    for (int n, turns = 0; (n = SSL_read(c.ssl, some, sizeof some)) > 0; turns++) {
        for (int i = 0; i < n; i++)
            letters += some[i] == 'b';
        if (letters < LONG / 4 && turns % 16 == 1) { /* later the server may be through with us */
            CHECK(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED) == 1);
            CHECK(SSL_do_handshake(c.ssl) == 1);
            usleep(2000);
        }
    }
    CHECKF(letters >= LONG && letters < LONG + 50, "%zu letters\n", letters);
    leave(&c);
    expect_health(&f);
    stop(&f);
}

TEST(versions_before_1_2_are_refused)
{
    struct fixture f;
    start_tls(&f, (server_params){0});
    struct client c = prepare(&f, &ca);
    SSL_CTX_set_security_level(c.ctx, 0);
    SSL_set_security_level(c.ssl, 0);
    SSL_set_min_proto_version(c.ssl, TLS1_VERSION);
    SSL_set_max_proto_version(c.ssl, TLS1_1_VERSION);
    CHECK(SSL_connect(c.ssl) != 1);
    leave(&c);
    c = prepare(&f, &ca);
    static const unsigned char offered[] = "\x02h2\x08http/1.1";
    const unsigned char *chosen;
    unsigned chosen_len;
    SSL_set_max_proto_version(c.ssl, TLS1_2_VERSION);
    SSL_set_alpn_protos(c.ssl, offered, sizeof offered - 1);
    CHECK(SSL_connect(c.ssl) == 1 && SSL_version(c.ssl) == TLS1_2_VERSION);
    SSL_get0_alpn_selected(c.ssl, &chosen, &chosen_len);
    CHECK(chosen_len == 8 && !memcmp(chosen, "http/1.1", 8));
    put(&c, HEALTH);
    char *answer = get(&c);
    CHECK(strstr(answer, "200 OK"));
    free(answer);
    leave(&c);
    stop(&f);
    CHECK(logged("no TLS: unsupported protocol"));
}

/* ---- who is turned away ---- */

TEST(a_client_that_does_not_trust_us_does_no_harm)
{
    struct fixture f;
    start_tls(&f, (server_params){0});
    struct client c = prepare(&f, &stranger);
    CHECK(SSL_connect(c.ssl) != 1);
    CHECK(SSL_get_verify_result(c.ssl) != X509_V_OK);
    leave(&c);
    expect_health(&f);
    stop(&f);
}

/* In TLS 1.3 the client hears of it when it reads. */
static bool gets_in(const struct fixture *f, const struct tls_id *as)
{
    struct client c = prepare(f, &ca);
    char byte;
    if (as) {
        CHECK(SSL_use_certificate_file(c.ssl, as->cert_path, SSL_FILETYPE_PEM) == 1);
        CHECK(SSL_use_PrivateKey_file(c.ssl, as->key_path, SSL_FILETYPE_PEM) == 1);
    }
    signal(SIGPIPE, SIG_IGN);
    bool in = SSL_connect(c.ssl) == 1 &&
              SSL_write(c.ssl, HEALTH, sizeof HEALTH - 1) == sizeof HEALTH - 1 &&
              SSL_read(c.ssl, &byte, 1) == 1 && byte == 'H';
    leave(&c);
    return in;
}

TEST(with_ssl_ca_certs_only_clients_with_a_certificate_get_in)
{
    struct fixture f;
    tls_files use = files();
    use.client_ca = ca.cert_path;
    start_tls(&f, (server_params){.tls = use});
    CHECK(!gets_in(&f, NULL));
    CHECK(!gets_in(&f, &impostor));
    CHECK(gets_in(&f, &person));
    stop(&f);
    CHECK(logged("no TLS: peer did not return a certificate"));
    CHECK(logged("no TLS: certificate verify failed: "));
}

TEST(what_is_no_tls_is_closed_and_http_hears_why)
{
    static const char *const nonsense[] = {"hello\r\n\r\n", "\x16\x03\x01\xff\xff", "\x80\x2e\x01"};
    struct fixture f;
    start_tls(&f, (server_params){.request_timeout_ms = 400});
    const char *reply = exchange(&f, HEALTH);
    CHECKF(strstr(reply, "HTTP/1.1 400 ") && strstr(reply, "https://"), "%s\n", reply);
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
        CHECK(!strstr(exchange(&f, nonsense[i]), "HTTP")); /* an alert, or no word */
    expect_health(&f);
    stop(&f);
    CHECK(logged("- - 400 ") && logged("no TLS: http request"));
}

/* ---- no memory ---- */

/* libevent's pieces of buffers, what bodies and answers are made of: the n-th from now fails. */
static _Atomic long pieces_left = -1;
static _Atomic bool piece_failed;

static bool fails(size_t bytes)
{
    bool now = bytes >= 1000 && pieces_left >= 0 && pieces_left-- == 0;
    if (now) piece_failed = true;
    return now;
}

static void *piece_malloc(size_t bytes)
{
    return fails(bytes) ? NULL : malloc(bytes);
}

static void *piece_realloc(void *memory, size_t bytes)
{
    return fails(bytes) ? NULL : realloc(memory, bytes);
}

__attribute__((constructor)) static void take_over_memory(void)
{
    event_set_mem_functions(piece_malloc, piece_realloc, free);
}

/* Reads to the end what goes over the wire, and what TLS makes of it; whether that was whole. */
static bool hear_wire(struct client *c, bool *leaked)
{
    static char raw[1 << 16], some[16384];
    BIO *in = BIO_new(BIO_s_mem());
    size_t letters = 0;
    SSL_set0_rbio(c->ssl, in);
    for (ssize_t got; (got = recv_some(c->fd, raw, sizeof raw)) > 0;) {
        static const char *const words[] = {"bbbbbbbb", "Content-", "X-Request-Id"};
        for (int i = 0; i < 3; i++)
            *leaked = *leaked || memmem(raw, (size_t)got, words[i], strlen(words[i]));
        CHECK(BIO_write(in, raw, (int)got) == got);
        for (int n; (n = SSL_read(c->ssl, some, sizeof some)) > 0;)
            for (int i = 0; i < n; i++)
                letters += some[i] == 'b';
    }
    return letters >= 200000;
}

/* The answer goes out whole or ends where memory did; never in the clear, and others are served. */
TEST(without_memory_nothing_goes_out_in_the_clear)
{
    struct fixture f;
    bool whole = false, leaked = false;
    int cut = 0;
    start_tls(&f, (server_params){0});
    piece_failed = true;
    for (long n = 0; piece_failed; n++) {
        struct client c = meet(&f);
        piece_failed = false;
        pieces_left = n;
        put(&c,
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 39"
            "\r\n\r\n{\"prompt\":\"burst\",\"max_tokens\":200000}  ");
        whole = hear_wire(&c, &leaked);
        pieces_left = -1;
        CHECKF(!leaked, "at piece %ld\n", n);
        cut += !whole;
        leave(&c);
        CHECK(n < 1000);
    }
    CHECK(whole && cut > 3);
    expect_health(&f);
    stop(&f);
}

/* ---- a certificate that is renewed ---- */

static const char *served(const struct fixture *f)
{
    static char name[64];
    struct client c = meet(f);
    X509 *cert = SSL_get1_peer_certificate(c.ssl);
    X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, name, sizeof name);
    X509_free(cert);
    leave(&c);
    return name;
}

static void copy(const char *from, const char *to)
{
    char bytes[8192];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    CHECK(in && out);
    size_t len = fread(bytes, 1, sizeof bytes, in);
    CHECK(len < sizeof bytes && fwrite(bytes, 1, len, out) == len);
    fclose(in), fclose(out);
}

static void *run_with_signals(void *arg)
{
    struct fixture *f = arg;
    f->result = server_catch_signals(f->server, NULL);
    if (f->result == RAD_OK) f->result = server_run(f->server, NULL);
    return NULL;
}

static void hang_up_until(const char *words)
{
    kill(getpid(), SIGHUP);
    for (int wait = 0; !logged(words); wait++) {
        CHECKF(wait < 20000, "not logged: %s\n", words);
        usleep(1000);
    }
    lines[0] = 0;
}

TEST(a_hangup_reads_the_certificate_again)
{
    struct fixture f = {0};
    struct tls_id used;
    rad_env env = {.struct_size = sizeof env, .log = keep_line};
    server_params params = {.tls = files(), .drain_ms = 500};
    tls_id_make(&used, dir, "used", &ca, -1, 1, NULL);
    params.tls = (tls_files){.certificate = used.cert_path, .key = used.key_path};
    signal(SIGHUP, SIG_IGN); /* until the server runs */
    CHECK_OK(engine_create(NULL, NULL, &f.engine, NULL));
    CHECK_OK(server_create(&env, f.engine, &params, &f.server, NULL));
    CHECK(pthread_create(&f.thread, NULL, run_with_signals, &f) == 0);
    CHECK(!strcmp(served(&f), "used"));
    struct client before = meet(&f);
    copy(own.cert_path, used.cert_path);
    hang_up_until("does not belong to the certificate");
    CHECK(!strcmp(served(&f), "used"));
    copy(own.key_path, used.key_path);
    hang_up_until("the certificate was read again");
    CHECK(!strcmp(served(&f), "own"));
    put(&before, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    char *answer = get(&before);
    CHECK(strstr(answer, "200 OK"));
    free(answer);
    leave(&before);
    stop(&f);
    tls_id_free(&used);
}

TEST_MAIN()
