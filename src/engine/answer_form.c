/* answer_form.c - forms are copied, compiled once, and followed. */
#include "engine/engine_impl.h"

#include <stdio.h>

/* ---- words ---- */

rad_status form_words_create(engine *e, const engine_form *f, form_words **out, rad_error *err)
{
    void *memory;
    const size_t bytes = sizeof(form_words) + f->spec.len + strlen(f->name) + 1;
    rad_status status = engine_alloc_charged(e, bytes, bytes, &memory, err);
    if (status != RAD_OK) return status;
    form_words *w = memory;
    w->engine = e;
    w->refs = 1;
    w->bytes = bytes;
    w->form = *f;
    w->form.name = w->text;
    char *to = stpcpy(w->text, f->name) + 1;
    if (f->spec.len) memcpy(to, f->spec.text, f->spec.len);
    w->form.spec.text = to;
    *out = w;
    return RAD_OK;
}

void form_words_unref(form_words *w)
{
    if (!w || atomic_fetch_sub(&w->refs, 1) != 1) return;
    engine *e = w->engine;
    grammar_unref(w->compiled);
    memory_budget_give(e->params.request_memory, w->bytes);
    rad_free(&e->env, w, w->bytes);
}

/* ---- what was compiled ---- */

static void drop_kept(engine *e, uint32_t at)
{
    answer_forms *f = &e->forms;
    kept_form *k = &f->kept[at];
    f->bytes -= k->bytes;
    grammar_unref(k->grammar);
    rad_free(&e->env, k->text, k->space_len + k->spec.len);
    *k = f->kept[--f->count];
}

void answer_forms_fini(engine *e)
{
    while (e->forms.count)
        drop_kept(e, e->forms.count - 1);
    rad_free(&e->env, e->forms.kept, FORMS_MOST * sizeof *e->forms.kept);
    grammar_vocab_destroy(e->forms.vocab);
    e->forms = (answer_forms){0};
}

/* Space and text are one key, and the length of either is compared, too. */
static bool is_kept_as(const kept_form *k, const grammar_spec *spec, const char *space)
{
    return k->spec.kind == spec->kind && k->spec.space == spec->space &&
           k->spec.closed_objects == spec->closed_objects && k->space_len == strlen(space) &&
           k->spec.len == spec->len && !memcmp(k->text, space, k->space_len) &&
           !memcmp(k->text + k->space_len, spec->text, spec->len);
}

/* A borrowed reference, or NULL. */
static grammar *find_kept(engine *e, const grammar_spec *spec, const char *space)
{
    answer_forms *f = &e->forms;
    for (uint32_t i = 0; i < f->count; i++)
        if (is_kept_as(&f->kept[i], spec, space)) {
            f->kept[i].used = ++f->clock;
            return f->kept[i].grammar;
        }
    return NULL;
}

/* Takes a reference of its own. Without memory nothing is kept. */
static void keep(engine *e, const grammar_spec *spec, const char *space, grammar *g)
{
    answer_forms *f = &e->forms;
    grammar_stats stats;
    grammar_get_stats(g, &stats);
    const size_t space_len = strlen(space);
    const uint64_t bytes = stats.bytes + space_len + spec->len;
    if (bytes > FORMS_BYTES) return;
    if (!f->kept) f->kept = rad_alloc(&e->env, FORMS_MOST * sizeof *f->kept);
    if (!f->kept) return;
    while (f->count == FORMS_MOST || f->bytes + bytes > FORMS_BYTES) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < f->count; i++)
            if (f->kept[i].used < f->kept[oldest].used) oldest = i;
        drop_kept(e, oldest);
    }
    char *text = rad_alloc(&e->env, space_len + spec->len);
    if (!text && space_len + spec->len) return;
    if (space_len) memcpy(text, space, space_len);
    if (spec->len) memcpy(text + space_len, spec->text, spec->len);
    f->kept[f->count++] = (kept_form){.grammar = grammar_ref(g),
                                      .spec = *spec,
                                      .text = text,
                                      .space_len = space_len,
                                      .used = ++f->clock,
                                      .bytes = bytes};
    f->bytes += bytes;
}

