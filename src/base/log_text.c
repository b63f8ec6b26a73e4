/* log_text.c - see log_text.h. */
#include "base/log_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The bytes of the character at p, 0 for what is not UTF-8; NUL ends the text and no character. */
static unsigned read_char(const unsigned char *p, uint32_t *code)
{
    unsigned len = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : *p >= 0xc2 ? 2 : 0;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (!len || *p > 0xf4) return 0;
    *code = len == 1 ? *p : *p & (0xffu >> (len + 1));
    for (unsigned i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (p[i] & 0x3fu);
    }
    bool surrogate = *code >= 0xd800 && *code < 0xe000;
    return *code < least[len] || *code > 0x10ffff || surrogate ? 0 : len;
}

static bool is_harmful(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void log_text_clean(char *line)
{
    unsigned char *in = (unsigned char *)line, *out = in;
    while (*in) {
        uint32_t code = 0;
        unsigned len = read_char(in, &code);
        if (len && !is_harmful(code)) {
            memmove(out, in, len);
            out += len;
        } else {
            *out++ = *in == '\n' || *in == '\t' ? ' ' : '?';
        }
        in += len ? len : 1;
    }
    *out = 0;
}
