/* jinja_filters.c - the filters that take one value: text, numbers, JSON. */
#include "text/jinja_filters.h"

#include "base/utf8.h"

#include <ctype.h>
#include <math.h>

static bool given(jval v)
{
    return v.type != J_UNSET;
}

jval jfilter_upper(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return jchange_case(c, jshow(c, self), UPPER);
}

jval jfilter_lower(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return jchange_case(c, jshow(c, self), LOWER);
}

jval jfilter_capitalize(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return jchange_case(c, jshow(c, self), CAPITALIZE);
}

/* Words begin behind space and - ( { [ <, unlike in str.title. */
jval jfilter_title(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    const jstr *s = jshow(c, self);
    jbuf b = {.c = c};
    size_t start = 0;
    jwork(c, (uint64_t)s->len * JINJA_CHAR);
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
        bool border = jis_space(ch.code) ||
                      (ch.code < 0x80 && ch.code && strchr("-({[<", (int)ch.code));
        at += ch.len;
        if (!border && at < s->len) continue;
        size_t one = utf8_next((const unsigned char *)s->p + start, at - start).len;
        jbuf_str(&b, jchange_case(c, jsub(c, s, start, one).u.s, UPPER).u.s);
        jbuf_str(&b, jchange_case(c, jsub(c, s, start + one, at - start - one).u.s, LOWER).u.s);
        start = at;
    }
    return jbuf_value(&b);
}

jval jfilter_trim(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    bool chars = given(args[0]) && args[0].type != J_NONE;
    const jstr *s = jshow(c, self);
    return jstrip(c, s, chars ? jargument(c, s, args[0], "trim") : NULL, true, true);
}

jval jfilter_string(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return (jval){.type = J_STR, .u.s = jshow(c, self)};
}

jval jfilter_replace(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    int64_t count = given(args[2]) && args[2].type != J_NONE ? jwant_int(c, args[2], "replace")
                                                             : -1;
    return jreplace(c, jshow(c, self), jshow(c, args[0]), jshow(c, args[1]), count);
}

jval jfilter_default(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    bool boolean = given(args[1]) && jtrue(args[1]);
    if (self.type == J_UNDEFINED || (boolean && !jtrue(self)))
        return given(args[0]) ? args[0] : jtext(c, "");
    return self;
}

jval jfilter_tojson(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    return jto_json(c, self, args);
}

jval jfilter_indent(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    const jstr *s = jwant_str(c, self, "indent"), *by;
    bool first = given(args[1]) && jtrue(args[1]), blank = given(args[2]) && jtrue(args[2]);
    if (given(args[0]) && args[0].type == J_STR) {
        by = args[0].u.s;
    } else {
        jbuf spaces = {.c = c};
        int64_t width = given(args[0]) ? jwant_int(c, args[0], "indent") : 4;
        for (; width > 0; width--)
            jbuf_text(&spaces, " ");
        by = jbuf_value(&spaces).u.s;
    }
    jbuf whole = {.c = c}, b = {.c = c};
    jbuf_str(&whole, s);
    jbuf_text(&whole, "\n");
    const jlist *lines = jsplit_lines(c, jbuf_value(&whole).u.s, false).u.l;
    for (uint32_t i = 0; i < lines->len; i++) {
        const jstr *line = lines->items[i].u.s;
        if (i) jbuf_text(&b, "\n");
        if (i ? blank || line->len : first) jbuf_str(&b, by);
        jbuf_str(&b, line);
    }
    return jlike(c, s, jbuf_value(&b));
}

jval jfilter_truncate(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    int64_t length = given(args[0]) ? jwant_int(c, args[0], "truncate") : 255;
    bool kill = given(args[1]) && jtrue(args[1]);
    const jstr *end = given(args[2]) ? jwant_str(c, args[2], "truncate") : jtext(c, "...").u.s;
    int64_t leeway = given(args[3]) && args[3].type != J_NONE ? jwant_int(c, args[3], "truncate")
                                                              : 5;
    int64_t end_chars = jlength(c, (jval){.type = J_STR, .u.s = end});
    if (length < end_chars || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX)
        jinja_fail(c, RAD_E_INVAL, "truncate: the length is out of range");
    if (jlength(c, self) <= length + leeway) return self; /* a short list too */
    const jstr *s = jwant_str(c, self, "truncate");
    jwork(c, (uint64_t)s->len * JINJA_LOOK);
    const jstr *head = jsub(c, s, 0, jchar_at(s, (size_t)(length - end_chars))).u.s;
    if (!kill)
        for (size_t at = head->len; at > 0; at--)
            if (head->p[at - 1] == ' ') {
                head = jsub(c, head, 0, at - 1).u.s;
                break;
            }
    return jbinary(c, OP_ADD, (jval){.type = J_STR, .u.s = head},
                   (jval){.type = J_STR, .u.s = end});
}

