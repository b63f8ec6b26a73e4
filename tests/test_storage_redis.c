/* test_storage_redis.c - the Redis backend against real servers: one, a cluster whose masters
 * die, are stopped and hand over slots. Skipped where there is no redis-server. */
#define _GNU_SOURCE
#include "redis_rig.h"

#include "storage/redis_map.h"

#include <pthread.h>

enum { R = RIG_RECORD };

TEST(names_go_to_the_slots_that_redis_gives_them)
{
    CHECK(redis_slot("123456789", 9) == 0x31c3); /* the check value of CRC16/XMODEM: 12739 */
    CHECK(redis_slot("foo", 3) == 12182 && redis_slot("", 0) == 0);
}

/* A server that lives for months sees more nodes than the table has places, where each restart
 * of a node brings a new address: the table was full for ever then, and the store all misses. */
TEST(nodes_that_have_gone_make_room_for_others)
{
    redis_map *m = calloc(1, sizeof *m);
    CHECK(m && redis_map_seeds(m, "seed:1,other:2", NULL) == RAD_OK);
    uint64_t last[2] = {0};
    for (int i = 0; i < 1000; i++) {
        char host[64];
        int len = snprintf(host, sizeof host, "10.0.%d.%d", i / 250, i % 250 + 1), slot = i % 2;
        uint16_t node = redis_map_node(m, host, (size_t)len, 6379);
        CHECK(node > 1 && node != REDIS_NOWHERE);
        CHECK(!strncmp(m->nodes[node].host, "10.0.", 5) && !m->nodes[node].fails);
        m->slots[slot] = node;
        CHECK(m->nodes[node].number > last[0] && m->nodes[node].number > last[1]);
        last[i % 2] = m->nodes[node].number;
        for (int k = 0; i && k < 2; k++)
            CHECK(m->nodes[m->slots[k]].number == last[k]);
        redis_map_failed(m, node, 1, 1);
    }
    CHECK(m->num_nodes == REDIS_NODES && m->num_seeds == 2);
    CHECK(!strcmp(m->nodes[0].host, "seed") && !strcmp(m->nodes[1].host, "other"));
    for (int i = 0; i < REDIS_SLOTS; i++) /* all have slots: none can go */
        m->slots[i] = (uint16_t)(i % REDIS_NODES);
    CHECK(redis_map_node(m, "11.1.1.1", 8, 1) == REDIS_NOWHERE);
    CHECK(redis_map_node(m, "seed", 4, 1) == 0);
    free(m);
}

TEST(params_that_make_no_sense_are_refused_in_words)
{
    rad_storage store;
    rad_error err;
    static const char *const bad[] = {"",   "host:", "host:0", "host:70000", "a b:1",
                                      ":1", ",",     "[::1",   "host:12x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rad_storage_redis_params p = {.struct_size = sizeof p, .nodes = bad[i]};
        CHECKF(rad_storage_redis_open(NULL, &p, &store, &err) == RAD_E_INVAL && !store.ops, "%s",
               bad[i]);
        CHECK(strncmp(err.text, "storage_redis: ", 15) == 0);
    }
    rad_storage_redis_params p = {.struct_size = sizeof p, .nodes = "h:1", .prefix = "{x}"};
    CHECK(rad_storage_redis_open(NULL, &p, &store, &err) == RAD_E_INVAL);
    p.prefix = NULL;
    p.user = "somebody";
    CHECK(rad_storage_redis_open(NULL, &p, &store, &err) == RAD_E_INVAL);
    p.nodes = NULL;
    p.user = NULL;
    CHECK(rad_storage_redis_open(NULL, &p, &store, &err) == RAD_E_INVAL);
}

TEST(nobody_there_is_a_store_of_misses)
{
    log_lines log = {0};
    rad_storage store = redis_open(free_port(), (rad_storage_redis_params){0}, &log);
    CHECK(strstr(log.text, "cannot be used yet"));
    rad_status status;
    CHECK(!rig_get(store, R, 1, &status) && !rig_set(store, R, 1, &status));
    CHECK(rig_stats(store).down == 1);
    store.ops->close(store.self);
}

