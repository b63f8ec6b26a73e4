/* test_session_cache.c - conversations keep what they computed, and never more.
 *
 * A little engine "computes" K/V as a hash of all tokens up to a position, kept by slot.
 * After every step each committed position of every running request reads back its own
 * hash, each slot has one owner, and what a turn finds is what an obviously right model
 * (the tokens of the last turn, compared one by one) says it finds. */
#include "slot_content.h"
#include "test.h"

#include <radish/session.h>

#include "cache/session_cache_impl.h"

enum { MOST_SLOTS = 4096, MOST_TURNS = 6, MOST_LEN = 160, MOST_SESSIONS = 4 };

typedef struct turn {
    rad_req_kv kv;
    rad_token tokens[MOST_LEN];
    uint32_t len;
    int talk; /* -1: a request without a session */
    bool live;
} turn;

/* What the model knows of a session. */
typedef struct talk {
    rad_session id; /* 0: closed */
    rad_token tokens[MOST_LEN];
    uint32_t len;        /* of the history: what the client would send again */
    uint32_t kept;       /* positions with K/V that the last turn left; 0: nothing */
    uint32_t prompt_end; /* of the first turn since: the tree's part */
    bool active, closing;
} talk;

typedef struct world {
    uint32_t ps;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    uint64_t content[MOST_SLOTS];
    turn turns[MOST_TURNS];
    talk talks[MOST_SESSIONS];
    uint64_t seed, random;
} world;