jval jfilter_center(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    const jstr *s = jshow(c, self);
    int64_t width = given(args[0]) ? jwant_int(c, args[0], "center") : 80;
    int64_t n = jlength(c, (jval){.type = J_STR, .u.s = s});
    int64_t pad = RAD_MAX(width - n, 0), left = pad / 2 + (pad & width & 1);
    jbuf b = {.c = c};
    for (int64_t i = 0; i < left; i++)
        jbuf_text(&b, " ");
    jbuf_str(&b, s);
    for (int64_t i = left; i < pad; i++)
        jbuf_text(&b, " ");
    return jlike(c, s, jbuf_value(&b));
}

static bool is_word(uint32_t code)
{
    return code >= 0x80 ? !jis_space(code) : isalnum((int)code) || code == '_';
}

jval jfilter_wordcount(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    const jstr *s = jshow(c, self);
    int64_t words = 0;
    bool inside = false;
    jwork(c, (uint64_t)s->len * JINJA_CHAR);
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
        bool word = is_word(ch.code);
        words += word && !inside;
        inside = word;
        at += ch.len;
    }
    return jint(words);
}

jval jfilter_format(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args;
    if (all->num_named)
        jinja_fail(c, RAD_E_UNSUPPORTED, "format with named arguments is not supported");
    jval tuple = jlist_new(c, TUPLE, all->num_pos);
    for (uint32_t i = 0; i < all->num_pos; i++)
        jlist_push(c, tuple.u.l, all->pos[i]);
    return jpercent(c, jshow(c, self), tuple);
}

/* ---- numbers ---- */

static jval from_float(jctx *c, double f, jval otherwise)
{
    if (isnan(f) || isinf(f)) return otherwise;
    if (fabs(f) >= 9.2e18) jinja_fail(c, RAD_E_LIMIT, "an integer does not fit 64 bits");
    return jint((int64_t)f);
}

jval jfilter_int(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    jval otherwise = given(args[0]) ? args[0] : jint(0);
    int64_t base = given(args[1]) ? jwant_int(c, args[1], "int") : 10;
    if (base < 2 || base > 36)
        jinja_fail(c, RAD_E_UNSUPPORTED, "int: base %lld is not supported", (long long)base);
    if (self.type == J_UNDEFINED) jinja_fail(c, RAD_E_INVAL, "%s is undefined", self.u.hint);
    if (jis_int(self)) return jint(jas_int(self));
    if (self.type == J_FLOAT) return from_float(c, self.u.f, otherwise);
    if (self.type != J_STR) return otherwise;
    jval v = jparse_int(c, self.u.s, (int)base);
    if (given(v)) return v;
    v = jparse_float(c, self.u.s);
    return given(v) ? from_float(c, v.u.f, otherwise) : otherwise;
}

jval jfilter_float(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    jval otherwise = given(args[0]) ? args[0] : jfloat(0);
    if (self.type == J_UNDEFINED) jinja_fail(c, RAD_E_INVAL, "%s is undefined", self.u.hint);
    if (jis_number(self)) return jfloat(jas_float(self));
    if (self.type != J_STR) return otherwise;
    jval v = jparse_float(c, self.u.s);
    return given(v) ? v : otherwise;
}

jval jfilter_abs(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    if (self.type == J_FLOAT) return jfloat(fabs(self.u.f));
    if (!jis_int(self))
        jinja_fail(c, RAD_E_INVAL, "abs wants a number, not a %s", jtype_name(self));
    return jas_int(self) < 0 ? jnegate(c, self) : jint(jas_int(self));
}

jval jfilter_round(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)all;
    int64_t digits = given(args[0]) ? jwant_int(c, args[0], "round") : 0;
    const jstr *how = given(args[1]) ? jwant_str(c, args[1], "round") : jtext(c, "common").u.s;
    bool up = how->len == 4 && !memcmp(how->p, "ceil", 4);
    bool down = how->len == 5 && !memcmp(how->p, "floor", 5);
    if (!up && !down && !(how->len == 6 && !memcmp(how->p, "common", 6)))
        jinja_fail(c, RAD_E_INVAL, "round: the method is common, ceil or floor");
    if (!up && !down) return jround(c, self, digits);
    jwork(c, JINJA_PRINT);
    if (!jis_number(self))
        jinja_fail(c, RAD_E_INVAL, "round wants a number, not a %s", jtype_name(self));
    double scale = pow(10, (double)RAD_MAX(RAD_MIN(digits, 300), -300));
    double scaled = jas_float(self) * scale;
    if (!isfinite(scaled)) jinja_fail(c, RAD_E_INVAL, "round: the number is too large");
    double whole = up ? ceil(scaled) : floor(scaled);
    return jfloat((whole + 0.0) / scale); /* an int in Python: it has no -0 */
}
