/* test_p1.c - promise P1, bit by bit: whatever happens around a request, each row of logits
 * it gets is the one that it would get alone and cold.
 *
 * A history is a request that begins like an earlier one (a repetition, a fork at any
 * point, an edit, or nothing in common) and runs among others through a pool that is too
 * small: with chunks, evictions, retractions, aborts and shared blocks read once; p1_rig.h
 * compares. The tiers below the pool are test_p1_tiers.c's.
 *
 * Three faults are planted to see the test fail: one slot taken for another in one step, the
 * snapshots of recurrent layers a token early, and the first two blocks of 64 positions exchanged,
 * which leaves the sum as it is on paper and changes only the order in which the blocks are merged.
 */
#include "p1_rig.h"

typedef enum fault { FAULT_NONE, FAULT_SLOT, FAULT_BLOCK, FAULT_STATE } fault;

static struct {
    fault fault;
    rad_slot *row, saved[192];
    forward_state_save saves[256];
} tampered;

static bool with_drafts;       /* and rules */
static const gguf_file
    *other_file; /* of a draft model for models with as many tokens; NULL: none */
static uint32_t other_vocab;
static uint64_t window_tokens; /* of the pool that layers with a window have; 0: they mask */

/* Each snapshot stands a token before the place that it is hung in at. */
static void save_early(forward_batch *b)
{
    CHECK(b->num_state_saves <= RAD_COUNT(tampered.saves));
    if (!b->num_state_saves) return;
    memcpy(tampered.saves, b->state_saves, b->num_state_saves * sizeof *b->state_saves);
    for (uint32_t i = 0; i < b->num_state_saves; i++) {
        const forward_state_save *before = i ? &tampered.saves[i - 1] : NULL;
        forward_state_save *save = &tampered.saves[i];
        bool first = !before || before->req != save->req;
        if (save->tokens - 1 > (first ? 0 : before->tokens)) save->tokens--, w.faults++;
    }
    b->state_saves = tampered.saves;
}

/* Alters the slots of the first request that is long enough, for one step. (Two exchanged would
 * only be added in another order, which bf16 mostly rounds away.) */
static void tamper(forward_batch *b)
{
    if (tampered.fault == FAULT_STATE) {
        save_early(b);
        return;
    }
    b->num_groups = 0; /* groups were made for the rows as they were */
    const rad_req_to_token_pool *rows = b->window_rows ? b->window_rows : b->req_to_token_pool;
    for (uint32_t i = 0; i < b->num_reqs; i++) {
        rad_slot *row = (rad_slot *)rad_req_to_token_row(rows, b->req_pool_indices[i]);
        if (b->extend_prefix_lens[i] < 192) continue;
        rad_slot *saved = tampered.saved;
        if (b->window_rows) row += b->extend_prefix_lens[i] - 192; /* its window ends here */
        memcpy(saved, row, sizeof tampered.saved);
        if (b->window_rows) {
            row[180] = saved[190];
        } else if (tampered.fault == FAULT_SLOT) {
            row[5] = saved[100];
        } else {
            memcpy(row, saved + 64, 64 * sizeof *row);
            memcpy(row + 64, saved, 64 * sizeof *row);
        }
        w.faults++;
        tampered.row = row;
        return;
    }
}

static void put_back(void)
{
    if (tampered.row) memcpy(tampered.row, tampered.saved, sizeof tampered.saved);
    tampered.row = NULL;
}

static uint32_t make_prompt(rad_token *ids)
{
    const uint32_t vocab = w.model->info.vocab_size, most = CONTEXT - MOST_NEW - 1;
    uint32_t how = below(14), n = 0, from = below(KEPT);
    if (how >= 10) { /* a document that many ask about at one time */
        uint64_t document = 1 + below(2);
        for (n = 0; n < 210; n++)
            ids[n] = (rad_token)(test_random(&document) % vocab);
    } else if (how < 8 && w.kept_len[from]) { /* a fork; a fifth are repetitions */
        n = RAD_MIN(w.kept_len[from], most);
        if (below(5)) n = 1 + below(n);
        if (below(3) == 0) n = RAD_MIN(RAD_MAX(n, 200u), RAD_MIN(w.kept_len[from], most));
        memcpy(ids, w.kept[from], n * sizeof *ids);
        if (how < 2) ids[below(n)] = (rad_token)below(vocab); /* an edit */
    }
    uint32_t own = n ? below(RAD_MIN(40, most - n + 1)) : 1 + below(below(2) ? 40 : most);
    for (uint32_t i = 0; i < own && n < most; i++)
        ids[n++] = (rad_token)below(vocab);
    return n;
}

