/* ebnf.c - rules in EBNF, as GBNF and W3C write it.
 *
 *     root   ::= item ("," item)* # a comment
 *     item   ::= [a-z]+ | "\u00e9" | 'quoted' | number{1,3} | .
 *     number ::= [0-9]
 *
 * A rule ends where the next name ::= begins; the one named root begins, or else the first. A text
 * in quotes knows \n \r \t \\ \" \' \xHH \uHHHH \UHHHHHHHH; classes are those of regex.h, and . is
 * any character. Six words more:
 *
 *     %token 17            this control token of the vocabulary, by its id
 *     %regex /a+/          texts that match (\/ is a slash)
 *     %json {...}          JSON by this schema
 *     %python {...}        the same with Python's True, False and None
 *     %marked "|" {...}    the same, strings as they are between these marks (also %token 17),
 *                          names as words, without blanks: {key:|text|,n:1}
 *     %text {...} /<\/p>/  its strings as they are, in which no match of the expression is found
 *
 * Rules may call each other and themselves, also at their beginning (link.c). */
#include "grammar/grammar_impl.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include "base/mix64.h"
#include "base/utf8.h"

enum { MOST_DEPTH = 250 };

typedef struct reader {
    gr_builder *b;
    const char *text;
    size_t len, i;
    unsigned depth;
    uint32_t first_rule; /* those before it are not ours */
    gr_slots slots;      /* rules by name */
} reader;

static rad_status refuse(reader *r, rad_status status, size_t i, const char *what)
{
    return builder_refuse(r->b, status, i, what);
}

static int look(const reader *r, size_t ahead)
{
    return r->i + ahead < r->len ? (unsigned char)r->text[r->i + ahead] : -1;
}

static bool ok(const reader *r)
{
    return !r->b->mem.status;
}

static void skip_blanks(reader *r)
{
    for (int c; (c = look(r, 0)) >= 0;) {
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            r->i++;
        } else if (c == '#') {
            while (look(r, 0) >= 0 && look(r, 0) != '\n')
                r->i++;
        } else if (c == '/' && look(r, 1) == '*') {
            while (look(r, 0) >= 0 && !(look(r, 0) == '*' && look(r, 1) == '/'))
                r->i++;
            r->i = RAD_MIN(r->i + 2, r->len);
        } else {
            break;
        }
    }
}

static bool in_name(int c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' ||
           c == '-';
}

static size_t name_length(const reader *r)
{
    size_t n = 0;
    while (look(r, n) >= 0 && in_name(look(r, n)))
        n++;
    return n;
}

/* Whether a rule begins here: a name and ::=. */
static bool at_rule(const reader *r)
{
    reader ahead = *r;
    size_t n = name_length(r);
    if (!n) return false;
    ahead.i += n;
    skip_blanks(&ahead);
    return look(&ahead, 0) == ':' && look(&ahead, 1) == ':' && look(&ahead, 2) == '=';
}

static uint64_t rule_hash(const void *owner, uint32_t id)
{
    const gr_rule *rule = &((const gr_builder *)owner)->rules[id];
    /* Those without a name are nobody's find: apart, so that they are in nobody's way. */
    return rule->name ? gr_hash_text(rule->name, rule->name_len) : mix64(id);
}

/* The rule with this name, made if there is none. */
static uint32_t find_rule(reader *r, const char *name, size_t len)
{
    gr_builder *b = r->b;
    if (!gr_slots_room(&b->mem, &r->slots, r->first_rule, b->num_rules, rule_hash, b)) return 0;
    uint64_t h = gr_hash_text(name, len);
    gr_work(&b->mem, 1);
    for (uint32_t id; (id = *gr_slot(&r->slots, h)); h++) {
        const gr_rule *rule = &b->rules[id - 1];
        gr_work(&b->mem, 1);
        if (rule->name_len == len && memcmp(rule->name, name, len) == 0) return id - 1;
    }
    uint32_t id = builder_rule(b);
    if (!ok(r)) return 0;
    b->rules[id].name = name;
    b->rules[id].name_len = (uint32_t)len;
    *gr_slot(&r->slots, h) = id + 1;
    return id;
}

/* ---- elements ---- */

