/* jinja_methods.c - the methods of Python's str, dict and list that templates may call.
 *
 * What Python has and we have not fails when it is called, by its name; what would change a
 * list or a dict is refused, as in Jinja's sandbox. What Python has not either is undefined. */
#define _GNU_SOURCE /* memmem */
#include "text/jinja_value.h"
#include "text/utf8.h"

#include <ctype.h>
#include <utf8proc.h>

#define METHOD(name) static jval m_##name(jctx *c, jval self, const jval *args, const jargs *all)
#define UNUSED       (void)c, (void)self, (void)args, (void)all

static bool some(jval v)
{
    return v.type != J_UNSET && v.type != J_NONE;
}

static jval bound(jctx *c, jval self, const jfunction *f)
{
    jmethod *m = jalloc(c, 1, sizeof *m);
    *m = (jmethod){.self = self, .function = f};
    return (jval){.type = J_METHOD, .u.method = m};
}

/* ---- str ---- */

METHOD(upper)
{
    UNUSED;
    return jchange_case(c, self.u.s, UPPER);
}
METHOD(lower)
{
    UNUSED;
    return jchange_case(c, self.u.s, LOWER);
}
METHOD(title)
{
    UNUSED;
    return jchange_case(c, self.u.s, TITLE);
}
METHOD(capitalize)
{
    UNUSED;
    return jchange_case(c, self.u.s, CAPITALIZE);
}
METHOD(swapcase)
{
    UNUSED;
    return jchange_case(c, self.u.s, SWAP);
}
METHOD(isupper)
{
    UNUSED;
    return jbool(jall_case(c, self.u.s, UPPER));
}
METHOD(islower)
{
    UNUSED;
    return jbool(jall_case(c, self.u.s, LOWER));
}

static jval strip(jctx *c, jval self, const jval *args, bool left, bool right)
{
    const jstr *chars = some(args[0]) ? jwant_str(c, args[0], "strip") : NULL;
    return jstrip(c, self.u.s, chars, left, right);
}

METHOD(strip)
{
    UNUSED;
    return strip(c, self, args, true, true);
}
METHOD(lstrip)
{
    UNUSED;
    return strip(c, self, args, true, false);
}
METHOD(rstrip)
{
    UNUSED;
    return strip(c, self, args, false, true);
}

METHOD(replace)
{
    UNUSED;
    int64_t count = args[2].type != J_UNSET ? jwant_int(c, args[2], "replace") : -1;
    return jreplace(c, self.u.s, jwant_str(c, args[0], "replace"), jwant_str(c, args[1], "replace"),
                    count);
}

/* By white space: no empty parts. From the right the remainder is at the front. */
static jval split_space(jctx *c, const jstr *s, int64_t most, bool right)
{
    jval parts = jlist_new(c, LIST, 0);
    jsteps(c, s->len / 16);
    s = jstrip(c, s, NULL, !right, right).u.s;
    while (s->len) {
        if (most >= 0 && (int64_t)parts.u.l->len == most) {
            jlist_push(c, parts.u.l, jsub(c, s, 0, s->len));
            break;
        }
        size_t at = right ? s->len : 0;
        for (;;) {
            if (right ? at == 0 : at == s->len) break;
            size_t from = at;
            if (right) do
                    from--;
                while (from > 0 && ((unsigned char)s->p[from] & 0xc0) == 0x80);
            utf8_char ch = utf8_next((const unsigned char *)s->p + from, s->len - from);
            if (jis_space(ch.code)) break;
            at = right ? from : at + ch.len;
        }
        jlist_push(c, parts.u.l, right ? jsub(c, s, at, s->len - at) : jsub(c, s, 0, at));
        jval rest = right ? jsub(c, s, 0, at) : jsub(c, s, at, s->len - at);
        s = jstrip(c, rest.u.s, NULL, !right, right).u.s;
    }
    return parts;
}

/* The last place of part in s[0..len), or NULL. Unlike memmem it may compare much of part at
 * every place: that is paid for. */
static const char *find_last(jctx *c, const jstr *s, size_t len, const jstr *part)
{
    if (part->len > len) return NULL;
    for (size_t at = len - part->len + 1; at > 0; at--) {
        if (part->len && s->p[at - 1] != part->p[0]) continue;
        jsteps(c, part->len / 64);
        if (memcmp(s->p + at - 1, part->p, part->len) == 0) return s->p + at - 1;
    }
    return NULL;
}

