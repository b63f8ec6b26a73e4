/* line_input.h - lines that a person types: editing and history on a terminal, Ctrl-C, files.
 *
 * With libedit, where it was there when radish was built: the arrow keys, Ctrl-R, and the lines of
 * earlier conversations. Without it, and where no terminal is, lines are read as they come. */
#ifndef CLI_LINE_INPUT_H
#define CLI_LINE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct line_input line_input;

/* Before there are threads: what is typed is UTF-8, also where the environment names no locale (a
 * container, cron), in which libedit would leave out all but ASCII. Numbers stay C's. */
void line_input_prepare(void);

/* Reads stdin. history: the file whose lines are remembered, and which gets the new ones; NULL:
 * none. One that cannot be read is as good as empty. words: what Tab completes at the beginning of
 * a line, up to a NULL; it must outlive the input. NULL: no memory. */
line_input *line_input_open(const char *prompt, const char *history, const char *const *words);
void line_input_close(line_input *in); /* NULL is fine */

bool line_input_is_terminal(const line_input *in);

/* The next line, its end cut off, in *line until the next call; a line that ends with a backslash
 * goes on in the next. Returns its length; -1 at the end of the input, or after a Ctrl-C where
 * another one just came: the first throws away what was typed. */
ssize_t line_input_read(line_input *in, char **line);

/* Whether lines can be edited in this build. */
bool line_input_can_edit(void);

/* "$XDG_STATE_HOME/radish/NAME", or below ~/.local/state; its directories are made. false: there is
 * no such place, or the name is too long. */
bool line_input_history_path(const char *name, char *path, size_t size);

#endif
