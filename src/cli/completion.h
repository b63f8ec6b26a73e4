/* completion.h - what shells complete: the tables that --help is printed from, as a shell's words.
 */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include "cli/options.h"

/* What the value of an option is. */
typedef enum completion_value {
    COMPLETION_NONE, /* a flag has none; or any word */
    COMPLETION_WORD,
    COMPLETION_FILE,
    COMPLETION_CHOICE /* one of those that its row lists, or of those between the | of its arg */
} completion_value;

completion_value completion_value_of(const cli_option *o);

/* Of "auto|cpu|cuda[:N]" the words auto, cpu and cuda; of "a (default), b or c" a, b and c. */
void completion_print_choices(const cli_option *o);

/* What a word without a dash may be: COMPLETION_A_FILE, words with blanks between, or "". */
#define COMPLETION_A_FILE "file"
const char *completion_words(const cli_manual *m, bool takes_word);

/* All of `radish completion fish`. */
void completion_print_fish(void);

#endif
