/* draft.c - whose guess, and how much of it is worth its rows.
 *
 * A step of D requests takes C and brings T = D tokens. A further row costs p, and brings a token
 * with the chance that all drafts up to it are right, a^k for the k-th. It pays as long as it
 * brings tokens at a better rate than the step does without it:
 *
 *     a^k / p > T / C        and then C += p, T += a^k
 *
 * C and p are measured (draft_price.h). What a source was right about in this request, and in all,
 * says a; and that is found out without a row: every source says its guess in every step, drafted
 * or not, and what is said then is compared with it. So a text that nobody can guess costs no rows.
 *
 * Prices are found by trying (draft_tries.h), so they are tried again now and then: after some steps
 * in which rows were too dear for some guess, one step has some all the same; each time that it was
 * in vain it takes longer. And now and then a step has none, so that its own cost is known. What
 * all of this may cost in vain is bounded (draft_budget.h). */
#include "sched/draft_plan.h"

enum {
    FIRST_ROWS = 2, /* that the first step with drafts has */
    PLAIN_EVERY = 64,
    ASK_EVERY = 8 /* steps, where rows would be too dear even for what is certain */
};
static const float KEEP = 0.95f, KEEP_OF_ALL = 0.998f, KEEP_DOUBTED = 0.98f;
static const float PRIOR_WEIGHT = 4, OTHERS_WEIGHT = 2;
static const float SURE = 0.95f; /* who is as good is believed without asking others */

void draft_release(scheduler *s, req *r)
{
    const uint64_t start = s->env.now_ns(s->env.user);
    for (draft_kind kind = 0; kind < DRAFT_KINDS; kind++) {
        const draft_source *source = draft_source_of(kind);
        r->draft.guesses[kind].count = 0;
        if (source && source->release) source->release(s, r);
    }
    r->draft.count = 0;
    s->stats.drafts.guess_ns += s->env.now_ns(s->env.user) - start;
}

/* ---- trust ---- */

float draft_chance(const drafter *d, const req *r, draft_kind kind, uint32_t grade)
{
    const draft_trust *all = &d->trust[kind][grade], *own = &r->draft.own[kind][grade];
    const float prior = draft_source_of(kind)->prior[grade];
    const float others = (all->right + PRIOR_WEIGHT * prior) /
                         (all->right + all->wrong + PRIOR_WEIGHT);
    return (own->right + OTHERS_WEIGHT * others) / (own->right + own->wrong + OTHERS_WEIGHT);
}

static void age(draft_trust *t, float keep)
{
    t->right *= keep;
    t->wrong *= keep;
}

static void add(draft_trust *t, float keep, uint32_t right, bool wrong)
{
    age(t, keep);
    t->right += (float)right;
    t->wrong += wrong;
}

void draft_doubt(drafter *d, req *r, draft_kind kind, uint32_t grade)
{
    age(&r->draft.own[kind][grade], KEEP_DOUBTED);
    age(&d->trust[kind][grade], 1 - (1 - KEEP_DOUBTED) / 8);
}

/* Of a guess `count` tokens were compared with what was said, and the first `right` of them were
 * the same. */
static void learn(drafter *d, req *r, draft_kind kind, uint32_t grade, uint32_t right,
                  uint32_t count)
{
    add(&r->draft.own[kind][grade], KEEP, right, right < count);
    add(&d->trust[kind][grade], KEEP_OF_ALL, right, right < count);
}

void draft_learn(drafter *d, req *r, uint32_t said)
{
    const rad_token *tokens = r->fill_ids + req_num_fill(r) - said;
    if (r->draft.count) {
        learn(d, r, r->draft.kind, r->draft.grade, said - 1, r->draft.count);
        r->draft.guesses[r->draft.kind].count = 0;
    }
    for (draft_kind kind = 0; kind < DRAFT_KINDS; kind++) {
        draft_guess *g = &r->draft.guesses[kind];
        const uint32_t count = RAD_MIN(g->count, said);
        uint32_t right = 0;
        while (right < count && g->ids[right] == tokens[right])
            right++;
        if (count) learn(d, r, kind, g->grade, right, count);
        g->count = 0;
    }
}

