/* scan_body.h - the recurrences, written once for every instruction set.
 *
 * Whoever includes it defines a vector `vec` of WIDTH floats, STATE_STRIP of which are VECS
 * vectors, and vec_load, vec_store (both aligned), vec_set1, vec_mul, vec_fma (a b + c) and
 * vec_fnma (c - a b), each rounding once. All sums of a row of the state are registers. */
#include "model/scan.h"

#include <string.h>

enum { VECS = STATE_STRIP / WIDTH };
#define EACH_VEC(n) _Pragma("GCC unroll 32") for (uint32_t n = 0; n < VECS; n++)

typedef struct strip {
    vec at[VECS];
} strip;

/* A token's values, padded with zeros to the whole strip. */
static inline strip load_values(const scan_job *j, uint32_t t)
{
    _Alignas(64) float padded[STATE_STRIP] = {0};
    strip s;
    memcpy(padded, j->value + t * j->value_ld, j->columns * sizeof *padded);
    EACH_VEC(n) s.at[n] = vec_load(padded + n * WIDTH);
    return s;
}

static inline void store_out(const scan_job *j, uint32_t t, const strip *s)
{
    _Alignas(64) float padded[STATE_STRIP];
    EACH_VEC(n) vec_store(padded + n * WIDTH, s->at[n]);
    memcpy(j->out + t * j->out_ld, padded, j->columns * sizeof *padded);
}

/* k.S and q.S of token t, before it changes S. */
static inline void look(const scan_job *j, uint32_t t, const float *state, strip *by_key,
                        strip *by_query)
{
    const float *key = j->key + t * j->key_ld, *query = j->query + t * j->key_ld;
    EACH_VEC(n) by_key->at[n] = by_query->at[n] = vec_set1(0);
    for (uint32_t i = 0; i < j->rows; i++, state += STATE_STRIP) {
        const vec k = vec_set1(key[i]), q = vec_set1(query[i]);
        EACH_VEC(n)
        {
            const vec s = vec_load(state + n * WIDTH);
            by_key->at[n] = vec_fma(s, k, by_key->at[n]);
            by_query->at[n] = vec_fma(s, q, by_query->at[n]);
        }
    }
}

/* S = d S + k u of token t; and k.S and q.S of the one behind it, at once. */
static inline void change_and_look(const scan_job *j, uint32_t t, const float *from, const strip *u,
                                   strip *by_key, strip *by_query)
{
    const float *key = j->key + t * j->key_ld, *next_key = key + j->key_ld,
                *next_query = j->query + (t + 1) * j->key_ld;
    const vec decay = vec_set1(j->decay[t * j->gate_ld]);
    float *to = j->to;
    strip sum_k, sum_q;
    EACH_VEC(n) sum_k.at[n] = sum_q.at[n] = vec_set1(0);
    for (uint32_t i = 0; i < j->rows; i++, from += STATE_STRIP, to += STATE_STRIP) {
        const vec k = vec_set1(key[i]), next_k = vec_set1(next_key[i]),
                  next_q = vec_set1(next_query[i]);
        EACH_VEC(n)
        {
            const vec s = vec_fma(k, u->at[n], vec_mul(decay, vec_load(from + n * WIDTH)));
            vec_store(to + n * WIDTH, s);
            sum_k.at[n] = vec_fma(s, next_k, sum_k.at[n]);
            sum_q.at[n] = vec_fma(s, next_q, sum_q.at[n]);
        }
    }
    *by_key = sum_k, *by_query = sum_q;
}

/* S = d S + k u; `out` = q.S, unless NULL. */
static inline void change(const scan_job *j, uint32_t t, const float *from, const strip *u,
                          strip *out)
{
    const float *key = j->key + t * j->key_ld, *query = j->query + t * j->key_ld;
    const vec decay = vec_set1(j->decay[t * j->gate_ld]);
    float *to = j->to;
    strip sum;
    EACH_VEC(n) sum.at[n] = vec_set1(0);
    for (uint32_t i = 0; i < j->rows; i++, from += STATE_STRIP, to += STATE_STRIP) {
        const vec k = vec_set1(key[i]), q = vec_set1(query[i]);
        EACH_VEC(n)
        {
            const vec s = vec_fma(k, u->at[n], vec_mul(decay, vec_load(from + n * WIDTH)));
            vec_store(to + n * WIDTH, s);
            if (out) sum.at[n] = vec_fma(s, q, sum.at[n]);
        }
    }
    if (out) *out = sum;
}

static void run_delta(const scan_job *j)
{
    const float *from = j->from;
    strip by_key, by_query, u, out;
    look(j, 0, from, &by_key, &by_query);
    for (uint32_t t = 0; t < j->tokens; t++, from = j->to) {
        const size_t g = t * j->gate_ld;
        const vec decay = vec_set1(j->decay[g]), weight = vec_set1(j->weight[g]),
                  product = vec_set1(j->product[g]);
        const strip v = load_values(j, t);
        EACH_VEC(n)
        {
            u.at[n] = vec_mul(weight, vec_fnma(decay, by_key.at[n], v.at[n]));
            out.at[n] = vec_fma(product, u.at[n], vec_mul(decay, by_query.at[n]));
        }
        store_out(j, t, &out);
        if (t + 1 < j->tokens)
            change_and_look(j, t, from, &u, &by_key, &by_query);
        else
            change(j, t, from, &u, NULL);
    }
}

static void run_mamba(const scan_job *j)
{
    const float *from = j->from;
    for (uint32_t t = 0; t < j->tokens; t++, from = j->to) {
        const vec weight = vec_set1(j->weight[t * j->gate_ld]);
        strip u = load_values(j, t), out;
        EACH_VEC(n) u.at[n] = vec_mul(weight, u.at[n]);
        change(j, t, from, &u, &out);
        store_out(j, t, &out);
    }
}