static jval split_by(jctx *c, const jstr *s, const jstr *by, int64_t most, bool right)
{
    jval parts = jlist_new(c, LIST, 0);
    size_t start = 0, end = s->len;
    if (!by->len) jinja_fail(c, RAD_E_INVAL, "split: the separator is empty");
    jsteps(c, right ? s->len : s->len / 16);
    while (most < 0 || (int64_t)parts.u.l->len < most) {
        const char *at = right ? find_last(c, s, end, by)
                               : memmem(s->p + start, end - start, by->p, by->len);
        if (!at) break;
        size_t place = (size_t)(at - s->p);
        jlist_push(c, parts.u.l,
                   right ? jsub(c, s, place + by->len, end - place - by->len)
                         : jsub(c, s, start, place - start));
        if (right)
            end = place;
        else
            start = place + by->len;
    }
    jlist_push(c, parts.u.l, jsub(c, s, start, end - start));
    return parts;
}

static jval split(jctx *c, jval self, const jval *args, bool right)
{
    int64_t most = args[1].type != J_UNSET ? jwant_int(c, args[1], "split") : -1;
    jval parts = some(args[0]) ? split_by(c, self.u.s, jwant_str(c, args[0], "split"), most, right)
                               : split_space(c, self.u.s, most, right);
    jlist *l = parts.u.l;
    for (uint32_t i = 0; right && i < l->len / 2; i++) {
        jval swap = l->items[i];
        l->items[i] = l->items[l->len - 1 - i];
        l->items[l->len - 1 - i] = swap;
    }
    return parts;
}

METHOD(split)
{
    UNUSED;
    return split(c, self, args, false);
}
METHOD(rsplit)
{
    UNUSED;
    return split(c, self, args, true);
}

METHOD(splitlines)
{
    UNUSED;
    return jsplit_lines(c, self.u.s, args[0].type != J_UNSET && jtrue(args[0]));
}

static jval partition(jctx *c, jval self, const jval *args, bool right)
{
    const jstr *s = self.u.s, *by = jwant_str(c, args[0], "partition");
    if (!by->len) jinja_fail(c, RAD_E_INVAL, "partition: the separator is empty");
    jsteps(c, s->len / 16);
    const char *at = right ? find_last(c, s, s->len, by) : memmem(s->p, s->len, by->p, by->len);
    jval three = jlist_new(c, TUPLE, 3), none = jtext(c, "");
    size_t place = at ? (size_t)(at - s->p) : 0;
    if (!at && right) jlist_push(c, three.u.l, none);
    if (!at && right) jlist_push(c, three.u.l, none);
    jlist_push(c, three.u.l, at ? jsub(c, s, 0, place) : self);
    if (!at && !right) jlist_push(c, three.u.l, none);
    if (!at && !right) jlist_push(c, three.u.l, none);
    if (at) jlist_push(c, three.u.l, jsub(c, s, place, by->len));
    if (at) jlist_push(c, three.u.l, jsub(c, s, place + by->len, s->len - place - by->len));
    return three;
}

METHOD(partition)
{
    UNUSED;
    return partition(c, self, args, false);
}
METHOD(rpartition)
{
    UNUSED;
    return partition(c, self, args, true);
}

/* The part of self between args[1] and args[2], characters; *at: where it begins. False: it
 * begins behind the end, where not even "" is found. */
static bool window(jctx *c, jval self, const jval *args, jstr *part, size_t *at)
{
    jsteps(c, self.u.s->len / 16);
    int64_t n = (int64_t)jchars(self.u.s);
    int64_t from = some(args[1]) ? jwant_int(c, args[1], "find") : 0;
    int64_t to = some(args[2]) ? jwant_int(c, args[2], "find") : n;
    if (from < 0) from = RAD_MAX(from < -n ? 0 : from + n, 0);
    if (to < 0) to = to < -n ? 0 : to + n;
    to = RAD_MIN(to, n);
    if (from > n || from > to) return false;
    size_t a = jchar_at(self.u.s, (size_t)from), b = jchar_at(self.u.s, (size_t)to);
    *part = *jsub(c, self.u.s, a, b - a).u.s;
    *at = a;
    return true;
}

static int64_t find(jctx *c, jval self, const jval *args, bool right)
{
    const jstr *what = jwant_str(c, args[0], "find");
    jstr part;
    size_t at;
    if (!window(c, self, args, &part, &at)) return -1;
    const char *p = right ? find_last(c, &part, part.len, what)
                          : memmem(part.p, part.len, what->p, what->len);
    if (!p) return -1;
    return (int64_t)jchars(jsub(c, self.u.s, 0, at + (size_t)(p - part.p)).u.s);
}

