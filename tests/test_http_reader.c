/* test_http_reader.c - what is a request by RFC 9112 is read as exactly one, what is none is
 * refused in words, and neither depends on how the bytes come: every case runs whole, byte by
 * byte, and cut in two at every place. */
#include "test.h"

#include "base/base.h"
#include "server/http_reader.h"

#include <stdlib.h>

enum { HEAD_BYTES = 1000, BODY_BYTES = 100 };

static const http_limits limits = {.head_bytes = HEAD_BYTES, .body_bytes = BODY_BYTES};

/* What a reader made of some bytes. */
typedef struct outcome {
    http_part part;
    int status;
    char words[128];
    char head[2048]; /* anew */
    char body[512];
    size_t body_len, eaten;
    bool expects, last;
} outcome;

/* All of a piece, as connection.c does it. */
static void feed(http_reader *r, const char *bytes, size_t len, outcome *out)
{
    size_t at = 0;
    while (at < len && (r->part == HTTP_LINES || r->part == HTTP_DATA)) {
        size_t n = 0;
        if (r->part == HTTP_LINES) {
            n = http_reader_take(r, bytes + at, len - at);
        } else {
            n = (size_t)RAD_MIN(r->left, (uint64_t)(len - at));
            memcpy(out->body + out->body_len, bytes + at, n);
            out->body_len += n;
            http_reader_skip(r, n);
        }
        at += n;
        out->eaten += n;
    }
}

static outcome finish(http_reader *r, outcome out)
{
    out.part = r->part;
    out.status = r->status;
    out.expects = r->expects;
    out.last = r->last;
    snprintf(out.words, sizeof out.words, "%s", r->words ? r->words : "");
    if (r->part == HTTP_WHOLE) {
        size_t len;
        char *head = http_reader_rewrite(r, &len);
        CHECK(head && len < sizeof out.head);
        memcpy(out.head, head, len);
        CHECK(strlen(out.head) == len);
        free(head);
    }
    http_reader_next(r);
    return out;
}

/* step 0: in two pieces, the first one `first` long. Each piece is a block of its own, so that
 * ASan sees a byte too many being read. */
static outcome read_pieces(const char *bytes, size_t len, size_t first, size_t step)
{
    http_reader r;
    outcome out = {0};
    http_reader_init(&r, &limits);
    for (size_t at = 0; at < len;) {
        size_t n = RAD_MIN(step ? step : at ? len - at : RAD_MAX(first, 1), len - at);
        char *piece = malloc(n);
        CHECK(piece != NULL);
        memcpy(piece, bytes + at, n);
        feed(&r, piece, n, &out);
        free(piece);
        at += n;
    }
    return finish(&r, out);
}

static void check_same(const char *bytes, const outcome *a, const outcome *b)
{
    CHECKF(a->part == b->part && a->status == b->status && !strcmp(a->words, b->words) &&
               !strcmp(a->head, b->head) && a->body_len == b->body_len && a->last == b->last &&
               a->expects == b->expects && !memcmp(a->body, b->body, a->body_len) &&
               (a->part != HTTP_WHOLE || a->eaten == b->eaten),
           "cuts change what is read of: %s", bytes);
}

static outcome read_all_ways(const char *bytes, size_t len)
{
    outcome whole = read_pieces(bytes, len, len, 0), cut;
    cut = read_pieces(bytes, len, 0, 1);
    check_same(bytes, &whole, &cut);
    for (size_t first = 1; first < len; first++) {
        cut = read_pieces(bytes, len, first, 0);
        check_same(bytes, &whole, &cut);
    }
    return whole;
}

#define HOST    "Host: a\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"

