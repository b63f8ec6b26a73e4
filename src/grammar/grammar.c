/* grammar.c - a spec becomes a grammar: the form it is written in is built, its rules are linked.
 */
#include "grammar/grammar_impl.h"

#include "grammar/builder.h"
#include "grammar/schema.h"

static rad_status build(gr_builder *b, const grammar_spec *spec, uint32_t *root)
{
    switch (spec->kind) {
    case GRAMMAR_JSON_OBJECT: *root = json_object_rule(b); return b->mem.status;
    case GRAMMAR_JSON_VALUE: *root = json_value_rule(b); return b->mem.status;
    case GRAMMAR_JSON_SCHEMA: return schema_build(b, spec->text, spec->len, root);
    case GRAMMAR_CHOICE: return choice_build(b, spec->text, spec->len, root);
    case GRAMMAR_REGEX: return regex_build(b, spec->text, spec->len, root);
    case GRAMMAR_EBNF: return ebnf_build(b, spec->text, spec->len, root);
    default: break;
    }
    return gr_fail(&b->mem, RAD_E_UNSUPPORTED, "there is no grammar of kind %d", (int)spec->kind);
}

/* *b, as it was initialised, holds only memory then. */
static rad_status make(grammar_vocab *v, const grammar_spec *spec, gr_builder *b, gr_automaton *out)
{
    uint32_t root = 0;
    b->space = spec->space;
    b->closed_objects = spec->closed_objects;
    b->vocab = v;
    rad_status status = build(b, spec, &root);
    if (!status) status = builder_link(b, root, out);
    builder_fini(b);
    if (!status) return RAD_OK;
    automaton_fini(out, &b->mem);
    *out = (gr_automaton){0};
    return status;
}

rad_status grammar_compile(grammar_vocab *v, const grammar_spec *spec, const grammar_limits *limits,
                           grammar **out, rad_error *err)
{
    gr_builder b;
    uint32_t longest = limits && limits->text_bytes ? limits->text_bytes : 4u << 20;
    *out = NULL;
    if (spec->len > longest)
        return rad_fail(err, RAD_E_LIMIT, "a grammar of %zu bytes is longer than %u", spec->len,
                        longest);
    grammar *g = rad_alloc(&v->env, sizeof *g);
    if (!g) return rad_fail(err, RAD_E_NOMEM, "no memory for a grammar");
    builder_init(&b, &v->env, v->single, limits, err);
    rad_status status = make(v, spec, &b, &g->a);
    if (b.must_unroll) {
        grammar_limits all = limits ? *limits : (grammar_limits){0};
        const uint64_t steps = b.mem.steps; /* of one limit, both */
        all.unrolled = UINT32_MAX;
        builder_init(&b, &v->env, v->single, &all, err);
        b.mem.steps = steps;
        status = make(v, spec, &b, &g->a);
    }
    if (status) {
        rad_free(&v->env, g, sizeof *g);
        return status;
    }
    atomic_init(&g->refs, 1);
    g->v = v;
    g->mem = b.mem;
    g->mem.err = NULL;
    g->stats = (grammar_stats){.states = g->a.num_states,
                               .edges = g->a.num_ranges,
                               .calls = g->a.num_calls,
                               .rules = g->a.num_rules,
                               .counters = g->a.num_counters,
                               .bytes = b.mem.used,
                               .peak_bytes = b.mem.peak,
                               .steps = b.mem.steps};
    *out = g;
    return RAD_OK;
}

grammar *grammar_ref(grammar *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void grammar_unref(grammar *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
    rad_env env = g->v->env;
    mask_cache_drop(g->v, g);
    automaton_fini(&g->a, &g->mem);
    rad_free(&env, g, sizeof *g);
}

void grammar_get_stats(const grammar *g, grammar_stats *out)
{
    *out = g->stats;
}
