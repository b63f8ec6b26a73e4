/* test_session_tags.c - what open sessions refer to is evicted last, and is evictable. */
#include "cache_failing.h"
#include "test.h"

#include <radish/session.h>

enum { MOST_SESSIONS = 4, MOST_LEN = 96, MOST_LEAVES = 512 };

static rad_slot slots[1 << 20];

static rad_cache *make(uint32_t ps, uint32_t max_sessions)
{
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = ps,
                               .max_nodes = 4096,
                               .max_tokens = 8192u * ps,
                               .max_sessions = max_sessions};
    rad_cache *cache;
    CHECK_OK(rad_cache_create(NULL, &params, &cache, NULL));
    for (uint32_t i = 0; i < MOST_LEN * 16; i++)
        slots[i] = (rad_slot)i;
    return cache;
}

static void check(const rad_cache *cache, uint64_t seed)
{
    rad_error err = {0};
    CHECKF(rad_cache_check(cache, &err) == RAD_OK, "%s, seed %llu\n", err.text,
           (unsigned long long)seed);
}

static void insert(rad_cache *cache, const char *text, rad_session session)
{
    rad_token tokens[MOST_LEN];
    rad_key key = {.tokens = tokens, .num_tokens = (uint32_t)strlen(text), .session = session};
    for (uint32_t i = 0; text[i]; i++)
        tokens[i] = text[i];
    CHECK_OK(rad_cache_insert(cache, &key, slots, NULL, NULL, NULL));
    check(cache, 0);
}

static uint32_t cached(const rad_cache *cache, const char *text)
{
    rad_token tokens[MOST_LEN];
    rad_key key = {.tokens = tokens, .num_tokens = (uint32_t)strlen(text)};
    rad_match m;
    for (uint32_t i = 0; text[i]; i++)
        tokens[i] = text[i];
    CHECK_OK(rad_cache_lookup(cache, &key, &m));
    return m.prefix_tokens;
}

TEST(fewer_references_go_first_and_all_of_it_can_go)
{
    rad_cache *c = make(1, 3);
    rad_session s[3], none;
    for (int i = 0; i < 3; i++)
        CHECK_OK(rad_session_open(c, &s[i]));
    CHECK(rad_session_open(c, &none) == RAD_FULL && none == 0);
    for (int i = 0; i < 3; i++)
        insert(c, "three", s[i]); /* the oldest of all */
    rad_session extra = s[2];
    insert(c, "two", s[2]); /* one session refers to one path: the last one */
    insert(c, "four", 0);
    CHECK_OK(rad_cache_evict(c, 4, NULL, NULL));
    CHECK(cached(c, "four") == 0 && cached(c, "two") == 3 && cached(c, "three") == 5);
    CHECK_OK(rad_cache_evict(c, 2, NULL, NULL)); /* "two" has one, "three" two */
    CHECK(cached(c, "two") == 1 && cached(c, "three") == 5);
    CHECK_OK(rad_session_close(c, s[0]));
    CHECK_OK(rad_session_close(c, s[1]));
    CHECK(rad_session_close(c, s[1]) == RAD_E_STATE);
    check(c, 0);
    CHECK(cached(c, "three") == 5); /* closing frees nothing */
    CHECK_OK(rad_cache_evict(c, 2, NULL, NULL));
    CHECK(cached(c, "three") == 3);
    uint64_t gone;
    CHECK_OK(rad_cache_evict(c, 100, &gone, NULL));
    CHECK(gone == 3 && rad_cache_total_size(c) == 0); /* open sessions wedge nothing */
    rad_session_stats stats;
    rad_session_get_stats(c, &stats);
    CHECK(stats.open == 1 && stats.held == 0);
    CHECK_OK(rad_session_close(c, extra));
    check(c, 0);

    rad_req_kv req = {.key = {.session = s[0]}};
    rad_error err = {0};
    CHECK(rad_session_begin(c, &req, &err) == RAD_E_STATE && strstr(err.text, "is not open"));
    rad_cache_destroy(c);
    c = make(1, 0);
    CHECK(rad_session_open(c, &none) == RAD_E_UNSUPPORTED);
    CHECK(rad_session_close(c, 1) == RAD_E_UNSUPPORTED);
    insert(c, "a key may name a session all the same", 77);
    rad_cache_destroy(c);
}

TEST(create_survives_every_allocation_failing)
{
    rad_cache *c = NULL;
    rad_cache_params params = {
        .struct_size = sizeof params, .max_tokens = 100, .max_sessions = 65536};
    CHECK(rad_cache_create(NULL, &params, &c, NULL) == RAD_E_LIMIT);
    params.max_sessions = 5;
    test_env t;
    c = cache_after_every_failure(&params, &t);
    CHECK(metadata_bytes(c) == t.bytes);
    rad_cache_destroy(c);
    CHECK(t.bytes == 0);
}

/* --- random, against a list of paths --- */

typedef struct leaf {
    rad_token tokens[MOST_LEN * 16];
    uint32_t len;
} leaf;

typedef struct model {
    rad_cache *cache;
    uint32_t ps;
    struct {
        rad_session id;
        leaf path;
    } sessions[MOST_SESSIONS];
    leaf leaves[MOST_LEAVES];
    uint32_t num_leaves;
    leaf at[MOST_LEN]; /* the path to the node of a walk, by depth */
    uint32_t depth;
} model;