static void world_init(world *w, uint32_t kind, uint32_t ps, uint32_t pages)
{
    *w = (world){.ps = ps};
    CHECK((pages + 1) * ps <= MOST_SLOTS);
    rad_kv_allocator_params kv = {sizeof kv, pages, ps};
    rad_req_to_token_pool_params rows = {sizeof rows, MOST_TURNS + MOST_SESSIONS, MOST_LEN};
    CHECK_OK(rad_kv_allocator_create(NULL, &kv, &w->kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(NULL, &rows, &w->rows, NULL));
    rad_cache_params inner = {.struct_size = sizeof inner,
                              .kind = kind,
                              .page_size = ps,
                              .kv_allocator = w->kv,
                              .req_to_token_pool = w->rows};
    rad_streaming_cache_params params = {.struct_size = sizeof params,
                                         .max_sessions = MOST_SESSIONS};
    CHECK_OK(rad_cache_create(NULL, &inner, &params.inner, NULL));
    CHECK_OK(rad_streaming_cache_create(NULL, &params, &w->cache, NULL));
}

static rad_session_stats stats(const world *w)
{
    rad_session_stats s;
    rad_session_get_stats(w->cache, &s);
    return s;
}

static void world_check(world *w)
{
    const rad_req_kv *held[MOST_TURNS];
    uint32_t num = 0;
    rad_error err = {0};
    uint64_t theirs = 0;
    for (int i = 0; i < MOST_TURNS; i++) {
        turn *r = &w->turns[i];
        if (!r->live) continue;
        held[num++] = &r->kv;
        if (!r->kv.row) continue;
        const rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
        uint32_t end = r->kv.committed_len;
        uint32_t at = first_foreign(w->content, row, r->tokens, 0, end, 7);
        CHECKF(at == end, "turn %d reads foreign K/V at %u, seed %llu\n", i, at,
               (unsigned long long)w->seed);
        theirs += (r->kv.allocated_len + w->ps - 1) / w->ps * w->ps - r->kv.protected_len;
    }
    CHECKF(rad_cache_check(w->cache, &err) == RAD_OK, "%s, seed %llu\n", err.text,
           (unsigned long long)w->seed);
    CHECKF(rad_cache_check_ownership(w->cache, held, num, &err) == RAD_OK, "%s, seed %llu\n",
           err.text, (unsigned long long)w->seed);
    CHECKF(rad_kv_available_size(w->kv) + rad_cache_total_size(w->cache) + theirs ==
               (uint64_t)rad_kv_num_pages(w->kv) * w->ps,
           "tokens are lost, seed %llu\n", (unsigned long long)w->seed);
}

static void world_fini(world *w)
{
    world_check(w);
    CHECK(stats(w).active == 0);
    rad_session_release_idle(w->cache, UINT32_MAX);
    CHECK(stats(w).held == 0 && stats(w).held_tokens == 0);
    CHECK(rad_cache_protected_size(w->cache) == 0);
    CHECK(rad_req_to_token_available(w->rows) == MOST_TURNS + MOST_SESSIONS);
    world_check(w);
    CHECK_OK(rad_cache_reset(w->cache));
    CHECK(rad_kv_available_pages(w->kv) == rad_kv_num_pages(w->kv));
    rad_cache_destroy(w->cache);
    rad_req_to_token_pool_destroy(w->rows);
    rad_kv_allocator_destroy(w->kv);
}

static void set_key(world *w, turn *r)
{
    r->kv.key = (rad_key){.tokens = r->tokens,
                          .num_tokens = r->len,
                          .session = r->talk >= 0 ? w->talks[r->talk].id : 0};
}

static void say(turn *r, const char *text)
{
    for (; *text; text++)
        r->tokens[r->len++] = *text;
}

/* Matches, locks, begins, takes a row; returns where to go on, or the status of a no. */
static rad_status start(world *w, turn *r, uint32_t *from, rad_error *err)
{
    rad_slot slots[MOST_LEN];
    rad_match m;
    set_key(w, r);
    rad_key key = r->kv.key;
    key.num_tokens = r->len - 1;
    CHECK_OK(rad_cache_match_prefix(w->cache, &key, slots, &m, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, m.last_node, &r->kv.lock, NULL));
    rad_status status = rad_session_begin(w->cache, &r->kv, err);
    if (status) return status;
    if (!r->kv.row) {
        CHECK(!session_is_kept(m.last_node));
        CHECK_OK(rad_req_to_token_alloc(w->rows, &r->kv.row));
        memcpy(rad_req_to_token_row(w->rows, r->kv.row), slots, m.prefix_tokens * sizeof *slots);
        r->kv.protected_len = r->kv.committed_len = r->kv.allocated_len = m.prefix_tokens;
    } else {
        CHECK(session_is_kept(m.last_node) && r->kv.committed_len == m.prefix_tokens);
        CHECK(!memcmp(rad_req_to_token_row(w->rows, r->kv.row), slots,
                      m.prefix_tokens * sizeof *slots));
    }
    *from = r->kv.committed_len;
    r->live = true;
    return RAD_OK;
}

static bool compute(world *w, turn *r, uint32_t len)
{
    rad_slot *row = rad_req_to_token_row(w->rows, r->kv.row);
    uint32_t from = r->kv.allocated_len;
    rad_slot last = from ? row[from - 1] : -1;
    rad_status status = RAD_OK;
    if (len > from) status = rad_kv_alloc_extend(w->kv, 1, &from, &len, &last, row + from, NULL);
    if (status == RAD_FULL) {
        CHECK_OK(rad_cache_evict(w->cache, len - from + w->ps, NULL, NULL));
        status = rad_kv_alloc_extend(w->kv, 1, &from, &len, &last, row + from, NULL);
    }
    if (status) return false;
    r->kv.allocated_len = len;
    write_content(w->content, row, r->tokens, r->kv.committed_len, len, 7);
    r->kv.committed_len = len;
    return true;
}

static void publish(world *w, turn *r, int chunked)
{
    rad_error err = {0};
    rad_status status = rad_cache_unfinished_req(w->cache, &r->kv, chunked, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
}

static void finish(world *w, turn *r, int is_insert)
{
    rad_error err = {0};
    static const rad_req_kv empty;
    CHECKF(rad_cache_finished_req(w->cache, &r->kv, is_insert, &err) == RAD_OK, "%s\n", err.text);
    CHECK(!memcmp(&r->kv, &empty, sizeof empty));
    r->live = false;
}

/* A whole turn: everything said is computed, then `answer` but for its last token. */
static uint32_t whole_turn(world *w, turn *r, const char *text, const char *answer)
{
    uint32_t from;
    say(r, text);
    CHECK_OK(start(w, r, &from, NULL));
    CHECK(compute(w, r, r->len));
    world_check(w);
    publish(w, r, 0);
    world_check(w);
    say(r, answer);
    set_key(w, r);
    CHECK(compute(w, r, r->len - 1));
    finish(w, r, 1);
    world_check(w);
    return from;
}

static void open(world *w, int i)
{
    w->talks[i] = (talk){0};
    CHECK_OK(rad_session_open(w->cache, &w->talks[i].id));
    CHECK(w->talks[i].id);
}

TEST(the_next_turn_goes_on_where_the_last_one_ended)
{
    static world w;
    uint32_t sizes[] = {1, 2, 16};
    for (uint32_t i = 0; i < 6; i++) {
        world_init(&w, i / 3 ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX, sizes[i % 3], 100);
        uint32_t ps = w.ps, prompt = 20;
        open(&w, 0);
        turn *r = &w.turns[0];
        *r = (turn){.talk = 0};
        CHECK(whole_turn(&w, r, "you are a nice robot", " yes.") == 0);
        CHECK(stats(&w).held == 1);
        /* The prompt is in the tree and the answer only in the slot. */
        uint32_t in_tree = i / 3 ? 0 : prompt / ps * ps;
        CHECK(rad_cache_protected_size(w.cache) == in_tree);
        CHECK(stats(&w).held_tokens == (24 + ps - 1) / ps * ps - in_tree);
        /* All 24 committed tokens are found, within a page too. */
        CHECK(whole_turn(&w, r, " and you?", " me too") == 24);
        CHECK(whole_turn(&w, r, "?", "!") == 25 + 9 + 6);
        CHECK(stats(&w).restored == 2);
        CHECK_OK(rad_session_close(w.cache, w.talks[0].id));
        CHECK(rad_session_close(w.cache, w.talks[0].id) == RAD_E_STATE);
        CHECK(stats(&w).held == 0 && stats(&w).open == 0);
        world_fini(&w);
    }
}

/* At least the last token is computed, and what the client left out is freed. */
TEST(a_shorter_or_changed_history_keeps_what_agrees)
{
    static world w;
    for (uint32_t ps = 1; ps <= 16; ps *= 4) {
        world_init(&w, RAD_CACHE_RADIX, ps, 100);
        open(&w, 0);
        turn *r = &w.turns[0];
        *r = (turn){.talk = 0};
        whole_turn(&w, r, "0123456789abcdef", "ghijklmnopqrstuvwxyz"); /* 16 and 20 */
        uint32_t from, before = (uint32_t)stats(&w).held_tokens;
        r->len = 24; /* the end of the answer is not there any more */
        CHECK_OK(start(&w, r, &from, NULL));
        CHECK(from == 23 && r->kv.protected_len == 16);
        world_check(&w);
        finish(&w, r, 1);
        CHECK(stats(&w).held_tokens < before || ps == 16);
        r->tokens[20] = '!';
        CHECK_OK(start(&w, r, &from, NULL));
        CHECK(from == 20);
        world_check(&w);
        finish(&w, r, 1);
        /* A change within the tree's part: the session starts anew, from the tree. */
        r->tokens[9] = '!';
        CHECK_OK(start(&w, r, &from, NULL));
        CHECK(from == 9 / ps * ps && stats(&w).held == 0);
        CHECK(compute(&w, r, r->len));
        finish(&w, r, 1);
        world_fini(&w);
    }
}

TEST(an_overlapping_turn_is_refused_in_words_and_harms_nobody)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 2, 100);
    open(&w, 0);
    turn *a = &w.turns[0], *b = &w.turns[1];
    uint32_t from;
    rad_error err = {0};
    *a = (turn){.talk = 0};
    say(a, "first turn of the session");
    CHECK_OK(start(&w, a, &from, NULL));
    *b = *a;
    b->kv = (rad_req_kv){0};
    CHECK(start(&w, b, &from, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "already has an active request"));
    finish(&w, b, 0); /* only unlocks */
    CHECK(stats(&w).active == 1);
    CHECK(compute(&w, a, a->len));
    publish(&w, a, 0);
    finish(&w, a, 1);
    CHECK(stats(&w).active == 0);

    /* A record that says it is a turn that it is not. */
    CHECK_OK(start(&w, a, &from, NULL));
    rad_req_kv forged = a->kv;
    forged.turn++;
    CHECK(rad_cache_finished_req(w.cache, &forged, 1, &err) == RAD_E_STATE);
    forged = a->kv;
    forged.turn = 0;
    CHECK(rad_cache_unfinished_req(w.cache, &forged, 0, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "has not begun"));
    world_check(&w);
    finish(&w, a, 1);

    /* Closed while it runs: it ends as it should, and then nothing is left. */
    CHECK_OK(start(&w, a, &from, NULL));
    CHECK_OK(rad_session_close(w.cache, w.talks[0].id));
    b->talk = 0;
    b->kv = (rad_req_kv){0};
    CHECK(start(&w, b, &from, &err) == RAD_E_STATE && strstr(err.text, "not open"));
    finish(&w, b, 0);
    finish(&w, a, 1);
    CHECK(stats(&w).open == 0 && stats(&w).held == 0);
    world_fini(&w);
}

