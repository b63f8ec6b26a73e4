/* grammar_rig.h - grammars for tests: small vocabularies, and what is allowed, found naively. */
#ifndef TESTS_GRAMMAR_RIG_H
#define TESTS_GRAMMAR_RIG_H

#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

enum { RIG_TOKENS = 1024, RIG_PIECE = 64 };

/* Every byte is token 0..255, then what is added; the last two are made by rig_finish: a control
 * token and the end token. */
typedef struct rig_vocab {
    char bytes[RIG_TOKENS][RIG_PIECE];
    grammar_piece pieces[RIG_TOKENS];
    uint32_t count;
    rad_token end;
    grammar_vocab *v;
} rig_vocab;

static inline void rig_add(rig_vocab *r, const char *bytes, size_t len)
{
    if (r->count >= RIG_TOKENS - 2 || len >= RIG_PIECE) abort();
    memcpy(r->bytes[r->count], bytes, len);
    r->pieces[r->count] = (grammar_piece){.bytes = r->bytes[r->count], .len = (uint32_t)len};
    r->count++;
}

static inline void rig_begin(rig_vocab *r)
{
    memset(r, 0, sizeof *r);
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        rig_add(r, &byte, 1);
    }
}

static inline rad_status rig_finish(rig_vocab *r, const rad_env *env, uint64_t cache_bytes)
{
    r->pieces[r->count] = (grammar_piece){.bytes = "<tool>", .len = 6, .control = true};
    r->pieces[r->count + 1] = (grammar_piece){.bytes = "<end>", .len = 5, .control = true};
    r->end = (rad_token)r->count + 1;
    grammar_vocab_params params = {.pieces = r->pieces,
                                   .vocab_size = r->count + 2,
                                   .end_tokens = &r->end,
                                   .num_end_tokens = 1,
                                   .cache_bytes = cache_bytes};
    return grammar_vocab_create(env, &params, &r->v, NULL);
}

static inline rad_token rig_token(const rig_vocab *r, const char *text)
{
    for (uint32_t i = r->count; i-- > 0;)
        if (r->pieces[i].len == strlen(text) && memcmp(r->bytes[i], text, strlen(text)) == 0)
            return (rad_token)i;
    return -1;
}

static inline bool rig_bit(const uint32_t *bits, uint32_t i)
{
    return bits[i / 32] >> i % 32 & 1;
}

#endif
