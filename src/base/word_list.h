/* word_list.h - names of a table, as a sentence lists them: "lru, lfu and fifo". */
#ifndef BASE_WORD_LIST_H
#define BASE_WORD_LIST_H

#include "base/base.h"

#include <stdio.h>

/* Appends a word to text[0..size), which holds `index` of `count` words; `last` stands before the
 * last one: "and", "or". Cut where it does not fit. */
static inline void word_list_add(char *text, size_t size, uint32_t index, uint32_t count,
                                 const char *last, const char *word)
{
    size_t len = index ? strlen(text) : 0;
    const char *before = !index ? "" : index + 1 < count ? ", " : " ";
    bool ends = index && index + 1 == count;
    snprintf(text + len, size - len, "%s%s%s%s", before, ends ? last : "", ends ? " " : "", word);
}

/* All of them; NULL ends them. Returns `text`. */
static inline const char *word_list(char *text, size_t size, const char *const *words,
                                    const char *last)
{
    uint32_t count = 0;
    *text = 0;
    while (words[count])
        count++;
    for (uint32_t i = 0; i < count; i++)
        word_list_add(text, size, i, count, last, words[i]);
    return text;
}

#endif
