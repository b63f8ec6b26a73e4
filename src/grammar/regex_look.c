/* regex_look.c - expressions with lookahead.
 *
 * Behind a lookahead stands the rest of the text, and that it must begin with a match, or must not,
 * says which rests are wanted:
 *
 *     a(?=b)c|d     texts of c with those of b.* in common, and a before them; or d
 *
 * So an alternative is made from its end to its beginning, piece by piece, each as the automaton of
 * the piece and all that follows: pieces without lookahead are what regex.c reads in them, followed
 * by that automaton, and a lookahead is an intersection, or a difference. What follows a group
 * follows each of its alternatives.
 *
 * A group that is repeated without end would follow itself; it is refused, and so is ^ where
 * something may stand before it. */
#include "grammar/regex.h"

enum { MOST_LOOK_DEPTH = 20, MOST_PIECES = 64, MOST_TIMES = 16 };

typedef struct looker {
    gr_builder *b;
    const char *text;
    chars_form form;
    unsigned depth;
    dfa any; /* all texts */
} looker;

typedef enum piece_kind { PLAIN, GROUP, AHEAD, NOT_AHEAD } piece_kind;

typedef struct piece {
    piece_kind kind;
    size_t from, to;   /* of what a group encloses, or the whole piece */
    uint32_t min, max; /* times */
} piece;

static bool refuse(looker *l, rad_status status, size_t i, const char *what)
{
    builder_refuse(l->b, status, i, what);
    return false;
}

/* Behind the escape, the class or the character at text[i]. */
static size_t skip(const char *text, size_t i, size_t to)
{
    if (text[i] == '\\') return RAD_MIN(i + 2, to);
    if (text[i] != '[') return i + 1;
    for (i++; i < to && text[i] != ']';)
        i += text[i] == '\\' ? 2 : 1;
    return RAD_MIN(i + 1, to);
}

static bool is_look(const char *text, size_t i, size_t to)
{
    return i + 2 < to && text[i] == '(' && text[i + 1] == '?' &&
           (text[i + 2] == '=' || text[i + 2] == '!');
}

bool regex_looks(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i = skip(text, i, len))
        if (is_look(text, i, len)) return true;
    return false;
}

/* The ) of the group that begins at text[i]; `to`: it has none. */
static size_t group_end(const char *text, size_t i, size_t to)
{
    size_t depth = 0;
    for (; i < to; i = skip(text, i, to)) {
        depth += text[i] == '(';
        if (text[i] == ')' && !--depth) return i;
    }
    return to;
}

/* Texts of f, and then of `after`. */
static bool append(looker *l, nfa *n, nfa_frag f, const dfa *after, dfa *out)
{
    *out = (dfa){0};
    if (!l->b->mem.status) f = nfa_concat(n, f, dfa_embed(n, after));
    return !l->b->mem.status && dfa_make(out, n, f);
}

/* `d` and `other` become `d`. */
static bool join(looker *l, dfa *d, const dfa *other)
{
    nfa n;
    dfa both = {0};
    nfa_init(&n, &l->b->mem, l->b->n.bytes);
    const bool ok = !l->b->mem.status &&
                    dfa_make(&both, &n, nfa_either(&n, dfa_embed(&n, d), dfa_embed(&n, other)));
    nfa_fini(&n);
    dfa_fini(d);
    *d = both;
    return ok;
}

/* ---- pieces ---- */

static bool read_times(looker *l, size_t *i, size_t to, piece *p)
{
    const size_t begin = *i;
    const char c = begin < to ? l->text[begin] : 0;
    p->min = p->max = 1;
    if (c == '?') {
        p->min = 0;
        ++*i;
    } else if (c == '*' || c == '+') {
        p->max = UINT32_MAX;
    } else if (c == '{') {
        regex_counts(l->b, l->text, to, i, &p->min, &p->max, 0);
    }
    if (*i > begin && *i < to && l->text[*i] == '?') ++*i; /* lazy */
    if ((p->kind == AHEAD || p->kind == NOT_AHEAD) && (p->min != 1 || p->max != 1))
        return refuse(l, RAD_E_UNSUPPORTED, begin, "a lookahead that is repeated is not served");
    if (p->max > MOST_TIMES)
        return refuse(l, RAD_E_UNSUPPORTED, begin,
                      "lookahead in a group that is repeated as often is not served");
    return !l->b->mem.status;
}