/* What came about in runs of few histories, in all of a test's together: in one alone nobody may
 * have been retracted, or found anything. */
static struct {
    uint32_t runs;
    uint64_t cached, evicted, retracted, aborted, grouped, proposed, accepted, turns;
    uint64_t guessed, guessed_right; /* by draft models, */
    uint64_t said, said_right;       /* and by heads of the model */
    uint64_t foretold, foretold_right, ruled;
} few;

enum { MANY_HISTORIES = 300 };

static void note_few(const scheduler_stats *st)
{
    few.runs++;
    few.cached += st->cached_tokens;
    few.evicted += st->evicted_tokens;
    few.retracted += st->num_retractions;
    few.aborted += st->num_aborted;
    few.grouped += w.grouped_steps;
}

static void check_few(void)
{
    if (few.runs) {
        print_message("  %u runs: %llu cached, %llu evicted, %llu retracted, %llu aborted\n",
                      few.runs, (unsigned long long)few.cached, (unsigned long long)few.evicted,
                      (unsigned long long)few.retracted, (unsigned long long)few.aborted);
        CHECK(few.cached > 0 && few.evicted > 0 && few.retracted > 0);
        CHECK(few.aborted > 0 && few.grouped > 0);
    }
    memset(&few, 0, sizeof few);
}

