/* json_write.h - answers as text, value by value, without a tree.
 *
 * An answer of 128 choices with 20 alternatives a token has millions of values; as a tree each
 * takes hundreds of bytes and the whole must stand before its first byte is written. Here it goes
 * into an evbuffer as it is made, so that one of any length can be made in pieces.
 *
 * The text is what jansson writes with JSON_COMPACT. Memory that is short is remembered
 * (json_writer_end), not reported by each call. One thread at a time. */
#ifndef SERVER_JSON_WRITE_H
#define SERVER_JSON_WRITE_H

#include <event2/buffer.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct json_writer {
    struct evbuffer *to;
    uint64_t values; /* written so far; a name and its value are one */
    bool failed;     /* out of memory: the text is of no use */
    bool comma;      /* a value stands before the next one */
    size_t len;
    char buf[4096]; /* on its way to `to` */
} json_writer;

void json_writer_begin(json_writer *w, struct evbuffer *to);
bool json_writer_end(json_writer *w); /* all is in `to`; false: it is not */

void jw_open(json_writer *w, char bracket); /* '{' or '[' */
void jw_close(json_writer *w, char bracket);
void jw_name(json_writer *w, const char *name); /* of the value that follows; plain ASCII */

void jw_text_name(json_writer *w, const char *bytes, size_t len); /* any text */

void jw_int(json_writer *w, int64_t value);
void jw_real(json_writer *w, double value); /* finite */
void jw_null(json_writer *w);

/* Text of any bytes: what is no UTF-8 becomes one U+FFFD for all of it, as json_text. NULL is null
 * in jw_word. */
void jw_text(json_writer *w, const char *bytes, size_t len);
void jw_word(json_writer *w, const char *text);

/* A small tree, taken; NULL (no memory) fails. */
void jw_json(json_writer *w, json_t *json);

/* A value that is JSON already, and known to be. */
void jw_spliced(json_writer *w, const char *json, size_t len);

/* As they are, between values: what frames the text. */
void jw_raw(json_writer *w, const char *bytes, size_t len);

bool json_is_utf8(const char *bytes, size_t len);

#endif
