/* test_answer_form.c - forms of answers through all threads, what is kept of them, and the rule of
 * one answer against replaying it from its beginning. */
#include "engine_rig.h"

#include <regex.h>

enum { PROMPT = 12, MOST_NEW = 60 };

typedef struct wanted {
    grammar_kind kind;
    const char *text;    /* of the form */
    const char *matches; /* the same as POSIX has it */
} wanted;

static const wanted forms[] = {
    {GRAMMAR_REGEX, "[a-f]{3,5}", "^[a-f]{3,5}$"},
    {GRAMMAR_REGEX, "(yes|no)( please)?", "^(yes|no)( please)?$"},
    {GRAMMAR_REGEX, "-?[0-9]{1,4}\\.[0-9]{2}", "^-?[0-9]{1,4}\\.[0-9]{2}$"},
    {GRAMMAR_EBNF, "root ::= \"[\" n (\", \" n){0,3} \"]\"\nn ::= [0-9] | [1-9][0-9]",
     "^\\[([0-9]|[1-9][0-9])(, ([0-9]|[1-9][0-9])){0,3}\\]$"},
};

static engine_form form_of(const wanted *w)
{
    return (engine_form){.spec = {.kind = w->kind, .text = w->text, .len = strlen(w->text)},
                         .name = "form"};
}

static bool matches(const char *text, const char *expression)
{
    regex_t r;
    CHECK(regcomp(&r, expression, REG_EXTENDED | REG_NOSUB) == 0);
    const bool found = regexec(&r, text, 0, NULL, 0) == 0;
    regfree(&r);
    return found;
}

/* Free requests run beside them and say what they say alone. */
TEST(answers_have_their_form_and_others_are_not_concerned)
{
    enum { ASKED = 40 };
    engine *e = erig_start(erig_params(), 0);
    uint64_t seed = test_told_seed();
    rad_token ids[ASKED][PROMPT];
    static answer a[ASKED];
    for (int i = 0; i < ASKED; i++) {
        const engine_form form = form_of(&forms[i % 4]);
        erig_prompt(e, ids[i], PROMPT, test_random(&seed));
        engine_request q = erig_ask(&a[i], ids[i], PROMPT, MOST_NEW);
        if (i % 3) {
            q.form = &form;
            q.sampling.temperature = i % 2 ? 1 : 0;
            q.has_seed = true;
            q.sampling.seed = test_random(&seed);
            q.ignore_eos = i % 5 == 0; /* a form that has ended ends the answer all the same */
        }
        erig_submit(e, &q, NULL);
    }
    for (int i = 0; i < ASKED; i++) {
        answer_wait(&a[i]);
        if (i % 3) {
            CHECKF(a[i].finish == ENGINE_FINISH_STOP && matches(a[i].text, forms[i % 4].matches),
                   "%s: '%s'\n", forms[i % 4].text, a[i].text);
        } else {
            CHECK(a[i].finish == ENGINE_FINISH_LENGTH && erig_is_oracle(e, &a[i], ids[i], PROMPT));
        }
        answer_fini(&a[i]);
    }
    erig_stop(e);
}

static rad_status serve_form(engine *e, const char *text, const char *salt, char *message,
                             size_t size)
{
    const rad_token ids[] = {5, 6, 7};
    const engine_form form = {.spec = {.kind = GRAMMAR_REGEX, .text = text, .len = strlen(text)},
                              .name = "regex"};
    answer a;
    engine_request q = erig_ask(&a, ids, 3, 8);
    q.form = &form;
    q.cache_salt = salt;
    erig_serve(e, &q);
    if (message) snprintf(message, size, "%s", a.message);
    const rad_status status = a.finish == ENGINE_FINISH_ERROR ? a.status : RAD_OK;
    answer_fini(&a);
    return status;
}

/* How long a compilation takes must not tell one client what another asks for. */
TEST(forms_are_kept_by_namespace_and_not_without_bound)
{
    engine *e = erig_start(erig_params(), 0);
    for (int again = 0; again < 3; again++) {
        CHECK_OK(serve_form(e, "[a-z]{2}", NULL, NULL, 0));
        CHECK_OK(serve_form(e, "[a-z]{2}", "one", NULL, 0));
        CHECK_OK(serve_form(e, "[a-z]{3}", "one", NULL, 0));
    }
    CHECK(e->forms.count == 3); /* the tokenizer thread rests */
    for (int i = 0; i < 2 * FORMS_MOST; i++) {
        char text[32];
        snprintf(text, sizeof text, "[a-z]{%d}", i + 2);
        CHECK_OK(serve_form(e, text, NULL, NULL, 0));
        CHECK_OK(serve_form(e, "[a-z]{3}", "one", NULL, 0)); /* in use: it stays */
    }
    CHECK(e->forms.count == FORMS_MOST && e->forms.bytes < FORMS_BYTES);
    bool kept = false;
    for (uint32_t i = 0; i < e->forms.count; i++)
        kept = kept || !strncmp(e->forms.kept[i].text, "0\none", e->forms.kept[i].space_len);
    CHECK(kept);
    erig_stop(e);
}