METHOD(find)
{
    UNUSED;
    return jint(find(c, self, args, false));
}
METHOD(rfind)
{
    UNUSED;
    return jint(find(c, self, args, true));
}

METHOD(index)
{
    UNUSED;
    int64_t at = find(c, self, args, false);
    if (at < 0) jinja_fail(c, RAD_E_INVAL, "index: the text is not there");
    return jint(at);
}

METHOD(rindex)
{
    UNUSED;
    int64_t at = find(c, self, args, true);
    if (at < 0) jinja_fail(c, RAD_E_INVAL, "rindex: the text is not there");
    return jint(at);
}

METHOD(count)
{
    UNUSED;
    const jstr *what = jwant_str(c, args[0], "count");
    jstr part;
    size_t at, n = 0;
    if (!window(c, self, args, &part, &at)) return jint(0);
    if (!what->len) return jint((int64_t)jchars(&part) + 1);
    for (size_t i = 0;; n++) {
        const char *p = memmem(part.p + i, part.len - i, what->p, what->len);
        if (!p) return jint((int64_t)n);
        i = (size_t)(p - part.p) + what->len;
    }
}

static bool begins_one(jctx *c, const jstr *s, jval with, bool end)
{
    const jstr *part = jwant_str(c, with, end ? "endswith" : "startswith");
    jsteps(c, RAD_MIN(s->len, part->len) / 256);
    return part->len <= s->len &&
           memcmp(s->p + (end ? s->len - part->len : 0), part->p, part->len) == 0;
}

/* A tuple: any of them. */
static bool begins(jctx *c, const jstr *s, jval with, bool end)
{
    if (with.type == J_LIST && with.u.l->kind == TUPLE) {
        for (uint32_t i = 0; i < with.u.l->len; i++)
            if (begins_one(c, s, with.u.l->items[i], end)) return true;
        return false;
    }
    return begins_one(c, s, with, end);
}

METHOD(startswith)
{
    UNUSED;
    jstr part;
    size_t at;
    return jbool(window(c, self, args, &part, &at) && begins(c, &part, args[0], false));
}

METHOD(endswith)
{
    UNUSED;
    jstr part;
    size_t at;
    return jbool(window(c, self, args, &part, &at) && begins(c, &part, args[0], true));
}

METHOD(removeprefix)
{
    UNUSED;
    const jstr *s = self.u.s, *part = jwant_str(c, args[0], "removeprefix");
    return begins(c, s, args[0], false) ? jsub(c, s, part->len, s->len - part->len) : self;
}

METHOD(removesuffix)
{
    UNUSED;
    const jstr *s = self.u.s, *part = jwant_str(c, args[0], "removesuffix");
    return begins(c, s, args[0], true) ? jsub(c, s, 0, s->len - part->len) : self;
}

METHOD(join)
{
    UNUSED;
    const jlist *from = jiterate(c, args[0]);
    jbuf b = {.c = c};
    for (uint32_t i = 0; i < from->len; i++) {
        jsteps(c, 1);
        if (i) jbuf_str(&b, self.u.s);
        jbuf_str(&b, jwant_str(c, from->items[i], "join"));
    }
    return jbuf_value(&b);
}

static jval justify(jctx *c, jval self, const jval *args, int side)
{
    int64_t width = jwant_int(c, args[0], "a width"), n = jlength(c, self);
    int64_t pad = RAD_MAX(width - n, 0);
    int64_t left = side < 0 ? 0 : side > 0 ? pad : pad / 2 + (pad & width & 1);
    const jstr *fill = args[1].type != J_UNSET ? jwant_str(c, args[1], "a fill")
                                               : jtext(c, " ").u.s;
    if (fill->len > 4 || jchars(fill) != 1)
        jinja_fail(c, RAD_E_INVAL, "the fill must be one character");
    jbuf b = {.c = c};
    for (int64_t i = 0; i < left; i++)
        jbuf_str(&b, fill);
    jbuf_str(&b, self.u.s);
    for (int64_t i = left; i < pad; i++)
        jbuf_str(&b, fill);
    return jbuf_value(&b);
}

METHOD(ljust)
{
    UNUSED;
    return justify(c, self, args, -1);
}
METHOD(center)
{
    UNUSED;
    return justify(c, self, args, 0);
}
METHOD(rjust)
{
    UNUSED;
    return justify(c, self, args, 1);
}

