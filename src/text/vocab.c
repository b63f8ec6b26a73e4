/* vocab.c - from a GGUF's token list to bytes that can be searched.
 *
 *     tokens (file)  "Ġthe"   "<|im_end|>"   "<0x41>"      BPE writes bytes as letters,
 *     type           normal   control        byte          SPM a space as U+2581
 *     symbol bytes   " the"   "<|im_end|>"   "A"
 *
 * All bytes lie in one buffer. Symbols that merges may use are found through an open
 * addressing table that holds the hash beside the number, so that a string is compared
 * about once per lookup. Control and user-defined tokens are in a sorted list instead:
 * they are looked for in running text, longest first.
 *
 * Invariant: a slot's symbol is a normal token or a symbol >= num_tokens. */
#include "text/vocab.h"

#include "base/utf8.h"
#include "text/markers.h"

#define SPM_SPACE "\xe2\x96\x81" /* U+2581 */

bool vocab_grow(const rad_env *env, void **array, size_t *cap, size_t used, size_t wanted,
                size_t element)
{
    if (wanted <= *cap) return true;
    size_t more = RAD_MAX(wanted, *cap + *cap / 2 + 64);
    void *grown = rad_alloc(env, rad_mul(more, element));
    if (!grown) return false;
    if (used) memcpy(grown, *array, used * element);
    rad_free(env, *array, *cap * element);
    *array = grown;
    *cap = more;
    return true;
}

/* ---- symbols ---- */

/* Keyed: a file may have been made so that its symbols meet, and a text so that it asks for them.
 */
static uint32_t symbol_hash(const vocab *v, const char *bytes, size_t len)
{
    return (uint32_t)hash_bytes(&v->key, bytes, len);
}

static vocab_slot *find_slot(const vocab *v, const char *bytes, size_t len, uint32_t hash)
{
    for (size_t i = hash;; i++) {
        vocab_slot *slot = &v->slots[i & (v->num_slots - 1)];
        if (!slot->symbol_plus_1) return slot;
        if (slot->hash != hash) continue;
        const vocab_symbol *s = &v->symbols[slot->symbol_plus_1 - 1];
        if (s->len == len && memcmp(v->bytes + s->start, bytes, len) == 0) return slot;
    }
}

uint32_t vocab_find(const vocab *v, const char *bytes, size_t len)
{
    if (!v->num_slots) return NO_SYMBOL;
    return find_slot(v, bytes, len, symbol_hash(v, bytes, len))->symbol_plus_1 - 1;
}

/* Room for one more symbol in the table, at most half full. */
static bool reserve_slot(vocab *v)
{
    if ((v->num_used + 1) * 2 <= v->num_slots) return true;
    size_t more = v->num_slots ? v->num_slots * 2 : 1024;
    if (!v->num_slots) hash_key_init(&v->key, &v->env);
    vocab_slot *slots = rad_alloc(&v->env, rad_mul(more, sizeof *slots));
    if (!slots) return false;
    for (size_t i = 0; i < v->num_slots; i++) {
        if (!v->slots[i].symbol_plus_1) continue;
        size_t k = v->slots[i].hash;
        while (slots[k & (more - 1)].symbol_plus_1)
            k++;
        slots[k & (more - 1)] = v->slots[i];
    }
    rad_free(&v->env, v->slots, v->num_slots * sizeof *slots);
    v->slots = slots;
    v->num_slots = more;
    return true;
}

/* Enters a symbol that has its bytes already; the first of two equal ones stays. */
static bool enter_symbol(vocab *v, uint32_t symbol)
{
    if (!reserve_slot(v)) return false;
    const char *bytes = vocab_bytes(v, symbol);
    uint32_t len = v->symbols[symbol].len, hash = symbol_hash(v, bytes, len);
    vocab_slot *slot = find_slot(v, bytes, len, hash);
    if (!slot->symbol_plus_1) {
        *slot = (vocab_slot){hash, symbol + 1};
        v->num_used++;
    }
    return true;
}

