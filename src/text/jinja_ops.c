/* jinja_ops.c - arithmetic as Python has it: floor division, % with the divisor's sign, text
 * and lists added and repeated, "%s" % value. Integers are 64 bits wide; where Python would
 * go on with longer ones, that is an error. */
#include "text/jinja_value.h"

#include "base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const op_names[] = {"+", "-", "*", "/", "//", "%", "**"};

static _Noreturn void too_large(jctx *c)
{
    jinja_fail(c, RAD_E_LIMIT, "an integer does not fit 64 bits");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static jval int_power(jctx *c, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (base == 0 || base == 1) return jint(exponent == 0 ? 1 : base);
    if (base == -1) return jint(exponent % 2 ? -1 : 1);
    for (; exponent > 0; exponent--) /* leaves after 63 rounds at the latest */
        if (__builtin_mul_overflow(result, base, &result)) too_large(c);
    return jint(result);
}

static jval int_binary(jctx *c, joperator op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case OP_POW:
        if (b >= 0) return int_power(c, a, b);
        if (!a) jinja_fail(c, RAD_E_INVAL, "0 to a negative power");
        return jfloat(pow((double)a, (double)b));
    default:
        if (!b) jinja_fail(c, RAD_E_INVAL, "division by zero");
        if (op == OP_DIV) return jfloat((double)a / (double)b);
        if (b == -1) { /* INT64_MIN / -1 */
            over = op == OP_FLOORDIV && __builtin_sub_overflow(0, a, &r);
            break;
        }
        r = op == OP_FLOORDIV ? floor_div(a, b) : a - floor_div(a, b) * b;
    }
    if (over) too_large(c);
    return jint(r);
}

