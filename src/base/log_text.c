/* log_text.c - see log_text.h. */
#include "base/log_text.h"

#include "base/utf8.h"

#include <string.h>

void log_text_clean(char *line)
{
    unsigned char *in = (unsigned char *)line, *out = in, *end = in + strlen(line);
    while (in < end) {
        utf8_char c = utf8_next(in, (size_t)(end - in));
        unsigned len = c.valid ? c.len : 1; /* of what is none, each byte for itself */
        if (c.valid && !utf8_is_harmful(c.code)) {
            memmove(out, in, len);
            out += len;
        } else {
            *out++ = *in == '\n' || *in == '\t' ? ' ' : '?';
        }
        in += len;
    }
    *out = 0;
}
