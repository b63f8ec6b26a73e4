/* http_reader.c - all that is not a body's data is lines that end with CR LF.
 *
 *     START    request line                 blank ones before it are skipped
 *     FIELDS   name: value ...              the blank one ends the head
 *     SIZE     hex digits [;extensions]     then that many bytes of data, or for 0:
 *     TRAILERS name: value ...              dropped; the blank one ends the request
 *     END      blank, after a chunk's data
 *
 * A line is gathered behind the head's bytes and judged when it is whole; lines after the head
 * are forgotten at once. So any cut of the input gives the same result.
 *
 * Invariant: bytes [0, line) of the head are the request line and the fields; `fields` point
 * into them by offset, since the block may move while it grows. */
#include "server/http_reader.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { START, FIELDS, SIZE, TRAILERS, END };
enum { MOST_CHUNK_LINE = 256 };

typedef struct piece {
    uint32_t at, len;
} piece;

typedef struct field {
    piece name, value;
    bool dropped; /* says how the body came, or is about this connection alone */
} field;

struct http_head {
    uint32_t len, cap;
    piece path, authority; /* authority: of an absolute target; len 0 = none */
    uint32_t method_index;
    uint32_t minor;
    uint32_t num_fields;
    field fields[HTTP_MOST_FIELDS];
    char bytes[];
};

static const struct method {
    const char *name;
    bool has_body;
} methods[] = {{"GET", false},    {"HEAD", false},    {"POST", true},  {"PUT", true},
               {"DELETE", false}, {"OPTIONS", false}, {"PATCH", true}, {"TRACE", false}};

enum { NUM_METHODS = sizeof methods / sizeof methods[0], OPTIONS = 5 };

/* Fields that must not come twice. */
static const char *const single[] = {"host",          "content-length", "transfer-encoding",
                                     "content-type",  "expect",         "origin",
                                     "authorization", "sec-fetch-site"};

/* Fields that are not handed on. */
static const char *const dropped[] = {"content-length",
                                      "transfer-encoding",
                                      "connection",
                                      "keep-alive",
                                      "proxy-connection",
                                      "expect",
                                      "te",
                                      "trailer",
                                      "upgrade",
                                      "host"};

static void refuse(http_reader *r, int status, const char *words)
{
    r->part = HTTP_REFUSED;
    r->status = status;
    r->words = words;
}

static void refuse_length(http_reader *r, int status, const char *what, unsigned long long most)
{
    snprintf(r->text, sizeof r->text, "%s longer than %llu bytes", what, most);
    refuse(r, status, r->text);
}

/* ---- characters ---- */

static bool is_token_char(unsigned char c)
{
    return isalnum(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_token_char((unsigned char)text[i])) return false;
    return len > 0;
}

static bool is_control(unsigned char c)
{
    return (c < ' ' && c != '\t') || c == 0x7f;
}

static bool is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

/* The one of the list that it is, or NULL. */
static const char *in_list(const char *const *list, size_t count, const char *text, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (is_word(text, len, list[i])) return list[i];
    return NULL;
}

/* A host and perhaps a port: what may stand in Host, and between // and / of a target. */
static bool is_authority(const char *text, size_t len)
{
    const char *end = text + len, *at = text;
    if (at < end && *at == '[') {
        const char *first = ++at;
        while (at < end && (isxdigit((unsigned char)*at) || *at == ':' || *at == '.'))
            at++;
        if (at == end || *at != ']' || at == first) return false;
        at++;
    } else {
        while (at < end && (isalnum((unsigned char)*at) || strchr("-._~%", *at)))
            at++;
    }
    if (at == end) return true;
    if (*at++ != ':' || at == text + 1 || end - at > 5) return false;
    for (; at < end; at++)
        if (!isdigit((unsigned char)*at)) return false;
    return true;
}

/* ---- the head's bytes ---- */

