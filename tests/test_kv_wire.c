/* test_kv_wire.c - batches of KV events have the bytes that routers read, and what does not fit
 * into the publisher's queue is dropped and told anew. tests/e2e/test_kv_events.py follows a
 * server. */
#include "test.h"

#include "engine/kv_publisher.h"

#include <stdatomic.h>

typedef struct sent {
    uint8_t bytes[1 << 20];
    size_t len;
    uint32_t batches;
    size_t longest;
} sent;

static void take_batch(void *user, const uint8_t *bytes, size_t len)
{
    sent *s = user;
    s->batches++;
    s->longest = RAD_MAX(s->longest, len);
    CHECK(s->len + len <= sizeof s->bytes);
    memcpy(s->bytes + s->len, bytes, len);
    s->len += len;
}

static kv_wire wire_to(sent *s, kv_wire_form form)
{
    const kv_wire_params p = {
        .form = form, .dp_rank = 300, .block_tokens = 2, .on_batch = take_batch, .user = s};
    rad_env env = rad_env_or_default(NULL);
    kv_wire w;
    CHECK_OK(kv_wire_init(&w, &env, &p));
    return w;
}

static const int64_t some_hashes[] = {1, -2};
static const rad_token some_tokens[] = {3, 200, 60000, 70000};
static const rad_kv_event some_store = {.type = RAD_KV_STORED,
                                        .num_blocks = 2,
                                        .block_hashes = some_hashes,
                                        .token_ids = some_tokens,
                                        .num_token_ids = 4,
                                        .block_size = 2,
                                        .medium = "GPU"};

/* Byte by byte, but for the time: bytes 2 to 9. tests/e2e/test_kv_events.py reads them with
 * msgpack. */
TEST(a_batch_has_the_bytes_that_routers_read)
{
    static const uint8_t before[] = {0x93, 0xcb},
                         after[] = {0xdd, 0,    0,    0,    3,    0x97, 0xab, 'B',  'l',  'o',
                                    'c',  'k',  'S',  't',  'o',  'r',  'e',  'd',  0x92, 1,
                                    0xd3, 255,  255,  255,  255,  255,  255,  255,  254,  0xc0,
                                    0x94, 3,    0xcc, 200,  0xcd, 0xea, 0x60, 0xce, 0,    1,
                                    0x11, 0x70, 2,    0xc0, 0xa3, 'G',  'P',  'U',  0x93, 0xac,
                                    'B',  'l',  'o',  'c',  'k',  'R',  'e',  'm',  'o',  'v',
                                    'e',  'd',  0x91, 1,    0xa4, 'D',  'I',  'S',  'K',  0x91,
                                    0xb0, 'A',  'l',  'l',  'B',  'l',  'o',  'c',  'k',  's',
                                    'C',  'l',  'e',  'a',  'r',  'e',  'd',  0xcd, 1,    44};
    static sent s;
    rad_env env = rad_env_or_default(NULL);
    kv_wire w = wire_to(&s, KV_WIRE_ARRAY);
    kv_wire_end(&w); /* nothing */
    CHECK(!s.batches);
    kv_wire_add(&w, &some_store);
    kv_wire_add(&w, &(rad_kv_event){.type = RAD_KV_REMOVED,
                                    .num_blocks = 1,
                                    .block_hashes = some_hashes,
                                    .medium = "DISK"});
    kv_wire_add(&w, &(rad_kv_event){.type = RAD_KV_LOST, .lost_blocks = 9});
    kv_wire_add(&w, &(rad_kv_event){.type = RAD_KV_CLEARED});
    kv_wire_end(&w);
    CHECK(s.batches == 1 && s.len == sizeof before + 8 + sizeof after);
    CHECK(memcmp(s.bytes, before, sizeof before) == 0);
    CHECK(memcmp(s.bytes + sizeof before + 8, after, sizeof after) == 0);
    kv_wire_fini(&w, &env);
}

/* Many blocks in one event, of either form: no batch is longer than the limit. */
TEST(a_long_chain_goes_on_in_the_next_batch)
{
    enum { BLOCKS = 20000 };
    static int64_t hashes[BLOCKS];
    static rad_token tokens[2 * BLOCKS];
    static sent s;
    rad_env env = rad_env_or_default(NULL);
    for (int i = 0; i < BLOCKS; i++) {
        hashes[i] = INT64_MIN + i;
        tokens[2 * i] = tokens[2 * i + 1] = INT32_MAX;
    }
    for (kv_wire_form form = KV_WIRE_ARRAY; form <= KV_WIRE_MAP; form++) {
        s = (sent){.batches = 0};
        kv_wire w = wire_to(&s, form);
        kv_wire_add(&w, &(rad_kv_event){.type = RAD_KV_STORED,
                                        .num_blocks = BLOCKS,
                                        .block_hashes = hashes,
                                        .token_ids = tokens,
                                        .num_token_ids = 2 * BLOCKS,
                                        .block_size = 2,
                                        .has_cache_salt = 1,
                                        .namespace_id = UINT64_MAX,
                                        .medium = "CPU_PINNED"});
        kv_wire_end(&w);
        CHECK(s.longest <= KV_WIRE_BATCH_BYTES);
        CHECK(s.batches >= s.len / KV_WIRE_BATCH_BYTES && s.batches < 10);
        CHECK(s.len > BLOCKS * 19); /* all of them: 9 for a hash, 5 for a token */
        kv_wire_fini(&w, &env);
    }
}

static void count_restating(void *user)
{
    atomic_fetch_add((_Atomic uint32_t *)user, 1);
}

/* A queue of two batches that nobody empties: what does not fit is counted and takes its number
 * with it, nothing more is told, and all is told anew once the thread runs. */
TEST(what_does_not_fit_is_dropped_and_all_is_told_anew)
{
    kv_events_config here;
    _Atomic uint32_t restated = 0;
    kv_publisher *p;
    kv_publisher_stats stats;
    CHECK_OK(kv_events_config_parse("{\"endpoint\": \"inproc://here\", \"max_queue_size\": 2}",
                                    &here, NULL));
    const kv_publisher_params params = {.config = &here,
                                        .block_tokens = 2,
                                        .max_queue_bytes = 1 << 20,
                                        .restate = count_restating,
                                        .user = &restated};
    if (!kv_publisher_is_built()) {
        CHECK(kv_publisher_create(NULL, &params, &p, NULL) == RAD_E_UNSUPPORTED && !p);
        return;
    }
    CHECK_OK(kv_publisher_create(NULL, &params, &p, NULL));
    for (int i = 0; i < 5; i++) {
        kv_publisher_add(p, &some_store);
        kv_publisher_flush(p);
    }
    kv_publisher_get_stats(p, &stats);
    CHECK(stats.queued == 2 && stats.dropped_batches == 1 && kv_publisher_next_seq(p) == 3);
    CHECK_OK(kv_publisher_start(p, NULL));
    do { /* the thread sends both, then it asks */
        usleep(1000);
        kv_publisher_get_stats(p, &stats);
    } while (stats.batches < 2 || !atomic_load(&restated));
    kv_publisher_begin_restating(p);
    kv_publisher_add(p, &some_store);
    kv_publisher_flush(p);
    CHECK(kv_publisher_next_seq(p) == 4);
    do
        kv_publisher_get_stats(p, &stats);
    while (stats.batches < 3);
    CHECK(stats.restatements == 1 && stats.dropped_batches == 1);
    kv_publisher_destroy(p);
}

TEST_MAIN()
