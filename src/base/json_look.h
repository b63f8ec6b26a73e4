/* json_look.h - what a JSON text would cost as a tree, before anything is built.
 *
 * One pass over the bytes that knows strings, brackets and where a value begins, and checks
 * nothing else: the parser does that. A text that is no JSON has a cost too.
 *
 * json_look_bytes is never less than what jansson 2.13 and later takes at its peak for a text that
 * it accepts, as glibc's malloc rounds it on 64 bits, and for other texts up to their fault:
 *
 *     each              bytes   of which
 *     object              224   struct 80, 8 buckets 144
 *     array               128   struct 48, 8 places 80
 *     number               32   true, false and null are there once
 *     string               80   struct 48, its block's rounding 32; and its length
 *     place in a list      24   doubled and copied: 16 new, 8 old
 *     member               48   as buckets; its name counts as a string
 *
 * and four times the longest string or number, which the lexer gathers in a buffer that doubles. So
 * two bytes of text, "{}" in a list, become 251: the bound is on this and not on the length. */
#ifndef BASE_JSON_LOOK_H
#define BASE_JSON_LOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct json_look {
    uint64_t objects, arrays, numbers, words, strings; /* names of members are strings */
    uint64_t members, places;
    uint64_t string_bytes; /* as written, without quotes */
    uint64_t longest;      /* string, number or word */
    uint32_t depth;        /* most brackets open at once */
    size_t deepest_at;     /* the byte where that was first so */
} json_look;

/* Looks at all of bytes[0..len). O(len). */
void json_look_at(json_look *look, const char *bytes, size_t len);

/* Values in all: what a tree has nodes, and names of members. */
uint64_t json_look_values(const json_look *look);

uint64_t json_look_bytes(const json_look *look);

#endif