static jval float_binary(jctx *c, joperator op, double a, double b)
{
    if (!b && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        jinja_fail(c, RAD_E_INVAL, "division by zero");
    double mod = 0;
    if (op == OP_FLOORDIV || op == OP_MOD) {
        mod = fmod(a, b);
        if (mod && (b < 0) != (mod < 0))
            mod += b;
        else if (!mod)
            mod = copysign(0, b);
    }
    switch (op) {
    case OP_ADD: return jfloat(a + b);
    case OP_SUB: return jfloat(a - b);
    case OP_MUL: return jfloat(a * b);
    case OP_DIV: return jfloat(a / b);
    case OP_MOD: return jfloat(mod);
    case OP_POW:
        if ((a < 0 && b != floor(b)) || (a == 0 && b < 0))
            jinja_fail(c, RAD_E_INVAL, "a power that is no number");
        double power = pow(a, b);
        if (isinf(power) && !isinf(a) && !isinf(b))
            jinja_fail(c, RAD_E_INVAL, "a power is too large");
        return jfloat(power);
    default: {
        double div = (a - mod) / b, down = floor(div);
        if (!div) return jfloat(copysign(0, a / b));
        return jfloat(div - down > 0.5 ? down + 1 : down);
    }
    }
}

static jval repeat(jctx *c, jval v, int64_t count)
{
    if (v.type == J_STR) {
        jbuf b = {.c = c};
        for (; count > 0 && v.u.s->len; count--)
            jbuf_str(&b, v.u.s);
        return jlike(c, v.u.s, jbuf_value(&b));
    }
    jval list = jlist_new(c, (jlist_kind)v.u.l->kind, 0);
    for (; count > 0 && v.u.l->len; count--)
        for (uint32_t i = 0; i < v.u.l->len; i++)
            jlist_push(c, list.u.l, v.u.l->items[i]);
    return list;
}

static bool is_sequence(jval v)
{
    return v.type == J_STR || (v.type == J_LIST && (v.u.l->kind == LIST || v.u.l->kind == TUPLE));
}

jval jbinary(jctx *c, joperator op, jval a, jval b)
{
    if (jis_int(a) && jis_int(b)) return int_binary(c, op, jas_int(a), jas_int(b));
    if (jis_number(a) && jis_number(b)) return float_binary(c, op, jas_float(a), jas_float(b));
    if (op == OP_MOD && a.type == J_STR) return jpercent(c, a.u.s, b);
    if (a.type == J_UNDEFINED || b.type == J_UNDEFINED)
        jinja_fail(c, RAD_E_INVAL, "%s is undefined", a.type == J_UNDEFINED ? a.u.hint : b.u.hint);
    if (op == OP_ADD && a.type == J_STR && b.type == J_STR) {
        jbuf buf = {.c = c};
        const bool markup = a.u.s->markup || b.u.s->markup;
        jbuf_str(&buf, markup ? jescaped(c, a) : a.u.s);
        jbuf_str(&buf, markup ? jescaped(c, b) : b.u.s);
        return markup ? jmarkup(c, jbuf_value(&buf).u.s) : jbuf_value(&buf);
    }
    if (op == OP_ADD && is_sequence(a) && is_sequence(b) && a.type == b.type &&
        a.u.l->kind == b.u.l->kind) {
        jval sum = repeat(c, a, 1);
        for (uint32_t i = 0; i < b.u.l->len; i++)
            jlist_push(c, sum.u.l, b.u.l->items[i]);
        return sum;
    }
    if (op == OP_MUL && is_sequence(a) && jis_int(b)) return repeat(c, a, jas_int(b));
    if (op == OP_MUL && is_sequence(b) && jis_int(a)) return repeat(c, b, jas_int(a));
    jinja_fail(c, RAD_E_INVAL, "'%s' does not take %s and %s", op_names[op], jtype_name(a),
               jtype_name(b));
}

jval jnegate(jctx *c, jval v)
{
    if (v.type == J_FLOAT) return jfloat(-v.u.f);
    if (jis_int(v)) return int_binary(c, OP_SUB, 0, jas_int(v));
    jinja_fail(c, RAD_E_INVAL, "'-' does not take %s",
               v.type == J_UNDEFINED ? v.u.hint : jtype_name(v));
}

/* ---- "%s" % args ---- */

typedef struct percent {
    jctx *c;
    jval args;
    uint32_t used;
    bool markup; /* what is put in is escaped */
} percent;

static jval next_arg(percent *p)
{
    bool tuple = p->args.type == J_LIST && p->args.u.l->kind == TUPLE;
    uint32_t count = tuple ? p->args.u.l->len : 1;
    if (p->used >= count) jinja_fail(p->c, RAD_E_INVAL, "'%%': not enough arguments");
    return tuple ? p->args.u.l->items[p->used++] : (p->used++, p->args);
}

/* One conversion, spec[0..len) from the % on, its letter last. */
static void convert(percent *p, jbuf *out, const char *spec, size_t len, jval v)
{
    char format[24], text[512] = "", letter = spec[len - 1];
    if (letter == 's' || letter == 'r') {
        if (len > 2) jinja_fail(p->c, RAD_E_UNSUPPORTED, "'%.*s' is not supported", (int)len, spec);
        jbuf repr = {.c = p->c};
        if (letter == 'r') {
            jbuf_repr(&repr, v);
            v = jbuf_value(&repr);
        }
        jbuf_str(out, p->markup ? jescaped(p->c, v) : jshow(p->c, v));
        return;
    }
    jwork(p->c, JINJA_PRINT);
    if (!jis_number(v) || (letter == 'x' && !jis_int(v)))
        jinja_fail(p->c, RAD_E_INVAL, "'%%%c' wants a number, not a %s", letter, jtype_name(v));
    if (letter == 'd' || letter == 'i' || letter == 'x') {
        if (v.type == J_FLOAT && !isfinite(v.u.f))
            jinja_fail(p->c, RAD_E_INVAL, "'%%%c' of a number that is none", letter);
        if (v.type == J_FLOAT && fabs(v.u.f) >= 9.2e18) too_large(p->c);
        int64_t i = jis_int(v) ? jas_int(v) : (int64_t)v.u.f;
        snprintf(format, sizeof format, "%.*sll%c", (int)(len - 1), spec, letter);
        if (letter == 'x' && i < 0)
            jinja_fail(p->c, RAD_E_UNSUPPORTED, "'%%x' of a negative number is not supported");
        snprintf(text, sizeof text, format, (long long)i);
    } else {
        jwork(p->c, 16 * JINJA_PRINT); /* up to 409 digits */
        snprintf(format, sizeof format, "%.*s", (int)len, spec);
        snprintf(text, sizeof text, format, jas_float(v));
    }
    jbuf_text(out, text);
}

#define DIGITS "0123456789"

/* How many characters from `at` on are of `set`, at most `most`. */
static size_t skip(const jstr *s, size_t at, const char *set, size_t most)
{
    size_t n = 0;
    while (n < most && at + n < s->len && s->p[at + n] && strchr(set, s->p[at + n]))
        n++;
    return n;
}

/* Flags, width and precision of at most two digits; letters s r d i x f e g %. */
jval jpercent(jctx *c, const jstr *format, jval args)
{
    jbuf out = {.c = c};
    percent p = {.c = c, .args = args, .markup = format->markup};
    size_t at = 0;
    while (at < format->len) {
        const char *found = memchr(format->p + at, '%', format->len - at);
        size_t start = found ? (size_t)(found - format->p) : format->len;
        jbuf_sub(&out, format, at, start - at);
        if (!found) break;
        size_t end = start + 1, flags = skip(format, end, "-+ 0", 4);
        end = skip(format, end + flags, DIGITS, 2) + end + flags;
        if (end < format->len && format->p[end] == '.') end += 1 + skip(format, end + 1, DIGITS, 2);
        if (end == format->len) jinja_fail(c, RAD_E_INVAL, "'%%': the format is cut off");
        char letter = format->p[end++];
        if (letter == '%')
            jbuf_sub(&out, format, end - 1, 1);
        else if (!letter || !strchr("srdixfeg", letter))
            jinja_fail(c, RAD_E_UNSUPPORTED, "'%.*s' is not supported", (int)(end - start),
                       format->p + start);
        else
            convert(&p, &out, format->p + start, end - start, next_arg(&p));
        at = end;
    }
    bool all = p.used == (args.type == J_LIST && args.u.l->kind == TUPLE ? args.u.l->len : 1);
    if (!all && args.type != J_DICT && !(args.type == J_LIST && args.u.l->kind == LIST))
        jinja_fail(c, RAD_E_INVAL, "'%%': not all arguments are used");
    return jlike(c, format, jbuf_value(&out));
}

/* ---- numbers from text ---- */

/* The text without surrounding space and without single _ between digits; false: it is too
 * long for a number, or its _ are not so. */
static bool clean_number(jctx *c, const jstr *s, char *text, size_t room)
{
    const jstr *bare = jstrip(c, s, NULL, true, true).u.s;
    size_t n = 0;
    jwork(c, JINJA_PRINT + (uint64_t)RAD_MIN((size_t)bare->len, room) * JINJA_LOOK);
    for (size_t i = 0; i < bare->len; i++) {
        char ch = bare->p[i];
        if (!ch || n + 1 == room) return false;
        if (ch == '_') {
            if (!i || i + 1 == bare->len || !isalnum((unsigned char)bare->p[i - 1]) ||
                !isalnum((unsigned char)bare->p[i + 1]))
                return false;
            continue;
        }
        text[n++] = ch;
    }
    text[n] = 0;
    return n > 0;
}

jval jparse_int(jctx *c, const jstr *s, int base)
{
    char text[128];
    if (!clean_number(c, s, text, sizeof text)) return (jval){.type = J_UNSET};
    const char *p = text;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    if (p[0] == '0' && p[1] && (base == 16 || base == 8 || base == 2)) {
        char mark = base == 16 ? 'x' : base == 8 ? 'o' : 'b';
        if (tolower((unsigned char)p[1]) == mark) p += 2;
    }
    int64_t value = 0;
    if (!*p) return (jval){.type = J_UNSET};
    for (; *p; p++) {
        int digit = isdigit((unsigned char)*p)   ? *p - '0'
                    : isalpha((unsigned char)*p) ? tolower((unsigned char)*p) - 'a' + 10
                                                 : 99;
        if (digit >= base) return (jval){.type = J_UNSET};
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            too_large(c);
    }
    return jint(negative ? -value : value);
}

jval jparse_float(jctx *c, const jstr *s)
{
    char text[128], *end;
    if (!clean_number(c, s, text, sizeof text) || strchr(text, 'x') || strchr(text, 'X') ||
        strchr(text, '('))
        return (jval){.type = J_UNSET};
    double value = strtod(text, &end);
    return *end ? (jval){.type = J_UNSET} : jfloat(value);
}

jval jround(jctx *c, jval v, int64_t digits)
{
    if (jis_int(v)) {
        if (digits >= 0) return jint(jas_int(v));
        jinja_fail(c, RAD_E_UNSUPPORTED, "round of an integer to tens is not supported");
    }
    if (v.type != J_FLOAT)
        jinja_fail(c, RAD_E_INVAL, "round wants a number, not a %s", jtype_name(v));
    if (digits > 60 || isnan(v.u.f) || isinf(v.u.f)) return v;
    jwork(c, 8 * JINJA_PRINT);
    if (digits < 0) {
        double scale = pow(10, (double)-RAD_MAX(digits, -400));
        return jfloat(isinf(scale) ? 0.0 * v.u.f : nearbyint(v.u.f / scale) * scale);
    }
    char text[400]; /* printf rounds the exact value, half to even, as Python does */
    snprintf(text, sizeof text, "%.*f", (int)digits, v.u.f);
    return jfloat(strtod(text, NULL));
}
