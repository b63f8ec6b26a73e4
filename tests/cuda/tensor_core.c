/* tensor_core.c - eight columns of a product at a time, in integers.
 *
 * A bf16 number is significand * 2^(exponent - 7) with a significand of 8 bits, so a product has 16
 * bits and 14 places. 16 of them at 25 places fit an int32; with the number that was there they do
 * not, so that one is added at 64 bits. */
#include "tensor_core.h"

#include <stdbool.h>
#include <string.h>

typedef int32_t columns __attribute__((vector_size(32)));
typedef uint32_t columns_unsigned __attribute__((vector_size(32)));

/* No product with a factor of this exponent is as large as the smallest that f32 has. */
enum { NO_EXPONENT = -1024 };

typedef struct parts {
    int32_t significand, exponent;
} parts;

static inline bool is_special(uint16_t bits)
{
    return (bits & 0x7f80) == 0x7f80;
}

static inline parts split(uint16_t bits)
{
    int32_t field = bits >> 7 & 255, significand = (bits & 127) | (field ? 128 : 0);
    return (parts){.significand = bits >> 15 ? -significand : significand,
                   .exponent = !significand ? NO_EXPONENT
                               : field      ? field - 127
                                            : -126};
}

/* sum * 2^(exponent - bits), cut towards zero. */
static inline float cut(int64_t sum, int32_t exponent, int bits)
{
    uint32_t result = sum < 0 ? 0x80000000u : 0;
    uint64_t magnitude = sum < 0 ? -(uint64_t)sum : (uint64_t)sum;
    if (!magnitude) return 0;
    int top = 63 - __builtin_clzll(magnitude), field = exponent - bits + top + 127;
    int down = top - 23; /* so that bit 23 is the highest */
    if (field < 1) down += 1 - field;
    magnitude = down <= 0 ? magnitude << -down : down > 63 ? 0 : magnitude >> down;
    if (field >= 255)
        result |= 0x7f800000;
    else if (field < 1)
        result |= (uint32_t)magnitude;
    else
        result |= (uint32_t)field << 23 | ((uint32_t)magnitude & 0x7fffff);
    float number;
    memcpy(&number, &result, 4);
    return number;
}

/* Infinity or NaN where an addend is; else `sum`. */
static float special_sum(float sum, float c, const uint16_t *a, const uint16_t *b, int terms)
{
    bool above = c == __builtin_inff(), below = c == -__builtin_inff(), nan = c != c;
    for (int k = 0; k < terms; k++) {
        if (!is_special(a[k]) && !is_special(b[k])) continue;
        bool is_nan = (a[k] & 0x7fff) > 0x7f80 || (b[k] & 0x7fff) > 0x7f80;
        bool is_zero = !(a[k] & 0x7fff) || !(b[k] & 0x7fff);
        nan |= is_nan || is_zero;
        if ((a[k] ^ b[k]) >> 15)
            below = true;
        else
            above = true;
    }
    if (nan || (above && below)) {
        uint32_t bits = 0x7fffffff;
        memcpy(&sum, &bits, 4);
        return sum;
    }
    return above ? __builtin_inff() : below ? -__builtin_inff() : sum;
}

static inline __attribute__((always_inline)) void
multiply(float d[16][8], const uint16_t a[16][16], const uint16_t b[8][16], int terms, int bits)
{
    bool any_special = false;
    columns b_significand[16], b_exponent[16];
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < 8; n++) {
            parts p = split(b[n][k]);
            b_significand[k][n] = p.significand;
            b_exponent[k][n] = p.exponent;
            any_special |= is_special(b[n][k]);
        }
    for (int m = 0; m < 16; m++) {
        parts row[16];
        bool row_special = any_special;
        for (int k = 0; k < 16; k++) {
            row[k] = split(a[m][k]);
            row_special |= is_special(a[m][k]);
        }
        for (int first = 0; first < 16; first += terms) {
            columns c;
            memcpy(&c, d[m], sizeof c);
            columns field = c >> 23 & 255, normal = field > 0; /* -1 where true */
            columns c_significand = (c & 0x7fffff) | (normal & 0x800000);
            columns zero = c_significand == 0;
            columns c_exponent = ((field - 126 + normal) & ~zero) | (zero & NO_EXPONENT);
            columns most = c_exponent;
            for (int k = first; k < first + terms; k++) {
                columns exponent = b_exponent[k] + row[k].exponent, more = exponent > most;
                most = (exponent & more) | (most & ~more);
            }
            columns sum = {0};
            for (int k = first; k < first + terms; k++) {
                columns product = b_significand[k] * row[k].significand, sign = product >> 31;
                columns magnitude = ((product ^ sign) - sign) << (bits - 14);
                columns down = most - (b_exponent[k] + row[k].exponent), far = down > 31;
                down = (down & ~far) | (far & 31);
                magnitude = (columns)((columns_unsigned)magnitude >> (columns_unsigned)down);
                sum += (magnitude ^ sign) - sign;
            }
            columns down = most - c_exponent, far = down > 31;
            down = (down & ~far) | (far & 31);
            columns was = (c_significand << (bits - 23)) >> down;
            for (int n = 0; n < 8; n++) {
                float before = d[m][n];
                int64_t exact = (int64_t)sum[n] + (c[n] < 0 ? -(int64_t)was[n] : was[n]);
                d[m][n] = cut(exact, most[n], bits);
                if (row_special || field[n] == 255)
                    d[m][n] = special_sum(d[m][n], before, a[m] + first, b[n] + first, terms);
            }
        }
    }
}

#define MULTIPLY(name, attributes)                                                                 \
    attributes static void name(tensor_core_model model, float d[16][8], const uint16_t a[16][16], \
                                const uint16_t b[8][16])                                           \
    {                                                                                              \
        if (model == TENSOR_CORE_SM80)                                                             \
            multiply(d, a, b, 8, 24);                                                              \
        else if (model == TENSOR_CORE_OTHER)                                                       \
            multiply(d, a, b, 4, 23);                                                              \
        else                                                                                       \
            multiply(d, a, b, 16, 25);                                                             \
    }

MULTIPLY(multiply_plain, )
#ifdef __x86_64__
MULTIPLY(multiply_avx2, __attribute__((target("avx2"))))
#endif

void tensor_core_bf16(tensor_core_model model, float d[16][8], const uint16_t a[16][16],
                      const uint16_t b[8][16])
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        multiply_avx2(model, d, a, b);
        return;
    }
#endif
    multiply_plain(model, d, a, b);
}

void tensor_core_i8(int32_t d[16][8], const int8_t a[16][32], const int8_t b[8][32])
{
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            uint32_t sum = (uint32_t)d[m][n];
            for (int k = 0; k < 32; k++)
                sum += (uint32_t)(a[m][k] * b[n][k]);
            d[m][n] = (int32_t)sum;
        }
}
