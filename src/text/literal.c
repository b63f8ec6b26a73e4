/* literal.c - a state, a stack of closing brackets, and one word. */
#include "text/literal.h"

#include <stdio.h>

enum {
    KEY_OR_END, /* 0 */
    KEY_WORD,
    KEY_END,
    VALUE,
    VALUE_OR_END,
    WORD,
    AFTER,
    OPENING, /* the style's quote, of which some bytes came */
    OPENED,  /* one quote; a second makes it empty, a third triples it */
    OPENED_2,
    STRING,
    CLOSING, /* matched quotes of a triple, or bytes of the style's */
    ESCAPE,
    HEX,
    OCTAL
};

static bool is_word_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static const char hex_digits[] = "0123456789abcdef";

rad_status json_escape(text_buf *out, const char *text, size_t len)
{
    static const char letters[] = "btn\0fr"; /* from \b on; \v has none */
    rad_status status = RAD_OK;
    size_t plain = 0;
    for (size_t i = 0; i < len && !status; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= ' ' && c != '"' && c != '\\') continue;
        char escape[6] = {'\\', 'u', '0', '0', hex_digits[c >> 4], hex_digits[c & 15]};
        size_t n = 6;
        if (c == '"' || c == '\\')
            escape[1] = (char)c, n = 2;
        else if (c >= '\b' && c <= '\r' && c != '\v')
            escape[1] = letters[c - '\b'], n = 2;
        status = text_buf_append(out, text + plain, i - plain);
        if (!status) status = text_buf_append(out, escape, n);
        plain = i + 1;
    }
    return status ? status : text_buf_append(out, text + plain, len - plain);
}

/* What one push works on. */
typedef struct work {
    literal *l;
    text_buf *out;
    bool *nomem;
} work;

static void put(const work *w, const char *text)
{
    if (text_buf_append(w->out, text, strlen(text)) != RAD_OK) *w->nomem = true;
}

static void put_escaped(const work *w, const char *text, size_t len)
{
    if (json_escape(w->out, text, len) != RAD_OK) *w->nomem = true;
}

static json_scanned go(const work *w, int state)
{
    w->l->state = (uint8_t)state;
    return JSON_MORE;
}

void literal_begin(literal *l, const literal_style *style)
{
    memset(l, 0, sizeof *l);
    l->style = style;
    l->closers[0] = style->close;
    l->depth = 1;
    l->first = true;
}

/* The name or value that comes next is not the first of its level. */
static void begin_item(const work *w)
{
    if (w->l->depth == 1 && w->l->first && w->l->state <= KEY_WORD) put(w, "{");
    if (!w->l->first) put(w, ", ");
    w->l->first = false;
}

static bool in_object(const literal *l)
{
    return l->depth == 1 || l->closers[l->depth - 1] == '}';
}

static json_scanned open_level(const work *w, char closer)
{
    literal *l = w->l;
    if (l->depth == LITERAL_DEPTH) return JSON_BAD;
    l->closers[l->depth++] = closer;
    l->first = true;
    put(w, closer == '}' ? "{" : "[");
    return go(w, closer == '}' ? KEY_OR_END : VALUE_OR_END);
}

static json_scanned close_level(const work *w, char c)
{
    literal *l = w->l;
    if (c != l->closers[l->depth - 1]) return JSON_BAD;
    bool object = in_object(l);
    if (--l->depth == 0) {
        put(w, l->first ? "{}" : "}"); /* the { comes with the first name */
        return JSON_DONE;
    }
    put(w, object ? "}" : "]");
    l->first = false;
    return go(w, AFTER);
}

static json_scanned after_value(const work *w, char c)
{
    if (is_word_space(c)) return JSON_MORE;
    if (c == ',') return go(w, in_object(w->l) ? KEY_OR_END : VALUE_OR_END);
    return close_level(w, c);
}

/* ---- words ---- */

/* Python's number as JSON's: "1_000" "+1" ".5" "5." */
static bool put_number(const work *w, const char *word)
{
    char text[LITERAL_MOST_WORD + 8];
    size_t n = 0;
    const char *at = word;
    bool digit = false;
    if (*at == '-') text[n++] = '-';
    if (*at == '-' || *at == '+') at++;
    if (*at == '.' && !(at[1] >= '0' && at[1] <= '9')) return false;
    if (*at == '.') text[n++] = '0';
    for (; *at && n < sizeof text - 3; at++) {
        bool is_digit = *at >= '0' && *at <= '9';
        if (*at == '_' && digit && at[1] >= '0' && at[1] <= '9') continue;
        text[n++] = *at;
        if (*at == '.' && !(at[1] >= '0' && at[1] <= '9')) text[n++] = '0';
        digit = is_digit;
    }
    text[n++] = ' '; /* a number has no end of its own */
    text[n] = 0;
    if (n == 1 || json_scan_value(text, n) != (ptrdiff_t)n - 1) return false;
    text[n - 1] = 0;
    put(w, text);
    return true;
}

