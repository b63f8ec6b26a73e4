/* nfc.h - Unicode's normalization form C, for the models whose authors asked for it.
 * Private to this room. */
#ifndef TEXT_NFC_H
#define TEXT_NFC_H

#include "base/base.h"

/* true: text (valid UTF-8) is in NFC for sure. Fast; most text is. */
bool nfc_is_plain(const char *text, size_t len);

typedef struct nfc_text {
    char *data;
    size_t len, cap;
} nfc_text;

/* Appends the NFC of text (valid UTF-8) to `out`, which is freed with nfc_fini also
 * after a failure. Linear: in a run of more than NFC_MOST_MARKS combining marks, which
 * no language writes, each so many are put into order by themselves. */
enum { NFC_MOST_MARKS = 128 };
rad_status nfc_normalize(const rad_env *env, const char *text, size_t len, nfc_text *out);
void nfc_fini(const rad_env *env, nfc_text *text);

#endif