/* The bytes of every token, in one block. */
static rad_status make_vocab(engine *e, rad_error *err)
{
    const uint32_t vocab_size = e->info.vocab_size;
    const uint32_t known = RAD_MIN(vocab_size, tokenizer_vocab_size(e->tok));
    char text[TOKENIZER_MAX_PIECE];
    size_t all = 1, len = 0;
    for (uint32_t id = 0; id < known; id++)
        all += tokenizer_piece(e->tok, (rad_token)id, true, text, sizeof text);
    const size_t pieces_bytes = rad_mul(vocab_size, sizeof(grammar_piece));
    grammar_piece *pieces = rad_alloc(&e->env, pieces_bytes);
    char *bytes = rad_alloc(&e->env, all);
    rad_status status = RAD_OK;
    if (!pieces || !bytes) status = rad_fail(err, RAD_E_NOMEM, "no memory for a form's vocabulary");
    for (uint32_t id = 0; status == RAD_OK && id < known; id++) {
        const size_t n = tokenizer_piece(e->tok, (rad_token)id, true, bytes + len, all - len);
        pieces[id] = (grammar_piece){.bytes = bytes + len,
                                     .len = n <= GRAMMAR_MAX_PIECE ? (uint32_t)n : 0,
                                     .control = tokenizer_is_control(e->tok, (rad_token)id)};
        len += n;
    }
    const grammar_vocab_params params = {.pieces = pieces,
                                         .vocab_size = vocab_size,
                                         .end_tokens = e->end_ids,
                                         .num_end_tokens = e->num_end_ids};
    if (status == RAD_OK) status = grammar_vocab_create(&e->env, &params, &e->forms.vocab, err);
    /* What strings and numbers allow is the same in every form: here, and not in a step. */
    if (status == RAD_OK && grammar_vocab_warm(e->forms.vocab) != RAD_OK)
        status = rad_fail(err, RAD_E_NOMEM, "no memory for a form's vocabulary");
    rad_free(&e->env, bytes, all);
    rad_free(&e->env, pieces, pieces_bytes);
    return status;
}

static rad_status compile(engine *e, form_words *w, const char *space, rad_error *err)
{
    const grammar_spec *spec = &w->form.spec;
    if (w->compiled) return RAD_OK;
    grammar *g = find_kept(e, spec, space);
    if (g) {
        w->compiled = grammar_ref(g);
        return RAD_OK;
    }
    rad_status status = e->forms.vocab ? RAD_OK : make_vocab(e, err);
    if (status != RAD_OK) return status;
    rad_error why = {0};
    status = grammar_compile(e->forms.vocab, spec, NULL, &w->compiled, &why);
    if (status == RAD_E_LIMIT || status == RAD_E_UNSUPPORTED)
        status = RAD_E_INVAL; /* it is the request */
    if (status != RAD_OK) return rad_fail(err, status, "'%s': %s", w->form.name, why.text);
    keep(e, spec, space, w->compiled);
    return RAD_OK;
}

/* ---- one answer ---- */

/* Tokens before the form: none, or reasoning.
 *
 *     AHEAD     the answer has not begun: the form, or the token that opens reasoning
 *     THINKING  anything but an end, until the token that closes it
 *     IN_FORM   what the grammar has */
typedef enum rule_place { AHEAD, THINKING, IN_FORM } rule_place;

typedef struct answer_rule {
    token_rule rule;
    grammar_rule form; /* what it is once it has begun */
    uint32_t vocab_size;
    const rad_token *end_ids; /* the engine's */
    uint32_t num_end_ids;
    rad_token open, close; /* of reasoning; -1: there is none */
    bool begins_inside;    /* the prompt has opened it */
    uint32_t accepted;     /* tokens of the answer, */
    uint32_t opened;       /* so many with the one that opened reasoning, */
    uint32_t form_from;    /* and before the first of the form; UINT32_MAX: not yet */
} answer_rule;

static rule_place place_of(const answer_rule *a)
{
    if (a->form_from != UINT32_MAX) return IN_FORM;
    return a->begins_inside || a->opened != UINT32_MAX ? THINKING : AHEAD;
}

static void set_bit(uint32_t *bits, rad_token id)
{
    bits[id / 32] |= UINT32_C(1) << id % 32;
}

static token_mask rule_mask(token_rule *self, uint32_t *bits)
{
    answer_rule *a = (answer_rule *)self;
    const rule_place place = place_of(a);
    if (place == THINKING) {
        memset(bits, 0xff, grammar_mask_words(a->vocab_size) * sizeof *bits);
        for (uint32_t i = 0; i < a->num_end_ids; i++)
            bits[a->end_ids[i] / 32] &= ~(UINT32_C(1) << a->end_ids[i] % 32);
        return TOKEN_MASK_SOME;
    }
    token_rule *form = &a->form.base;
    const token_mask mask = form->ops->mask(form, bits);
    if (place == IN_FORM || a->open < 0 || mask != TOKEN_MASK_SOME) return mask;
    set_bit(bits, a->open);
    return TOKEN_MASK_SOME;
}

static bool is_end(const answer_rule *a, rad_token token)
{
    for (uint32_t i = 0; i < a->num_end_ids; i++)
        if (a->end_ids[i] == token) return true;
    return false;
}