/* A turn is cut off at every point of its life; the session goes on after each. */
TEST(an_abort_at_any_point_leaves_nothing_behind)
{
    static world w;
    for (uint32_t ps = 1; ps <= 16; ps *= 4)
        for (int point = 0; point < 14; point++) {
            world_init(&w, RAD_CACHE_RADIX, ps, 100);
            open(&w, 0);
            turn *r = &w.turns[0];
            uint32_t from;
            *r = (turn){.talk = 0};
            if (point >= 7) whole_turn(&w, r, "a turn that went well", "and its answer");
            say(r, "the turn that is cut off somewhere");
            set_key(&w, r);
            rad_slot slots[MOST_LEN];
            rad_match m;
            int at = point % 7;
            r->live = true;
            CHECK_OK(rad_cache_match_prefix(w.cache, &r->kv.key, slots, &m, NULL));
            CHECK_OK(rad_cache_inc_lock_ref(w.cache, m.last_node, &r->kv.lock, NULL));
            if (at == 0) finish(&w, r, 0);
            world_check(&w);
            if (at >= 1) CHECK_OK(rad_session_begin(w.cache, &r->kv, NULL));
            if (at == 1) finish(&w, r, 0);
            world_check(&w);
            if (at >= 2 && !r->kv.row) CHECK_OK(rad_req_to_token_alloc(w.rows, &r->kv.row));
            if (at == 2) finish(&w, r, 0);
            if (at >= 3) CHECK(compute(&w, r, r->kv.committed_len + 9));
            if (at == 3) finish(&w, r, 0);
            if (at >= 4) publish(&w, r, 1);
            if (at == 4) finish(&w, r, 0);
            world_check(&w);
            if (at >= 5) CHECK(compute(&w, r, r->len));
            if (at >= 5) publish(&w, r, 0);
            if (at == 5) finish(&w, r, 0);
            world_check(&w);
            if (at >= 6) {
                say(r, "!?");
                set_key(&w, r);
                CHECK(compute(&w, r, r->len));
                finish(&w, r, 0);
            }
            world_check(&w);
            CHECK(stats(&w).active == 0);
            CHECK(stats(&w).held == (point == 7)); /* not begun: untouched */
            say(r, " again");
            CHECK_OK(start(&w, r, &from, NULL));
            CHECK(compute(&w, r, r->len));
            world_check(&w);
            finish(&w, r, 1);
            CHECK(stats(&w).held == 1);
            world_fini(&w);
        }
}