static bool read_hex(reader *r, unsigned digits, uint32_t *code)
{
    *code = 0;
    for (unsigned k = 0; k < digits; k++) {
        int c = look(r, k);
        int digit = c >= '0' && c <= '9' ? c - '0' : c < 0 ? -1 : (c | 0x20) - 'a' + 10;
        if (digit < 0 || digit > 15 || (c > '9' && digit < 10)) return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    r->i += digits;
    return *code <= CHARS_LAST && !(*code >= 0xd800 && *code < 0xe000);
}

static bool read_escape(reader *r, uint32_t *code)
{
    static const char letters[] = "nrt0", codes[] = "\n\r\t\0";
    size_t begin = r->i++;
    int c = look(r, 0);
    r->i++;
    const char *known = c > 0 ? strchr(letters, c) : NULL;
    bool found = true;
    if (known)
        *code = (unsigned char)codes[known - letters];
    else if (c == 'x' || c == 'u' || c == 'U')
        found = read_hex(r, c == 'x' ? 2 : c == 'u' ? 4 : 8, code);
    else if (c > 0 && strchr("\\\"'[]-^/", c))
        *code = (uint32_t)c;
    else
        found = false;
    if (!found) refuse(r, RAD_E_INVAL, begin, "this escape names no character");
    return found;
}

static nfa_frag read_literal(reader *r, int quote)
{
    nfa *n = &r->b->n;
    nfa_frag f = nfa_nothing(n);
    size_t begin = r->i++;
    while (ok(r) && look(r, 0) >= 0 && look(r, 0) != quote) {
        uint32_t code;
        if (look(r, 0) == '\\') {
            if (!read_escape(r, &code)) return f;
        } else {
            utf8_char c = utf8_next((const unsigned char *)r->text + r->i, r->len - r->i);
            if (!c.valid) {
                refuse(r, RAD_E_INVAL, r->i, "this is not UTF-8");
                return f;
            }
            r->i += c.len;
            code = c.code;
        }
        f.out = chars_append(n, f.out, code, CHARS_UTF8);
    }
    if (look(r, 0) != quote) refuse(r, RAD_E_INVAL, begin, "this text has no end");
    r->i++;
    return f;
}

static nfa_frag read_set(reader *r, int c)
{
    nfa *n = &r->b->n;
    char_set set;
    chars_init(&set, &r->b->mem);
    r->i++;
    if (c == '.')
        chars_add(&set, 0, CHARS_LAST);
    else
        regex_class(r->b, r->text, r->len, &r->i, &set, 0);
    nfa_frag f = chars_frag(n, &set, CHARS_UTF8);
    chars_fini(&set);
    return f;
}

static bool is_word(const reader *r, const char *word)
{
    size_t len = strlen(word);
    return r->len - r->i >= len && memcmp(r->text + r->i, word, len) == 0 &&
           !(look(r, len) >= 0 && in_name(look(r, len)));
}

/* How long the braces that begin here are, with what they enclose; 0: they do not end. */
static size_t json_length(const reader *r)
{
    size_t depth = 0, i = 0;
    bool quoted = false;
    for (int c; (c = look(r, i)) >= 0; i++) {
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && !--depth) {
            return i + 1;
        }
        if (!depth) break;
    }
    return 0;
}

static uint32_t read_token_id(reader *r, size_t begin)
{
    uint64_t id = 0;
    size_t digits = r->i;
    for (int c; (c = look(r, 0)) >= '0' && c <= '9' && id < 1u << 24; r->i++)
        id = id * 10 + (uint64_t)(c - '0');
    if (digits == r->i || id >= 1u << 24)
        refuse(r, RAD_E_INVAL, begin, "%token is followed by the id of a token");
    else if (!vocab_names(r->b->vocab, (uint32_t)id))
        refuse(r, RAD_E_INVAL, begin,
               "%token names a control token that does not end the answer; others are written "
               "as text");
    return (uint32_t)id & 0xffffff;
}

static nfa_frag read_token(reader *r, size_t begin)
{
    const uint32_t id = read_token_id(r, begin);
    return nfa_control(&r->b->n, id);
}

/* An expression between slashes; those that match as a whole, or where a match is found. */
static bool read_expression(reader *r, bool whole, dfa *d)
{
    size_t first = r->i + 1, end = first;
    while (end < r->len && r->text[end] != '/')
        end += r->text[end] == '\\' ? 2 : 1;
    if (look(r, 0) != '/' || end >= r->len) {
        refuse(r, RAD_E_INVAL, r->i, "here an expression between slashes is wanted");
        return false;
    }
    r->i = end + 1;
    return regex_dfa(r->b, d, r->text + first, end - first, CHARS_UTF8, whole);
}

static nfa_frag read_regex(reader *r, size_t begin)
{
    dfa d = {0};
    nfa_frag f = {0};
    (void)begin;
    if (read_expression(r, true, &d)) f = dfa_embed(&r->b->n, &d);
    dfa_fini(&d);
    return f;
}

/* A schema in braces: its text, moved over. */
static const char *read_braces(reader *r, size_t begin, size_t *len)
{
    const char *at = r->text + r->i;
    *len = json_length(r);
    if (!*len) refuse(r, RAD_E_INVAL, begin, "this word is followed by a schema in braces");
    r->i += *len;
    return at;
}

