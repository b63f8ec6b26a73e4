/* test_storage_redis_trust.c - where a password goes and where it comes from, and that nothing a
 * server does keeps a store from being closed. */
#define _GNU_SOURCE
#include "redis_rig.h"

#include "engine/engine_secret.h"
#include "engine/engine_tiers.h"
#include "storage/redis_map.h"

#include <stdatomic.h>

enum { R = RIG_RECORD };

/* A node that says what it was told to, to one client at a time, and remembers what it was asked.
 */
typedef struct node {
    const char *address; /* to listen on */
    char map[256];       /* to CLUSTER SLOTS */
    char page[96];       /* to what is asked about pages */
    char scan[64];       /* to SCAN; empty: silence */
    char heard[4096];    /* what came first */
    atomic_bool scan_ends; /* SCAN is answered: nothing more */
    atomic_uint connections, scans;
    redis_double d;
} node;

static void say(int fd, const char *text)
{
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void talk(node *n, int fd)
{
    char asked[8192];
    ssize_t len;
    while (double_waits(&n->d, fd, true) && (len = recv(fd, asked, sizeof asked - 1, 0)) > 0) {
        asked[len] = 0;
        size_t had = strlen(n->heard);
        snprintf(n->heard + had, sizeof n->heard - had, "%s", asked);
        if (strstr(asked, "AUTH"))
            say(fd, "+OK\r\n");
        else if (strstr(asked, "CLUSTER"))
            say(fd, n->map);
        else if (strstr(asked, "CONFIG"))
            say(fd, "-ERR no\r\n");
        else if (strstr(asked, "SCAN")) {
            atomic_fetch_add(&n->scans, 1);
            say(fd, atomic_load(&n->scan_ends) ? "*2\r\n$1\r\n0\r\n*0\r\n" : n->scan);
        } else
            say(fd, n->page);
    }
    close(fd);
}

static void *node_main(void *arg)
{
    node *n = arg;
    while (double_waits(&n->d, n->d.listener, true)) {
        int fd = accept(n->d.listener, NULL, NULL);
        atomic_fetch_add(&n->connections, 1);
        if (fd >= 0) talk(n, fd);
    }
    return NULL;
}

static void node_start(node *n)
{
    if (!n->map[0])
        snprintf(n->map, sizeof n->map, "-ERR This instance has cluster support disabled\r\n");
    if (!n->page[0]) snprintf(n->page, sizeof n->page, "$-1\r\n");
    double_start(&n->d, n->address, node_main, n);
}

/* All slots are the other node's, or this one's. */
static void give_slots(node *n, const node *owner)
{
    snprintf(n->map, sizeof n->map, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n%s\r\n:%d\r\n",
             owner->address, owner->d.port);
}

static rad_storage open_at(const rad_env *env, const node *n, const char *allowed)
{
    char nodes[64];
    rad_error err = {0};
    rad_storage store;
    snprintf(nodes, sizeof nodes, "%s:%d", n->address, n->d.port);
    rad_storage_redis_params p = {.struct_size = sizeof p,
                                  .nodes = nodes,
                                  .password = "geheim",
                                  .allowed_hosts = allowed,
                                  .threads = 1,
                                  .connect_timeout_ms = 1000 * TEST_HANG_S,
                                  .timeout_ms = 1000 * TEST_HANG_S,
                                  .max_backoff_ms = 1};
    rad_status status = rad_storage_redis_open(env, &p, &store, &err);
    CHECKF(status == RAD_OK, "%s\n", err.text);
    return store;
}

/* ---- who gets the password ---- */

TEST(a_redirection_goes_to_nodes_of_the_map_or_to_allowed_hosts)
{
    static redis_map m;
    uint16_t slot, place;
    CHECK_OK(redis_map_seeds(&m, "10.0.0.1:6379,10.0.0.2", NULL));
    CHECK_OK(redis_map_allow(&m, NULL, NULL));
    CHECK(redis_map_redirect(&m, "MOVED 5 10.0.0.2:6379", 0, &slot, &place) && place == 1);
    CHECK(redis_map_redirect(&m, "MOVED 5 :6379", 0, &slot, &place) && place == 0);
    CHECK(redis_map_redirect(&m, "MOVED 5 10.0.0.2:6380", 0, &slot, &place) &&
          place == REDIS_NOWHERE);
    CHECK(redis_map_redirect(&m, "ASK 5 10.0.0.3:6379", 0, &slot, &place) &&
          place == REDIS_NOWHERE);
    CHECK(!redis_map_redirect(&m, "MOVED x 10.0.0.2:6379", 0, &slot, &place));
    CHECK(m.num_nodes == 2);

    uint16_t third = redis_map_node(&m, "10.0.0.3", 8, 6379); /* a map names it, and no longer */
    m.nodes[third].is_named = 1;
    CHECK(redis_map_redirect(&m, "MOVED 5 10.0.0.3:6379", 0, &slot, &place) && place == third);
    redis_map_forget_names(&m);
    CHECK(redis_map_redirect(&m, "MOVED 5 10.0.0.3:6379", 0, &slot, &place) &&
          place == REDIS_NOWHERE);
    CHECK(redis_map_redirect(&m, "MOVED 5 10.0.0.1:6379", 0, &slot, &place) && place == 0);

    CHECK(redis_map_may_name(&m, "any", 3));
    CHECK_OK(redis_map_allow(&m, "10.0.0.4,Node-5", NULL));
    CHECK(redis_map_redirect(&m, "MOVED 5 10.0.0.4:7000", 0, &slot, &place) && place == 3);
    CHECK(redis_map_redirect(&m, "ASK 5 node-5:7000", 0, &slot, &place) && place == 4);
    CHECK(redis_map_may_name(&m, "node-5", 6) && redis_map_may_name(&m, "10.0.0.1", 8));
    CHECK(!redis_map_may_name(&m, "10.0.0.3", 8) && !redis_map_may_name(&m, "10.0.0", 6));
    rad_error err;
    CHECK(redis_map_allow(&m, "a b", &err) == RAD_E_INVAL && strstr(err.text, "HOST,HOST"));
}

/* A node that sends us elsewhere: `elsewhere` is connected to only where it may be. */
static unsigned led_astray(const char *by, const char *allowed, bool named)
{
    node liar = {.address = "127.0.0.1"}, elsewhere = {.address = "127.0.0.2"};
    node_start(&elsewhere);
    node_start(&liar);
    give_slots(&liar, named ? &elsewhere : &liar);
    if (by) { /* with the slot of what is asked for */
        char name[80];
        rad_storage_key key = rig_key(1);
        int at = snprintf(name, sizeof name, "radish:");
        for (int i = 0; i < 32; i++)
            at += snprintf(name + at, sizeof name - (size_t)at, "%02x", key.bytes[i]);
        snprintf(liar.page, sizeof liar.page, "-%s %d 127.0.0.2:%d\r\n", by,
                 redis_slot(name, (size_t)at), elsewhere.d.port);
    }
    rad_storage store = open_at(NULL, &liar, allowed);
    for (int i = 0; i < 3; i++)
        CHECK(!rig_get(store, R, 1, NULL));
    store.ops->close(store.self);
    double_stop(&liar.d);
    double_stop(&elsewhere.d);
    CHECK(strstr(liar.heard, "geheim"));
    bool told = strstr(elsewhere.heard, "geheim") != NULL;
    unsigned connections = atomic_load(&elsewhere.connections);
    CHECK(told == (connections > 0));
    return connections;
}

TEST(a_password_goes_nowhere_else)
{
    CHECK(led_astray("MOVED", NULL, false) == 0);
    CHECK(led_astray("ASK", NULL, false) == 0);
    CHECK(led_astray("MOVED", "127.0.0.3", false) == 0);
    CHECK(led_astray("MOVED", "127.0.0.2", false) > 0);
    CHECK(led_astray("ASK", "127.0.0.2", false) > 0);
    CHECK(led_astray(NULL, NULL, true) > 0);         /* the map names it */
    CHECK(led_astray(NULL, "127.0.0.3", true) == 0); /* it may not */
}

/* ---- where it comes from ---- */

static void write_secret(const char *path, const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, text, len) == (ssize_t)len && close(fd) == 0);
}

