/* draft.c - who guesses, and how much of it is worth its rows.
 *
 * A step of D requests takes C and brings T = D tokens. A further row costs p, and brings a token
 * with the chance that all drafts up to it are right, a^k for the k-th. It pays as long as it
 * brings tokens at a better rate than the step does without it:
 *
 *     a^k / p > T / C        and then C += p, T += a^k
 *
 * C and p are measured, for about as many requests. What a source was right about in this request,
 * and in all, says a. Both are found by trying, so both are tried again now and then: a proposal
 * that was not worth it ages what speaks against it, and after some hundred steps without drafts
 * what a row costs is forgotten, so that one step has some. And now and then a step has none, so
 * that its own cost is known. */
#include "sched/draft_plan.h"

enum {
    FIRST_ROWS = 4,  /* that the first step with drafts has */
    FIRST_PLAIN = 4, /* steps without, before it */
    PLAIN_EVERY = 32,
    MEAN_OF = 8,
    TRY_AGAIN = 256, /* steps */
    LONG_MATCH = 8   /* tokens */
};
static const float KEEP = 0.9f, KEEP_OF_ALL = 0.998f, AGE = 0.98f;
/* Before anything is known. */
static const float PRIOR[DRAFT_TRUSTS] = {0.9f, 0.6f, 0.6f, 0.4f, 0.75f};
static const float PRIOR_WEIGHT = 4, OTHERS_WEIGHT = 2;
static const double MARGIN = 1.1; /* prices are noisy, and what is lost is the users' */

const char *draft_kind_name(draft_kind kind)
{
    static const char *const names[DRAFT_KINDS] = {"forced", "given", "tree", "ngram"};
    return names[kind];
}

void draft_release(drafter *d, req *r)
{
    if (r->draft.ngrams) ngram_put_back(&d->ngrams, r->draft.ngrams);
    r->draft.ngrams = NULL;
    r->draft.count = 0;
}

/* ---- prices ---- */

/* Of the table's entries. */
static uint32_t price_of(uint32_t num_decodes)
{
    uint32_t i = 0;
    while (i + 1 < DRAFT_PRICES && num_decodes >> (i + 1))
        i++;
    return i;
}

/* The mean of the newest; one that was interrupted counts for no more than some others. */
static void follow(double *mean, uint32_t *count, double value)
{
    if (*count >= FIRST_PLAIN) value = RAD_MIN(value, 3 * *mean);
    *mean += (value - *mean) / RAD_MIN(++*count, (uint32_t)MEAN_OF);
}

void draft_observe(drafter *d, uint32_t num_decodes, uint32_t rows, double ns)
{
    if (!d->most || !num_decodes) return;
    draft_price *p = &d->prices[price_of(num_decodes)];
    if (!rows)
        follow(&p->step, &p->num_steps, ns);
    else if (p->num_steps)
        follow(&p->row, &p->num_rows, RAD_MAX(ns - p->step, 0) / rows);
}

/* ---- trust ---- */

static float chance(const drafter *d, const req *r)
{
    const uint32_t i = r->draft.trust;
    const draft_trust *all = &d->trust[i], *own = &r->draft.own[i];
    float others = (all->right + PRIOR_WEIGHT * PRIOR[i]) /
                   (all->right + all->wrong + PRIOR_WEIGHT);
    return (own->right + OTHERS_WEIGHT * others) / (own->right + own->wrong + OTHERS_WEIGHT);
}

static void age(draft_trust *t, float keep)
{
    t->right *= keep;
    t->wrong *= keep;
}

static void add(draft_trust *t, uint32_t proposed, uint32_t accepted)
{
    t->right += (float)accepted;
    t->wrong += accepted < proposed;
}

void draft_learn(drafter *d, req *r, uint32_t proposed, uint32_t accepted)
{
    draft_trust *all = &d->trust[r->draft.trust], *own = &r->draft.own[r->draft.trust];
    age(all, KEEP_OF_ALL);
    age(own, KEEP);
    add(all, proposed, accepted);
    add(own, proposed, accepted);
}

