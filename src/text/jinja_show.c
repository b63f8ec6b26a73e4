/* jinja_show.c - values as text: str() and repr() of Python, and JSON as json.dumps has it. */
#include "text/jinja_value.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* The shortest digits that read back as f, in Python's clothes: an exponent below 1e-4 and
 * from 1e16 on, else always a point. */
void jformat_float(double f, char *text, size_t room)
{
    if (isnan(f) || isinf(f)) {
        snprintf(text, room, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    /* What has at most 15 digits comes back from 15 of them with zeros behind. */
    char digits[40];
    int precision = 14;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, f);
    while (++precision < 17 && strtod(digits, NULL) != f);
    const char *e = strchr(digits, 'e');
    while (precision > 1 && e[precision - 16] == '0')
        precision--;
    snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = RAD_MAX(precision - 1 - exponent, 1);
        snprintf(text, room, "%.*f", decimals, f);
    } else {
        *strchr(digits, 'e') = 0;
        snprintf(text, room, "%se%s%02d", digits, exponent < 0 ? "-" : "+", abs(exponent));
    }
}

static void put_number(jbuf *b, jval v)
{
    char text[48];
    jwork(b->c, v.type == J_FLOAT ? 8 * JINJA_PRINT : JINJA_STEP);
    if (v.type == J_FLOAT)
        jformat_float(v.u.f, text, sizeof text);
    else
        snprintf(text, sizeof text, "%lld", (long long)v.u.i);
    jbuf_text(b, text);
}

/* ---- repr ---- */

static bool printable(uint32_t code)
{
    if (code < 0x7f) return code >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void repr_string(jbuf *b, const jstr *s)
{
    char quote = s->len && memchr(s->p, '\'', s->len) && !memchr(s->p, '"', s->len) ? '"' : '\'';
    jwork(b->c, (uint64_t)s->len * JINJA_CHAR);
    jbuf_bytes(b, &quote, 1);
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
        char text[16] = "";
        if (ch.code == '\n' || ch.code == '\r' || ch.code == '\t')
            snprintf(text, sizeof text, "\\%c",
                     ch.code == '\n'   ? 'n'
                     : ch.code == '\r' ? 'r'
                                       : 't');
        else if (ch.code == '\\' || ch.code == (unsigned char)quote)
            snprintf(text, sizeof text, "\\%c", (char)ch.code);
        else if (!printable(ch.code))
            snprintf(text, sizeof text,
                     ch.code < 0x100     ? "\\x%02x"
                     : ch.code < 0x10000 ? "\\u%04x"
                                         : "\\U%08x",
                     ch.code);
        if (*text) jwork(b->c, 4 * JINJA_STEP);
        if (*text)
            jbuf_text(b, text);
        else
            jbuf_sub(b, s, at, ch.len);
        at += ch.len;
    }
    jbuf_bytes(b, &quote, 1);
}

static void repr_list(jbuf *b, const jlist *l)
{
    static const char *const open[] = {"[",           "(", "", "dict_keys([", "dict_values([",
                                       "dict_items(["};
    static const char *const shut[] = {"]", ")", "", "])", "])", "])"};
    if (l->kind == ITERATOR)
        jinja_fail(b->c, RAD_E_INVAL, "an iterator has no text; use |list or |join");
    if (l->kind == RANGE) {
        char text[96];
        int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)l->start,
                         (long long)l->stop);
        if (l->step != 1)
            n += snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)l->step);
        snprintf(text + n, sizeof text - (size_t)n, ")");
        jbuf_text(b, text);
        return;
    }
    jbuf_text(b, open[l->kind]);
    for (uint32_t i = 0; i < l->len; i++) {
        if (i) jbuf_text(b, ", ");
        jbuf_repr(b, l->items[i]);
    }
    if (l->kind == TUPLE && l->len == 1) jbuf_text(b, ",");
    jbuf_text(b, shut[l->kind]);
}