static bool put_word(const work *w)
{
    static const char *const words[][2] = {{"True", "true"},   {"true", "true"}, {"False", "false"},
                                           {"false", "false"}, {"None", "null"}, {"null", "null"}};
    literal *l = w->l;
    while (l->word_len && is_word_space(l->word[l->word_len - 1]))
        l->word_len--;
    l->word[l->word_len] = 0;
    for (size_t i = 0; i < RAD_COUNT(words); i++)
        if (strcmp(l->word, words[i][0]) == 0) {
            put(w, words[i][1]);
            return true;
        }
    const char first = l->word[0];
    if (((first >= '0' && first <= '9') || strchr("+-.", first)) && put_number(w, l->word))
        return true;
    if (!l->style->bare || !l->word_len) return false;
    put(w, "\"");
    put_escaped(w, l->word, l->word_len);
    put(w, "\"");
    return true;
}

static bool is_word_char(const literal *l, char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
    if (c & 0x80 || (c && strchr("_.+-", c))) return true;
    return l->style->bare && (unsigned char)c >= ' ' && !strchr(",]}\"'<", c);
}

static json_scanned push_word(const work *w, char c)
{
    literal *l = w->l;
    if (is_word_char(l, c)) {
        if (l->word_len == LITERAL_MOST_WORD) return JSON_BAD;
        l->word[l->word_len++] = c;
        return JSON_MORE;
    }
    if (!put_word(w)) return JSON_BAD;
    l->state = AFTER;
    return after_value(w, c);
}

/* ---- strings ---- */

static json_scanned open_string(const work *w, char quote, int state)
{
    w->l->quote = quote;
    w->l->triple = false;
    put(w, "\"");
    return go(w, state);
}

static json_scanned close_string(const work *w)
{
    put(w, "\"");
    return go(w, w->l->is_key ? KEY_END : AFTER);
}

static json_scanned push(const work *w, char c);

static json_scanned push_string(const work *w, char c)
{
    literal *l = w->l;
    if (!l->quote && c == l->style->quote[0]) {
        l->matched = 1;
        return go(w, CLOSING);
    }
    if (l->quote && c == l->quote) {
        if (!l->triple) return close_string(w);
        l->matched = 1;
        return go(w, CLOSING);
    }
    if (l->quote && c == '\\') return go(w, ESCAPE);
    put_escaped(w, &c, 1);
    return JSON_MORE;
}

/* In the middle of what may close the string; else it was text of it. */
static json_scanned push_closing(const work *w, char c)
{
    literal *l = w->l;
    const char triple[] = {l->quote, l->quote, l->quote, 0};
    const char *closer = l->quote ? triple : l->style->quote;
    if (c == closer[l->matched]) return closer[++l->matched] ? JSON_MORE : close_string(w);
    put_escaped(w, closer, l->matched);
    l->state = STRING;
    return push_string(w, c);
}

static void put_code(const work *w, uint32_t c)
{
    char utf8[5];
    size_t n = 1;
    if (c < 0x80) {
        utf8[0] = (char)c;
    } else {
        n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        utf8[0] = (char)(c >> (6 * (n - 1)) | (0xf00u >> n));
        for (size_t i = 1; i < n; i++)
            utf8[i] = (char)(0x80 | ((c >> (6 * (n - 1 - i))) & 0x3f));
    }
    put_escaped(w, utf8, n);
}

static json_scanned push_escape(const work *w, char c)
{
    static const char from[] = "abfnrtv0\\'\"", to[] = "\a\b\f\n\r\t\v\0\\'\"";
    literal *l = w->l;
    l->code = 0;
    if (c == 'x' || c == 'u' || c == 'U') {
        l->more = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        return go(w, HEX);
    }
    if (c >= '0' && c <= '7') {
        l->code = (uint32_t)(c - '0');
        l->more = 2;
        return go(w, OCTAL);
    }
    const char *at = c ? strchr(from, c) : NULL;
    if (c == '\n') return go(w, STRING);
    char two[] = {'\\', c}; /* Python keeps what it does not know */
    if (at)
        put_escaped(w, &to[at - from], 1);
    else
        put_escaped(w, two, 2);
    return go(w, STRING);
}

