/* fake_engine.h - engine.h without a model, for tests of what is above it.
 *
 * A program that includes this has its own engine: one thread that gives every request a
 * token per round, "t0 ", "t1 ", ... with ids 100, 101, ... Prompts that are texts script it:
 *
 *     "full"      submit answers RAD_FULL          "slow"   20 ms per token
 *     "invalid"   submit answers RAD_E_INVAL       "silent" nothing until aborted
 *     "error"     an ERROR event comes first       "burst"  all tokens in one event
 *     "late"      an ERROR after two tokens
 *
 * A stop string ends a request after two tokens, so does the first stop token id. Prompts that are
 * ids script it by their last one: FAKE_SILENT_ID, FAKE_ERROR_ID. */
#ifndef TESTS_FAKE_ENGINE_H
#define TESTS_FAKE_ENGINE_H

#include "engine/engine.h"
#include "engine/engine_inspect.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAKE_MOST = 8192, FAKE_CACHED = 7, FAKE_SILENT_ID = 990, FAKE_ERROR_ID = 991 };

struct fake_request {
    uint64_t id;
    void (*on_event)(void *, const engine_event *);
    void *user;
    char script[16];
    char stop[64];
    rad_token stop_token;
    uint32_t prompt_tokens;
    int64_t max_new, made;
    bool aborted;
    uint32_t num_logprobs; /* of each id; 0: none */
    uint32_t predicted;    /* bytes of its prediction: a token each, of which it accepts three */
    bool embed;
};

/* num_ids rows, every alternative in each; the caller frees. */
static token_logprob *fake_logprobs(const struct fake_request *r, uint32_t num_ids)
{
    if (!r->num_logprobs || !num_ids) return NULL;
    token_logprob *rows = calloc((size_t)num_ids * r->num_logprobs, sizeof *rows);
    if (!rows) abort();
    for (size_t i = 0; i < (size_t)num_ids * r->num_logprobs; i++)
        rows[i] = (token_logprob){.id = (rad_token)(i % r->num_logprobs), .logprob = -0.25f};
    return rows;
}

struct engine {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct fake_request *list[FAKE_MOST];
    uint32_t count;
    bool stop;
    uint64_t next_id;
    engine_stats stats;
    engine_request last; /* scalars of the last submitted one */
    char last_words[256];
    rad_token last_ids[64]; /* of its prompt, where that is ids */
    uint32_t sessions_open;
    char store_spec[256]; /* "": none is attached */
    engine_store_kind store_busy;
    uint64_t store_ticket;
    rad_status store_status;
    bool store_go;
    uint32_t num_flushes;    /* asked for so far */
    uint32_t flushes_let_go; /* flush number n waits until this is larger; 0: none waits */
    bool hold_info;          /* who next asks for the info is `held` until this is false */
    bool held;
};

static engine_info fake_info = {.model_name = "fake \"model\"",
                                .model_path = "/fake.gguf",
                                .architecture = "fake",
                                .device = "cpu",
                                .computes_on = "1 threads",
                                .device_name = "",
                                .why_no_gpu = "",
                                .chat_template = "chatml",
                                .attn_backend = "none",
                                .dtype = "f32",
                                .kv_cache_dtype = "f32",
                                .vocab_size = 1000,
                                .context_length = 4096,
                                .page_size = 1,
                                .max_running_requests = 64,
                                .chunked_prefill_size = 2048,
                                .num_threads = 1,
                                .max_total_tokens = 10000,
                                .kv_bytes_per_token = 8,
                                .created_unix = 1700000000,
                                .pooling = "last",
                                .embedding_length = 4,
                                .max_sessions = 3,
                                .speculative_algorithm = "tree",
                                .speculative_num_draft_tokens = 8,
                                .draft_model_path = "",
                                .radix_cache = true};

static const double fake_hidden[] = {3, 4, 0, 12}; /* of every text */
static uint32_t fake_cached = FAKE_CACHED;         /* of every request, as the next */
static draft_counts fake_drafts;                   /* likewise */
static atomic_bool fake_late_waits;                /* the ERROR of "late" does, after its tokens */
static req_why fake_why;                           /* of every request; set while none is there */