METHOD(zfill)
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
    return jbuf_value(&b);
}

/* {} {0} {name} {{ }}; no conversions and no formats. */
METHOD(format)
{
    UNUSED;
    const jstr *s = self.u.s;
    jbuf b = {.c = c};
    uint32_t next = 0;
    jsteps(c, s->len / 16);
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
        jbuf_show(&b, v);
        at += len + 2;
    }
    return jbuf_value(&b);
}

typedef bool (*char_test)(uint32_t code, utf8proc_category_t category);

static bool all_chars(jctx *c, const jstr *s, char_test test)
{
    jsteps(c, s->len / 16);
    for (size_t at = 0; at < s->len;) {
        utf8_char ch = utf8_next((const unsigned char *)s->p + at, s->len - at);
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

METHOD(isalpha)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_letter));
}
METHOD(isdigit)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_digit));
}
METHOD(isalnum)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_letter_or_digit));
}
METHOD(isdecimal)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_decimal));
}
METHOD(isnumeric)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_numeric));
}
METHOD(isspace)
{
    UNUSED;
    return jbool(all_chars(c, self.u.s, is_space));
}
METHOD(isascii)
{
    UNUSED;
    return jbool(!self.u.s->len || all_chars(c, self.u.s, is_ascii));
}

METHOD(absent)
{
    UNUSED;
    jinja_fail(c, RAD_E_UNSUPPORTED, "this method of %s is not supported", jtype_name(self));
}

jval jstr_method(jctx *c, jval v, const char *name, size_t len)
{
    static const jfunction methods[] = {
        {"strip", m_strip, "chars?"},
        {"split", m_split, "sep?,maxsplit?"},
        {"startswith", m_startswith, "prefix,start?,end?"},
        {"endswith", m_endswith, "suffix,start?,end?"},
        {"lstrip", m_lstrip, "chars?"},
        {"rstrip", m_rstrip, "chars?"},
        {"replace", m_replace, "old,new,count?"},
        {"upper", m_upper, ""},
        {"lower", m_lower, ""},
        {"title", m_title, ""},
        {"capitalize", m_capitalize, ""},
        {"swapcase", m_swapcase, ""},
        {"join", m_join, "iterable"},
        {"find", m_find, "sub,start?,end?"},
        {"rfind", m_rfind, "sub,start?,end?"},
        {"index", m_index, "sub,start?,end?"},
        {"rindex", m_rindex, "sub,start?,end?"},
        {"count", m_count, "sub,start?,end?"},
        {"rsplit", m_rsplit, "sep?,maxsplit?"},
        {"splitlines", m_splitlines, "keepends?"},
        {"partition", m_partition, "sep"},
        {"rpartition", m_rpartition, "sep"},
        {"removeprefix", m_removeprefix, "prefix"},
        {"removesuffix", m_removesuffix, "suffix"},
        {"format", m_format, NULL},
        {"ljust", m_ljust, "width,fillchar?"},
        {"rjust", m_rjust, "width,fillchar?"},
        {"center", m_center, "width,fillchar?"},
        {"zfill", m_zfill, "width"},
        {"isalpha", m_isalpha, ""},
        {"isdigit", m_isdigit, ""},
        {"isalnum", m_isalnum, ""},
        {"isdecimal", m_isdecimal, ""},
        {"isnumeric", m_isnumeric, ""},
        {"isspace", m_isspace, ""},
        {"isascii", m_isascii, ""},
        {"isupper", m_isupper, ""},
        {"islower", m_islower, ""},
        {"casefold", m_absent, NULL},
        {"encode", m_absent, NULL},
        {"expandtabs", m_absent, NULL},
        {"format_map", m_absent, NULL},
        {"isidentifier", m_absent, NULL},
        {"isprintable", m_absent, NULL},
        {"istitle", m_absent, NULL},
        {"maketrans", m_absent, NULL},
        {"translate", m_absent, NULL},
    };
    const jfunction *f = jfind(methods, RAD_COUNT(methods), name, len);
    return f ? bound(c, v, f) : (jval){.type = J_UNSET};
}

/* ---- dict ---- */

static jval view(jctx *c, const jdict *d, jlist_kind kind)
{
    jval list = jlist_new(c, kind, d->len);
    jsteps(c, d->len / 4);
    for (uint32_t i = 0; i < d->len; i++)
        jlist_push(c, list.u.l,
                   kind == DICT_ITEMS  ? jpair(c, d->keys[i], d->values[i])
                   : kind == DICT_KEYS ? d->keys[i]
                                       : d->values[i]);
    return list;
}

