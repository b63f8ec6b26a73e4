/* json_rules.c - JSON itself: rules that are the same in every grammar of a vocabulary.
 *
 * Each is made once per grammar, when it is first asked for (in the middle of another fragment,
 * which does it no harm), and never copied into its callers: so its states have names by which the
 * vocabulary keeps their masks for all grammars. White space is part of the name: there are three
 * sets; and which words are true, false and null (gr_builder.python). With gr_builder.marks they
 * are of one grammar. */
#include "grammar/schema.h"

enum {
    KNOWN_STRING = 1,
    KNOWN_NUMBER,
    KNOWN_INTEGER,
    KNOWN_VALUE,
    KNOWN_OBJECT,
    KNOWN_BLANKS,
    KNOWN_CHAR /* repeated: one rule for each pair of bounds */
};
enum { KNOWN_KINDS = 8, MOST_BLANKS = 40 };

void json_set_marks(gr_builder *b, const gr_marks *marks)
{
    /* Those of other marks. */
    memset(b->known + 2 * KNOWN_KINDS, 0, KNOWN_KINDS * sizeof *b->known);
    b->marks = marks;
}

/* What a rule is called in all grammars; `space`: 0 where none is in it. */
static uint32_t shared_name(uint32_t kind, uint32_t space, bool python)
{
    return kind + KNOWN_KINDS * (space + (python ? 3 : 0));
}

/* The rule of this kind; *fresh: it was made now, and needs a fragment. */
static uint32_t known(gr_builder *b, uint32_t kind, bool *fresh)
{
    const bool written = kind == KNOWN_STRING || kind == KNOWN_VALUE || kind == KNOWN_OBJECT;
    const bool python = b->python && written, marks = b->marks && written;
    uint32_t *at = &b->known[kind + (python ? KNOWN_KINDS : marks ? 2 * KNOWN_KINDS : 0)];
    *fresh = !*at;
    if (*fresh) {
        uint32_t rule = builder_rule(b);
        if (b->mem.status) return 0;
        *at = rule + 1;
        b->rules[rule].apart = true;
        if (marks) return rule;
        bool spaced = kind >= KNOWN_VALUE;
        b->rules[rule].shared = shared_name(kind, spaced ? (uint32_t)b->space : 0, python);
    }
    return *at - 1;
}

static nfa_frag set_of(gr_builder *b, const char *ranges, chars_form form)
{
    char_set set;
    chars_init(&set, &b->mem);
    for (const char *r = ranges; *r; r += 2)
        chars_add(&set, (unsigned char)r[0], (unsigned char)r[1]);
    nfa_frag f = chars_frag(&b->n, &set, form);
    chars_fini(&set);
    return f;
}

static nfa_frag then(gr_builder *b, nfa_frag a, nfa_frag next)
{
    return nfa_concat(&b->n, a, next);
}

/* \uXXXX: no surrogate alone. Fragments are built in order, so each part is made where it stands.
 */
static nfa_frag unicode_escape(gr_builder *b)
{
    nfa *n = &b->n;
    nfa_frag f = nfa_text(&b->n, "u");
    uint32_t hex[3], out = nfa_state(n), high = nfa_state(n);
    for (int i = 2; i >= 0; i--)
        hex[i] = nfa_state(n);
    /* From hex[i], 3 - i digits are left. */
    for (int i = 0; i < 3; i++) {
        uint32_t to = i == 2 ? out : hex[i + 1];
        nfa_range(n, hex[i], to, '0', '9');
        nfa_range(n, hex[i], to, 'A', 'F');
        nfa_range(n, hex[i], to, 'a', 'f');
    }
    nfa_range(n, f.out, hex[0], '0', '9');
    nfa_range(n, f.out, hex[0], 'A', 'C');
    nfa_range(n, f.out, hex[0], 'a', 'c');
    nfa_range(n, f.out, hex[0], 'E', 'F');
    nfa_range(n, f.out, hex[0], 'e', 'f');
    for (int small = 0; small < 2; small++) {
        unsigned d = small ? 'd' : 'D', a = small ? 'a' : 'A', e = small ? 'b' : 'B';
        nfa_range(n, f.out, high, d, d);
        nfa_range(n, high, hex[1], '0', '7'); /* U+D000 to U+D7FF are characters */
        uint32_t pair[9]; /* what is left of D8..DB, two digits, \u, DC..DF, two digits */
        for (int i = 0; i < 9; i++)
            pair[i] = nfa_state(n);
        nfa_range(n, high, pair[0], '8', '9');
        nfa_range(n, high, pair[0], a, e);
        for (int i = 0; i < 2; i++) {
            nfa_range(n, pair[i], pair[i + 1], '0', '9');
            nfa_range(n, pair[i], pair[i + 1], 'A', 'F');
            nfa_range(n, pair[i], pair[i + 1], 'a', 'f');
        }
        nfa_range(n, pair[2], pair[3], '\\', '\\');
        nfa_range(n, pair[3], pair[4], 'u', 'u');
        nfa_range(n, pair[4], pair[5], 'D', 'D');
        nfa_range(n, pair[4], pair[5], 'd', 'd');
        nfa_range(n, pair[5], hex[1], 'C', 'F');
        nfa_range(n, pair[5], hex[1], 'c', 'f');
    }
    f.out = out;
    return f;
}

