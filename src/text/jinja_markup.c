/* jinja_markup.c - Markup: text that |safe or |escape made.
 *
 * Templates of chats are rendered without autoescaping, so Markup changes nothing where it is
 * printed. But it is what Python's markupsafe has: what joins it is escaped, unless it is Markup
 * itself, and most methods of it give Markup again:
 *
 *     "<b>"|safe + "<i>"        "<b>&lt;i&gt;", Markup
 *     "<b>"|safe ~ "<i>"        "<b><i>", a str: ~ prints its operands
 *     ("<b>"|safe).upper()      "<B>", Markup; so are its slices and the parts of split()
 *     ("a<b"|safe).replace("<", "-")    looks for "&lt;": arguments are escaped, too
 *
 * The flag is part of the string; jsub and jchange_case keep it. */
#include "text/jinja_filters.h"

static jval flagged(jctx *c, const jstr *s, bool markup)
{
    jstr *copy = jalloc(c, 1, sizeof *copy);
    *copy = *s;
    copy->markup = markup;
    return (jval){.type = J_STR, .u.s = copy};
}

jval jmarkup(jctx *c, const jstr *s)
{
    return s->markup ? (jval){.type = J_STR, .u.s = s} : flagged(c, s, true);
}

jval jplain(jctx *c, const jstr *s)
{
    return s->markup ? flagged(c, s, false) : (jval){.type = J_STR, .u.s = s};
}

jval jlike(jctx *c, const jstr *self, jval v)
{
    return self->markup ? jmarkup(c, v.u.s) : v;
}

static const char *entity(char ch)
{
    switch (ch) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&#34;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

static jval escape(jctx *c, const jstr *s)
{
    jbuf b = {.c = c};
    size_t start = 0;
    jwork(c, (uint64_t)s->len * JINJA_LOOK);
    for (size_t at = 0; at < s->len; at++) {
        const char *to = entity(s->p[at]);
        if (!to) continue;
        jbuf_sub(&b, s, start, at - start);
        jbuf_add(&b, to, strlen(to), s->mark ? (jtaint)s->mark[at] : (jtaint)s->taint, NULL);
        start = at + 1;
    }
    jbuf_sub(&b, s, start, s->len - start);
    return jmarkup(c, jbuf_value(&b).u.s);
}

const jstr *jescaped(jctx *c, jval v)
{
    const jstr *s = jshow(c, v);
    return s->markup ? s : escape(c, s).u.s;
}

const jstr *jargument(jctx *c, const jstr *self, jval v, const char *who)
{
    const jstr *s = jwant_str(c, v, who);
    return self->markup ? jescaped(c, v) : s;
}

/* ---- filters and a test ---- */

jval jfilter_safe(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return jmarkup(c, jshow(c, self));
}

jval jfilter_escape(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return (jval){.type = J_STR, .u.s = jescaped(c, self)};
}

jval jfilter_forceescape(jctx *c, jval self, const jval *args, const jargs *all)
{
    (void)args, (void)all;
    return escape(c, jshow(c, self));
}
