/* terminal_text.c - what is plain goes through in runs, the rest by its name. */
#include "cli/terminal_text.h"

#include "base/utf8.h"

#include <unistd.h>

static bool drives(uint32_t code)
{
    return utf8_is_harmful(code) && code != '\n' && code != '\t';
}

void terminal_text_write(FILE *stream, const char *text, size_t len)
{
    if (!isatty(fileno(stream))) {
        fwrite(text, 1, len, stream);
        return;
    }
    size_t from = 0, at = 0;
    while (at < len) {
        const utf8_char c = utf8_next((const unsigned char *)text + at, len - at);
        if (c.valid && !drives(c.code)) {
            at += c.len;
            continue;
        }
        fwrite(text + from, 1, at - from, stream);
        if (!c.valid)
            fputs("\xef\xbf\xbd", stream);
        else if (c.code < 0x80)
            fprintf(stream, "^%c", (int)(c.code ^ 0x40));
        else
            fprintf(stream, "<U+%04X>", (unsigned)c.code);
        at += c.len;
        from = at;
    }
    fwrite(text + from, 1, at - from, stream);
}
