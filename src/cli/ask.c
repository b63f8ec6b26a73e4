/* ask.c - the engine's thread appends, this thread prints.
 *
 * A semaphore wakes the waiting thread; it may be posted from a signal handler, so Ctrl-C
 * takes the same way as the engine's events. */
#include "cli/ask.h"

#include "cli/terminal_text.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

struct asking {
    pthread_mutex_t lock;
    sem_t wake;
    ask_answer *answer;
    size_t text_cap;
    uint32_t ids_cap;
    rad_status status;
    char message[512];
    bool lost; /* no memory for an event */
};

/* A signal handler reaches only globals; there is one question at a time. */
static sem_t *volatile interrupt_wake;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
    if (interrupt_wake) sem_post(interrupt_wake);
}

static bool append_text(struct asking *a, const char *text, size_t len)
{
    ask_answer *to = a->answer;
    if (to->text_len + len + 1 > a->text_cap) {
        size_t cap = (to->text_len + len + 1) * 2;
        char *more = realloc(to->text, cap);
        if (!more) return false;
        to->text = more;
        a->text_cap = cap;
    }
    if (len) memcpy(to->text + to->text_len, text, len);
    to->text_len += len;
    to->text[to->text_len] = 0;
    return true;
}

static bool append_ids(struct asking *a, const rad_token *ids, uint32_t count)
{
    ask_answer *to = a->answer;
    if (to->num_ids + count > a->ids_cap) {
        uint32_t cap = (to->num_ids + count) * 2;
        rad_token *more = realloc(to->ids, cap * sizeof *more);
        if (!more) return false;
        to->ids = more;
        a->ids_cap = cap;
    }
    if (count) memcpy(to->ids + to->num_ids, ids, count * sizeof *ids);
    to->num_ids += count;
    return true;
}

static void on_event(void *user, const engine_event *event)
{
    struct asking *a = user;
    pthread_mutex_lock(&a->lock);
    if (!append_text(a, event->text, event->text_len) || !append_ids(a, event->ids, event->num_ids))
        a->lost = true;
    a->answer->prompt_tokens = event->prompt_tokens;
    a->answer->completion_tokens = event->completion_tokens;
    a->answer->cached_tokens = event->hits.cached;
    if (event->finish == ENGINE_FINISH_ERROR) {
        a->status = event->status;
        snprintf(a->message, sizeof a->message, "%s",
                 event->message ? event->message : rad_status_name(event->status));
    }
    a->answer->finish = event->finish;
    a->answer->matched_stop = event->matched_stop != NULL;
    /* Under the lock, so that the waiter cannot be gone before we have posted. */
    sem_post(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* Prints what is new; returns how the answer stands. */
static engine_finish print_news(struct asking *a, FILE *stream, size_t *printed)
{
    pthread_mutex_lock(&a->lock);
    engine_finish finish = a->answer->finish;
    if (stream && a->answer->text_len > *printed)
        terminal_text_write(stream, a->answer->text + *printed, a->answer->text_len - *printed);
    *printed = a->answer->text_len;
    pthread_mutex_unlock(&a->lock);
    if (stream) fflush(stream);
    return finish;
}

rad_status ask_engine(engine *e, engine_request *request, FILE *stream, ask_answer *answer,
                      rad_error *err)
{
    rad_env env = rad_env_or_default(NULL);
    struct asking a = {.answer = answer};
    struct sigaction on = {.sa_handler = on_interrupt}, before;
    uint64_t id = 0, start_ns = env.now_ns(env.user);
    size_t printed = 0;

    memset(answer, 0, sizeof *answer);
    if (!append_text(&a, "", 0)) return rad_fail(err, RAD_E_NOMEM, "no memory");
    pthread_mutex_init(&a.lock, NULL);
    sem_init(&a.wake, 0, 0);
    request->on_event = on_event;
    request->user = &a;
    interrupted = 0;
    interrupt_wake = &a.wake;
    sigaction(SIGINT, &on, &before);

    rad_status status = engine_submit(e, request, &id, err);
    if (status == RAD_OK) {
        engine_finish finish = ENGINE_FINISH_NONE;
        while (finish == ENGINE_FINISH_NONE) {
            while (sem_wait(&a.wake) != 0 && errno == EINTR && !interrupted)
                ;
            if (interrupted) engine_abort(e, id);
            finish = print_news(&a, stream, &printed);
            if (!answer->first_token_s && (printed || finish))
                answer->first_token_s = (double)(env.now_ns(env.user) - start_ns) * 1e-9;
        }
    }
    answer->total_s = (double)(env.now_ns(env.user) - start_ns) * 1e-9;
    sigaction(SIGINT, &before, NULL);
    interrupt_wake = NULL;
    pthread_mutex_lock(&a.lock); /* the last on_event has let go */
    pthread_mutex_unlock(&a.lock);
    pthread_mutex_destroy(&a.lock);
    sem_destroy(&a.wake);
    if (status != RAD_OK) return status;
    if (a.status != RAD_OK) return rad_fail(err, a.status, "%s", a.message);
    if (a.lost) return rad_fail(err, RAD_E_NOMEM, "no memory for the answer");
    return RAD_OK;
}

int ask(engine *e, engine_request *request, FILE *stream, ask_answer *answer)
{
    rad_error err = {0};
    rad_status status = ask_engine(e, request, stream, answer, &err);
    return status == RAD_OK ? 0 : cli_fail("%s", err.text);
}

void ask_answer_fini(ask_answer *answer)
{
    free(answer->text);
    free(answer->ids);
    *answer = (ask_answer){0};
}
