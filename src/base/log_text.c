/* log_text.c - see log_text.h. */
#include "base/log_text.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static bool is_harmful(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void log_text_clean(char *line)
{
    unsigned char *in = (unsigned char *)line, *out = in;
    while (*in) {
        utf8_char c = utf8_next(in, UTF8_MOST); /* none goes on past the NUL */
        if (c.valid && !is_harmful(c.code)) {
            memmove(out, in, c.len);
            out += c.len;
        } else {
            *out++ = *in == '\n' || *in == '\t' ? ' ' : '?';
        }
        in += c.valid ? c.len : 1;
    }
    *out = 0;
}