static bool reserve(http_reader *r, size_t more)
{
    http_head *h = r->head;
    size_t want = (h ? h->len : 0) + more;
    if (h && want <= h->cap) return true;
    size_t cap = h ? h->cap * (size_t)2 : 1024;
    while (cap < want)
        cap *= 2;
    http_head *grown = realloc(h, sizeof *h + cap);
    if (!grown) return false;
    if (!h) memset(grown, 0, sizeof *grown);
    grown->cap = (uint32_t)cap;
    r->head = grown;
    return true;
}

static const char *text_of(const http_head *h, piece p)
{
    return h->bytes + p.at;
}

static bool is_named(const http_head *h, const field *f, const char *name)
{
    return is_word(text_of(h, f->name), f->name.len, name);
}

static const field *find_field(const http_head *h, const char *name)
{
    for (uint32_t i = 0; i < h->num_fields; i++)
        if (is_named(h, &h->fields[i], name)) return &h->fields[i];
    return NULL;
}

/* Without the white space around it. */
static piece trim(const http_head *h, piece p)
{
    const char *text = text_of(h, p);
    uint32_t from = 0, to = p.len;
    while (from < to && (text[from] == ' ' || text[from] == '\t'))
        from++;
    while (to > from && (text[to - 1] == ' ' || text[to - 1] == '\t'))
        to--;
    return (piece){p.at + from, to - from};
}

/* ---- the request line ---- */

static bool starts_with(const char *text, size_t len, const char *prefix)
{
    size_t n = strlen(prefix);
    return len >= n && strncasecmp(text, prefix, n) == 0;
}

/* Leaves in h->path what is asked for here, and in h->authority what an absolute target says of
 * where; false: refused. */
static bool read_target(http_reader *r, piece target)
{
    http_head *h = r->head;
    const char *text = text_of(h, target);
    for (uint32_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c > '~' || c == '#') {
            refuse(r, 400, "the request's target has a character that no target may have");
            return false;
        }
    }
    h->path = target;
    if (target.len == 1 && *text == '*' && h->method_index == OPTIONS) return true;
    uint32_t skip = starts_with(text, target.len, "http://")    ? 7
                    : starts_with(text, target.len, "https://") ? 8
                                                                : 0;
    if (skip) {
        uint32_t end = skip;
        while (end < target.len && text[end] != '/' && text[end] != '?')
            end++;
        h->authority = (piece){target.at + skip, end - skip};
        h->path = (piece){target.at + end, target.len - end};
        if (end == skip || !is_authority(text + skip, end - skip)) {
            refuse(r, 400, "the request's target has no valid host");
            return false;
        }
    } else if (*text != '/') {
        refuse(r, 400, "the request's target is neither a path nor an http URL");
        return false;
    }
    /* Elsewhere the first segment would be taken for a host. */
    if (h->path.len > 1 && text_of(h, h->path)[0] == '/' && text_of(h, h->path)[1] == '/') {
        refuse(r, 404,
               "there is nothing at a path that begins with //; a base URL that ends in /?");
        return false;
    }
    return true;
}

