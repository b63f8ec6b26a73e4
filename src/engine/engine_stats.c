/* engine_stats.c - figures that nobody has to wait for.
 *
 * What the scheduler's thread alone may look at it copies now and then: where it would sleep, after
 * a call of another thread's, before it hands out the last output of a request, and in any case
 * every NOTE_NS while steps go on. So whoever has an answer finds it counted, and a reader meets no
 * step, however long it is; what is live under a lock of its own (requests, latencies) is read
 * there. */
#include "engine/engine_impl.h"

enum { NOTE_NS = 10000000 };
static const uint64_t window_ns = 1000000000; /* of gen_throughput */

/* Tokens a second, of the last whole window. */
static void follow_throughput(engine_notes *n, const scheduler_stats *s, uint64_t now_ns)
{
    const uint64_t passed = now_ns - n->window_at_ns;
    const bool idle = !s->num_running || !n->stats.sched.num_running;
    if (idle) n->throughput = 0; /* and a window begins where something runs */
    if (passed < window_ns && !idle) return;
    if (!idle)
        n->throughput = (double)(s->generated_tokens - n->window_tokens) / (double)passed * 1e9;
    n->window_at_ns = now_ns;
    n->window_tokens = s->generated_tokens;
}

void engine_note_stats(engine *e, bool now)
{
    engine_notes *n = &e->notes;
    const uint64_t now_ns = e->env.now_ns(e->env.user);
    if (!now && now_ns - n->at_ns < NOTE_NS) return;
    engine_stats stats = {0};
    engine_fill_stats(e, &stats);
    follow_throughput(n, &stats.sched, now_ns);
    stats.gen_throughput = n->throughput;
    pthread_mutex_lock(&n->lock);
    n->stats = stats;
    n->at_ns = now_ns;
    pthread_mutex_unlock(&n->lock);
}

void engine_peek_stats(engine *e, engine_stats *stats)
{
    engine_notes *n = &e->notes;
    pthread_mutex_lock(&n->lock);
    *stats = n->stats;
    const uint64_t at_ns = n->at_ns;
    pthread_mutex_unlock(&n->lock);
    stats->sched.self_check.age_ns += e->env.now_ns(e->env.user) - at_ns;
    engine_add_stats(e, stats);
    pthread_mutex_lock(&e->lock);
    const uint32_t queued = e->num_queued; /* those too that the scheduler has not looked at yet */
    pthread_mutex_unlock(&e->lock);
    stats->sched.num_waiting = RAD_MAX(stats->sched.num_waiting, queued);
}

void engine_get_latency(engine *e, latency_kind kind, latency_histogram *out)
{
    latency_get(&e->latency, kind, out);
}
