/* test_req_life.c - a request publishes what it computed, and leaves nothing behind. (req_rig.h: any
 * slot that is shared too early, freed too early or owned twice shows as a wrong number.) */
#include "req_rig.h"

#include "cache/cache_impl.h"

enum { EAGLE = 16, WINDOWS = 32 }; /* with a kind: bigram keys, and layers that see a window */
enum { WINDOW = 11 };

static void world_init(world *w, uint32_t kind, uint32_t ps, uint32_t pages, uint32_t max_nodes)
{
    bool windows = kind / WINDOWS;
    rad_cache_params params = {.kind = kind % EAGLE,
                               .is_eagle = kind / EAGLE % 2,
                               .window_tokens = windows ? WINDOW : 0,
                               .page_size = ps,
                               .max_nodes = max_nodes};
    world_make(w, params, pages, windows ? pages * 2 / 3 : 0);
}

static void prompt(req *r, const char *text, const char *salt)
{
    *r = (req){.live = true, .len = (uint32_t)strlen(text)};
    for (uint32_t i = 0; i < r->len; i++)
        r->tokens[i] = text[i];
    r->prompt_len = r->len;
    r->kv.key = (rad_key){.tokens = r->tokens, .num_tokens = r->len, .cache_salt = salt};
}

/* Match and lock. The last token is always computed. */
static uint32_t admit(world *w, req *r, rad_slot *slots)
{
    rad_key key = r->kv.key;
    rad_match m;
    key.num_tokens = r->len - 1;
    CHECK_OK(rad_cache_match_prefix(w->cache, &key, slots, &m, NULL));
    CHECK_OK(rad_cache_inc_lock_ref(w->cache, m.last_node, &r->kv.lock, NULL));
    return m.prefix_tokens;
}

static void start(world *w, req *r)
{
    rad_slot slots[MOST_LEN];
    uint32_t prefix = admit(w, r, slots);
    take_row(w, r, slots, prefix);
}

/* Slots for positions up to `len`; evicts when short. */
static bool reserve(world *w, req *r, uint32_t len)
{
    rad_status status = extend(w, r, len);
    if (status == RAD_FULL) {
        uint32_t need = len - r->kv.allocated_len + w->ps;
        CHECK_OK(rad_cache_evict(w->cache, need, NULL, NULL));
        if (w->window) CHECK_OK(rad_cache_evict_window(w->cache, need, NULL));
        status = extend(w, r, len);
    }
    return !status;
}

static void prefill(world *w, req *r, uint32_t len)
{
    CHECK(reserve(w, r, len));
    commit(w, r, len);
    world_check(w);
}

static void append(req *r, rad_token token)
{
    r->tokens[r->len++] = token;
    r->kv.key.num_tokens = r->len;
}

static void publish(world *w, req *r, int chunked)
{
    rad_error err = {0};
    CHECKF(rad_cache_unfinished_req(w->cache, &r->kv, chunked, &err) == RAD_OK, "%s", err.text);
    world_check(w);
}

static void finish(world *w, req *r, int is_insert)
{
    rad_error err = {0};
    CHECKF(rad_cache_finished_req(w->cache, &r->kv, is_insert, &err) == RAD_OK, "%s", err.text);
    static const rad_req_kv empty;
    CHECK(memcmp(&r->kv, &empty, sizeof empty) == 0);
    r->live = false;
    world_check(w);
}

static uint32_t cached(world *w, const char *text, const char *salt)
{
    req r;
    rad_match m;
    prompt(&r, text, salt);
    CHECK_OK(rad_cache_lookup(w->cache, &r.kv.key, &m));
    return m.prefix_tokens;
}

TEST(a_request_leaves_its_whole_pages_to_the_next_one)
{
    static world w;
    for (uint32_t ps = 1; ps <= 16; ps *= 4) {
        world_init(&w, RAD_CACHE_RADIX, ps, 100, 0);
        const char *text = "the quick brown fox jumps over";
        uint32_t n = (uint32_t)strlen(text);
        req *a = &w.reqs[0];
        prompt(a, text, NULL);
        start(&w, a);
        CHECK(a->kv.protected_len == 0);
        prefill(&w, a, n);
        publish(&w, a, 0);
        CHECK(a->kv.protected_len == n / ps * ps && a->kv.published == 1);
        CHECK(rad_cache_protected_size(w.cache) == n / ps * ps);
        for (int i = 0; i < 5; i++) {
            append(a, '!');
            prefill(&w, a, a->len - 1 + 1);
        }
        finish(&w, a, 1);
        CHECK(cached(&w, "the quick brown fox jumps over!!!!!", NULL) == (n + 5) / ps * ps);

        req *b = &w.reqs[1];
        prompt(b, text, NULL);
        start(&w, b);
        CHECK(b->kv.protected_len == (n - 1) / ps * ps); /* the last token is computed */
        prefill(&w, b, n);
        finish(&w, b, 1);
        world_fini(&w);
    }
}