/* The group at text[i], in which a lookahead is or which is one; *next: behind it. */
static bool read_group(looker *l, size_t i, size_t to, piece *p, size_t *next)
{
    const size_t end = group_end(l->text, i, to);
    const char *text = l->text;
    if (end == to) return refuse(l, RAD_E_INVAL, i, "this group has no end");
    p->kind = GROUP;
    p->from = i + 1;
    p->to = end;
    if (is_look(text, i, to)) {
        p->kind = text[i + 2] == '=' ? AHEAD : NOT_AHEAD;
        p->from = i + 3;
    } else if (i + 2 < to && text[i + 1] == '?' && text[i + 2] == ':') {
        p->from = i + 3;
    } else if (text[i + 1] == '?') { /* (?<name>...) */
        while (p->from < end && text[p->from] != '>')
            p->from++;
        if (p->from == end || text[i + 2] != '<')
            return refuse(l, RAD_E_UNSUPPORTED, i, "this group is not served beside lookahead");
        p->from++;
    }
    *next = end + 1;
    return read_times(l, next, to, p);
}

/* Of an alternative: groups with lookahead, and what lies between them. */
static bool read_pieces(looker *l, size_t from, size_t to, piece *pieces, uint32_t *count)
{
    size_t plain = from;
    *count = 0;
    for (size_t i = from; i <= to;) {
        const bool group = i < to && l->text[i] == '(';
        const size_t end = group ? group_end(l->text, i, to) : i;
        if (group && end == to) return refuse(l, RAD_E_INVAL, i, "this group has no end");
        const bool looks = group && regex_looks(l->text + i, end - i);
        if (i < to && !looks) {
            i = group ? end + 1 : skip(l->text, i, to);
            continue;
        }
        if (*count + 2 > MOST_PIECES)
            return refuse(l, RAD_E_LIMIT, i, "there are too many lookaheads");
        if (i > plain) pieces[(*count)++] = (piece){PLAIN, plain, i, 1, 1};
        if (i == to) break;
        if (!read_group(l, i, to, &pieces[(*count)++], &i)) return false;
        plain = i;
    }
    return true;
}

/* ---- automata ---- */

static bool make(looker *l, size_t from, size_t to, bool first, const dfa *after, dfa *out);

/* first: nothing stands before it in any text, so that a ^ says nothing. */
static bool make_plain(looker *l, const piece *p, bool first, const dfa *after, dfa *out)
{
    nfa n;
    const size_t from = p->from + (first && p->from < p->to && l->text[p->from] == '^');
    for (size_t i = from; i < p->to; i = skip(l->text, i, p->to))
        if (l->text[i] == '^')
            return refuse(l, RAD_E_UNSUPPORTED, i,
                          "beside lookahead ^ is served at the beginning of the expression");
    nfa_init(&n, &l->b->mem, l->b->n.bytes);
    nfa_frag f = regex_frag(l->b, &n, l->text + from, p->to - from, l->form, from);
    const bool ok = append(l, &n, f, after, out);
    nfa_fini(&n);
    return ok;
}

static bool make_look(looker *l, const piece *p, bool first, const dfa *after, dfa *out)
{
    dfa match;
    if (!make(l, p->from, p->to, first, &l->any, &match)) return false;
    const bool ok = p->kind == AHEAD ? dfa_both(out, after, &match)
                                     : dfa_without(out, after, &match);
    dfa_fini(&match);
    return ok;
}

/* `out` stands for what is left when so many of them have been read, the last ones first. */
static bool make_group(looker *l, const piece *p, bool first, const dfa *after, dfa *out)
{
    dfa rest;
    bool ok = dfa_both(&rest, after, after);
    for (uint32_t i = p->max; i-- > 0 && ok;) {
        dfa one;
        ok = make(l, p->from, p->to, first && !i, &rest, &one);
        dfa_fini(&rest);
        rest = one;
        if (ok && i >= p->min) ok = join(l, &rest, after);
    }
    if (!ok) dfa_fini(&rest);
    *out = rest;
    return ok;
}