static void check_many(rad_storage store, uint64_t count, size_t bytes)
{
    rad_storage_key *keys = calloc(count, sizeof *keys);
    uint8_t *memory = malloc(count * bytes), *done = calloc(count, 1), *want = malloc(bytes);
    void **records = calloc(count, sizeof *records);
    for (uint64_t i = 0; i < count; i++) {
        keys[i] = rig_key(i);
        records[i] = memory + i * bytes;
        rig_record(records[i], bytes, i);
    }
    rad_storage_batch b = {.keys = keys,
                           .records = records,
                           .record_bytes = bytes,
                           .count = (uint32_t)count,
                           .done = done};
    rad_error err = {0};
    uint32_t present = 0;
    CHECKF(store.ops->batch_set(store.self, &b, &err) == RAD_OK, "%s", err.text);
    for (uint64_t i = 0; i < count; i++)
        CHECK(done[i] == 1);
    CHECK(store.ops->batch_exists(store.self, &b, &present, &err) == RAD_OK && present == count);
    CHECK(store.ops->remove(store.self, &keys[count / 2], &err) == RAD_OK);
    CHECK(store.ops->batch_exists(store.self, &b, &present, &err) == RAD_OK);
    CHECK(present == count / 2);
    memset(memory, 0, count * bytes);
    CHECK(store.ops->batch_get(store.self, &b, &err) == RAD_OK);
    for (uint64_t i = 0; i < count; i++) {
        rig_record(want, bytes, i);
        CHECK(done[i] == (i != count / 2));
        CHECK(i == count / 2 || memcmp(want, records[i], bytes) == 0);
    }
    free(keys);
    free(memory);
    free(done);
    free(want);
    free(records);
}

TEST(a_single_redis_keeps_pages)
{
    SKIP_UNLESS(redis_is_installed(), "redis-server is not installed");
    redis_server server;
    log_lines log = {0};
    redis_start(&server, NULL, "PONG");
    rad_storage store = redis_open(server.port, (rad_storage_redis_params){.prefix = "t:"}, &log);
    CHECK(strstr(log.text, "noeviction"));
    CHECK(!rig_get(store, R, 1, NULL));
    check_many(store, 200, R);
    check_many(store, 3, 1900000);
    CHECK(redis_number(server.port, "DBSIZE") == 198); /* page 100 is removed, and 1 */

    /* What is there but not a page of this length, or no string at all, is a miss. */
    char command[300], hex[65];
    rad_storage_key key = rig_key(500);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", key.bytes[i]);
    snprintf(command, sizeof command, "SET t:%s short", hex);
    CHECK(redis_says(server.port, command, "OK"));
    CHECK(!rig_get(store, R, 500, NULL) && rig_get(store, R, 100, NULL) == false);
    CHECK(rig_get(store, R, 101, NULL)); /* and the node did nothing wrong */
    snprintf(command, sizeof command, "DEL t:%s", hex);
    CHECK(redis_number(server.port, command) == 1);
    snprintf(command, sizeof command, "LPUSH t:%s x", hex);
    CHECK(redis_number(server.port, command) == 1);
    CHECK(!rig_get(store, R, 500, NULL));
    CHECK(rig_get(store, R, 101, NULL) && rig_stats(store).errors >= 2);
    store.ops->close(store.self);

    log.text[0] = 0;
    store = redis_open(server.port, (rad_storage_redis_params){.prefix = "t:", .ttl_seconds = 77},
                       &log);
    CHECK(!log.text[0]);
    CHECK(rig_set(store, R, 700, NULL) && rig_get(store, R, 700, NULL));
    key = rig_key(700);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", key.bytes[i]);
    snprintf(command, sizeof command, "TTL t:%s", hex);
    long long ttl = redis_number(server.port, command);
    CHECK(ttl > 60 && ttl <= 77);

    CHECK(redis_says(server.port, "CONFIG SET maxmemory 1000000", "OK"));
    rad_status status;
    CHECK(!rig_set(store, R, 701, &status) && status == RAD_FULL);
    CHECK(rig_get(store, R, 700, NULL));
    store.ops->close(store.self);
    redis_end(&server);
}