/* The story behind the ruler's order (a field bug elsewhere): both requests compute the
 * same prompt in one batch. The second must give its own pages back, and its row must
 * name the tree's before anybody can be handed them. */
TEST(two_requests_with_the_same_prompt_in_one_batch)
{
    static world w;
    for (uint32_t ps = 1; ps <= 16; ps *= 4)
        for (int longer = 0; longer < 2; longer++) {
            world_init(&w, RAD_CACHE_RADIX, ps, 200, 0);
            req *a = &w.reqs[0], *b = &w.reqs[1];
            prompt(a, "one two three four five six seven", NULL);
            prompt(b,
                   longer ? "one two three four five six seven eight nine ten"
                          : "one two three four five six seven",
                   NULL);
            start(&w, a);
            start(&w, b);
            prefill(&w, a, a->len);
            prefill(&w, b, b->len);
            uint64_t before = rad_kv_available_pages(w.kv);
            publish(&w, a, 0);
            CHECK(rad_kv_available_pages(w.kv) == before);
            publish(&w, b, 0);
            CHECK(rad_kv_available_pages(w.kv) == before + a->len / ps);
            const rad_slot *row_a = rad_req_to_token_row(w.rows, a->kv.row);
            const rad_slot *row_b = rad_req_to_token_row(w.rows, b->kv.row);
            CHECK(memcmp(row_a, row_b, a->len / ps * ps * sizeof *row_a) == 0);
            append(a, 'x');
            append(b, 'x');
            prefill(&w, a, a->len);
            prefill(&w, b, b->len);
            finish(&w, a, 1);
            finish(&w, b, 1);
            world_fini(&w);
        }
}

/* A salt that is too long to be kept costs sharing, not the request. */
TEST(a_request_in_a_namespace_that_cannot_be_kept_runs_unshared)
{
    static world w;
    static char salt[1000];
    memset(salt, 's', sizeof salt - 1);
    world_init(&w, RAD_CACHE_RADIX, 4, 60, 0);
    req *r = &w.reqs[0];
    prompt(r, "aaaabbbbccccdd", salt);
    start(&w, r);
    prefill(&w, r, 8);
    CHECK(rad_cache_unfinished_req(w.cache, &r->kv, 1, NULL) == RAD_FULL);
    prefill(&w, r, r->len);
    CHECK(rad_cache_unfinished_req(w.cache, &r->kv, 0, NULL) == RAD_FULL);
    world_check(&w);
    finish(&w, r, 1);
    CHECK(rad_cache_total_size(w.cache) == 0);
    world_fini(&w);
}

TEST(duplicates_are_freed_when_a_request_finishes_without_publishing_before)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 4, 60, 0);
    for (int i = 0; i < 3; i++)
        prompt(&w.reqs[i], "aaaabbbbccccddddee", NULL);
    for (int i = 0; i < 3; i++)
        start(&w, &w.reqs[i]);
    for (int i = 0; i < 3; i++)
        prefill(&w, &w.reqs[i], 18);
    for (int i = 0; i < 3; i++)
        finish(&w, &w.reqs[i], 1);
    CHECK(rad_cache_total_size(w.cache) == 16);
    world_fini(&w);
}