/* A new symbol with room for `len` bytes at vocab_bytes(v, symbol). */
static bool append_symbol(vocab *v, size_t len)
{
    size_t cap = v->cap_symbols;
    bool room = vocab_grow(&v->env, (void **)&v->symbols, &cap, v->num_symbols, v->num_symbols + 1,
                           sizeof *v->symbols);
    v->cap_symbols = (uint32_t)cap;
    if (!room || !vocab_grow(&v->env, (void **)&v->bytes, &v->cap_bytes, v->num_bytes,
                             v->num_bytes + len + 1, 1))
        return false;
    v->symbols[v->num_symbols++] = (vocab_symbol){v->num_bytes, (uint32_t)len};
    v->num_bytes += len;
    return true;
}

rad_status vocab_intern(vocab *v, const char *bytes, size_t len, uint32_t *symbol)
{
    *symbol = vocab_find(v, bytes, len);
    if (*symbol != NO_SYMBOL) return RAD_OK;
    if (v->num_symbols >= INT32_MAX || len > INT32_MAX) return RAD_E_LIMIT;
    if (!append_symbol(v, len)) return RAD_E_NOMEM;
    *symbol = v->num_symbols - 1;
    memcpy(v->bytes + v->symbols[*symbol].start, bytes, len);
    return enter_symbol(v, *symbol) ? RAD_OK : RAD_E_NOMEM;
}

/* ---- control and user-defined tokens ---- */

static int compare_special(const vocab *v, rad_token a, rad_token b)
{
    uint32_t la = v->symbols[a].len, lb = v->symbols[b].len, n = RAD_MIN(la, lb);
    int order = memcmp(vocab_bytes(v, (uint32_t)a), vocab_bytes(v, (uint32_t)b), n);
    if (!order) order = (la > lb) - (la < lb);
    return order ? order : (a > b) - (a < b);
}

static void sift_special(const vocab *v, rad_token *heap, size_t count, size_t i)
{
    rad_token moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && compare_special(v, heap[child], heap[child + 1]) < 0) child++;
        if (compare_special(v, moving, heap[child]) >= 0) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static bool is_special(const vocab *v, uint32_t id)
{
    return v->symbols[id].len > 0 &&
           (v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_USER_DEFINED);
}

static bool sort_special(vocab *v)
{
    for (uint32_t id = 0; id < v->num_tokens; id++)
        v->num_special += is_special(v, id);
    if (!v->num_special) return true;
    v->special = rad_alloc(&v->env, v->num_special * sizeof *v->special);
    if (!v->special) return false;
    size_t n = 0;
    for (uint32_t id = 0; id < v->num_tokens; id++)
        if (is_special(v, id)) v->special[n++] = (rad_token)id;
    for (size_t i = n / 2; i-- > 0;)
        sift_special(v, v->special, n, i);
    for (size_t end = n - 1; end > 0; end--) {
        rad_token greatest = v->special[0];
        v->special[0] = v->special[end];
        v->special[end] = greatest;
        sift_special(v, v->special, end, 0);
    }
    for (size_t i = 0, b = 0; b <= 256; b++) {
        while (i < n && (unsigned char)*vocab_bytes(v, (uint32_t)v->special[i]) < b)
            i++;
        v->special_first[b] = (uint32_t)i;
    }
    return true;
}

/* The first of special[low..high), which agree in `depth` bytes, whose next byte is
 * >= byte; one that ends there comes first of all. */