/* Python has other escapes: what is written in one way is the same text in both. */
nfa_frag json_char(gr_builder *b, bool one_way)
{
    static const char as_is[] = {0x20, '!', '#', '[', ']', 0x7f, 0};
    nfa *n = &b->n;
    if (one_way || b->python) {
        char_set any;
        chars_init(&any, &b->mem);
        chars_add(&any, 0, CHARS_LAST);
        nfa_frag f = chars_frag(n, &any, CHARS_JSON);
        chars_fini(&any);
        return f;
    }
    nfa_frag plain = set_of(b, as_is, CHARS_UTF8);
    char_set beyond;
    chars_init(&beyond, &b->mem);
    chars_add(&beyond, 0x80, CHARS_LAST);
    plain = nfa_either(n, plain, chars_frag(n, &beyond, CHARS_UTF8));
    chars_fini(&beyond);
    nfa_frag escape = nfa_text(&b->n, "\\");
    nfa_frag letters = set_of(b, "\"\"//\\\\bbffnnrrtt", CHARS_UTF8);
    letters = nfa_either(n, letters, unicode_escape(b));
    return nfa_either(n, plain, then(b, escape, letters));
}

uint32_t json_string_rule(gr_builder *b)
{
    bool fresh;
    uint32_t rule = known(b, KNOWN_STRING, &fresh);
    if (!fresh || b->mem.status) return rule;
    nfa_frag f = b->marks ? dfa_embed(&b->n, &b->marks->texts)
                          : nfa_repeat(&b->n, json_char(b, false), 0, UINT32_MAX);
    builder_define(b, rule, then(b, f, json_quote(b)));
    return rule;
}

/* What is behind the last character must be the same in all grammars, up to the end of the rule
 * that counts: so that rule is this one, and apart. */
uint32_t json_bounded_string_rule(gr_builder *b, uint32_t min, uint32_t max)
{
    const uint32_t rule = builder_rule(b);
    const uint32_t chars = builder_repeat(b, json_char(b, false), min, max);
    if (b->mem.status) return 0;
    b->rules[chars].shared = shared_name(KNOWN_CHAR, 0, b->python);
    b->rules[rule].apart = true;
    nfa_frag f = nfa_rule(&b->n, chars);
    builder_define(b, rule, then(b, f, json_quote(b)));
    return rule;
}

uint32_t json_number_rule(gr_builder *b, bool integer)
{
    bool fresh;
    nfa *n = &b->n;
    uint32_t rule = known(b, integer ? KNOWN_INTEGER : KNOWN_NUMBER, &fresh);
    if (!fresh || b->mem.status) return rule;
    nfa_frag f = nfa_repeat(n, nfa_text(&b->n, "-"), 0, 1);
    nfa_frag zero = nfa_text(&b->n, "0"), digits = set_of(b, "19", CHARS_UTF8);
    digits = then(b, digits, nfa_repeat(n, set_of(b, "09", CHARS_UTF8), 0, UINT32_MAX));
    f = then(b, f, nfa_either(n, zero, digits));
    if (!integer) {
        nfa_frag part = nfa_text(&b->n, ".");
        part = then(b, part, nfa_repeat(n, set_of(b, "09", CHARS_UTF8), 1, UINT32_MAX));
        f = then(b, f, nfa_repeat(n, part, 0, 1));
        nfa_frag power = set_of(b, "EEee", CHARS_UTF8);
        power = then(b, power, nfa_repeat(n, set_of(b, "++--", CHARS_UTF8), 0, 1));
        power = then(b, power, nfa_repeat(n, set_of(b, "09", CHARS_UTF8), 1, UINT32_MAX));
        f = then(b, f, nfa_repeat(n, power, 0, 1));
    }
    builder_define(b, rule, f);
    return rule;
}