TEST(a_password_and_a_user_are_given)
{
    SKIP_UNLESS(redis_is_installed(), "redis-server is not installed");
    static const char *const options[] = {"--requirepass",
                                          "sesame",
                                          /* what docs/scale-out.md says is enough */ "--user",
                                          "pages",
                                          "on",
                                          ">open",
                                          "~radish:*",
                                          "+get",
                                          "+set",
                                          "+del",
                                          "+exists",
                                          "+asking",
                                          "+scan",
                                          "+cluster|slots",
                                          "+config|get",
                                          NULL};
    redis_server server;
    redis_start(&server, options, "NOAUTH");
    log_lines log = {0};
    rad_storage store = redis_open(server.port, (rad_storage_redis_params){0}, &log);
    CHECK(!rig_set(store, R, 1, NULL) && strstr(log.text, "NOAUTH"));
    store.ops->close(store.self);
    log.text[0] = 0;
    store = redis_open(server.port, (rad_storage_redis_params){.password = "wrong"}, &log);
    CHECK(!rig_set(store, R, 1, NULL) && strstr(log.text, "WRONGPASS"));
    store.ops->close(store.self);
    store = redis_open(server.port, (rad_storage_redis_params){.password = "sesame"}, NULL);
    CHECK(rig_set(store, R, 1, NULL));
    store.ops->close(store.self);
    store = redis_open(server.port, (rad_storage_redis_params){.user = "pages", .password = "open"},
                       NULL);
    rad_storage_key key = rig_key(1);
    CHECK(rig_get(store, R, 1, NULL) && rig_set(store, R, 1, NULL));
    CHECK(store.ops->remove(store.self, &key, NULL) == RAD_OK && !rig_get(store, R, 1, NULL));
    CHECK(rig_set(store, R, 1, NULL) && store.ops->clear(store.self, NULL) == RAD_OK);
    CHECK(!rig_get(store, R, 1, NULL));
    store.ops->close(store.self);
    redis_end(&server);
}

/* Until a page can be stored and read again. */
static void until_well(rad_storage store, uint64_t id)
{
    AWAIT(rig_set(store, R, id, NULL) && rig_get(store, R, id, NULL));
}

TEST(a_redis_that_stops_goes_and_comes_back)
{
    SKIP_UNLESS(redis_is_installed(), "redis-server is not installed");
    redis_server server;
    redis_start(&server, NULL, "PONG");
    rad_storage_redis_params p = {.timeout_ms = 200, .max_backoff_ms = 300};
    rad_storage store = redis_open(server.port, p, NULL);
    until_well(store, 1);

    kill(server.pid, SIGSTOP);
    rad_status status;
    CHECK(!rig_get(store, R, 1, &status) && status == RAD_E_IO); /* it gives up */
    CHECK(!rig_get(store, R, 1, NULL) && rig_stats(store).down == 1);
    kill(server.pid, SIGCONT);
    until_well(store, 1);
    CHECK(rig_stats(store).down == 0);

    redis_kill(&server);
    CHECK(!rig_get(store, R, 1, NULL) && !rig_set(store, R, 1, NULL) && rig_stats(store).down);
    redis_launch(&server, NULL);
    CHECK(redis_wait_ready(&server, "PONG"));
    until_well(store, 2);
    CHECK(!rig_get(store, R, 1, NULL) && rig_stats(store).down == 0); /* it forgot */
    store.ops->close(store.self);
    redis_end(&server);
}

static void *crowd(void *arg)
{
    rad_storage *store = arg;
    uint64_t random = test_seed(), got = 0;
    for (int i = 0; i < 300; i++) {
        uint64_t id = test_random(&random) % 50;
        got += test_random(&random) % 2 ? rig_set(*store, R, id, NULL)
                                        : rig_get(*store, R, id, NULL);
    }
    return (void *)(uintptr_t)got;
}

static void hex_name(char name[80], uint64_t id)
{
    rad_storage_key key = rig_key(id);
    int at = snprintf(name, 80, "radish:");
    for (int i = 0; i < 32; i++)
        at += snprintf(name + at, 80 - (size_t)at, "%02x", key.bytes[i]);
}

/* The server of a slot moves one page's slot to another master: while it moves, the page is
 * where ASK says; when it has moved, where MOVED says. */
