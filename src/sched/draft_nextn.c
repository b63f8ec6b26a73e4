/* draft_nextn.c - see the header.
 *
 * Rows of the request table are written where a guess has slots of its own, and put back where the
 * request's own stood there; what lies behind its committed tokens is nobody's yet. */
#include "sched/draft_nextn.h"

#include "sched/scheduler_impl.h"

#include <assert.h>

static_assert(NEXTN_PLACES * (NEXTN_LATE + 1) <= RUNNER_PLACES, "kept, and the head's own");

/* ---- places ---- */

static nextn_place *place_of(draft_nextn *d, const req *r)
{
    for (uint32_t i = 0; i < NEXTN_PLACES; i++)
        if (d->places[i].owner == r) return &d->places[i];
    return NULL;
}

/* Where what the model said at its i-th late position is kept. */
static uint32_t kept_in(const draft_nextn *d, const nextn_place *p, uint32_t i)
{
    return (uint32_t)(p - d->places) * NEXTN_LATE + i;
}

void draft_nextn_keep(scheduler *s, req *r, uint32_t row)
{
    draft_nextn *d = &s->draft_nextn;
    if (!d->runner) return;
    nextn_place *p = place_of(d, r);
    if (!p) p = place_of(d, NULL);
    if (!p) return;
    if (p->owner != r) *p = (nextn_place){.owner = r};
    p->behind = r->kv.committed_len;
    if (p->first_late == p->end_late || p->end_late == NEXTN_LATE) /* nobody wrote them: zeros */
        p->first_late = p->end_late = 0;
    d->runner->ops->keep_hidden(d->runner, row, kept_in(d, p, p->end_late));
    p->late[p->end_late++] = p->behind - 1;
}

void draft_nextn_release(scheduler *s, req *r)
{
    nextn_place *p = s->draft_nextn.runner ? place_of(&s->draft_nextn, r) : NULL;
    if (p) *p = (nextn_place){0};
}

/* Whether position `position` is in a slot of r's own. */
static bool owns(const req *r, uint32_t position)
{
    return position >= r->kv.protected_len;
}

/* Whether its guesses are kept often enough for it to be told of this step. */
static bool is_fed(scheduler *s)
{
    draft_nextn *d = &s->draft_nextn;
    uint32_t decodes = 0;
    if (s->drafts.at_any_price) return true;
    for (uint32_t i = 0; i < s->batch.num_reqs; i++)
        decodes += s->batch.reqs[i]->state == REQ_DECODE;
    d->in_vain += decodes && decodes < DRAFT_FULL;
    if (d->kept != s->stats.drafts.accepted[DRAFT_NEXTN]) d->in_vain = d->unfed = 0;
    d->kept = s->stats.drafts.accepted[DRAFT_NEXTN];
    if (d->in_vain < NEXTN_FED) return true;
    for (uint32_t i = 0; i < NEXTN_PLACES; i++) /* they stay zeros */
        d->places[i].first_late = d->places[i].end_late;
    if (d->in_vain < NEXTN_FED + RAD_MAX(d->unfed, (uint32_t)NEXTN_FED)) return false;
    d->in_vain = 0;
    d->unfed = RAD_MIN(2 * RAD_MAX(d->unfed, (uint32_t)NEXTN_FED), (uint32_t)NEXTN_UNFED_MOST);
    return true;
}

/* ---- passes ---- */

/* Arrays of a pass. */
typedef struct pass {
    uint32_t num_reqs;
    rad_token input_ids[DRAFT_FULL];
    uint32_t positions[DRAFT_FULL];
    rad_slot out_cache_loc[DRAFT_FULL];
    rad_row rows[DRAFT_FULL];
    uint32_t seq_lens[DRAFT_FULL], extend_lens[DRAFT_FULL], starts[DRAFT_FULL];
    uint32_t from[DRAFT_FULL], to[DRAFT_FULL];
} pass;

/* The entry of r's position goes to where its row says; what it is made of is in place `from`. */
static uint32_t add_entry(pass *p, const req *r, uint32_t position, rad_slot slot, uint32_t from)
{
    const uint32_t i = p->num_reqs++;
    p->input_ids[i] = r->fill_ids[position + 1];
    p->positions[i] = position;
    p->out_cache_loc[i] = slot;
    p->rows[i] = r->kv.row;
    p->seq_lens[i] = position + 1;
    p->extend_lens[i] = 1;
    p->starts[i] = i;
    p->from[i] = from;
    return i;
}

