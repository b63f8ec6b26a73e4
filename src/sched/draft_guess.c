/* draft_guess.c - see the header. */
#include "sched/draft_guess.h"

#include "sched/scheduler_impl.h"

enum { FIRST_GUESSES = 2 /* before a pass's price is known */ };
static const double MOST_TIMES = 3; /* the price: so much of a pass is taken off the budget */

/* ---- prices ---- */

void guess_passed(scheduler *s, guess_prices *prices, uint32_t num_reqs, double ns)
{
    drafter *d = &s->drafts;
    draft_tries *pass = guess_price_of(prices, num_reqs);
    const bool sure = draft_tries_sure(pass);
    draft_tries_add(pass, ns);
    if (!(d->price.step > 0)) return;
    const double steps = sure ? RAD_MIN(ns, MOST_TIMES * pass->price) / d->price.step
                              : draft_tries_owe(pass, 1, 0, d->price.step);
    draft_budget_spend(&d->computed, RAD_MIN(steps, BUDGET_MOST));
}

draft_tries *guess_price_of(guess_prices *p, uint32_t num_reqs)
{
    return &p->of[draft_price_bucket(num_reqs)];
}

/* Whether so many tokens in so many ns are a better rate than a step with what others guess for the
 * same requests: that is there already. */
static bool beats_offers(const draft_price *price, draft_guessing *const *all, uint32_t count,
                         uint32_t num_decodes, double tokens, double ns)
{
    double other_ns = price->step, other_tokens = num_decodes;
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        const req_draft *d = &all[i]->r->draft;
        any |= draft_price_pays(price, req_num_fill(all[i]->r), d->offered_right, d->offered,
                                &other_ns, &other_tokens) > 0;
    }
    return !any || tokens * other_ns > DRAFT_MARGIN * other_tokens * ns;
}

/* For a pass, and for a row of what comes of it. */
static bool can_pay(const drafter *d, const req *r)
{
    return d->computed.left > 0 &&
           draft_budget_rows(&d->budget, 1, draft_row_in_steps(d, req_num_fill(r)));
}

/* It would not pay; of likely guesses that is looked at again. Whether to try all the same. */
static bool try_anyway(scheduler *s, draft_tries *pass, draft_guessing *const *all, uint32_t count)
{
    drafter *d = &s->drafts;
    float best = 0;
    for (uint32_t i = 0; i < count; i++)
        best = RAD_MAX(best, all[i]->chance);
    if (best < DRAFT_LIKELY) return false;
    if (draft_tries_refuse(pass, d->apart) && d->steps - d->planned_at > TRY_AGAIN)
        draft_prices_doubt_rows(&d->prices, d->requests);
    return !draft_tries_sure(pass) || d->price.unsure;
}

uint32_t guess_best_count(scheduler *s, guess_prices *prices, draft_guessing *const *all,
                          uint32_t count, uint32_t most, double *saves)
{
    const uint32_t num_decodes = s->drafts.requests;
    const draft_price *price = &s->drafts.price;
    draft_tries *pass = guess_price_of(prices, count);
    double cost = pass->price;
    double ns = price->step, tokens = num_decodes, likely[DRAFT_FULL];
    uint32_t n = 0;
    *saves = 0;
    if (!can_pay(&s->drafts, all[0]->r)) return 0;
    if (!pass->count || price->guessed) most = RAD_MIN(most, (uint32_t)FIRST_GUESSES);
    for (uint32_t i = 0; i < count; i++) {
        likely[i] = all[i]->chance;
        cost += draft_price_of_row(price, req_num_fill(all[i]->r));
    }
    for (; n < most; n++) {
        double more = 0;
        for (uint32_t i = 0; i < count; i++)
            if (n < all[i]->room) more += likely[i], likely[i] *= all[i]->chance;
        if (more * ns <= DRAFT_MARGIN * cost * tokens) break;
        ns += cost;
        tokens += more;
    }
    if (!n) return try_anyway(s, pass, all, count) ? RAD_MIN(most, 1u) : 0;
    if (!beats_offers(price, all, count, num_decodes, tokens, ns)) return 0;
    draft_tries_accept(pass);
    *saves = (price->step / num_decodes - ns / tokens) * num_decodes / RAD_MAX(count, 1u);
    return n;
}

/* ---- guesses ---- */

rad_status guess_chooser_init(guess_chooser *c, const rad_env *env, runner *guesser,
                              uint32_t vocab_size)
{
    const uint32_t own = guesser->info.vocab_size;
    c->runner = guesser;
    c->vocab_size = vocab_size;
    c->words = (RAD_MAX(own, vocab_size) + 31) / 32;
    c->bits = rad_alloc(env, rad_mul(DRAFT_FULL, c->words * sizeof *c->bits));
    if (!guesser->ops->sample) c->sample_scratch = rad_alloc(env, sampler_scratch_bytes(own));
    return c->bits && (guesser->ops->sample || c->sample_scratch) ? RAD_OK : RAD_E_NOMEM;
}