/* P3: an abort at any point leaves nothing that a later hit could read unfinished. */
TEST(an_abort_at_every_point_leaves_nothing_behind)
{
    enum {
        WAITING,
        ROW,
        RESERVED,
        CHUNK,
        CHUNK_PUBLISHED,
        CHUNK_2,
        PROMPT,
        DECODE,
        SPECULATED,
        END
    };
    const char *text = "0123456789abcdefghijklmnopqrstuvwxyz";
    static world w;
    for (uint32_t ps = 1; ps <= 16; ps *= 4)
        for (int warm = 0; warm < 2; warm++)
            for (int is_insert = 0; is_insert < 2; is_insert++)
                for (int point = WAITING; point < END; point++) {
                    world_init(&w, RAD_CACHE_RADIX, ps, 200, 0);
                    uint32_t had = 0, committed = 0;
                    if (warm) {
                        req *first = &w.reqs[7];
                        prompt(first, "0123456789abcdefgh--", NULL);
                        start(&w, first);
                        prefill(&w, first, first->len);
                        finish(&w, first, 1);
                        had = cached(&w, text, NULL);
                    }
                    req *r = &w.reqs[0];
                    prompt(r, text, NULL);
                    rad_slot slots[MOST_LEN];
                    uint32_t prefix = admit(&w, r, slots);
                    world_check(&w);
                    if (point >= ROW) take_row(&w, r, slots, prefix);
                    if (point >= RESERVED) CHECK(reserve(&w, r, 25));
                    if (point >= CHUNK) commit(&w, r, 25);
                    if (point >= CHUNK_PUBLISHED) publish(&w, r, 1);
                    if (point >= CHUNK_2) prefill(&w, r, r->len);
                    if (point >= PROMPT) publish(&w, r, 0);
                    if (point >= DECODE)
                        for (int i = 0; i < 7; i++) {
                            append(r, '.');
                            prefill(&w, r, r->len);
                        }
                    if (point >= SPECULATED) CHECK(reserve(&w, r, r->len + 20));
                    world_check(&w);
                    committed = r->kv.committed_len;
                    uint32_t published = r->kv.protected_len;
                    finish(&w, r, is_insert);
                    uint32_t now = cached(&w, "0123456789abcdefghijklmnopqrstuvwxyz.......", NULL);
                    uint32_t want = is_insert ? committed / ps * ps : published;
                    CHECKF(now == (want > had ? want : had), "point %d: %u cached, want %u\n",
                           point, now, want);
                    world_fini(&w);
                }
}

static uint32_t hits_of(world *w);

TEST(hits_count_later_requests_only)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 1, 400, 0);
    const char *text = "a common prompt of some length";
    req *a = &w.reqs[0], *b = &w.reqs[1], *c = &w.reqs[2];
    prompt(a, text, NULL);
    prompt(b, text, NULL);
    start(&w, a);
    start(&w, b);
    prefill(&w, a, 10);
    publish(&w, a, 1); /* a's own chunks do not count for a */
    prefill(&w, a, 20);
    publish(&w, a, 1);
    prefill(&w, a, a->len);
    publish(&w, a, 0);
    prefill(&w, b, b->len);
    publish(&w, b, 0); /* came before any of it was there */
    CHECK(hits_of(&w) == 0);
    prompt(c, text, NULL);
    start(&w, c);
    prefill(&w, c, c->len);
    CHECK(hits_of(&w) == 0); /* a match does not count */
    publish(&w, c, 0);
    CHECK(hits_of(&w) == 1);
    append(c, '!');
    prefill(&w, c, c->len);
    finish(&w, c, 1); /* a request counts once */
    append(a, '?');
    prefill(&w, a, a->len);
    finish(&w, a, 1);
    finish(&w, b, 1);
    CHECK(hits_of(&w) == 1);
    world_fini(&w);
}

typedef struct hit_walk {
    uint32_t most;
} hit_walk;

static void most_hits(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                      const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                      uint32_t hit_count)
{
    hit_walk *walk = user;
    (void)node, (void)depth, (void)tokens, (void)slots, (void)num_tokens, (void)lock_ref;
    if (hit_count > walk->most) walk->most = hit_count;
}

static uint32_t hits_of(world *w)
{
    hit_walk walk = {0};
    CHECK_OK(rad_cache_walk(w->cache, most_hits, &walk));
    return walk.most;
}

