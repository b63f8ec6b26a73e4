/* http_reader.h - where a request on a connection begins and ends, strictly by RFC 9112.
 *
 *     bytes --> head --> body (as long as announced, or in chunks) --> whole
 *                  \________\________________________________________> refused
 *
 * Two programs that read the same bytes and see different requests in them let one client steal
 * another's answer: the proxy in front sends the requests of many over one connection. So there
 * is one reading here, and everything else is refused: bare CR or LF, control characters, folded
 * lines, white space before a colon, a Content-Length that is no plain number or comes twice or
 * beside chunks, a body where the method takes none, chunk sizes that are more than hex digits,
 * no Host or two. After a refusal nothing more is read from the connection.
 *
 * The reader knows bytes, no sockets. It holds the head of one request (at most
 * limits.head_bytes, on the heap from a request's first byte to http_reader_next) and never the
 * body: the caller moves that, and is told how much. */
#ifndef SERVER_HTTP_READER_H
#define SERVER_HTTP_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MOST_FIELDS = 100 };

typedef struct http_limits {
    uint32_t head_bytes; /* request line, fields, and what is between them; past it 431. Trailers
                            and chunk extensions of one body may each take as much */
    uint64_t body_bytes; /* past it 413 */
} http_limits;

typedef enum http_part {
    HTTP_LINES,  /* the head, a chunk's size, trailers: http_reader_take */
    HTTP_DATA,   /* the next `left` bytes are the body's: http_reader_skip */
    HTTP_WHOLE,  /* what follows belongs to the next request */
    HTTP_REFUSED /* see status and words */
} http_part;

typedef struct http_head http_head;

typedef struct http_reader {
    const http_limits *limits;
    http_part part;
    uint64_t left; /* HTTP_DATA: bytes of the body until there are lines again, or the end */
    uint64_t body_bytes;
    bool begun;        /* a byte of the request has come, not only blank lines before it */
    bool head_only;    /* the method is HEAD: an answer has no body */
    bool head_done;    /* the blank line after the head has come; from then on: */
    bool expects;      /* the client waits for 100 Continue before it sends the body */
    bool last;         /* no request follows: the client, or its version, says close */
    int status;        /* HTTP_REFUSED: the answer's */
    const char *words; /* and why, for a person; static, or in `text` */
    char text[96];

    http_head *head;
    uint8_t stage;
    bool cr;
    uint32_t line;       /* where the line that comes in begins, in the head's bytes */
    uint32_t head_bytes; /* of the head, line ends included; then those of trailers */
    uint32_t extension_bytes;
} http_reader;

void http_reader_init(http_reader *r, const http_limits *limits); /* limits outlive r */

/* Ready for the next request: after HTTP_WHOLE, or to free what is held. */
void http_reader_next(http_reader *r);

/* In HTTP_LINES: reads up to the end of `bytes`, of the lines, or up to what is refused. Returns
 * how many bytes were read; those after them were not looked at. */
size_t http_reader_take(http_reader *r, const char *bytes, size_t len);

/* In HTTP_DATA: the caller took n <= left bytes of the body. */
void http_reader_skip(http_reader *r, uint64_t n);

/* In HTTP_WHOLE: the head anew, for a reader that is less strict. There is one space where one
 * belongs, the path alone as target, Host as the target has it, and the body's length instead of
 * how it came (Transfer-Encoding, Expect, Trailer and the like are gone). malloc'ed; NULL without
 * memory. */
char *http_reader_rewrite(const http_reader *r, size_t *len);

#endif
