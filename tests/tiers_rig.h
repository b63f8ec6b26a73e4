/* tiers_rig.h - a scheduler over a cache with tiers: faults on the way, a store that may be there,
 * and requests for pieces of documents. */
#ifndef TESTS_TIERS_RIG_H
#define TESTS_TIERS_RIG_H

#include "below.h"
#include "scheduler_rig.h"

#include "base/mix64.h"
#include "gear/device_guarded.h"
#include "gear/device_sim.h"
#include "gear/storage_mem.h"
#include "mem/host_kv_pool.h"
#include "sched/scheduler_impl.h"

enum { NUM_REQS = 90, NUM_DOCS = 10, DOC_TOKENS = 150, MOST_PROMPT = 180, MOST_NEW = 12 };

typedef struct tiers_rig {
    rig g;
    rad_hicache_params tiers;
    rad_host_kv_pool_params host;
    rad_storage_identity identity;
    storage_mem store;
    rad_storage opened;
    device_sim sim;
    device_guarded guarded; /* if device_guarded_asked: where the fake's K/V are */
    uint64_t fault_every;
} tiers_rig;

static inline bool tiers_has_work(const scheduler *s)
{
    return !scheduler_is_idle(s) || scheduler_has_background(s);
}

/* All requests and transfers come to their ends. */
static inline void tiers_settle(tiers_rig *t)
{
    while (tiers_has_work(t->g.s))
        rig_step(&t->g);
}

static inline sim_fate tiers_fate(void *user, uint64_t copy)
{
    uint64_t every = ((tiers_rig *)user)->fault_every;
    return every && mix64(copy) % every == 0 ? (copy % 2 ? SIM_TORN : SIM_FAIL) : SIM_COPY;
}

static inline size_t tiers_record_bytes(uint32_t page_size)
{
    return RAD_STORAGE_HEADER_BYTES + (size_t)page_size * 2 * 8 * sizeof(float);
}

/* Whoever calls has filled t->tiers and t->host, and t->store when there is to be one. */
static inline void tiers_start(tiers_rig *t, scheduler_params params, bool stored)
{
    t->tiers.struct_size = sizeof t->tiers;
    t->host.struct_size = sizeof t->host;
    t->identity = (rad_storage_identity){
        .struct_size = sizeof t->identity, .model = "runner_fake", .page_size = params.page_size};
    if (stored) {
        t->opened = storage_mem_open(&t->store);
        t->tiers.identity = &t->identity;
        t->tiers.storage = &t->opened;
    }
    params.hicache = &t->tiers;
    params.host_pool = &t->host;
    device_sim_init(&t->sim, NULL);
    t->sim.script = tiers_fate;
    t->sim.user = t;
    t->host.device = &t->sim.base;
    if (device_guarded_asked()) {
        device_guarded_init(&t->guarded);
        t->sim.inner = rig_fake.device = &t->guarded.base;
        rig_fake.chooses = 1; /* the rest of what a runner on a GPU does */
    }
    rig_start(&t->g, params);
}

static inline rad_hicache_stats tiers_stop(tiers_rig *t)
{
    rad_hicache_stats stats;
    for (int i = 0; i < 10000 && tiers_has_work(t->g.s); i++)
        rig_step(&t->g);
    CHECK_OK(rad_hicache_get_stats(t->g.s->pools.inner_cache, &stats));
    CHECK(stats.tickets == 0 && stats.prefetch_reserved_tokens == 0);
    CHECK(stats.host_used_tokens == stats.host_cached_tokens);
    CHECK(stats.host_window_used_tokens == stats.host_window_cached_tokens);
    CHECK(stats.host_used_states == stats.host_cached_states);
    rig_stop(&t->g);
    if (rig_fake.device) CHECK(t->guarded.bytes == 0);
    rig_fake.device = NULL;
    rig_fake.chooses = 0;
    return stats;
}

/* Pieces of documents with own ends, greedy; several at a time. */
static inline void tiers_serve(tiers_rig *t, rad_token docs[NUM_DOCS][DOC_TOKENS], uint64_t *rng,
                               scheduler_stats *st)
{
    rig_req *reqs[NUM_REQS];
    uint32_t added = 0;
    while (added < NUM_REQS || !scheduler_is_idle(t->g.s)) {
        for (uint32_t burst = below(rng, 4); burst && added < NUM_REQS; burst--) {
            rad_token ids[MOST_PROMPT];
            uint32_t shared = 1 + below(rng, DOC_TOKENS), own = 1 + below(rng, 20);
            memcpy(ids, docs[below(rng, NUM_DOCS)], shared * sizeof *ids);
            rig_prompt(ids + shared, own, test_random(rng));
            reqs[added++] = rig_add(&t->g, ids, shared + own, 1 + below(rng, MOST_NEW));
        }
        rig_step(&t->g);
        if (added && below(rng, 12) == 0) {
            rig_req *q = reqs[below(rng, added)];
            if (!q->finish) scheduler_cancel(t->g.s, &q->r, REQ_FINISH_ABORT);
        }
        CHECK(t->g.steps < 200000);
    }
    scheduler_get_stats(t->g.s, st);
    for (uint32_t i = 0; i < added; i++) {
        CHECKF(reqs[i]->finish == REQ_FINISH_LENGTH || reqs[i]->finish == REQ_FINISH_ABORT,
               "request %u: %s\n", i, reqs[i]->r.error.text);
        rig_check_answer(reqs[i]);
        rig_drop(reqs[i]);
    }
}

static inline void tiers_docs(rad_token docs[NUM_DOCS][DOC_TOKENS], uint64_t seed)
{
    for (uint32_t d = 0; d < NUM_DOCS; d++)
        rig_prompt(docs[d], DOC_TOKENS, seed + d);
    for (uint32_t d = 1; d < NUM_DOCS; d += 2)
        memcpy(docs[d], docs[0], 50 * sizeof docs[0][0]);
}

/* ---- conversations ---- */

/* A conversation, streaming or not: each turn goes on from what was said, at times from less. */
typedef struct tiers_talk {
    uint32_t session; /* 0: it has none */
    rad_token said[MOST_PROMPT + 64];
    uint32_t len;
    rig_req *q; /* its turn; NULL: none runs */
} tiers_talk;

/* A turn with all that was said. */
static inline void tiers_add_turn(tiers_rig *t, tiers_talk *k, uint32_t max_new, uint64_t pin_ns,
                                  int32_t retention)
{
    k->q = rig_add_as(&t->g, (req_params){.ids = k->said,
                                          .num_ids = k->len,
                                          .max_new_tokens = max_new,
                                          .session = k->session,
                                          .pin_ns = pin_ns,
                                          .retention_priority = retention,
                                          .retention_idle_ns = 1000000,
                                          .sampling = {.top_p = 1}});
}

static inline void tiers_end_turn(tiers_talk *k)
{
    rig_req *q = k->q;
    CHECKF(q->finish == REQ_FINISH_LENGTH || q->finish == REQ_FINISH_ABORT, "%s\n",
           q->r.error.text);
    rig_check_answer(q);
    memcpy(k->said + k->len, q->out, q->num_out * sizeof *q->out);
    k->len += q->num_out;
    rig_drop(q);
    k->q = NULL;
}

#endif