/* guesses: else entries are written, and that is all. False: the head is not asked again. */
static bool run(scheduler *s, const pass *p, bool guesses, const float **logits)
{
    draft_nextn *d = &s->draft_nextn;
    rad_error err = {0};
    const forward_batch batch = {.num_reqs = p->num_reqs,
                                 .num_tokens = p->num_reqs,
                                 .input_ids = p->input_ids,
                                 .positions = p->positions,
                                 .out_cache_loc = p->out_cache_loc,
                                 .req_pool_indices = p->rows,
                                 .seq_lens = p->seq_lens,
                                 .extend_prefix_lens = p->positions,
                                 .extend_seq_lens = p->extend_lens,
                                 .extend_start_loc = p->starts,
                                 .num_logits = guesses ? p->num_reqs : 0,
                                 .logits_indices = p->starts,
                                 .req_to_token_pool = s->pools.req_to_token_pool,
                                 .token_to_kv_pool = s->pools.token_to_kv_pool};
    const bool wanted = !d->runner->ops->sample;
    const rad_status status = d->runner->ops->guess(d->runner, &batch, p->from,
                                                    guesses ? p->to : NULL,
                                                    guesses && wanted ? logits : NULL, &err);
    if (status == RAD_OK) return true;
    rad_log(&s->env, RAD_LOG_ERROR,
            "scheduler: a pass of the head that guesses failed, it is not asked again: %s",
            err.text);
    d->failed = true;
    return false;
}

/* ---- entries ---- */

/* Entries of late positions, but for the last `but` of each place, that are in slots of its own;
 * others stay as they are. */
static void write_late(scheduler *s, uint32_t but)
{
    draft_nextn *d = &s->draft_nextn;
    pass p = {0};
    for (uint32_t i = 0; i < NEXTN_PLACES; i++) {
        nextn_place *place = &d->places[i];
        const req *r = place->owner;
        for (; r && place->first_late + but < place->end_late; place->first_late++) {
            const uint32_t position = place->late[place->first_late];
            if (!owns(r, position)) continue;
            const rad_slot *row = rad_req_to_token_row(s->pools.req_to_token_pool, r->kv.row);
            (void)add_entry(&p, r, position, row[position], kept_in(d, place, place->first_late));
            if (p.num_reqs < DRAFT_FULL) continue;
            if (!run(s, &p, false, NULL)) return;
            p.num_reqs = 0;
        }
    }
    if (p.num_reqs) (void)run(s, &p, false, NULL);
}

/* Whether there is no place for what the step's tokens leave. */
static bool late_is_full(const draft_nextn *d)
{
    for (uint32_t i = 0; i < NEXTN_PLACES; i++)
        if (d->places[i].owner && d->places[i].end_late == NEXTN_LATE &&
            d->places[i].first_late < NEXTN_LATE)
            return true;
    return false;
}

void draft_nextn_tell(scheduler *s)
{
    draft_nextn *d = &s->draft_nextn;
    const schedule_batch *b = &s->batch;
    bool any = false;
    if (!d->runner || d->failed || !s->drafts.most || !is_fed(s)) return;
    if (late_is_full(d)) write_late(s, 0);
    if (d->failed) return;
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        const req *r = b->reqs[i];
        const uint32_t end = b->seq_lens[i];
        d->next_ids[i] = end < req_num_fill(r) ? r->fill_ids[end] : -1;
        any |= d->next_ids[i] >= 0 || b->extend_seq_lens[i] > 1;
    }
    if (any) s->forward.next_ids = d->next_ids;
}

/* ---- guesses ---- */

/* One request in a prepare. */
typedef struct guess {
    draft_guessing *g;
    nextn_place *place;
    rad_slot *row;
    rad_slot own; /* of the last position that is committed, */
    bool moved;   /* whose entry goes to another meanwhile */
    uint32_t number;
} guess;

/* Those whose last token the model has just said. */
static uint32_t find_guesses(scheduler *s, req *const *reqs, uint32_t count, uint32_t room,
                             guess *all)
{
    draft_nextn *d = &s->draft_nextn;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count && n < RAD_MIN(d->num_scratch, (uint32_t)DRAFT_FULL); i++) {
        req *r = reqs[i];
        nextn_place *p = place_of(d, r);
        if (!p || r->state != REQ_DECODE || p->behind != r->kv.committed_len ||
            p->behind + 1 != req_num_fill(r))
            continue;
        const uint32_t left = r->max_new_tokens - r->num_output - 1; /* each brings one more */
        const uint32_t most = RAD_MIN(RAD_MIN(room, left), (uint32_t)DRAFT_MOST);
        if (!most || req_reserve(r, most + 1) != RAD_OK) continue;
        draft_guessing *g = &d->guessing[n];
        guessing_init(g, s, r, DRAFT_NEXTN, most);
        all[n] = (guess){.g = g,
                         .place = p,
                         .row = rad_req_to_token_row(s->pools.req_to_token_pool, r->kv.row),
                         .number = n};
        n++;
    }
    return n;
}

/* How many tokens each should guess; 0: it does not pay. */
static uint32_t afford(scheduler *s, draft_guessing *const *each, uint32_t count, uint32_t most)
{
    double saves;
    if (s->drafts.at_any_price) return most;
    const uint32_t n = guess_best_count(s, &s->draft_nextn.prices, each, count, most, &saves);
    for (uint32_t i = 0; i < count && !n; i++)
        draft_doubt(&s->drafts, each[i]->r, DRAFT_NEXTN, 0);
    return n;
}