TEST(requests_are_read_as_one)
{
    static const struct {
        const char *bytes, *head, *body, *rest;
    } cases[] = {
        {"GET / HTTP/1.1\r\n" HOST "\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
        {"\r\n\r\nGET /a?b=c HTTP/1.1\r\nhost:b:80  \r\nX:\t1 \t2\t\r\nY:\r\n\r\nGET",
         "GET /a?b=c HTTP/1.1\r\nHost: b:80\r\nX: 1 \t2\r\nY: \r\n\r\n", "", "GET"},
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "", ""},
        {"GET / HTTP/1.1\r\nHost: [::1]:30000\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: [::1]:30000\r\n\r\n", "", ""},
        {"GET / HTTP/1.9\r\n" HOST "\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
        {"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nConnection: close\r\n\r\n", "", ""},
        {"GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n",
         "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "", ""},
        {"GET / HTTP/1.1\r\n" HOST "Connection: TE , CLOSE\r\nTE: trailers\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "", ""},
        /* the target's host counts */
        {"GET http://b.c:1/x HTTP/1.1\r\n" HOST "\r\n", "GET /x HTTP/1.1\r\nHost: b.c:1\r\n\r\n",
         "", ""},
        {"GET HTTPS://b?q HTTP/1.1\r\n" HOST "\r\n", "GET /?q HTTP/1.1\r\nHost: b\r\n\r\n", "", ""},
        {"GET http://b HTTP/1.1\r\n" HOST "\r\n", "GET / HTTP/1.1\r\nHost: b\r\n\r\n", "", ""},
        {"OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
        {"HEAD / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\nx",
         "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "", "x"},
        {"TRACE / HTTP/1.1\r\n" HOST "\r\n", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "", ""},
        {"POST / HTTP/1.1\r\n" HOST "\r\nx",
         "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "", "x"},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0005\r\n\r\nhelloGET",
         "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "hello", "GET"},
        {"PUT / HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-Continue\r\n\r\n\r\n",
         "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n", "\r\n", ""},
        {"POST / HTTP/1.1\r\n" HOST "transfer-encoding:CHUNKED\r\n\r\n0\r\n\r\nGET",
         "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "", "GET"},
        {"PATCH / HTTP/1.1\r\n" HOST CHUNKED "Trailer: T\r\n\r\n"
         "00003;a=b;c=\"d e\"\r\nabc\r\nA\r\n0123456789\r\n0;x\r\nT: 1\r\nU:\r\n\r\n\r\n",
         "PATCH / HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n", "abc0123456789", "\r\n"},
        {"POST / HTTP/1.1\r\n" HOST "X: \xc3\xa9\r\nAccept: a\r\nAccept: b\r\n\r\n",
         "POST / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa9\r\nAccept: a\r\nAccept: b\r\n"
         "Content-Length: 0\r\n\r\n",
         "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t len = strlen(cases[i].bytes);
        outcome got = read_all_ways(cases[i].bytes, len);
        CHECKF(got.part == HTTP_WHOLE, "%s: %d %s", cases[i].bytes, got.status, got.words);
        CHECKF(!strcmp(got.head, cases[i].head), "%s became %s", cases[i].bytes, got.head);
        CHECKF(got.body_len == strlen(cases[i].body) &&
                   !memcmp(got.body, cases[i].body, got.body_len),
               "%s", cases[i].bytes);
        CHECKF(len - got.eaten == strlen(cases[i].rest), "%s left %zu", cases[i].bytes,
               len - got.eaten);
    }
}

TEST(what_is_no_request_is_refused)
{
#define POST_WITH "POST / HTTP/1.1\r\n" HOST
#define CHUNKS    POST_WITH CHUNKED "\r\n"
    static const struct {
        const char *bytes;
        int status;
        const char *words;
    } cases[] = {
        /* bodies where there is none */
        {"GET / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n", 400, "GET takes no body"},
        {"HEAD / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n", 400, "HEAD takes no body"},
        {"HEAD / HTTP/1.1\r\n" HOST CHUNKED "\r\n", 400, "HEAD takes no body"},
        {"TRACE / HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\n", 400, "TRACE takes no body"},
        {"DELETE / HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\n", 400, "DELETE takes no body"},
        {"OPTIONS / HTTP/1.1\r\n" HOST CHUNKED "\r\n", 400, "OPTIONS takes no body"},
        /* lengths */
        {POST_WITH "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, "more than one"},
        {POST_WITH "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400, "more than one"},
        {POST_WITH "Content-Length: 5, 5\r\n\r\n", 400, "no number"},
        {POST_WITH "Content-Length: +5\r\n\r\n", 400, "no number"},
        {POST_WITH "Content-Length: -5\r\n\r\n", 400, "no number"},
        {POST_WITH "Content-Length: 0x5\r\n\r\n", 400, "no number"},
        {POST_WITH "Content-Length: 5 5\r\n\r\n", 400, "no number"},
        {POST_WITH "Content-Length:\r\n\r\n", 400, "no number"},
        {POST_WITH "Content-Length: 101\r\n\r\n", 413, "longer than 100 bytes"},
        {POST_WITH "Content-Length: 18446744073709551617\r\n\r\n", 413, "longer than"},
        {POST_WITH "Content-Length: 5\r\n" CHUNKED "\r\n", 400, "both"},
        {POST_WITH CHUNKED "content-length: 0\r\n\r\n", 400, "both"},
        {POST_WITH CHUNKED CHUNKED "\r\n", 400, "more than one"},
        {POST_WITH "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "chunked"},
        {POST_WITH "Transfer-Encoding: chunked, identity\r\n\r\n", 501, "chunked"},
        {POST_WITH "Transfer-Encoding: xchunked\r\n\r\n", 501, "chunked"},
        {POST_WITH "Transfer-Encoding: \"chunked\"\r\n\r\n", 501, "chunked"},
        {POST_WITH "Transfer-Encoding:\r\n\r\n", 501, "chunked"},
        {"POST / HTTP/1.0\r\n" CHUNKED "\r\n", 400, "HTTP/1.0"},
        /* chunks */
        {CHUNKS "0x5\r\n", 400, "hexadecimal"},
        {CHUNKS "+5\r\n", 400, "hexadecimal"},
        {CHUNKS "-5\r\n", 400, "hexadecimal"},
        {CHUNKS " 5\r\n", 400, "hexadecimal"},
        {CHUNKS "5 \r\n", 400, "hexadecimal"},
        {CHUNKS "\r\n", 400, "hexadecimal"},
        {CHUNKS ";a\r\n", 400, "hexadecimal"},
        {CHUNKS "5g\r\n", 400, "hexadecimal"},
        {CHUNKS "10000000000000005\r\n", 400, "hexadecimal"},
        {CHUNKS "ffffffffffffffff\r\n", 413, "longer than 100 bytes"},
        {CHUNKS "65\r\n", 413, "longer than 100 bytes"},
        {CHUNKS "5\nhello", 400, "CR LF"},
        {CHUNKS "5\rhello", 400, "carriage return"},
        {CHUNKS "5\r\nhello5\r\n", 400, "longer than its size"},
        {CHUNKS "5\r\nhello\n0\r\n\r\n", 400, "CR LF"},
        {CHUNKS "0\r\n\n", 400, "CR LF"},
        {CHUNKS "0\r\nno trailer\r\n\r\n", 400, "colon"},
        {CHUNKS "0\r\nA : b\r\n\r\n", 400, "before a header's colon"},
        {CHUNKS "5;\x01\r\n", 400, "control character"},
        /* fields */
        {"GET / HTTP/1.1\r\n" HOST "A : b\r\n\r\n", 400, "before a header's colon"},
        {"GET / HTTP/1.1\r\n" HOST "A\t: b\r\n\r\n", 400, "before a header's colon"},
        {"GET / HTTP/1.1\r\n" HOST " A: b\r\n\r\n", 400, "second line"},
        {"GET / HTTP/1.1\r\n" HOST "A: b\r\n\tc\r\n\r\n", 400, "second line"},
        {"GET / HTTP/1.1\r\n" HOST "nocolon\r\n\r\n", 400, "no name or no colon"},
        {"GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n", 400, "no name or no colon"},
        {"GET / HTTP/1.1\r\n" HOST "A(b): c\r\n\r\n", 400, "no name or no colon"},
        {"GET / HTTP/1.1\r\n" HOST "\xc3\xa9: c\r\n\r\n", 400, "no name or no colon"},
        {"GET / HTTP/1.1\r\n" HOST "A: b\x01"
         "c\r\n\r\n",
         400, "control character"},
        {"GET / HTTP/1.1\r\n" HOST "A: b\x7f\r\n\r\n", 400, "control character"},
        {"GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n", 400, "carriage return"},
        {"GET / HTTP/1.1\r\n" HOST "A: b\r\r\n\r\n", 400, "carriage return"},
        {"GET / HTTP/1.1\r\n" HOST "A: b\n\r\n", 400, "CR LF"},
        {"GET / HTTP/1.1\n" HOST "\r\n", 400, "CR LF"},
        {"GET / HTTP/1.1\r\n" HOST "\n", 400, "CR LF"},
        {"GET / HTTP/1.1\r\n" HOST "Expect: wonders\r\n\r\n", 417, "100-continue"},
        {"GET / HTTP/1.1\r\n" HOST "Origin: a\r\norigin: b\r\n\r\n", 400, "more than one"},
        /* Host */
        {"GET / HTTP/1.1\r\n\r\n", 400, "no Host"},
        {"GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400, "more than one Host"},
        {"GET / HTTP/1.0\r\n" HOST HOST "\r\n", 400, "more than one Host"},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400, "Host is neither"},
        {"GET / HTTP/1.1\r\nHost: []\r\n\r\n", 400, "Host is neither"},
        /* the request line */
        {"hello\r\n", 400, "no request"},
        {"GET\r\n", 400, "no request"},
        {" GET / HTTP/1.1\r\n", 400, "no request"},
        {"GET  / HTTP/1.1\r\n", 400, "no request"},
        {"GET / HTTP/1.1 \r\n", 400, "no request"},
        {"GET / a HTTP/1.1\r\n", 400, "no request"},
        {"GET /\tHTTP/1.1\r\n", 400, "no request"},
        {"GET / HTTP/1\r\n", 400, "no request"},
        {"GET / HTTP/1.10\r\n", 400, "no request"},
        {"GET / HTTP/4294967297.1\r\n", 400, "no request"},
        {"GET / HTTP/01.1\r\n", 400, "no request"},
        {"GET / http/1.1\r\n", 400, "no request"},
        {"GE(T / HTTP/1.1\r\n", 400, "no request"},
        {"PRI * HTTP/2.0\r\n", 505, "HTTP/1.1"},
        {"GET / HTTP/0.9\r\n", 505, "HTTP/1.1"},
        {"BREW / HTTP/1.1\r\n", 501, "method"},
        {"get / HTTP/1.1\r\n", 501, "method"},
        {"CONNECT a:443 HTTP/1.1\r\n", 501, "method"},
        {"GET a HTTP/1.1\r\n", 400, "neither a path"},
        {"GET * HTTP/1.1\r\n", 400, "neither a path"},
        {"GET ftp://a/ HTTP/1.1\r\n", 400, "neither a path"},
        {"GET http:/// HTTP/1.1\r\n", 400, "no valid host"},
        {"GET http://u@a/ HTTP/1.1\r\n", 400, "no valid host"},
        {"GET //a/health HTTP/1.1\r\n", 404, "//"},
        {"GET http://a//health HTTP/1.1\r\n", 404, "//"},
        {"GET /a#b HTTP/1.1\r\n", 400, "character"},
        {"GET /\xc3\xa9 HTTP/1.1\r\n", 400, "character"},
        {"\n", 400, "CR LF"},
        {"\x16\x03\x01", 400, "control character"}, /* TLS */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome got = read_all_ways(cases[i].bytes, strlen(cases[i].bytes));
        CHECKF(got.part == HTTP_REFUSED && got.status == cases[i].status &&
                   strstr(got.words, cases[i].words),
               "%s: part %d, %d %s", cases[i].bytes, got.part, got.status, got.words);
    }
}

TEST(a_nul_is_refused_anywhere_in_lines)
{
    static const char text[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "1;a\r\nx\r\n0\r\nT: u\r\n\r\n";
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        char bytes[sizeof text];
        memcpy(bytes, text, sizeof text);
        bytes[i] = 0;
        outcome got = read_all_ways(bytes, sizeof text - 1);
        bool data = strstr(text, "\r\nx") + 2 == text + i;
        CHECKF(data ? got.part == HTTP_WHOLE : got.part == HTTP_REFUSED && got.status == 400,
               "byte %zu: %d %d", i, got.part, got.status);
    }
}

/* The exact limit passes and a byte more does not, with an answer of its own for each. */
TEST(heads_trailers_and_extensions_are_bounded)
{
    static const char start[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX: ";
    char bytes[8 * HEAD_BYTES];
    for (int over = 0; over < 2; over++) {
        size_t pad = HEAD_BYTES - (sizeof start - 1) - 4 + (size_t)over, len;
        len = (size_t)snprintf(bytes, sizeof bytes, "%s%0*d\r\n\r\n0\r\n\r\n", start, (int)pad, 0);
        outcome got = read_pieces(bytes, len, len, 0), slow = read_pieces(bytes, len, 0, 1);
        check_same(bytes, &got, &slow);
        CHECKF(over ? got.status == 431 : got.part == HTTP_WHOLE, "%d %s", got.status, got.words);

        pad = HEAD_BYTES - 3 - 4 + (size_t)over; /* "T: " ... CR LF CR LF */
        len = (size_t)snprintf(bytes, sizeof bytes, "%s1\r\n\r\n0\r\nT: %0*d\r\n\r\n", start,
                               (int)pad, 0);
        got = read_pieces(bytes, len, len, 0);
        CHECKF(over ? got.status == 431 : got.part == HTTP_WHOLE, "%d %s", got.status, got.words);

        len = (size_t)snprintf(bytes, sizeof bytes, "%s1\r\n\r\n", start);
        for (int i = 0; i < 10 + over; i++)
            len += (size_t)snprintf(bytes + len, sizeof bytes - len, "1;%099d\r\nx\r\n", 0);
        len += (size_t)snprintf(bytes + len, sizeof bytes - len, "0\r\n\r\n");
        got = read_pieces(bytes, len, len, 0);
        CHECKF(over ? got.status == 400 : got.part == HTTP_WHOLE, "%d %s", got.status, got.words);
    }
    size_t len = (size_t)snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < HTTP_MOST_FIELDS - 1; i++)
        len += (size_t)snprintf(bytes + len, sizeof bytes - len, "a:\r\n");
    snprintf(bytes + len, sizeof bytes - len, "\r\n");
    CHECK(read_pieces(bytes, len + 2, len + 2, 0).part == HTTP_WHOLE);
    snprintf(bytes + len, sizeof bytes - len, "a:\r\n");
    CHECK(read_pieces(bytes, len + 4, len + 4, 0).status == 431);
    memset(bytes, '\r', sizeof bytes);
    for (size_t i = 1; i < sizeof bytes; i += 2)
        bytes[i] = '\n';
    CHECK(read_pieces(bytes, sizeof bytes, sizeof bytes, 0).status == 431);
}

TEST(who_expects_and_who_closes_is_told)
{
    static const char waits[] =
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    static const char closes[] = "GET / HTTP/1.0\r\n\r\n";
    outcome got = read_all_ways(waits, sizeof waits - 1);
    CHECK(got.part == HTTP_DATA && got.expects && !got.last);
    got = read_all_ways(closes, sizeof closes - 1);
    CHECK(got.part == HTTP_WHOLE && got.last);
}

TEST_MAIN()
