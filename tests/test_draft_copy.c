/* test_draft_copy.c - a copy with edits is guessed with the edits that were made before, and
 * whatever a text does, a guess stays within its room. */
#include "base/base.h"
#include "test.h"

#include "sched/draft_copy.h"
#include "sched/draft_ngram.h"

enum { NAME = 900, NEW = 901 /* and NEW + 1: two tokens for one */, END = 990, ROOM = 16 };

typedef struct text {
    rad_token ids[512];
    uint32_t count;
} text;

static void say(text *t, rad_token id)
{
    t->ids[t->count++] = id;
}

/* `count` tokens from `first` on, none of which stands elsewhere. */
static void say_run(text *t, rad_token first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        say(t, first + (rad_token)i);
}

/* A source of four runs with a name between them. */
static uint32_t say_source(text *t)
{
    for (int i = 0; i < 4; i++) {
        say_run(t, 100 * i, 20);
        say(t, NAME);
    }
    say(t, END);
    return t->count;
}

typedef struct asker {
    ngram_pool pool;
    ngram_index *index;
    copy_cursor cursor;
    rad_token out[ROOM];
    uint32_t count, match;
} asker;

static void ask(asker *a, const text *t)
{
    uint32_t place;
    const uint32_t found =
        ngram_propose(a->index, t->ids, t->count, a->out, ROOM, &a->match, &place);
    a->count = copy_propose(&a->cursor, t->ids, t->count, place, a->out, found, ROOM, &a->match);
}

static void asker_init(asker *a)
{
    const rad_env env = rad_env_or_default(NULL);
    *a = (asker){0};
    a->index = ngram_take(&a->pool, &env);
    CHECK(a->index);
}

static void asker_fini(asker *a)
{
    const rad_env env = rad_env_or_default(NULL);
    ngram_put_back(&a->pool, a->index);
    ngram_pool_fini(&a->pool, &env);
}

/* All that the text says from `from` on, token by token, each after a guess. */
static void ask_along(asker *a, text *t, uint32_t from)
{
    const uint32_t end = t->count;
    for (t->count = from; t->count < end; t->count++)
        ask(a, t);
    ask(a, t);
}

static bool says(const asker *a, uint32_t at, rad_token id)
{
    return a->count > at && a->out[at] == id;
}

/* Before the name's second place the new one is guessed, both its tokens, and the run behind it;
 * also when the first of them is said already, and behind both the copy goes on at once. */
TEST(an_edit_is_guessed_to_be_made_again)
{
    text t = {0};
    asker a;
    asker_init(&a);
    const uint32_t prompt = say_source(&t);
    say_run(&t, 0, 20);
    say(&t, NEW), say(&t, NEW + 1);
    say_run(&t, 100, 18); /* two before the name */
    ask_along(&a, &t, prompt);
    CHECK(a.count == ROOM && says(&a, 0, 118) && says(&a, 1, 119));
    CHECK(says(&a, 2, NEW) && says(&a, 3, NEW + 1) && says(&a, 4, 200) && says(&a, 15, 211));
    say_run(&t, 118, 2);
    say(&t, NEW);
    ask_along(&a, &t, t.count - 3);
    CHECK(a.count == ROOM && says(&a, 0, NEW + 1) && says(&a, 1, 200) && says(&a, 15, 214));
    CHECK(a.match > COPY_LEAST);
    say(&t, NEW + 1);
    ask(&a, &t);
    CHECK(a.count == ROOM && says(&a, 0, 200) && says(&a, 15, 215) && a.match > COPY_LEAST);
    asker_fini(&a);
}

/* The name is said as it stands: from then on it is guessed so. */
TEST(an_edit_that_is_not_made_again_is_forgotten)
{
    text t = {0};
    asker a;
    asker_init(&a);
    const uint32_t prompt = say_source(&t);
    say_run(&t, 0, 20);
    say(&t, NEW);
    say_run(&t, 100, 20);
    ask_along(&a, &t, prompt);
    CHECK(says(&a, 0, NEW) && says(&a, 1, 200));
    say(&t, NAME);
    ask(&a, &t);
    CHECK(says(&a, 0, 200));
    say_run(&t, 200, 20);
    ask_along(&a, &t, t.count - 20);
    CHECK(says(&a, 0, NAME) && says(&a, 1, 300));
    asker_fini(&a);
}

/* Lines that are left out, and lines that come in: behind two tokens the copy goes on, and nothing
 * is remembered that could be made elsewhere. */
TEST(a_copy_goes_on_behind_lines_that_went_or_came)
{
    text t = {0};
    asker a;
    asker_init(&a);
    const uint32_t prompt = say_source(&t);
    say_run(&t, 0, 10);
    say_run(&t, 700, 5); /* came */
    say_run(&t, 10, 2);
    ask_along(&a, &t, prompt);
    CHECK(says(&a, 0, 12) && says(&a, 8, NAME) && a.match > 2 && a.match <= COPY_AGAIN);
    say_run(&t, 12, 8);
    say(&t, NAME);
    say_run(&t, 106, 2); /* six went */
    ask_along(&a, &t, t.count - 11);
    CHECK(says(&a, 0, 108) && a.match > 2 && !a.cursor.num_edits);
    asker_fini(&a);
}

/* Texts of few kinds of tokens that copy themselves with edits: a guess has tokens of the text
 * alone and no more than there is room for, and what is remembered keeps its bounds. */
TEST(whatever_a_text_does_a_guess_stays_within_bounds)
{
    uint64_t seed = test_told_seed();
    uint64_t longer = 0, better = 0;
    for (int round = 0; round < 60; round++) {
        text t = {0};
        asker a;
        asker_init(&a);
        const uint32_t kinds = 2 + (uint32_t)round % 40, back = 30 + (uint32_t)round;
        for (uint32_t i = 0; i < RAD_COUNT(t.ids); i++) {
            t.ids[i] = (rad_token)(test_random(&seed) % kinds);
            if (i > 100 && test_random(&seed) % 12) t.ids[i] = t.ids[i - back];
        }
        for (t.count = 100; t.count < RAD_COUNT(t.ids);
             t.count += 1 + (uint32_t)(test_random(&seed) % 4)) {
            rad_token plain[ROOM],
                *out = malloc(ROOM * sizeof *out); /* so that asan sees its end */
            const uint32_t room = (uint32_t)(test_random(&seed) % (ROOM + 1));
            uint32_t match, place, before;
            uint32_t count = ngram_propose(a.index, t.ids, t.count, plain, room, &match, &place);
            CHECK(out != NULL);
            memcpy(out + ROOM - room, plain, count * sizeof *out);
            before = match;
            count = copy_propose(&a.cursor, t.ids, t.count, place, out + ROOM - room, count, room,
                                 &match);
            CHECK(count <= room && match >= before);
            for (uint32_t i = 0; i < count; i++)
                CHECK(out[ROOM - room + i] >= 0 && (uint32_t)out[ROOM - room + i] < kinds);
            CHECK(a.cursor.num_edits <= COPY_EDITS && a.cursor.at < t.count);
            CHECK(!a.cursor.at || !a.cursor.left);
            for (uint32_t i = 0; i < a.cursor.num_edits; i++) {
                const copy_edit *e = &a.cursor.edits[i];
                CHECK(e->from_len && e->from_len <= COPY_FROM && e->to_len && e->to_len <= COPY_TO);
            }
            longer += match > before;
            better += a.cursor.num_edits;
            free(out);
        }
        asker_fini(&a);
    }
    CHECK(longer > 100 && better > 100);
}

TEST_MAIN()