TEST(a_wrong_record_is_refused_and_nothing_changes)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 4, 60, 0);
    req *a = &w.reqs[0], *b = &w.reqs[1];
    prompt(a, "aaaabbbbccccdd", "x");
    prompt(b, "aaaabbbbccccdd", "x");
    start(&w, a);
    prefill(&w, a, a->len);
    publish(&w, a, 0);
    start(&w, b);
    prefill(&w, b, b->len);
    rad_slot *row = rad_req_to_token_row(w.rows, b->kv.row);
    rad_error err;

    rad_req_kv wrong = b->kv;
    wrong.lock.node.generation += 2;
    CHECK(rad_cache_unfinished_req(w.cache, &wrong, 0, &err) == RAD_E_STATE);
    CHECK(rad_cache_finished_req(w.cache, &wrong, 1, &err) == RAD_E_STATE);
    wrong = b->kv;
    wrong.lock = (rad_receipt){0};
    CHECK(rad_cache_finished_req(w.cache, &wrong, 1, &err) == RAD_E_STATE);
    wrong = b->kv;
    wrong.row = 8;
    CHECK(rad_cache_finished_req(w.cache, &wrong, 1, &err) == RAD_E_STATE);
    wrong.row = 10000;
    CHECK(rad_cache_finished_req(w.cache, &wrong, 1, &err) == RAD_E_STATE);
    wrong.row = 0;
    CHECK(rad_cache_finished_req(w.cache, &wrong, 1, &err) == RAD_E_INVAL);
    wrong = b->kv;
    wrong.committed_len = wrong.allocated_len + 1;
    CHECK(rad_cache_unfinished_req(w.cache, &wrong, 0, &err) == RAD_E_INVAL);
    wrong = b->kv;
    wrong.key.num_tokens = 3;
    CHECK(rad_cache_unfinished_req(w.cache, &wrong, 0, &err) == RAD_E_INVAL);
    wrong = b->kv;
    wrong.allocated_len = 100000;
    CHECK(rad_cache_unfinished_req(w.cache, &wrong, 0, &err) == RAD_E_INVAL);
    wrong = b->kv;
    wrong.key.cache_salt = "y"; /* its protected pages belong to x */
    CHECK(rad_cache_unfinished_req(w.cache, &wrong, 0, &err) == RAD_E_STATE);

    rad_slot kept = row[12];
    row[12] = 59 * 4; /* nobody was handed this page */
    CHECK(rad_cache_unfinished_req(w.cache, &b->kv, 0, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "slot 236") != NULL);
    row[12] = kept;
    row[13] = kept;
    CHECK(rad_cache_finished_req(w.cache, &b->kv, 1, &err) == RAD_E_STATE);
    row[13] = kept + 1;
    world_check(&w);
    publish(&w, b, 0);
    finish(&w, b, 1);
    finish(&w, a, 1);
    world_fini(&w);
}

TEST(ownership_names_what_is_lost_or_owned_twice)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 4, 60, 0);
    req *a = &w.reqs[0], *b = &w.reqs[1];
    rad_error err;
    prompt(a, "aaaabbbbccccdd", NULL);
    prompt(b, "eeeeffff", NULL);
    start(&w, a);
    prefill(&w, a, a->len);
    start(&w, b);
    prefill(&w, b, b->len);
    const rad_req_kv *only_a[1] = {&a->kv}, *both[2] = {&a->kv, &b->kv};
    CHECK(rad_cache_check_ownership(w.cache, only_a, 1, &err) == RAD_E_CORRUPT);
    CHECK(strstr(err.text, "lost") != NULL);
    rad_slot *row = rad_req_to_token_row(w.rows, b->kv.row);
    rad_slot kept[4];
    memcpy(kept, row + 4, sizeof kept);
    memcpy(row + 4, rad_req_to_token_row(w.rows, a->kv.row) + 8, sizeof kept);
    CHECK(rad_cache_check_ownership(w.cache, both, 2, &err) == RAD_E_CORRUPT);
    CHECKF(strstr(err.text, "request 0 and by request 1"), "%s", err.text);
    memcpy(row + 4, kept, sizeof kept);
    publish(&w, a, 0);
    row = rad_req_to_token_row(w.rows, a->kv.row);
    memcpy(kept, row + 4, sizeof kept);
    memcpy(row + 4, row, sizeof kept);
    CHECK(rad_cache_check_ownership(w.cache, both, 2, &err) == RAD_E_CORRUPT);
    memcpy(row + 4, kept, sizeof kept);
    row = rad_req_to_token_row(w.rows, b->kv.row);
    memcpy(kept, row + 4, sizeof kept);
    memcpy(row + 4, rad_req_to_token_row(w.rows, a->kv.row), sizeof kept);
    CHECK(rad_cache_check_ownership(w.cache, both, 2, &err) == RAD_E_CORRUPT);
    CHECK(rad_cache_finished_req(w.cache, &b->kv, 1, &err) == RAD_E_STATE);
    CHECKF(strstr(err.text, "the cache's"), "%s", err.text);
    memcpy(row + 4, kept, sizeof kept);
    world_check(&w);
    finish(&w, a, 0);
    finish(&w, b, 0);
    world_fini(&w);
}

