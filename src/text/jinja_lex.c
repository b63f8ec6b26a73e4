/* jinja_lex.c - a template's text into tokens, and its white space.
 *
 * What Hugging Face sets is built in: trim_blocks (the newline behind a tag or comment goes),
 * lstrip_blocks (blanks in front of a tag that begins its line go), a `-` takes all space on
 * its side, a `+` keeps what would go. Inside open brackets "}}" and "%}" are two operators. */
#include "text/jinja_ast.h"

#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>

typedef struct lexer {
    jctx *c;
    const char *p;
    size_t len, at;
    uint32_t line;
    jtoken *tokens;
    uint32_t count, cap;
} lexer;

static jtoken *add(lexer *x, jtoken_type type)
{
    if (x->count == x->cap) {
        uint32_t cap = x->cap ? x->cap * 2 : 64;
        jtoken *more = jalloc(x->c, cap, sizeof *more);
        if (x->count) memcpy(more, x->tokens, x->count * sizeof *more);
        x->tokens = more;
        x->cap = cap;
    }
    jtoken *t = &x->tokens[x->count++];
    *t = (jtoken){.type = (uint8_t)type, .line = x->line};
    return t;
}

static _Noreturn void fail(lexer *x, const char *words)
{
    x->c->line = x->line;
    jinja_fail(x->c, RAD_E_FORMAT, "%s", words);
}

static bool sees(const lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);
    return at <= x->len && n <= x->len - at && memcmp(x->p + at, text, n) == 0;
}

static void go_to(lexer *x, size_t to)
{
    for (; x->at < to; x->at++)
        x->line += x->p[x->at] == '\n';
}

/* The first byte at or behind `at` that is no space. */
static size_t skip_space(const lexer *x, size_t at)
{
    while (at < x->len) {
        utf8_char ch = utf8_next((const unsigned char *)x->p + at, x->len - at);
        if (!jis_space(ch.code)) break;
        at += ch.len;
    }
    return at;
}

/* Text from x->at up to a tag at `end` whose sign is `sign` (0: none); `tag`: not {{. */
static void add_data(lexer *x, size_t end, char sign, bool tag)
{
    jstr whole = {.p = x->p + x->at, .len = (uint32_t)(end - x->at)};
    const jstr *s = &whole;
    if (sign == '-') {
        s = jstrip(x->c, s, NULL, false, true).u.s;
    } else if (sign != '+' && tag) {
        size_t line = whole.len;
        while (line > 0 && whole.p[line - 1] != '\n')
            line--;
        bool starts = line > 0 || x->at == 0 || x->p[x->at - 1] == '\n';
        if (starts && skip_space(x, x->at + line) >= end) whole.len = (uint32_t)line;
    }
    if (s->len) {
        jtoken *t = add(x, T_DATA);
        jstr *copy = jalloc(x->c, 1, sizeof *copy);
        *copy = *s;
        t->s = copy;
    }
    go_to(x, end);
}

/* Where a tag's end `mark` stops, if it stands at `at` with or without a sign; 0: it does
 * not. `trim`: the newline behind it goes as well. */
static size_t tag_end(const lexer *x, size_t at, const char *mark, bool trim, bool plus)
{
    if (at < x->len && x->p[at] == '-' && sees(x, at + 1, mark)) return skip_space(x, at + 3);
    if (plus && at < x->len && x->p[at] == '+' && sees(x, at + 1, mark)) return at + 3;
    if (!sees(x, at, mark)) return 0;
    return at + 2 + (trim && at + 2 < x->len && x->p[at + 2] == '\n');
}

static char sign_at(const lexer *x, size_t at)
{
    return at < x->len && (x->p[at] == '-' || x->p[at] == '+') ? x->p[at] : 0;
}

/* Behind "{% raw" or "{% endraw" at `at`, including its end; 0: it is something else. */
static size_t raw_tag(const lexer *x, size_t at, const char *word, bool end)
{
    if (!sees(x, at, "{%")) return 0;
    at += 2;
    if (sign_at(x, at)) at++;
    at = skip_space(x, at);
    if (!sees(x, at, word)) return 0;
    at = skip_space(x, at + strlen(word));
    return tag_end(x, at, "%}", end, end);
}

static void lex_raw(lexer *x, size_t start)
{
    go_to(x, start);
    for (size_t at = x->at; at < x->len; at++) {
        size_t end = x->p[at] == '{' ? raw_tag(x, at, "endraw", true) : 0;
        if (!end) continue;
        add_data(x, at, sign_at(x, at + 2), true);
        go_to(x, end);
        return;
    }
    fail(x, "a raw block without {% endraw %}");
}

