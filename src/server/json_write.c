/* json_write.c - the spelling of values, and where commas stand. */
#include "server/json_write.h"

#include "base/base.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>

static void flush(json_writer *w)
{
    if (w->len && (!w->to || evbuffer_add(w->to, w->buf, w->len) != 0)) w->failed = true;
    w->len = 0;
}

void json_writer_begin(json_writer *w, struct evbuffer *to)
{
    w->to = to;
    w->values = 0;
    w->failed = w->comma = false;
    w->len = 0;
}

bool json_writer_end(json_writer *w)
{
    flush(w);
    return !w->failed;
}

static void put(json_writer *w, const char *bytes, size_t len)
{
    if (len > sizeof w->buf - w->len) flush(w);
    if (len > sizeof w->buf) {
        if (!w->to || evbuffer_add(w->to, bytes, len) != 0) w->failed = true;
        return;
    }
    memcpy(w->buf + w->len, bytes, len);
    w->len += len;
}

void jw_raw(json_writer *w, const char *bytes, size_t len)
{
    put(w, bytes, len);
    w->comma = false;
}

static void begin_value(json_writer *w)
{
    if (w->comma) put(w, ",", 1);
    w->comma = true;
    w->values++;
}

void jw_spliced(json_writer *w, const char *json, size_t len)
{
    begin_value(w);
    put(w, json, len);
}

void jw_open(json_writer *w, char bracket)
{
    begin_value(w);
    put(w, &bracket, 1);
    w->comma = false;
}

void jw_close(json_writer *w, char bracket)
{
    put(w, &bracket, 1);
    w->comma = true;
}

void jw_name(json_writer *w, const char *name)
{
    if (w->comma) put(w, ",", 1);
    put(w, "\"", 1);
    put(w, name, strlen(name));
    put(w, "\":", 2);
    w->comma = false;
}

void jw_int(json_writer *w, int64_t value)
{
    char text[24];
    begin_value(w);
    put(w, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
}

/* As jansson does: 17 digits, always a mark that it is no integer, exponents without "+" and
 * leading zeros. The program never sets LC_NUMERIC, so the point is one. */
void jw_real(json_writer *w, double value)
{
    char text[40];
    begin_value(w);
    size_t len = (size_t)snprintf(text, sizeof text, "%.17g", value);
    char *e = strchr(text, 'e');
    if (!e && !strchr(text, '.')) {
        memcpy(text + len, ".0", 3);
        len += 2;
    } else if (e) {
        char *from = e + 1, *to = e + 1;
        if (*from == '-') to++, from++;
        if (*from == '+') from++;
        while (*from == '0' && from[1])
            from++;
        memmove(to, from, strlen(from) + 1);
        len = strlen(text);
    }
    put(w, text, len);
}

void jw_null(json_writer *w)
{
    begin_value(w);
    put(w, "null", 4);
}

/* ---- text ---- */

bool json_is_utf8(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len;) {
        utf8_char c = utf8_next((const unsigned char *)bytes + i, len - i);
        if (!c.valid) return false;
        i += c.len;
    }
    return true;
}

static void escape(json_writer *w, unsigned char c)
{
    static const char letters[] = "btn\0fr"; /* from \b on; there is none for \v */
    char text[8] = "\\u00";
    if (c == '"' || c == '\\') {
        text[1] = (char)c;
        put(w, text, 2);
    } else if (c >= '\b' && c <= '\r' && c != '\v') {
        text[1] = letters[c - '\b'];
        put(w, text, 2);
    } else {
        snprintf(text, sizeof text, "\\u%04X", c);
        put(w, text, 6);
    }
}

void jw_text(json_writer *w, const char *bytes, size_t len)
{
    begin_value(w);
    if (!json_is_utf8(bytes, len)) {
        put(w, "\"\xef\xbf\xbd\"", 5);
        return;
    }
    put(w, "\"", 1);
    size_t plain = 0; /* bytes[plain..i) go as they are */
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= ' ' && c != '"' && c != '\\') continue;
        put(w, bytes + plain, i - plain);
        escape(w, c);
        plain = i + 1;
    }
    if (len) put(w, bytes + plain, len - plain);
    put(w, "\"", 1);
}

void jw_text_name(json_writer *w, const char *bytes, size_t len)
{
    jw_text(w, bytes, len);
    w->values--;
    put(w, ":", 1);
    w->comma = false;
}

void jw_word(json_writer *w, const char *text)
{
    if (text)
        jw_text(w, text, strlen(text));
    else
        jw_null(w);
}

static int put_dumped(const char *bytes, size_t len, void *w)
{
    put(w, bytes, len);
    return 0;
}

void jw_json(json_writer *w, json_t *json)
{
    begin_value(w);
    if (!json || json_dump_callback(json, put_dumped, w, JSON_COMPACT | JSON_ENCODE_ANY) != 0)
        w->failed = true;
    json_decref(json);
}
