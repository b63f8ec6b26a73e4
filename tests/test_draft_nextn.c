/* test_draft_nextn.c - a scheduler whose model has a head that guesses: answers are those without
 * it; how often it is right, also behind prefixes that others began; how much it is asked and fed,
 * on a clock that only a script moves; what becomes of one that fails. */
#include "nextn_models.h"
#include "test.h"

#include "model/model_runner.h"
#include "sched/scheduler_impl.h"

enum { VOCAB = NEXTN_VOCAB, CONTEXT = 400, MOST_REQS = 40, MOST_NEW = 200 };

static const tiny_model latent = {NEXTN_LATENT, .context = CONTEXT, .nextn_knows = true};
static const tiny_model hybrid = {
    NEXTN_HYBRID, .layers = 2, .context = CONTEXT, .nextn_knows = true};
/* Its entries are made of what the model says, too; those above of the next token alone. */
static const tiny_model ignorant = {NEXTN_HYBRID, .layers = 2, .context = CONTEXT};

typedef struct answer {
    req r;
    uint32_t count;
    rad_token said[MOST_NEW];
} answer;

typedef struct rig {
    tiny_writer writer;
    runner *model;
    const runner_ops *real;
    runner_ops ops;
    scheduler *s;
    answer answers[MOST_REQS];
    uint32_t ended;

    test_env clock;
    double step_ns, row_ns, guess_ns; /* 0: the clock is the system's */
    uint32_t permille;                /* so often the head says what it holds for least likely */
    uint64_t rng;
    const rad_token (*known)[MOST_NEW]; /* of requests' answers, by seed: somebody guesses them, */
    uint32_t known_wrong;               /* wrong so often; NULL: nobody does */
    uint32_t fails_at;                /* its pass; 0: none */
    uint32_t guesses, told, late, forwards; /* late: entries were written, of some steps at once */
} rig;

static rig *now_running;

static rad_status counted_forward(runner *self, const forward_batch *b, const float **logits,
                                  rad_error *err)
{
    rig *g = now_running;
    g->forwards++;
    g->told += b->next_ids != NULL;
    g->clock.now += (uint64_t)(g->step_ns + g->row_ns * (b->num_tokens - 1.0));
    return g->real->forward(self, b, logits, err);
}

static rad_status counted_guess(runner *self, const forward_batch *b, const uint32_t *from,
                                const uint32_t *to, const float **logits, rad_error *err)
{
    rig *g = now_running;
    const float *all;
    g->late += !b->num_logits;
    if (!b->num_logits) return g->real->guess(self, b, from, to, logits, err);
    g->clock.now += (uint64_t)g->guess_ns;
    if (++g->guesses == g->fails_at) return rad_fail(err, RAD_E_IO, "a test's failure");
    const rad_status status = g->real->guess(self, b, from, to, &all, err);
    for (uint32_t i = 0; status == RAD_OK && i < b->num_reqs; i++) {
        const bool wrong = g->permille && test_random(&g->rng) % 1000 < g->permille;
        for (uint32_t k = i * VOCAB; wrong && k < (i + 1) * VOCAB; k++)
            ((float *)all)[k] = -all[k];
    }
    if (logits) *logits = all;
    return status;
}

static void on_output(void *user, const req_output *outputs, uint32_t count)
{
    rig *g = user;
    for (uint32_t i = 0; i < count; i++) {
        answer *a = outputs[i].req->user;
        CHECK(outputs[i].finish != REQ_FINISH_ERROR);
        if (outputs[i].token >= 0) a->said[a->count++] = outputs[i].token;
        g->ended += outputs[i].finish != REQ_FINISH_NONE;
    }
}

enum { WRONG_FIRST = 40 }; /* tokens of an answer that nobody knows well */

static uint32_t propose_known(void *user, const req *r, rad_token *out, uint32_t room)
{
    rig *g = user;
    for (uint32_t i = 0; i < room; i++) {
        const uint32_t at = r->num_output + i;
        const bool wrong = test_random(&g->rng) % 1000 < (at < WRONG_FIRST ? 950 : g->known_wrong);
        out[i] = (g->known[r->sampling.seed][at] + wrong) % VOCAB;
    }
    return room;
}