/* One event of `r`, without the lock; true when it was the last. */
static bool fake_step(struct fake_request *r, bool aborted)
{
    char text[32] = "";
    rad_token id = (rad_token)(100 + r->made);
    engine_event e = {.id = r->id,
                      .text = text,
                      .prompt_tokens = r->prompt_tokens,
                      .hits = {.cached = fake_cached,
                               .loaded = fake_why.has_tiers ? 2 : 0,
                               .fetched = fake_why.has_tiers ? 1 : 0},
                      .why = &fake_why,
                      .matched_token = -1,
                      .drafts = fake_drafts,
                      .prediction_tokens = r->predicted,
                      .accepted_prediction_tokens = r->predicted < 3 ? r->predicted : 3,
                      .e2e_latency_s = 0.5};
    bool slow = strcmp(r->script, "slow") == 0;
    bool late = strcmp(r->script, "late") == 0 && r->made == 2;
    if (aborted) {
        e.finish = ENGINE_FINISH_ABORT;
    } else if (strcmp(r->script, "silent") == 0 || (late && atomic_load(&fake_late_waits))) {
        return false;
    } else if (strcmp(r->script, "error") == 0 || late) {
        e.finish = ENGINE_FINISH_ERROR;
        e.status = RAD_E_LIMIT;
        e.message = "the prompt is too long, says the fake";
    } else if (strcmp(r->script, "burst") == 0) {
        e.num_ids = (uint32_t)r->max_new;
        rad_token *ids = calloc(e.num_ids + 1, sizeof *ids);
        char *words = calloc(e.num_ids + 1, 1);
        if (!ids || !words) abort();
        memset(words, 'b', e.num_ids);
        e.ids = ids;
        e.text = words;
        e.text_len = e.num_ids;
        e.completion_tokens = e.num_ids;
        e.finish = ENGINE_FINISH_LENGTH;
        token_logprob *rows = fake_logprobs(r, e.num_ids);
        e.logprobs = rows;
        r->on_event(r->user, &e);
        free(rows);
        free(ids);
        free(words);
        return true;
    } else if (r->made < r->max_new) {
        e.text_len = (size_t)snprintf(text, sizeof text, "t%lld ", (long long)r->made);
        e.ids = &id;
        e.num_ids = 1;
        r->made++;
        if (r->made == 2 && r->stop[0]) {
            e.finish = ENGINE_FINISH_STOP;
            e.matched_stop = r->stop;
        } else if (r->made == 2 && r->stop_token >= 0) {
            e.finish = ENGINE_FINISH_STOP;
            e.matched_token = r->stop_token;
        }
    }
    if (!e.finish && r->made >= r->max_new) e.finish = ENGINE_FINISH_LENGTH;
    if (r->embed && e.finish == ENGINE_FINISH_LENGTH)
        e.hidden = fake_hidden, e.num_hidden = (uint32_t)(sizeof fake_hidden / sizeof *fake_hidden);
    e.completion_tokens = (uint32_t)r->made;
    engine_finish finish = e.finish;
    token_logprob *rows = fake_logprobs(r, e.num_ids);
    e.logprobs = rows;
    r->on_event(r->user, &e);
    free(rows);
    if (slow && !finish) usleep(20000);
    return finish != ENGINE_FINISH_NONE;
}

