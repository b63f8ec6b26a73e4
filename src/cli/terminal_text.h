/* terminal_text.h - text of a model or a file, for a terminal that it must not drive. */
#ifndef CLI_TERMINAL_TEXT_H
#define CLI_TERMINAL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes `text`. Where `stream` is a terminal what would move its cursor, colour, retitle or turn
 * it (control characters but newline and tab, and those that turn the direction of text) is shown
 * instead: ^[ for Esc, <U+202E> for others; bytes that are no UTF-8 are U+FFFD. Elsewhere each byte
 * is as it was. */
void terminal_text_write(FILE *stream, const char *text, size_t len);

#endif