/* ---- proposals ---- */

static uint32_t propose_forced(scheduler *s, req *r, rad_token *out, uint32_t room)
{
    (void)s;
    if (!r->rule || !r->rule->ops->forced) return 0;
    return r->rule->ops->forced(r->rule, out, room);
}

static uint32_t propose_given(scheduler *s, req *r, rad_token *out, uint32_t room)
{
    const draft_source *given = &s->drafts.given;
    return given->propose ? given->propose(given->user, r, out, room) : 0;
}

/* Behind what the request holds of the tree only its own tokens are compared. */
static uint32_t propose_tree(scheduler *s, req *r, rad_token *out, uint32_t room)
{
    const rad_key key = req_key(r, req_num_fill(r));
    const rad_req_kv *kv = &r->kv;
    const uint32_t known = kv->lock.held ? kv->protected_len : 0;
    uint32_t count = 0;
    if (!s->drafts.tree) return 0;
    (void)rad_cache_continuation(s->pools.inner_cache, &key, known ? kv->lock.node : (rad_ref){0},
                                 known, out, room, &count);
    return count;
}

static uint32_t propose_ngram(scheduler *s, req *r, rad_token *out, uint32_t room)
{
    drafter *d = &s->drafts;
    uint32_t match;
    if (!d->ngram) return 0;
    if (!r->draft.ngrams) r->draft.ngrams = ngram_take(&d->ngrams, &s->env);
    if (!r->draft.ngrams) return 0;
    uint32_t n = ngram_propose(r->draft.ngrams, r->fill_ids, req_num_fill(r), out, room, &match);
    if (match >= LONG_MATCH) r->draft.trust = DRAFT_NGRAM_LONG;
    return n;
}

/* The table of sources; the first that has something is taken. */
static uint32_t propose(scheduler *s, req *r, rad_token *out, uint32_t room)
{
    static uint32_t (*const sources[DRAFT_KINDS])(scheduler *, req *, rad_token *, uint32_t) = {
        propose_forced, propose_given, propose_tree, propose_ngram};
    for (uint32_t kind = 0; kind < DRAFT_KINDS; kind++) {
        r->draft.kind = r->draft.trust = kind;
        uint32_t n = sources[kind](s, r, out, room);
        if (n) return RAD_MIN(n, room);
    }
    return 0;
}

static bool ends_answer(const scheduler *s, const req *r, rad_token token)
{
    if (!r->ignore_eos && is_end_token(s, token)) return true;
    for (uint32_t i = 0; i < r->num_stop_token_ids; i++)
        if (r->stop_token_ids[i] == token) return true;
    return false;
}

/* Of these drafts the first so many: tokens of the vocabulary that the request's rule allows one
 * behind the other, and behind which its answer goes on. What ends it needs no row. */
static uint32_t possible(const scheduler *s, req *r, const rad_token *drafts, uint32_t count)
{
    const uint32_t vocab_size = s->params.runner->info.vocab_size;
    token_rule *rule = r->rule;
    uint32_t n = 0, accepted = 0;
    for (; n < count; n++) {
        if (drafts[n] < 0 || (uint32_t)drafts[n] >= vocab_size || ends_answer(s, r, drafts[n]))
            break;
        if (!rule) continue;
        if (!rule->ops->accept(rule, drafts[n])) break;
        accepted++;
        if (rule->ops->has_ended(rule)) break;
    }
    if (accepted) rule->ops->roll_back(rule, accepted);
    return n;
}

/* ---- how many ---- */

/* What a step has left for drafts, and what it brings so far. */
typedef struct draft_room {
    uint64_t full_pages, window_pages, states;
    uint32_t rows;
    double ns, tokens, price;
} draft_room;

