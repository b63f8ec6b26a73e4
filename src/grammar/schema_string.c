/* schema_string.c - what strings may be, by length, pattern and format. */
#include "grammar/regex.h"
#include "grammar/schema_impl.h"

static uint64_t pattern_hash(const void *owner, uint32_t id)
{
    const char *text = ((const schema_compiler *)owner)->patterns[id].expression;
    return gr_hash_text(text, strlen(text));
}

const dfa *schema_pattern_dfa(schema_compiler *c, const char *expression, bool whole)
{
    gr_mem *mem = &c->b->mem;
    const size_t len = strlen(expression);
    uint64_t h = gr_hash_text(expression, len);
    if (!gr_work(mem, len) ||
        !gr_slots_room(mem, &c->pattern_of, 0, c->num_patterns, pattern_hash, c))
        return NULL;
    for (uint32_t id; (id = *gr_slot(&c->pattern_of, h)); h++) {
        const schema_pattern *p = &c->patterns[id - 1];
        gr_work(mem, 1);
        if (p->whole == whole && strcmp(p->expression, expression) == 0) return &p->texts;
    }
    if (!GR_GROW(mem, c->patterns, c->cap_patterns, (uint64_t)c->num_patterns + 1)) return NULL;
    dfa d;
    rad_error *err = mem->err, words = {0};
    mem->err = &words;
    const bool ok = regex_dfa(c->b, &d, expression, len, c->form, whole);
    mem->err = err;
    if (!ok) {
        if (err) rad_fail(err, mem->status, "\"pattern\" %.100s: %.300s", expression, words.text);
        return NULL;
    }
    c->patterns[c->num_patterns] = (schema_pattern){expression, whole, d};
    *gr_slot(&c->pattern_of, h) = ++c->num_patterns;
    return &c->patterns[c->num_patterns - 1].texts;
}

bool schema_matches(schema_compiler *c, const char *expression, bool whole, const char *text,
                    size_t len)
{
    const dfa *d = schema_pattern_dfa(c, expression, whole);
    return d && gr_work(&c->b->mem, len) && schema_dfa_has(d, text, len, c->form);
}

static nfa_frag one_char(schema_compiler *c, bool one_way)
{
    gr_builder *b = c->b;
    if (c->form == CHARS_JSON) return json_char(b, one_way);
    char_set any;
    chars_init(&any, &b->mem);
    chars_add(&any, 0, CHARS_LAST);
    nfa_frag f = chars_frag(&b->n, &any, c->form);
    chars_fini(&any);
    return f;
}

bool schema_string_dfa(schema_compiler *c, const schema_merged *m, dfa *d)
{
    gr_builder *b = c->b;
    nfa n;
    bool lengths = m->min_length || m->max_length != UINT64_MAX || !m->num_texts;
    *d = (dfa){0};
    if ((m->max_length != UINT64_MAX ? m->max_length : m->min_length) > SCHEMA_MOST_LENGTH) {
        gr_fail(&b->mem, RAD_E_LIMIT,
                "\"%sLength\": beside a \"pattern\" or a \"format\", of names, and in values "
                "without quotes, more than %d is not served",
                m->max_length == UINT64_MAX ? "min" : "max", SCHEMA_MOST_LENGTH);
        return false;
    }
    if (lengths) {
        uint32_t most = m->max_length == UINT64_MAX ? UINT32_MAX : (uint32_t)m->max_length;
        nfa_init(&n, &b->mem, b->n.bytes);
        nfa kept = b->n;
        b->n = n; /* one_char builds there */
        nfa_frag f = m->min_length <= m->max_length
                         ? nfa_repeat(&b->n, one_char(c, m->num_texts || m->one_way),
                                      (uint32_t)m->min_length, most)
                         : nfa_never(&b->n);
        n = b->n;
        b->n = kept;
        if (!b->mem.status) dfa_make(d, &n, f);
        nfa_fini(&n);
    }
    for (uint32_t i = 0; i < m->num_texts && !schema_failed(c); i++) {
        const dfa *text = schema_pattern_dfa(c, m->texts[i], m->whole[i]);
        if (!text) break;
        dfa both = {0};
        if (!d->mem)
            dfa_both(&both, text, text); /* a copy */
        else
            dfa_both(&both, d, text);
        dfa_fini(d);
        *d = both;
    }
    if (schema_failed(c)) dfa_fini(d);
    return !schema_failed(c);
}

/* Those of the keywords that are not barred. False: c->b->mem.status. */
static bool allowed_texts(schema_compiler *c, const schema_merged *m, dfa *d)
{
    dfa all;
    if (!c->barred) return schema_string_dfa(c, m, d);
    if (!schema_string_dfa(c, m, &all)) return false;
    *d = (dfa){0};
    const bool ok = dfa_without(d, &all, c->barred);
    dfa_fini(&all);
    return ok;
}

nfa_frag schema_value_frag(schema_compiler *c, const json_t *value)
{
    nfa *n = &c->b->n;
    const char *text = json_string_value(value);
    const size_t len = json_string_length(value);
    if (!c->bare) return json_literal(c->b, value);
    if (!text || schema_dfa_has(c->barred, text, len, c->form)) return nfa_never(n);
    return chars_literal(n, text, len, c->form);
}

/* What is behind the opening quote of strings with these lengths: one rule for all of them. */
static uint32_t bounded_rule(schema_compiler *c, uint32_t min, uint32_t max)
{
    const uint32_t before = c->lengths.count, i = keys_add(&c->lengths, (uint64_t)min << 32 | max);
    if (!GR_GROW(&c->b->mem, c->strings, c->cap_strings, (uint64_t)i + 1)) return 0;
    if (c->lengths.count > before) c->strings[i] = json_bounded_string_rule(c->b, min, max);
    return c->strings[i];
}

nfa_frag schema_string_frag(schema_compiler *c, const schema_merged *m)
{
    gr_builder *b = c->b;
    nfa *n = &b->n;
    const bool plain = !c->bare && !c->barred && !m->num_texts && m->min_length <= m->max_length;
    if (plain && builder_counts(b, m->min_length, m->max_length, COUNTED_PARTS)) {
        const uint32_t most = m->max_length == UINT64_MAX ? NO_END : (uint32_t)m->max_length;
        const uint32_t rule = bounded_rule(c, (uint32_t)m->min_length, most);
        nfa_frag quote = json_quote(b);
        return nfa_concat(n, quote, nfa_rule(n, rule));
    }
    nfa_frag f = c->bare ? nfa_nothing(n) : json_quote(b);
    if (!c->bare && !m->num_texts && !m->min_length && m->max_length == UINT64_MAX)
        return nfa_concat(n, f, nfa_rule(n, json_string_rule(b)));
    dfa d;
    if (!allowed_texts(c, m, &d)) return f;
    f = nfa_concat(n, f, dfa_embed(n, &d));
    dfa_fini(&d);
    return c->bare ? f : nfa_concat(n, f, json_quote(b));
}