static bool rule_accept(token_rule *self, rad_token token)
{
    answer_rule *a = (answer_rule *)self;
    const rule_place place = place_of(a);
    if (place == THINKING) {
        if (is_end(a, token)) return false;
        a->accepted++;
        if (token == a->close) a->form_from = a->accepted;
        return true;
    }
    if (place == AHEAD && token == a->open) {
        a->opened = ++a->accepted;
        return true;
    }
    if (!a->form.base.ops->accept(&a->form.base, token)) return false;
    if (place == AHEAD) a->form_from = a->accepted; /* nobody thinks: it begins with this one */
    a->accepted++;
    return true;
}

static void rule_roll_back(token_rule *self, uint32_t count)
{
    answer_rule *a = (answer_rule *)self;
    const uint32_t left = a->accepted - count;
    if (a->form_from < a->accepted)
        a->form.base.ops->roll_back(&a->form.base, a->accepted - RAD_MAX(left, a->form_from));
    if (a->close >= 0 && a->form_from != UINT32_MAX) {
        /* Behind reasoning the form begins with the token that closed it, else with its own first.
         */
        const bool thought = a->begins_inside || a->opened != UINT32_MAX;
        if (left < a->form_from + !thought) a->form_from = UINT32_MAX;
    }
    if (a->opened != UINT32_MAX && left < a->opened) a->opened = UINT32_MAX;
    a->accepted = left;
}

static bool rule_has_ended(const token_rule *self)
{
    const answer_rule *a = (const answer_rule *)self;
    if (place_of(a) != IN_FORM) return false;
    return a->form.base.ops->has_ended(&a->form.base) ||
           (!a->num_end_ids && grammar_must_end(a->form.matcher));
}

static uint32_t rule_forced(token_rule *self, rad_token *out, uint32_t room)
{
    answer_rule *a = (answer_rule *)self;
    return place_of(a) == IN_FORM ? a->form.base.ops->forced(&a->form.base, out, room) : 0;
}

static const char *rule_problem(const token_rule *self)
{
    const answer_rule *a = (const answer_rule *)self;
    return a->form.base.ops->problem(&a->form.base);
}

/* A marker is a token, or there is no reasoning apart. */
static rad_token marker(const engine *e, const char *text)
{
    return text ? tokenizer_find(e->tok, text, strlen(text)) : -1;
}

/* The prompt ends in the marker, but for white space. */
static bool ends_in(const engine_job *job, const char *text)
{
    const char *tail = job->prompt_tail;
    size_t n = text ? strlen(text) : 0, len = job->prompt_tail_len;
    while (len && (tail[len - 1] == '\n' || tail[len - 1] == ' '))
        len--;
    return n && len >= n && !memcmp(tail + len - n, text, n);
}

rad_status answer_rule_create(engine *e, const engine_job *job, token_rule **out, rad_error *err)
{
    static const token_rule_ops ops = {.mask = rule_mask,
                                       .accept = rule_accept,
                                       .roll_back = rule_roll_back,
                                       .has_ended = rule_has_ended,
                                       .forced = rule_forced,
                                       .problem = rule_problem};
    form_words *w = job->form;
    /* Whose form it is goes with whose cache it is. The length tells where the one begins. */
    const char *extra_key = job->extra_key ? job->extra_key : "";
    char space[ENGINE_MAX_NAMESPACE_BYTES + 16];
    snprintf(space, sizeof space, "%zu\n%s%s", strlen(extra_key), extra_key,
             job->cache_salt ? job->cache_salt : "");
    rad_status status = compile(e, w, space, err);
    if (status != RAD_OK) return status;
    answer_rule *a = rad_alloc(&e->env, sizeof *a);
    if (!a) return rad_fail(err, RAD_E_NOMEM, "no memory for a request");
    status = grammar_rule_init(&a->form, w->compiled, err);
    if (status != RAD_OK) {
        answer_rule_destroy(e, &a->rule);
        return status;
    }
    a->rule.ops = &ops;
    a->vocab_size = e->info.vocab_size;
    a->end_ids = e->end_ids;
    a->num_end_ids = e->num_end_ids;
    a->open = marker(e, job->think_open);
    a->close = marker(e, job->think_close);
    a->begins_inside = a->close >= 0 && (job->thinks ? !ends_in(job, job->think_close)
                                                     : ends_in(job, job->think_open));
    a->opened = UINT32_MAX;
    a->form_from = a->close < 0 ? 0 : UINT32_MAX;
    *out = &a->rule;
    return RAD_OK;
}

void answer_rule_destroy(engine *e, token_rule *rule)
{
    answer_rule *a = (answer_rule *)rule;
    if (!a) return;
    grammar_rule_fini(&a->form);
    rad_free(&e->env, a, sizeof *a);
}
