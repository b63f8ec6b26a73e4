/* log_text.h - a line of a log is one line, whatever strangers' words are in it. */
#ifndef BASE_LOG_TEXT_H
#define BASE_LOG_TEXT_H

/* Replaces in place what could end the line, move the cursor or turn the text around: a newline
 * and a tab become a space; other controls (C0, DEL, C1), marks of direction (U+061C, U+200E,
 * U+200F, U+202A to U+202E, U+2066 to U+2069), the separators U+2028 and U+2029 and bytes that
 * are not UTF-8 become '?'. Never longer than before. */
void log_text_clean(char *line);

#endif
