/* flag_words.h - errors and warnings in the words of the command line. */
#ifndef CLI_FLAG_WORDS_H
#define CLI_FLAG_WORDS_H

#include "cli/options.h"

#include "base/base.h"

/* The options that the running command has; their names are kept, nothing else of them. */
void flag_words_set(const cli_option *options, unsigned count);

/* "context_length 9 is ..." becomes "--context-length 9 is ...", where the command has such a flag.
 * `size`: what `text` has room for; what would not fit stays. */
void flag_words_put(char *text, size_t size);

#endif
