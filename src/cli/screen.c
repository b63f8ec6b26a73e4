/* screen.c - text, and the escapes that colour it. */
#include "cli/screen.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const char *const STYLES[] = {"", "\033[1m", "\033[2m", "\033[32m", "\033[31m"};

static void append(screen *s, const char *bytes, size_t len)
{
    if (s->len + len + 1 > s->cap) {
        const size_t cap = 2 * (s->len + len + 1);
        char *more = realloc(s->text, cap);
        if (!more) {
            s->lost = true;
            return;
        }
        s->text = more;
        s->cap = cap;
    }
    memcpy(s->text + s->len, bytes, len);
    s->len += len;
    s->text[s->len] = 0;
}

bool screen_is_full(const screen *s)
{
    return s->height && s->line >= s->height;
}

void screen_begin(screen *s, uint32_t width, uint32_t height, bool colour)
{
    s->width = width;
    s->height = height;
    s->colour = colour;
    s->column = s->line = 0;
    s->len = 0;
    append(s, "", 0);
}

void screen_fini(screen *s)
{
    free(s->text);
    *s = (screen){0};
}

/* One character of `len` bytes, or what stands for one that cannot be shown. */
static void put_char(screen *s, const char *bytes, size_t len, utf8proc_int32_t c)
{
    const int width = c < 0 ? 1 : utf8proc_charwidth(c);
    const bool harmful = c < 0 || utf8_is_harmful((uint32_t)c);
    const uint32_t columns = harmful ? 1 : (uint32_t)RAD_MAX(width, 0);
    if (s->column + columns > s->width) {
        s->column = s->width; /* nothing comes behind what is cut */
        return;
    }
    s->column += columns;
    append(s, harmful ? "?" : bytes, harmful ? 1 : len);
}

static void put_text(screen *s, screen_style style, const char *text)
{
    if (screen_is_full(s) || s->column >= s->width) return;
    const bool styled = s->colour && style != SCREEN_PLAIN;
    if (styled) append(s, STYLES[style], strlen(STYLES[style]));
    for (size_t left = strlen(text); left && s->column < s->width;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t len =
            utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)left, &c);
        if (len <= 0) len = 1, c = -1;
        put_char(s, text, (size_t)len, c);
        text += len;
        left -= (size_t)len;
    }
    if (styled) append(s, "\033[0m", 4);
}

void screen_put(screen *s, screen_style style, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_text(s, style, text);
}

void screen_to(screen *s, uint32_t column)
{
    do
        put_text(s, SCREEN_PLAIN, " ");
    while (s->column < RAD_MIN(column, s->width));
}

void screen_bar(screen *s, const double *parts, const screen_style *styles, uint32_t count,
                uint32_t width)
{
    double sum = 0;
    uint32_t drawn = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += parts[i];
        uint32_t to = (uint32_t)(RAD_MIN(sum, 1.0) * width + 0.5);
        if (to == drawn && parts[i] > 0 && drawn < width) to++; /* something is something */
        for (; drawn < to; drawn++)
            put_text(s, styles[i], i % 2 ? "▒" : "█");
    }
    for (; drawn < width; drawn++)
        put_text(s, SCREEN_DIM, "·");
}

void screen_curve(screen *s, const double *values, uint32_t count, uint32_t width)
{
    static const char *const steps[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const uint32_t shown = RAD_MIN(count, width);
    const double *from = values + (count - shown);
    double most = 0;
    for (uint32_t i = 0; i < shown; i++)
        most = RAD_MAX(most, from[i]);
    for (uint32_t i = 0; i < shown; i++)
        put_text(s, SCREEN_GOOD, steps[most > 0 ? (uint32_t)(from[i] / most * 7 + 0.5) : 0]);
}

void screen_end_line(screen *s)
{
    if (screen_is_full(s)) return;
    s->line++;
    s->column = 0;
    append(s, "\n", 1);
}

const char *screen_number(char text[32], uint64_t n)
{
    char digits[24];
    const int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *to = text;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return text;
}

const char *screen_age(char text[32], double seconds)
{
    const unsigned long long s = seconds > 0 ? (unsigned long long)seconds : 0;
    if (s < 10)
        snprintf(text, 32, "%.1f s", RAD_MAX(seconds, 0));
    else if (s < 120)
        snprintf(text, 32, "%llu s", s);
    else if (s < 7200)
        snprintf(text, 32, "%llu min", s / 60);
    else if (s < 172800)
        snprintf(text, 32, "%llu h %02llu min", s / 3600, s / 60 % 60);
    else
        snprintf(text, 32, "%llu days", s / 86400);
    return text;
}
