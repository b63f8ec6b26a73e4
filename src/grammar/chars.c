/* chars.c - characters as bytes.
 *
 * A range of characters becomes ranges of bytes by cutting off what does not fill whole blocks of
 * 64: what begins inside of a block and what ends inside of one are ranges of the next byte; the
 * middle is one range of this byte, and then any continuation bytes, whose states all ranges share.
 */
#include "grammar/chars.h"

#include "base/utf8.h"

#include <stdlib.h>

void chars_init(char_set *c, gr_mem *mem)
{
    *c = (char_set){.mem = mem};
}

void chars_fini(char_set *c)
{
    if (c->mem) GR_DROP(c->mem, c->ranges, c->cap);
    *c = (char_set){0};
}

void chars_add(char_set *c, uint32_t lo, uint32_t hi)
{
    if (lo > hi || !GR_GROW(c->mem, c->ranges, c->cap, (uint64_t)c->count + 1)) return;
    c->ranges[c->count++] = (char_range){lo, hi};
}

void chars_add_all(char_set *c, const char_set *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        chars_add(c, from->ranges[i].lo, from->ranges[i].hi);
}

static int compare_ranges(const void *a, const void *b)
{
    const char_range *x = a, *y = b;
    if (x->lo != y->lo) return x->lo < y->lo ? -1 : 1;
    return (x->hi > y->hi) - (x->hi < y->hi);
}

static void sort(char_set *c)
{
    uint32_t n = 0;
    if (c->count > 1) qsort(c->ranges, c->count, sizeof *c->ranges, compare_ranges);
    for (uint32_t i = 0; i < c->count; i++) {
        char_range r = c->ranges[i];
        if (n && r.lo <= c->ranges[n - 1].hi + 1)
            c->ranges[n - 1].hi = RAD_MAX(c->ranges[n - 1].hi, r.hi);
        else
            c->ranges[n++] = r;
    }
    c->count = n;
}

void chars_invert(char_set *c)
{
    char_set to;
    uint32_t next = 0;
    sort(c);
    chars_init(&to, c->mem);
    for (uint32_t i = 0; i <= c->count; i++) {
        uint32_t end = i < c->count ? c->ranges[i].lo : CHARS_LAST + 1;
        if (next < end) chars_add(&to, next, end - 1);
        if (i < c->count) next = c->ranges[i].hi + 1;
    }
    chars_fini(c);
    *c = to;
}

typedef struct emitter {
    nfa *n;
    uint32_t out;
    uint32_t rest[4]; /* where one, two, three continuation bytes are left; 0: not made yet */
} emitter;

static uint32_t rest(emitter *e, unsigned left)
{
    if (!left) return e->out;
    if (!e->rest[left]) {
        uint32_t s = nfa_state(e->n);
        nfa_range(e->n, s, rest(e, left - 1), 0x80, 0xbf);
        e->rest[left] = s;
    }
    return e->rest[left];
}

/* Characters lo..hi, of which `left` continuation bytes follow the one at hand, whose high bits are
 * `lead`. All have the same bytes before it. */
static void emit(emitter *e, uint32_t from, uint32_t lo, uint32_t hi, unsigned left, uint32_t lead,
                 uint32_t bits)
{
    uint32_t block = 1u << 6 * left, first = lo / block, last = hi / block;
    if (first == last && left && (lo % block || hi % block != block - 1)) {
        uint32_t to = nfa_state(e->n);
        nfa_range(e->n, from, to, lead | (first & bits), lead | (first & bits));
        emit(e, to, lo, hi, left - 1, 0x80, 0x3f);
        return;
    }
    if (lo % block) {
        emit(e, from, lo, (first + 1) * block - 1, left, lead, bits);
        first++;
    }
    if (hi % block != block - 1) {
        emit(e, from, last * block, hi, left, lead, bits);
        if (!last) return;
        last--;
    }
    if (first <= last)
        nfa_range(e->n, from, rest(e, left), lead | (first & bits), lead | (last & bits));
}