static scheduler_params params_of(rig *g, uint32_t page_size)
{
    return (scheduler_params){.runner = g->model,
                              .page_size = page_size,
                              .max_total_tokens = 32 * CONTEXT,
                              .max_running_requests = MOST_REQS,
                              .max_queued_requests = MOST_REQS,
                              .chunked_prefill_size = 64,
                              .context_length = CONTEXT,
                              .max_draft_tokens = 4,
                              .draft_sources = draft_bit(DRAFT_NEXTN),
                              .on_output = on_output,
                              .user = g};
}

static rig *open_rig(const tiny_model *m)
{
    rig *g = calloc(1, sizeof *g);
    uint64_t state = 4;
    gguf_file *file = tiny_model_open(&g->writer, m, &state);
    const model_runner_params params = {.dtype = RAD_F32,
                                        .max_batch_tokens = 1024,
                                        .max_batch_logits = 256,
                                        .num_threads = 1,
                                        .nextn = true};
    CHECK_OK(model_runner_create(NULL, file, &params, &g->model, NULL));
    gguf_close(file);
    g->real = g->model->ops;
    g->ops = *g->real;
    g->ops.forward = counted_forward;
    g->ops.guess = counted_guess;
    g->model->ops = &g->ops;
    now_running = g;
    return g;
}

static void close_rig(rig *g)
{
    runner_destroy(g->model);
    tiny_model_fini(&g->writer);
    free(g);
}

static void start(rig *g, uint32_t page_size, bool with)
{
    scheduler_params p = params_of(g, page_size);
    if (!with && !g->known) p.max_draft_tokens = 0;
    if (!with) p.draft_sources = 0;
    if (g->known) p.draft_given = (draft_guesser){propose_known, g};
    const rad_env env = test_env_init(&g->clock);
    CHECK_OK(scheduler_create(g->step_ns > 0 ? &env : NULL, &p, &g->s, NULL));
    g->s->drafts.at_any_price = !(g->step_ns > 0);
    g->guesses = g->told = g->late = g->forwards = 0;
}

/* Texts that begin alike for `shared` tokens. */
static void prompt(rad_token *ids, uint32_t n, uint32_t shared, uint64_t own)
{
    uint64_t state = 7;
    for (uint32_t i = 0; i < n; i++) {
        if (i == shared) state = own * 1000003;
        ids[i] = (rad_token)(test_random(&state) % VOCAB);
    }
}

static void add(rig *g, uint32_t i, const rad_token *ids, uint32_t n, uint32_t num_new)
{
    answer *a = &g->answers[i];
    const req_params p = {.ids = ids,
                          .num_ids = n,
                          .max_new_tokens = num_new,
                          .sampling = {.top_p = 1, .seed = i},
                          .user = a};
    *a = (answer){0};
    CHECK_OK(req_init(&a->r, NULL, &p, NULL));
    CHECK_OK(scheduler_add(g->s, &a->r, NULL));
}

static void finish(rig *g, uint32_t count)
{
    for (g->ended = 0; g->ended < count;)
        scheduler_step(g->s);
    CHECK_OK(scheduler_check(g->s, NULL));
    for (uint32_t i = 0; i < count; i++)
        req_fini(&g->answers[i].r);
}

static double share_right(const draft_stats *a, const draft_stats *b)
{
    return (double)(b->accepted[DRAFT_NEXTN] - a->accepted[DRAFT_NEXTN]) /
           (double)(b->proposed[DRAFT_NEXTN] - a->proposed[DRAFT_NEXTN]);
}

/* Prompts of which all is computed, and then such as begin like them and go on with another token:
 * there the entry at the border is of the other one's. */
