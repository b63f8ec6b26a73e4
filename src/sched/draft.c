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
    TRY_AGAIN = 256 /* steps */
};
static const float KEEP = 0.9f, KEEP_OF_ALL = 0.998f, AGE = 0.98f;
static const float PRIOR_WEIGHT = 4, OTHERS_WEIGHT = 2;
static const float SURE = 0.95f;  /* who is as good is believed without asking others */
static const double MARGIN = 1.1; /* prices are noisy, and what is lost is the users' */

void draft_release(scheduler *s, req *r)
{
    for (draft_kind kind = 0; kind < DRAFT_KINDS; kind++) {
        const draft_source *source = draft_source_of(kind);
        if (source && source->release) source->release(s, r);
    }
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

/* Each token of a guess of this grade is right, if those before it were, with this chance. */
static float chance(const drafter *d, const req *r, draft_kind kind, uint32_t grade)
{
    const draft_trust *all = &d->trust[kind][grade], *own = &r->draft.own[kind][grade];
    const float others = (all->right + PRIOR_WEIGHT * draft_source_of(kind)->prior) /
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
    draft_trust *all = &d->trust[r->draft.kind][r->draft.grade];
    draft_trust *own = &r->draft.own[r->draft.kind][r->draft.grade];
    age(all, KEEP_OF_ALL);
    age(own, KEEP);
    add(all, proposed, accepted);
    add(own, proposed, accepted);
}

/* ---- proposals ---- */

/* What a source says of a request, as far as it can be; best: how many tokens it is likely to
 * bring. */
typedef struct draft_offer {
    uint32_t count, kind, grade;
    float right, brings;
} draft_offer;

static float brings(float right, uint32_t count)
{
    float likely = 1, sum = 0;
    for (uint32_t k = 0; k < count; k++)
        sum += likely *= right;
    return sum;
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

/* Asks one source, and leaves the better one of its guess and `best` behind r's fill_ids. */
static void ask(scheduler *s, req *r, draft_kind kind, uint32_t room, draft_offer *best)
{
    const draft_source *source = draft_source_of(kind);
    rad_token ids[DRAFT_MOST];
    draft_offer offer = {.kind = kind};
    offer.count = source->propose(s, r, ids, room, &offer.grade);
    offer.count = possible(s, r, ids, RAD_MIN(offer.count, room));
    if (!offer.count) return;
    offer.right = chance(&s->drafts, r, kind, offer.grade);
    offer.brings = brings(offer.right, offer.count);
    if (offer.brings <= best->brings) return;
    *best = offer;
    memcpy(r->fill_ids + req_num_fill(r), ids, offer.count * sizeof *ids);
}

/* The table's sources; room: in fill_ids, too. */
static draft_offer best_offer(scheduler *s, req *r, uint32_t room)
{
    draft_offer best = {0};
    for (draft_kind kind = 0; kind < DRAFT_KINDS; kind++) {
        if (!(s->drafts.sources & draft_bit(kind))) continue;
        ask(s, r, kind, room, &best);
        if (best.right > SURE && best.count == room) break;
    }
    return best;
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

/* How many of the offered drafts pay. */
static uint32_t worth(scheduler *s, draft_room *left, req *r, const draft_offer *offer)
{
    drafter *d = &s->drafts;
    const double price = left->price, right = offer->right;
    double likely = right;
    uint32_t n = 0;
    if (d->at_any_price) return offer->count;
    for (; n < offer->count && likely * left->ns > MARGIN * price * left->tokens; n++) {
        left->ns += price;
        left->tokens += likely;
        likely *= right;
    }
    if (n || !offer->count) return n;
    age(&r->draft.own[offer->kind][offer->grade], AGE);
    age(&d->trust[offer->kind][offer->grade], 1 - (1 - AGE) / 8);
    return 0;
}

static void plan(scheduler *s, draft_room *left, req *r)
{
    drafter *d = &s->drafts;
    uint32_t most = RAD_MIN(d->most, left->rows);
    most = RAD_MIN(most, r->max_new_tokens - r->num_output - 1); /* each brings one, and one more */
    if (!most || req_reserve(r, most + 1) != RAD_OK) return;
    const draft_offer offer = best_offer(s, r, most);
    uint32_t n = worth(s, left, r, &offer);
    while (n && !fits(s, left, r, n))
        n--;
    if (!n) return;
    take(s, left, r, n);
    r->draft.count = n;
    r->draft.kind = offer.kind;
    r->draft.grade = offer.grade;
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
