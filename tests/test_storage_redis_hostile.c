/* test_storage_redis_hostile.c - a server that answers nonsense, half, slowly or not at all
 * costs misses and a bounded time; nothing it sends becomes a page. */
#define _GNU_SOURCE
#include "redis_rig.h"

enum { R = RIG_RECORD };

/* A server of one thread: says what it was told to, whatever it is asked. */
typedef struct liar {
    const char *says; /* to whatever comes; NULL: nothing */
    size_t len;
    uint32_t pause_us; /* between bytes */
    bool hang_up;      /* after it */
    bool cluster;      /* the first answer is an honest map with this server */
    uint32_t patient; /* clients that took all of a slow answer */
    redis_double d;
} liar;

static bool wait_us(liar *l, uint32_t us)
{
    struct pollfd fd = {.fd = l->d.stop[0], .events = POLLIN};
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    return ppoll(&fd, 1, &t, NULL) == 0;
}

/* One client; what others want waits in the backlog. */
static bool serve(liar *l, int fd)
{
    char asked[65536];
    bool first = true, go_on = true;
    while ((go_on = double_waits(&l->d, fd, false)) && recv(fd, asked, sizeof asked, 0) > 0) {
        if (first && l->cluster) {
            static const char none[] = "-ERR This instance has cluster support disabled\r\n";
            send(fd, none, sizeof none - 1, MSG_NOSIGNAL);
            first = false;
            continue;
        }
        size_t i = 0;
        while (l->says && i < l->len) {
            size_t part = l->pause_us ? 1 : l->len - i;
            ssize_t n = send(fd, l->says + i, part, MSG_NOSIGNAL);
            if (n <= 0 || (l->pause_us && !(go_on = wait_us(l, l->pause_us)))) break;
            i += (size_t)n;
        }
        l->patient += l->pause_us && i == l->len;
        if (l->hang_up || !go_on) break;
    }
    close(fd);
    return go_on;
}

static void *live(void *arg)
{
    liar *l = arg;
    for (;;) {
        if (!double_waits(&l->d, l->d.listener, false)) return NULL;
        int fd = accept(l->d.listener, NULL, NULL);
        if (fd >= 0 && !serve(l, fd)) return NULL;
    }
}

/* Opens a store on it, asks each kind of question, and checks that there was no page, no
 * harm, and an end. */
static void try_liar(liar l)
{
    double_start(&l.d, "127.0.0.1", live, &l);
    rad_storage_redis_params p = {
        .timeout_ms = 30, .connect_timeout_ms = 30, .max_backoff_ms = 1, .threads = 1};
    rad_storage store = redis_open(l.d.port, p, NULL);
    for (int i = 0; i < 2; i++) {
        rad_storage_key keys[3] = {rig_key(1), rig_key(2), rig_key(3)};
        static uint8_t memory[3][R];
        void *records[3] = {memory[0], memory[1], memory[2]};
        uint8_t done[3] = {9, 9, 9};
        rad_storage_batch b = {
            .keys = keys, .records = records, .record_bytes = R, .count = 3, .done = done};
        uint32_t present = 9;
        rad_error err = {0};
        rad_status status = store.ops->batch_get(store.self, &b, &err);
        CHECK(status == RAD_OK || (status < 0 && err.text[0]));
        CHECK(!done[0] && !done[1] && !done[2]);
        (void)store.ops->batch_exists(store.self, &b, &present, NULL);
        (void)store.ops->batch_set(store.self, &b, NULL);
        CHECK(present <= 3);
    }
    store.ops->close(store.self);
    double_stop(&l.d);
    CHECK(!l.patient);
}

/* The lie as the answer to everything, and after an honest beginning. */
static void try_lie(const char *says, size_t len, bool hang_up)
{
    for (int cluster = 0; cluster < 2; cluster++)
        try_liar((liar){.says = says, .len = len, .hang_up = hang_up, .cluster = cluster});
}

TEST(nonsense_is_no_page)
{
    static const char *const lies[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "+OK\r\n",
        ":7\r\n",
        "$-1\r\n",
        "$-2\r\n",
        "$5\r\nshort\r\n",
        "$99999999999999999999\r\n",
        "$4294967296\r\n",
        "$512000000\r\nand then nothing",
        "*-1\r\n",
        "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
        "*2147483647\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:999999\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n*1\r\n$-1\r\n",
        "*1\r\n*3\r\n:0\r\n:16383\r\n:1\r\n",
        "*1\r\n:1\r\n",
        "-MOVED 1 127.0.0.1:1\r\n",
        "-MOVED\r\n",
        "-MOVED 99999 :\r\n",
        "-ASK 3 x y:z\r\n",
        "-TRYAGAIN\r\n",
        "-CLUSTERDOWN the cluster is down\r\n",
        "-LOADING\r\n",
        "-READONLY\r\n",
        "-\r\n",
        "\r\n",
        "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n",
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        try_lie(lies[i], strlen(lies[i]), i % 2);
    try_lie("\0\0\0\0\0\0\0\0", 8, false);
}

TEST(silence_and_a_hang_up_are_no_page)
{
    try_lie(NULL, 0, false);
    try_lie(NULL, 0, true);
    try_lie("$4096\r\nhalf of it", 17, true);
    try_lie("$4096\r\nhalf of it", 17, false);
}

TEST(one_byte_at_a_time_ends_with_the_deadline)
{
    static char slow[5000];
    snprintf(slow, sizeof slow, "$4096\r\n");
    try_liar((liar){.says = slow, .len = sizeof slow, .pause_us = 5000, .cluster = true});
    try_liar((liar){.says = slow, .len = sizeof slow, .pause_us = 5000});
}

TEST(an_answer_without_end_is_cut)
{
    size_t len = 8 << 20;
    char *flood = malloc(len);
    memset(flood, 'x', len);
    memcpy(flood, "$100000000\r\n", 12);
    try_lie(flood, len, false);
    memcpy(flood, "+", 1);
    try_lie(flood, len, false);
    free(flood);
}

/* Any bytes at all, seed printed. */
TEST(random_bytes_are_no_page)
{
    uint64_t seed = test_told_seed(), random = seed;
    static const char often[] = "$*+-:0123456789\r\n\r\n\r\nMOVEDASK ";
    char lie[200];
    for (uint64_t i = 0; i < test_scale(5, 300); i++) {
        size_t len = test_random(&random) % sizeof lie;
        for (size_t k = 0; k < len; k++)
            lie[k] = test_random(&random) % 8 ? often[test_random(&random) % (sizeof often - 1)]
                                              : (char)test_random(&random);
        try_lie(lie, len, test_random(&random) % 2);
    }
}

TEST_MAIN()
