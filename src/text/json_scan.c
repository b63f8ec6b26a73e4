/* json_scan.c - the grammar as a state and a stack of bits. */
#include "text/json_scan.h"

enum {
    VALUE, /* 0: as a zeroed scan begins */
    VALUE_OR_END,
    KEY,
    KEY_OR_END,
    COLON,
    AFTER, /* a value inside of something */
    STRING,
    ESCAPE,
    HEX,
    WORD,
    MINUS,
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    E,
    E_SIGN,
    EXPONENT
};

static bool is_ws(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static json_scanned ended(json_scan *s, json_scanned at_top)
{
    s->state = AFTER;
    return s->depth ? JSON_MORE : at_top;
}

static json_scanned open_level(json_scan *s, bool object)
{
    if (s->depth == JSON_SCAN_DEPTH) return JSON_BAD;
    s->objects = s->objects << 1 | object;
    s->depth++;
    s->state = object ? KEY_OR_END : VALUE_OR_END;
    return JSON_MORE;
}

static json_scanned close_level(json_scan *s, bool object)
{
    if (!s->depth || (s->objects & 1) != object) return JSON_BAD;
    s->objects >>= 1;
    s->depth--;
    return ended(s, JSON_DONE);
}

static json_scanned begin_value(json_scan *s, char c)
{
    switch (c) {
    case '{': return open_level(s, true);
    case '[': return open_level(s, false);
    case '"': s->state = STRING, s->is_key = false; return JSON_MORE;
    case '-': s->state = MINUS; return JSON_MORE;
    case '0': s->state = ZERO; return JSON_MORE;
    case 't': s->state = WORD, s->word = "rue"; return JSON_MORE;
    case 'f': s->state = WORD, s->word = "alse"; return JSON_MORE;
    case 'n': s->state = WORD, s->word = "ull"; return JSON_MORE;
    default: s->state = DIGITS; return is_digit(c) ? JSON_MORE : JSON_BAD;
    }
}

static json_scanned after_value(json_scan *s, char c)
{
    if (c == '}' || c == ']') return close_level(s, c == '}');
    if (c != ',' || !s->depth) return JSON_BAD;
    s->state = s->objects & 1 ? KEY : VALUE;
    return JSON_MORE;
}

/* A number has no end of its own: the byte behind it is looked at again. */
static json_scanned end_number(json_scan *s, char c)
{
    if (ended(s, JSON_BEFORE) == JSON_BEFORE) return JSON_BEFORE;
    return is_ws(c) ? JSON_MORE : after_value(s, c);
}

static json_scanned go(json_scan *s, int state)
{
    s->state = (uint8_t)state;
    return JSON_MORE;
}

static json_scanned push_number(json_scan *s, char c)
{
    bool exponent = c == 'e' || c == 'E';
    switch (s->state) {
    case MINUS: return c == '0' ? go(s, ZERO) : is_digit(c) ? go(s, DIGITS) : JSON_BAD;
    case ZERO:
    case DIGITS:
        if (is_digit(c)) return s->state == ZERO ? JSON_BAD : JSON_MORE;
        return c == '.' ? go(s, POINT) : exponent ? go(s, E) : end_number(s, c);
    case POINT: return is_digit(c) ? go(s, FRACTION) : JSON_BAD;
    case FRACTION: return is_digit(c) ? JSON_MORE : exponent ? go(s, E) : end_number(s, c);
    case E: return c == '+' || c == '-' ? go(s, E_SIGN) : is_digit(c) ? go(s, EXPONENT) : JSON_BAD;
    case E_SIGN: return is_digit(c) ? go(s, EXPONENT) : JSON_BAD;
    default: return is_digit(c) ? JSON_MORE : end_number(s, c);
    }
}

static json_scanned push_string(json_scan *s, char c)
{
    if (s->state == STRING) {
        if (c == '\\') return go(s, ESCAPE);
        if (c != '"') return JSON_MORE;
        if (s->is_key) return go(s, COLON);
        return ended(s, JSON_DONE);
    }
    if (s->state == ESCAPE) {
        s->more = 4;
        return c == 'u' ? go(s, HEX) : c && strchr("\"\\/bfnrt", c) ? go(s, STRING) : JSON_BAD;
    }
    if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return JSON_BAD;
    return --s->more ? JSON_MORE : go(s, STRING);
}

json_scanned json_scan_push(json_scan *s, char c)
{
    if (s->state >= MINUS) return push_number(s, c);
    if (s->state >= STRING && s->state <= HEX) return push_string(s, c);
    if (s->state == WORD) {
        if (c != *s->word) return JSON_BAD;
        return *++s->word ? JSON_MORE : ended(s, JSON_DONE);
    }
    if (is_ws(c)) return JSON_MORE;
    switch (s->state) {
    case VALUE_OR_END:
        if (c == ']') return close_level(s, false);
        return begin_value(s, c);
    case VALUE: return begin_value(s, c);
    case KEY_OR_END:
        if (c == '}') return close_level(s, true);
        /* fall through */
    case KEY: s->is_key = true; return c == '"' ? go(s, STRING) : JSON_BAD;
    case COLON: return c == ':' ? go(s, VALUE) : JSON_BAD;
    default: return after_value(s, c);
    }
}

bool json_scan_in_string(const json_scan *s)
{
    return s->state == STRING;
}

ptrdiff_t json_scan_value(const char *text, size_t len)
{
    json_scan s;
    json_scan_begin(&s);
    for (size_t i = 0; i < len; i++) {
        json_scanned got = json_scan_push(&s, text[i]);
        if (got == JSON_BAD) return -1;
        if (got) return (ptrdiff_t)(i + (got == JSON_DONE));
    }
    return 0;
}
