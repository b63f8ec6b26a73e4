/* tokenizer.c - text to ids: cut out the special tokens, cut the rest into pieces, merge
 * inside each piece.
 *
 *     "Hi <|im_end|> 42"
 *      |    |         |
 *      text control   text       user-defined tokens always, control tokens only on
 *      |              |          request; the longest that begins at a place wins
 *      "Hi" " "       " " "42"   pieces: regular expressions (BPE) or words (SPM)
 *      |              |
 *      merges         merges     symbols; what is no token at the end becomes bytes
 *
 * A shortcut: for most tokens, merging their own bytes gives just that token again
 * (`whole`, found out at create). A piece that equals such a token needs no merging,
 * and that is most pieces of ordinary text.
 *
 * Everything here is read-only after create; encode keeps its scratch on the caller's
 * stack and in the env, so threads do not meet (the env's alloc must allow that). */
#include "text/tokenizer.h"
#include "text/bpe.h"
#include "text/markers.h"
#include "text/pretokenize.h"
#include "text/spm.h"
#include "text/vocab.h"

#include <stdlib.h>

struct tokenizer {
    rad_env env;
    vocab vocab;
    bpe bpe;
    spm spm;           /* when vocab.is_text */
    pretokenizer *pre; /* unless vocab.is_spm */
    uint8_t *whole;    /* per token: merging its bytes gives itself */
    uint8_t *eog;      /* per token: ends a generation */
    uint32_t num_tokens;
    rad_token bos, eos;
    bool add_bos, add_eos;
};

/* ---- create ---- */

static rad_status read_id(const tokenizer *t, const gguf_file *file, const char *key,
                          rad_token *out, rad_error *err)
{
    uint32_t id;
    rad_status status = gguf_get_u32(file, key, &id, err);
    *out = -1;
    if (status < 0 || status == RAD_NONE || id == UINT32_MAX) return status < 0 ? status : RAD_OK;
    if (id >= t->num_tokens)
        return rad_fail(err, RAD_E_FORMAT, "tokenizer: %s is %u, but there are %u tokens", key, id,
                        t->num_tokens);
    *out = (rad_token)id;
    return RAD_OK;
}

static rad_token find_control(const tokenizer *t, const char *name)
{
    rad_token id = vocab_special_find(&t->vocab, name, strlen(name));
    return id >= 0 && t->vocab.types[id] == TOKEN_CONTROL ? id : -1;
}

/* The tokens that are known by name to end an answer. */
static void mark_ends(tokenizer *t)
{
    size_t count;
    const marker *table = marker_table(&count);
    for (size_t i = 0; i < count; i++) {
        rad_token id = table[i].ends ? find_control(t, table[i].name) : -1;
        for (size_t k = 0; k < RAD_COUNT(table[i].not_if) && table[i].not_if[k]; k++)
            if (find_control(t, table[i].not_if[k]) >= 0) id = -1;
        if (id >= 0) t->eog[id] = 1;
    }
}

static rad_status read_ids(tokenizer *t, const gguf_file *file, rad_error *err)
{
    static const char *const eog_keys[] = {"tokenizer.ggml.eos_token_id",
                                           "tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};
    rad_status status = read_id(t, file, "tokenizer.ggml.bos_token_id", &t->bos, err);
    if (!status) status = read_id(t, file, eog_keys[0], &t->eos, err);
    for (size_t i = 0; i < RAD_COUNT(eog_keys) && !status; i++) {
        rad_token id;
        status = read_id(t, file, eog_keys[i], &id, err);
        if (!status && id >= 0) t->eog[id] = 1;
    }
    if (status) return status;
    mark_ends(t);
    t->add_bos = t->vocab.is_spm || pretokenizer_wants_bos(t->pre);
    status = gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &t->add_bos, err);
    if (status < 0) return status;
    if (t->pre && pretokenizer_needs_bos(t->pre)) t->add_bos = true;
    t->add_bos = t->add_bos && t->bos >= 0;
    status = gguf_get_bool(file, "tokenizer.ggml.add_eos_token", &t->add_eos, err);
    t->add_eos = t->add_eos && t->eos >= 0;
    return status < 0 ? status : RAD_OK;
}

static bool is_named(gguf_str text, const char *name)
{
    return text.len == strlen(name) && memcmp(text.data, name, text.len) == 0;
}

