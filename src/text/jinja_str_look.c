/* jinja_str_look.c - the methods of str that change or ask about how a text looks: case, the
 * space around it, what it is put together from, which characters it has. */
#include "text/jinja_methods.h"

#include "base/utf8.h"

#include <ctype.h>
#include <utf8proc.h>

STR_METHOD(upper)
{
    UNUSED;
    return jchange_case(c, self.u.s, UPPER);
}
STR_METHOD(lower)
{
    UNUSED;
    return jchange_case(c, self.u.s, LOWER);
}
STR_METHOD(title)
{
    UNUSED;
    return jchange_case(c, self.u.s, TITLE);
}
STR_METHOD(capitalize)
{
    UNUSED;
    return jchange_case(c, self.u.s, CAPITALIZE);
}
STR_METHOD(swapcase)
{
    UNUSED;
    return jchange_case(c, self.u.s, SWAP);
}
STR_METHOD(isupper)
{
    UNUSED;
    return jbool(jall_case(c, self.u.s, UPPER));
}
STR_METHOD(islower)
{
    UNUSED;
    return jbool(jall_case(c, self.u.s, LOWER));
}

static jval strip(jctx *c, jval self, const jval *args, bool left, bool right)
{
    const jstr *chars = some(args[0]) ? jargument(c, self.u.s, args[0], "strip") : NULL;
    return jstrip(c, self.u.s, chars, left, right);
}

STR_METHOD(strip)
{
    UNUSED;
    return strip(c, self, args, true, true);
}
STR_METHOD(lstrip)
{
    UNUSED;
    return strip(c, self, args, true, false);
}
STR_METHOD(rstrip)
{
    UNUSED;
    return strip(c, self, args, false, true);
}

STR_METHOD(replace)
{
    UNUSED;
    int64_t count = args[2].type != J_UNSET ? jwant_int(c, args[2], "replace") : -1;
    const jstr *s = self.u.s, *old = jargument(c, s, args[0], "replace");
    return jlike(c, s, jreplace(c, s, old, jargument(c, s, args[1], "replace"), count));
}

STR_METHOD(join)
{
    UNUSED;
    const jlist *from = jiterate(c, args[0]);
    jbuf b = {.c = c};
    for (uint32_t i = 0; i < from->len; i++) {
        jwork(c, JINJA_LOOK);
        if (i) jbuf_str(&b, self.u.s);
        jval item = from->items[i]; /* Markup shows what is no str */
        jbuf_str(&b, self.u.s->markup ? jescaped(c, item) : jwant_str(c, item, "join"));
    }
    return jlike(c, self.u.s, jbuf_value(&b));
}

static jval justify(jctx *c, jval self, const jval *args, int side)
{
    int64_t width = jwant_int(c, args[0], "a width"), n = jlength(c, self);
    int64_t pad = RAD_MAX(width - n, 0);
    int64_t left = side < 0 ? 0 : side > 0 ? pad : pad / 2 + (pad & width & 1);
    const jstr *fill = args[1].type != J_UNSET ? jargument(c, self.u.s, args[1], "a fill")
                                               : jtext(c, " ").u.s;
    if (fill->len > 4 || jchars(fill) != 1)
        jinja_fail(c, RAD_E_INVAL, "the fill must be one character");
    jbuf b = {.c = c};
    for (int64_t i = 0; i < left; i++)
        jbuf_str(&b, fill);
    jbuf_str(&b, self.u.s);
    for (int64_t i = left; i < pad; i++)
        jbuf_str(&b, fill);
    return jlike(c, self.u.s, jbuf_value(&b));
}

STR_METHOD(ljust)
{
    UNUSED;
    return justify(c, self, args, -1);
}
STR_METHOD(center)
{
    UNUSED;
    return justify(c, self, args, 0);
}
STR_METHOD(rjust)
{
    UNUSED;
    return justify(c, self, args, 1);
}

STR_METHOD(zfill)
{
    UNUSED;
    const jstr *s = self.u.s;
    int64_t pad = jwant_int(c, args[0], "zfill") - jlength(c, self);
    size_t sign = s->len && (s->p[0] == '-' || s->p[0] == '+');
    jbuf b = {.c = c};
    jbuf_sub(&b, s, 0, sign);
    for (; pad > 0; pad--)
        jbuf_text(&b, "0");
    jbuf_sub(&b, s, sign, s->len - sign);
    return jlike(c, s, jbuf_value(&b));
}