/* Many sessions, a small pool: nothing wedges, and a dropped session computes anew what
 * the tree has not kept. */
TEST(idle_sessions_give_way_under_pressure)
{
    static world w;
    for (uint32_t ps = 1; ps <= 16; ps *= 4) {
        world_init(&w, RAD_CACHE_RADIX, ps, 128 / ps);
        for (int i = 0; i < MOST_SESSIONS; i++) {
            open(&w, i);
            w.turns[0] = (turn){.talk = i};
            char text[32];
            snprintf(text, sizeof text, "%c prompt of thirty letters...", 'a' + i);
            whole_turn(&w, &w.turns[0], text, "answer");
        }
        CHECK(rad_session_open(w.cache, &(rad_session){0}) == RAD_FULL);
        /* One that needs the whole pool has it. */
        CHECK(rad_cache_evictable_size(w.cache) + rad_cache_protected_size(w.cache) +
                  rad_kv_available_size(w.kv) ==
              128);
        turn *big = &w.turns[1];
        uint32_t from;
        *big = (turn){.talk = -1};
        for (int i = 0; i < 128; i++)
            say(big, "#");
        CHECK_OK(start(&w, big, &from, NULL));
        CHECK(compute(&w, big, 128));
        world_check(&w);
        CHECK(stats(&w).held == 0 && stats(&w).dropped == MOST_SESSIONS);
        CHECK(stats(&w).open == MOST_SESSIONS);
        finish(&w, big, 0);
        CHECK(whole_turn(&w, &w.turns[0], " next", " ok") == 0); /* computed anew */
        /* Given back for its row, not for its pages: the tree has it still. */
        CHECK(rad_session_release_idle(w.cache, 1) == 1);
        world_check(&w);
        uint32_t len = w.turns[0].len - 1;
        CHECK(whole_turn(&w, &w.turns[0], " and on", ".") == len / ps * ps);
        /* Matched, then gone before it began: to be asked again. */
        turn *r = &w.turns[0];
        say(r, "...");
        set_key(&w, r);
        rad_match m;
        rad_slot slots[128], its[16];
        rad_token odd[16] = {-5};
        rad_error err = {0};
        CHECK_OK(rad_cache_match_prefix(w.cache, &r->kv.key, slots, &m, NULL));
        CHECK(session_is_kept(m.last_node));
        for (uint32_t i = 0; i < ps; i++)
            its[i] = slots[m.prefix_tokens - 1] / (rad_slot)ps * (rad_slot)ps + (rad_slot)i;
        rad_key other = {.tokens = odd, .num_tokens = ps};
        CHECK(rad_cache_insert(w.cache, &other, its, NULL, NULL, &err) == RAD_E_STATE);
        CHECK(strstr(err.text, ps > 1 ? "at position 0 is an idle session's"
                                      : "at position 0 is the cache's already"));
        CHECK_OK(rad_cache_inc_lock_ref(w.cache, m.last_node, &r->kv.lock, NULL));
        CHECK(rad_session_release_idle(w.cache, 1) == 1);
        CHECK(rad_session_begin(w.cache, &r->kv, NULL) == RAD_AGAIN && !r->kv.lock.held);
        CHECK(rad_cache_inc_lock_ref(w.cache, m.last_node, &r->kv.lock, NULL) == RAD_E_STATE);
        world_fini(&w);
    }
}