static void lex_comment(lexer *x)
{
    size_t at = x->at + 2;
    if (sign_at(x, at)) at++;
    for (; at < x->len; at++) {
        size_t end = tag_end(x, at, "#}", true, true);
        if (!end) continue;
        go_to(x, end);
        return;
    }
    fail(x, "a comment without #}");
}

/* ---- inside a tag ---- */

static bool is_name(char ch)
{
    return isalnum((unsigned char)ch) || ch == '_' || (ch & 0x80);
}

/* Digits, single _ between them; the end. */
static size_t digits(const lexer *x, size_t at)
{
    while (at < x->len && (isdigit((unsigned char)x->p[at]) ||
                           (x->p[at] == '_' && at && isdigit((unsigned char)x->p[at - 1]) &&
                            at + 1 < x->len && isdigit((unsigned char)x->p[at + 1]))))
        at++;
    return at;
}

static void lex_number(lexer *x)
{
    size_t start = x->at, end = digits(x, start);
    bool is_float = false, dotted = start > 0 && x->p[start - 1] == '.';
    if (!dotted && end + 1 < x->len && x->p[end] == '.' && isdigit((unsigned char)x->p[end + 1])) {
        end = digits(x, end + 1);
        is_float = true;
    }
    if (!dotted && end < x->len && (x->p[end] == 'e' || x->p[end] == 'E')) {
        size_t exponent = end + 1 + (end + 1 < x->len && strchr("+-", x->p[end + 1]) != NULL);
        if (exponent < x->len && isdigit((unsigned char)x->p[exponent])) {
            end = digits(x, exponent);
            is_float = true;
        }
    }
    int base = 10;
    if (!is_float && x->p[start] == '0' && end == start + 1 && end + 1 < x->len) {
        char mark = (char)tolower((unsigned char)x->p[end]);
        base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
        if (base != 10)
            for (end++; end < x->len && (isxdigit((unsigned char)x->p[end]) || x->p[end] == '_');)
                end++;
    }
    if (!is_float && base == 10 && x->p[start] == '0') /* 007 is no number; 0 and 00 are */
        for (size_t i = start; i < end; i++)
            if (x->p[i] != '0' && x->p[i] != '_') fail(x, "an integer begins with 0");
    const jstr *s = jsub(x->c, &(jstr){.p = x->p, .len = (uint32_t)x->len}, start, end - start).u.s;
    x->c->line = x->line;
    jval number = is_float ? jparse_float(x->c, s) : jparse_int(x->c, s, base);
    if (number.type == J_UNSET) fail(x, "a number that cannot be read");
    add(x, T_NUMBER)->number = number;
    go_to(x, end);
}

static uint32_t hex(lexer *x, size_t at, size_t count)
{
    uint32_t code = 0;
    for (size_t i = at; i < at + count; i++) {
        if (i >= x->len || !isxdigit((unsigned char)x->p[i])) fail(x, "a broken \\x, \\u or \\U");
        char ch = (char)tolower((unsigned char)x->p[i]);
        code = code * 16 + (uint32_t)(isdigit((unsigned char)ch) ? ch - '0' : ch - 'a' + 10);
    }
    return code;
}

static void put_code(lexer *x, jbuf *b, uint32_t code)
{
    char out[4];
    size_t n;
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail(x, "a \\u that is no character");
    if (code < 0x80) {
        out[0] = (char)code, n = 1;
    } else if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6), out[1] = (char)(0x80 | (code & 0x3f)), n = 2;
    } else if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12), out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f)), n = 3;
    } else {
        out[0] = (char)(0xf0 | code >> 18), out[1] = (char)(0x80 | (code >> 12 & 0x3f));
        out[2] = (char)(0x80 | (code >> 6 & 0x3f)), out[3] = (char)(0x80 | (code & 0x3f)), n = 4;
    }
    jbuf_bytes(b, out, n);
}

/* The escape at `at` (behind the backslash); returns where it ends. */
static size_t lex_escape(lexer *x, jbuf *b, size_t at)
{
    static const char letters[] = "n\nt\tr\r\\\\''\"\"a\ab\bf\fv\v";
    char ch = x->p[at];
    for (const char *l = letters; *l; l += 2)
        if (*l == ch) {
            jbuf_bytes(b, l + 1, 1);
            return at + 1;
        }
    if (ch == '\n') return at + 1;
    if (ch == 'x' || ch == 'u' || ch == 'U') {
        size_t n = ch == 'x' ? 2 : ch == 'u' ? 4 : 8;
        put_code(x, b, hex(x, at + 1, n));
        return at + 1 + n;
    }
    if (ch >= '0' && ch <= '7') {
        uint32_t code = 0;
        size_t end = at;
        while (end < x->len && end < at + 3 && x->p[end] >= '0' && x->p[end] <= '7')
            code = code * 8 + (uint32_t)(x->p[end++] - '0');
        put_code(x, b, code);
        return end;
    }
    if (ch == 'N') fail(x, "\\N{...} is not supported");
    jbuf_text(b, "\\"); /* what follows is itself */
    return at;
}