TEST(wrong_forms_are_refused_by_name)
{
    engine *e = erig_start(erig_params(), 0);
    char message[256];
    CHECK(serve_form(e, "(a", NULL, message, sizeof message) == RAD_E_INVAL);
    CHECKF(!strncmp(message, "'regex': ", 9), "%s\n", message);
    /* Too large is the request's fault, and not the context's. */
    CHECK(serve_form(e, "((a{1,1000}){1,1000}){1,1000}", NULL, message, sizeof message) ==
          RAD_E_INVAL);
    CHECKF(!strncmp(message, "'regex': ", 9), "%s\n", message);
    CHECK(e->forms.count == 0);
    CHECK_OK(serve_form(e, "a+", NULL, NULL, 0));
    erig_stop(e);
}

/* ---- the rule ---- */

enum { MOST_TOKENS = 60 };

static token_rule *make_rule(engine *e, engine_job *job)
{
    token_rule *rule = NULL;
    rad_error err;
    const rad_status status = answer_rule_create(e, job, &rule, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return rule;
}

static rad_token pick(const uint32_t *bits, uint32_t vocab, uint64_t *seed)
{
    rad_token id = (rad_token)(test_random(seed) % vocab);
    for (uint32_t i = 0; i < vocab; i++, id = (rad_token)((uint32_t)(id + 1) % vocab))
        if (bits[id / 32] >> id % 32 & 1) return id;
    return -1;
}

/* With reasoning that the prompt opened, that the answer may open, or none; forth and back. */
TEST(a_rule_that_was_rolled_back_is_one_that_never_went_there)
{
    engine *e = erig_start(erig_params(), 0);
    uint64_t seed = test_told_seed();
    const uint32_t vocab = engine_get_info(e)->vocab_size, words = grammar_mask_words(vocab);
    uint32_t *bits = calloc(words, 4), *again = calloc(words, 4);
    uint32_t thought = 0, closed = 0, ended = 0, back = 0;
    for (uint64_t round = 0; round < test_scale(60, 600); round++) {
        const wanted *w = &forms[round % 4];
        form_words *given = calloc(1, sizeof *given + strlen(w->text) + 1);
        *given = (form_words){.engine = e, .refs = 1, .form = form_of(w)};
        engine_job job = {.form = given};
        if (round % 3) {
            job.think_open = "b", job.think_close = "c"; /* any token can be a marker */
            job.thinks = round % 5 == 0;
            if (round % 3 == 2)
                job.prompt_tail_len =
                    (uint8_t)snprintf(job.prompt_tail, 8, "a%s\n", round % 2 ? "b" : "c");
        }
        token_rule *rule = make_rule(e, &job);
        rad_token said[MOST_TOKENS];
        uint32_t n = 0;
        const rad_token close = tokenizer_find(engine_tokenizer(e), "c", 1);
        for (int step = 0; step < 80 && n < MOST_TOKENS; step++) {
            if (n && test_random(&seed) % 4 == 0) {
                const uint32_t count = 1 + (uint32_t)(test_random(&seed) % n);
                if (count <= TOKEN_RULE_BACK) rule->ops->roll_back(rule, count), n -= count, back++;
                continue;
            }
            if (rule->ops->has_ended(rule)) {
                ended++;
                rule->ops->roll_back(rule, 1), n--;
                continue;
            }
            CHECK(rule->ops->mask(rule, bits) == TOKEN_MASK_SOME);
            token_rule *fresh = make_rule(e, &job);
            for (uint32_t i = 0; i < n; i++)
                CHECK(fresh->ops->accept(fresh, said[i]));
            CHECK(fresh->ops->mask(fresh, again) == TOKEN_MASK_SOME);
            CHECKF(!memcmp(bits, again, words * 4), "round %d, %u tokens\n", (int)round, n);
            answer_rule_destroy(e, fresh);
            rad_token id = pick(bits, vocab, &seed);
            /* Most of what may come is reasoning, where there is some: end it soon. */
            const bool may_close = close >= 0 && bits[close / 32] >> close % 32 & 1;
            thought += may_close && n && said[n - 1] != close;
            if (may_close && test_random(&seed) % 4 == 0) id = close, closed++;
            const rad_token other = (rad_token)(test_random(&seed) % vocab);
            if (!(bits[other / 32] >> other % 32 & 1)) CHECK(!rule->ops->accept(rule, other));
            CHECK(rule->ops->accept(rule, id));
            said[n++] = id;
        }
        answer_rule_destroy(e, rule);
        grammar_unref(given->compiled);
        free(given);
    }
    CHECK(thought > 20 && closed > 20 && ended > 10 && back > 100);
    free(bits);
    free(again);
    erig_stop(e);
}

TEST_MAIN()