void guess_chooser_fini(guess_chooser *c, const rad_env *env)
{
    if (!c->runner) return;
    rad_free(env, c->bits, DRAFT_FULL * c->words * sizeof *c->bits);
    rad_free(env, c->sample_scratch, sampler_scratch_bytes(c->runner->info.vocab_size));
    *c = (guess_chooser){0};
}

void guessing_init(draft_guessing *g, const scheduler *s, req *r, draft_kind kind, uint32_t room)
{
    g->r = r;
    g->room = room;
    g->chance = draft_chance(&s->drafts, r, kind, 0);
    g->count = g->accepted = 0;
    g->stopped = false;
}

void guess_keep(guess_kept *kept, const draft_guessing *g)
{
    kept->at = req_num_fill(g->r);
    kept->count = g->count;
    memcpy(kept->tokens, g->tokens, g->count * sizeof *g->tokens);
}

uint32_t guess_propose(const guess_kept *kept, const req *r, rad_token *out, uint32_t room)
{
    const uint32_t count = kept->at == req_num_fill(r) ? RAD_MIN(kept->count, room) : 0;
    memcpy(out, kept->tokens, count * sizeof *out);
    return count;
}

void guess_begin(draft_guessing *const *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        memcpy(all[i]->tail, all[i]->r->fill_ids + req_num_fill(all[i]->r),
               all[i]->room * sizeof *all[i]->tail);
}

void guess_end(draft_guessing *const *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        draft_guessing *g = all[i];
        if (g->accepted) g->r->rule->ops->roll_back(g->r->rule, g->accepted);
        g->accepted = 0;
        memcpy(g->r->fill_ids + req_num_fill(g->r), g->tail, g->room * sizeof *g->tail);
    }
}

void guess_begin_pass(guess_chooser *c)
{
    c->count = 0;
}

/* How row i's token is chosen, behind g->count tokens more than the request has said. */
static runner_sample sample_of(guess_chooser *c, const draft_guessing *g, uint32_t i)
{
    const req *r = g->r;
    runner_sample sample = {.params = &r->sampling,
                            .output = r->fill_ids + r->num_input,
                            .num_output = r->num_output + g->count,
                            .position = req_num_fill(r) + g->count};
    if (c->runner->info.vocab_size >= c->vocab_size) return sample;
    c->plain[i] = r->sampling; /* tokens that it names may not be the runner's */
    c->plain[i].bias = NULL;
    c->plain[i].end_ids = NULL;
    c->plain[i].num_bias = c->plain[i].num_end_ids = 0;
    sample.params = &c->plain[i];
    return sample;
}

/* The bits of what its rule allows; false: nothing. *bits is NULL where it allows all. */
static bool allowed(const guess_chooser *c, const draft_guessing *g, uint32_t i,
                    const uint32_t **bits)
{
    token_rule *rule = g->r->rule;
    uint32_t *own = c->bits + (size_t)i * c->words;
    *bits = NULL;
    if (!rule) return true;
    const token_mask mask = rule->ops->mask(rule, own);
    if (mask == TOKEN_MASK_SOME) *bits = own;
    return mask != TOKEN_MASK_NONE;
}

bool guess_add(guess_chooser *c, draft_guessing *g)
{
    const uint32_t *bits;
    if (g->stopped) return false;
    g->stopped = !allowed(c, g, c->count, &bits);
    if (g->stopped) return false;
    c->samples[c->count] = sample_of(c, g, c->count);
    c->samples[c->count].allowed = bits;
    c->who[c->count++] = g;
    return true;
}

static bool choose(guess_chooser *c, const float *logits)
{
    const uint32_t vocab_size = c->runner->info.vocab_size;
    if (c->runner->ops->sample)
        return c->runner->ops->sample(c->runner, c->samples, c->count, c->next, NULL) == RAD_OK;
    for (uint32_t i = 0; i < c->count; i++) {
        const runner_sample *a = &c->samples[i];
        c->next[i] = sampler_next(logits + (size_t)i * vocab_size, vocab_size, a->params, a->output,
                                  a->num_output, a->position, a->allowed, c->sample_scratch);
    }
    return true;
}

static void take_token(const scheduler *s, const guess_chooser *c, draft_guessing *g,
                       rad_token token)
{
    req *r = g->r;
    token_rule *rule = r->rule;
    g->stopped = true;
    if (token < 0 || (uint32_t)token >= c->vocab_size) return;
    if (!r->ignore_eos && is_end_token(s, token)) return; /* what ends it needs no row */
    if (rule && !rule->ops->accept(rule, token)) return;
    g->accepted += rule != NULL;
    r->fill_ids[req_num_fill(r) + g->count] = token;
    g->tokens[g->count++] = token;
    g->stopped = (uint32_t)token >= c->runner->info.vocab_size || g->count == g->room ||
                 (rule && rule->ops->has_ended(rule));
}

bool guess_take(scheduler *s, guess_chooser *c, const float *logits)
{
    const bool chosen = choose(c, logits);
    for (uint32_t i = 0; i < c->count; i++) {
        if (chosen)
            take_token(s, c, c->who[i], c->next[i]);
        else
            c->who[i]->stopped = true;
    }
    return chosen;
}