static bool make_piece(looker *l, const piece *p, bool first, const dfa *after, dfa *out)
{
    *out = (dfa){0};
    switch (p->kind) {
    case PLAIN: return make_plain(l, p, first, after, out);
    case GROUP: return make_group(l, p, first, after, out);
    default: return make_look(l, p, first, after, out);
    }
}

static bool make_alternative(looker *l, size_t from, size_t to, bool first, const dfa *after,
                             dfa *out)
{
    piece pieces[MOST_PIECES];
    uint32_t count, looks = 0;
    *out = (dfa){0};
    from += first && from < to && l->text[from] == '^';
    bool ok = read_pieces(l, from, to, pieces, &count) && dfa_both(out, after, after);
    while (ok && looks < count && pieces[looks].kind != PLAIN && pieces[looks].kind != GROUP)
        looks++; /* that read nothing: what follows them is as far in front */
    while (count-- > 0 && ok) {
        dfa more;
        ok = make_piece(l, &pieces[count], first && count <= looks, out, &more);
        dfa_fini(out);
        *out = more;
    }
    return ok;
}

/* Texts of text[from..to), and then of `after`. */
static bool make(looker *l, size_t from, size_t to, bool first, const dfa *after, dfa *out)
{
    bool ok = true, any = false;
    *out = (dfa){0};
    if (!gr_work(&l->b->mem, 4 * (uint64_t)(to - from))) return false; /* all of it is read */
    if (++l->depth > MOST_LOOK_DEPTH)
        return refuse(l, RAD_E_LIMIT, from, "lookaheads are nested too deep");
    for (size_t i = from, begin = from; i <= to && ok;) {
        if (i < to && l->text[i] == '(') {
            i = RAD_MIN(group_end(l->text, i, to) + 1, to);
            continue;
        }
        if (i < to && l->text[i] != '|') {
            i = skip(l->text, i, to);
            continue;
        }
        dfa one;
        ok = make_alternative(l, begin, i, first, after, &one);
        if (any && ok) {
            ok = join(l, out, &one);
            dfa_fini(&one);
        } else {
            dfa_fini(out);
            *out = one;
        }
        any = true;
        begin = ++i;
    }
    l->depth--;
    if (!ok) dfa_fini(out);
    return ok;
}

/* Whether | stands in text[0..len) outside of all groups. */
static bool has_alternatives(const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        if (text[i] == '|') return true;
        i = text[i] == '(' ? group_end(text, i, len) + 1 : skip(text, i, len);
    }
    return false;
}

static bool make_any(looker *l)
{
    nfa n;
    char_set any;
    chars_init(&any, &l->b->mem);
    chars_add(&any, 0, CHARS_LAST);
    nfa_init(&n, &l->b->mem, l->b->n.bytes);
    nfa_frag f = nfa_repeat(&n, chars_frag(&n, &any, l->form), 0, UINT32_MAX);
    const bool ok = !l->b->mem.status && dfa_make(&l->any, &n, f);
    nfa_fini(&n);
    chars_fini(&any);
    return ok;
}

bool regex_look_dfa(gr_builder *b, dfa *d, const char *text, size_t len, chars_form form,
                    bool whole)
{
    looker l = {.b = b, .text = text, .form = form};
    nfa n;
    dfa end = {0}, match = {0};
    const bool begins = len && text[0] == '^' && !has_alternatives(text, len);
    *d = (dfa){0};
    nfa_init(&n, &b->mem, b->n.bytes);
    bool ok = make_any(&l) && dfa_make(&end, &n, nfa_nothing(&n)) &&
              make(&l, 0, len, whole || begins, whole ? &end : &l.any, &match);
    nfa_fini(&n);
    if (ok && !whole && !begins) { /* anything, and then a match */
        nfa_init(&n, &b->mem, b->n.bytes);
        ok = append(&l, &n, dfa_embed(&n, &l.any), &match, d);
        nfa_fini(&n);
    } else if (ok) {
        *d = match;
        match = (dfa){0};
    }
    dfa_fini(&match);
    dfa_fini(&end);
    dfa_fini(&l.any);
    return ok;
}