TEST(a_prefix_that_another_began_costs_few_guesses)
{
    enum { PROMPTS = 20, LENGTH = 100, NEW = 40 };
    static rad_token without[2][PROMPTS][NEW];
    rig *g = open_rig(&latent);
    for (uint32_t page_size = 1; page_size <= 16; page_size += 15) {
        double right[2] = {0, 0};
        for (int with = 0; with < 2; with++) {
            start(g, page_size, with);
            for (int again = 0; again < 2; again++) { /* first all cold, then all behind those */
                scheduler_stats before, after;
                scheduler_get_stats(g->s, &before);
                for (uint32_t i = 0; i < PROMPTS; i++) {
                    rad_token ids[LENGTH];
                    prompt(ids, LENGTH, 0, i + 1);
                    if (again)
                        for (uint32_t k = LENGTH - 3 - i % 7; k < LENGTH; k++)
                            ids[k] = (ids[k] + 1 + (rad_token)i % 5) % VOCAB;
                    add(g, 0, ids, LENGTH, NEW);
                    finish(g, 1);
                    if (with)
                        CHECK(!memcmp(without[again][i], g->answers[0].said, sizeof without[0][0]));
                    memcpy(without[again][i], g->answers[0].said, sizeof without[0][0]);
                }
                scheduler_get_stats(g->s, &after);
                if (with) right[again] = share_right(&before.drafts, &after.drafts);
                CHECK(!again || after.cached_tokens > before.cached_tokens);
            }
            scheduler_destroy(g->s);
        }
        print_message("pages of %u: cold %.1f%% right, behind others' prefixes %.1f%%\n", page_size,
                      100 * right[0], 100 * right[1]);
        CHECK(right[0] > 0.5 && right[1] > right[0] - 0.1);
    }
    close_rig(g);
}

/* What a request that decodes has of its own and of the tree, as it was before its last step. */
typedef struct held {
    uint32_t count;
    rad_slot slots[CONTEXT];
    bool late[CONTEXT]; /* nobody has written these entries yet */
} held;

static void note_held(const rig *g, const req *r, held *h)
{
    h->count = r->kv.committed_len;
    memcpy(h->slots, rad_req_to_token_row(g->s->pools.req_to_token_pool, r->kv.row),
           h->count * sizeof *h->slots);
    memset(h->late, 0, sizeof h->late);
    h->late[h->count - 1] = true;
    for (uint32_t i = 0; i < NEXTN_PLACES; i++) {
        const nextn_place *p = &g->s->draft_nextn.places[i];
        for (uint32_t k = p->first_late; p->owner == r && k < p->end_late; k++)
            h->late[p->late[k]] = true;
    }
}

static float *entries_in(const rig *g, const held *h)
{
    const runner_info *info = &g->model->info;
    float *k = calloc(h->count, info->num_kv_heads * info->head_dim * sizeof *k);
    CHECK_OK(rad_kv_pool_get_kv(g->s->pools.token_to_kv_pool, info->num_layers - 1, h->slots,
                                h->count, k, NULL));
    return k;
}

/* Until all but their last step is done: what each has then. */
static void finish_held(rig *g, uint32_t count, uint32_t asked, held *all)
{
    for (g->ended = 0; g->ended < count;) {
        const bool now = test_random(&g->rng) % 100 < asked;
        g->s->drafts.computed.left = now ? 1 : -1;
        for (uint32_t i = 0; i < count; i++)
            if (g->answers[i].r.state == REQ_DECODE) note_held(g, &g->answers[i].r, &all[i]);
        scheduler_step(g->s);
    }
    CHECK_OK(scheduler_check(g->s, NULL));
}

/* Whether the head is asked never, now and then or always, and whoever else guesses, and is wrong:
 * what an answer leaves in the pool is what it would have left as a prompt, but for what is late
 * and for the end of what the prompt published before the answer began. */
TEST(entries_of_an_answer_are_those_of_a_prompt)
{
    enum { AT_ONCE = 3, LENGTH = 30 };
    static const uint32_t asked[] = {0, 0, 30, 100, 30};
    static rad_token known[AT_ONCE][MOST_NEW];
    rig *g = open_rig(&ignorant);
    const size_t width = g->model->info.num_kv_heads * g->model->info.head_dim;
    g->rng = test_told_seed();
    g->step_ns = 4e6, g->row_ns = 2e5, g->guess_ns = 8e5;
    for (uint32_t page_size = 1; page_size <= 16; page_size += 15)
        for (size_t how = 0; how < RAD_COUNT(asked); how++) {
            static held answers[AT_ONCE], cold;
            float *k[AT_ONCE];
            uint32_t late = 0;
            g->known = how == 1 || how == 4 ? known : NULL, g->known_wrong = 300;
            start(g, page_size, true);
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                rad_token ids[LENGTH];
                prompt(ids, LENGTH, 0, i + 1);
                add(g, i, ids, LENGTH, 60 + 40 * i);
            }
            finish_held(g, AT_ONCE, asked[how], answers);
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                memcpy(known[i], g->answers[i].said, sizeof known[i]);
                k[i] = entries_in(g, &answers[i]);
                req_fini(&g->answers[i].r);
            }
            CHECK(asked[how] || (!g->guesses && g->late));
            scheduler_destroy(g->s);
            for (uint32_t i = 0; i < AT_ONCE; i++) {
                rad_token ids[CONTEXT];
                const uint32_t num = LENGTH + g->answers[i].count;
                prompt(ids, LENGTH, 0, i + 1);
                memcpy(ids + LENGTH, known[i], g->answers[i].count * sizeof *ids);
                start(g, page_size, true);
                add(g, 0, ids, num, 3);
                finish_held(g, 1, 0, &cold);
                req_fini(&g->answers[0].r);
                float *want = entries_in(g, &cold);
                for (uint32_t t = 0; t < answers[i].count; t++) {
                    const bool border = page_size == 1 && t == LENGTH - 1;
                    late += answers[i].late[t];
                    CHECKF(answers[i].late[t] || border == !!memcmp(k[i] + t * width,
                                                                   want + t * width,
                                                                   width * sizeof *want),
                           "pages of %u, how %zu: entry %u of %u\n", page_size, how, t,
                           answers[i].count);
                }
                CHECK(late <= AT_ONCE * NEXTN_LATE);
                scheduler_destroy(g->s);
                free(want);
                free(k[i]);
            }
        }
    close_rig(g);
}

