/* test_worker.c - the order in which a worker turns to what it has: a worker of a server that is
 * nothing else, and calls of our own. */
#include "server_rig.h"

#include "server/server_priv.h"

static _Atomic uint32_t num_attempts;

static call_progress wait_counted(call *c)
{
    (void)c;
    atomic_fetch_add(&num_attempts, 1);
    return CALL_WAIT;
}

static call_progress wait_longer(call *c)
{
    (void)c;
    return CALL_WAIT;
}

static void push_call(server *s, worker *w, call *c, call_progress (*work)(call *c))
{
    *c = (call){.server = s, .work = work, .created_ns = server_now_ns(s), .timeout_ms = 3600000};
    c->own.call = c;
    worker_push(w, &c->own);
}

/* However many come to wait, and however quickly, those that wait already are tried. */
TEST(new_waiters_do_not_put_off_old_ones)
{
    enum { MOST_CALLS = 3000 };
    uint32_t num_calls = 0;
    call *calls = calloc(MOST_CALLS, sizeof *calls);
    server s = {.env = rad_env_or_default(NULL), .wake_fd = -1};
    worker w = {0};
    CHECK(calls != NULL);
    pthread_mutex_init(&s.lock, NULL);
    CHECK_OK(worker_start(&s, &w, NULL));
    atomic_store(&num_attempts, 0);
    push_call(&s, &w, &calls[num_calls++], wait_counted);
    while (atomic_load(&num_attempts) < 2 && num_calls < MOST_CALLS) {
        push_call(&s, &w, &calls[num_calls++], wait_longer);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    CHECKF(atomic_load(&num_attempts) >= 2, "%u attempts", atomic_load(&num_attempts));
    worker_join(&w);
    pthread_mutex_destroy(&s.lock);
    free(calls);
}

TEST_MAIN()