static uint32_t special_bound(const vocab *v, uint32_t low, uint32_t high, size_t depth, int byte)
{
    while (low < high) {
        uint32_t mid = low + (high - low) / 2, id = (uint32_t)v->special[mid];
        int next = depth < v->symbols[id].len ? (unsigned char)vocab_bytes(v, id)[depth] : -1;
        if (next < byte)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Narrows the sorted list byte by byte; whatever ends on the way is a candidate. */
rad_token vocab_special_prefix(const vocab *v, const char *text, size_t len, bool control)
{
    if (!len || !v->num_special) return -1;
    unsigned char first = (unsigned char)text[0];
    uint32_t low = v->special_first[first], high = v->special_first[first + 1];
    rad_token best = -1;
    for (size_t depth = 1; low < high; depth++) {
        for (; low < high && v->symbols[v->special[low]].len == depth; low++)
            if (control || v->types[v->special[low]] == TOKEN_USER_DEFINED) best = v->special[low];
        if (depth == len) break;
        int byte = (unsigned char)text[depth];
        low = special_bound(v, low, high, depth, byte);
        high = special_bound(v, low, high, depth, byte + 1);
    }
    return best;
}

rad_token vocab_special_find(const vocab *v, const char *text, size_t len)
{
    rad_token id = vocab_special_prefix(v, text, len, true);
    return id >= 0 && v->symbols[id].len == len ? id : -1;
}

/* ---- reading the file ---- */

/* The byte that a character stands for in byte-level BPE, or -1: printable Latin-1 stands
 * for itself, the other 68 bytes have U+0100 and up in their order. */
static int unmap_char(uint32_t code)
{
    if ((code >= 33 && code <= 126) || (code >= 161 && code <= 172) || (code >= 174 && code <= 255))
        return (int)code;
    if (code < 256 || code >= 256 + 68) return -1;
    uint32_t n = code - 256;
    return (int)(n < 33 ? n : n < 67 ? n - 33 + 127 : 173);
}

bool vocab_unmap_bytes(const char *text, size_t len, char *out, size_t *out_len)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        utf8_char c = utf8_next((const unsigned char *)text + i, len - i);
        int byte = c.valid ? unmap_char(c.code) : -1;
        if (byte < 0) return false;
        out[n++] = (char)byte;
        i += c.len;
    }
    *out_len = n;
    return true;
}

size_t vocab_unmap_spaces(char *bytes, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        if (len - i >= 3 && memcmp(bytes + i, SPM_SPACE, 3) == 0) {
            bytes[n++] = ' ';
            i += 3;
        } else {
            bytes[n++] = bytes[i++];
        }
    }
    return n;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of "<0xNN>", or -1. */