static nfa_frag read_json(reader *r, size_t begin)
{
    uint32_t rule = 0;
    size_t len;
    const char *schema = read_braces(r, begin, &len);
    if (ok(r)) schema_build(r->b, schema, len, &rule);
    return nfa_rule(&r->b->n, rule);
}

static nfa_frag read_python(reader *r, size_t begin)
{
    r->b->python = true;
    nfa_frag f = read_json(r, begin);
    r->b->python = false;
    return f;
}

/* A text in quotes at r->i, and before it the token that stands for it, if there is one. */
static bool read_mark(reader *r, size_t begin, char text[GRAMMAR_MAX_PIECE], gr_marks *m)
{
    m->text = text;
    m->token = NO_RULE;
    if (is_word(r, "%token")) {
        r->i += strlen("%token");
        skip_blanks(r);
        m->token = read_token_id(r, begin);
        skip_blanks(r);
    }
    if (ok(r) && look(r, 0) == '"') {
        for (r->i++; look(r, 0) >= 0 && look(r, 0) != '"' && m->len < GRAMMAR_MAX_PIECE; r->i++) {
            if (look(r, 0) == '\\') r->i++;
            if (look(r, 0) >= 0) text[m->len++] = (char)look(r, 0);
        }
        r->i++;
    }
    if (!m->len || m->len == GRAMMAR_MAX_PIECE || r->i > r->len)
        refuse(r, RAD_E_INVAL, begin, "here a mark is wanted: a text in quotes");
    return ok(r);
}

/* Texts that have the mark, and those that do not. */
static bool find_texts(reader *r, gr_marks *m)
{
    gr_builder *b = r->b;
    static const char word[] = "[A-Za-z_][A-Za-z0-9_]{0,62}", any[] = "[\\s\\S]*";
    dfa all = {0};
    nfa n;
    nfa_init(&n, &b->mem, b->n.bytes);
    nfa_frag f = regex_frag(b, &n, any, sizeof any - 1, CHARS_UTF8, 0);
    f = nfa_concat(&n, f, chars_literal(&n, m->text, m->len, CHARS_UTF8));
    f = nfa_concat(&n, f, regex_frag(b, &n, any, sizeof any - 1, CHARS_UTF8, 0));
    const bool done = ok(r) && dfa_make(&m->barred, &n, f) &&
                      regex_dfa(b, &all, any, sizeof any - 1, CHARS_UTF8, true) &&
                      dfa_without(&m->texts, &all, &m->barred) &&
                      regex_dfa(b, &m->words, word, sizeof word - 1, CHARS_UTF8, true);
    nfa_fini(&n);
    dfa_fini(&all);
    return done;
}

static nfa_frag read_marked(reader *r, size_t begin)
{
    gr_builder *b = r->b;
    gr_marks marks = {0};
    char text[GRAMMAR_MAX_PIECE];
    nfa_frag f = {0};
    const grammar_space space = b->space;
    if (read_mark(r, begin, text, &marks) && find_texts(r, &marks)) {
        skip_blanks(r);
        json_set_marks(b, &marks);
        b->space = GRAMMAR_SPACE_NONE;
        f = read_json(r, begin);
        json_set_marks(b, NULL);
        b->space = space;
    }
    dfa_fini(&marks.barred);
    dfa_fini(&marks.texts);
    dfa_fini(&marks.words);
    return f;
}

static nfa_frag read_text(reader *r, size_t begin)
{
    uint32_t rule = 0;
    size_t len;
    dfa barred = {0};
    const char *schema = read_braces(r, begin, &len);
    skip_blanks(r);
    if (ok(r) && read_expression(r, false, &barred))
        schema_build_text(r->b, schema, len, &barred, &rule);
    dfa_fini(&barred);
    return nfa_rule(&r->b->n, rule);
}

static nfa_frag read_word(reader *r)
{
    static const struct {
        const char *word;
        nfa_frag (*read)(reader *r, size_t begin);
    } words[] = {{"%token", read_token},   {"%regex", read_regex},   {"%json", read_json},
                 {"%python", read_python}, {"%marked", read_marked}, {"%text", read_text}};
    size_t begin = r->i;
    for (size_t i = 0; i < RAD_COUNT(words); i++) {
        if (!is_word(r, words[i].word)) continue;
        r->i += strlen(words[i].word);
        skip_blanks(r);
        return words[i].read(r, begin);
    }
    refuse(r, RAD_E_INVAL, begin,
           "only %token, %regex, %json, %python, %marked and %text begin with a %");
    return nfa_nothing(&r->b->n);
}

