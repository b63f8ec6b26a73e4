/* schema_number.c - numbers between bounds, digit by digit.
 *
 * A number is read from its first digit, before it is known how many follow. So a state knows how
 * many digits there are before the point (as far as it matters), and how what was read compares
 * with as many digits of each bound; a number with fewer digits than a bound is less, one with more
 * is greater. Behind the point comparisons go on digit by digit. Below zero the bounds change
 * sides.
 *
 * For multipleOf m = p / 10^k a state knows, besides, the remainder of what was read by p; at the
 * end, digits that are missing to k behind the point count as zeros. */
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_STEP = 20000 };

/* ---- decimals ---- */

size_t number_text(const json_t *number, char out[64])
{
    if (json_is_integer(number))
        return (size_t)snprintf(out, 64, "%lld", (long long)json_integer_value(number));
    double x = json_real_value(number);
    size_t len = 0;
    for (int digits = 15; digits <= 17; digits++) {
        len = (size_t)snprintf(out, 60, "%.*g", digits, x);
        if (strtod(out, NULL) == x) break;
    }
    if (!strpbrk(out, ".e")) len += (size_t)snprintf(out + len, 4, ".0");
    return len;
}

bool decimal_of(const json_t *number, decimal *out)
{
    char text[64], digits[64];
    int num_digits = 0, point = -1;
    memset(out, 0, sizeof *out);
    number_text(number, text);
    const char *c = text;
    out->negative = *c == '-';
    c += *c == '-';
    for (; (*c >= '0' && *c <= '9') || *c == '.'; c++) {
        if (*c == '.')
            point = num_digits;
        else
            digits[num_digits++] = *c;
    }
    if (point < 0) point = num_digits;
    if (*c == 'e') point += atoi(c + 1);
    int begin = 0, end = num_digits;
    while (begin < end && digits[begin] == '0')
        begin++;
    while (end > begin && digits[end - 1] == '0')
        end--;
    if (begin == end) { /* zero */
        out->negative = false;
        out->whole[out->num_whole++] = '0';
        return true;
    }
    if (point - begin > DECIMAL_DIGITS || end - point > DECIMAL_DIGITS) return false;
    for (int i = RAD_MIN(begin, point); i < RAD_MAX(end, point); i++) {
        char digit = i >= begin && i < end ? digits[i] : '0';
        if (i < point)
            out->whole[out->num_whole++] = digit;
        else
            out->part[out->num_part++] = digit;
    }
    if (!out->num_whole) out->whole[out->num_whole++] = '0';
    return true;
}

static int compare_sizes(const decimal *a, const decimal *b)
{
    if (a->num_whole != b->num_whole) return a->num_whole < b->num_whole ? -1 : 1;
    int order = memcmp(a->whole, b->whole, a->num_whole);
    if (order) return order < 0 ? -1 : 1;
    order = memcmp(a->part, b->part, RAD_MIN(a->num_part, b->num_part));
    if (order) return order < 0 ? -1 : 1;
    return (a->num_part > b->num_part) - (a->num_part < b->num_part);
}

int decimal_compare(const decimal *a, const decimal *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? -compare_sizes(a, b) : compare_sizes(a, b);
}

enum { MOST_DIGITS = 15 }; /* of what is counted in 64 bits */

/* d * 10^digits; 0: too large, or no whole number. */
static uint64_t scaled(const decimal *d, unsigned digits)
{
    uint64_t n = 0;
    if (d->num_part > digits || d->num_whole + digits > MOST_DIGITS) return 0;
    for (unsigned i = 0; i < d->num_whole; i++)
        n = n * 10 + (uint64_t)(d->whole[i] - '0');
    for (unsigned i = 0; i < digits; i++)
        n = n * 10 + (i < d->num_part ? (uint64_t)(d->part[i] - '0') : 0);
    return n;
}

bool decimal_common_multiple(decimal *a, const decimal *b)
{
    char text[32];
    const unsigned digits = RAD_MAX(a->num_part, b->num_part);
    const uint64_t x = scaled(a, digits), y = scaled(b, digits);
    uint64_t common = x, rest = y;
    while (rest) {
        const uint64_t next = common % rest;
        common = rest;
        rest = next;
    }
    if (!x || !y || x / common > 1000000000000000u / y) return false;
    const int len = snprintf(text, sizeof text, "%0*llu", (int)digits + 1,
                             (unsigned long long)(x / common * y));
    memset(a, 0, sizeof *a);
    a->num_whole = (uint16_t)((unsigned)len - digits);
    a->num_part = (uint16_t)digits;
    memcpy(a->whole, text, a->num_whole);
    memcpy(a->part, text + a->num_whole, digits);
    while (a->num_part && a->part[a->num_part - 1] == '0')
        a->num_part--;
    return true;
}

