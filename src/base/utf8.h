/* utf8.h - one UTF-8 character at a time, strictly (no surrogates, no overlong forms). */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What utf8_next found. */
typedef struct utf8_char {
    uint32_t code;
    uint8_t len;   /* bytes taken, >= 1: of the character, or of the bad prefix */
    uint8_t valid; /* 1: a character */
    uint8_t cut;   /* 1: not valid, but more bytes could still make it one */
} utf8_char;

/* Looks at bytes[0..len), len >= 1. Bad bytes are taken as Unicode advises (and WHATWG
 * and Python do): the longest prefix that could have begun a character is one error. */
static inline utf8_char utf8_next(const unsigned char *bytes, size_t len)
{
    unsigned char b = bytes[0];
    if (b < 0x80) return (utf8_char){b, 1, 1, 0};
    if (b < 0xc2 || b > 0xf4) return (utf8_char){0, 1, 0, 0};
    unsigned need = b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    /* The second byte's range keeps out overlong forms, surrogates and > U+10FFFF. */
    unsigned char low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    unsigned char high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    uint32_t code = b & (0x7fu >> need);
    for (unsigned i = 1; i < need; i++) {
        if (i == len) return (utf8_char){0, (uint8_t)i, 0, 1};
        if (bytes[i] < low || bytes[i] > high) return (utf8_char){0, (uint8_t)i, 0, 0};
        code = code << 6 | (bytes[i] & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    return (utf8_char){code, (uint8_t)need, 1, 0};
}

/* C0, DEL and C1: what ends a line or drives a terminal. */
static inline bool utf8_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

/* These, and what ends a line or turns the direction of its text otherwise: a stranger's text on a
 * terminal or in a log has none of them. */
static inline bool utf8_is_harmful(uint32_t code)
{
    return utf8_is_control(code) || code == 0x61c || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

#endif