static void visit(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                  const rad_slot *unused, uint32_t num_tokens, uint32_t lock_ref, uint32_t hits)
{
    model *m = user;
    (void)node, (void)unused, (void)lock_ref, (void)hits;
    /* The node before was a leaf unless this one is below it. */
    if (depth <= m->depth) m->leaves[m->num_leaves++] = m->at[m->depth];
    CHECK(m->num_leaves < MOST_LEAVES && depth < MOST_LEN);
    m->at[depth] = m->at[depth - 1];
    memcpy(m->at[depth].tokens + m->at[depth].len, tokens, num_tokens * sizeof *tokens);
    m->at[depth].len += num_tokens;
    m->depth = depth;
}

static void find_leaves(model *m)
{
    m->num_leaves = m->depth = 0;
    CHECK_OK(rad_cache_walk(m->cache, visit, m));
    if (m->depth) m->leaves[m->num_leaves++] = m->at[m->depth];
}

static uint32_t length_of(const model *m, const leaf *path)
{
    rad_key key = {.tokens = path->tokens, .num_tokens = path->len};
    rad_match match;
    CHECK_OK(rad_cache_lookup(m->cache, &key, &match));
    return match.prefix_tokens;
}

static uint32_t refs_of(const model *m, const leaf *l)
{
    uint32_t refs = 0;
    for (int i = 0; i < MOST_SESSIONS; i++)
        refs += m->sessions[i].id && m->sessions[i].path.len >= l->len &&
                !memcmp(m->sessions[i].path.tokens, l->tokens, l->len * sizeof *l->tokens);
    return refs < 3 ? refs : 3;
}

static void evict_one(model *m, uint64_t seed)
{
    uint32_t least = 3, victims = 0;
    find_leaves(m);
    for (uint32_t i = 0; i < m->num_leaves; i++)
        least = refs_of(m, &m->leaves[i]) < least ? refs_of(m, &m->leaves[i]) : least;
    CHECK_OK(rad_cache_evict(m->cache, 1, NULL, NULL));
    for (uint32_t i = 0; i < m->num_leaves; i++) {
        if (length_of(m, &m->leaves[i]) == m->leaves[i].len) continue;
        CHECKF(refs_of(m, &m->leaves[i]) == least, "a leaf with %u references went, seed %llu\n",
               refs_of(m, &m->leaves[i]), (unsigned long long)seed);
        victims++;
    }
    CHECK(victims == (m->num_leaves > 0));
}

/* After an eviction: a session refers to what is left of its path. */
static void shorten_paths(model *m)
{
    for (int i = 0; i < MOST_SESSIONS; i++)
        if (m->sessions[i].id) m->sessions[i].path.len = length_of(m, &m->sessions[i].path);
}

TEST(random_runs_evict_what_the_fewest_sessions_refer_to)
{
    static model m;
    uint32_t sizes[] = {1, 2, 16};
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t seed = test_seed() + round, random = seed;
        uint32_t ps = sizes[round];
        m = (model){.cache = make(ps, MOST_SESSIONS), .ps = ps};
        for (uint64_t n = test_scale(3000, 1000000); n; n--) {
            uint32_t who = (uint32_t)(test_random(&random) % (MOST_SESSIONS + 1));
            switch (test_random(&random) % 8) {
            case 0:
            case 1:
            case 2: {
                static leaf path;
                path.len = 0;
                uint32_t pages = 1 + (uint32_t)(test_random(&random) % 12);
                if (who < MOST_SESSIONS && test_random(&random) % 2) /* its next turn */
                    path = m.sessions[who].path;
                if (path.len > 30 * ps) path.len = 4 * ps;
                for (; pages; pages--) {
                    rad_token t = (rad_token)(test_random(&random) % 3);
                    for (uint32_t k = 0; k < ps; k++)
                        path.tokens[path.len++] = t;
                }
                bool open = who < MOST_SESSIONS && m.sessions[who].id;
                rad_key key = {.tokens = path.tokens,
                               .num_tokens = path.len,
                               .session = open ? m.sessions[who].id : 0};
                CHECK_OK(rad_cache_insert(m.cache, &key, slots, NULL, NULL, NULL));
                if (open) m.sessions[who].path = path;
                break;
            }
            case 3:
                if (who < MOST_SESSIONS && !m.sessions[who].id) {
                    CHECK_OK(rad_session_open(m.cache, &m.sessions[who].id));
                    m.sessions[who].path.len = 0;
                }
                break;
            case 4:
                if (who < MOST_SESSIONS && m.sessions[who].id && test_random(&random) % 4 == 0) {
                    CHECK_OK(rad_session_close(m.cache, m.sessions[who].id));
                    m.sessions[who].id = 0;
                }
                break;
            default: {
                uint32_t times = (uint32_t)(test_random(&random) % 4);
                for (; times; times--) {
                    evict_one(&m, seed);
                    shorten_paths(&m);
                }
            }
            }
            if (rad_cache_total_size(m.cache) >= (MOST_LEAVES - 50) * ps) { /* more come than go */
                CHECK_OK(rad_cache_evict(m.cache, MOST_LEAVES / 2 * ps, NULL, NULL));
                shorten_paths(&m);
            }
            check(m.cache, seed);
        }
        CHECK_OK(rad_cache_reset(m.cache));
        check(m.cache, seed);
        rad_cache_destroy(m.cache);
    }
}

TEST_MAIN()