static draft_room room_for_drafts(const scheduler *s, uint32_t num_decodes, uint64_t decode_pages)
{
    const drafter *d = &s->drafts;
    const kv_pages room = kv_room(&s->pools);
    const draft_price *price = &d->prices[price_of(num_decodes)];
    draft_room left = {.full_pages = room.full - RAD_MIN(room.full, decode_pages),
                       .window_pages = room.window - RAD_MIN(room.window, decode_pages),
                       .states = room.states,
                       .rows = RAD_MAX(2 * d->most_planned, (uint32_t)FIRST_ROWS),
                       .ns = price->step,
                       .price = price->row,
                       .tokens = num_decodes};
    /* Whoever runs may want a row, and of the rest half is for who comes. */
    const uint32_t logits = (s->batch.max_logits - s->num_running + 1) / 2;
    if (d->at_any_price) left.rows = d->rows;
    left.rows = RAD_MIN(RAD_MIN(left.rows, d->rows), logits);
    return left;
}

/* Of either pool, more than the row of its newest token takes. */
static uint64_t pages_of(const scheduler *s, const req *r, uint32_t count)
{
    const uint32_t page_size = s->pools.page_size;
    return pages_for(r->kv.allocated_len, 1 + (uint64_t)count, page_size) -
           pages_for(r->kv.allocated_len, 1, page_size);
}

static bool fits(const scheduler *s, const draft_room *left, const req *r, uint32_t count)
{
    const uint64_t pages = pages_of(s, r, count);
    return pages <= left->full_pages && pages <= left->window_pages && count <= left->states;
}

static void take(const scheduler *s, draft_room *left, const req *r, uint32_t count)
{
    const uint64_t pages = pages_of(s, r, count);
    left->full_pages -= pages;
    left->window_pages -= pages;
    left->states -= count;
    left->rows -= count;
}

/* How many of `count` possible drafts pay. */
static uint32_t worth(scheduler *s, draft_room *left, req *r, uint32_t count)
{
    drafter *d = &s->drafts;
    const double price = left->price, right = chance(d, r);
    double likely = right;
    uint32_t n = 0;
    if (d->at_any_price) return count;
    for (; n < count && likely * left->ns > MARGIN * price * left->tokens; n++) {
        left->ns += price;
        left->tokens += likely;
        likely *= right;
    }
    if (n || !count) return n;
    age(&r->draft.own[r->draft.trust], AGE);
    age(&d->trust[r->draft.trust], 1 - (1 - AGE) / 8);
    return 0;
}

static void plan(scheduler *s, draft_room *left, req *r)
{
    drafter *d = &s->drafts;
    uint32_t most = RAD_MIN(d->most, left->rows);
    most = RAD_MIN(most, r->max_new_tokens - r->num_output - 1); /* each brings one, and one more */
    if (!most || req_reserve(r, most + 1) != RAD_OK) return;
    rad_token *drafts = r->fill_ids + req_num_fill(r);
    uint32_t n = propose(s, r, drafts, most);
    n = worth(s, left, r, possible(s, r, drafts, n));
    while (n && !fits(s, left, r, n))
        n--;
    if (!n) return;
    take(s, left, r, n);
    r->draft.count = n;
}

void draft_plan(scheduler *s, uint32_t num_decodes, uint64_t decode_pages)
{
    drafter *d = &s->drafts;
    if (!d->most || !num_decodes || num_decodes >= DRAFT_FULL) return;
    draft_price *p = &d->prices[price_of(num_decodes)];
    if (d->idle_steps >= TRY_AGAIN) { /* as if nothing were known of rows */
        d->idle_steps = p->num_rows = 0;
        p->row = 0;
    }
    draft_room left = room_for_drafts(s, num_decodes, decode_pages);
    const uint32_t rows = left.rows;
    const bool plain = p->num_steps < FIRST_PLAIN || d->steps % PLAIN_EVERY == 0;
    d->steps++;
    for (uint32_t i = 0; i < s->num_running && left.rows && (!plain || d->at_any_price); i++)
        if (s->running[i]->state == REQ_DECODE) plan(s, &left, s->running[i]);
    const uint32_t planned = rows - left.rows;
    d->idle_steps = planned ? 0 : d->idle_steps + 1;
    d->most_planned = RAD_MAX(d->most_planned, planned);
}