/* Which kind it is: the pre-tokenizer, if it has one, and what the vocabulary must know. */
static rad_status read_kind(tokenizer *t, const gguf_file *file, rad_error *err)
{
    gguf_str model, pre = {"", 0};
    rad_status status = gguf_get_str(file, "tokenizer.ggml.model", &model, err);
    if (status == RAD_NONE)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "tokenizer: the file holds no vocabulary (no tokenizer.ggml.model)");
    if (status) return status;
    t->vocab.is_spm = t->vocab.is_text = is_named(model, "llama");
    if (t->vocab.is_spm) return RAD_OK;
    if (!is_named(model, "gpt2") && !is_named(model, "gemma4"))
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "tokenizer: model '%.*s' is not one we know (gpt2, llama, gemma4)",
                        (int)RAD_MIN(model.len, 40), model.data);
    status = gguf_get_str(file, "tokenizer.ggml.pre", &pre, err);
    if (status < 0) return status;
    if (!pre.len) {
        pre = (gguf_str){"default", 7};
        rad_log(
            &t->env, RAD_LOG_INFO,
            "tokenizer: the file names no pre-tokenizer; text is cut as llama.cpp cuts it then");
    }
    if (is_named(model, "gemma4")) pre = model; /* whatever else the file says */
    status = pretokenizer_create(&t->env, pre, &t->pre, err);
    if (!status) t->vocab.is_text = pretokenizer_is_raw(t->pre);
    return status;
}

static rad_status create_bpe(tokenizer *t, const gguf_file *file, rad_error *err)
{
    rad_status status = bpe_read_merges(&t->bpe, &t->vocab, file, err);
    if (!status && t->vocab.is_text) spm_init_symbols(&t->spm, &t->vocab);
    return status;
}

/* Up to three symbols a byte: one that has no token becomes U+FFFD. */
static size_t byte_symbols(const vocab *v, const char *bytes, size_t len, uint32_t *symbols)
{
    static const unsigned char replacement[3] = {0xef, 0xbf, 0xbd};
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        rad_token id = v->byte_ids[(unsigned char)bytes[i]];
        if (id < 0) id = v->unknown;
        if (id >= 0)
            symbols[n++] = (uint32_t)id;
        else
            for (int k = 0; k < 3; k++)
                symbols[n++] = (uint32_t)v->byte_ids[replacement[k]];
    }
    return n;
}

/* Symbols of text[0..len), room for 3 * len of them. */
static size_t first_symbols(const tokenizer *t, const char *text, size_t len, uint32_t *symbols)
{
    return t->vocab.is_text ? spm_symbols(&t->spm, &t->vocab, text, len, symbols)
                            : byte_symbols(&t->vocab, text, len, symbols);
}

/* No merges lead to Gemma's runs of newlines; they are looked up whole. */
static bool is_newlines(const char *bytes, size_t len)
{
    size_t n = 0;
    while (n < len && bytes[n] == '\n')
        n++;
    return n == len;
}

static rad_status find_whole(tokenizer *t, rad_error *err)
{
    const vocab *v = &t->vocab;
    uint32_t symbols[3 * TOKENIZER_MAX_PIECE];
    bpe_scratch scratch = {.env = &t->env};
    rad_status status = RAD_OK;
    for (uint32_t id = 0; id < t->num_tokens && !status; id++) {
        const char *bytes = vocab_bytes(v, id);
        size_t len = v->symbols[id].len, n;
        if (!len || vocab_find(v, bytes, len) != id) continue;
        n = first_symbols(t, bytes, len, symbols);
        status = bpe_merge(&t->bpe, &scratch, symbols, &n);
        t->whole[id] = !status && n == 1 && symbols[0] == id;
        if (t->pre && pretokenizer_ignores_merges(t->pre)) t->whole[id] = 1;
        if (t->pre && v->is_text && is_newlines(bytes, len)) t->whole[id] = 1;
    }
    bpe_scratch_fini(&scratch);
    return status ? rad_fail(err, status, "tokenizer: no memory") : RAD_OK;
}

rad_status tokenizer_create(const rad_env *env, const gguf_file *file, tokenizer **out,
                            rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    tokenizer *t = rad_alloc(&full, sizeof *t);
    if (!t) return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    t->env = t->bpe.env = full;
    rad_status status = read_kind(t, file, err);
    if (!status) status = vocab_init(&t->vocab, &full, file, err);
    t->num_tokens = t->vocab.num_tokens;
    if (!status) {
        t->whole = rad_alloc(&full, t->num_tokens);
        t->eog = rad_alloc(&full, t->num_tokens);
        if (!t->whole || !t->eog) status = rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    }
    if (!status)
        status = t->vocab.is_spm ? spm_init(&t->spm, &t->bpe, &t->vocab, file, err)
                                 : create_bpe(t, file, err);
    if (!status) status = read_ids(t, file, err);
    if (!status) status = find_whole(t, err);
    if (status) {
        tokenizer_destroy(t);
        return status;
    }
    *out = t;
    return RAD_OK;
}

void tokenizer_destroy(tokenizer *t)
{
    if (!t) return;
    rad_env env = t->env;
    rad_free(&env, t->whole, t->num_tokens);
    rad_free(&env, t->eog, t->num_tokens);
    pretokenizer_destroy(t->pre);
    bpe_fini(&t->bpe);
    vocab_fini(&t->vocab);
    rad_free(&env, t, sizeof *t);
}

