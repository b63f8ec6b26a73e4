/* draft_model.c - guesses that are computed: see the header.
 *
 *     settle      what came true of the last guesses: scratch -> the request's slots, marked
 *     follow      what of a request's row is marked as its text already
 *     afford      how many tokens, for whom
 *     catch_up    one request's text, up to its newest token
 *     guess       t -> d1, d1 -> d2, ... for all at one time
 *
 *     fill_ids    | ........ known | behind | t | d1 | d2 | d3
 *     row         | own slots ............. | scratch ...            positions from t's on have no
 *                                                                    slot yet: the step takes them
 *
 * Marks are written when the forward pass behind them has succeeded. A request's slots are its own
 * from protected_len on; those before it may be another's, too, so they are computed for one
 * request at a time, and the marks are looked at again in between.
 *
 * What guesses save for each token (draft_guess.h) is what catching up is paid with. */
#include "sched/draft_model.h"

#include "base/mix64.h"
#include "sched/scheduler_impl.h"

enum {
    TOGETHER = 8,      /* tokens that are caught up with in the step that guesses */
    TELLS_PRICE = 32,  /* tokens of a text from which on its price is looked at */
    LEAST_BEHIND = 16, /* tokens that are caught up with in a step, whatever they cost */
    USUAL_CHUNK = 2048
};
static const double USUAL_ANSWER = 64, ITL_SHARE = 0.9;

/* One request in a prepare. */
typedef struct guess {
    draft_guessing *g;
    req *r; /* g's */
    draft_model_req *of;
    rad_slot *row;
} guess;

/* ---- marks ---- */

static uint64_t mark_behind(uint64_t mark, rad_token token)
{
    return mix64(mark + (uint32_t)token + 1);
}

static uint64_t mark_text(const draft_model *m, uint64_t mark, const char *text)
{
    const uint64_t hash = text ? hash_bytes(&m->key, text, strlen(text)) + 1 : 0;
    return mix64(mark ^ hash);
}

static uint64_t mark_namespace(const draft_model *m, const req *r)
{
    return mark_text(m, mark_text(m, m->key.flip, r->extra_key), r->cache_salt);
}

/* The K/V of position `known` are in its slot now. */
static void mark_known(draft_model *m, draft_model_req *of, const req *r, const rad_slot *row)
{
    of->mark = mark_behind(of->mark, r->fill_ids[of->known]);
    m->marks[row[of->known++]] = of->mark;
}

/* As far as somebody has computed this text into these slots before. */
static void follow(const draft_model *m, draft_model_req *of, const req *r, const rad_slot *row)
{
    if (!of->begun) *of = (draft_model_req){.begun = true, .mark = mark_namespace(m, r)};
    while (of->known < r->kv.committed_len) {
        const uint64_t mark = mark_behind(of->mark, r->fill_ids[of->known]);
        if (m->marks[row[of->known]] != mark) return;
        of->mark = mark;
        of->known++;
    }
}

/* ---- scratch ---- */

static rad_slot scratch_slot(const draft_model *m, uint32_t i)
{
    return (rad_slot)(m->num_slots + i);
}

static bool copy_slot(const draft_model *m, rad_slot from, rad_slot to)
{
    return (!m->kv_pool || rad_kv_pool_copy_slots(m->kv_pool, from, to, 1) == RAD_OK) &&
           (!m->window_kv_pool || rad_kv_pool_copy_slots(m->window_kv_pool, from, to, 1) == RAD_OK);
}

static void settle_req(draft_model *m, draft_model_req *of, const req *r, const rad_slot *row)
{
    for (uint32_t i = 0; i < of->computed; i++) {
        const uint32_t position = of->guess.at - 1 + i;
        if (position >= r->kv.committed_len || position != of->known ||
            (i && r->fill_ids[position] != of->guess.tokens[i - 1]) ||
            !copy_slot(m, scratch_slot(m, of->scratch + i), row[position]))
            break;
        mark_known(m, of, r, row);
    }
    of->computed = of->guess.count = 0;
}