/* ---- guesses ---- */

/* What a source says of a request, as far as it can be; brings: how many tokens it is likely to. */
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
    draft_guess *guess = &r->draft.guesses[kind];
    rad_token ids[DRAFT_MOST];
    draft_offer offer = {.kind = kind};
    offer.count = source->propose(s, r, ids, room, &offer.grade);
    offer.count = possible(s, r, ids, RAD_MIN(offer.count, room));
    guess->count = (uint16_t)RAD_MIN(offer.count, (uint32_t)DRAFT_GUESS);
    guess->grade = (uint16_t)offer.grade;
    memcpy(guess->ids, ids, guess->count * sizeof *ids);
    if (!offer.count) return;
    offer.right = draft_chance(&s->drafts, r, kind, offer.grade);
    offer.brings = brings(offer.right, offer.count);
    if (offer.brings <= best->brings) return;
    *best = offer;
    memcpy(r->fill_ids + req_num_fill(r), ids, offer.count * sizeof *ids);
}

static bool is_on(const scheduler *s, draft_kind kind, bool prepared)
{
    return (s->drafts.sources & draft_bit(kind)) && !draft_source_of(kind)->prepare == !prepared;
}

/* Of all sources that have nothing to prepare. */
static draft_offer best_offer(scheduler *s, req *r, uint32_t room)
{
    draft_offer best = {0};
    for (draft_kind kind = 0; kind < DRAFT_KINDS; kind++) {
        if (!is_on(s, kind, false)) continue;
        ask(s, r, kind, room, &best);
        if (best.right > SURE && best.count == room) break;
    }
    return best;
}

/* ---- how many ---- */

/* A request of the step, and what is offered for it. */
typedef struct draft_seat {
    req *r;
    uint32_t room; /* tokens that there is a use for; also room behind its fill_ids */
    draft_offer offer;
} draft_seat;

/* What a step has left for drafts, and what it brings so far. */
typedef struct draft_room {
    uint64_t full_pages, window_pages, states;
    uint32_t rows;
    double ns, tokens;
} draft_room;

/* Whoever has a prompt in flight, or waits for a seat that is free, is not held up by guesses. */
static uint64_t states_for_others(const scheduler *s)
{
    const uint32_t seats = s->params.max_running_requests - s->num_running;
    uint64_t states = STATE_LEAST * (uint64_t)RAD_MIN(s->waiting.count, seats);
    for (uint32_t i = 0; i < s->num_running; i++)
        states += state_to_come(&s->pools.states, &s->running[i]->kv);
    return states;
}

/* Free ones; or so few that snapshots make room for them once, and what drafts give back stays
 * free until somebody leaves one: a pool that is full of snapshots keeps nearly all of them. */
static uint64_t states_for_drafts(const scheduler *s, uint64_t room)
{
    const rad_state_pool *pool = s->pools.states.pool;
    if (!pool) return room;
    const uint64_t others = states_for_others(s), available = rad_state_available(pool),
                   unused = available - RAD_MIN(available, others);
    return RAD_MIN(room - RAD_MIN(room, others),
                   RAD_MAX(unused, rad_state_pool_num_states(pool) / STATE_DRAFTS_SHARE));
}