TEST(namespaces_of_a_session_do_not_mix)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 2, 100);
    open(&w, 0);
    turn *r = &w.turns[0];
    *r = (turn){.talk = 0};
    whole_turn(&w, r, "what the first tenant said", "and heard");
    rad_key key = {.tokens = r->tokens, .num_tokens = r->len, .session = w.talks[0].id};
    rad_match m;
    CHECK_OK(rad_cache_lookup(w.cache, &key, &m));
    CHECK(m.prefix_tokens == r->len - 1);
    const char *names[][2] = {{"", NULL}, {NULL, ""}, {"lora", NULL}, {NULL, "salt"}};
    for (int i = 0; i < 4; i++) {
        key.extra_key = names[i][0];
        key.cache_salt = names[i][1];
        CHECK_OK(rad_cache_match_prefix(w.cache, &key, NULL, &m, NULL));
        CHECK(m.prefix_tokens == 0);
    }
    world_fini(&w);
}

TEST(create_survives_every_allocation_failing)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 2, 100);
    rad_cache_params inner = {.struct_size = sizeof inner,
                              .page_size = 2,
                              .kv_allocator = w.kv,
                              .req_to_token_pool = w.rows};
    rad_streaming_cache_params params = {.struct_size = sizeof params};
    rad_cache *cache = NULL;
    CHECK(rad_streaming_cache_create(NULL, &params, &cache, NULL) == RAD_E_INVAL);
    CHECK_OK(rad_cache_create(NULL, &inner, &params.inner, NULL));
    rad_cache_params pairs = inner;
    rad_streaming_cache_params over_pairs = {.struct_size = sizeof over_pairs};
    pairs.is_eagle = 1;
    CHECK_OK(rad_cache_create(NULL, &pairs, &over_pairs.inner, NULL));
    CHECK(rad_streaming_cache_create(NULL, &over_pairs, &cache, NULL) == RAD_E_UNSUPPORTED);
    rad_cache_destroy(over_pairs.inner);
    rad_session none;
    CHECK(rad_session_open(params.inner, &none) == RAD_E_UNSUPPORTED);
    for (long n = 0; !cache; n++) {
        test_env t;
        rad_env env = test_env_failing_at(&t, n);
        rad_status status = rad_streaming_cache_create(&env, &params, &cache, NULL);
        CHECK(status == (cache ? RAD_OK : RAD_E_NOMEM));
        CHECK(n < 20 && (cache || t.bytes == 0));
        if (cache) rad_cache_destroy(cache);
    }
    world_fini(&w);
}