/* Forks of one prompt at one time, more than there are places: what the tree has is not written
 * by those who share it. */
TEST(more_requests_than_places_say_the_same)
{
    enum { LENGTH = 50 };
    rig *g = open_rig(&hybrid);
    static rad_token without[MOST_REQS][MOST_NEW];
    for (int with = 0; with < 2; with++) {
        start(g, 1, with);
        for (uint32_t i = 0; i < MOST_REQS; i++) {
            rad_token ids[LENGTH];
            prompt(ids, LENGTH, i % 2 ? LENGTH : 20, i);
            add(g, i, ids, LENGTH, 10 + i);
        }
        finish(g, MOST_REQS);
        for (uint32_t i = 0; i < MOST_REQS; i++) {
            CHECK(g->answers[i].count == 10 + i);
            if (with) CHECK(!memcmp(without[i], g->answers[i].said, (10 + i) * sizeof(rad_token)));
            memcpy(without[i], g->answers[i].said, sizeof without[0]);
        }
        scheduler_stats st;
        scheduler_get_stats(g->s, &st);
        CHECK(!with == !st.drafts.accepted[DRAFT_NEXTN]);
        for (int i = 0; i < NEXTN_PLACES; i++)
            CHECK(!g->s->draft_nextn.places[i].owner);
        scheduler_destroy(g->s);
    }
    close_rig(g);
}

/* Answers of 190 tokens, four at one time: ns. */
static double tell(rig *g, bool with, uint32_t rounds, draft_stats *drafts)
{
    enum { AT_ONCE = 4, LENGTH = 30 };
    scheduler_stats st;
    start(g, 1, with);
    const uint64_t from = g->clock.now;
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            rad_token ids[LENGTH];
            prompt(ids, LENGTH, 0, round * AT_ONCE + i + 1);
            add(g, i, ids, LENGTH, 190);
        }
        finish(g, AT_ONCE);
    }
    scheduler_get_stats(g->s, &st);
    *drafts = st.drafts;
    scheduler_destroy(g->s);
    return (double)(g->clock.now - from);
}

/* Rows cost a twentieth of a step, a pass of the head a fifth or four times it. */
TEST(a_head_is_asked_as_far_as_it_pays)
{
    rig *g = open_rig(&hybrid);
    draft_stats with, without;
    g->step_ns = 4e6, g->row_ns = 2e5, g->guess_ns = 8e5;
    double gain = tell(g, false, 3, &without) / tell(g, true, 3, &with);
    print_message("right: %.2f times as fast, %.2f of %llu\n", gain,
                  (double)with.accepted[DRAFT_NEXTN] / (double)with.proposed[DRAFT_NEXTN],
                  (unsigned long long)with.proposed[DRAFT_NEXTN]);
    CHECK(gain > 1.4);
    g->guess_ns = 1.6e7;
    gain = tell(g, false, 3, &without) / tell(g, true, 3, &with);
    print_message("dear: %.3f times as fast\n", gain);
    CHECK(gain > 0.95);
    close_rig(g);
}