static json_scanned push_hex(const work *w, char c)
{
    literal *l = w->l;
    const char *at = c ? strchr(hex_digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
    if (!at) return JSON_BAD;
    l->code = l->code << 4 | (uint32_t)(at - hex_digits);
    if (--l->more) return JSON_MORE;
    if (l->code > 0x10ffff) return JSON_BAD;
    if (l->code >= 0xd800 && l->code < 0xe000) { /* half of a pair: as it is written */
        char text[8];
        snprintf(text, sizeof text, "\\u%04x", (unsigned)l->code);
        put(w, text);
    } else {
        put_code(w, l->code);
    }
    return go(w, STRING);
}

static json_scanned push_octal(const work *w, char c)
{
    literal *l = w->l;
    if (c >= '0' && c <= '7' && l->more) {
        l->code = l->code << 3 | (uint32_t)(c - '0');
        l->more--;
        return JSON_MORE;
    }
    put_code(w, l->code);
    l->state = STRING;
    return push_string(w, c);
}

/* ---- all of it ---- */

static json_scanned begin_string(const work *w, char c, bool is_key)
{
    w->l->is_key = is_key;
    if (c == '"' || c == '\'') {
        begin_item(w);
        return open_string(w, c, OPENED);
    }
    if (!w->l->style->quote || c != w->l->style->quote[0]) return JSON_BAD;
    begin_item(w);
    w->l->matched = 1;
    return go(w, OPENING);
}

static json_scanned begin_value(const work *w, char c)
{
    literal *l = w->l;
    bool item = l->state == VALUE_OR_END; /* of a list; a member's comma stands before its name */
    if (!item) l->first = true;
    if (c == '{' || c == '[' || c == '(') {
        if (item) begin_item(w);
        return open_level(w, c == '{' ? '}' : c == '[' ? ']' : ')');
    }
    if (is_word_char(l, c)) {
        if (item) begin_item(w);
        l->first = false;
        l->word_len = 0;
        l->state = WORD;
        return push_word(w, c);
    }
    return begin_string(w, c, false);
}

static json_scanned begin_key(const work *w, char c)
{
    literal *l = w->l;
    if (c == l->closers[l->depth - 1]) return close_level(w, c);
    if (!is_word_char(l, c) || c == ':') return begin_string(w, c, true);
    begin_item(w);
    l->word[0] = c;
    l->word_len = 1;
    return go(w, KEY_WORD);
}

static json_scanned push_key(const work *w, char c)
{
    literal *l = w->l;
    char assign = l->depth == 1 ? l->style->assign : ':';
    if (l->state == KEY_WORD) {
        if (c != assign && is_word_char(l, c) && !is_word_space(c)) {
            if (l->word_len == LITERAL_MOST_WORD) return JSON_BAD;
            l->word[l->word_len++] = c;
            return JSON_MORE;
        }
        put(w, "\"");
        put_escaped(w, l->word, l->word_len);
        put(w, "\"");
        l->state = KEY_END;
    }
    if (is_word_space(c)) return JSON_MORE;
    if (c != assign) return JSON_BAD;
    put(w, ": ");
    return go(w, VALUE);
}

static json_scanned push_opened(const work *w, char c)
{
    literal *l = w->l;
    if (l->state == OPENED) {
        if (c == l->quote) return go(w, OPENED_2);
        l->state = STRING;
        return push_string(w, c);
    }
    if (c == l->quote) {
        l->triple = true;
        return go(w, STRING);
    }
    close_string(w); /* it was empty */
    return push(w, c);
}

static json_scanned push(const work *w, char c)
{
    literal *l = w->l;
    switch (l->state) {
    case KEY_WORD:
    case KEY_END: return push_key(w, c);
    case WORD: return push_word(w, c);
    case AFTER: return after_value(w, c);
    case OPENING:
        if (c != l->style->quote[l->matched]) return JSON_BAD;
        return l->style->quote[++l->matched] ? JSON_MORE : open_string(w, 0, STRING);
    case OPENED:
    case OPENED_2: return push_opened(w, c);
    case STRING: return push_string(w, c);
    case CLOSING: return push_closing(w, c);
    case ESCAPE: return push_escape(w, c);
    case HEX: return push_hex(w, c);
    case OCTAL: return push_octal(w, c);
    default: break;
    }
    if (is_word_space(c)) return JSON_MORE;
    if (l->state == KEY_OR_END) return begin_key(w, c);
    if (l->state == VALUE_OR_END && c == l->closers[l->depth - 1]) return close_level(w, c);
    return begin_value(w, c);
}

json_scanned literal_push(literal *l, char c, text_buf *out, bool *nomem)
{
    const work w = {l, out, nomem};
    return push(&w, c);
}
