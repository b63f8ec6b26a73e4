/* jinja_str_parts.c - the methods of str that look for a text in it, and cut it there. */
#include "text/jinja_methods.h"

#include "base/utf8.h"

/* By white space: no empty parts. From the right the remainder is at the front. */
static jval split_space(jctx *c, const jstr *s, int64_t most, bool right)
{
    jval parts = jlist_new(c, LIST, 0);
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
            jwork(c, JINJA_CHAR);
            if (jis_space(ch.code)) break;
            at = right ? from : at + ch.len;
        }
        jlist_push(c, parts.u.l, right ? jsub(c, s, at, s->len - at) : jsub(c, s, 0, at));
        jval rest = right ? jsub(c, s, 0, at) : jsub(c, s, at, s->len - at);
        s = jstrip(c, rest.u.s, NULL, !right, right).u.s;
    }
    return parts;
}

static jval split_by(jctx *c, const jstr *s, const jstr *by, int64_t most, bool right)
{
    jval parts = jlist_new(c, LIST, 0);
    size_t start = 0, end = s->len;
    if (!by->len) jinja_fail(c, RAD_E_INVAL, "split: the separator is empty");
    while (most < 0 || (int64_t)parts.u.l->len < most) {
        const char *at = right ? jfind_last(c, s->p, end, by)
                               : jfind_text(c, s->p + start, end - start, by);
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

STR_METHOD(split)
{
    UNUSED;
    return split(c, self, args, false);
}
STR_METHOD(rsplit)
{
    UNUSED;
    return split(c, self, args, true);
}

STR_METHOD(splitlines)
{
    UNUSED;
    return jsplit_lines(c, self.u.s, args[0].type != J_UNSET && jtrue(args[0]));
}

static jval partition(jctx *c, jval self, const jval *args, bool right)
{
    const jstr *s = self.u.s, *by = jargument(c, s, args[0], "partition");
    if (!by->len) jinja_fail(c, RAD_E_INVAL, "partition: the separator is empty");
    const char *at = right ? jfind_last(c, s->p, s->len, by) : jfind_text(c, s->p, s->len, by);
    jval three = jlist_new(c, TUPLE, 3), none = jlike(c, s, jtext(c, ""));
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

STR_METHOD(partition)
{
    UNUSED;
    return partition(c, self, args, false);
}
STR_METHOD(rpartition)
{
    UNUSED;
    return partition(c, self, args, true);
}

/* The part of self between args[1] and args[2], characters; *at: where it begins. False: it
 * begins behind the end, where not even "" is found. */
static bool window(jctx *c, jval self, const jval *args, jstr *part, size_t *at)
{
    if (!some(args[1]) && !some(args[2])) {
        *part = *self.u.s;
        *at = 0;
        return true;
    }
    jwork(c, (uint64_t)self.u.s->len * (JINJA_LOOK * 3 / 2));
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
    const char *p = right ? jfind_last(c, part.p, part.len, what)
                          : jfind_text(c, part.p, part.len, what);
    if (!p) return -1;
    return jlength(c, jsub(c, self.u.s, 0, at + (size_t)(p - part.p)));
}

STR_METHOD(find)
{
    UNUSED;
    return jint(find(c, self, args, false));
}
STR_METHOD(rfind)
{
    UNUSED;
    return jint(find(c, self, args, true));
}

STR_METHOD(index)
{
    UNUSED;
    int64_t at = find(c, self, args, false);
    if (at < 0) jinja_fail(c, RAD_E_INVAL, "index: the text is not there");
    return jint(at);
}

STR_METHOD(rindex)
{
    UNUSED;
    int64_t at = find(c, self, args, true);
    if (at < 0) jinja_fail(c, RAD_E_INVAL, "rindex: the text is not there");
    return jint(at);
}

STR_METHOD(count)
{
    UNUSED;
    const jstr *what = jwant_str(c, args[0], "count");
    jstr part;
    size_t at, n = 0;
    if (!window(c, self, args, &part, &at)) return jint(0);
    if (!what->len) return jint(jlength(c, (jval){.type = J_STR, .u.s = &part}) + 1);
    for (size_t i = 0;; n++) {
        const char *p = jfind_text(c, part.p + i, part.len - i, what);
        if (!p) return jint((int64_t)n);
        i = (size_t)(p - part.p) + what->len;
    }
}

static bool begins_one(jctx *c, const jstr *s, jval with, bool end)
{
    const jstr *part = jwant_str(c, with, end ? "endswith" : "startswith");
    jwork(c, JINJA_CALL + RAD_MIN(s->len, part->len));
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

STR_METHOD(startswith)
{
    UNUSED;
    jstr part;
    size_t at;
    return jbool(window(c, self, args, &part, &at) && begins(c, &part, args[0], false));
}

STR_METHOD(endswith)
{
    UNUSED;
    jstr part;
    size_t at;
    return jbool(window(c, self, args, &part, &at) && begins(c, &part, args[0], true));
}

STR_METHOD(removeprefix)
{
    UNUSED;
    const jstr *s = jplain(c, self.u.s).u.s, *part = jwant_str(c, args[0], "removeprefix");
    size_t from = begins(c, s, args[0], false) ? part->len : 0;
    return jsub(c, s, from, s->len - from);
}

STR_METHOD(removesuffix)
{
    UNUSED;
    const jstr *s = jplain(c, self.u.s).u.s, *part = jwant_str(c, args[0], "removesuffix");
    return jsub(c, s, 0, s->len - (begins(c, s, args[0], true) ? part->len : 0));
}