/* ---- the automaton ---- */

/* A bound of the size of a number: of its digits without the sign. */
typedef struct size_bound {
    const decimal *at; /* NULL: none */
    bool open;
} size_bound;

typedef struct number_maker {
    gr_builder *b;
    const number_bounds *bounds;
    uint32_t step, step_digits; /* p and k; 0: no multipleOf */
    size_bound low[2], high[2]; /* by sign */
    bool possible[2];
    gr_keys states;
} number_maker;

typedef enum phase { AT_START, AT_SIGN, AT_ZERO, AT_WHOLE, AT_POINT, AT_PART } phase;
enum { LESS, EQUAL, GREATER };

typedef struct number_state {
    phase at;
    unsigned sign, digits, low, high, rest;
} number_state;

static uint64_t pack(number_state s)
{
    return (uint64_t)s.at | (uint64_t)s.sign << 3 | (uint64_t)s.low << 4 | (uint64_t)s.high << 6 |
           (uint64_t)s.digits << 8 | (uint64_t)s.rest << 24;
}

static number_state unpack(uint64_t key)
{
    return (number_state){(phase)(key & 7), key >> 3 & 1, key >> 8 & 0xffff,
                          key >> 4 & 3,     key >> 6 & 3, (unsigned)(key >> 24)};
}

static unsigned compare_digit(unsigned so_far, const char *digits, unsigned count, unsigned i,
                              unsigned digit)
{
    unsigned other = i < count ? (unsigned)(digits[i] - '0') : 0;
    if (so_far != EQUAL || digit == other) return so_far;
    return digit < other ? LESS : GREATER;
}

static unsigned compare_whole(unsigned so_far, size_bound bound, unsigned digits)
{
    if (!bound.at) return EQUAL;
    return digits < bound.at->num_whole ? LESS : digits > bound.at->num_whole ? GREATER : so_far;
}

static unsigned most_digits(const number_maker *m, unsigned sign, bool part)
{
    unsigned most = 0;
    const size_bound *bounds[] = {&m->low[sign], &m->high[sign]};
    for (int i = 0; i < 2; i++)
        if (bounds[i]->at)
            most = RAD_MAX(most,
                           (unsigned)(part ? bounds[i]->at->num_part : bounds[i]->at->num_whole));
    return most;
}

static bool ends(const number_maker *m, number_state s)
{
    if (s.at != AT_ZERO && s.at != AT_WHOLE && s.at != AT_PART) return false;
    size_bound low = m->low[s.sign], high = m->high[s.sign];
    bool part = s.at == AT_PART;
    unsigned a = part ? s.low : compare_whole(s.low, low, s.digits);
    unsigned b = part ? s.high : compare_whole(s.high, high, s.digits);
    unsigned done = part ? s.digits : 0;
    /* As far as it was written it equals the bound, which has digits more: it is less. */
    if (low.at && a == EQUAL && done < low.at->num_part) a = LESS;
    if (high.at && b == EQUAL && done < high.at->num_part) b = LESS;
    if (low.at && (a == LESS || (a == EQUAL && low.open))) return false;
    if (high.at && (b == GREATER || (b == EQUAL && high.open))) return false;
    if (m->step) {
        uint64_t rest = s.rest;
        for (unsigned i = done; i < m->step_digits; i++)
            rest = rest * 10 % m->step;
        if (rest) return false;
    }
    return true;
}

static number_state with_whole_digit(const number_maker *m, number_state s, unsigned digit)
{
    unsigned i = s.at == AT_WHOLE ? s.digits : 0, most = most_digits(m, s.sign, false) + 1;
    const decimal *low = m->low[s.sign].at, *high = m->high[s.sign].at;
    s.low = low ? compare_digit(s.low, low->whole, low->num_whole, i, digit) : EQUAL;
    s.high = high ? compare_digit(s.high, high->whole, high->num_whole, i, digit) : EQUAL;
    s.digits = RAD_MIN(i + 1, most);
    if (s.digits == most) s.low = s.high = EQUAL; /* longer than either */
    s.at = digit || s.at == AT_WHOLE ? AT_WHOLE : AT_ZERO;
    if (m->step) s.rest = (unsigned)(((uint64_t)s.rest * 10 + digit) % m->step);
    return s;
}

