/* jinja_text.c - strings: making them, parts of them, characters, case, and whose bytes
 * they are.
 *
 * A buffer starts without marks. The first time bytes of the other origin come, marks are
 * made for what is there already. */
#define _GNU_SOURCE /* memrchr */
#include "text/jinja_value.h"

#include "base/utf8.h"

#include <utf8proc.h>

/* ---- buffers ---- */

static void grow(jbuf *b, size_t len)
{
    if (len > b->c->max_string - b->len)
        jinja_fail(b->c, RAD_E_LIMIT, "a text is longer than %zu bytes", b->c->max_string);
    if (b->len + len <= b->cap) return;
    size_t cap = RAD_MAX(b->len + len, RAD_MAX(b->cap * 2, (size_t)64));
    char *p = jalloc(b->c, cap, 1);
    if (b->len) memcpy(p, b->p, b->len);
    b->p = p;
    if (b->mark) {
        uint8_t *mark = jalloc(b->c, cap, 1);
        memcpy(mark, b->mark, b->len);
        b->mark = mark;
    }
    b->cap = cap;
}

void jbuf_add(jbuf *b, const char *p, size_t len, jtaint taint, const uint8_t *mark)
{
    if (!len) return;
    jwork(b->c, JINJA_CALL + len);
    grow(b, len);
    if (!b->len) b->taint = (uint8_t)(taint == MIXED ? CLEAN : taint);
    if (!b->mark && taint != b->taint) {
        b->mark = jalloc(b->c, b->cap, 1);
        memset(b->mark, b->taint, b->len);
        b->taint = MIXED;
    }
    if (b->mark && taint == MIXED)
        memcpy(b->mark + b->len, mark, len);
    else if (b->mark)
        memset(b->mark + b->len, taint, len);
    memcpy(b->p + b->len, p, len);
    b->len += len;
}

void jbuf_bytes(jbuf *b, const char *p, size_t len)
{
    jbuf_add(b, p, len, CLEAN, NULL);
}
void jbuf_text(jbuf *b, const char *text)
{
    jbuf_bytes(b, text, strlen(text));
}

void jbuf_sub(jbuf *b, const jstr *s, size_t at, size_t len)
{
    jbuf_add(b, s->p + at, len, s->taint, s->mark ? s->mark + at : NULL);
}

void jbuf_str(jbuf *b, const jstr *s)
{
    jbuf_sub(b, s, 0, s->len);
}

jval jbuf_value(jbuf *b)
{
    jstr *s = jalloc(b->c, 1, sizeof *s);
    *s = (jstr){.p = b->len ? b->p : "", .mark = b->mark, .len = (uint32_t)b->len};
    s->taint = b->mark ? MIXED : b->taint;
    return (jval){.type = J_STR, .u.s = s};
}

/* ---- strings ---- */

jval jtext(jctx *c, const char *text)
{
    jstr *s = jalloc(c, 1, sizeof *s);
    *s = (jstr){.p = text, .len = (uint32_t)strlen(text)};
    return (jval){.type = J_STR, .u.s = s};
}

/* Copies p[0..len); the bytes are whose the byte `at` of `like` is (NULL: the template's). */
jval jstring(jctx *c, const char *p, size_t len, const jstr *like, size_t at)
{
    jbuf b = {.c = c};
    jtaint taint = CLEAN;
    if (like) taint = like->mark ? (jtaint)like->mark[at] : (jtaint)like->taint;
    jbuf_add(&b, p, len, taint, NULL);
    return jbuf_value(&b);
}

jval jsub(jctx *c, const jstr *s, size_t at, size_t len)
{
    jstr *sub = jalloc(c, 1, sizeof *sub);
    *sub = (jstr){.p = s->p + at, .len = (uint32_t)len, .taint = s->taint, .markup = s->markup};
    if (s->mark) sub->mark = s->mark + at;
    return (jval){.type = J_STR, .u.s = sub};
}

