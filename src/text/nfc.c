/* nfc.c - normalization by utf8proc, behind a quick look that mostly avoids it.
 *
 * The blocks below hold only characters that are their own normal form and never
 * change with what stands before them; a text of nothing else is in NFC. What is not
 * listed is not wrong, only slower.
 *
 * utf8proc sorts combining marks by exchanging neighbours, which is quadratic in the
 * length of a run of marks, so text is handed over in parts that end in a run that is
 * too long. */
#include "text/nfc.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

static const struct block {
    uint32_t first, last;
} plain[] = {
    {0x0000, 0x02ff}, {0x0388, 0x0482}, {0x048a, 0x058f}, {0x2010, 0x2027},
    {0x2030, 0x205e}, {0x3001, 0x3029}, {0x3030, 0x3098}, {0x309b, 0x30ff},
    {0x3400, 0x9fff}, {0xac00, 0xd7a3}, {0xff00, 0xffef}, {0x1f300, 0x1faff},
};

static bool is_plain(uint32_t code)
{
    for (size_t i = 0; i < RAD_COUNT(plain); i++)
        if (code <= plain[i].last) return code >= plain[i].first;
    return false;
}

bool nfc_is_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        if (!(text[i] & 0x80)) {
            i++;
            continue;
        }
        utf8_char c = utf8_next((const unsigned char *)text + i, len - i);
        if (!is_plain(c.code)) return false;
        i += c.len;
    }
    return true;
}

/* The end of the part that starts at `from`: the text's, or a place in a run of marks. */
static size_t part_end(const char *text, size_t len, size_t from)
{
    size_t marks = 0, i = from;
    while (i < len && marks < NFC_MOST_MARKS) {
        utf8_char c = utf8_next((const unsigned char *)text + i, len - i);
        bool mark = !is_plain(c.code) &&
                    utf8proc_get_property((utf8proc_int32_t)c.code)->combining_class != 0;
        marks = mark ? marks + 1 : 0;
        i += c.len;
    }
    return i;
}

static rad_status append(const rad_env *env, nfc_text *out, const void *bytes, size_t len)
{
    if (len > out->cap - out->len) {
        size_t more = RAD_MAX(out->len + len, out->cap * 2);
        char *grown = rad_alloc(env, more);
        if (!grown) return RAD_E_NOMEM;
        if (out->len) memcpy(grown, out->data, out->len);
        rad_free(env, out->data, out->cap);
        out->data = grown;
        out->cap = more;
    }
    if (len) memcpy(out->data + out->len, bytes, len);
    out->len += len;
    return RAD_OK;
}

rad_status nfc_normalize(const rad_env *env, const char *text, size_t len, nfc_text *out)
{
    rad_status status = RAD_OK;
    for (size_t from = 0, end; from < len && !status; from = end) {
        end = part_end(text, len, from);
        utf8proc_uint8_t *part = NULL;
        utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text + from,
                                          (utf8proc_ssize_t)(end - from), &part,
                                          UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (n < 0) return n == UTF8PROC_ERROR_NOMEM ? RAD_E_NOMEM : RAD_E_LIMIT;
        status = append(env, out, part, (size_t)n);
        free(part);
    }
    return status;
}

void nfc_fini(const rad_env *env, nfc_text *text)
{
    rad_free(env, text->data, text->cap);
    *text = (nfc_text){0};
}