/* ---- what a record is refused for ---- */

/* Counts how often the cache is asked who owns pages. */
static uint32_t num_asked;
static const cache_ops *asked_ops;
static bool count_owns_any(const rad_cache *cache, kv_run pages)
{
    num_asked++;
    return asked_ops->owns_any(cache, pages);
}

/* finished_req of 100,000 tokens took 17 times what the insert in it takes: it looked at each page.
 * A record whose slots are one run is one question. */
TEST(a_record_is_checked_by_runs_of_pages)
{
    for (uint32_t ps = 1; ps <= 4; ps *= 4) {
        static world w;
        world_init(&w, RAD_CACHE_RADIX, ps, 64, 0);
        rad_row row;
        CHECK_OK(rad_req_to_token_alloc(w.rows, &row));
        rad_slot *slots = rad_req_to_token_row(w.rows, row);
        rad_token tokens[64] = {0};
        uint32_t none = 0, len = 63; /* the last page in part, where there are parts */
        rad_slot last = -1;
        CHECK_OK(rad_kv_alloc_extend(w.kv, 1, &none, &len, &last, slots, NULL));
        rad_req_kv kv = {.row = row,
                         .committed_len = len,
                         .allocated_len = len,
                         .key = {.tokens = tokens, .num_tokens = len}};
        cache_ops counted = *w.cache->ops;
        asked_ops = w.cache->ops;
        counted.owns_any = count_owns_any;
        w.cache->ops = &counted;
        num_asked = 0;
        CHECK_OK(req_kv_check(w.cache, &kv, NULL));
        CHECKF(num_asked == 1, "%u questions\n", num_asked);
        w.cache->ops = asked_ops;
        CHECK_OK(rad_cache_finished_req(w.cache, &kv, 1, NULL));
        world_fini(&w);
    }
}

static void is_refused(world *w, const rad_req_kv *kv, rad_status want, const char *words)
{
    for (int way = 0; way < 2; way++) {
        rad_req_kv copy = *kv;
        rad_error err = {0};
        rad_status status = way ? rad_cache_finished_req(w->cache, &copy, 1, &err)
                                : rad_cache_unfinished_req(w->cache, &copy, 0, &err);
        CHECKF(status == want && strstr(err.text, words), "%d: %s, wanted: %s\n", status, err.text,
               words);
        CHECK(memcmp(&copy, kv, sizeof copy) == 0); /* nothing changed */
    }
}

/* Every refusal there is, each at places where a run of pages, a word of bits or the record begins
 * and ends. */