TEST(a_password_file_holds_one_line)
{
    static char longest[ENGINE_SECRET_BYTES + 1];
    char path[64], out[ENGINE_SECRET_BYTES];
    rad_error err = {0};
    memset(longest, 'x', sizeof longest);
    CHECK(engine_secret_read("/nowhere/at/all", out, &err) == RAD_E_IO &&
          strstr(err.text, "/nowhere"));
    CHECK(engine_secret_read("/", out, &err) == RAD_E_IO);
    rig_dir(path);
    static const char *const good[] = {"geheim", "geheim\n", "geheim\r\n"};
    for (size_t i = 0; i < RAD_COUNT(good); i++) {
        write_secret(path, good[i], strlen(good[i]));
        CHECK(engine_secret_read(path, out, &err) == RAD_OK && strcmp(out, "geheim") == 0);
    }
    write_secret(path, longest, ENGINE_SECRET_BYTES - 1);
    CHECK(engine_secret_read(path, out, &err) == RAD_OK && strlen(out) == ENGINE_SECRET_BYTES - 1);
    static const struct {
        const char *text;
        size_t len;
    } bad[] = {{"", 0},
               {"\n", 1},
               {"a\nb\n", 4},
               {"a\0b", 3},
               {longest, ENGINE_SECRET_BYTES},
               {longest, ENGINE_SECRET_BYTES + 1}};
    for (size_t i = 0; i < RAD_COUNT(bad); i++) {
        write_secret(path, bad[i].text, bad[i].len);
        CHECKF(engine_secret_read(path, out, &err) == RAD_E_INVAL, "%zu\n", i);
    }
    CHECK(unlink(path) == 0);
}