/* ---- questions ---- */

static bool in_vocab(const tokenizer *t, rad_token id)
{
    return id >= 0 && (uint32_t)id < t->num_tokens;
}

uint32_t tokenizer_vocab_size(const tokenizer *t)
{
    return t->num_tokens;
}
rad_token tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}
rad_token tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}
bool tokenizer_add_bos(const tokenizer *t)
{
    return t->add_bos;
}
bool tokenizer_is_eog(const tokenizer *t, rad_token id)
{
    return in_vocab(t, id) && t->eog[id];
}

bool tokenizer_is_control(const tokenizer *t, rad_token id)
{
    return in_vocab(t, id) && t->vocab.types[id] == TOKEN_CONTROL;
}

bool tokenizer_adds_space(const tokenizer *t)
{
    return t->vocab.is_spm && t->spm.add_space_prefix;
}

rad_token tokenizer_find(const tokenizer *t, const char *text, size_t len)
{
    rad_token id = vocab_special_find(&t->vocab, text, len);
    if (id >= 0) return id;
    uint32_t symbol = vocab_find(&t->vocab, text, len);
    return symbol < t->num_tokens ? (rad_token)symbol : -1;
}

rad_token tokenizer_control_at(const tokenizer *t, const char *text, size_t len, size_t *taken)
{
    rad_token id = len ? vocab_special_prefix(&t->vocab, text, len, true) : -1;
    if (!tokenizer_is_control(t, id)) return -1;
    *taken = t->vocab.symbols[id].len;
    return id;
}

size_t tokenizer_piece(const tokenizer *t, rad_token id, bool special, char *bytes, size_t room)
{
    if (!in_vocab(t, id)) return 0;
    uint8_t type = t->vocab.types[id];
    if (!special && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)) return 0;
    size_t len = t->vocab.symbols[id].len;
    if (room) memcpy(bytes, vocab_bytes(&t->vocab, (uint32_t)id), RAD_MIN(len, room));
    return len;
}

/* ---- the array of ids ---- */

void token_buf_fini(token_buf *buf)
{
    free(buf->ids);
    *buf = (token_buf){0};
}

rad_status token_buf_push(token_buf *buf, rad_token id)
{
    if (buf->len == buf->cap) {
        if (buf->cap > UINT32_MAX / 2) return RAD_E_LIMIT;
        uint32_t cap = buf->cap ? buf->cap * 2 : 64;
        rad_token *ids = realloc(buf->ids, cap * sizeof *ids);
        if (!ids) return RAD_E_NOMEM;
        buf->ids = ids;
        buf->cap = cap;
    }
    buf->ids[buf->len++] = id;
    return RAD_OK;
}

/* ---- encode ---- */

typedef struct encoder {
    const tokenizer *t;
    token_buf *out;
    uint32_t limit; /* of out->len */
    pretokenizer_match *match;
    bpe_scratch scratch;
    uint32_t *symbols; /* of one piece */
    size_t cap_symbols;
    uint32_t few[256]; /* `symbols` for short pieces */
} encoder;

static inline rad_status push(encoder *e, rad_token id)
{
    if (e->out->len >= e->limit) return RAD_E_LIMIT;
    return token_buf_push(e->out, id);
}

static rad_status push_symbol(encoder *e, uint32_t symbol)
{
    const vocab *v = &e->t->vocab;
    if (symbol < v->num_tokens) return push(e, (rad_token)symbol);
    rad_status status = RAD_OK;
    for (uint32_t i = 0; i < v->symbols[symbol].len && !status; i++) {
        rad_token id = v->byte_ids[(unsigned char)vocab_bytes(v, symbol)[i]];
        status = push(e, id >= 0 ? id : v->unknown);
    }
    return status;
}

/* Room for the symbols of `len` bytes. */
static bool reserve_symbols(encoder *e, size_t len)
{
    if (len <= e->cap_symbols) return true;
    const rad_env *env = &e->t->env;
    size_t bytes = rad_mul(len, sizeof *e->symbols);
    uint32_t *more = bytes ? env->alloc(env->user, bytes) : NULL;
    if (!more) return false;
    if (e->symbols != e->few) rad_free(env, e->symbols, e->cap_symbols * sizeof *e->symbols);
    e->symbols = more;
    e->cap_symbols = len;
    return true;
}

static rad_status encode_piece(void *user, const char *piece, size_t len)
{
    encoder *e = user;
    const vocab *v = &e->t->vocab;
    if (len <= v->longest) {
        uint32_t symbol = vocab_find(v, piece, len);
        if (symbol < v->num_tokens && e->t->whole[symbol]) return push(e, (rad_token)symbol);
    }
    if (!reserve_symbols(e, v->lacks_bytes ? 3 * len : len)) return RAD_E_NOMEM;
    size_t n = first_symbols(e->t, piece, len, e->symbols);
    rad_status status = bpe_merge(&e->t->bpe, &e->scratch, e->symbols, &n);
    for (size_t i = 0; i < n && !status; i++)
        status = push_symbol(e, e->symbols[i]);
    return status;
}