/* The token that g's text ends with, and its entry at the position before. */
static void add(pass *p, const draft_nextn *d, guess *g, uint32_t most)
{
    const req *r = g->g->r;
    const uint32_t drafted = g->g->count, position = req_num_fill(r) - 2 + drafted;
    const uint32_t own = NEXTN_PLACES * NEXTN_LATE + g->number;
    const rad_slot scratch = (rad_slot)(d->first_scratch + g->number * most + drafted);
    if (!drafted) g->own = g->row[position], g->moved = !owns(r, position);
    if (drafted || g->moved) g->row[position] = scratch;
    const uint32_t from = drafted ? own : kept_in(d, g->place, g->place->end_late - 1);
    p->to[add_entry(p, r, position, g->row[position], from)] = own;
}

/* One token more for each of those that have not stopped. False: none was guessed. */
static bool guess_next(scheduler *s, guess *all, uint32_t count, uint32_t most)
{
    draft_nextn *d = &s->draft_nextn;
    const float *logits = NULL;
    const uint64_t start = s->env.now_ns(s->env.user);
    pass p = {0};
    guess_begin_pass(&d->chooser);
    for (uint32_t i = 0; i < count; i++)
        if (guess_add(&d->chooser, all[i].g)) add(&p, d, &all[i], most);
    if (!p.num_reqs || !run(s, &p, true, &logits)) return false;
    const bool chosen = guess_take(s, &d->chooser, logits);
    guess_passed(s, &d->prices, p.num_reqs, (double)(s->env.now_ns(s->env.user) - start));
    return chosen;
}

void draft_nextn_prepare(scheduler *s, req *const *reqs, uint32_t count, uint32_t room)
{
    draft_nextn *d = &s->draft_nextn;
    draft_guessing *each[DRAFT_FULL];
    guess all[DRAFT_FULL];
    if (!d->runner || d->failed) return;
    const uint32_t n = find_guesses(s, reqs, count, room, all);
    for (uint32_t i = 0; i < n; i++)
        each[i] = all[i].g;
    const uint32_t most = n ? afford(s, each, n, RAD_MIN(room, d->num_scratch / n)) : 0;
    if (!most) return;
    for (uint32_t i = 0; i < n; i++)
        each[i]->room = RAD_MIN(each[i]->room, most);
    write_late(s, 1);
    if (d->failed) return;
    guess_begin(each, n);
    while (guess_next(s, all, n, most))
        ;
    guess_end(each, n);
    for (uint32_t i = 0; i < n; i++) {
        nextn_place *p = all[i].place;
        if (all[i].moved) all[i].row[p->behind - 1] = all[i].own;
        if (all[i].moved || each[i]->count) p->first_late = p->end_late;
        guess_keep(&p->guess, each[i]);
    }
}

uint32_t draft_nextn_propose(scheduler *s, req *r, rad_token *out, uint32_t room, uint32_t *grade)
{
    const nextn_place *p = s->draft_nextn.runner ? place_of(&s->draft_nextn, r) : NULL;
    (void)grade;
    return p ? guess_propose(&p->guess, r, out, room) : 0;
}

/* ---- create and destroy ---- */

uint32_t draft_nextn_pages(const runner *model, uint32_t max_rows, uint32_t page_size)
{
    return model->info.nextn_layers ? (max_rows + page_size - 1) / page_size : 0;
}

rad_status draft_nextn_init(scheduler *s, rad_error *err)
{
    draft_nextn *d = &s->draft_nextn;
    const uint32_t max_reqs = s->params.max_running_requests;
    if (!(s->drafts.sources & draft_bit(DRAFT_NEXTN)) || !s->drafts.rows) return RAD_OK;
    d->runner = s->params.runner;
    d->first_scratch = (s->max_total_pages + 1) * s->pools.page_size;
    d->num_scratch = s->drafts.rows;
    d->next_ids = rad_alloc(&s->env, rad_mul(max_reqs, sizeof *d->next_ids));
    if (guess_chooser_init(&d->chooser, &s->env, d->runner, d->runner->info.vocab_size) == RAD_OK &&
        d->next_ids)
        return RAD_OK;
    return rad_fail(err, RAD_E_NOMEM, "scheduler: no memory for guesses of the model's head");
}

void draft_nextn_fini(scheduler *s)
{
    draft_nextn *d = &s->draft_nextn;
    const uint32_t max_reqs = s->params.max_running_requests;
    if (!d->runner) return;
    guess_chooser_fini(&d->chooser, &s->env);
    rad_free(&s->env, d->next_ids, max_reqs * sizeof *d->next_ids);
    *d = (draft_nextn){0};
}