TEST(each_wrong_record_is_refused_in_words)
{
    enum { LEN = 200, MOST = 199 };
    for (uint32_t ps = 1; ps <= 4; ps *= 4) {
        static world w;
        world_init(&w, RAD_CACHE_RADIX, ps, 400 / ps, 0);
        rad_token tokens[LEN] = {0};
        rad_slot cached[4];
        uint32_t none = 0, four = 4;
        rad_slot last = -1;
        CHECK_OK(rad_kv_alloc_extend(w.kv, 1, &none, &four, &last, cached, NULL));
        rad_key theirs = {.tokens = (rad_token[]){9, 9, 9, 9}, .num_tokens = 4};
        CHECK_OK(rad_cache_insert(w.cache, &theirs, cached, NULL, NULL, NULL));

        rad_req_kv kv = {.key = {.tokens = tokens, .num_tokens = LEN}};
        CHECK_OK(rad_req_to_token_alloc(w.rows, &kv.row));
        rad_slot *slots = rad_req_to_token_row(w.rows, kv.row);
        uint32_t len = MOST;
        CHECK_OK(rad_kv_alloc_extend(w.kv, 1, &none, &len, &last, slots, NULL));
        kv.committed_len = kv.allocated_len = len;
        rad_slot free_page = (rad_slot)((400 / ps - 1) * ps); /* nobody has it */

        const uint32_t places[] = {0, 4, 60, 64, 68, 124, 128, 192, 196};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            uint32_t at = places[i], count = at + ps > len ? len - at : ps;
            rad_slot kept[4];
            char where[64];
            memcpy(kept, slots + at, count * sizeof *kept);
            const struct {
                rad_slot first;
                const char *words;
            } bad[] = {{cached[0], "is the cache's"},
                       {free_page, "is not handed out"},
                       {0, "is not handed out"}, /* the page of padding */
                       {(rad_slot)(400 / ps + 1) * (rad_slot)ps, "is not handed out"},
                       {INT32_MAX / 4 * 4 - 4, "is not handed out"},
                       {-4, "is not in its page's place"},
                       {INT32_MIN, "is not in its page's place"}};
            for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
                for (uint32_t j = 0; j < count; j++)
                    slots[at + j] = (rad_slot)((uint32_t)bad[k].first + j);
                snprintf(where, sizeof where, "slot %d at position %u %s", slots[at], at,
                         bad[k].words);
                is_refused(&w, &kv, RAD_E_STATE, where);
            }
            memcpy(slots + at, kept, count * sizeof *kept);
            for (uint32_t j = 0; ps > 1 && j < count; j++) { /* one slot of a page is wrong */
                slots[at + j] ^= 1;
                is_refused(&w, &kv, RAD_E_STATE, "is not in its page's place");
                slots[at + j] = kept[j];
            }
        }

        rad_req_kv wrong = kv;
        wrong.protected_len = ps;
        is_refused(&w, &wrong, RAD_E_STATE, "stale or missing");
        wrong = kv;
        wrong.lock = (rad_receipt){.node = {77, 1}, .held = 1};
        is_refused(&w, &wrong, RAD_E_STATE, "stale or missing");
        wrong = kv;
        wrong.row = kv.row + 1;
        is_refused(&w, &wrong, RAD_E_STATE, "is not handed out");
        wrong = kv;
        wrong.row = 0;
        is_refused(&w, &wrong, RAD_E_INVAL, "positions without a row");
        wrong = kv;
        wrong.committed_len = len + 1;
        is_refused(&w, &wrong, RAD_E_INVAL, "do not go together");
        wrong = kv;
        wrong.allocated_len = MOST_LEN + 1;
        is_refused(&w, &wrong, RAD_E_INVAL, "do not go together");
        wrong = kv;
        wrong.key.num_tokens = len - 1;
        is_refused(&w, &wrong, RAD_E_INVAL, "do not go together");
        wrong = kv;
        wrong.key.tokens = NULL;
        is_refused(&w, &wrong, RAD_E_INVAL, "do not go together");
        CHECK(rad_cache_finished_req(w.cache, NULL, 1, NULL) == RAD_E_INVAL);

        /* A page that stands there twice: the check passes runs, the claim finds it. */
        if (ps == 1) {
            rad_slot kept = slots[70];
            slots[70] = slots[3];
            rad_req_kv copy = kv;
            rad_error err = {0};
            CHECK(rad_cache_unfinished_req(w.cache, &copy, 0, &err) == RAD_E_STATE);
            CHECKF(strstr(err.text, "twice"), "%s\n", err.text);
            slots[70] = kept;
        }
        CHECK_OK(rad_cache_finished_req(w.cache, &kv, 1, NULL));
        world_fini(&w);
    }
}