/* Text without special tokens. The dummy space of SPM belongs to the first word. */
static rad_status encode_text(encoder *e, const char *text, size_t len, bool add_space)
{
    const tokenizer *t = e->t;
    if (!t->vocab.is_spm) return pretokenize(t->pre, e->match, text, len, encode_piece, e);
    rad_status status = RAD_OK;
    if (add_space) {
        size_t n = spm_chunk(&t->spm, text, len); /* the space joins whatever begins it */
        char *first = t->env.alloc(t->env.user, n + 1);
        if (!first) return RAD_E_NOMEM;
        first[0] = ' ';
        memcpy(first + 1, text, n);
        status = encode_piece(e, first, n + 1);
        t->env.free(t->env.user, first, n + 1);
        text += n;
        len -= n;
    }
    while (len && !status) {
        size_t n = spm_chunk(&t->spm, text, len);
        status = encode_piece(e, text, n);
        text += n;
        len -= n;
    }
    return status;
}

static rad_status encode_all(encoder *e, const char *text, size_t len, unsigned flags)
{
    const tokenizer *t = e->t;
    const vocab *v = &t->vocab;
    bool control = flags & TOKENIZER_PARSE_SPECIAL;
    bool prefix = tokenizer_adds_space(t) && len > 0;
    bool add_space = prefix && !(flags & TOKENIZER_NO_PREFIX);
    rad_status status = RAD_OK;
    size_t start = 0;
    for (size_t i = 0; i <= len && !status;) {
        rad_token special = -1;
        if (i < len) special = vocab_special_prefix(v, text + i, len - i, control);
        if (special < 0 && i < len) {
            i++;
            continue;
        }
        bool is_control = special >= 0 && v->types[special] == TOKEN_CONTROL;
        if (i > start) {
            status = encode_text(e, text + start, i - start, add_space);
            add_space = false;
        } else if (add_space && special >= 0 && !is_control) {
            status = encode_piece(e, " ", 1); /* the dummy space stands alone */
            add_space = false;
        }
        if (i == len || status) break;
        status = push(e, special);
        if (is_control) add_space = prefix;
        start = i += v->symbols[special].len;
    }
    return status;
}

rad_status tokenizer_encode(const tokenizer *t, const char *text, size_t len, unsigned flags,
                            uint32_t max_tokens, token_buf *out, rad_error *err)
{
    uint32_t before = out->len;
    uint32_t limit = max_tokens && max_tokens < UINT32_MAX - before ? before + max_tokens
                                                                    : UINT32_MAX;
    encoder e = {.t = t, .out = out, .limit = limit, .scratch = {.env = &t->env}};
    e.symbols = e.few;
    e.cap_symbols = RAD_COUNT(e.few);

    rad_status status = RAD_OK;
    /* A text that must be too long is refused before work is spent on it. Composing (NFC)
     * and SPM's U+2581 make text at most three times shorter. */
    size_t shrink = t->vocab.is_text || pretokenizer_normalizes(t->pre) ? 3 : 1;
    if (limit != UINT32_MAX && len / shrink / RAD_MAX(t->vocab.longest, 1) > max_tokens)
        status = RAD_E_LIMIT;
    if (!status && len > INT32_MAX) status = RAD_E_LIMIT;
    if (!status && t->pre) status = pretokenizer_match_create(t->pre, &e.match);
    if (!status && (flags & TOKENIZER_ADD_BOS) && t->add_bos) status = push(&e, t->bos);
    if (!status) status = encode_all(&e, text, len, flags);
    if (!status && (flags & TOKENIZER_ADD_EOS) && t->add_eos) status = push(&e, t->eos);

    pretokenizer_match_destroy(e.match);
    bpe_scratch_fini(&e.scratch);
    if (e.symbols != e.few) rad_free(&t->env, e.symbols, e.cap_symbols * sizeof *e.symbols);
    if (!status) return RAD_OK;
    out->len = before;
    if (status == RAD_E_LIMIT && limit != UINT32_MAX)
        return rad_fail(err, status, "the text of %zu bytes is longer than %u tokens", len,
                        max_tokens);
    if (status == RAD_E_LIMIT)
        return rad_fail(err, status, "the text of %zu bytes is too long to tokenize", len);
    if (status != RAD_E_NOMEM)
        return rad_fail(err, status, "tokenizer: the pre-tokenizer failed on %zu bytes", len);
    return rad_fail(err, status, "tokenizer: no memory for a text of %zu bytes", len);
}
