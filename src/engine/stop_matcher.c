/* stop_matcher.c - Knuth, Morris and Pratt, one automaton a string.
 *
 * `matched` is the state. It costs O(1) a byte in the long run however the strings look:
 * a user may send 64 strings of 1,000 equal letters. The automata are the set's and constant;
 * a matcher has its states only, 4 bytes a string: a thousand prompts of one request share the set.
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

static rad_status check(const char *const *strings, uint32_t num_strings, size_t *text_bytes,
                        rad_error *err)
{
    *text_bytes = 0;
    if (num_strings > STOP_MATCHER_MOST)
        return rad_fail(err, RAD_E_INVAL, "%u stop strings; %d are possible", num_strings,
                        STOP_MATCHER_MOST);
    for (uint32_t i = 0; i < num_strings; i++) {
        size_t len = strlen(strings[i]);
        if (!len || len > STOP_MATCHER_MOST_BYTES)
            return rad_fail(err, RAD_E_INVAL, "stop string %u has %zu bytes; 1 to %d are possible",
                            i, len, STOP_MATCHER_MOST_BYTES);
        *text_bytes += len;
    }
    return RAD_OK;
}

rad_status stop_set_create(const rad_env *env, memory_budget *budget, const char *const *strings,
                           uint32_t num_strings, stop_set **out, rad_error *err)
{
    size_t text_bytes;
    rad_env full = rad_env_or_default(env);
    *out = NULL;
    rad_status status = check(strings, num_strings, &text_bytes, err);
    if (status != RAD_OK || !num_strings) return status;
    size_t bytes = sizeof(stop_set) + num_strings * (sizeof(stop_string) + 1) +
                   text_bytes * (1 + sizeof(uint16_t));
    if (!memory_budget_take(budget, bytes))
        return rad_fail(err, RAD_FULL,
                        "no memory for this request now: its stop strings take %zu bytes, and all "
                        "together have %llu of %llu; try again soon",
                        bytes, (unsigned long long)budget->used, (unsigned long long)budget->limit);
    stop_set *set = rad_alloc(&full, bytes);
    if (!set) {
        memory_budget_give(budget, bytes);
        return rad_fail(err, RAD_E_NOMEM, "no memory for the stop strings");
    }
    set->env = full;
    set->budget = budget;
    set->refs = 1;
    set->bytes = bytes;
    set->num_strings = num_strings;

    uint16_t *border = (uint16_t *)&set->strings[num_strings];
    char *text = (char *)(border + text_bytes);
    for (uint32_t i = 0; i < num_strings; i++) {
        stop_string *s = &set->strings[i];
        s->len = (uint32_t)strlen(strings[i]);
        s->text = memcpy(text, strings[i], s->len + 1);
        s->border = border;
        for (uint32_t k = 1; k < s->len; k++)
            s->border[k] = (uint16_t)advance(s, s->border[k - 1], s->text[k]);
        text += s->len + 1;
        border += s->len;
    }
    *out = set;
    return RAD_OK;
}

stop_set *stop_set_ref(stop_set *set)
{
    if (set) atomic_fetch_add(&set->refs, 1);
    return set;
}

void stop_set_unref(stop_set *set)
{
    if (!set || atomic_fetch_sub(&set->refs, 1) != 1) return;
    rad_env env = set->env;
    memory_budget_give(set->budget, set->bytes);
    rad_free(&env, set, set->bytes);
}

rad_status stop_matcher_init(stop_matcher *m, const rad_env *env, stop_set *set, rad_error *err)
{
    *m = (stop_matcher){.env = rad_env_or_default(env)};
    if (!set) return RAD_OK;
    m->matched = rad_alloc(&m->env, set->num_strings * sizeof *m->matched);
    if (!m->matched) return rad_fail(err, RAD_E_NOMEM, "no memory for the stop strings");
    m->set = stop_set_ref(set);
    return RAD_OK;
}

void stop_matcher_fini(stop_matcher *m)
{
    if (m->set) rad_free(&m->env, m->matched, m->set->num_strings * sizeof *m->matched);
    stop_set_unref(m->set);
    m->matched = NULL;
    m->set = NULL;
}

const stop_string *stop_matcher_feed(stop_matcher *m, const char *text, size_t len, size_t *end)
{
    for (size_t i = 0; m->set && i < len; i++) {
        const stop_string *found = NULL;
        for (uint32_t k = 0; k < m->set->num_strings; k++) {
            const stop_string *s = &m->set->strings[k];
            m->matched[k] = advance(s, m->matched[k], text[i]);
            if (m->matched[k] < s->len) continue;
            m->matched[k] = s->border[s->len - 1];
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
    for (uint32_t k = 0; m->set && k < m->set->num_strings; k++)
        held = RAD_MAX(held, m->matched[k]);
    return held;
}
