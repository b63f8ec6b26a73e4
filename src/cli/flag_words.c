/* flag_words.c - replaces whole words, from left to right, in place.
 *
 * The engine's parameters are called as the flags, with _ for -: what it says of context_length is
 * meant for whoever gave --context-length. Names of one word (port, config) read well either way
 * and stay. */
#include "cli/flag_words.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FLAGS = 256 };

static const char *flags[MOST_FLAGS]; /* literals of the last table */
static unsigned num_flags;

/* Parameters whose flags are called otherwise. */
static const struct {
    const char *param, *flag;
} others[] = {{"verify_rate", "verify"}, {"self_check_interval_s", "self-check-interval"}};

void flag_words_set(const cli_option *options, unsigned count)
{
    num_flags = 0;
    for (unsigned i = 0; i < count && num_flags < MOST_FLAGS; i++)
        if (options[i].kind != CLI_HEADING) flags[num_flags++] = options[i].name;
}

static bool is_flag(const char *name)
{
    for (unsigned i = 0; i < num_flags; i++)
        if (!strcmp(flags[i], name)) return true;
    return false;
}

/* A word of a parameter: letters and digits with _ between them. */
static size_t word_len(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
}

/* Its flag's name into `flag`; false: it has none. */
static bool flag_of(const char *word, size_t len, char *flag, size_t size)
{
    if (!memchr(word, '_', len) || len >= size) return false;
    for (size_t i = 0; i < RAD_COUNT(others); i++)
        if (strlen(others[i].param) == len && !memcmp(others[i].param, word, len))
            snprintf(flag, size, "%s", others[i].flag);
    if (*flag) return is_flag(flag);
    for (size_t i = 0; i < len; i++)
        flag[i] = word[i] == '_' ? '-' : word[i];
    flag[len] = 0;
    return is_flag(flag);
}

/* What a quote, a path, a file's name or a JSON key is part of stays as it is. */
static bool stands_alone(const char *text, const char *word, size_t len)
{
    const bool before = word == text || strchr(" (", word[-1]);
    return before &&
           (strchr(" ,:;)", word[len]) || (word[len] == '.' && strchr(" \n", word[len + 1])));
}

void flag_words_put(char *text, size_t size)
{
    for (char *at = text; *at;) {
        char flag[64] = "";
        const size_t len = word_len(at);
        if (!len) {
            at++;
            continue;
        }
        if (stands_alone(text, at, len) && flag_of(at, len, flag, sizeof flag)) {
            const size_t new_len = strlen(flag) + 2, rest = strlen(at + len) + 1;
            if ((size_t)(at - text) + new_len + rest > size) return;
            memmove(at + new_len, at + len, rest);
            memcpy(at, "--", 2);
            memcpy(at + 2, flag, new_len - 2);
            at += new_len;
        } else {
            at += len;
        }
    }
}
