/* svg_chart.h - curves, bars and stacks as inline SVG, in a page that needs nothing else.
 *
 * Colours are the page's variables --s1 ... --s8, so that one picture serves light and dark; what a
 * mark stands for is its title, which browsers show. Texts are escaped here. */
#ifndef CLI_SVG_CHART_H
#define CLI_SVG_CHART_H

#include "base/base.h"

#include <stdio.h>

enum { SVG_COLOURS = 8, SVG_MOST_LABELS = 24 };

typedef struct svg_chart {
    const char *title;
    double most;               /* of y; 0 is the least */
    bool percent;              /* y is a share */
    uint32_t count;            /* places along x */
    const char *const *labels; /* of these; "": none is written there */
} svg_chart;

void svg_text(FILE *out, const char *text); /* as HTML */

void svg_begin(FILE *out, const svg_chart *c);

/* A curve through values[0..count); those below 0 are left out. `dashed`: a limit, not a
 * measurement. */
void svg_curve(FILE *out, const svg_chart *c, unsigned colour, bool dashed, const char *name,
               const double *values);

/* A bar at each place, from `base` (NULL: from 0) up by values. */
void svg_bars(FILE *out, const svg_chart *c, unsigned colour, const char *name, const double *base,
              const double *values);

void svg_end(FILE *out);

void svg_legend(FILE *out, unsigned colour, bool dashed, const char *name);

#endif
