/* json_look.c - the pass over the bytes, and the prices. */
#include "base/json_look.h"

#include <string.h>

enum {
    OBJECT = 224,
    ARRAY = 128,
    NUMBER = 32,
    STRING = 80,
    PLACE = 24,
    MEMBER = 48,
    PARSER = 4096 /* the lexer and the stream */
};

/* The index of the quote that ends the string which begins at `at`, or len. */
static size_t string_end(const char *bytes, size_t at, size_t len)
{
    while (at < len && bytes[at] != '"')
        at += bytes[at] == '\\' ? 2 : 1;
    return at < len ? at : len;
}

/* true, false, null */
static bool begins_word(char c)
{
    return c == 't' || c == 'f' || c == 'n';
}

void json_look_at(json_look *look, const char *bytes, size_t len)
{
    json_look l = {0};
    uint32_t open = 0;
    bool in_scalar = false; /* the byte before belongs to a number or a word */
    size_t scalar_at = 0;   /* which began there */
    for (size_t i = 0; i < len; i++) {
        bool scalar = false;
        switch (bytes[i]) {
        case '"': {
            size_t end = string_end(bytes, i + 1, len);
            uint64_t string = end - (i + 1 < end ? i + 1 : end);
            l.strings++;
            l.string_bytes += string;
            if (string > l.longest) l.longest = string;
            i = end;
            break;
        }
        case '[':
        case '{':
            l.arrays += bytes[i] == '[';
            l.objects += bytes[i] == '{';
            l.places++;
            if (++open > l.depth) {
                l.depth = open;
                l.deepest_at = i;
            }
            break;
        case ']':
        case '}':
            if (open) open--; /* else the parser complains */
            break;
        case ',': l.places++; break;
        case ':': l.members++; break;
        case ' ':
        case '\t':
        case '\n':
        case '\r': break;
        default:
            scalar = true;
            if (!in_scalar) scalar_at = i;
            if (i + 1 - scalar_at > l.longest) l.longest = i + 1 - scalar_at;
            l.words += !in_scalar && begins_word(bytes[i]);
            l.numbers += !in_scalar && !begins_word(bytes[i]);
        }
        in_scalar = scalar;
    }
    *look = l;
}

uint64_t json_look_values(const json_look *l)
{
    return l->objects + l->arrays + l->numbers + l->words + l->strings;
}

uint64_t json_look_bytes(const json_look *l)
{
    return l->objects * OBJECT + l->arrays * ARRAY + l->numbers * NUMBER + l->strings * STRING +
           l->string_bytes + l->members * MEMBER + l->places * PLACE + 4 * l->longest + PARSER;
}