/* --- random conversations against the model --- */

static uint32_t below(world *w, uint32_t n)
{
    return (uint32_t)(test_random(&w->random) % n);
}

static uint32_t agree(const rad_token *a, const rad_token *b, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && a[n] == b[n])
        n++;
    return n;
}

static void random_start(world *w, turn *r)
{
    *r = (turn){.talk = (int)below(w, MOST_SESSIONS + 2) - 2};
    talk *t = r->talk >= 0 ? &w->talks[r->talk] : NULL;
    if (t && !t->id) return;
    if (!t) {
        r->talk = -1;
        say(r, "sys");
    } else {
        memcpy(r->tokens, t->tokens, t->len * sizeof *t->tokens);
        r->len = t->len;
        uint32_t what = below(w, 10);
        if (what == 0 && r->len) r->len = 1 + below(w, r->len);
        if (what == 1 && r->len) r->tokens[below(w, r->len)] ^= 1;
        if (r->len > MOST_LEN - 60) r->len = 1 + below(w, 40); /* a long talk is cut */
        if (!r->len) say(r, "sys");
    }
    for (uint32_t more = 1 + below(w, 20); more; more--)
        r->tokens[r->len++] = (rad_token)below(w, 3);

    uint64_t restored = stats(w).restored, dropped = stats(w).dropped;
    uint32_t from = 0, expect = 0;
    if (t && t->kept) expect = agree(t->tokens, r->tokens, t->kept);
    if (expect >= r->len) expect = r->len - 1;
    rad_status status = start(w, r, &from, NULL);
    CHECK(stats(w).dropped == dropped);
    if (t && t->active) {
        CHECK(status == RAD_E_STATE);
        r->live = true;
        finish(w, r, 0);
        return;
    }
    CHECK(status == RAD_OK);
    if (!t) return;
    if (t->kept && expect >= t->prompt_end)
        CHECKF(from == expect || (!expect && stats(w).restored == restored),
               "went on from %u, not %u, seed %llu\n", from, expect, (unsigned long long)w->seed);
    else
        CHECK(stats(w).restored == restored);
    t->active = true;
    if (stats(w).restored == restored) t->prompt_end = r->kv.protected_len;
}