/* Whether `part` is at p. What differs at once, as nearly all candidates do, costs no more. */
static bool is_at(jctx *c, const char *p, const jstr *part)
{
    const size_t head = RAD_MIN(part->len, 8u);
    jwork(c, JINJA_CALL);
    if (memcmp(p, part->p, head) != 0) return false;
    jwork(c, part->len);
    return memcmp(p + head, part->p + head, part->len - head) == 0;
}

/* Not memmem, which may compare up to 256 bytes at every place: what is compared is paid for. */
const char *jfind_text(jctx *c, const char *p, size_t len, const jstr *part)
{
    if (!part->len) return p;
    for (const char *end = p + len; part->len <= (size_t)(end - p); p++) {
        const size_t places = (size_t)(end - p) - part->len + 1;
        const char *hit = memchr(p, part->p[0], places);
        jwork(c, JINJA_LOOK + (hit ? (size_t)(hit - p) : places));
        if (!hit) return NULL;
        p = hit;
        if (is_at(c, p, part)) return p;
    }
    return NULL;
}

const char *jfind_last(jctx *c, const char *p, size_t len, const jstr *part)
{
    if (part->len > len) return NULL;
    if (!part->len) return p + len;
    for (size_t places = len - part->len + 1; places > 0;) {
        const char *hit = memrchr(p, part->p[0], places);
        const size_t left = hit ? (size_t)(hit - p) : 0;
        jwork(c, JINJA_LOOK + (places - left));
        if (!hit) return NULL;
        if (is_at(c, hit, part)) return hit;
        places = left;
    }
    return NULL;
}

size_t jchars(const jstr *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++)
        n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return n;
}

size_t jchar_at(const jstr *s, size_t n)
{
    size_t at = 0;
    for (; at < s->len; at++)
        if (((unsigned char)s->p[at] & 0xc0) != 0x80 && n-- == 0) break;
    return at;
}

bool jis_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool strips(jctx *c, const char *p, size_t len, const jstr *chars)
{
    const jstr one = {.p = p, .len = (uint32_t)len};
    if (chars) return jfind_text(c, chars->p, chars->len, &one) != NULL; /* whole, as bytes */
    jwork(c, JINJA_CHAR);
    utf8_char ch = utf8_next((const unsigned char *)p, len);
    return ch.valid && ch.len == len && jis_space(ch.code);
}

jval jstrip(jctx *c, const jstr *s, const jstr *chars, bool left, bool right)
{
    size_t start = 0, end = s->len;
    while (left && start < end) {
        size_t n = utf8_next((const unsigned char *)s->p + start, end - start).len;
        if (!strips(c, s->p + start, n, chars)) break;
        start += n;
    }
    while (right && start < end) {
        size_t at = end - 1;
        while (at > start && ((unsigned char)s->p[at] & 0xc0) == 0x80)
            at--;
        if (!strips(c, s->p + at, end - at, chars)) break;
        end = at;
    }
    return jsub(c, s, start, end - start);
}

jval jreplace(jctx *c, const jstr *s, const jstr *old, const jstr *new, int64_t count)
{
    jbuf b = {.c = c};
    size_t at = 0;
    while (count != 0 && at <= s->len) {
        const char *found;
        jwork(c, JINJA_LOOK);
        if (old->len) {
            found = jfind_text(c, s->p + at, s->len - at, old);
            if (!found) break;
            jbuf_sub(&b, s, at, (size_t)(found - s->p) - at);
            jbuf_str(&b, new);
            at = (size_t)(found - s->p) + old->len;
        } else { /* between all characters */
            jbuf_str(&b, new);
            if (at == s->len) break;
            size_t n = utf8_next((const unsigned char *)s->p + at, s->len - at).len;
            jbuf_sub(&b, s, at, n);
            at += n;
        }
        if (count > 0) count--;
    }
    if (at < s->len) jbuf_sub(&b, s, at, s->len - at);
    return jbuf_value(&b);
}