static int parse_byte_token(gguf_str text)
{
    if (text.len != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* One token: its type settled, its bytes in place, entered if merges may use it. */
static rad_status read_token(vocab *v, uint32_t id, gguf_str text, rad_error *err)
{
    if (!append_symbol(v, text.len)) return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    char *bytes = v->bytes + v->symbols[id].start;
    if (text.len) memcpy(bytes, text.data, text.len);
    size_t len = text.len;
    uint8_t *type = &v->types[id];
    int byte = v->is_text && (*type == TOKEN_BYTE || !v->has_types) ? parse_byte_token(text) : -1;
    bool mergeable = false;

    const marker *known = marker_find(text.data, text.len);
    if (known && known->control) *type = TOKEN_CONTROL;
    if (byte >= 0) {
        *type = TOKEN_BYTE;
        bytes[0] = (char)byte;
        len = 1;
        v->byte_ids[byte] = (rad_token)id;
    } else if (v->is_text) {
        if (*type != TOKEN_CONTROL) len = vocab_unmap_spaces(bytes, len);
        mergeable = *type == TOKEN_NORMAL;
    } else if (*type != TOKEN_CONTROL && *type != TOKEN_USER_DEFINED && *type != TOKEN_UNKNOWN) {
        mergeable = vocab_unmap_bytes(text.data, text.len, bytes, &len);
        if (!mergeable && len) memcpy(bytes, text.data, len);
        if (mergeable && len == 1 && v->byte_ids[(unsigned char)bytes[0]] < 0)
            v->byte_ids[(unsigned char)bytes[0]] = (rad_token)id;
    }
    if (len > TOKENIZER_MAX_PIECE)
        return rad_fail(err, RAD_E_UNSUPPORTED, "tokenizer: token %u is %zu bytes long; we take %d",
                        id, len, TOKENIZER_MAX_PIECE);
    v->symbols[id].len = (uint32_t)len;
    v->num_bytes = v->symbols[id].start + len;
    v->longest = RAD_MAX(v->longest, (uint32_t)len);
    if (mergeable && len && !enter_symbol(v, id))
        return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    return RAD_OK;
}

static rad_status read_types(vocab *v, const gguf_file *file, rad_error *err)
{
    gguf_array types;
    rad_status status = gguf_get_arr(file, "tokenizer.ggml.token_type", GGUF_I32, &types, err);
    if (status < 0) return status;
    v->has_types = status == RAD_OK;
    if (v->has_types && types.count != v->num_tokens)
        return rad_fail(err, RAD_E_FORMAT,
                        "tokenizer: %u tokens, but %llu entries in tokenizer.ggml.token_type",
                        v->num_tokens, (unsigned long long)types.count);
    for (uint32_t id = 0; id < v->num_tokens; id++) {
        int32_t type = v->has_types ? gguf_arr_i32(&types, id) : TOKEN_NORMAL;
        if (type == 0) type = TOKEN_NORMAL; /* "undefined" in old files */
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return rad_fail(err, RAD_E_FORMAT, "tokenizer: token %u has the unknown type %d", id,
                            type);
        v->types[id] = (uint8_t)type;
    }
    return RAD_OK;
}

/* Ids under these keys are control tokens also in files that tell no types. */
static rad_status read_special_ids(vocab *v, const gguf_file *file, rad_error *err)
{
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id",
                                       "tokenizer.ggml.eos_token_id"};
    for (size_t i = 0; i < RAD_COUNT(keys) && !v->has_types; i++) {
        uint32_t id;
        rad_status status = gguf_get_u32(file, keys[i], &id, err);
        if (status < 0) return status;
        if (status == RAD_OK && id < v->num_tokens) v->types[id] = TOKEN_CONTROL;
    }
    uint32_t id;
    rad_status status = gguf_get_u32(file, "tokenizer.ggml.unknown_token_id", &id, err);
    if (status < 0) return status;
    /* Many files name their end token here. It must not stand for what a user wrote. */
    bool usable = status == RAD_OK && id < v->num_tokens && v->types[id] != TOKEN_CONTROL;
    v->unknown = usable ? (rad_token)id : -1;
    return RAD_OK;
}

/* Byte-level vocabularies may lack bytes: the 13 that are in no UTF-8 (DeepSeek's), and others
 * that their training text did not have (Falcon's control characters). Those are encoded as
 * U+FFFD, whose three bytes must be there then. */
static rad_status check_bytes(vocab *v, rad_error *err)
{
    bool replaces = !v->is_text && v->byte_ids[0xef] >= 0 && v->byte_ids[0xbf] >= 0 &&
                    v->byte_ids[0xbd] >= 0;
    for (int byte = 0; byte < 256; byte++) {
        if (v->byte_ids[byte] >= 0 || v->unknown >= 0) continue;
        v->lacks_bytes = true;
        if (!replaces)
            return rad_fail(err, RAD_E_UNSUPPORTED,
                            "tokenizer: no token for byte 0x%02x, no unknown_token_id%s", byte,
                            v->is_text ? "" : " and no bytes of U+FFFD");
    }
    return RAD_OK;
}

rad_status vocab_init(vocab *v, const rad_env *env, const gguf_file *file, rad_error *err)
{
    v->env = rad_env_or_default(env);
    memset(v->byte_ids, 0xff, sizeof v->byte_ids);
    v->unknown = -1;

    gguf_array tokens;
    rad_status status = gguf_get_arr(file, "tokenizer.ggml.tokens", GGUF_STR, &tokens, err);
    if (status < 0) return status;
    if (status == RAD_NONE || !tokens.count)
        return rad_fail(err, RAD_E_FORMAT, "tokenizer: no tokens (tokenizer.ggml.tokens)");
    if (tokens.count >= INT32_MAX)
        return rad_fail(err, RAD_E_LIMIT, "tokenizer: %llu tokens",
                        (unsigned long long)tokens.count);
    v->num_tokens = (uint32_t)tokens.count;
    v->types = rad_alloc(&v->env, v->num_tokens);
    if (!v->types) return rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    status = read_types(v, file, err);
    if (!status) status = read_special_ids(v, file, err);
    for (uint32_t id = 0; id < v->num_tokens && !status; id++)
        status = read_token(v, id, tokens.strs[id], err);
    if (!status && !sort_special(v)) status = rad_fail(err, RAD_E_NOMEM, "tokenizer: no memory");
    return status ? status : check_bytes(v, err);
}

void vocab_fini(vocab *v)
{
    if (!v->env.alloc) return;
    rad_free(&v->env, v->symbols, v->cap_symbols * sizeof *v->symbols);
    rad_free(&v->env, v->types, v->num_tokens);
    rad_free(&v->env, v->bytes, v->cap_bytes);
    rad_free(&v->env, v->slots, v->num_slots * sizeof *v->slots);
    rad_free(&v->env, v->special, v->num_special * sizeof *v->special);
}
