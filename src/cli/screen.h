/* screen.h - a page of a terminal as text: lines that are cut at its width. */
#ifndef CLI_SCREEN_H
#define CLI_SCREEN_H

#include "base/base.h"

typedef enum screen_style {
    SCREEN_PLAIN,
    SCREEN_BOLD,
    SCREEN_DIM,
    SCREEN_GOOD,
    SCREEN_BAD
} screen_style;

typedef struct screen {
    uint32_t width, height; /* columns; lines, 0: as many as there are */
    bool colour;
    char *text; /* NUL-terminated */
    size_t len, cap;
    uint32_t column, line;
    bool lost; /* no memory for all of it */
} screen;

/* Goes on in the line; what is beyond the width or the height is left out. Control characters of
 * the text become question marks. */
void screen_put(screen *s, screen_style style, const char *fmt, ...) RAD_PRINTF(3, 4);

/* Blanks up to a column, one at least. */
void screen_to(screen *s, uint32_t column);

/* `filled` of `width` columns, in eighths: parts of a whole that are drawn in one another's row. */
void screen_bar(screen *s, const double *parts, const screen_style *styles, uint32_t count,
                uint32_t width);

/* The last `width` of `count` values, the highest as high as a line is. */
void screen_curve(screen *s, const double *values, uint32_t count, uint32_t width);

void screen_end_line(screen *s);
bool screen_is_full(const screen *s); /* no line more is to be seen */

/* An empty page of this size. */
void screen_begin(screen *s, uint32_t width, uint32_t height, bool colour);
void screen_fini(screen *s);

/* "1,234,567" */
const char *screen_number(char text[32], uint64_t n);
/* "3.2 s", "12 min", "5 h 03 min", "3 days" */
const char *screen_age(char text[32], double seconds);

#endif