/* The password that a node hears, of a store that is opened by words. */
static rad_status heard_password(const char *extra, bool from_client, char password[32],
                                 rad_error *err)
{
    node n = {.address = "127.0.0.1"};
    rad_env env = rad_env_or_default(NULL);
    rad_storage store;
    char spec[64];
    node_start(&n);
    snprintf(spec, sizeof spec, "redis:127.0.0.1:%d", n.d.port);
    const engine_store_words words = {
        .spec = spec, .extra_config = extra, .from_client = from_client};
    *err = (rad_error){0};
    rad_status status = engine_store_open(&env, &words, &store, err);
    if (!status) store.ops->close(store.self);
    double_stop(&n.d);
    const char *auth = strstr(n.heard, "AUTH\r\n");
    password[0] = 0;
    if (auth) (void)sscanf(auth, "AUTH\r\n$%*d\r\n%31s", password);
    return status;
}

TEST(a_password_comes_from_the_config_a_file_or_the_environment)
{
    char path[64], of_file[128], both[160], password[32];
    rad_error err;
    write_secret(rig_dir(path), "of-file\n", 8);
    snprintf(of_file, sizeof of_file, "{\"password_file\":\"%s\"}", path);
    snprintf(both, sizeof both, "{\"password_file\":\"%s\",\"password\":\"x\"}", path);
    for (int from_client = 0; from_client < 2; from_client++) {
        CHECK(!heard_password("{}", from_client, password, &err) && !*password);
        CHECK(!heard_password("{\"password\":\"given\"}", from_client, password, &err));
        CHECK(strcmp(password, "given") == 0);
    }
    CHECK(!heard_password(of_file, false, password, &err) && strcmp(password, "of-file") == 0);
    CHECK(heard_password(both, false, password, &err) == RAD_E_INVAL &&
          strstr(err.text, "not both"));
    CHECK(heard_password("{\"password_file\":\"/nowhere\"}", false, password, &err) == RAD_E_IO);
    CHECK(!setenv(ENGINE_SECRET_ENV, "of-env", 1));
    CHECK(!heard_password(NULL, false, password, &err) && strcmp(password, "of-env") == 0);
    CHECK(!heard_password(of_file, false, password, &err) && strcmp(password, "of-file") == 0);
    CHECK(!heard_password("{\"password\":\"given\"}", false, password, &err));
    CHECK(strcmp(password, "given") == 0);
    /* Who attaches a store names the host: neither our environment nor our files go there. */
    CHECK(!heard_password(NULL, true, password, &err) && !*password);
    CHECK(heard_password(of_file, true, password, &err) == RAD_E_INVAL && !*password);
    CHECK(!unsetenv(ENGINE_SECRET_ENV) && unlink(path) == 0);
}

/* ---- the end ---- */

static _Atomic uint64_t still_ns;

static uint64_t stand_still(void *user)
{
    (void)user;
    return atomic_load(&still_ns);
}

typedef struct clearing {
    rad_storage store;
    rad_status status;
    rad_error err;
    atomic_bool ended;
} clearing;

static void *clear_main(void *arg)
{
    clearing *c = arg;
    c->status = c->store.ops->clear(c->store.self, &c->err);
    atomic_store(&c->ended, true);
    return NULL;
}

/* SCAN's cursor never comes back to 0, or SCAN is not answered at all, and no time passes: only
 * end_clear ends the clear. */
TEST(a_scan_without_end_is_ended)
{
    static const char *const scans[] = {"*2\r\n$1\r\n7\r\n*0\r\n", ""};
    for (size_t i = 0; i < RAD_COUNT(scans); i++) {
        node n = {.address = "127.0.0.1"};
        rad_env env = rad_env_or_default(NULL);
        env.now_ns = stand_still;
        snprintf(n.scan, sizeof n.scan, "%s", scans[i]);
        atomic_store(&still_ns, 1000000000);
        node_start(&n);
        clearing c = {.store = open_at(&env, &n, NULL)};
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, clear_main, &c));
        while (atomic_load(&n.scans) < (i ? 1 : 50))
            usleep(1000);
        CHECK(!atomic_load(&c.ended));
        c.store.ops->end_clear(c.store.self);
        pthread_join(thread, NULL);
        CHECK(c.status == RAD_E_IO && c.err.text[0]);
        /* Nor does another begin: it would succeed now. What the node counts is no measure: it may
         * not have read the last question of the ended clear yet. */
        atomic_store(&n.scan_ends, true);
        atomic_fetch_add(&still_ns, 1000000000);
        CHECK(c.store.ops->clear(c.store.self, &c.err) == RAD_E_IO);
        c.store.ops->close(c.store.self);
        double_stop(&n.d);
    }
}

TEST_MAIN()