static draft_room room_for_drafts(const scheduler *s, uint32_t num_decodes, uint64_t decode_pages)
{
    const drafter *d = &s->drafts;
    const kv_pages room = kv_room(&s->pools);
    draft_room left = {.full_pages = room.full - RAD_MIN(room.full, decode_pages),
                       .window_pages = room.window - RAD_MIN(room.window, decode_pages),
                       .states = states_for_drafts(s, room.states),
                       .rows = FIRST_ROWS,
                       .ns = d->price.step,
                       .tokens = num_decodes};
    /* Whoever runs may want a row, and of the rest half is for who comes. */
    const uint32_t logits = (s->batch.max_logits - s->num_running + 1) / 2;
    if (!d->price.guessed) left.rows = RAD_MAX(4 * d->most_planned, (uint32_t)FIRST_ROWS);
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
static uint32_t worth(const drafter *d, draft_room *left, const draft_seat *seat)
{
    const draft_offer *offer = &seat->offer;
    if (d->at_any_price) return offer->count;
    const uint32_t n = draft_price_pays(&d->price, req_num_fill(seat->r), offer->right,
                                        offer->count, &left->ns, &left->tokens);
    return n || !d->price.unsure || offer->right < DRAFT_LIKELY ? n : RAD_MIN(offer->count, 1u);
}

double draft_row_in_steps(const drafter *d, uint32_t positions)
{
    const double steps = draft_price_of_row(&d->price, positions) / d->price.step;
    return d->price.guessed ? BUDGET_ROW
           : d->price.unsure ? RAD_MIN(steps, BUDGET_ROW)
                             : steps;
}

void draft_spend(drafter *d, draft_kind kind, double steps)
{
    draft_budget_spend(&d->budget, steps);
    if (draft_source_of(kind)->prepare) draft_budget_spend(&d->computed, steps);
}

/* Some of what is offered, as many as pay and there is room for. False: there was a likely guess,
 * and a row is too dear for it. */
static bool plan(scheduler *s, draft_room *left, const draft_seat *seat)
{
    drafter *d = &s->drafts;
    req *r = seat->r;
    const uint32_t pay = worth(d, left, seat);
    const double steps = draft_row_in_steps(d, req_num_fill(r));
    uint32_t n = RAD_MIN(pay, left->rows);
    if (!d->at_any_price) n = draft_budget_rows(&d->budget, n, steps);
    while (n && !fits(s, left, r, n))
        n--;
    if (n) take(s, left, r, n);
    if (n && !d->at_any_price) draft_spend(d, seat->offer.kind, n * steps);
    d->tried_steps += n * steps;
    r->draft.count = n;
    r->draft.kind = seat->offer.kind;
    r->draft.grade = seat->offer.grade;
    return pay || seat->offer.right < DRAFT_LIKELY;
}

/* ---- a step ---- */

/* The requests that decode and say more than one token yet; returns how many. */
static uint32_t take_seats(scheduler *s, draft_seat *seats, double *pairs)
{
    uint32_t count = 0;
    *pairs = 0;
    for (uint32_t i = 0; i < s->num_running; i++) {
        req *r = s->running[i];
        if (r->state != REQ_DECODE) continue;
        *pairs += req_num_fill(r);
        /* Each brings one token, and one more. */
        const uint32_t room = RAD_MIN(s->drafts.most, r->max_new_tokens - r->num_output - 1);
        if (!room || req_reserve(r, room + 1) != RAD_OK) continue;
        seats[count++] = (draft_seat){.r = r, .room = room};
    }
    return count;
}

/* Of those who have something to compute first: for requests that they know more of than others, as
 * far as is known. */
static void ask_prepared(scheduler *s, draft_kind kind, draft_seat *seats, uint32_t count)
{
    const draft_source *source = draft_source_of(kind);
    drafter *d = &s->drafts;
    draft_seat *asked[DRAFT_FULL];
    req *reqs[DRAFT_FULL];
    uint32_t num_asked = 0, room = 0;
    for (uint32_t i = 0; i < count; i++) {
        draft_seat *seat = &seats[i];
        const float right = draft_chance(d, seat->r, kind, 0);
        if (brings(right, seat->room) <= seat->offer.brings && !d->at_any_price) continue;
        room = RAD_MAX(room, seat->room);
        seat->r->draft.offered = seat->offer.count;
        seat->r->draft.offered_right = seat->offer.right;
        asked[num_asked] = seat;
        reqs[num_asked++] = seat->r;
    }
    if (!num_asked) return;
    const uint64_t start = s->env.now_ns(s->env.user);
    source->prepare(s, reqs, num_asked, room);
    const uint64_t ns = s->env.now_ns(s->env.user) - start;
    d->prepare_ns += ns;
    s->stats.drafts.prepare_ns += ns;
    for (uint32_t i = 0; i < num_asked; i++)
        ask(s, asked[i]->r, kind, asked[i]->room, &asked[i]->offer);
}

/* Whether not even certain drafts would pay. Guesses are asked for every so many steps then, so
 * that what rows cost is tried again where there are any. */
static bool rows_are_too_dear(const drafter *d, uint32_t num_decodes, double pairs)
{
    const double row = draft_price_of_row(&d->price, pairs / num_decodes);
    return !d->at_any_price && !d->price.unsure &&
           d->price.step <= DRAFT_MARGIN * row * num_decodes;
}

/* The step has rows, or so many had a likely guess and none. */
static void note_refusal(drafter *d, uint32_t num_decodes, bool planned, uint32_t refused)
{
    draft_tries *row = draft_prices_row(&d->prices, num_decodes);
    if (planned) d->planned_at = d->steps;
    if (!planned)
        (void)draft_tries_refuse(row, refused);
    else if (row->refused)
        row->refused = 0;
    else
        draft_tries_accept(row);
}

/* Returns whether anybody was asked for a guess. */
static bool plan_step(scheduler *s, uint32_t num_decodes, uint64_t decode_pages)
{
    drafter *d = &s->drafts;
    draft_seat seats[DRAFT_FULL];
    double pairs;
    const uint32_t count = take_seats(s, seats, &pairs);
    const bool known = draft_prices_get(&d->prices, num_decodes, pairs, &d->price);
    const bool plain = !d->at_any_price && (!known || d->steps % PLAIN_EVERY == 0);
    const bool dear = known && rows_are_too_dear(d, num_decodes, pairs);
    const bool affordable = draft_budget_step(&d->budget) || d->at_any_price;
    draft_budget_spend(&d->computed, -BUDGET_SHARE);
    const bool ask_now = affordable && (!dear || d->steps % ASK_EVERY == 0);
    d->steps++;
    d->requests = num_decodes;
    d->apart = dear ? ASK_EVERY : 1;
    d->tried = 0;
    d->tried_steps = 0;
    for (uint32_t i = 0; i < count && ask_now; i++)
        seats[i].offer = best_offer(s, seats[i].r, seats[i].room);
    if (plain || !ask_now) return ask_now;
    for (draft_kind kind = 0; kind < DRAFT_KINDS; kind++)
        if (is_on(s, kind, true)) ask_prepared(s, kind, seats, count);
    draft_room left = room_for_drafts(s, num_decodes, decode_pages);
    const uint32_t rows = left.rows;
    bool refused = false;
    for (uint32_t i = 0; i < count; i++) /* in turn the first */
        if (!plan(s, &left, &seats[(i + d->steps) % count])) refused = true;
    const uint32_t planned = rows - left.rows;
    note_refusal(d, num_decodes, planned > 0, refused ? d->apart : 0);
    d->most_planned = RAD_MAX(d->most_planned, planned);
    if (d->price.unsure && !d->at_any_price) d->tried = planned;
    return true;
}

void draft_plan(scheduler *s, uint32_t num_decodes, uint64_t decode_pages)
{
    drafter *d = &s->drafts;
    if (!d->most || !num_decodes || num_decodes >= DRAFT_FULL) return;
    const uint64_t start = s->env.now_ns(s->env.user), prepare_ns = d->prepare_ns;
    const bool asked = plan_step(s, num_decodes, decode_pages);
    const uint64_t ns = s->env.now_ns(s->env.user) - start - (d->prepare_ns - prepare_ns);
    s->stats.drafts.guess_ns += ns;
    if (asked && d->price.step > 0) draft_budget_asked(&d->budget, (double)ns / d->price.step);
}

void draft_observe(drafter *d, const step_work *work, double ns)
{
    if (work->prompt_tokens) return;
    draft_prices_observe(&d->prices, work, ns);
    if (!d->tried) return;
    draft_tries *row = draft_prices_row(&d->prices, work->num_decodes);
    const double owed = draft_tries_owe(row, d->tried, d->tried_steps, d->price.step);
    draft_budget_spend(&d->budget, RAD_MIN(owed, BUDGET_MOST));
    d->tried = 0;
}
