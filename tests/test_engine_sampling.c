/* test_engine_sampling.c - penalties, bias, min_new_tokens and logprobs through all threads. */
#include "engine_rig.h"

#include <math.h>

enum { PROMPT = 30, OUT = 40 };

static engine_request ask(answer *a, const rad_token *ids, uint32_t num_new)
{
    return erig_ask(a, ids, PROMPT, num_new);
}

TEST(logprobs_come_with_every_id_and_change_nothing)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[PROMPT];
    erig_prompt(e, ids, PROMPT, 1);
    answer plain, a;
    engine_request q = ask(&plain, ids, OUT);
    erig_serve(e, &q);
    CHECK(plain.num_logprobs == 0);
    for (uint32_t top = 0; top < 4; top += 3) {
        q = ask(&a, ids, OUT);
        q.sampling.logprobs = true;
        q.sampling.num_top_logprobs = top;
        a.logprob_stride = 1 + top;
        erig_serve(e, &q);
        CHECK(a.num_ids == OUT && a.num_logprobs == OUT);
        CHECK(memcmp(a.ids, plain.ids, sizeof *a.ids * OUT) == 0);
        for (uint32_t i = 0; i < OUT; i++) {
            CHECK(a.logprobs[i][0].id == a.ids[i] && a.logprobs[i][0].logprob < 0);
            for (uint32_t k = 1; k <= top; k++) { /* greedy: the first is the chosen one */
                CHECK((a.logprobs[i][k].id == a.ids[i]) == (k == 1));
                CHECK(a.logprobs[i][k].logprob <= a.logprobs[i][k - 1].logprob);
            }
        }
        answer_fini(&a);
    }
    answer_fini(&plain);
    erig_stop(e);
}

/* The scheduler runs ahead of a stop string: logprobs of tokens behind it come to nobody. */
TEST(logprobs_end_where_the_answer_ends)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[PROMPT];
    erig_prompt(e, ids, PROMPT, 2);
    answer plain, a;
    engine_request q = ask(&plain, ids, OUT);
    erig_serve(e, &q);
    char stop[8] = {0};
    memcpy(stop, plain.text + plain.text_len / 2, 3);
    const char *stops[] = {stop};
    for (int again = 0; again < 5; again++) {
        q = ask(&a, ids, OUT);
        q.sampling.logprobs = true;
        a.logprob_stride = 1;
        q.stop = stops;
        q.num_stop = 1;
        erig_serve(e, &q);
        CHECK(a.finish == ENGINE_FINISH_STOP && a.num_ids < OUT);
        CHECK(a.num_logprobs == a.num_ids && a.num_ids == a.completion_tokens);
        answer_fini(&a);
    }
    answer_fini(&plain);
    engine_destroy(e);
}

TEST(min_new_tokens_holds_back_what_would_end_it)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[PROMPT];
    erig_prompt(e, ids, PROMPT, 3);
    answer plain, a;
    engine_request q = ask(&plain, ids, OUT);
    erig_serve(e, &q);
    rad_token stops[] = {plain.ids[3], 1 << 30, -5}; /* two are no tokens at all */
    q = ask(&a, ids, OUT);
    q.stop_token_ids = stops;
    q.num_stop_token_ids = 3;
    erig_serve(e, &q);
    CHECK(a.finish == ENGINE_FINISH_STOP && a.num_ids <= 4);
    answer_fini(&a);

    q = ask(&a, ids, OUT);
    q.stop_token_ids = stops;
    q.num_stop_token_ids = 3;
    q.sampling.min_new_tokens = 20;
    erig_serve(e, &q);
    CHECK(a.num_ids >= 20);
    for (uint32_t i = 0; i < 20; i++)
        CHECK(a.ids[i] != stops[0]);
    answer_fini(&a);

    /* The vocabulary's end token, which a bias makes the only choice. */
    const logit_bias only = {tokenizer_eos(engine_tokenizer(e)), 100};
    for (uint32_t least = 0; least < 10; least += 9) {
        q = ask(&a, ids, OUT);
        q.ignore_eos = false;
        q.sampling.bias = &only;
        q.sampling.num_bias = 1;
        q.sampling.min_new_tokens = least;
        erig_serve(e, &q);
        CHECK(a.finish == ENGINE_FINISH_STOP && a.matched_token == only.id);
        CHECK(a.num_ids == least + 1);
        answer_fini(&a);
    }
    answer_fini(&plain);
    erig_stop(e);
}

/* The caller's arrays are copied: they may go as soon as submit is back. */
TEST(a_bias_is_copied_and_chooses)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[PROMPT];
    erig_prompt(e, ids, PROMPT, 4);
    logit_bias bias[] = {{77, 100}, {78, -100}};
    answer a;
    engine_request q = ask(&a, ids, OUT);
    q.sampling.bias = bias;
    q.sampling.num_bias = 2;
    erig_submit(e, &q, NULL);
    memset(bias, 0xff, sizeof bias);
    answer_wait(&a);
    for (uint32_t i = 0; i < OUT; i++)
        CHECK(a.ids[i] == 77);
    answer_fini(&a);

    /* A penalty drives it away again: 100 - 2 for each time. */
    bias[0] = (logit_bias){77, 3};
    q = ask(&a, ids, OUT);
    q.sampling.bias = bias;
    q.sampling.num_bias = 1;
    q.sampling.frequency_penalty = 2;
    q.sampling.presence_penalty = 2;
    erig_serve(e, &q);
    uint32_t times[512] = {0};
    for (uint32_t i = 0; i < OUT; i++)
        CHECK(++times[a.ids[i]] < 12);
    answer_fini(&a);
    engine_destroy(e);
}

TEST(what_the_sampler_cannot_do_is_refused_in_words)
{
    engine *e = erig_start(erig_params(), 0);
    rad_token ids[PROMPT];
    erig_prompt(e, ids, PROMPT, 5);
    static logit_bias bias[ENGINE_MAX_LOGIT_BIAS + 1];
    answer a;
    rad_error err;
    const engine_request good = ask(&a, ids, 3);
    engine_request q;
#define REFUSED(change, word)                                                                      \
    q = good;                                                                                      \
    change;                                                                                        \
    err.text[0] = 0;                                                                               \
    CHECK(engine_submit(e, &q, NULL, &err) == RAD_E_INVAL);                                        \
    CHECKF(strstr(err.text, word) != NULL, "<%s> does not say <%s>\n", err.text, word)

    REFUSED(q.sampling.bias = bias; q.sampling.num_bias = ENGINE_MAX_LOGIT_BIAS + 1, "1025");
    bias[0].id = 512;
    REFUSED(q.sampling.bias = bias; q.sampling.num_bias = 1, "logit_bias: token id 512");
    bias[0].id = -1;
    REFUSED(q.sampling.bias = bias; q.sampling.num_bias = 1, "logit_bias: token id -1");
    bias[0] = (logit_bias){5, NAN};
    REFUSED(q.sampling.bias = bias; q.sampling.num_bias = 1, "logit_bias of token 5");
    REFUSED(q.sampling.num_top_logprobs = ENGINE_MAX_TOP_LOGPROBS + 1, "257 top logprobs");
    REFUSED(q.sampling.presence_penalty = NAN, "presence_penalty");
    CHECK(a.num_events == 0);
    answer_fini(&a);
    engine_destroy(e);
}

TEST_MAIN()