static void emit_utf8(emitter *e, uint32_t from, uint32_t lo, uint32_t hi)
{
    static const struct {
        uint32_t lo, hi;
        unsigned left, lead, bits;
    } forms[] = {{0, 0x7f, 0, 0, 0x7f},
                 {0x80, 0x7ff, 1, 0xc0, 0x1f},
                 {0x800, 0xd7ff, 2, 0xe0, 0x0f},
                 {0xe000, 0xffff, 2, 0xe0, 0x0f},
                 {0x10000, CHARS_LAST, 3, 0xf0, 0x07}};
    for (size_t i = 0; i < RAD_COUNT(forms); i++) {
        uint32_t a = RAD_MAX(lo, forms[i].lo), b = RAD_MIN(hi, forms[i].hi);
        if (a <= b) emit(e, from, a, b, forms[i].left, forms[i].lead, forms[i].bits);
    }
}

uint32_t chars_bytes(uint32_t code, chars_form form, unsigned char out[8])
{
    static const char hex[] = "0123456789abcdef";
    if (form == CHARS_JSON && (code < 0x20 || code == '"' || code == '\\')) {
        static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
        const char *found = code ? strchr(from, (int)code) : NULL;
        out[0] = '\\';
        if (found) {
            out[1] = (unsigned char)to[found - from];
            return 2;
        }
        memcpy(out + 1, "u00", 3);
        out[4] = (unsigned char)hex[code >> 4];
        out[5] = (unsigned char)hex[code & 15];
        return 6;
    }
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    uint32_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (uint32_t i = len; i-- > 1; code >>= 6)
        out[i] = (unsigned char)(0x80 | (code & 0x3f));
    out[0] = (unsigned char)((0xf00u >> len & 0xff) | code);
    return len;
}

uint32_t chars_append(nfa *n, uint32_t from, uint32_t code, chars_form form)
{
    unsigned char bytes[8];
    uint32_t len = chars_bytes(code, form, bytes);
    for (uint32_t i = 0; i < len; i++) {
        uint32_t to = nfa_state(n);
        nfa_range(n, from, to, bytes[i], bytes[i]);
        from = to;
    }
    return from;
}

nfa_frag chars_literal(nfa *n, const char *text, size_t len, chars_form form)
{
    nfa_frag f = nfa_nothing(n);
    for (size_t i = 0; i < len && !n->mem->status;) {
        utf8_char c = utf8_next((const unsigned char *)text + i, len - i);
        if (!c.valid) {
            gr_fail(n->mem, RAD_E_INVAL, "a text is not UTF-8");
            break;
        }
        f.out = chars_append(n, f.out, c.code, form);
        i += c.len;
    }
    return f;
}

nfa_frag chars_frag(nfa *n, char_set *c, chars_form form)
{
    nfa_frag f = nfa_never(n);
    emitter e = {.n = n, .out = f.out};
    sort(c);
    for (uint32_t i = 0; i < c->count && !n->mem->status; i++) {
        uint32_t lo = c->ranges[i].lo, hi = RAD_MIN(c->ranges[i].hi, (uint32_t)CHARS_LAST);
        for (uint32_t code = lo; form == CHARS_JSON && code <= RAD_MIN(hi, (uint32_t)'\\'); code++)
            if (code < 0x20 || code == '"' || code == '\\')
                nfa_empty(n, chars_append(n, f.in, code, form), f.out);
        if (form == CHARS_UTF8) {
            emit_utf8(&e, f.in, lo, hi);
            continue;
        }
        static const char_range as_is[] = {{0x20, '!'}, {'#', '['}, {']', CHARS_LAST}};
        for (size_t k = 0; k < RAD_COUNT(as_is); k++) {
            uint32_t a = RAD_MAX(lo, as_is[k].lo), b = RAD_MIN(hi, as_is[k].hi);
            if (a <= b) emit_utf8(&e, f.in, a, b);
        }
    }
    return f;
}