/* A draft model that is the model of `file` once more, or NULL where that has recurrent layers. */
static runner *draft_runner(const gguf_file *file)
{
    runner *small;
    rad_error err = {0};
    const rad_dtype kv_dtype = w.model->info.kv_dtype;
    const model_runner_params params = {.dtype = kv_dtype == RAD_F32 ? RAD_F32 : RAD_BF16,
                                        .kv_dtype = kv_dtype,
                                        .set_kv_dtype = true,
                                        .weights = witness_weights,
                                        .max_batch_tokens = DRAFT_MODEL_TOKENS,
                                        .max_batch_logits = DRAFT_MODEL_LOGITS,
                                        .context_length = CONTEXT,
                                        .threads_of = w.model};
    const rad_status status = model_runner_create(NULL, file, &params, &small, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    if (!small->info.state_layers) return small;
    runner_destroy(small);
    return NULL;
}

/* With a draft model that is another one, or the same one, of which no guess is wrong. */
static void run_scheduler(uint32_t page_size, uint32_t histories, runner *small, bool same)
{
    scheduler_params p = witness_params(page_size, 3 * CONTEXT);
    p.window_total_tokens = window_tokens;
    p.draft_runner = small;
    witness_scheduler(&p);
    w.s->groups.member_cost = w.s->groups.token_cost = 0;
    run_histories(histories);
    scheduler_stats st;
    scheduler_get_stats(w.s, &st);
    few.guessed += st.drafts.proposed[DRAFT_MODEL];
    few.guessed_right += st.drafts.accepted[DRAFT_MODEL];
    few.said += st.drafts.proposed[DRAFT_NEXTN];
    few.said_right += st.drafts.accepted[DRAFT_NEXTN];
    CHECK(!same || st.drafts.accepted[DRAFT_MODEL] == st.drafts.proposed[DRAFT_MODEL]);
    CHECK(st.kv_errors == 0 && st.window_total_tokens / page_size == window_tokens / page_size);
    if (histories >= 100 && histories < MANY_HISTORIES) note_few(&st);
    if (histories >= MANY_HISTORIES) {
        CHECK(st.cached_tokens > 0 && st.evicted_tokens > 0 && st.num_retractions > 0);
        CHECK(st.num_aborted > 0 && w.grouped_steps > 0);
    }
    scheduler_destroy(w.s);
}

static void run_model_on(const char *kernels, const gguf_file *file, const char *name,
                         rad_dtype dtype, rad_dtype kv_dtype, fault f, uint32_t histories)
{
    witness_start_on(kernels, file, name, dtype, kv_dtype);
    w.make_prompt = make_prompt;
    w.drafts = w.rules = w.sessions = with_drafts;
    if (f) {
        tampered.fault = f;
        w.wrong_is_meant = true;
        w.before = tamper;
        w.after = put_back;
    }
    runner *same = with_drafts ? draft_runner(file) : NULL;
    runner *other = other_file && other_vocab == w.model->info.vocab_size ? draft_runner(other_file)
                                                                          : NULL;
    run_scheduler(1, histories, same, true);
    run_scheduler(16, histories, other ? other : same, !other);
    runner_destroy(same);
    runner_destroy(other);
    if (f) {
        CHECK(w.faults > 0);
        CHECKF(w.wrong > 0, "%s: %llu faulty steps were not noticed\n", w.what,
               (unsigned long long)w.faults);
    } else {
        CHECK(w.wrong == 0 && w.rows_checked > histories);
        CHECK(histories < 100 || (w.prompt_rows_checked > histories && w.hidden_checked > 0));
    }
    few.proposed += w.proposed;
    few.accepted += w.accepted;
    few.turns += w.turns;
    few.foretold += w.foretold;
    few.foretold_right += w.foretold_right;
    few.ruled += w.ruled;
    print_message(
        "  %s: %llu rows of logits, %llu steps with groups, %llu tampered with, %llu rows "
        "differ\n",
        w.what, (unsigned long long)w.rows_checked, (unsigned long long)w.grouped_steps,
        (unsigned long long)w.faults, (unsigned long long)w.wrong);
    witness_end();
}

static void run_model(const gguf_file *file, const char *name, rad_dtype dtype, rad_dtype kv_dtype,
                      fault f, uint32_t histories)
{
    run_model_on(NULL, file, name, dtype, kv_dtype, f, histories);
}

/* FAULTY: a fault is planted in nearly every history, and nearly each is noticed. AMX in plain C is
 * slow, with sanitizers fortyfold. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { HISTORIES = 8, HISTORIES_LONG = 12, FAULTY = 20, EMULATED = 3 };
#else
enum { HISTORIES = 100, HISTORIES_LONG = 5000, FAULTY = 60, EMULATED = 10 };
#endif

static uint32_t num_histories(void)
{
    return (uint32_t)test_scale(HISTORIES, HISTORIES_LONG);
}

static uint32_t num_emulated(void)
{
    return RAD_MIN(num_histories(), (uint32_t)test_scale(EMULATED, 1000));
}

static void run_tiny(const tiny_model *m, fault f, uint32_t histories)
{
    tiny_writer writer;
    gguf_file *file = p1_open(m, &writer);
    run_model(file, m->arch, RAD_F32, RAD_F32, f, histories);
    /* In bf16 the last bits that the order of blocks changes are mostly rounded away. */
    if (f != FAULT_BLOCK) run_model(file, m->arch, RAD_BF16, RAD_BF16, f, histories);
    gguf_close(file);
    tiny_model_fini(&writer);
}

TEST(a_tiny_llama_gives_the_same_bits_warm_and_cold)
{
    run_tiny(&p1_llama, FAULT_NONE, num_histories());
}

TEST(a_tiny_qwen3_gives_the_same_bits_warm_and_cold)
{
    run_tiny(&p1_qwen3, FAULT_NONE, num_histories());
}

TEST(a_tiny_mixture_of_experts_gives_the_same_bits_warm_and_cold)
{
    run_tiny(&p1_moe, FAULT_NONE, num_histories());
}

TEST(tiny_latent_attention_gives_the_same_bits_warm_and_cold)
{
    run_tiny(&p1_latent, FAULT_NONE, num_histories());
    gguf_file *file;
    tiny_writer writer;
    file = p1_open(&p1_latent, &writer);
    run_model(file, p1_latent.arch, RAD_BF16, RAD_I8, FAULT_NONE, num_histories() / 4);
    gguf_close(file);
    tiny_model_fini(&writer);
}

TEST(recurrent_layers_give_the_same_bits_warm_and_cold)
{
    for (size_t i = 0; i < RAD_COUNT(p1_recurrent); i++)
        run_tiny(&p1_recurrent[i], FAULT_NONE,
                 RAD_MIN(num_histories(), (uint32_t)test_scale(i < 3 ? 100 : 50, 1000)));
    check_few();
}

/* Drafts right and wrong, and what clients foretell of it, and rules, grammars among them, in half
 * of the histories: the logits of each token, and the token by its rule, are those of the text
 * computed at once. All kinds of layers, pages of 1 and
 * 16, a pool that is too small, chunks and turns of sessions beside; weights of f32, bf16, q8_0. */
