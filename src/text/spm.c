/* spm.c - a SentencePiece vocabulary has no list of merges: two neighbours may merge
 * when their concatenation is a token, best score first, leftmost among equals.
 *
 * So the pairs are derived once: each token is cut in two at each of its characters,
 * and where both halves can exist (a token, or a single character) the pair gets the
 * token's place in the order of scores as its rank:
 *
 *     "▁the"  ->  (▁, the) (▁t, he) (▁th, e), as far as they are tokens
 *
 * After that this is the same engine as byte-level BPE. Symbols hold a space where the
 * file writes U+2581.
 *
 * Llama-like vocabularies have spaces only at the beginning of tokens (or runs of
 * them). Then nothing merges across a place where a space follows something else,
 * and text is merged word by word with the same result: `words_are_apart`. */
#include "text/spm.h"

#include "base/utf8.h"

#include <math.h>

#define SPM_SPACE "\xe2\x96\x81" /* U+2581 */

/* ---- the order of scores ---- */

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static bool comes_before(scored a, scored b)
{
    return a.score != b.score ? a.score > b.score : a.id < b.id;
}

static void sift(scored *heap, size_t count, size_t i)
{
    scored moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && comes_before(heap[child], heap[child + 1])) child++;
        if (!comes_before(moving, heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

/* Best first; a heap sort, since the scores are not ours. */
static void sort_scores(scored *list, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        sift(list, count, i);
    for (size_t end = count; end-- > 1;) {
        scored worst = list[0];
        list[0] = list[end];
        list[end] = worst;
        sift(list, end, 0);
    }
}

/* ---- the pairs ---- */

static bool is_char_start(const char *bytes, size_t i)
{
    return (bytes[i] & 0xc0) != 0x80;
}

/* Every character of the token becomes a symbol, also where it is no token. */
static rad_status intern_chars(vocab *v, uint32_t id)
{
    for (size_t i = 0; i < v->symbols[id].len;) {
        const char *bytes = vocab_bytes(v, id);
        utf8_char c = utf8_next((const unsigned char *)bytes + i, v->symbols[id].len - i);
        char copy[4]; /* interning may move the bytes */
        memcpy(copy, bytes + i, c.len);
        uint32_t symbol;
        rad_status status = c.valid ? vocab_intern(v, copy, c.len, &symbol) : RAD_OK;
        if (status) return status;
        i += c.len;
    }
    return RAD_OK;
}

static bool add_splits(bpe *b, const vocab *v, uint32_t id, uint32_t rank)
{
    const char *bytes = vocab_bytes(v, id);
    size_t len = v->symbols[id].len;
    for (size_t i = 1; i < len; i++) {
        if (!is_char_start(bytes, i)) continue;
        uint32_t left = vocab_find(v, bytes, i);
        if (left == NO_SYMBOL) continue;
        uint32_t right = vocab_find(v, bytes + i, len - i);
        if (right != NO_SYMBOL && !bpe_add(b, left, right, rank, id)) return false;
    }
    return true;
}

static bool has_inner_space(const vocab *v, uint32_t id)
{
    const char *bytes = vocab_bytes(v, id);
    for (size_t i = 1; i < v->symbols[id].len; i++)
        if (bytes[i] == ' ' && bytes[i - 1] != ' ') return true;
    return false;
}

static rad_status derive_merges(spm *s, bpe *b, vocab *v, scored *list, rad_error *err)
{
    size_t count = 0;
    rad_status status = RAD_OK;
    s->words_are_apart = true;
    for (uint32_t id = 0; id < v->num_tokens && !status; id++) {
        if (v->types[id] != TOKEN_NORMAL || !v->symbols[id].len) continue;
        if (vocab_find(v, vocab_bytes(v, id), v->symbols[id].len) != id) continue; /* a double */
        if (isnan(list[id].score))
            return rad_fail(err, RAD_E_FORMAT, "tokenizer: the score of token %u is no number", id);
        list[count++] = (scored){list[id].score, id}; /* count <= id: never ahead of reading */
        if (has_inner_space(v, id)) s->words_are_apart = false;
        status = intern_chars(v, id);
    }
    sort_scores(list, count);
    uint32_t rank = 0;
    for (size_t i = 0; i < count && !status; i++) {
        if (i && list[i].score != list[i - 1].score) rank++;
        if (!add_splits(b, v, list[i].id, rank)) status = RAD_E_NOMEM;
    }
    return status ? rad_fail(err, status, "tokenizer: no room for the merges") : RAD_OK;
}

void spm_init_symbols(spm *s, const vocab *v)
{
    for (int c = 0; c < 128; c++)
        s->chars[c] = vocab_find(v, &(char){(char)c}, 1);
    s->has_byte_fallback = true;
    for (int c = 0; c < 256; c++)
        s->has_byte_fallback &= v->byte_ids[c] >= 0;
}

rad_status spm_init(spm *s, bpe *b, vocab *v, const gguf_file *file, rad_error *err)
{
    s->add_space_prefix = true;
    rad_status status =
        gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix, err);
    if (status < 0) return status;
    gguf_array scores;
    status = gguf_get_arr(file, "tokenizer.ggml.scores", GGUF_F32, &scores, err);
    if (status < 0) return status;
    if (status == RAD_NONE || scores.count != v->num_tokens)
        return rad_fail(err, RAD_E_FORMAT,
                        "tokenizer: %u tokens, but %llu entries in tokenizer.ggml.scores",
                        v->num_tokens, status ? 0 : (unsigned long long)scores.count);

    size_t list_bytes = rad_mul(v->num_tokens, sizeof(scored));
    scored *list = rad_alloc(&v->env, list_bytes);
    if (!list) return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    for (uint32_t id = 0; id < v->num_tokens; id++)
        list[id] = (scored){gguf_arr_f32(&scores, id), id};
    status = derive_merges(s, b, v, list, err);
    rad_free(&v->env, list, list_bytes);
    if (!status) spm_init_symbols(s, v);
    return status;
}

size_t spm_symbols(const spm *s, const vocab *v, const char *text, size_t len, uint32_t *symbols)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        utf8_char c = utf8_next((const unsigned char *)text + i, len - i);
        uint32_t symbol = NO_SYMBOL;
        if (c.valid && c.code < 128)
            symbol = s->chars[c.code];
        else if (c.valid && c.len == 3 && memcmp(text + i, SPM_SPACE, 3) == 0)
            symbol = s->chars[' '];
        else if (c.valid)
            symbol = vocab_find(v, text + i, c.len);
        if (symbol != NO_SYMBOL)
            symbols[n++] = symbol;
        else if (s->has_byte_fallback)
            for (size_t k = 0; k < c.len; k++)
                symbols[n++] = (uint32_t)v->byte_ids[(unsigned char)text[i + k]];
        else
            symbols[n++] = (uint32_t)v->unknown;
        i += c.len;
    }
    return n;
}

/* A cut must not come between two spaces, and U+2581 is one. */
size_t spm_chunk(const spm *s, const char *text, size_t len)
{
    if (!s->words_are_apart) return len;
    size_t i = 0;
    while (i < len && text[i] == ' ')
        i++;
    while (i < len) {
        const char *space = memchr(text + i, ' ', len - i);
        if (!space) return len;
        i = (size_t)(space - text);
        if (i < 3 || memcmp(text + i - 3, SPM_SPACE, 3) != 0) return i;
        while (i < len && text[i] == ' ')
            i++;
    }
    return len;
}
