/* stop_matcher.c - Knuth, Morris and Pratt, one automaton a string.
 *
 * `matched` is the state. It costs O(1) a byte in the long run however the strings look:
 * a user may send 64 strings of 1,000 equal letters.
 *
 * Invariant: matched < len, the text so far ends with text[0..matched), and with no longer
 * beginning of the string. */
#include "engine/stop_matcher.h"

static uint32_t advance(const stop_string *s, uint32_t matched, char c)
{
    while (matched && s->text[matched] != c)
        matched = s->border[matched - 1];
    return matched + (s->text[matched] == c);
}

rad_status stop_matcher_init(stop_matcher *m, const rad_env *env, const char *const *strings,
                             uint32_t num_strings, rad_error *err)
{
    *m = (stop_matcher){.env = rad_env_or_default(env)};
    if (!num_strings) return RAD_OK;
    if (num_strings > STOP_MATCHER_MOST)
        return rad_fail(err, RAD_E_INVAL, "%u stop strings; %d are possible", num_strings,
                        STOP_MATCHER_MOST);
    m->strings = rad_alloc(&m->env, num_strings * sizeof *m->strings);
    if (!m->strings) return rad_fail(err, RAD_E_NOMEM, "no memory for the stop strings");
    m->num_strings = num_strings;

    for (uint32_t i = 0; i < num_strings; i++) {
        stop_string *s = &m->strings[i];
        size_t len = strlen(strings[i]);
        if (!len || len > STOP_MATCHER_MOST_BYTES) {
            stop_matcher_fini(m);
            return rad_fail(err, RAD_E_INVAL, "stop string %u has %zu bytes; 1 to %d are possible",
                            i, len, STOP_MATCHER_MOST_BYTES);
        }
        s->len = (uint32_t)len;
        s->text = rad_alloc(&m->env, len + 1);
        s->border = rad_alloc(&m->env, len * sizeof *s->border);
        if (!s->text || !s->border) {
            stop_matcher_fini(m);
            return rad_fail(err, RAD_E_NOMEM, "no memory for the stop strings");
        }
        memcpy(s->text, strings[i], len + 1);
        for (uint32_t k = 1; k < s->len; k++)
            s->border[k] = (uint16_t)advance(s, s->border[k - 1], s->text[k]);
    }
    return RAD_OK;
}

void stop_matcher_fini(stop_matcher *m)
{
    for (uint32_t i = 0; i < m->num_strings; i++) {
        rad_free(&m->env, m->strings[i].text, m->strings[i].len + 1);
        rad_free(&m->env, m->strings[i].border, m->strings[i].len * sizeof *m->strings[i].border);
    }
    rad_free(&m->env, m->strings, m->num_strings * sizeof *m->strings);
    m->strings = NULL;
    m->num_strings = 0;
}

const stop_string *stop_matcher_feed(stop_matcher *m, const char *text, size_t len, size_t *end)
{
    for (size_t i = 0; m->num_strings && i < len; i++) {
        const stop_string *found = NULL;
        for (uint32_t k = 0; k < m->num_strings; k++) {
            stop_string *s = &m->strings[k];
            s->matched = advance(s, s->matched, text[i]);
            if (s->matched < s->len) continue;
            s->matched = s->border[s->len - 1];
            if (!found || s->len > found->len) found = s;
        }
        if (found) {
            *end = i + 1;
            return found;
        }
    }
    return NULL;
}

uint32_t stop_matcher_held(const stop_matcher *m)
{
    uint32_t held = 0;
    for (uint32_t k = 0; k < m->num_strings; k++)
        held = RAD_MAX(held, m->strings[k].matched);
    return held;
}