/* Those that ended meanwhile have nothing computed (release). */
static void settle(scheduler *s)
{
    draft_model *m = &s->draft_model;
    for (uint32_t i = 0; i < m->num_pending; i++) {
        draft_model_req *of = &m->reqs[m->pending_rows[i]];
        if (of->computed)
            settle_req(m, of, m->pending[i],
                       rad_req_to_token_row(s->pools.req_to_token_pool, m->pending_rows[i]));
    }
    m->num_pending = 0;
}

/* ---- batches ---- */

static void begin_batch(draft_model *m)
{
    m->num_reqs = m->num_tokens = 0;
}

/* Positions [from, end) of its row, whose ids are fill_ids'; they have slots. */
static void add(draft_model *m, const guess *g, uint32_t from, uint32_t end)
{
    const uint32_t i = m->num_reqs++;
    RAD_ASSERT(i < DRAFT_FULL && m->num_tokens + (end - from) <= DRAFT_MODEL_TOKENS);
    m->rows[i] = g->r->kv.row;
    m->prefix_lens[i] = from;
    m->extend_lens[i] = end - from;
    m->seq_lens[i] = end;
    m->starts[i] = m->num_tokens;
    for (uint32_t p = from; p < end; p++) {
        m->input_ids[m->num_tokens] = g->r->fill_ids[p];
        m->positions[m->num_tokens] = p;
        m->out_cache_loc[m->num_tokens++] = g->row[p];
    }
    m->logits_indices[i] = m->num_tokens - 1;
}

/* False: the small model is not asked again. `logits`: a row for each request. */
static bool run(scheduler *s, bool wanted, const float **logits)
{
    draft_model *m = &s->draft_model;
    rad_error err = {0};
    const forward_batch batch = {
        .num_reqs = m->num_reqs,
        .num_tokens = m->num_tokens,
        .input_ids = m->input_ids,
        .positions = m->positions,
        .out_cache_loc = m->out_cache_loc,
        .req_pool_indices = m->rows,
        .seq_lens = m->seq_lens,
        .extend_prefix_lens = m->prefix_lens,
        .extend_seq_lens = m->extend_lens,
        .extend_start_loc = m->starts,
        .num_logits = wanted ? m->num_reqs : 0,
        .logits_indices = m->logits_indices,
        .req_to_token_pool = s->pools.req_to_token_pool,
        .token_to_kv_pool = m->kv_pool,
        .window_rows = m->window_kv_pool ? s->pools.req_to_token_pool : NULL,
        .window_kv_pool = m->window_kv_pool,
        .window_out_cache_loc = m->window_kv_pool ? m->out_cache_loc : NULL};
    const rad_status status =
        runner_forward(m->runner, &batch, m->runner->ops->sample ? NULL : logits, &err);
    if (status == RAD_OK) return true;
    rad_log(&s->env, RAD_LOG_ERROR,
            "scheduler: a step of the draft model failed, it is not asked again: %s", err.text);
    m->failed = true;
    return false;
}

/* ---- catching up ---- */

/* Whether so many tokens are behind, or other requests' slots are, that it has batches of its own.
 */
static bool is_behind(const guess *g)
{
    const uint32_t end = req_num_fill(g->r) - 1;
    return end - g->of->known > TOGETHER || g->of->known < RAD_MIN(end, g->r->kv.protected_len);
}

