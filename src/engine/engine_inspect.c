/* engine_inspect.c - see engine_inspect.h. */
#include "engine/engine_inspect.h"

#include "engine/engine_impl.h"

static engine_request_state state_of(const req *r, bool fetching)
{
    if (fetching) return ENGINE_REQUEST_FETCHING;
    if (r->state == REQ_PREFILL) return ENGINE_REQUEST_PREFILL;
    return r->state == REQ_DECODE ? ENGINE_REQUEST_DECODE : ENGINE_REQUEST_WAITING;
}

static bool look_at_request(void *user, const req *r, bool fetching)
{
    engine_look *look = user;
    const engine_job *job = r->user;
    look->more_requests = look->num_requests == ENGINE_LOOK_REQUESTS;
    if (look->more_requests) return false;
    look->requests[look->num_requests++] =
        (engine_request_look){.id = job->id,
                              .age_ns = look->now_ns - RAD_MIN(look->now_ns, job->submitted_ns),
                              .state = state_of(r, fetching),
                              .prompt_tokens = r->num_input,
                              .output_tokens = r->num_output,
                              .computed_tokens = r->kv.committed_len,
                              .max_new_tokens = r->max_new_tokens,
                              .node = r->kv.lock.held ? r->kv.lock.node : (rad_ref){0},
                              .hits = r->hits,
                              .why = r->why,
                              .session = r->session,
                              .priority = r->priority,
                              .retractions = r->num_retractions};
    return true;
}

static void do_look(engine *e, void *user)
{
    engine_look *look = user;
    const rad_cache *cache = scheduler_cache(e->scheduler);
    const eviction_notes *notes = tree_look_evictions(cache);
    engine_fill_stats(e, &look->stats);
    look->now_ns = e->env.now_ns(e->env.user);
    look->clock = tree_look_clock(cache);
    if (notes) look->evictions = *notes;
    scheduler_visit_reqs(e->scheduler, look_at_request, look);
}

rad_status engine_look_at(engine *e, engine_look *look)
{
    memset(look, 0, sizeof *look);
    rad_status status = engine_run_on_scheduler(e, do_look, look);
    engine_add_stats(e, &look->stats);
    for (int kind = 0; kind < LATENCY_KINDS; kind++)
        latency_get(&e->latency, (latency_kind)kind, &look->latency[kind]);
    return status;
}

static void do_look_at_tree(engine *e, void *user)
{
    tree_look_slice(scheduler_cache(e->scheduler), user);
}

rad_status engine_look_at_tree(engine *e, tree_look *look)
{
    return engine_run_on_scheduler(e, do_look_at_tree, look);
}

typedef struct token_look {
    rad_ref node;
    uint32_t from;
    rad_token *tokens;
    uint32_t *count, *total;
    rad_status status;
} token_look;

static void do_look_at_tokens(engine *e, void *user)
{
    token_look *l = user;
    l->status = tree_look_tokens(scheduler_cache(e->scheduler), l->node, l->from, l->tokens,
                                 l->count, l->total);
}

rad_status engine_look_at_tokens(engine *e, rad_ref node, uint32_t from, rad_token *tokens,
                                 uint32_t *count, uint32_t *total)
{
    token_look l = {.node = node, .from = from, .tokens = tokens, .count = count, .total = total};
    rad_status status = engine_run_on_scheduler(e, do_look_at_tokens, &l);
    return status ? status : l.status;
}