static nfa_frag read_alternatives(reader *r);

static nfa_frag read_element(reader *r)
{
    nfa *n = &r->b->n;
    int c = look(r, 0);
    size_t begin = r->i, len;
    switch (c) {
    case '"':
    case '\'': return read_literal(r, c);
    case '[':
    case '.': return read_set(r, c);
    case '%': return read_word(r);
    case '(': {
        r->i++;
        if (++r->depth > MOST_DEPTH) {
            refuse(r, RAD_E_LIMIT, begin, "groups are nested too deep");
            return nfa_nothing(n);
        }
        nfa_frag f = read_alternatives(r);
        r->depth--;
        if (ok(r) && look(r, 0) != ')') refuse(r, RAD_E_INVAL, begin, "this group has no end");
        r->i++;
        return f;
    }
    default: break;
    }
    if ((len = name_length(r))) {
        uint32_t rule = find_rule(r, r->text + r->i, len);
        r->i += len;
        return nfa_rule(n, rule);
    }
    refuse(r, RAD_E_INVAL, begin, "this begins nothing that a rule is made of");
    return nfa_nothing(n);
}

static nfa_frag read_sequence(reader *r)
{
    nfa *n = &r->b->n;
    nfa_frag f = nfa_nothing(n);
    for (skip_blanks(r); ok(r); skip_blanks(r)) {
        int c = look(r, 0);
        uint32_t min = 0, max = UINT32_MAX;
        if (c < 0 || c == '|' || c == ')' || at_rule(r)) break;
        nfa_frag next = read_element(r);
        c = look(r, 0);
        if (!ok(r)) break;
        size_t begin = r->i;
        bool repeated = c == '*' || c == '+' || c == '?';
        if (repeated) {
            r->i++;
            min = c == '+';
            max = c == '?' ? 1 : UINT32_MAX;
        } else if (c == '{') {
            repeated = regex_counts(r->b, r->text, r->len, &r->i, &min, &max, 0);
            if (!repeated) refuse(r, RAD_E_INVAL, begin, "this is no number of times");
        }
        if (repeated) next = builder_times(r->b, next, min, max);
        f = nfa_concat(n, f, next);
    }
    return f;
}

static nfa_frag read_alternatives(reader *r)
{
    nfa *n = &r->b->n;
    nfa_frag f = read_sequence(r);
    if (look(r, 0) != '|') return f;
    uint32_t in = nfa_state(n), out = nfa_state(n);
    nfa_empty(n, in, f.in);
    nfa_empty(n, f.out, out);
    while (ok(r) && look(r, 0) == '|') {
        r->i++;
        nfa_frag next = read_sequence(r);
        nfa_empty(n, in, next.in);
        nfa_empty(n, next.out, out);
    }
    f.in = in;
    f.out = out;
    return f;
}

static void read_rules(reader *r, uint32_t *root)
{
    gr_builder *b = r->b;
    bool any = false;
    for (skip_blanks(r); ok(r) && r->i < r->len; skip_blanks(r)) {
        size_t begin = r->i, len = name_length(r);
        if (!at_rule(r)) {
            refuse(r, RAD_E_INVAL, begin, "a rule begins with its name and ::=");
            return;
        }
        uint32_t rule = find_rule(r, r->text + begin, len);
        r->i += len;
        skip_blanks(r);
        r->i += 3;
        if (ok(r) && b->rules[rule].defined) {
            refuse(r, RAD_E_INVAL, begin, "this rule was defined before");
            return;
        }
        if (!any || (len == 4 && memcmp(r->text + begin, "root", 4) == 0)) *root = rule;
        any = true;
        builder_define(b, rule, read_alternatives(r));
        if (ok(r) && look(r, 0) == ')') refuse(r, RAD_E_INVAL, r->i, "a ) without its (");
    }
    if (!ok(r)) return;
    if (!any) {
        refuse(r, RAD_E_INVAL, 0, "there is no rule");
        return;
    }
    for (uint32_t i = r->first_rule; i < b->num_rules; i++) {
        const gr_rule *rule = &b->rules[i];
        if (!rule->defined && rule->name) {
            gr_fail(&b->mem, RAD_E_INVAL, "at byte %zu: there is no rule named %.*s",
                    (size_t)(rule->name - r->text), (int)RAD_MIN(rule->name_len, 100u), rule->name);
            return;
        }
    }
}

rad_status ebnf_build(gr_builder *b, const char *text, size_t len, uint32_t *root)
{
    reader r = {.b = b, .text = text, .len = len, .first_rule = b->num_rules};
    read_rules(&r, root);
    gr_slots_drop(&b->mem, &r.slots);
    return b->mem.status;
}