/* {} {0} {name} {{ }}; no conversions and no formats. */
STR_METHOD(format)
{
    UNUSED;
    const jstr *s = self.u.s;
    jbuf b = {.c = c};
    uint32_t next = 0;
    for (size_t at = 0; at < s->len;) {
        char ch = s->p[at];
        if (ch != '{' && ch != '}') {
            jbuf_sub(&b, s, at++, 1);
            continue;
        }
        if (at + 1 < s->len && s->p[at + 1] == ch) {
            jbuf_sub(&b, s, at, 1);
            at += 2;
            continue;
        }
        const char *shut = ch == '{' ? memchr(s->p + at, '}', s->len - at) : NULL;
        if (!shut) jinja_fail(c, RAD_E_INVAL, "format: a single '%c'", ch);
        size_t len = (size_t)(shut - s->p) - at - 1;
        jwork(c, (uint64_t)(len + all->num_named) * JINJA_LOOK);
        jval name = jsub(c, s, at + 1, len), v = {.type = J_UNSET};
        bool number = true;
        for (size_t i = 0; i < len; i++) {
            if (!isalnum((unsigned char)name.u.s->p[i]) && name.u.s->p[i] != '_')
                jinja_fail(c, RAD_E_UNSUPPORTED, "format: '{%.*s}' is not supported",
                           (int)RAD_MIN(len, (size_t)60), name.u.s->p);
            number = number && isdigit((unsigned char)name.u.s->p[i]);
        }
        if (number && len < 9) {
            uint32_t i = len ? (uint32_t)jparse_int(c, name.u.s, 10).u.i : next++;
            if (i < all->num_pos) v = all->pos[i];
        }
        for (uint32_t i = 0; i < all->num_named && !number; i++)
            if (all->names[i]->len == len && memcmp(all->names[i]->p, name.u.s->p, len) == 0)
                v = all->named[i];
        if (v.type == J_UNSET)
            jinja_fail(c, RAD_E_INVAL, "format: there is no '{%.*s}'",
                       (int)RAD_MIN(len, (size_t)60), name.u.s->p);
        jbuf_str(&b, s->markup ? jescaped(c, v) : jshow(c, v));
        at += len + 2;
    }
    return jlike(c, s, jbuf_value(&b));
}

typedef bool (*char_test)(uint32_t code, utf8proc_category_t category);

static bool all_chars(jctx *c, const jstr *s, char_test test)
{
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
        jwork(c, JINJA_CHAR);
        if (!test(ch.code, utf8proc_category((utf8proc_int32_t)ch.code))) return false;
        at += ch.len;
    }
    return s->len > 0;
}

static bool is_letter(uint32_t code, utf8proc_category_t g)
{
    (void)code;
    return g >= UTF8PROC_CATEGORY_LU && g <= UTF8PROC_CATEGORY_LO;
}
static bool is_digit(uint32_t code, utf8proc_category_t g)
{
    return g == UTF8PROC_CATEGORY_ND || code == 0xb2 || code == 0xb3 || code == 0xb9;
}
static bool is_letter_or_digit(uint32_t code, utf8proc_category_t g)
{
    return is_letter(code, g) || is_digit(code, g) || g == UTF8PROC_CATEGORY_NO ||
           g == UTF8PROC_CATEGORY_NL;
}
static bool is_decimal(uint32_t code, utf8proc_category_t g)
{
    (void)code;
    return g == UTF8PROC_CATEGORY_ND;
}
static bool is_numeric(uint32_t code, utf8proc_category_t g)
{
    (void)code;
    return g == UTF8PROC_CATEGORY_ND || g == UTF8PROC_CATEGORY_NO || g == UTF8PROC_CATEGORY_NL;
}
static bool is_space(uint32_t code, utf8proc_category_t g)
{
    (void)g;
    return jis_space(code);
}
static bool is_ascii(uint32_t code, utf8proc_category_t g)
{
    (void)g;
    return code < 0x80;
}

STR_METHOD(isalpha)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_letter));
}
STR_METHOD(isdigit)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_digit));
}
STR_METHOD(isalnum)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_letter_or_digit));
}
STR_METHOD(isdecimal)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_decimal));
}
STR_METHOD(isnumeric)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_numeric));
}
STR_METHOD(isspace)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_space));
}
STR_METHOD(isascii)
{
    UNUSED;
    return jbool(!self.u.s->len || all_chars(c, self.u.s, is_ascii));
}
