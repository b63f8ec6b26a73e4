/* call_inbox.c - what the engine says, from its thread to the server's.
 *
 * An event is appended to its item's inbox (new_*), and the item linked into the server's ready
 * list: what gathers while nobody looks becomes one piece of news.
 *
 * Invariant: an item is in the ready list, or in what was taken of it, if and only if it is
 * `queued`; the list and the inboxes are touched under the server's lock, the rest of an item by
 * the server's thread. */
#include "server/call_parts.h"

#include <stdio.h>
#include <stdlib.h>

/* False: no memory, or none left of what requests may have; nothing changed. */
static bool byte_buf_append(memory_budget *budget, byte_buf *b, const void *bytes, size_t len)
{
    if (!len) return true;
    if (len > b->cap - b->len) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap - b->len < len)
            cap *= 2;
        if (!memory_budget_take(budget, cap - b->cap)) return false;
        char *data = realloc(b->data, cap);
        if (!data) {
            memory_budget_give(budget, cap - b->cap);
            return false;
        }
        b->data = data;
        b->cap = cap;
    }
    memcpy(b->data + b->len, bytes, len);
    b->len += len;
    return true;
}

static void byte_buf_fini(memory_budget *budget, byte_buf *b)
{
    memory_budget_give(budget, b->cap);
    free(b->data);
    *b = (byte_buf){0};
}

static void ready_push(server *s, call_item *item)
{
    if (item->queued) return;
    item->queued = true;
    item_list_push(&s->ready, item);
    if (s->ready.first == item) server_wake(s); /* else somebody has */
}

static bool append_logprobs(call_item *item, const engine_event *event)
{
    if (!event->logprobs) return true;
    size_t each = 1 + (size_t)item->call->request.num_top_logprobs;
    return byte_buf_append(item->call->server->params.request_memory, &item->new_logprobs,
                           event->logprobs, event->num_ids * each * sizeof *event->logprobs);
}

void inbox_on_event(void *user, const engine_event *event)
{
    call_item *item = user;
    server *s = item->call->server;
    memory_budget *budget = s->params.request_memory;
    pthread_mutex_lock(&s->lock);
    if (!byte_buf_append(budget, &item->new_text, event->text, event->text_len) ||
        !byte_buf_append(budget, &item->new_ids, event->ids, event->num_ids * sizeof *event->ids) ||
        !append_logprobs(item, event))
        item->lost = true;
    item->new_prompt_tokens = event->prompt_tokens;
    item->new_completion_tokens = event->completion_tokens;
    item->new_hits = event->hits;
    if (event->why) item->new_why = *event->why;
    if (event->finish != ENGINE_FINISH_NONE) {
        item->status = event->status;
        item->matched_token = event->matched_token;
        item->e2e_latency_s = event->e2e_latency_s;
        if (event->message) snprintf(item->message, sizeof item->message, "%s", event->message);
        if (event->matched_stop) item->matched_stop = strdup(event->matched_stop);
        item->new_finish = event->finish;
    }
    ready_push(s, item);
    pthread_mutex_unlock(&s->lock);
}

call_item *inbox_take(server *s)
{
    pthread_mutex_lock(&s->lock);
    call_item *first = s->ready.first;
    s->ready.first = NULL;
    pthread_mutex_unlock(&s->lock);
    return first;
}

void inbox_put_back(server *s, call_item *first)
{
    call_item *last = first;
    if (!first) return;
    while (last->next)
        last = last->next;
    pthread_mutex_lock(&s->lock);
    last->next = s->ready.first;
    if (!s->ready.first) s->ready.last = last;
    s->ready.first = first;
    pthread_mutex_unlock(&s->lock);
    server_wake(s);
}

call_item *inbox_unlink(call_item *item)
{
    server *s = item->call->server;
    pthread_mutex_lock(&s->lock);
    call_item *next = item->next;
    item->queued = false;
    pthread_mutex_unlock(&s->lock);
    return next;
}

call_item *inbox_merge(call_item *item)
{
    server *s = item->call->server;
    memory_budget *budget = s->params.request_memory;
    pthread_mutex_lock(&s->lock);
    call_item *next = item->next;
    item->queued = false;
    if (!byte_buf_append(budget, &item->text, item->new_text.data, item->new_text.len) ||
        !byte_buf_append(budget, &item->ids, item->new_ids.data, item->new_ids.len) ||
        !byte_buf_append(budget, &item->logprobs, item->new_logprobs.data, item->new_logprobs.len))
        item->lost = true;
    item->new_text.len = item->new_ids.len = item->new_logprobs.len = 0;
    item->prompt_tokens = item->new_prompt_tokens;
    item->completion_tokens = item->new_completion_tokens;
    item->hits = item->new_hits;
    item->why = item->new_why;
    if (item->lost && item->new_finish != ENGINE_FINISH_ERROR) {
        item->status = RAD_E_NOMEM;
        snprintf(item->message, sizeof item->message, "no memory for the answer");
    }
    if (item->new_finish != ENGINE_FINISH_NONE) {
        item->finish = item->lost ? ENGINE_FINISH_ERROR : item->new_finish;
        item->finished = true;
    }
    pthread_mutex_unlock(&s->lock);
    return next;
}

void call_work_done(call *c)
{
    server *s = c->server;
    pthread_mutex_lock(&s->lock);
    ready_push(s, &c->own);
    pthread_mutex_unlock(&s->lock);
}

bool call_is_overdue(const call *c, uint64_t now_ns)
{
    return now_ns - c->created_ns >= c->timeout_ms * UINT64_C(1000000);
}

void inbox_item_fini(call_item *item)
{
    memory_budget *budget = item->call->server->params.request_memory;
    byte_buf_fini(budget, &item->new_text);
    byte_buf_fini(budget, &item->new_ids);
    byte_buf_fini(budget, &item->new_logprobs);
    byte_buf_fini(budget, &item->logprobs);
    byte_buf_fini(budget, &item->text);
    byte_buf_fini(budget, &item->ids);
    free(item->matched_stop);
}
