/* jinja_json.c - the filter from_json: Python's json.loads.
 *
 * Of its own, and not jansson: values go straight into the arena, so that a limit may leave by
 * longjmp; every byte keeps whose it is; and what Python takes (NaN, any value at the top) is
 * taken. Integers have 64 bits, as everywhere here. */
#include "text/jinja_filters.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <utf8proc.h>

typedef struct reader {
    jctx *c;
    const jstr *s;
    size_t at;
} reader;

static _Noreturn void wrong(const reader *r, const char *what)
{
    jinja_fail(r->c, RAD_E_INVAL, "from_json: %s at byte %zu", what, r->at);
}

static char peek(const reader *r)
{
    return r->at < r->s->len ? r->s->p[r->at] : 0;
}

static void skip_space(reader *r)
{
    while (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\n' || peek(r) == '\r')
        r->at++;
}

/* Takes `text` if it comes next. */
static bool take(reader *r, const char *text)
{
    size_t len = strlen(text);
    bool there = r->s->len - r->at >= len && memcmp(r->s->p + r->at, text, len) == 0;
    if (there) r->at += len;
    return there;
}

static uint32_t read_hex4(reader *r)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char ch = peek(r);
        int digit = ch >= '0' && ch <= '9'   ? ch - '0'
                    : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
                    : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                             : -1;
        if (digit < 0) wrong(r, "four hexadecimal digits were expected");
        code = code * 16 + (uint32_t)digit;
    }
    return code;
}

/* Behind a backslash. What it stands for is whose the backslash is. */
static void read_escape(reader *r, jbuf *b)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = r->at++;
    jtaint taint = r->s->mark ? (jtaint)r->s->mark[start] : (jtaint)r->s->taint;
    char ch = peek(r);
    const char *plain = ch ? strchr(from, ch) : NULL;
    if (plain) {
        r->at++;
        jbuf_add(b, &to[plain - from], 1, taint, NULL);
        return;
    }
    if (!take(r, "u")) wrong(r, "an escape that JSON has not");
    uint32_t code = read_hex4(r);
    if (code >= 0xd800 && code < 0xdc00 && take(r, "\\u")) {
        uint32_t low = read_hex4(r);
        if (low < 0xdc00 || low >= 0xe000) wrong(r, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code >= 0xd800 && code < 0xe000) wrong(r, "half a surrogate pair");
    char bytes[4];
    size_t n = (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)bytes);
    jbuf_add(b, bytes, n, taint, NULL);
}

static jval read_string(reader *r)
{
    jbuf b = {.c = r->c};
    size_t start = ++r->at;
    for (;;) {
        if (r->at >= r->s->len) wrong(r, "a string does not end");
        unsigned char ch = (unsigned char)r->s->p[r->at];
        if (ch < 0x20) wrong(r, "a control character in a string");
        if (ch != '"' && ch != '\\') {
            r->at++;
            continue;
        }
        jbuf_sub(&b, r->s, start, r->at - start);
        if (ch == '"') break;
        read_escape(r, &b);
        start = r->at;
    }
    r->at++;
    return jbuf_value(&b);
}

static size_t skip_digits(reader *r)
{
    size_t start = r->at;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->at++;
    return r->at - start;
}

static jval read_number(reader *r)
{
    size_t start = r->at;
    bool real = false;
    jwork(r->c, JINJA_PRINT);
    take(r, "-");
    if (!take(r, "0") && !skip_digits(r)) wrong(r, "a value was expected");
    size_t whole = r->at;
    if (take(r, ".")) {
        if (skip_digits(r))
            real = true, whole = r->at;
        else
            r->at = whole; /* Python stops before it */
    }
    if (take(r, "e") || take(r, "E")) {
        if (!take(r, "-")) take(r, "+");
        if (skip_digits(r)) real = true, whole = r->at;
    }
    r->at = whole;
    char *text = jalloc(r->c, whole - start + 1, 1);
    memcpy(text, r->s->p + start, whole - start);
    if (real) return jfloat(strtod(text, NULL));
    int64_t value = 0;
    for (const char *p = text + (*text == '-'); *p; p++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, *p - '0', &value))
            jinja_fail(r->c, RAD_E_LIMIT, "an integer does not fit 64 bits");
    if (*text != '-' && value == INT64_MIN)
        jinja_fail(r->c, RAD_E_LIMIT, "an integer does not fit 64 bits");
    return jint(*text == '-' ? value : -value);
}

static jval read_value(reader *r);

static jval read_object(reader *r)
{
    jval dict = jdict_new(r->c, J_DICT);
    r->at++;
    skip_space(r);
    if (take(r, "}")) return dict;
    for (;;) {
        skip_space(r);
        if (peek(r) != '"') wrong(r, "a name in quotes was expected");
        jval key = read_string(r);
        skip_space(r);
        if (!take(r, ":")) wrong(r, "':' was expected");
        jdict_set(r->c, dict.u.d, key, read_value(r));
        if (take(r, "}")) return dict;
        if (!take(r, ",")) wrong(r, "',' or '}' was expected");
    }
}

static jval read_array(reader *r)
{
    jval list = jlist_new(r->c, LIST, 0);
    r->at++;
    skip_space(r);
    if (take(r, "]")) return list;
    for (;;) {
        jlist_push(r->c, list.u.l, read_value(r));
        if (take(r, "]")) return list;
        if (!take(r, ",")) wrong(r, "',' or ']' was expected");
    }
}

/* With the space around it. */
static jval read_value(reader *r)
{
    jval v;
    jenter(r->c);
    jsteps(r->c, 1);
    skip_space(r);
    char ch = peek(r);
    if (ch == '{')
        v = read_object(r);
    else if (ch == '[')
        v = read_array(r);
    else if (ch == '"')
        v = read_string(r);
    else if (take(r, "null"))
        v = jnone();
    else if (take(r, "true"))
        v = jbool(true);
    else if (take(r, "false"))
        v = jbool(false);
    else if (take(r, "NaN"))
        v = jfloat((double)NAN);
    else if (take(r, "Infinity"))
        v = jfloat((double)INFINITY);
    else if (take(r, "-Infinity"))
        v = jfloat(-(double)INFINITY);
    else
        v = read_number(r);
    skip_space(r);
    jleave(r->c);
    return v;
}

jval jfilter_from_json(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    reader r = {.c = c, .s = jwant_str(c, self, "from_json")};
    jwork(c, (uint64_t)r.s->len * JINJA_LOOK);
    jval v = read_value(&r);
    if (r.at < r.s->len) wrong(&r, "something behind the value");
    return v;
}