static void repr_dict(jbuf *b, const jdict *d)
{
    jbuf_text(b, "{");
    for (uint32_t i = 0; i < d->len; i++) {
        if (i) jbuf_text(b, ", ");
        jbuf_repr(b, d->keys[i]);
        jbuf_text(b, ": ");
        jbuf_repr(b, d->values[i]);
    }
    jbuf_text(b, "}");
}

void jbuf_repr(jbuf *b, jval v)
{
    jenter(b->c);
    switch ((jtype)v.type) {
    case J_UNDEFINED: jbuf_text(b, "Undefined"); break;
    case J_NONE: jbuf_text(b, "None"); break;
    case J_BOOL: jbuf_text(b, v.u.b ? "True" : "False"); break;
    case J_INT:
    case J_FLOAT: put_number(b, v); break;
    case J_STR:
        if (v.u.s->markup) jbuf_text(b, "Markup(");
        repr_string(b, v.u.s);
        if (v.u.s->markup) jbuf_text(b, ")");
        break;
    case J_LIST: repr_list(b, v.u.l); break;
    case J_DICT: repr_dict(b, v.u.d); break;
    case J_NAMESPACE:
        jbuf_text(b, "<Namespace ");
        repr_dict(b, v.u.d);
        jbuf_text(b, ">");
        break;
    default: jinja_fail(b->c, RAD_E_INVAL, "a %s has no text", jtype_name(v));
    }
    jleave(b->c);
}

void jbuf_show(jbuf *b, jval v)
{
    if (v.type == J_STR)
        jbuf_str(b, v.u.s);
    else if (v.type != J_UNDEFINED)
        jbuf_repr(b, v);
}

const jstr *jshow(jctx *c, jval v)
{
    if (v.type == J_STR) return v.u.s;
    jbuf b = {.c = c};
    jbuf_show(&b, v);
    return jbuf_value(&b).u.s;
}

/* ---- JSON ---- */

typedef struct json_style {
    bool ascii, sort;
    const jstr *indent; /* NULL: all in one line */
    const jstr *comma, *colon;
} json_style;

static void json_string_out(jbuf *b, const json_style *style, const jstr *s)
{
    static const char escapes[] = "\"\"\\\\\nn\rr\tt\ff\bb";
    jwork(b->c, (uint64_t)s->len * JINJA_LOOK);
    jbuf_text(b, "\"");
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
        char text[16] = "";
        for (const char *e = escapes; *e && ch.code; e += 2)
            if ((uint32_t)*e == ch.code) snprintf(text, sizeof text, "\\%c", e[1]);
        if (!*text && (ch.code < 0x20 ||
                       (style->ascii && ch.code >= 0x7f && ch.code < 0x10000 && ch.code != 0x7f)))
            snprintf(text, sizeof text, "\\u%04x", ch.code);
        else if (!*text && style->ascii && ch.code >= 0x10000)
            snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((ch.code - 0x10000) >> 10),
                     0xdc00 + (ch.code & 0x3ff));
        if (*text) jwork(b->c, 4 * JINJA_STEP);
        if (*text)
            jbuf_text(b, text);
        else
            jbuf_sub(b, s, at, ch.len);
        at += ch.len;
    }
    jbuf_text(b, "\"");
}

static void json_scalar(jbuf *b, jval v)
{
    switch ((jtype)v.type) {
    case J_NONE: jbuf_text(b, "null"); break;
    case J_BOOL: jbuf_text(b, v.u.b ? "true" : "false"); break;
    case J_FLOAT:
        if (isnan(v.u.f) || isinf(v.u.f)) {
            jbuf_text(b, isnan(v.u.f) ? "NaN" : v.u.f < 0 ? "-Infinity" : "Infinity");
            break;
        }
        put_number(b, v);
        break;
    case J_INT: put_number(b, v); break;
    default: jinja_fail(b->c, RAD_E_INVAL, "tojson: a %s is not JSON", jtype_name(v));
    }
}

static void json_newline(jbuf *b, const json_style *style, uint32_t level)
{
    if (!style->indent) return;
    jbuf_text(b, "\n");
    for (uint32_t i = 0; i < level; i++)
        jbuf_str(b, style->indent);
}