/* ---- marks and white space ---- */

static nfa_frag blanks(gr_builder *b)
{
    bool fresh;
    uint32_t rule = known(b, KNOWN_BLANKS, &fresh);
    if (fresh && !b->mem.status) {
        nfa_frag f = nfa_repeat(&b->n, nfa_text(&b->n, " "), 0, 1);
        nfa_frag line = nfa_text(&b->n, "\n");
        line = then(b, line, nfa_repeat(&b->n, set_of(b, "  \t\t", CHARS_UTF8), 0, MOST_BLANKS));
        builder_define(b, rule, nfa_either(&b->n, f, line));
    }
    return nfa_rule(&b->n, rule);
}

nfa_frag json_lead(gr_builder *b)
{
    return b->space == GRAMMAR_SPACE_ANY ? blanks(b) : nfa_nothing(&b->n);
}

nfa_frag json_mark(gr_builder *b, json_place place, char mark)
{
    nfa *n = &b->n;
    bool inner = place == JSON_COMMA || place == JSON_COLON;
    nfa_frag f = place == JSON_OPEN ? nfa_nothing(n) : json_lead(b);
    f = then(b, f, nfa_literal(n, &mark, 1));
    if (inner && b->space == GRAMMAR_SPACE_ONE) return then(b, f, nfa_text(&b->n, " "));
    return inner ? then(b, f, json_lead(b)) : f;
}

/* ---- strings and names ---- */

nfa_frag json_quote(gr_builder *b)
{
    const gr_marks *m = b->marks;
    if (!m) return nfa_text(&b->n, "\"");
    return m->token == NO_RULE ? nfa_literal(&b->n, m->text, m->len) : nfa_control(&b->n, m->token);
}

/* Fragments are built in order: each in a statement of its own. */
static nfa_frag any_string(gr_builder *b)
{
    const uint32_t rule = json_string_rule(b);
    nfa_frag f = json_quote(b);
    return then(b, f, nfa_rule(&b->n, rule));
}

static nfa_frag quoted(gr_builder *b, const dfa *texts)
{
    nfa_frag f = json_quote(b);
    f = then(b, f, dfa_embed(&b->n, texts));
    return then(b, f, json_quote(b));
}

static nfa_frag one_string(gr_builder *b, const char *text, size_t len)
{
    const chars_form form = b->marks ? CHARS_UTF8 : CHARS_JSON;
    if (b->marks && schema_dfa_has(&b->marks->barred, text, len, form)) return nfa_never(&b->n);
    nfa_frag f = json_quote(b);
    f = then(b, f, chars_literal(&b->n, text, len, form));
    return then(b, f, json_quote(b));
}

nfa_frag json_name(gr_builder *b, const char *name)
{
    const size_t len = strlen(name);
    if (b->marks && schema_dfa_has(&b->marks->words, name, len, CHARS_UTF8))
        return chars_literal(&b->n, name, len, CHARS_UTF8);
    return one_string(b, name, len);
}

nfa_frag json_names(gr_builder *b, const dfa *names)
{
    if (!b->marks && !names) return any_string(b);
    if (!b->marks) return quoted(b, names);
    dfa words = {0}, others = {0};
    nfa_frag f = nfa_never(&b->n);
    if (!names) names = &b->marks->texts;
    if (dfa_both(&words, names, &b->marks->words) &&
        dfa_without(&others, names, &b->marks->barred)) {
        f = dfa_embed(&b->n, &words);
        f = nfa_either(&b->n, f, quoted(b, &others));
    }
    dfa_fini(&words);
    dfa_fini(&others);
    return f;
}

/* ---- any value ---- */

static nfa_frag member(gr_builder *b, uint32_t value)
{
    nfa_frag f = json_names(b, NULL);
    f = then(b, f, json_mark(b, JSON_COLON, ':'));
    return then(b, f, nfa_rule(&b->n, value));
}