TEST(drafts_give_the_bits_of_one_token_at_a_time)
{
    const tiny_model *models[] = {&p1_llama,        &p1_moe,          &p1_latent,
                                  &p1_recurrent[0], &p1_recurrent[1], &p1_recurrent[2],
                                  &p1_windowed[0]};
    tiny_writer writer;
    gguf_file *other = p1_open(&p1_qwen3, &writer);
    other_file = other;
    other_vocab = p1_qwen3.vocab;
    with_drafts = true;
    for (size_t i = 0; i < RAD_COUNT(models); i++) {
        window_tokens = models[i]->window ? 4 * models[i]->window + 80 : 0;
        run_tiny(models[i], FAULT_NONE, RAD_MIN(num_histories(), (uint32_t)test_scale(40, 1000)));
        witness_weights = WEIGHTS_AS_Q8_0;
        tiny_writer rounded;
        gguf_file *file = p1_open(models[i], &rounded);
        if (i < 4)
            run_model(file, models[i]->arch, RAD_BF16, RAD_BF16, FAULT_NONE,
                      RAD_MIN(num_histories(), (uint32_t)test_scale(20, 1000)));
        gguf_close(file);
        tiny_model_fini(&rounded);
        witness_weights = WEIGHTS_AS_DTYPE;
    }
    /* Hardly any states: what a session's turn brings along, drafts were promised once. */
    window_tokens = 0;
    witness_few_states = true;
    run_tiny(&p1_recurrent[2], FAULT_NONE, 40);
    witness_few_states = false;
    print_message("  %llu of %llu drafts right, of draft models %llu of %llu\n",
                  (unsigned long long)few.accepted, (unsigned long long)few.proposed,
                  (unsigned long long)few.guessed_right, (unsigned long long)few.guessed);
    CHECK(few.accepted > 0 && few.proposed > few.accepted && few.turns > 0);
    print_message("  %llu of %llu foretold tokens right, %llu answers of a grammar\n",
                  (unsigned long long)few.foretold_right, (unsigned long long)few.foretold,
                  (unsigned long long)few.ruled);
    CHECK(few.guessed_right > 0 && few.guessed > few.guessed_right);
    CHECK(few.foretold_right > 0 && few.foretold > few.foretold_right && few.ruled > 0);
    gguf_close(other);
    tiny_model_fini(&writer);
    other_file = NULL;
    memset(&few, 0, sizeof few);
    with_drafts = false;
    window_tokens = 0;
}

/* Heads that say anything, and such as say what the model says, nearly: of attention layers that
 * are latent, and of hybrids. */
TEST(heads_that_guess_give_the_bits_of_one_token_at_a_time)
{
    const tiny_model *models[] = {&p1_latent, &p1_recurrent[0], &p1_recurrent[3]};
    with_drafts = witness_nextn = true;
    for (int knows = 0; knows < 2; knows++) {
        few.said = few.said_right = 0;
        for (size_t i = 0; i < RAD_COUNT(models); i++) {
            tiny_model m = *models[i];
            m.nextn = 1 + knows, m.nextn_knows = knows;
            run_tiny(&m, FAULT_NONE,
                     RAD_MIN(num_histories(), (uint32_t)test_scale(knows ? 16 : 8, 1000)));
        }
        print_message("  %s: %llu of %llu right\n", knows ? "heads that know" : "any heads",
                      (unsigned long long)few.said_right, (unsigned long long)few.said);
        CHECK(few.said > 0 && (!knows || few.said_right > few.said / 10));
    }
    memset(&few, 0, sizeof few);
    with_drafts = witness_nextn = false;
}

TEST(a_snapshot_put_at_another_position_is_noticed)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    run_tiny(&p1_recurrent[2], FAULT_STATE, 20); /* the quickest */
#else
    enum { KINDS = 3 }; /* the others have the same ones */
    for (size_t i = 0; i < (test_scale(0, 1) ? RAD_COUNT(p1_recurrent) : KINDS); i++)
        run_tiny(&p1_recurrent[i], FAULT_STATE, 60);
#endif
}

/* Histories in window memory, which is too small for all that run; the cold runs have one pool for
 * all layers and a mask. */
