/* replay_sweep.c - the cells of a plan, each by whichever thread is free. */
#include "base/compute_pool.h"
#include "cli/replay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { MOST_THREADS = 256 };

typedef struct sweep {
    replay_plan *p;
    atomic_uint next, done;
    pthread_mutex_t lock; /* of the three */
    rad_status status;
    rad_error *err;
    bool tells;
} sweep;

const replay_pages *replay_pages_of(const replay_plan *p, uint32_t page_size)
{
    for (uint32_t i = 0; i < p->num_pages; i++)
        if (p->pages[i].page_size == page_size) return &p->pages[i];
    return NULL;
}

/* What nobody can do better, with all memory in one cache. */
static rad_status run_optimum(const replay_plan *p, replay_cell *c, rad_error *err)
{
    const replay_pages *pages = replay_pages_of(p, c->page_size);
    const uint64_t storage = RAD_MIN(p->storage_tokens / replay_block_tokens(p, c),
                                     (uint64_t)pages->chains->num_ids + trace_longest(p->t));
    const uint64_t all =
        RAD_MAX(RAD_MAX(c->capacity_blocks, c->host_blocks) * c->servers, storage);
    optimum_result o;
    rad_status status = page_chains_optimum(p->env, pages->chains, p->t, all, &o, err);
    c->r = (simulate_result){.requests = o.requests,
                             .prompt_blocks = o.prompt_blocks,
                             .prompt_tokens = o.prompt_tokens,
                             .hit_blocks = o.hit_blocks,
                             .hit_tokens = o.hit_tokens};
    return status;
}

static rad_status run_cell(const replay_plan *p, replay_cell *c, rad_error *err)
{
    if (c->optimum) return run_optimum(p, c, err);
    const replay_pages *pages = replay_pages_of(p, c->page_size);
    simulate_params s = {.page_size = c->page_size,
                         .num_servers = c->servers,
                         .capacity_elements = c->capacity_blocks * c->page_size,
                         .host_elements = c->host_blocks * c->page_size,
                         .storage_elements = p->storage_tokens == UINT64_MAX
                                                 ? UINT64_MAX
                                                 : p->storage_tokens /
                                                       trace_tokens_per_element(p->t),
                         .router = c->router,
                         .prices = p->prices,
                         .chains = pages ? pages->chains : NULL};
    cli_eviction("replay", c->policy, p->policy_config, &s.eviction); /* checked */
    return simulate(p->env, p->t, &s, &c->r, err);
}

static void tell(sweep *s)
{
    const unsigned done = atomic_fetch_add(&s->done, 1) + 1;
    if (!s->tells) return;
    pthread_mutex_lock(&s->lock);
    fprintf(stderr, "\r%u of %u cells", done, s->p->num_cells);
    if (done == s->p->num_cells) fprintf(stderr, "\r\033[K");
    fflush(stderr);
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *arg)
{
    sweep *s = arg;
    for (;;) {
        const unsigned i = atomic_fetch_add(&s->next, 1);
        rad_error err = {0};
        if (i >= s->p->num_cells) return NULL;
        const rad_status status = run_cell(s->p, &s->p->cells[i], &err);
        if (status != RAD_OK) {
            pthread_mutex_lock(&s->lock);
            if (s->status == RAD_OK) *s->err = err;
            if (s->status == RAD_OK) s->status = status;
            pthread_mutex_unlock(&s->lock);
            atomic_store(&s->next, s->p->num_cells); /* nobody begins another one */
            return NULL;
        }
        tell(s);
    }
}

rad_status replay_run(replay_plan *p, rad_error *err)
{
    sweep s = {.p = p, .err = err, .tells = p->num_cells > 1 && isatty(2)};
    pthread_t threads[MOST_THREADS];
    uint32_t started = 0;
    const uint32_t most = RAD_MIN(RAD_MIN(p->threads, p->num_cells), (uint32_t)MOST_THREADS);
    pthread_mutex_init(&s.lock, NULL);
    while (started + 1 < most && compute_thread_create(&threads[started], work, &s) == 0)
        started++;
    work(&s);
    while (started)
        pthread_join(threads[--started], NULL);
    pthread_mutex_destroy(&s.lock);
    if (s.tells && s.status != RAD_OK) fprintf(stderr, "\r\033[K");
    return s.status;
}