TEST(a_page_enters_the_tree_once)
{
    static world w;
    world_init(&w, RAD_CACHE_RADIX, 4, 8, 0);
    rad_page pages[2];
    CHECK_OK(rad_kv_alloc(w.kv, pages, 2));
    rad_slot slots[12] = {4, 5, 6, 7, 8, 9, 10, 11, 4, 5, 6, 7};
    CHECK(pages[0] == 1 && pages[1] == 2);
    rad_token tokens[12] = {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    rad_key key = {.tokens = tokens, .num_tokens = 12};
    rad_error err = {0};
    CHECK(rad_cache_insert(w.cache, &key, slots, NULL, NULL, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "slot 4 at position 8 ") && strstr(err.text, "twice"));
    slots[8] = 12, slots[9] = 13, slots[10] = 14, slots[11] = 15;
    CHECK(rad_cache_insert(w.cache, &key, slots, NULL, NULL, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "slot 12 at position 8 is not handed out"));
    slots[8] = 36, slots[9] = 37, slots[10] = 38, slots[11] = 39;
    CHECK(rad_cache_insert(w.cache, &key, slots, NULL, NULL, &err) == RAD_E_INVAL);
    CHECK(strstr(err.text, "slot 36 at position 8 ")); /* there are 8 pages */
    CHECK(rad_cache_total_size(w.cache) == 0);
    CHECK_OK(rad_cache_check(w.cache, NULL));
    key.num_tokens = 8;
    CHECK_OK(rad_cache_insert(w.cache, &key, slots, NULL, NULL, NULL));
    tokens[4] = 9; /* shares the first page, and brings the tree's second one again */
    CHECK(rad_cache_insert(w.cache, &key, slots, NULL, NULL, &err) == RAD_E_STATE);
    CHECK(strstr(err.text, "slot 8 at position 4 is the cache's already"));
    CHECK(rad_cache_total_size(w.cache) == 8);
    world_fini(&w);
}

/* The checks and the walk take scratch memory: without it they say so. */
TEST(checks_without_memory_say_so)
{
    test_env t;
    rad_env env = test_env_init(&t);
    rad_kv_allocator_params kv_params = {sizeof kv_params, 8, 4};
    rad_req_to_token_pool_params rows_params = {sizeof rows_params, 2, 32};
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_cache *cache;
    CHECK_OK(rad_kv_allocator_create(&env, &kv_params, &kv, NULL));
    CHECK_OK(rad_req_to_token_pool_create(&env, &rows_params, &rows, NULL));
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = 4,
                               .kv_allocator = kv,
                               .req_to_token_pool = rows};
    CHECK_OK(rad_cache_create(&env, &params, &cache, NULL));
    rad_page page;
    CHECK_OK(rad_kv_alloc(kv, &page, 1));
    rad_key key = {.tokens = (rad_token[]){1, 2, 3, 4}, .num_tokens = 4};
    rad_slot slots[4] = {page * 4, page * 4 + 1, page * 4 + 2, page * 4 + 3};
    CHECK_OK(rad_cache_insert(cache, &key, slots, NULL, NULL, NULL));
    hit_walk walk = {0};
    for (int fails = 1; fails >= 0; fails--) {
        rad_status want = fails ? RAD_E_NOMEM : RAD_OK;
        t.allocs = 0;
        t.fail_at = fails ? 0 : -1;
        CHECK(rad_kv_check(kv, NULL) == want);
        CHECK(rad_req_to_token_check(rows, NULL) == want);
        CHECK(rad_cache_check(cache, NULL) == want);
        CHECK(rad_cache_check_ownership(cache, NULL, 0, NULL) == want);
        CHECK(rad_cache_walk(cache, most_hits, &walk) == want);
    }
    rad_cache_destroy(cache);
    rad_req_to_token_pool_destroy(rows);
    rad_kv_allocator_destroy(kv);
    CHECK(t.bytes == 0);
}

TEST(the_chunk_cache_keeps_nothing)
{
    static world w;
    world_init(&w, RAD_CACHE_CHUNK, 4, 60, 0);
    for (int i = 0; i < 2; i++) {
        req *r = &w.reqs[i];
        prompt(r, "aaaabbbbccccdd", NULL);
        start(&w, r);
        CHECK(r->kv.protected_len == 0);
        prefill(&w, r, 7);
        publish(&w, r, 1);
        CHECK(r->kv.protected_len == 0);
        prefill(&w, r, r->len);
        publish(&w, r, 0);
    }
    uint64_t evicted = 9;
    CHECK_OK(rad_cache_evict(w.cache, 100, &evicted, NULL));
    CHECK(evicted == 0 && rad_cache_total_size(w.cache) == 0);
    finish(&w, &w.reqs[0], 1);
    finish(&w, &w.reqs[1], 0);
    CHECK(cached(&w, "aaaabbbb", NULL) == 0);
    CHECK(rad_cache_insert(w.cache, &(rad_key){.tokens = (rad_token[]){1}, .num_tokens = 1},
                           (rad_slot[]){4}, NULL, NULL, NULL) == RAD_E_UNSUPPORTED);
    world_fini(&w);
}

/* Random life with shared prompts in a pool that is too small: chunks, decoding,
 * aborts, retractions (finish and come back), a few namespaces. */