METHOD(items)
{
    UNUSED;
    return view(c, self.u.d, DICT_ITEMS);
}
METHOD(keys)
{
    UNUSED;
    return view(c, self.u.d, DICT_KEYS);
}
METHOD(values)
{
    UNUSED;
    return view(c, self.u.d, DICT_VALUES);
}

METHOD(get)
{
    UNUSED;
    const jval *item = jdict_find(c, self.u.d, args[0]);
    return item ? *item : args[1].type == J_UNSET ? jnone() : args[1];
}

METHOD(copy)
{
    UNUSED;
    jval copy = jdict_new(c, J_DICT);
    for (uint32_t i = 0; i < self.u.d->len; i++)
        jdict_append(c, copy.u.d, self.u.d->keys[i], self.u.d->values[i]);
    return copy;
}

jval jdict_method(jctx *c, jval v, const char *name, size_t len)
{
    static const jfunction methods[] = {
        {"items", m_items, ""},  {"get", m_get, "key,default?"},
        {"keys", m_keys, ""},    {"values", m_values, ""},
        {"copy", m_copy, ""},    {"fromkeys", m_absent, NULL},
        {"clear", NULL, NULL},   {"pop", NULL, NULL},
        {"popitem", NULL, NULL}, {"setdefault", NULL, NULL},
        {"update", NULL, NULL},
    };
    const jfunction *f = jfind(methods, RAD_COUNT(methods), name, len);
    if (!f) return (jval){.type = J_UNSET};
    return f->call ? bound(c, v, f) : jundefined("a method that changes a dict");
}

/* ---- list, tuple ---- */

METHOD(list_count)
{
    UNUSED;
    int64_t n = 0;
    for (uint32_t i = 0; i < self.u.l->len; i++)
        n += jequal(c, self.u.l->items[i], args[0]);
    return jint(n);
}

METHOD(list_index)
{
    UNUSED;
    for (uint32_t i = 0; i < self.u.l->len; i++)
        if (jequal(c, self.u.l->items[i], args[0])) return jint(i);
    jinja_fail(c, RAD_E_INVAL, "index: the item is not there");
}

METHOD(list_copy)
{
    UNUSED;
    jval copy = jlist_new(c, LIST, self.u.l->len);
    for (uint32_t i = 0; i < self.u.l->len; i++)
        jlist_push(c, copy.u.l, self.u.l->items[i]);
    return copy;
}

jval jlist_method(jctx *c, jval v, const char *name, size_t len)
{
    static const jfunction methods[] = {
        {"count", m_list_count, "value"},
        {"index", m_list_index, "value"},
        {"copy", m_list_copy, ""},
        {"append", NULL, NULL},
        {"clear", NULL, NULL},
        {"extend", NULL, NULL},
        {"insert", NULL, NULL},
        {"pop", NULL, NULL},
        {"remove", NULL, NULL},
        {"reverse", NULL, NULL},
        {"sort", NULL, NULL},
    };
    bool list = v.u.l->kind == LIST;
    const jfunction *f = list || v.u.l->kind == TUPLE || v.u.l->kind == RANGE
                             ? jfind(methods, list ? RAD_COUNT(methods) : 2, name, len)
                             : NULL;
    if (!f) return (jval){.type = J_UNSET};
    return f->call ? bound(c, v, f) : jundefined("a method that changes a list");
}

/* ---- numbers ---- */

METHOD(is_integer)
{
    UNUSED;
    return jbool(jis_int(self) ||
                 self.u.f == (double)(int64_t)RAD_MAX(RAD_MIN(self.u.f, 9e18), -9e18));
}

jval jnumber_method(jctx *c, jval v, const char *name, size_t len)
{
    static const jfunction methods[] = {
        {"is_integer", m_is_integer, ""}, {"as_integer_ratio", m_absent, NULL},
        {"bit_count", m_absent, NULL},    {"bit_length", m_absent, NULL},
        {"conjugate", m_absent, NULL},    {"hex", m_absent, NULL},
    };
    if (v.type != J_FLOAT) return (jval){.type = J_UNSET};
    const jfunction *f = jfind(methods, RAD_COUNT(methods), name, len);
    return f ? bound(c, v, f) : (jval){.type = J_UNSET};
}
