/* svg_chart.c - see the header.
 *
 *     LEFT |  places, each WIDTH / count wide  | RIGHT
 *          +-----------------------------------+  TOP + HEIGHT
 *             labels */
#include "cli/svg_chart.h"

enum { LEFT = 52, TOP = 12, WIDTH = 640, HEIGHT = 240, RIGHT = 12, BELOW = 34, LINES = 5 };

void svg_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
        }
    }
}

static double x_of(const svg_chart *c, uint32_t place)
{
    return LEFT + ((double)place + 0.5) * WIDTH / RAD_MAX(c->count, 1u);
}

static double y_of(const svg_chart *c, double value)
{
    return TOP + HEIGHT * (1 - (c->most > 0 ? RAD_MIN(value, c->most) / c->most : 0));
}

static void put_value(FILE *out, const svg_chart *c, double value)
{
    if (c->percent)
        fprintf(out, "%.4g%%", 100 * value);
    else
        fprintf(out, "%.4g", value);
}

void svg_begin(FILE *out, const svg_chart *c)
{
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", LEFT + WIDTH + RIGHT,
            TOP + HEIGHT + BELOW);
    svg_text(out, c->title);
    fputs("\">\n", out);
    for (int i = 0; i <= LINES; i++) {
        const double value = c->most * i / LINES, y = y_of(c, value);
        fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                LEFT + WIDTH, y, y);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 4);
        put_value(out, c, value);
        fputs("</text>\n", out);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        if (!c->labels[i][0]) continue;
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", x_of(c, i),
                TOP + HEIGHT + 18);
        svg_text(out, c->labels[i]);
        fputs("</text>\n", out);
    }
}

void svg_curve(FILE *out, const svg_chart *c, unsigned colour, bool dashed, const char *name,
               const double *values)
{
    fprintf(out, "<polyline class=\"curve%s\" style=\"stroke:var(--s%u)\" points=\"",
            dashed ? " dashed" : "", colour % SVG_COLOURS + 1);
    for (uint32_t i = 0; i < c->count; i++)
        if (values[i] >= 0) fprintf(out, "%.1f,%.1f ", x_of(c, i), y_of(c, values[i]));
    fputs("\"/>\n", out);
    for (uint32_t i = 0; i < c->count; i++) {
        if (values[i] < 0) continue;
        fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" style=\"fill:var(--s%u)\"><title>",
                x_of(c, i), y_of(c, values[i]), c->count > 30 ? "1.5" : "3.5",
                colour % SVG_COLOURS + 1);
        svg_text(out, name);
        if (c->labels[i][0]) fputs(", ", out);
        svg_text(out, c->labels[i]);
        fputs(": ", out);
        put_value(out, c, values[i]);
        fputs("</title></circle>\n", out);
    }
}

void svg_bars(FILE *out, const svg_chart *c, unsigned colour, const char *name, const double *base,
              const double *values)
{
    const double width = 0.7 * WIDTH / RAD_MAX(c->count, 1u);
    for (uint32_t i = 0; i < c->count; i++) {
        const double from = base ? base[i] : 0;
        if (values[i] <= 0) continue;
        const double top = y_of(c, from + values[i]);
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "style=\"fill:var(--s%u)\"><title>",
                x_of(c, i) - width / 2, top, width, y_of(c, from) - top, colour % SVG_COLOURS + 1);
        svg_text(out, name);
        fputs(", ", out);
        svg_text(out, c->labels[i]);
        fputs(": ", out);
        put_value(out, c, values[i]);
        fputs("</title></rect>\n", out);
    }
}

void svg_end(FILE *out)
{
    fputs("</svg>\n", out);
}

void svg_legend(FILE *out, unsigned colour, bool dashed, const char *name)
{
    fprintf(out, "<span class=\"key\"><i class=\"%s\" style=\"--c:var(--s%u)\"></i>",
            dashed ? "dashed" : "", colour % SVG_COLOURS + 1);
    svg_text(out, name);
    fputs("</span>\n", out);
}