/* False: there is more to catch up with than this step has time for. */
static bool catch_up(scheduler *s, guess *g, uint32_t *budget)
{
    draft_model *m = &s->draft_model;
    const uint32_t end = req_num_fill(g->r) - 1;
    for (follow(m, g->of, g->r, g->row); is_behind(g); follow(m, g->of, g->r, g->row)) {
        const uint32_t from = g->of->known;
        const uint32_t count = RAD_MIN(RAD_MIN(end - from, *budget), (uint32_t)DRAFT_MODEL_TOKENS);
        if (!count) return false;
        const uint64_t start = s->env.now_ns(s->env.user);
        begin_batch(m);
        add(m, g, from, from + count);
        if (!run(s, false, NULL)) return false;
        if (count >= TELLS_PRICE)
            draft_tries_add(&m->token, (double)(s->env.now_ns(s->env.user) - start) / count);
        for (uint32_t i = 0; i < count; i++)
            mark_known(m, g->of, g->r, g->row);
        *budget -= count;
    }
    return true;
}

/* Tokens that may be caught up with before this step. */
static uint32_t budget_behind(const scheduler *s, double step_ns)
{
    const draft_model *m = &s->draft_model;
    const uint32_t chunk = s->params.chunked_prefill_size ? s->params.chunked_prefill_size
                                                          : (uint32_t)USUAL_CHUNK;
    if (!s->params.max_itl_ns || !m->token.count) return chunk;
    const double left = ITL_SHARE * (double)s->params.max_itl_ns - step_ns;
    const uint32_t fits = left > 0 ? (uint32_t)RAD_MIN(left / m->token.price, (double)chunk) : 0;
    return RAD_MAX(fits, (uint32_t)LEAST_BEHIND);
}

/* ---- what pays ---- */

/* That r is going to say, as others did. */
static double tokens_to_come(const draft_model *m, const req *r)
{
    const double said = r->num_output, left = r->max_new_tokens - r->num_output;
    const double usual = m->answer_tokens - said;
    return RAD_MIN(left, RAD_MAX(RAD_MAX(usual, said / 2), m->answer_tokens / 4));
}

static uint32_t best_count(scheduler *s, const guess *all, uint32_t count, uint32_t most,
                           double *saves)
{
    draft_guessing *each[DRAFT_FULL];
    for (uint32_t i = 0; i < count; i++)
        each[i] = all[i].g;
    return guess_best_count(s, &s->draft_model.steps, each, count, most, saves);
}

/* Leaves those for which it pays, and returns how many tokens. */
static uint32_t afford(scheduler *s, guess *all, uint32_t *count, uint32_t most)
{
    draft_model *m = &s->draft_model;
    double saves;
    uint32_t kept = 0;
    if (s->drafts.at_any_price) return most;
    if (!best_count(s, all, *count, most, &saves)) {
        for (uint32_t i = 0; i < *count; i++)
            draft_doubt(&s->drafts, all[i].r, DRAFT_MODEL, 0);
        return 0;
    }
    for (uint32_t i = 0; i < *count; i++) {
        const double behind = req_num_fill(all[i].r) - 1 - all[i].of->known;
        if (!is_behind(&all[i]) ||
            tokens_to_come(m, all[i].r) * saves > DRAFT_MARGIN * behind * m->token.price)
            all[kept++] = all[i];
    }
    *count = kept;
    return kept ? best_count(s, all, kept, most, &saves) : 0;
}

/* ---- guessing ---- */

/* One token more for each of those that have not stopped. False: none was guessed. */
static bool guess_next(scheduler *s, guess *all, uint32_t count)
{
    draft_model *m = &s->draft_model;
    guess *who[DRAFT_FULL];
    uint32_t n = 0;
    const float *logits = NULL;
    const uint64_t start = s->env.now_ns(s->env.user);
    begin_batch(m);
    guess_begin_pass(&m->chooser);
    for (uint32_t i = 0; i < count; i++) {
        guess *g = &all[i];
        const uint32_t drafted = g->g->count, last = req_num_fill(g->r) - 1 + drafted;
        if (!guess_add(&m->chooser, g->g)) continue;
        g->row[last] = scratch_slot(m, g->of->scratch + drafted);
        add(m, g, drafted ? last : g->of->known, last + 1);
        who[n++] = g;
    }
    if (!n || !run(s, true, &logits)) return false;
    (void)guess_take(s, &m->chooser, logits);
    guess_passed(s, &m->steps, n, (double)(s->env.now_ns(s->env.user) - start));
    for (uint32_t i = 0; i < n; i++) {
        while (who[i]->of->known < req_num_fill(who[i]->r) - 1)
            mark_known(m, who[i]->of, who[i]->r, who[i]->row);
        who[i]->of->computed++;
    }
    return true;
}

