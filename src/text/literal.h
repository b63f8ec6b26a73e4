/* literal.h - named arguments in Python's notation, or Gemma's, to a JSON object; a byte at a time.
 *
 *     a="x", b=[1, None])                  ->  {"a": "x", "b": [1, null]}
 *     key:<|"|>text<|"|>,n:1,obj:{k:true}} ->  {"key": "text", "n": 1, "obj": {"k": true}}
 *
 * Python: both quotes, tripled too, and their escapes; True, true and the like; numbers with _ and
 * without digits on one side of the point; tuples are lists. Prefixed and adjacent strings,
 * expressions and arguments without names are refused. Memory is fixed. */
#ifndef TEXT_LITERAL_H
#define TEXT_LITERAL_H

#include "text/detokenize.h"
#include "text/json_scan.h"

typedef struct literal_style {
    char close;        /* behind the last argument */
    char assign;       /* between a name and its value */
    bool bare;         /* a word that is nothing else is a string */
    const char *quote; /* on both sides of a string, or NULL; " and ' are it in any case */
} literal_style;

enum { LITERAL_DEPTH = 32, LITERAL_MOST_WORD = 255 };

typedef struct literal {
    const literal_style *style;
    char closers[LITERAL_DEPTH];
    uint8_t depth, state, more, word_len;
    bool first, is_key, triple;
    char quote; /* of the string that is open; 0: the style's */
    uint8_t matched;
    uint32_t code;
    char word[LITERAL_MOST_WORD + 1];
} literal;

void literal_begin(literal *l, const literal_style *style); /* behind the opening bracket */

/* Appends the JSON that this byte adds to `out`; *nomem where there is no memory for it. JSON_DONE:
 * it was the closing bracket. */
json_scanned literal_push(literal *l, char c, text_buf *out, bool *nomem);

/* Text inside of a JSON string. RAD_E_NOMEM. */
rad_status json_escape(text_buf *out, const char *text, size_t len);

#endif
