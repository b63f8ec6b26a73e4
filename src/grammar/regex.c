/* regex.c - a regular expression becomes a fragment, read from left to right by descent. */
#include "grammar/regex.h"

#include "base/utf8.h"

enum { MOST_DEPTH = 250, MOST_REPEATS = 1 << 30 };

typedef struct reader {
    gr_builder *b;
    nfa *n;
    const char *text;
    size_t len, i, at;
    chars_form form;
    unsigned depth;
} reader;

static void refuse(reader *r, rad_status status, size_t i, const char *what)
{
    builder_refuse(r->b, status, r->at + i, what);
}

static bool more(const reader *r)
{
    return r->i < r->len && !r->b->mem.status;
}

static int look(const reader *r, size_t ahead)
{
    return r->i + ahead < r->len ? (unsigned char)r->text[r->i + ahead] : -1;
}

/* ---- escapes and classes ---- */

static int hex_digit(int c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(reader *r, unsigned digits, uint32_t *code)
{
    *code = 0;
    for (unsigned k = 0; k < digits; k++) {
        int digit = hex_digit(look(r, k));
        if (digit < 0) return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    r->i += digits;
    return true;
}

static bool read_unicode(reader *r, uint32_t *code) /* behind \u */
{
    if (look(r, 0) == '{') {
        uint32_t digits = 0;
        *code = 0;
        for (r->i++; hex_digit(look(r, 0)) >= 0 && digits < 7; r->i++, digits++)
            *code = *code << 4 | (uint32_t)hex_digit(look(r, 0));
        if (!digits || look(r, 0) != '}' || *code > CHARS_LAST) return false;
        r->i++;
    } else if (!read_hex(r, 4, code)) {
        return false;
    }
    if (*code >= 0xd800 && *code < 0xdc00 && look(r, 0) == '\\' && look(r, 1) == 'u') {
        uint32_t low;
        r->i += 2;
        if (!read_hex(r, 4, &low) || low < 0xdc00 || low > 0xdfff) return false;
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    }
    return *code < 0xd800 || *code > 0xdfff;
}

/* \d and its kin. False: it is none of them. */
static bool read_kind(reader *r, int c, char_set *set)
{
    char_set some;
    chars_init(&some, &r->b->mem);
    switch (c | 0x20) {
    case 'd': chars_add(&some, '0', '9'); break;
    case 'w':
        chars_add(&some, '0', '9');
        chars_add(&some, 'A', 'Z');
        chars_add(&some, '_', '_');
        chars_add(&some, 'a', 'z');
        break;
    case 's':
        chars_add(&some, '\t', '\r');
        chars_add(&some, ' ', ' ');
        break;
    case 'p': {
        size_t begin = r->i + 1, end = begin;
        while (look(r, 0) == '{' && end < r->len && r->text[end] != '}')
            end++;
        if (look(r, 0) != '{' || end == r->len) {
            refuse(r, RAD_E_UNSUPPORTED, r->i, "\\p is followed by a name in braces, as {Lu}");
            break;
        }
        if (!regex_property(&some, r->text + begin, end - begin))
            refuse(
                r, RAD_E_UNSUPPORTED, r->i,
                "\\p{...} names no general category of Unicode, nor one of the properties that are "
                "served");
        r->i = end + 1;
        break;
    }
    default: return false;
    }
    if (c >= 'A' && c <= 'Z') chars_invert(&some);
    chars_add_all(set, &some);
    chars_fini(&some);
    return true;
}

/* Behind a backslash: one character, or (true in *kind) a set that was added to `set`. */
static bool read_escape(reader *r, char_set *set, uint32_t *code, bool *kind, bool in_class)
{
    size_t begin = r->i - 1;
    int c = look(r, 0);
    *kind = false;
    if (c < 0) {
        refuse(r, RAD_E_INVAL, begin, "a backslash at the end");
        return false;
    }
    if (c >= 0x80) { /* the character itself */
        utf8_char u = utf8_next((const unsigned char *)r->text + r->i, r->len - r->i);
        r->i += u.len;
        *code = u.code;
        if (!u.valid) refuse(r, RAD_E_INVAL, begin, "this is not UTF-8");
        return u.valid;
    }
    r->i++;
    static const char letters[] = "nrtfv", codes[] = "\n\r\t\f\v";
    const char *known = strchr(letters, c);
    if (known) {
        *code = (unsigned char)codes[known - letters];
        return true;
    }
    if (c == '0' && !(look(r, 0) >= '0' && look(r, 0) <= '9')) {
        *code = 0;
        return true;
    }
    if (c == 'b' && in_class) {
        *code = '\b';
        return true;
    }
    if (c == 'x' || c == 'u') {
        if (c == 'x' ? read_hex(r, 2, code) : read_unicode(r, code)) return true;
        refuse(r, RAD_E_INVAL, begin, "this escape names no character");
        return false;
    }
    if (c == 'c') {
        int letter = look(r, 0) | 0x20;
        if (letter >= 'a' && letter <= 'z') {
            r->i++;
            *code = (uint32_t)letter & 0x1f;
            return true;
        }
    }
    if (read_kind(r, c, set)) {
        *kind = true;
        return !r->b->mem.status;
    }
    bool letter = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (!letter) {
        *code = (uint32_t)c;
        return true;
    }
    refuse(r, RAD_E_UNSUPPORTED, begin,
           c == 'b' || c == 'B'   ? "word borders (\\b) are not served"
           : c >= '1' && c <= '9' ? "backreferences are not served"
           : c == 'k'             ? "backreferences are not served"
                                  : "this escape is not served");
    return false;
}

static bool read_char(reader *r, uint32_t *code)
{
    utf8_char c = utf8_next((const unsigned char *)r->text + r->i, r->len - r->i);
    if (!c.valid) {
        refuse(r, RAD_E_INVAL, r->i, "this is not UTF-8");
        return false;
    }
    r->i += c.len;
    *code = c.code;
    return true;
}

/* One item of a class. */
static bool read_item(reader *r, char_set *set, uint32_t *code, bool *kind)
{
    *kind = false;
    if (look(r, 0) == '\\') {
        r->i++;
        return read_escape(r, set, code, kind, true);
    }
    if (look(r, 0) == '[' && look(r, 1) == ':') {
        refuse(r, RAD_E_UNSUPPORTED, r->i, "named classes as [:alpha:] are not served");
        return false;
    }
    return read_char(r, code);
}

static bool read_class(reader *r, char_set *set)
{
    size_t begin = r->i - 1;
    bool inverted = look(r, 0) == '^', any = false;
    r->i += inverted;
    while (more(r) && look(r, 0) != ']') {
        uint32_t lo, hi;
        bool kind;
        any = true;
        if (!read_item(r, set, &lo, &kind)) return false;
        if (kind || look(r, 0) != '-' || look(r, 1) == ']') {
            if (!kind) chars_add(set, lo, lo);
            continue;
        }
        size_t dash = r->i++;
        if (!more(r)) break;
        if (!read_item(r, set, &hi, &kind)) return false;
        if (kind || hi < lo) {
            refuse(r, RAD_E_INVAL, dash, "the range of this class is upside down");
            return false;
        }
        chars_add(set, lo, hi);
    }
    if (r->b->mem.status) return false;
    if (r->i >= r->len || !any) {
        refuse(r, RAD_E_INVAL, begin, any ? "this class has no end" : "this class is empty");
        return false;
    }
    r->i++;
    if (inverted) chars_invert(set);
    return !r->b->mem.status;
}

bool regex_class(gr_builder *b, const char *text, size_t len, size_t *i, char_set *set, size_t at)
{
    reader r = {.b = b, .n = &b->n, .text = text, .len = len, .i = *i, .at = at};
    bool ok = read_class(&r, set);
    *i = r.i;
    return ok;
}

/* ---- quantifiers ---- */

static bool read_number(reader *r, uint32_t *number)
{
    size_t begin = r->i;
    uint64_t n = 0;
    for (int c; (c = look(r, 0)) >= '0' && c <= '9'; r->i++)
        n = RAD_MIN(n * 10 + (uint64_t)(c - '0'), (uint64_t)UINT32_MAX);
    *number = (uint32_t)n;
    return r->i > begin;
}

static bool read_counts(reader *r, uint32_t *min, uint32_t *max)
{
    size_t begin = r->i++;
    bool ok = read_number(r, min);
    *max = *min;
    if (ok && look(r, 0) == ',') {
        r->i++;
        if (!read_number(r, max)) *max = UINT32_MAX;
    }
    if (!ok || look(r, 0) != '}') {
        r->i = begin;
        return false;
    }
    r->i++;
    if (*max < *min)
        refuse(r, RAD_E_INVAL, begin, "the most times are fewer than the fewest");
    else if (*min > MOST_REPEATS || (*max != UINT32_MAX && *max > MOST_REPEATS))
        refuse(r, RAD_E_LIMIT, begin, "no more than 1073741824 times are served");
    return true;
}

bool regex_counts(gr_builder *b, const char *text, size_t len, size_t *i, uint32_t *min,
                  uint32_t *max, size_t at)
{
    reader r = {.b = b, .n = &b->n, .text = text, .len = len, .i = *i, .at = at};
    bool is = look(&r, 0) == '{' && read_counts(&r, min, max);
    *i = r.i;
    return is;
}

static bool read_quantifier(reader *r, uint32_t *min, uint32_t *max)
{
    int c = look(r, 0);
    size_t begin = r->i;
    switch (c) {
    case '*':
    case '+':
    case '?':
        r->i++;
        *min = c == '+';
        *max = c == '?' ? 1 : UINT32_MAX;
        break;
    case '{':
        if (!read_counts(r, min, max)) {
            refuse(r, RAD_E_UNSUPPORTED, begin, "a { that begins no quantifier is written \\{");
            return false;
        }
        break;
    default: return false;
    }
    if (look(r, 0) == '?') r->i++; /* lazy: other matches of a text, and the same texts */
    if (look(r, 0) == '+')
        refuse(r, RAD_E_UNSUPPORTED, r->i, "possessive quantifiers are not served");
    if (look(r, 0) == '*' || look(r, 0) == '?')
        refuse(r, RAD_E_INVAL, r->i, "a quantifier of a quantifier");
    return !r->b->mem.status;
}

/* ---- expressions ---- */

static nfa_frag read_alternatives(reader *r);

static nfa_frag read_group(reader *r)
{
    size_t begin = r->i++;
    if (look(r, 0) == '?') {
        int c = look(r, 1), d = look(r, 2);
        if (c == ':') {
            r->i += 2;
        } else if ((c == '<' && d != '=' && d != '!') || (c == 'P' && d == '<')) {
            while (more(r) && look(r, 0) != '>')
                r->i++;
            r->i++;
        } else {
            refuse(r, RAD_E_UNSUPPORTED, begin,
                   c == '=' || c == '!'   ? "lookahead is not served"
                   : c == '<'             ? "lookbehind is not served"
                   : c == '>'             ? "atomic groups are not served"
                   : c == 'P' || c == '(' ? "this group is not served"
                                          : "flags are not served");
            return nfa_nothing(r->n);
        }
    }
    if (++r->depth > MOST_DEPTH) {
        refuse(r, RAD_E_LIMIT, begin, "groups are nested too deep");
        return nfa_nothing(r->n);
    }
    nfa_frag f = read_alternatives(r);
    r->depth--;
    if (!r->b->mem.status && look(r, 0) != ')')
        refuse(r, RAD_E_INVAL, begin, "this group has no end");
    r->i++;
    return f;
}

static nfa_frag read_set(reader *r, int c)
{
    char_set set;
    uint32_t code = 0;
    bool kind = true;
    nfa_frag f = {0};
    chars_init(&set, &r->b->mem);
    r->i++;
    if (c == '.') {
        static const char ends[] = "\n\r";
        for (const char *e = ends; *e; e++)
            chars_add(&set, (unsigned char)*e, (unsigned char)*e);
        chars_add(&set, 0x2028, 0x2029);
        chars_invert(&set);
    } else if (c == '[') {
        read_class(r, &set);
    } else {
        read_escape(r, &set, &code, &kind, false);
    }
    if (r->b->mem.status || kind) {
        f = chars_frag(r->n, &set, r->form);
    } else {
        f = nfa_nothing(r->n);
        f.out = chars_append(r->n, f.out, code, r->form);
    }
    chars_fini(&set);
    return f;
}

static bool is_plain(int c)
{
    return c == 0 || (c > 0 && !strchr(".[\\(){|^$*+?", c));
}

/* Characters that stand for themselves, up to the last one before a quantifier. */
static nfa_frag read_plain(reader *r)
{
    nfa_frag f = nfa_nothing(r->n);
    size_t begin = r->i;
    while (more(r) && is_plain(look(r, 0))) {
        size_t before = r->i;
        uint32_t code;
        if (!read_char(r, &code)) break;
        int c = look(r, 0);
        if (before > begin && (c == '*' || c == '+' || c == '?' || c == '{')) {
            r->i = before; /* the quantifier is of this one alone */
            break;
        }
        f.out = chars_append(r->n, f.out, code, r->form);
    }
    return f;
}

static nfa_frag read_atom(reader *r)
{
    int c = look(r, 0);
    switch (c) {
    case '(': return read_group(r);
    case '.':
    case '[':
    case '\\': return read_set(r, c);
    case '^':
    case '$': r->i++; return nfa_anchor(r->n, c == '^' ? NFA_BEGIN : NFA_END);
    case '*':
    case '+':
    case '?': refuse(r, RAD_E_INVAL, r->i, "there is nothing to repeat"); break;
    case '{':
        refuse(r, RAD_E_UNSUPPORTED, r->i, "a { that begins no quantifier is written \\{");
        break;
    default: return read_plain(r);
    }
    return nfa_nothing(r->n);
}

/* What is built aside becomes an automaton of its own, without calls. */
static nfa_frag times(reader *r, nfa_frag f, uint32_t min, uint32_t max)
{
    const bool aside = r->n != &r->b->n;
    return aside ? nfa_repeat(r->n, f, min, max) : builder_times(r->b, f, min, max);
}

static nfa_frag read_branch(reader *r)
{
    nfa_frag f = {0};
    bool any = false;
    while (more(r) && look(r, 0) != '|' && look(r, 0) != ')') {
        uint32_t min, max;
        nfa_frag next = read_atom(r);
        if (more(r) && read_quantifier(r, &min, &max)) next = times(r, next, min, max);
        f = any ? nfa_concat(r->n, f, next) : next;
        any = true;
    }
    return any ? f : nfa_nothing(r->n);
}

static nfa_frag read_alternatives(reader *r)
{
    nfa_frag f = read_branch(r);
    if (look(r, 0) != '|') return f;
    uint32_t in = nfa_state(r->n), out = nfa_state(r->n);
    nfa_empty(r->n, in, f.in);
    nfa_empty(r->n, f.out, out);
    while (more(r) && look(r, 0) == '|') {
        r->i++;
        nfa_frag next = read_branch(r);
        nfa_empty(r->n, in, next.in);
        nfa_empty(r->n, next.out, out);
    }
    f.in = in;
    f.out = out;
    return f;
}

nfa_frag regex_frag(gr_builder *b, nfa *n, const char *text, size_t len, chars_form form, size_t at)
{
    reader r = {.b = b, .n = n, .text = text, .len = len, .at = at, .form = form};
    nfa_frag f = read_alternatives(&r);
    if (!b->mem.status && r.i < len) refuse(&r, RAD_E_INVAL, r.i, "a ) without its (");
    return f;
}

bool regex_dfa(gr_builder *b, dfa *d, const char *text, size_t len, chars_form form, bool whole)
{
    nfa n;
    if (regex_looks(text, len)) return regex_look_dfa(b, d, text, len, form, whole);
    nfa_init(&n, &b->mem, b->n.bytes);
    nfa_frag f = {0};
    if (whole) {
        f = regex_frag(b, &n, text, len, form, 0);
    } else { /* anything, a match, anything */
        for (int i = 0; i < 3; i++) {
            nfa_frag next;
            if (i == 1) {
                next = regex_frag(b, &n, text, len, form, 0);
            } else {
                char_set any;
                chars_init(&any, &b->mem);
                chars_add(&any, 0, CHARS_LAST);
                next = nfa_repeat(&n, chars_frag(&n, &any, form), 0, UINT32_MAX);
                chars_fini(&any);
            }
            f = i ? nfa_concat(&n, f, next) : next;
        }
    }
    *d = (dfa){0};
    bool ok = !b->mem.status && dfa_make(d, &n, f);
    nfa_fini(&n);
    return ok;
}

rad_status regex_build(gr_builder *b, const char *text, size_t len, uint32_t *root)
{
    dfa d;
    *root = builder_rule(b);
    if (!regex_looks(text, len)) {
        builder_define(b, *root, regex_frag(b, &b->n, text, len, CHARS_UTF8, 0));
    } else if (regex_look_dfa(b, &d, text, len, CHARS_UTF8, true)) {
        builder_define(b, *root, dfa_embed(&b->n, &d));
        dfa_fini(&d);
    }
    return b->mem.status;
}