static void guess_all(scheduler *s, guess *all, uint32_t count, uint32_t most)
{
    draft_model *m = &s->draft_model;
    draft_guessing *each[DRAFT_FULL];
    for (uint32_t i = 0; i < count; i++) {
        each[i] = all[i].g;
        each[i]->room = RAD_MIN(each[i]->room, most);
        all[i].of->scratch = i * most;
        m->pending[i] = all[i].r;
        m->pending_rows[i] = all[i].r->kv.row;
    }
    m->num_pending = count;
    guess_begin(each, count);
    while (guess_next(s, all, count))
        ;
    guess_end(each, count);
    for (uint32_t i = 0; i < count; i++)
        guess_keep(&all[i].of->guess, each[i]);
}

/* ---- a step ---- */

/* Whether the small model can compute this text at all. */
static bool can_compute(const draft_model *m, draft_model_req *of, const req *r)
{
    const runner_info *info = &m->runner->info;
    if (of->never || req_num_fill(r) >= info->context_length) return false;
    const bool lacks_some = info->vocab_size < m->chooser.vocab_size;
    for (uint32_t i = of->known; i < req_num_fill(r) && lacks_some; i++)
        of->never |= (uint32_t)r->fill_ids[i] >= info->vocab_size;
    return !of->never;
}

static uint32_t find_guesses(scheduler *s, req *const *reqs, uint32_t count, uint32_t room,
                             guess *all)
{
    draft_model *m = &s->draft_model;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count && n < RAD_MIN(m->num_scratch, (uint32_t)DRAFT_FULL); i++) {
        req *r = reqs[i];
        draft_model_req *of = &m->reqs[r->kv.row];
        rad_slot *row = rad_req_to_token_row(s->pools.req_to_token_pool, r->kv.row);
        if (r->state != REQ_DECODE || r->kv.committed_len + 1 != req_num_fill(r)) continue;
        const uint32_t left = r->max_new_tokens - r->num_output - 1; /* each brings one more */
        follow(m, of, r, row);
        if (!left || !can_compute(m, of, r)) continue;
        const uint32_t most =
            RAD_MIN(RAD_MIN(room, left), m->runner->info.context_length - req_num_fill(r));
        if (req_reserve(r, most + 1) != RAD_OK) continue;
        guessing_init(&m->guessing[n], s, r, DRAFT_MODEL, RAD_MIN(most, (uint32_t)DRAFT_MOST));
        all[n] = (guess){.g = &m->guessing[n], .r = r, .of = of, .row = row};
        n++;
    }
    return n;
}

void draft_model_prepare(scheduler *s, req *const *reqs, uint32_t count, uint32_t room)
{
    draft_model *m = &s->draft_model;
    guess all[DRAFT_FULL];
    uint32_t num_ready = 0;
    if (!m->runner || m->failed) return;
    settle(s);
    /* Who waits is going to fill the step, and in a full one nothing is drafted. */
    if (s->num_running + s->waiting.count >= DRAFT_FULL && !s->drafts.at_any_price) return;
    uint32_t n = find_guesses(s, reqs, count, room, all);
    if (!n) return;
    const uint32_t most = afford(s, all, &n, RAD_MIN(room, m->num_scratch / n));
    uint32_t budget = budget_behind(s, s->drafts.price.step);
    for (uint32_t i = 0; most && i < n && !m->failed; i++)
        if (catch_up(s, &all[i], &budget)) all[num_ready++] = all[i];
    if (num_ready && !m->failed) guess_all(s, all, num_ready, most);
}