/* And one that is wrong is asked now and then, and not even fed when that has lasted. */
TEST(a_head_that_is_wrong_is_hardly_asked_and_then_not_fed)
{
    rig *g = open_rig(&hybrid);
    draft_stats with, without;
    g->step_ns = 4e6, g->row_ns = 2e5, g->guess_ns = 8e5, g->permille = 1000;
    const double gain = tell(g, false, 40, &without) / tell(g, true, 40, &with);
    print_message("wrong: %.3f times as fast, asked %u times in %u steps, entries in %u and late in %u\n",
                  gain, g->guesses, g->forwards, g->told, g->late);
    CHECK(gain > 0.98 && g->guesses < g->forwards / 20);
    const uint32_t fed = g->told + NEXTN_LATE * g->late;
    CHECK(fed > NEXTN_FED && fed < g->forwards / 2 && g->told + g->late < g->forwards / 10);
    close_rig(g);
}

/* Another source comes to say the answers at no price of its own, right four times of five. A head
 * that is right more often says more tokens of a step, but its passes take longer than they win. */
TEST(a_head_is_not_asked_where_others_guess_well_enough)
{
    enum { AT_ONCE = 4 };
    static rad_token known[AT_ONCE][MOST_NEW];
    rig *g = open_rig(&hybrid);
    draft_stats with, without;
    g->step_ns = 4e6, g->row_ns = 2e5, g->guess_ns = 1.4e6, g->permille = 50;
    for (int well = 0; well < 2; well++) {
        g->known = NULL;
        (void)tell(g, false, 1, &without);
        for (uint32_t i = 0; i < AT_ONCE; i++)
            memcpy(known[i], g->answers[i].said, sizeof known[i]);
        g->known = known, g->known_wrong = well ? 200 : 950;
        const double gain = tell(g, false, 1, &without) / tell(g, true, 1, &with);
        print_message("others wrong %u times of 1000: %.3f times as fast, asked %u times in %u "
                      "steps\n",
                      g->known_wrong, gain, g->guesses, g->forwards);
        CHECK(gain > (well ? 1.05 : 1.3));
    }
    close_rig(g);
}

/* Half a step more than there was has been spent in vain: that takes 50 steps to come back. */
TEST(passes_are_paid_from_a_budget)
{
    rig *g = open_rig(&hybrid);
    rad_token ids[30];
    scheduler_stats st;
    g->step_ns = 4e6, g->row_ns = 2e5, g->guess_ns = 8e5;
    start(g, 1, true);
    prompt(ids, 30, 0, 1);
    g->s->drafts.computed.left = -0.5;
    add(g, 0, ids, 30, 190);
    finish(g, 1);
    scheduler_get_stats(g->s, &st);
    print_message("%llu tokens in %u steps\n", (unsigned long long)st.generated_tokens,
                  g->forwards);
    CHECK(g->forwards > 50 && g->forwards < 110 && g->guesses > 30);
    CHECK(g->s->drafts.computed.left > 1); /* it was right */
    g->s->drafts.computed.left = 0.5;
    g->permille = 1000;
    const uint32_t guesses = g->guesses;
    add(g, 0, ids, 30, 190);
    finish(g, 1);
    CHECK(g->guesses > guesses && (g->guesses - guesses) * 0.2 < 0.5 + 1.9 + 1);
    scheduler_destroy(g->s);
    close_rig(g);
}

TEST(a_head_that_fails_is_not_asked_again)
{
    rig *g = open_rig(&hybrid);
    rad_token ids[30];
    g->fails_at = 3;
    start(g, 16, true);
    prompt(ids, 30, 0, 1);
    for (int i = 0; i < 2; i++) {
        add(g, 0, ids, 30, 60);
        finish(g, 1);
        CHECK(g->answers[0].count == 60 && g->guesses == 3);
    }
    const uint32_t told = g->told;
    CHECK(told < g->forwards / 2);
    scheduler_destroy(g->s);
    close_rig(g);
}

TEST(create_survives_every_allocation_failing)
{
    rig *g = open_rig(&hybrid);
    const scheduler_params p = params_of(g, 16);
    scheduler *s = NULL;
    for (long n = 0; !s; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        const rad_status status = scheduler_create(&env, &p, &s, NULL);
        CHECK(status == (s ? RAD_OK : RAD_E_NOMEM));
        scheduler_destroy(s);
        CHECK(t.bytes == 0);
    }
    close_rig(g);
}

TEST_MAIN()
