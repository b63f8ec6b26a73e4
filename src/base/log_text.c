/* log_text.c - see log_text.h. */
#include "base/log_text.h"

#include "base/utf8.h"

#include <string.h>

static bool is_harmful(uint32_t c)
{
    return utf8_is_control(c) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void log_text_clean(char *line)
{
    unsigned char *in = (unsigned char *)line, *out = in, *end = in + strlen(line);
    while (in < end) {
        utf8_char c = utf8_next(in, (size_t)(end - in));
        unsigned len = c.valid ? c.len : 1; /* of what is none, each byte for itself */
        if (c.valid && !is_harmful(c.code)) {
            memmove(out, in, len);
            out += len;
        } else {
            *out++ = *in == '\n' || *in == '\t' ? ' ' : '?';
        }
        in += len;
    }
    *out = 0;
}