static number_state with_point(const number_maker *m, number_state s)
{
    s.low = compare_whole(s.low, m->low[s.sign], s.digits);
    s.high = compare_whole(s.high, m->high[s.sign], s.digits);
    s.digits = 0;
    s.at = AT_POINT;
    return s;
}

static number_state with_part_digit(const number_maker *m, number_state s, unsigned digit)
{
    const decimal *low = m->low[s.sign].at, *high = m->high[s.sign].at;
    unsigned most = RAD_MAX(most_digits(m, s.sign, true), (unsigned)m->step_digits);
    if (low) s.low = compare_digit(s.low, low->part, low->num_part, s.digits, digit);
    if (high) s.high = compare_digit(s.high, high->part, high->num_part, s.digits, digit);
    s.digits = RAD_MIN(s.digits + 1, most);
    s.at = AT_PART;
    if (m->step) s.rest = (unsigned)(((uint64_t)s.rest * 10 + digit) % m->step);
    return s;
}

static void add_edges(number_maker *m, number_state s, dfa *d)
{
    bool first = s.at == AT_START || s.at == AT_SIGN;
    if (s.at == AT_START && m->possible[1]) {
        number_state to = {.at = AT_SIGN, .sign = 1, .low = EQUAL, .high = EQUAL};
        dfa_add(d, '-', '-', NO_RULE, keys_add(&m->states, pack(to)));
    }
    if ((s.at == AT_ZERO || s.at == AT_WHOLE) && !m->bounds->integer &&
        !(m->step && !m->step_digits))
        dfa_add(d, '.', '.', NO_RULE, keys_add(&m->states, pack(with_point(m, s))));
    if (s.at == AT_ZERO || (s.at == AT_START && !m->possible[0])) return;
    if (s.at == AT_PART && m->step && s.digits == m->step_digits) return;
    for (unsigned digit = 0; digit < 10; digit++) {
        number_state to = first || s.at == AT_WHOLE ? with_whole_digit(m, s, digit)
                                                    : with_part_digit(m, s, digit);
        dfa_add(d, '0' + digit, '0' + digit, NO_RULE, keys_add(&m->states, pack(to)));
    }
}

/* m = p / 10^k. False: p is too large. */
static bool take_step(number_maker *m)
{
    const decimal *step = &m->bounds->step;
    uint64_t p = 0;
    for (unsigned i = 0; i < step->num_whole && p <= MOST_STEP; i++)
        p = p * 10 + (uint64_t)(step->whole[i] - '0');
    for (unsigned i = 0; i < step->num_part && p <= MOST_STEP; i++)
        p = p * 10 + (uint64_t)(step->part[i] - '0');
    m->step = (uint32_t)p;
    m->step_digits = step->num_part;
    return p <= MOST_STEP && p;
}

bool number_dfa(gr_builder *b, const number_bounds *bounds, dfa *d)
{
    static const decimal zero = {.num_whole = 1, .whole = "0"};
    number_maker m = {.b = b, .bounds = bounds, .possible = {true, true}};
    dfa_begin(d, &b->mem);
    if (bounds->has_step && !take_step(&m)) {
        gr_fail(&b->mem, RAD_E_LIMIT, "\"multipleOf\": without its point it is more than %d",
                MOST_STEP);
        return false;
    }
    if (bounds->has_low) {
        if (bounds->low.negative) { /* -x is at most as large */
            m.high[1] = (size_bound){&bounds->low, bounds->low_open};
        } else {
            m.low[0] = (size_bound){&bounds->low, bounds->low_open};
            m.high[1] = (size_bound){&zero, bounds->low_open};
            m.possible[1] = compare_sizes(&bounds->low, &zero) == 0;
        }
    }
    if (bounds->has_high) {
        if (bounds->high.negative) {
            m.low[1] = (size_bound){&bounds->high, bounds->high_open};
            m.possible[0] = false;
        } else {
            m.high[0] = (size_bound){&bounds->high, bounds->high_open};
            if (compare_sizes(&bounds->high, &zero) == 0)
                m.low[1] = (size_bound){&zero, bounds->high_open};
        }
    }
    keys_init(&m.states, &b->mem);
    number_state start = {.at = AT_START, .low = EQUAL, .high = EQUAL};
    keys_add(&m.states, pack(start));
    for (uint32_t i = 0; i < m.states.count && !b->mem.status; i++) {
        number_state s = unpack(m.states.key[i]);
        gr_work(&b->mem, 10);
        add_edges(&m, s, d);
        if (!b->mem.status) dfa_state(d, ends(&m, s));
    }
    keys_fini(&m.states);
    return dfa_finish(d);
}