TEST(window_memory_gives_the_bits_of_a_mask)
{
    for (size_t i = 0; i < RAD_COUNT(p1_windowed); i++) {
        tiny_writer writer;
        gguf_file *file = p1_open(&p1_windowed[i], &writer);
        window_tokens = 4 * p1_windowed[i].window + 80;
        uint32_t n = RAD_MIN(num_histories(), (uint32_t)test_scale(100, 1000));
        run_model(file, p1_windowed[i].arch, RAD_F32, RAD_F32, FAULT_NONE, n);
        run_model(file, p1_windowed[i].arch, RAD_BF16, RAD_BF16, FAULT_NONE, n);
        if (i == 2) run_model(file, p1_windowed[i].arch, RAD_BF16, RAD_I8, FAULT_NONE, n);
        if (i == 2 && gear_attn_cpu("amx-emulated")) /* slow */
            run_model_on("amx-emulated", file, p1_windowed[i].arch, RAD_BF16, RAD_BF16, FAULT_NONE,
                         num_emulated());
        gguf_close(file);
        tiny_model_fini(&writer);
    }
    window_tokens = 0;
    check_few();
}

TEST(a_window_slot_taken_for_another_is_noticed)
{
    window_tokens = 400;
    run_tiny(&p1_windowed[0], FAULT_SLOT, FAULTY);
    run_tiny(&p1_windowed[2], FAULT_SLOT, FAULTY);
    window_tokens = 0;
}

TEST(the_shipped_model_gives_the_same_bits_warm_and_cold)
{
    gguf_file *file;
    CHECK_OK(gguf_open(NULL, RADISH_SOURCE_DIR "/models/radish-tiny.gguf", &file, NULL));
    uint32_t n = RAD_MAX(num_histories() / 5, 8u);
    run_model(file, "radish-tiny", RAD_F32, RAD_F32, FAULT_NONE, n);
    run_model(file, "radish-tiny", RAD_BF16, RAD_BF16, FAULT_NONE, n);
    gguf_close(file);
}

/* A smaller store rounds more, but to the same bits each time. */
TEST(every_store_of_kv_gives_the_same_bits_warm_and_cold)
{
    static const rad_dtype stores[] = {RAD_F32, RAD_F16, RAD_F8_E4M3, RAD_F8_E5M2, RAD_I8};
    uint64_t state = 6;
    tiny_writer writer;
    gguf_file *file = tiny_model_open(&writer, &p1_llama, &state);
    const uint32_t n = RAD_MAX(num_histories() / 5, 8u); /* some are aborted, or have few rows */
    for (size_t i = 0; i < RAD_COUNT(stores); i++)
        run_model(file, p1_llama.arch, RAD_BF16, stores[i], FAULT_NONE, n);
    gguf_close(file);
    tiny_model_fini(&writer);
}

/* What a CPU with AMX computes, products and attention, its tiles in plain C: slow, so a few.
 * (Another store than bf16 is attended to as without AMX; the products are the same.) */
TEST(amx_gives_the_same_bits_warm_and_cold)
{
    static const char emulated[] = "amx-emulated";
    SKIP_UNLESS(gear_attn_cpu(emulated), "there is no AVX512_BF16, which emulated attention needs");
    const tiny_model *models[] = {&p1_llama, &p1_qwen3, &p1_moe};
    uint32_t n = num_emulated();
    for (size_t i = 0; i < RAD_COUNT(models); i++) {
        tiny_writer writer;
        gguf_file *file = p1_open(models[i], &writer);
        const char *name = models[i]->arch;
        run_model_on(emulated, file, name, RAD_BF16, RAD_BF16, FAULT_NONE, n);
        if (test_scale(0, 1)) { /* a fault is seen there, too */
            run_model_on(emulated, file, name, RAD_BF16, RAD_I8, FAULT_NONE, n);
            run_model_on(emulated, file, name, RAD_BF16, RAD_BF16, FAULT_SLOT, FAULTY);
        }
        gguf_close(file);
        tiny_model_fini(&writer);
    }
}

TEST(a_slot_taken_for_another_is_noticed)
{
    run_tiny(&p1_llama, FAULT_SLOT, FAULTY);
}

TEST(blocks_merged_out_of_order_are_noticed)
{
    run_tiny(&p1_qwen3, FAULT_BLOCK, FAULTY);
}

TEST_MAIN()