static void *fake_main(void *arg)
{
    engine *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->stop || e->count) {
        if (!e->count) {
            pthread_cond_wait(&e->wake, &e->lock);
            continue;
        }
        for (uint32_t i = 0; i < e->count; i++) {
            struct fake_request *r = e->list[i];
            bool aborted = r->aborted || e->stop;
            pthread_mutex_unlock(&e->lock);
            bool done = fake_step(r, aborted);
            pthread_mutex_lock(&e->lock);
            if (!done) continue;
            e->stats.requests.num_finished++;
            if (aborted) e->stats.requests.num_aborted++;
            e->list[i--] = e->list[--e->count];
            free(r);
        }
        pthread_mutex_unlock(&e->lock);
        usleep(100);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

rad_status engine_create(const rad_env *env, const engine_params *params, engine **out,
                         rad_error *err)
{
    (void)env;
    (void)params;
    (void)err;
    engine *e = calloc(1, sizeof *e);
    if (!e) abort();
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    if (pthread_create(&e->thread, NULL, fake_main, e) != 0) abort();
    *out = e;
    return RAD_OK;
}

void engine_destroy(engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    free(e);
}

/* Where an answer asks for it a test can hold the thread that writes it. */
const engine_info *engine_get_info(const engine *of)
{
    engine *e = (engine *)of;
    pthread_mutex_lock(&e->lock);
    bool first = e->hold_info && !e->held;
    if (first) e->held = true;
    while (first && e->hold_info) {
        pthread_mutex_unlock(&e->lock);
        usleep(1000);
        pthread_mutex_lock(&e->lock);
    }
    if (first) e->held = false;
    pthread_mutex_unlock(&e->lock);
    return &fake_info;
}

const tokenizer *engine_tokenizer(const engine *e)
{
    (void)e;
    return NULL;
}

const chat_template *engine_chat_template(const engine *e)
{
    (void)e;
    return NULL;
}

rad_status engine_submit(engine *e, const engine_request *q, uint64_t *id, rad_error *err)
{
    char script[16] = "";
    if (q->text) snprintf(script, sizeof script, "%.*s", (int)q->text_len, q->text);
    if (strcmp(script, "full") == 0) return RAD_FULL;
    if (strcmp(script, "invalid") == 0) return rad_fail(err, RAD_E_INVAL, "top_p is out of range");
    struct fake_request *r = calloc(1, sizeof *r);
    if (!r) abort();
    rad_token last_id = q->num_ids ? q->ids[q->num_ids - 1] : 0;
    if (last_id == FAKE_SILENT_ID) strcpy(script, "silent");
    if (last_id == FAKE_ERROR_ID) strcpy(script, "error");
    memcpy(r->script, script, sizeof script);
    r->on_event = q->on_event;
    r->num_logprobs = q->sampling.logprobs ? 1 + q->sampling.num_top_logprobs : 0;
    r->embed = q->embed;
    r->predicted = (uint32_t)q->prediction_len;
    r->user = q->user;
    r->stop_token = q->num_stop_token_ids ? q->stop_token_ids[0] : -1;
    if (q->num_stop) snprintf(r->stop, sizeof r->stop, "%s", q->stop[0]);
    r->prompt_tokens = q->text ? (uint32_t)q->text_len : q->messages ? 20 : q->num_ids;
    r->max_new = q->max_new_tokens < 0 ? 30 : q->max_new_tokens;
    pthread_mutex_lock(&e->lock);
    if (e->count == FAKE_MOST) {
        pthread_mutex_unlock(&e->lock);
        free(r);
        return RAD_FULL;
    }
    r->id = *id = ++e->next_id;
    e->list[e->count++] = r;
    e->stats.requests.num_requests++;
    e->last = *q;
    for (uint32_t i = 0; i < q->num_ids && i < 64; i++)
        e->last_ids[i] = q->ids[i];
    if (q->messages)
        snprintf(e->last_words, sizeof e->last_words, "%s:%.*s", q->messages[0].role,
                 (int)q->messages[0].content_len, q->messages[0].content);
    else
        snprintf(e->last_words, sizeof e->last_words, "%s|%s", q->extra_key ? q->extra_key : "-",
                 q->cache_salt ? q->cache_salt : "-");
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return RAD_OK;
}

/* A byte is a token, and a conversation of messages has 20. */
rad_status engine_encode(engine *e, const engine_request *q, token_buf *out, rad_error *err)
{
    (void)e;
    size_t len = q->text ? q->text_len : q->chat_json ? q->chat_json_len : 20;
    if (q->text && strncmp(q->text, "invalid", q->text_len) == 0)
        return rad_fail(err, RAD_E_INVAL, "the fake cannot encode this");
    for (size_t i = 0; i < len; i++)
        if (token_buf_push(out, q->text ? (unsigned char)q->text[i] : (rad_token)i)) abort();
    return RAD_OK;
}

rad_status engine_session_open(engine *e, uint32_t *session, rad_error *err)
{
    (void)err;
    pthread_mutex_lock(&e->lock);
    *session = ++e->sessions_open;
    pthread_mutex_unlock(&e->lock);
    return RAD_OK;
}

rad_status engine_session_close(engine *e, uint32_t session, rad_error *err)
{
    (void)session;
    (void)err;
    pthread_mutex_lock(&e->lock);
    e->sessions_open--;
    pthread_mutex_unlock(&e->lock);
    return RAD_OK;
}

/* All of it is cached. */
rad_status engine_pin_prefix(engine *e, const rad_key *key, uint64_t ttl_ns, uint32_t *num_tokens,
                             rad_error *err)
{
    (void)e;
    (void)ttl_ns;
    (void)err;
    *num_tokens = key->num_tokens;
    return RAD_OK;
}

void engine_share_end(engine_share *share)
{
    *share = (engine_share){0};
}

void engine_abort(engine *e, uint64_t id)
{
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->count; i++)
        if (e->list[i]->id == id) e->list[i]->aborted = true;
    pthread_mutex_unlock(&e->lock);
}

void engine_get_stats(engine *e, engine_stats *stats)
{
    pthread_mutex_lock(&e->lock);
    *stats = e->stats;
    stats->sched.num_running = e->count;
    stats->sched.max_total_tokens = stats->sched.available_tokens = 10000;
    pthread_mutex_unlock(&e->lock);
}