static void end_request_line(http_reader *r)
{
    http_head *h = r->head;
    const char *line = h->bytes + r->line;
    uint32_t len = h->len - r->line;
    const char *first = memchr(line, ' ', len);
    const char *second = first ? memchr(first + 1, ' ', len - (size_t)(first + 1 - line)) : NULL;
    const char *version = second ? second + 1 : NULL;
    size_t version_len = version ? len - (size_t)(version - line) : 0;
    if (!version || first == line || second == first + 1 || version_len != 8 ||
        memcmp(version, "HTTP/", 5) != 0 || !isdigit((unsigned char)version[5]) ||
        version[6] != '.' || !isdigit((unsigned char)version[7]) ||
        !is_token(line, (size_t)(first - line))) {
        refuse(r, 400, "this is no request in HTTP/1.1");
        return;
    }
    if (version[5] != '1') {
        refuse(r, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
        return;
    }
    h->minor = version[7] == '0' ? 0 : 1;
    size_t method_len = (size_t)(first - line);
    for (h->method_index = 0; h->method_index < NUM_METHODS; h->method_index++) {
        const char *name = methods[h->method_index].name;
        if (strlen(name) == method_len && memcmp(name, line, method_len) == 0) break;
    }
    if (h->method_index == NUM_METHODS) {
        refuse(r, 501, "this method is not known here");
        return;
    }
    r->head_only = strcmp(methods[h->method_index].name, "HEAD") == 0;
    piece target = {r->line + (uint32_t)(first + 1 - line), (uint32_t)(second - first - 1)};
    if (read_target(r, target)) r->stage = FIELDS;
}

/* ---- fields ---- */

/* Splits the line; false: refused. */
static bool split_field(http_reader *r, field *out)
{
    const http_head *h = r->head;
    const char *line = h->bytes + r->line;
    uint32_t len = h->len - r->line, name = 0;
    if (*line == ' ' || *line == '\t') {
        refuse(r, 400, "a header may not be continued on a second line");
        return false;
    }
    while (name < len && is_token_char((unsigned char)line[name]))
        name++;
    if (!name || name == len || line[name] != ':') {
        refuse(r, 400,
               name && name < len && (line[name] == ' ' || line[name] == '\t')
                   ? "there is white space before a header's colon"
                   : "a header has no name or no colon");
        return false;
    }
    *out = (field){.name = {r->line, name},
                   .value = trim(h, (piece){r->line + name + 1, len - name - 1})};
    return true;
}

static void end_field(http_reader *r)
{
    http_head *h = r->head;
    field f;
    if (!split_field(r, &f)) return;
    const char *name = text_of(h, f.name);
    const char *once = in_list(single, sizeof single / sizeof *single, name, f.name.len);
    if (once && find_field(h, once)) {
        snprintf(r->text, sizeof r->text, "there is more than one %.*s", (int)f.name.len, name);
        refuse(r, 400, r->text);
        return;
    }
    if (h->num_fields == HTTP_MOST_FIELDS) {
        snprintf(r->text, sizeof r->text, "there are more than %d headers", HTTP_MOST_FIELDS);
        refuse(r, 431, r->text);
        return;
    }
    f.dropped = in_list(dropped, sizeof dropped / sizeof *dropped, name, f.name.len);
    h->fields[h->num_fields++] = f;
}

/* ---- the end of the head ---- */

/* Whether a field that may come often and is a list has this word. */
static bool list_has(const http_head *h, const char *name, const char *word)
{
    for (uint32_t i = 0; i < h->num_fields; i++) {
        const field *f = &h->fields[i];
        if (!is_named(h, f, name)) continue;
        const uint32_t end = f->value.at + f->value.len;
        for (uint32_t at = f->value.at, stop; at < end; at = stop + 1) {
            const char *comma = memchr(h->bytes + at, ',', end - at);
            stop = comma ? (uint32_t)(comma - h->bytes) : end;
            piece one = trim(h, (piece){at, stop - at});
            if (is_word(text_of(h, one), one.len, word)) return true;
        }
    }
    return false;
}

/* Host is there once and is one; false: refused. */
static bool check_host(http_reader *r)
{
    http_head *h = r->head;
    const field *host = find_field(h, "host");
    if (!host) {
        if (h->minor == 0) return true;
        refuse(r, 400, "there is no Host");
        return false;
    }
    if (!is_authority(text_of(h, host->value), host->value.len)) {
        refuse(r, 400, "Host is neither a name nor an address");
        return false;
    }
    if (!h->authority.len) h->authority = host->value; /* else the target's counts */
    return true;
}

/* A plain number; false: refused. One too large for 64 bits is past every limit. */
static bool read_length(http_reader *r, const field *f, uint64_t *out)
{
    const char *text = text_of(r->head, f->value);
    *out = 0;
    for (uint32_t i = 0; i < f->value.len; i++) {
        if (!isdigit((unsigned char)text[i])) break;
        uint64_t digit = (uint64_t)(text[i] - '0');
        *out = *out > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *out * 10 + digit;
        if (i + 1 == f->value.len) return true;
    }
    refuse(r, 400, "Content-Length is no number");
    return false;
}

/* How the body comes; false: refused. */
static bool read_framing(http_reader *r, bool *chunked, uint64_t *length)
{
    http_head *h = r->head;
    const field *coding = find_field(h, "transfer-encoding");
    const field *announced = find_field(h, "content-length");
    *chunked = coding != NULL;
    *length = 0;
    if (announced && !read_length(r, announced, length)) return false;
    if (coding && (announced || h->minor == 0)) {
        refuse(r, 400,
               announced ? "there are both Content-Length and Transfer-Encoding"
                         : "HTTP/1.0 has no Transfer-Encoding");
        return false;
    }
    if (coding && !is_word(text_of(h, coding->value), coding->value.len, "chunked")) {
        refuse(r, 501, "the only Transfer-Encoding known here is chunked");
        return false;
    }
    if (!methods[h->method_index].has_body && (coding || *length)) {
        snprintf(r->text, sizeof r->text, "%s takes no body", methods[h->method_index].name);
        refuse(r, 400, r->text);
        return false;
    }
    if (*length > r->limits->body_bytes) {
        refuse_length(r, 413, "the body is", r->limits->body_bytes);
        return false;
    }
    return true;
}

static void end_head(http_reader *r)
{
    http_head *h = r->head;
    const field *expect = find_field(h, "expect");
    bool chunked;
    uint64_t length;
    if (!check_host(r) || !read_framing(r, &chunked, &length)) return;
    if (expect && !is_word(text_of(h, expect->value), expect->value.len, "100-continue")) {
        refuse(r, 417, "no expectation but 100-continue can be met");
        return;
    }
    r->head_done = true;
    r->expects = expect && h->minor == 1 && (chunked || length);
    r->last = list_has(h, "connection", "close") ||
              (h->minor == 0 && !list_has(h, "connection", "keep-alive"));
    r->line = h->len;
    r->head_bytes = 0;
    r->left = length;
    r->stage = SIZE;
    r->part = chunked ? HTTP_LINES : length ? HTTP_DATA : HTTP_WHOLE;
}

/* ---- chunks ---- */

static void end_size(http_reader *r)
{
    const http_head *h = r->head;
    const char *line = h->bytes + r->line;
    uint32_t len = h->len - r->line, digits = 0;
    uint64_t size = 0;
    for (; digits < len && isxdigit((unsigned char)line[digits]); digits++) {
        char c = (char)tolower((unsigned char)line[digits]);
        if (digits == 16) break;
        size = size << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (!digits || (digits < len && line[digits] != ';')) {
        refuse(r, 400, "a chunk's size is no plain hexadecimal number");
        return;
    }
    r->extension_bytes += len - digits;
    if (r->extension_bytes > r->limits->head_bytes) {
        refuse_length(r, 400, "the extensions of the chunks are", r->limits->head_bytes);
        return;
    }
    if (size > r->limits->body_bytes - r->body_bytes) {
        refuse_length(r, 413, "the body is", r->limits->body_bytes);
        return;
    }
    r->left = size;
    r->stage = size ? END : TRAILERS;
    if (size) r->part = HTTP_DATA;
}

static void end_line(http_reader *r)
{
    http_head *h = r->head;
    bool blank = h->len == r->line;
    field trailer;
    switch (r->stage) {
    case START:
        if (blank) return;
        end_request_line(r);
        r->line = h->len;
        return;
    case FIELDS:
        if (blank)
            end_head(r);
        else
            end_field(r);
        r->line = h->len;
        return;
    case SIZE: end_size(r); break;
    case END:
        r->stage = SIZE;
        if (!blank) refuse(r, 400, "a chunk is longer than its size");
        break;
    default:
        if (blank)
            r->part = HTTP_WHOLE;
        else
            split_field(r, &trailer);
    }
    h->len = r->line; /* lines after the head are not kept */
}

/* ---- for the caller ---- */

void http_reader_init(http_reader *r, const http_limits *limits)
{
    *r = (http_reader){.limits = limits};
}

void http_reader_next(http_reader *r)
{
    free(r->head);
    http_reader_init(r, r->limits);
}

/* Counts bytes of lines, with their ends, against what they may take; false: refused. */
static bool count_bytes(http_reader *r, size_t n)
{
    uint32_t most = r->limits->head_bytes;
    if (r->stage == SIZE || r->stage == END) {
        if (r->head->len - r->line + n <= MOST_CHUNK_LINE) return true;
        refuse(r, 400, "a chunk's size is no plain hexadecimal number");
        return false;
    }
    if (n <= most - r->head_bytes) {
        r->head_bytes += (uint32_t)n;
        return true;
    }
    refuse_length(r, 431, r->head_done ? "the trailers are" : "the headers are", most);
    return false;
}

size_t http_reader_take(http_reader *r, const char *bytes, size_t len)
{
    size_t i = 0;
    while (i < len && r->part == HTTP_LINES) {
        size_t run = 0;
        while (i + run < len && !is_control((unsigned char)bytes[i + run]))
            run++;
        size_t ends = i + run < len; /* with a control character, CR and LF among them */
        r->begun |= run > 0;
        if (!reserve(r, run + 1)) {
            refuse(r, 503, "no memory for this request");
            break;
        }
        if (r->cr && (run || bytes[i] != '\n')) {
            refuse(r, 400, "there is a carriage return within a line");
            break;
        }
        if (!count_bytes(r, run + ends)) break;
        memcpy(r->head->bytes + r->head->len, bytes + i, run);
        r->head->len += (uint32_t)run;
        i += run + ends;
        if (!ends) break;
        if (bytes[i - 1] == '\r') {
            r->cr = true;
        } else if (bytes[i - 1] == '\n' && r->cr) {
            r->cr = false;
            end_line(r);
        } else {
            refuse(r, 400,
                   bytes[i - 1] == '\n' ? "a line does not end with CR LF"
                                        : "there is a control character in the request");
        }
    }
    return i;
}

void http_reader_skip(http_reader *r, uint64_t n)
{
    r->left -= n;
    r->body_bytes += n;
    if (r->left) return;
    r->part = r->stage == END ? HTTP_LINES : HTTP_WHOLE;
}

char *http_reader_rewrite(const http_reader *r, size_t *len)
{
    const http_head *h = r->head;
    size_t room = h->len + (size_t)h->num_fields * 4 + h->authority.len + 160, at;
    char *out = malloc(room);
    if (!out) return NULL;
    const char *path = text_of(h, h->path);
    at = (size_t)snprintf(out, room, "%s %s%.*s HTTP/1.%u\r\n", methods[h->method_index].name,
                          !h->path.len || *path == '?' ? "/" : "", (int)h->path.len, path,
                          h->minor);
    if (h->authority.len)
        at += (size_t)snprintf(out + at, room - at, "Host: %.*s\r\n", (int)h->authority.len,
                               text_of(h, h->authority));
    for (uint32_t i = 0; i < h->num_fields; i++) {
        const field *f = &h->fields[i];
        if (f->dropped) continue;
        at += (size_t)snprintf(out + at, room - at, "%.*s: %.*s\r\n", (int)f->name.len,
                               text_of(h, f->name), (int)f->value.len, text_of(h, f->value));
    }
    if (r->last)
        at += (size_t)snprintf(out + at, room - at, "Connection: close\r\n");
    else if (h->minor == 0)
        at += (size_t)snprintf(out + at, room - at, "Connection: keep-alive\r\n");
    if (methods[h->method_index].has_body)
        at += (size_t)snprintf(out + at, room - at, "Content-Length: %llu\r\n",
                               (unsigned long long)r->body_bytes);
    memcpy(out + at, "\r\n", 2);
    *len = at + 2;
    return out;
}