uint32_t draft_model_propose(scheduler *s, req *r, rad_token *out, uint32_t room, uint32_t *grade)
{
    const draft_model *m = &s->draft_model;
    (void)grade;
    return m->runner ? guess_propose(&m->reqs[r->kv.row].guess, r, out, room) : 0;
}

void draft_model_release(scheduler *s, req *r)
{
    draft_model *m = &s->draft_model;
    if (!m->runner || !r->kv.row) return;
    m->reqs[r->kv.row] = (draft_model_req){0};
    if (r->finish && r->num_output) m->answer_tokens += (r->num_output - m->answer_tokens) / 16;
}

/* ---- create and destroy ---- */

size_t draft_model_token_bytes(const runner_info *small)
{
    return runner_token_bytes(small, RUNNER_ALL_LAYERS) + sizeof(uint64_t);
}

static rad_status create_pools(draft_model *m, const rad_env *env, uint32_t num_pages,
                               uint32_t page_size, rad_error *err)
{
    const bool apart = runner_layers_differ(&m->runner->info);
    rad_status status = runner_create_pool(m->runner, env,
                                           apart ? RUNNER_FULL_LAYERS : RUNNER_ALL_LAYERS,
                                           num_pages, page_size, &m->kv_pool, err);
    if (status == RAD_OK && apart)
        status = runner_create_pool(m->runner, env, RUNNER_WINDOW_LAYERS, num_pages, page_size,
                                    &m->window_kv_pool, err);
    return status;
}

rad_status draft_model_init(scheduler *s, rad_error *err)
{
    draft_model *m = &s->draft_model;
    const rad_env *env = &s->env;
    runner *small = s->params.draft_runner;
    const uint32_t num_pages = s->max_total_pages, page_size = s->pools.page_size;
    const uint32_t max_rows = s->drafts.rows;
    if (!small) return RAD_OK;
    if (small->info.state_layers)
        return rad_fail(err, RAD_E_UNSUPPORTED,
                        "draft model: it has %u recurrent layers, whose states would have to be "
                        "kept beside the K/V; a model of attention layers alone is needed",
                        small->info.state_layers);
    const uint32_t scratch_pages = (max_rows + page_size - 1) / page_size;
    const uint64_t slots = ((uint64_t)num_pages + 1 + scratch_pages) * page_size;
    if (slots > INT32_MAX)
        return rad_fail(err, RAD_E_INVAL, "draft model: a pool of %u pages is too large",
                        num_pages);
    m->runner = small;
    m->num_slots = (num_pages + 1) * page_size;
    m->num_scratch = max_rows;
    m->num_rows = rad_req_to_token_num_rows(s->pools.req_to_token_pool);
    m->answer_tokens = USUAL_ANSWER;
    hash_key_init(&m->key, env);
    m->marks = rad_alloc(env, rad_mul(m->num_slots, sizeof *m->marks));
    m->reqs = rad_alloc(env, rad_mul(m->num_rows + 1, sizeof *m->reqs));
    if (guess_chooser_init(&m->chooser, env, small, s->params.runner->info.vocab_size) != RAD_OK ||
        !m->marks || !m->reqs)
        return rad_fail(err, RAD_E_NOMEM, "draft model: no memory for marks of %u slots",
                        m->num_slots);
    return create_pools(m, env, num_pages + scratch_pages, page_size, err);
}

void draft_model_fini(scheduler *s)
{
    draft_model *m = &s->draft_model;
    const rad_env *env = &s->env;
    if (!m->runner) return;
    rad_token_to_kv_pool_destroy(m->kv_pool);
    rad_token_to_kv_pool_destroy(m->window_kv_pool);
    rad_free(env, m->marks, m->num_slots * sizeof *m->marks);
    rad_free(env, m->reqs, (m->num_rows + 1) * sizeof *m->reqs);
    guess_chooser_fini(&m->chooser, env);
    *m = (draft_model){0};
}