static void random_end(world *w, turn *r, int is_insert)
{
    talk *t = r->talk >= 0 ? &w->talks[r->talk] : NULL;
    if (t) {
        t->active = false;
        t->kept = is_insert ? r->kv.committed_len : 0;
        t->len = r->len;
        memcpy(t->tokens, r->tokens, r->len * sizeof *r->tokens);
        if (t->closing) *t = (talk){0};
    }
    finish(w, r, is_insert);
}

static void random_step(world *w)
{
    uint64_t dropped = stats(w).dropped;
    turn *r = &w->turns[below(w, MOST_TURNS)];
    if (!r->live) {
        random_start(w, r);
    } else if (r->kv.committed_len < r->len) {
        uint32_t left = r->len - r->kv.committed_len;
        if (!compute(w, r, r->kv.committed_len + 1 + below(w, left)))
            random_end(w, r, (int)below(w, 2)); /* retracted */
        else if (below(w, 4))
            publish(w, r, r->kv.committed_len < r->len);
        if (r->live && r->talk >= 0 && r->kv.lock.held && !session_is_kept(r->kv.lock.node))
            w->talks[r->talk].prompt_end = r->kv.protected_len;
    } else if (r->len < MOST_LEN - 30 && below(w, 3)) {
        r->tokens[r->len++] = (rad_token)below(w, 3);
        set_key(w, r);
        if (r->talk >= 0 && !r->kv.key.session) CHECK(0);
    } else {
        random_end(w, r, below(w, 5) != 0);
    }
    talk *t = &w->talks[below(w, MOST_SESSIONS)];
    switch (below(w, 24)) {
    case 0:
        if (!t->id) open(w, (int)(t - w->talks));
        break;
    case 1:
        if (t->id && !t->closing && below(w, 4) == 0) {
            CHECK_OK(rad_session_close(w->cache, t->id));
            if (t->active)
                t->closing = true;
            else
                *t = (talk){0};
        }
        break;
    case 2: CHECK_OK(rad_cache_evict(w->cache, below(w, 60), NULL, NULL)); break;
    case 3: rad_session_release_idle(w->cache, below(w, 2)); break;
    default: break;
    }
    if (stats(w).dropped == dropped) return;
    for (int i = 0; i < MOST_SESSIONS; i++) { /* which ones: the cache says */
        rad_match m;
        talk *k = &w->talks[i];
        if (!k->id || k->active || !k->kept) continue;
        rad_key key = {.tokens = k->tokens, .num_tokens = k->len, .session = k->id};
        CHECK_OK(rad_cache_lookup(w->cache, &key, &m));
        if (!session_is_kept(m.last_node)) k->kept = 0;
    }
}

TEST(random_conversations_agree_with_the_model)
{
    static world w;
    uint32_t sizes[] = {1, 2, 16};
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t seed = test_seed() + i;
        uint32_t ps = sizes[i % 3];
        world_init(&w, i / 3 ? RAD_CACHE_CHUNK : RAD_CACHE_RADIX, ps, 480 / ps);
        w.seed = w.random = seed;
        for (uint64_t n = test_scale(20000, 1000000); n; n--) {
            random_step(&w);
            world_check(&w);
        }
        CHECK(stats(&w).restored > 10 && stats(&w).dropped > 10);
        for (int k = 0; k < MOST_TURNS; k++)
            if (w.turns[k].live) random_end(&w, &w.turns[k], 1);
        world_fini(&w);
    }
}

TEST_MAIN()