static void random_life(uint32_t kind, uint32_t ps, uint32_t pages, uint32_t max_nodes)
{
    static world w;
    const char *salts[3] = {NULL, "a", "b"};
    uint64_t seed = test_seed(), state = seed;
    world_init(&w, kind, ps, pages, max_nodes);
    w.seed = seed;
    for (uint64_t step = 0; step < test_scale(3000, 300000); step++) {
        req *r = &w.reqs[test_random(&state) % MOST_REQS];
        uint32_t pick = (uint32_t)(test_random(&state) % 16);
        if (!r->live) {
            *r = (req){.live = true, .len = 1 + (uint32_t)(test_random(&state) % 100)};
            uint32_t shared = (uint32_t)(test_random(&state) % 90);
            for (uint32_t i = 0; i < r->len; i++)
                r->tokens[i] = i < shared ? (rad_token)(i * i % 50)
                                          : (rad_token)(test_random(&state) % 2);
            r->prompt_len = r->len;
            r->kv.key = (rad_key){.tokens = r->tokens,
                                  .num_tokens = r->len,
                                  .cache_salt = salts[test_random(&state) % 3]};
            start(&w, r);
        } else if (pick == 0) {
            finish(&w, r, 0);
        } else if (pick == 1 || r->len == MOST_LEN) {
            finish(&w, r, 1);
        } else if (r->kv.committed_len < r->len) {
            uint32_t left = r->len - r->kv.committed_len;
            uint32_t chunk = pick < 8 ? left : 1 + (uint32_t)(test_random(&state) % left);
            uint32_t to = r->kv.committed_len + chunk;
            if (to > r->kv.allocated_len && !reserve(&w, r, to)) {
                /* Retract: publish what there is, leave, and come back. */
                req kept = *r;
                finish(&w, r, 1);
                *r = (req){.live = true, .len = kept.len, .prompt_len = kept.prompt_len};
                memcpy(r->tokens, kept.tokens, sizeof kept.tokens);
                r->kv.key = kept.kv.key;
                start(&w, r);
                continue;
            }
            commit(&w, r, to);
            if (r->len == r->prompt_len || pick == 3) {
                rad_status status = rad_cache_unfinished_req(w.cache, &r->kv, to < r->len, NULL);
                CHECKF(status == RAD_OK || (max_nodes && status == RAD_FULL), "%s, seed %llu\n",
                       rad_status_name(status), (unsigned long long)seed);
            }
        } else {
            append(r, (rad_token)(test_random(&state) % 2));
        }
        if (w.window && r->live && pick % 4 == 0 && r->kv.committed_len > WINDOW)
            CHECK_OK(rad_cache_release_window(w.cache, &r->kv, r->kv.committed_len - WINDOW, NULL));
        world_check(&w);
    }
    for (int i = 0; i < MOST_REQS; i++)
        if (w.reqs[i].live) finish(&w, &w.reqs[i], i & 1);
    world_fini(&w);
}

TEST(random_life_in_a_small_pool)
{
    random_life(RAD_CACHE_RADIX, 1, 300, 0);
    random_life(RAD_CACHE_RADIX, 4, 80, 0);
    random_life(RAD_CACHE_RADIX, 16, 30, 0);
    random_life(RAD_CACHE_CHUNK, 4, 80, 0);
}

TEST(random_life_with_bigram_keys)
{
    random_life(RAD_CACHE_RADIX + EAGLE, 1, 300, 0);
    random_life(RAD_CACHE_RADIX + EAGLE, 4, 80, 0);
    random_life(RAD_CACHE_RADIX + EAGLE, 16, 30, 0);
    random_life(RAD_CACHE_RADIX + EAGLE, 4, 80, 6);
}

TEST(random_life_with_few_nodes)
{
    random_life(RAD_CACHE_RADIX, 1, 300, 10);
    random_life(RAD_CACHE_RADIX, 4, 80, 6);
}

TEST(random_life_with_windows)
{
    random_life(RAD_CACHE_RADIX + WINDOWS, 1, 300, 0);
    random_life(RAD_CACHE_RADIX + WINDOWS, 4, 80, 0);
    random_life(RAD_CACHE_RADIX + WINDOWS, 16, 30, 0);
    random_life(RAD_CACHE_CHUNK + WINDOWS, 4, 80, 0);
    random_life(RAD_CACHE_RADIX + WINDOWS, 1, 300, 10);
    random_life(RAD_CACHE_RADIX + WINDOWS, 4, 80, 6);
    random_life(RAD_CACHE_RADIX + EAGLE + WINDOWS, 1, 300, 0);
    random_life(RAD_CACHE_RADIX + EAGLE + WINDOWS, 4, 80, 6);
}

TEST_MAIN()
