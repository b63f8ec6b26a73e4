/* engine_client.h - asks an engine and waits, for tests. */
#ifndef TESTS_ENGINE_CLIENT_H
#define TESTS_ENGINE_CLIENT_H

#include "engine/engine.h"
#include "test.h"
#include "text/detokenize.h"

#include <pthread.h>

typedef struct answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    uint64_t id;
    rad_token *ids;
    uint32_t num_ids;
    text_buf text;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t completion_tokens;
    engine_finish finish;
    rad_status status;
    char message[256];
} answer;

static inline void answer_init(answer *a)
{
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
}

static inline void answer_fini(answer *a)
{
    free(a->ids);
    text_buf_fini(&a->text);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
}

static inline void answer_on_event(void *user, const engine_event *event)
{
    answer *a = user;
    pthread_mutex_lock(&a->lock);
    if (event->num_ids) {
        a->ids = realloc(a->ids, (a->num_ids + event->num_ids) * sizeof *a->ids);
        memcpy(a->ids + a->num_ids, event->ids, event->num_ids * sizeof *a->ids);
        a->num_ids += event->num_ids;
    }
    text_buf_append(&a->text, event->text, event->text_len);
    a->prompt_tokens = event->prompt_tokens;
    a->cached_tokens = event->cached_tokens;
    a->completion_tokens = event->completion_tokens;
    if (event->finish != ENGINE_FINISH_NONE) {
        a->finish = event->finish;
        a->status = event->status;
        if (event->message) snprintf(a->message, sizeof a->message, "%s", event->message);
        a->done = true;
        pthread_cond_signal(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
}

static inline void answer_wait(answer *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->done)
        pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

/* Submits token ids, greedy, end tokens ignored or not. */
static inline rad_status answer_ask(engine *e, answer *a, const rad_token *ids, uint32_t num_ids,
                                    uint32_t max_new_tokens, bool ignore_eos)
{
    engine_request request = {.ids = ids,
                              .num_ids = num_ids,
                              .max_new_tokens = max_new_tokens,
                              .ignore_eos = ignore_eos,
                              .sampling = {.top_p = 1},
                              .on_event = answer_on_event,
                              .user = a};
    return engine_submit(e, &request, &a->id, NULL);
}

/* free + cached == all, and every checker agrees. */
static inline void check_idle(engine *e)
{
    rad_error err = {0};
    engine_stats s;
    engine_get_stats(e, &s);
    CHECKF(s.num_running == 0 && s.num_waiting == 0, "%u running, %u waiting", s.num_running,
           s.num_waiting);
    CHECKF(s.protected_tokens == 0 && s.held_tokens == 0 &&
               s.available_tokens + s.evictable_tokens == s.max_total_tokens,
           "free %llu + cached %llu + protected %llu + held %llu != all %llu",
           (unsigned long long)s.available_tokens, (unsigned long long)s.evictable_tokens,
           (unsigned long long)s.protected_tokens, (unsigned long long)s.held_tokens,
           (unsigned long long)s.max_total_tokens);
    CHECKF(engine_check(e, &err) == RAD_OK, "%s", err.text);
}

#endif