/* Either nothing but the brackets, or items with commas between. */
static nfa_frag bracketed(gr_builder *b, bool object, uint32_t value)
{
    nfa *n = &b->n;
    nfa_frag f = json_mark(b, JSON_OPEN, object ? '{' : '[');
    nfa_frag items = json_lead(b);
    items = then(b, items, object ? member(b, value) : nfa_rule(n, value));
    nfa_frag next = json_mark(b, JSON_COMMA, ',');
    next = then(b, next, object ? member(b, value) : nfa_rule(n, value));
    items = then(b, items, nfa_repeat(n, next, 0, UINT32_MAX));
    f = then(b, f, nfa_repeat(n, items, 0, 1));
    return then(b, f, json_mark(b, JSON_CLOSE, object ? '}' : ']'));
}

uint32_t json_value_rule(gr_builder *b)
{
    bool fresh;
    nfa *n = &b->n;
    json_string_rule(b);
    json_number_rule(b, false);
    uint32_t rule = known(b, KNOWN_VALUE, &fresh);
    if (!fresh || b->mem.status) return rule;
    nfa_frag f = any_string(b);
    f = nfa_either(n, f, nfa_rule(n, json_number_rule(b, false)));
    f = nfa_either(n, f, nfa_text(n, json_word(b, JSON_TRUE)));
    f = nfa_either(n, f, nfa_text(n, json_word(b, JSON_FALSE)));
    f = nfa_either(n, f, nfa_text(n, json_word(b, JSON_NULL)));
    f = nfa_either(n, f, bracketed(b, true, rule));
    f = nfa_either(n, f, bracketed(b, false, rule));
    builder_define(b, rule, f);
    return rule;
}

uint32_t json_object_rule(gr_builder *b)
{
    bool fresh;
    uint32_t value = json_value_rule(b);
    uint32_t rule = known(b, KNOWN_OBJECT, &fresh);
    if (!fresh || b->mem.status) return rule;
    builder_define(b, rule, bracketed(b, true, value));
    return rule;
}

/* ---- one value ---- */

const char *json_word(const gr_builder *b, json_type type)
{
    switch (type) {
    case JSON_TRUE: return b->python ? "True" : "true";
    case JSON_FALSE: return b->python ? "False" : "false";
    default: return b->python ? "None" : "null";
    }
}

static uint32_t put_frag(gr_builder *b, uint32_t at, nfa_frag f)
{
    nfa_empty(&b->n, at, f.in);
    return f.out;
}

static uint32_t put_text(gr_builder *b, uint32_t at, const char *text, size_t len)
{
    return put_frag(b, at, nfa_literal(&b->n, text, len));
}

/* A mark, and behind one that opens what stands before the first item, if there is one. */
static uint32_t put_mark(gr_builder *b, uint32_t at, json_place place, char mark, bool leads)
{
    nfa_frag f = json_mark(b, place, mark);
    if (leads) f = then(b, f, json_lead(b));
    return put_frag(b, at, f);
}

static uint32_t put_value(gr_builder *b, uint32_t at, const json_t *value)
{
    char number[64];
    const char *name;
    json_t *item;
    size_t i;
    bool any = false;
    if (b->mem.status) return at;
    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_TRUE:
    case JSON_FALSE: {
        const char *word = json_word(b, json_typeof(value));
        return put_text(b, at, word, strlen(word));
    }
    case JSON_INTEGER:
    case JSON_REAL: return put_text(b, at, number, number_text(value, number));
    case JSON_STRING:
        return put_frag(b, at, one_string(b, json_string_value(value), json_string_length(value)));
    case JSON_ARRAY:
        at = put_mark(b, at, JSON_OPEN, '[', json_array_size(value));
        json_array_foreach((json_t *)value, i, item)
        {
            if (i) at = put_mark(b, at, JSON_COMMA, ',', false);
            at = put_value(b, at, item);
        }
        return put_mark(b, at, JSON_CLOSE, ']', false);
    case JSON_OBJECT:
        at = put_mark(b, at, JSON_OPEN, '{', json_object_size(value));
        json_object_foreach((json_t *)value, name, item)
        {
            if (any) at = put_mark(b, at, JSON_COMMA, ',', false);
            any = true;
            at = put_frag(b, at, json_name(b, name));
            at = put_mark(b, at, JSON_COLON, ':', false);
            at = put_value(b, at, item);
        }
        return put_mark(b, at, JSON_CLOSE, '}', false);
    }
    return at;
}

nfa_frag json_literal(gr_builder *b, const json_t *value)
{
    nfa_frag f = nfa_nothing(&b->n);
    f.out = put_value(b, f.out, value);
    return f;
}
