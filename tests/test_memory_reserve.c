/* test_memory_reserve.c - pieces that are there when malloc has none, and what becomes of an answer
 * when they are not. */
#include "server_rig.h"

#include "server/memory_reserve.h"

#include <stdatomic.h>

enum { PIECES = 4096 + 256, THREADS = 4 };

static void *pieces[PIECES];

/* The reserve is compiled once more for this test, with these for malloc and realloc: see
 * CMakeLists.txt. While it is dry they refuse. */
static atomic_bool dry;

void *dry_malloc(size_t bytes);
void *dry_realloc(void *memory, size_t bytes);

void *dry_malloc(size_t bytes)
{
    return atomic_load(&dry) ? NULL : malloc(bytes);
}

void *dry_realloc(void *memory, size_t bytes)
{
    return atomic_load(&dry) ? NULL : realloc(memory, bytes);
}

static void set_dry(bool is_dry)
{
    atomic_store(&dry, is_dry);
}

TEST(what_malloc_refuses_comes_from_the_reserve)
{
    CHECK(memory_reserve_fill() && memory_reserve_fill());
    uint32_t small = memory_reserve_left(false), large = memory_reserve_left(true);
    uint64_t lost = memory_reserve_lost();
    CHECK(small == 4096 && large == 256);
    void *plain = memory_reserve_malloc(100);
    CHECK(plain && !memory_reserve_owns(plain) && memory_reserve_left(false) == small);

    set_dry(true);
    size_t sizes[] = {0, 1, 256, 257, 8192};
    for (size_t i = 0; i < RAD_COUNT(sizes); i++) {
        pieces[i] = memory_reserve_malloc(sizes[i]);
        CHECK(pieces[i] && memory_reserve_owns(pieces[i]));
        memset(pieces[i], (int)i + 1, sizes[i]);
    }
    CHECK(memory_reserve_left(false) == small - 3 && memory_reserve_left(true) == large - 2);
    CHECK(!memory_reserve_malloc(8193) && memory_reserve_lost() == lost + 1);
    for (size_t i = 0; i < RAD_COUNT(sizes); i++)
        for (size_t k = 0; k < sizes[i]; k++)
            CHECK(((uint8_t *)pieces[i])[k] == i + 1);
    /* Within its piece, into a larger one, out of malloc's, and past what there is. */
    CHECK(memory_reserve_realloc(pieces[2], 10) == pieces[2]);
    uint8_t *grown = memory_reserve_realloc(pieces[2], 300);
    CHECK(grown && grown != pieces[2] && grown[255] == 3 && memory_reserve_owns(grown));
    CHECK(!memory_reserve_realloc(grown, 9000) && grown[0] == 3);
    memset(plain, 9, 100);
    uint8_t *moved = memory_reserve_realloc(plain, 2000);
    CHECK(moved && memory_reserve_owns(moved) && moved[99] == 9);
    set_dry(false);
    uint8_t *back = memory_reserve_realloc(moved, 9000);
    CHECK(back && !memory_reserve_owns(back) && back[99] == 9);
    memory_reserve_free(back);
    memory_reserve_free(grown);
    memory_reserve_free(NULL);
    for (size_t i = 0; i < RAD_COUNT(sizes); i++)
        if (i != 2) memory_reserve_free(pieces[i]);
    CHECK(memory_reserve_left(false) == small && memory_reserve_left(true) == large);
}

/* Small requests take large pieces when the small ones are gone; then there is none, and all of
 * them come back. */
TEST(the_reserve_has_an_end)
{
    CHECK(memory_reserve_fill());
    uint64_t lost = memory_reserve_lost();
    set_dry(true);
    for (int i = 0; i < PIECES; i++)
        CHECK((pieces[i] = memory_reserve_malloc(8)) != NULL);
    CHECK(!memory_reserve_malloc(8) && memory_reserve_lost() == lost + 1);
    CHECK(!memory_reserve_left(false) && !memory_reserve_left(true));
    for (int i = 0; i < PIECES; i++)
        memory_reserve_free(pieces[i]);
    set_dry(false);
    CHECK(memory_reserve_left(false) == 4096 && memory_reserve_left(true) == 256);
}

static void *take_and_give(void *arg)
{
    uint64_t random = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 20000; i++) {
        size_t bytes = test_random(&random) % 600;
        uint8_t *memory = memory_reserve_malloc(bytes);
        if (memory) memset(memory, (int)random, bytes);
        memory = memory_reserve_realloc(memory, bytes + 300);
        if (memory) memory[bytes + 299] = 1;
        memory_reserve_free(memory);
    }
    return NULL;
}

TEST(threads_share_it)
{
    pthread_t threads[THREADS];
    CHECK(memory_reserve_fill());
    set_dry(true);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    set_dry(false);
    CHECK(memory_reserve_left(false) == 4096 && memory_reserve_left(true) == 256);
}

/* An allocation failed for good while a stream was on its way: it does not end as if it were whole.
 * The next request is answered. */
TEST(an_answer_that_may_have_a_hole_is_cut)
{
    struct fixture f;
    char bytes[4096];
    start(&f, 0);
    CHECK(memory_reserve_fill());
    int fd = dial(&f);
    const char *body = "{\"prompt\":\"slow\",\"stream\":true,\"max_tokens\":100000}";
    send_request(fd, "POST", "/v1/completions", body, strlen(body));
    ssize_t n = recv_some(fd, bytes, sizeof bytes - 1);
    CHECK(n > 0);
    set_dry(true);
    CHECK(!memory_reserve_malloc(1 << 20));
    set_dry(false);
    size_t kept = 0;
    char last[8] = "";
    do { /* ends by itself, and not with the last chunk */
        size_t some = RAD_MIN((size_t)n, 5);
        memmove(last, bytes + n - some, some);
        kept += (size_t)n;
        n = recv_some(fd, bytes, sizeof bytes - 1);
    } while (n > 0);
    CHECK(kept > 0 && memcmp(last, "0\r\n\r\n", 5) != 0);
    close(fd);
    json_decref(ask(&f, "GET", "/v1/models", "", 200));
    stop(&f);
}

/* The name in a path that evhttp_uridecode made, a config that json_dumps made: free() of a piece
 * of the reserve ended the server. */
TEST(what_libraries_made_for_us_goes_back_to_the_reserve)
{
    static const char config[] = "{\"hicache_storage_backend\":\"file:/nowhere/at/all\","
                                 "\"hicache_storage_backend_extra_config_json\":{\"threads\":1}}";
    struct fixture f;
    char bytes[4096];
    server_limit_buffers(64 << 20); /* libevent and jansson ask the reserve from here on */
    uint32_t small = memory_reserve_left(false), large = memory_reserve_left(true);
    start(&f, 0);
    const char *asked[][3] = {{"GET", "/v1/models/n%6fne", ""},
                              {"PUT", "/hicache/storage-backend", config}};
    for (size_t i = 0; i < RAD_COUNT(asked); i++) {
        int fd = dial(&f);
        set_dry(true);
        send_request(fd, asked[i][0], asked[i][1], asked[i][2], strlen(asked[i][2]));
        while (recv_some(fd, bytes, sizeof bytes) > 0) {
        }
        set_dry(false);
        close(fd);
    }
    json_decref(ask(&f, "GET", "/v1/models", "", 200));
    stop(&f);
    CHECK(memory_reserve_left(false) == small && memory_reserve_left(true) == large);
}

TEST_MAIN()