static void lex_string(lexer *x)
{
    char quote = x->p[x->at];
    jbuf b = {.c = x->c};
    size_t at = x->at + 1, start = at;
    while (at < x->len && x->p[at] != quote) {
        if (x->p[at] != '\\') {
            at++;
            continue;
        }
        jbuf_bytes(&b, x->p + start, at - start);
        if (++at == x->len) break;
        start = at = lex_escape(x, &b, at);
    }
    if (at >= x->len) fail(x, "a string without its closing quote");
    jbuf_bytes(&b, x->p + start, at - start);
    add(x, T_STRING)->s = jbuf_value(&b).u.s;
    go_to(x, at + 1);
}

static void lex_operator(lexer *x, char *brackets, uint32_t *depth)
{
    static const char doubles[] = "//**==!=>=<=";
    char ch = x->p[x->at], next = x->at + 1 < x->len ? x->p[x->at + 1] : 0;
    for (const char *d = doubles; *d; d += 2)
        if (d[0] == ch && d[1] == next) {
            add(x, T_OP)->op = JOP(ch, next);
            go_to(x, x->at + 2);
            return;
        }
    if (!ch || !strchr("+-/*%~[](){}><=.:|,;", ch)) {
        x->c->line = x->line;
        jinja_fail(x->c, RAD_E_FORMAT, "unexpected character '%c'",
                   isprint((unsigned char)ch) ? ch : '?');
    }
    if (strchr("([{", ch)) {
        if (*depth == JINJA_MAX_DEPTH) fail(x, "too many open brackets");
        brackets[(*depth)++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
    } else if (strchr(")]}", ch)) {
        if (!*depth || brackets[--*depth] != ch) {
            x->c->line = x->line;
            jinja_fail(x->c, RAD_E_FORMAT, "unexpected '%c'", ch);
        }
    }
    add(x, T_OP)->op = JOP(ch, 0);
    go_to(x, x->at + 1);
}

/* From behind "{{" or "{%" to behind its end. */
static void lex_tag(lexer *x, bool block)
{
    char brackets[JINJA_MAX_DEPTH];
    uint32_t depth = 0;
    add(x, block ? T_BLOCK_BEGIN : T_VAR_BEGIN);
    go_to(x, x->at + 2 + (sign_at(x, x->at + 2) != 0));
    for (;;) {
        if (x->at == x->len) fail(x, block ? "a tag without %}" : "an expression without }}");
        size_t end = depth ? 0 : tag_end(x, x->at, block ? "%}" : "}}", block, block);
        if (end) {
            add(x, block ? T_BLOCK_END : T_VAR_END);
            go_to(x, end);
            return;
        }
        char ch = x->p[x->at];
        size_t space = skip_space(x, x->at);
        if (space > x->at) {
            go_to(x, space);
        } else if (isdigit((unsigned char)ch)) {
            lex_number(x);
        } else if (is_name(ch)) {
            size_t stop = x->at;
            while (stop < x->len && is_name(x->p[stop]))
                stop++;
            const jstr whole = {.p = x->p, .len = (uint32_t)x->len};
            add(x, T_NAME)->s = jsub(x->c, &whole, x->at, stop - x->at).u.s;
            go_to(x, stop);
        } else if (ch == '\'' || ch == '"') {
            lex_string(x);
        } else {
            lex_operator(x, brackets, &depth);
        }
    }
}

jtoken *jinja_lex(jctx *c, const char *source, size_t len)
{
    lexer x = {.c = c, .p = source, .len = len, .line = 1};
    while (x.at < len) {
        size_t tag = x.at;
        while (tag < len && !(source[tag] == '{' && tag + 1 < len && source[tag + 1] &&
                              strchr("{%#", source[tag + 1])))
            tag++;
        if (tag == len) {
            add_data(&x, len, '+', false);
            break;
        }
        add_data(&x, tag, sign_at(&x, tag + 2), source[tag + 1] != '{');
        size_t raw = raw_tag(&x, tag, "raw", false);
        if (raw)
            lex_raw(&x, raw);
        else if (source[tag + 1] == '#')
            lex_comment(&x);
        else
            lex_tag(&x, source[tag + 1] == '%');
    }
    add(&x, T_END);
    return x.tokens;
}