static void json_value(jbuf *b, const json_style *style, jval v, uint32_t level);

/* Keys that are numbers or none are written as strings. */
static void json_key(jbuf *b, const json_style *style, jval key)
{
    if (key.type == J_STR) {
        json_string_out(b, style, key.u.s);
        return;
    }
    if (key.type != J_NONE && !jis_number(key))
        jinja_fail(b->c, RAD_E_INVAL, "tojson: a %s cannot be a key", jtype_name(key));
    jbuf_text(b, "\"");
    json_scalar(b, key);
    jbuf_text(b, "\"");
}

/* The dict's keys in the order of writing. */
static uint32_t *json_order(jctx *c, const json_style *style, const jdict *d)
{
    uint32_t *order = jalloc(c, d->len, sizeof *order);
    for (uint32_t i = 0; i < d->len; i++) {
        uint32_t at = i;
        for (; style->sort && at > 0; at--) {
            jsteps(c, 1);
            if (jcompare(c, d->keys[order[at - 1]], d->keys[i], "<") <= 0) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return order;
}

static void json_dict(jbuf *b, const json_style *style, const jdict *d, uint32_t level)
{
    uint32_t *order = json_order(b->c, style, d);
    jbuf_text(b, "{");
    for (uint32_t i = 0; i < d->len; i++) {
        if (i) jbuf_str(b, style->comma);
        json_newline(b, style, level + 1);
        json_key(b, style, d->keys[order[i]]);
        jbuf_str(b, style->colon);
        json_value(b, style, d->values[order[i]], level + 1);
    }
    if (d->len) json_newline(b, style, level);
    jbuf_text(b, "}");
}

static void json_value(jbuf *b, const json_style *style, jval v, uint32_t level)
{
    jenter(b->c);
    if (v.type == J_STR) {
        json_string_out(b, style, v.u.s);
    } else if (v.type == J_DICT) {
        json_dict(b, style, v.u.d, level);
    } else if (v.type == J_LIST && (v.u.l->kind == LIST || v.u.l->kind == TUPLE)) {
        jbuf_text(b, "[");
        for (uint32_t i = 0; i < v.u.l->len; i++) {
            if (i) jbuf_str(b, style->comma);
            json_newline(b, style, level + 1);
            json_value(b, style, v.u.l->items[i], level + 1);
        }
        if (v.u.l->len) json_newline(b, style, level);
        jbuf_text(b, "]");
    } else {
        json_scalar(b, v);
    }
    jleave(b->c);
}

/* args: ensure_ascii, indent, separators, sort_keys. */
jval jto_json(jctx *c, jval v, const jval *args)
{
    json_style style = {.ascii = args[0].type != J_UNSET && jtrue(args[0]),
                        .sort = args[3].type != J_UNSET && jtrue(args[3])};
    if (args[1].type == J_STR) {
        style.indent = args[1].u.s;
    } else if (args[1].type != J_UNSET && args[1].type != J_NONE) {
        int64_t spaces = RAD_MIN(RAD_MAX(jwant_int(c, args[1], "tojson: indent"), 0), 1000);
        jbuf b = {.c = c};
        while (spaces-- > 0)
            jbuf_text(&b, " ");
        style.indent = jbuf_value(&b).u.s;
    }
    style.comma = jtext(c, style.indent ? "," : ", ").u.s;
    style.colon = jtext(c, ": ").u.s;
    if (args[2].type != J_UNSET && args[2].type != J_NONE) {
        const jlist *two = jiterate(c, args[2]);
        if (two->len != 2) jinja_fail(c, RAD_E_INVAL, "tojson: separators are two texts");
        style.comma = jwant_str(c, two->items[0], "tojson: separators");
        style.colon = jwant_str(c, two->items[1], "tojson: separators");
    }
    jbuf b = {.c = c};
    json_value(&b, &style, v, 0);
    return jbuf_value(&b);
}