void engine_peek_stats(engine *e, engine_stats *stats)
{
    engine_get_stats(e, stats);
}

void engine_get_latency(engine *e, latency_kind kind, latency_histogram *out)
{
    (void)e;
    *out = (latency_histogram){.count = 3, .sum_ns = 1500000000};
    out->counts[kind] = 3;
}

rad_status engine_get_kv_index(engine *e, engine_kv_index *index)
{
    (void)e;
    *index = (engine_kv_index){0};
    return RAD_E_STATE;
}

void engine_kv_index_fini(engine_kv_index *index)
{
    (void)index;
}

rad_status engine_check(engine *e, rad_error *err)
{
    (void)e;
    (void)err;
    return RAD_OK;
}

rad_status engine_flush_cache(engine *e)
{
    pthread_mutex_lock(&e->lock);
    uint32_t n = e->num_flushes++;
    while (e->flushes_let_go && n >= e->flushes_let_go && !e->stop) {
        pthread_mutex_unlock(&e->lock);
        usleep(1000);
        pthread_mutex_lock(&e->lock);
    }
    rad_status status = e->count ? RAD_AGAIN : RAD_OK;
    pthread_mutex_unlock(&e->lock);
    return status;
}

rad_status engine_flush_tiers(engine *e, uint32_t tiers, rad_error *err)
{
    (void)e;
    if (tiers & RAD_TIER_STORAGE) return rad_fail(err, RAD_E_STATE, "this would block");
    return RAD_OK;
}

/* A store named "bad" cannot be opened, one named "slow" is cleared once store_go is set. */
rad_status engine_store_begin(engine *e, const engine_store_change *change, uint64_t *ticket,
                              rad_error *err)
{
    *ticket = 0;
    pthread_mutex_lock(&e->lock);
    rad_status status = e->store_busy ? RAD_FULL : RAD_OK;
    if (status) rad_fail(err, status, "the store is busy");
    if (!status) {
        *ticket = ++e->store_ticket;
        e->store_status = RAD_OK;
        if (change->kind == ENGINE_STORE_ATTACH && strcmp(change->spec, "bad") == 0)
            e->store_status = RAD_E_INVAL;
        else if (change->kind == ENGINE_STORE_ATTACH)
            snprintf(e->store_spec, sizeof e->store_spec, "%s %s", change->spec,
                     change->extra_config ? change->extra_config : "-");
        else if (!e->store_spec[0])
            e->store_status = change->kind == ENGINE_STORE_DETACH ? RAD_NONE : RAD_E_UNSUPPORTED;
        else if (change->kind == ENGINE_STORE_DETACH)
            e->store_spec[0] = 0;
        else if (strncmp(e->store_spec, "slow", 4) == 0)
            e->store_busy = change->kind;
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

bool engine_store_ended(engine *e, uint64_t ticket, rad_status *status, rad_error *err)
{
    pthread_mutex_lock(&e->lock);
    if (e->store_go) e->store_busy = 0;
    bool ended = !e->store_busy || ticket != e->store_ticket;
    *status = e->store_status;
    if (ended && *status) rad_fail(err, *status, "no such store");
    pthread_mutex_unlock(&e->lock);
    return ended;
}

uint64_t engine_store_look(engine *e)
{
    (void)e;
    return 1;
}

bool engine_store_looked(engine *e, uint64_t look)
{
    (void)look;
    pthread_mutex_lock(&e->lock);
    bool looked = !e->store_busy;
    pthread_mutex_unlock(&e->lock);
    return looked;
}

void engine_get_storage_status(engine *e, engine_storage_status *status)
{
    pthread_mutex_lock(&e->lock);
    *status = (engine_storage_status){
        .enabled = true, .attached = e->store_spec[0] != 0, .busy = e->store_busy};
    snprintf(status->spec, sizeof status->spec, "%.200s", e->store_spec);
    status->store.pages = 5;
    pthread_mutex_unlock(&e->lock);
}

/* A tree of nothing. */
rad_status engine_look_at(engine *e, engine_look *look)
{
    memset(look, 0, sizeof *look);
    engine_get_stats(e, &look->stats);
    return RAD_OK;
}

rad_status engine_look_at_tree(engine *e, tree_look *look)
{
    (void)e;
    look->done = true;
    return RAD_OK;
}

rad_status engine_look_at_tokens(engine *e, rad_ref node, uint32_t from, rad_token *tokens,
                                 uint32_t *count, uint32_t *total)
{
    (void)e;
    (void)node;
    (void)from;
    (void)tokens;
    *count = *total = 0;
    return RAD_E_STATE;
}

#endif
