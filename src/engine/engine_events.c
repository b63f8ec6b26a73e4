/* engine_events.c - the scheduler's KV events on their way to the publisher.
 *
 * After each step, between two requests' changes, what happened becomes batches: so a batch is
 * never half of something. The first one of an engine has AllBlocksCleared: a router that knew the
 * server's life before this one forgets it. */
#include "engine/engine_impl.h"

#include <stdlib.h>

rad_status engine_events_check(const engine_params *params, kv_events_config *out, rad_error *err)
{
    rad_status status = kv_events_config_parse(params->kv_events_config, out, err);
    if (status != RAD_OK || !out->on) return status;
    if (params->disable_radix_cache)
        return rad_fail(
            err, RAD_E_INVAL,
            "kv_events_config: with disable_radix_cache nothing is cached, and there are "
            "no events");
    if (!kv_publisher_is_built()) return kv_publisher_create(NULL, NULL, &(kv_publisher *){0}, err);
    return RAD_OK;
}

/* ---- everything anew ---- */

static void do_restate(engine *e, void *user)
{
    (void)user;
    engine_publish_events(e);
    kv_publisher_begin_restating(e->publisher);
    (void)scheduler_snapshot_events(e->scheduler, kv_publisher_add, e->publisher);
    kv_publisher_flush(e->publisher);
}

static void restate(void *user)
{
    (void)engine_run_on_scheduler(user, do_restate, NULL);
}

/* Twice what telling everything takes: the second half for what happens meanwhile. */
static uint64_t queue_bytes(const engine *e, const scheduler_stats *pool)
{
    const uint64_t least = UINT64_C(64) << 20, each = 16 + 5 * (uint64_t)e->params.page_size;
    const uint64_t tokens = pool->max_total_tokens + 2 * pool->tiers.host_tokens;
    return RAD_MAX(least, tokens / e->params.page_size * each * 2);
}

rad_status engine_events_init(engine *e, rad_error *err)
{
    if (!e->kv_events.on) return RAD_OK;
    scheduler_stats pool;
    scheduler_get_stats(e->scheduler, &pool);
    const kv_publisher_params p = {.config = &e->kv_events,
                                   .block_tokens = e->params.page_size,
                                   .max_queue_bytes = queue_bytes(e, &pool),
                                   .restate = restate,
                                   .user = e};
    rad_status status = kv_publisher_create(&e->env, &p, &e->publisher, err);
    if (status != RAD_OK) return status;
    snprintf(e->kv_events.endpoint, sizeof e->kv_events.endpoint, "%s",
             kv_publisher_endpoint(e->publisher));
    snprintf(e->kv_events.replay_endpoint, sizeof e->kv_events.replay_endpoint, "%s",
             kv_publisher_replay_endpoint(e->publisher));
    (void)scheduler_snapshot_events(e->scheduler, kv_publisher_add, e->publisher);
    kv_publisher_flush(e->publisher);
    return RAD_OK;
}

void engine_publish_events(engine *e)
{
    if (!e->publisher) return;
    (void)scheduler_take_events(e->scheduler, kv_publisher_add, e->publisher);
    kv_publisher_flush(e->publisher);
}

/* ---- looking inside ---- */

typedef struct index_call {
    engine_kv_index *index;
    rad_status status;
} index_call;

static void add_to_index(void *user, const rad_kv_event *event)
{
    index_call *c = user;
    engine_kv_index *x = c->index;
    if (event->type != RAD_KV_STORED || c->status != RAD_OK) return;
    if (x->room - x->count < event->num_blocks) {
        const size_t room = RAD_MAX(2 * x->room, x->count + event->num_blocks);
        engine_kv_block *more = realloc(x->blocks, room * sizeof *more);
        if (!more) {
            c->status = RAD_E_NOMEM;
            return;
        }
        x->blocks = more;
        x->room = room;
    }
    for (uint32_t i = 0; i < event->num_blocks; i++)
        x->blocks[x->count++] = (engine_kv_block){event->block_hashes[i], event->medium};
}

/* What is queued is published first: a look at everything empties the cache's queue. */
static void do_index(engine *e, void *user)
{
    index_call *c = user;
    engine_publish_events(e);
    c->index->next_seq = kv_publisher_next_seq(e->publisher);
    c->status = RAD_OK;
    const rad_status status = scheduler_snapshot_events(e->scheduler, add_to_index, c);
    if (status != RAD_OK) c->status = status;
}

rad_status engine_get_kv_index(engine *e, engine_kv_index *index)
{
    index_call c = {.index = index, .status = RAD_E_STATE};
    *index = (engine_kv_index){0};
    if (!e->publisher) return RAD_E_STATE;
    rad_status status = engine_run_on_scheduler(e, do_index, &c);
    return status ? status : c.status;
}

void engine_kv_index_fini(engine_kv_index *index)
{
    free(index->blocks);
    *index = (engine_kv_index){0};
}