static void move_a_slot(redis_server servers[6], rad_storage store)
{
    char name[80], command[400];
    uint64_t id = 0;
    do
        hex_name(name, ++id);
    while (redis_slot(name, strlen(name)) > 5460); /* on servers[0] */
    CHECK(rig_set(store, R, id, NULL));
    int slot = redis_slot(name, strlen(name));
    redisReply *from = redis_say(servers[0].port, "CLUSTER MYID");
    redisReply *to = redis_say(servers[1].port, "CLUSTER MYID");
    snprintf(command, sizeof command, "CLUSTER SETSLOT %d IMPORTING %s", slot, from->str);
    CHECK(redis_says(servers[1].port, command, "OK"));
    snprintf(command, sizeof command, "CLUSTER SETSLOT %d MIGRATING %s", slot, to->str);
    CHECK(redis_says(servers[0].port, command, "OK"));
    uint64_t before = rig_stats(store).retries;
    CHECK(rig_get(store, R, id, NULL) && rig_stats(store).retries == before); /* still here */
    snprintf(command, sizeof command, "MIGRATE 127.0.0.1 %d %s 0 1000", servers[1].port, name);
    CHECK(redis_says(servers[0].port, command, "OK"));
    CHECK(rig_get(store, R, id, NULL) && rig_stats(store).retries == before + 1); /* ASK */
    CHECK(rig_set(store, R, id, NULL) && rig_stats(store).retries == before + 2);
    for (int i = 1; i >= 0; i--) {
        snprintf(command, sizeof command, "CLUSTER SETSLOT %d NODE %s", slot, to->str);
        CHECK(redis_says(servers[i].port, command, "OK"));
    }
    /* MOVED; again, when the map comes from a node that has not heard of it. */
    CHECK(rig_get(store, R, id, NULL) && rig_stats(store).retries >= before + 3);
    AWAIT((before = rig_stats(store).retries, rig_get(store, R, id, NULL)) &&
          rig_stats(store).retries == before);
    freeReplyObject(from);
    freeReplyObject(to);
}

static int num_masters(const redis_server *servers)
{
    int masters = 0;
    for (int i = 1; i < 6; i++)
        masters += redis_says(servers[i].port, "INFO replication", "role:master");
    return masters;
}

/* Until so many of servers[1..5] are masters. */
static void until_masters(const redis_server *servers, int wanted)
{
    AWAIT(num_masters(servers) == wanted);
}

TEST(a_cluster_keeps_pages_while_its_nodes_come_and_go)
{
    SKIP_UNLESS(redis_is_installed(), "redis-server is not installed");
    enum { N = 150 };
    redis_server servers[6];
    cluster_start(servers);
    /* It is told of one node, a replica even, and finds the others. */
    rad_storage store =
        redis_open(servers[4].port, (rad_storage_redis_params){.timeout_ms = 60000}, NULL);
    for (uint64_t id = 0; id < N; id++)
        AWAIT(rig_set(store, R, id, NULL));
    uint64_t retries = rig_stats(store).retries;
    check_many(store, N, R);
    CHECK(rig_stats(store).retries == retries); /* every name went to its node at once */
    for (int i = 0; i < 3; i++)
        CHECK(redis_number(servers[i].port, "DBSIZE") > N / 6);

    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, crowd, &store));
    for (int i = 0; i < 4; i++) {
        void *got;
        pthread_join(threads[i], &got);
        CHECK((uintptr_t)got == 300);
    }
    move_a_slot(servers, store);

    store.ops->close(store.self);
    rad_storage_redis_params p = {.timeout_ms = 500, .max_backoff_ms = 300};
    store = redis_open(servers[2].port, p, NULL);

    /* A stopped master costs its own pages, and the time of one call. */
    uint64_t lost = 0;
    cluster_doubts_after(servers, 1500);
    kill(servers[1].pid, SIGSTOP);
    for (uint64_t id = 0; id < N; id++)
        lost += !rig_get(store, R, id, NULL);
    CHECK(lost > N / 6 && lost < N * 5 / 6);
    kill(servers[1].pid, SIGCONT);
    for (uint64_t id = 0; id < N; id++)
        AWAIT(id == N / 2 || rig_get(store, R, id, NULL));

    /* A master dies, its replica is promoted, and has its pages. How many are found meanwhile is
     * not to be told: on a busy machine the replica is there first, or nodes doubt each other. */
    until_masters(servers, 2);
    AWAIT(redis_number(servers[0].port, "DBSIZE") == redis_number(servers[3].port, "DBSIZE"));
    redis_kill(&servers[0]);
    for (uint64_t id = 0; id < N; id++)
        AWAIT(id == N / 2 || rig_get(store, R, id, NULL));
    until_masters(servers, 3);
    for (uint64_t id = 1000; id < 1000 + N; id++)
        AWAIT(rig_set(store, R, id, NULL));
    CHECK(store.ops->clear(store.self, NULL) == RAD_OK);
    for (uint64_t id = 1000; id < 1000 + N; id++)
        CHECK(!rig_get(store, R, id, NULL));
    store.ops->close(store.self);
    cluster_end(servers);
}

TEST_MAIN()