/* How many bytes a line's end at p takes; 0: none. Those that str.splitlines knows. */
static size_t line_end(const char *p, size_t len)
{
    utf8_char ch = utf8_next((const unsigned char *)p, len);
    if (ch.code == '\r') return len > 1 && p[1] == '\n' ? 2 : 1;
    bool end = ch.code == '\n' || ch.code == 0x0b || ch.code == 0x0c ||
               (ch.code >= 0x1c && ch.code <= 0x1e) || ch.code == 0x85 || ch.code == 0x2028 ||
               ch.code == 0x2029;
    return end ? ch.len : 0;
}

jval jsplit_lines(jctx *c, const jstr *s, bool keep_ends)
{
    jval list = jlist_new(c, LIST, 0);
    size_t start = 0, at = 0;
    jwork(c, (uint64_t)s->len * JINJA_LOOK);
    while (at < s->len) {
        size_t end = line_end(s->p + at, s->len - at);
        if (!end) {
            at++;
            while (at < s->len && ((unsigned char)s->p[at] & 0xc0) == 0x80)
                at++;
            continue;
        }
        jlist_push(c, list.u.l, jsub(c, s, start, at + (keep_ends ? end : 0) - start));
        start = at += end;
    }
    if (start < s->len) jlist_push(c, list.u.l, jsub(c, s, start, s->len - start));
    return list;
}

/* ---- case ---- */

/* The few letters whose other case is several; the Unicode tables here have one for one. */
static const char *long_upper(uint32_t code, bool title)
{
    switch (code) {
    case 0xdf: return title ? "Ss" : "SS";
    case 0x149: return "\xca\xbcN";
    case 0x1f0: return "J\xcc\x8c";
    case 0xfb00: return title ? "Ff" : "FF";
    case 0xfb01: return title ? "Fi" : "FI";
    case 0xfb02: return title ? "Fl" : "FL";
    case 0xfb03: return title ? "Ffi" : "FFI";
    case 0xfb04: return title ? "Ffl" : "FFL";
    case 0xfb05:
    case 0xfb06: return title ? "St" : "ST";
    default: return NULL;
    }
}

static bool is_cased(uint32_t code)
{
    utf8proc_int32_t ch = (utf8proc_int32_t)code;
    utf8proc_category_t category = utf8proc_category(ch);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT || utf8proc_toupper(ch) != ch ||
           utf8proc_tolower(ch) != ch;
}

static bool is_upper(uint32_t code)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
}

jval jchange_case(jctx *c, const jstr *s, jcase how)
{
    jbuf b = {.c = c};
    bool start = true; /* of the text, or of a word for TITLE */
    jwork(c, (uint64_t)s->len * JINJA_CHAR);
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
        utf8proc_int32_t code = (utf8proc_int32_t)ch.code, to;
        bool title = (how == CAPITALIZE || how == TITLE) && start;
        bool upper = how == UPPER || (how == SWAP && !is_upper(ch.code));
        to = title   ? utf8proc_totitle(code)
             : upper ? utf8proc_toupper(code)
                     : utf8proc_tolower(code);
        const char *several = title || upper ? long_upper(ch.code, title) : NULL;
        char bytes[4];
        if (!ch.valid) { /* not a letter: it stays */
            jbuf_sub(&b, s, at, ch.len);
            at += ch.len;
            continue;
        }
        if (!title && !upper && code == 0x130) several = "i\xcc\x87";
        size_t n = several ? strlen(several)
                           : (size_t)utf8proc_encode_char(to, (utf8proc_uint8_t *)bytes);
        jbuf_add(&b, several ? several : bytes, n, s->mark ? (jtaint)s->mark[at] : (jtaint)s->taint,
                 NULL);
        start = how == TITLE ? !is_cased(ch.code) : false;
        at += ch.len;
    }
    return jlike(c, s, jbuf_value(&b));
}

bool jall_case(jctx *c, const jstr *s, jcase how)
{
    bool any = false;
    jwork(c, (uint64_t)s->len * JINJA_CHAR);
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
        if (is_cased(ch.code)) {
            if (is_upper(ch.code) != (how == UPPER)) return false;
            any = true;
        }
        at += ch.len;
    }
    return any;
}
