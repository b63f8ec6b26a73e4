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

static void ready_push(server *s, call_item *item)
{
    if (item->queued) return;
    item->queued = true;
    item_list_push(&s->ready, item);
    if (s->ready.first == item) server_wake(s); /* else somebody has */
}

static bool append_logprobs(call_item *item, const engine_event *event)
{
    memory_budget *budget = item->call->server->params.request_memory;
    const size_t each = item_num_logprobs(item) * sizeof *event->logprobs;
    return (!event->logprobs ||
            byte_buf_append(budget, &item->new_logprobs, event->logprobs, event->num_ids * each)) &&
           byte_buf_append(budget, &item->new_prompt_logprobs, event->prompt_logprobs,
                           event->num_prompt_logprobs * each);
}

/* What the parser needs to know beside the text. */
static bool append_cut(call_item *item, const engine_event *event)
{
    const uint32_t cut[2] = {event->num_ids, (uint32_t)event->text_len};
    if (!item->parser) return true;
    if (!item->new_tail_len && event->prompt_tail_len) { /* once: it is read without the lock */
        item->new_tail_len = (uint32_t)RAD_MIN(event->prompt_tail_len, sizeof item->new_tail);
        memcpy(item->new_tail, event->prompt_tail, item->new_tail_len);
    }
    return byte_buf_append(item->call->server->params.request_memory, &item->new_cuts, cut,
                           sizeof cut);
}

void inbox_on_event(void *user, const engine_event *event)
{
    call_item *item = user;
    server *s = item->call->server;
    memory_budget *budget = s->params.request_memory;
    pthread_mutex_lock(&s->lock);
    if (!byte_buf_append(budget, &item->new_text, event->text, event->text_len) ||
        !byte_buf_append(budget, &item->new_ids, event->ids, event->num_ids * sizeof *event->ids) ||
        !byte_buf_append(budget, &item->new_hidden, event->hidden,
                         event->num_hidden * sizeof *event->hidden) ||
        !append_cut(item, event) || !append_logprobs(item, event))
        item->lost = true;
    item->new_prompt_tokens = event->prompt_tokens;
    item->new_completion_tokens = event->completion_tokens;
    item->new_hits = event->hits;
    item->new_admitted_ns = event->admitted_ns;
    if (event->why) item->new_why = *event->why;
    if (event->finish != ENGINE_FINISH_NONE) {
        item->status = event->status;
        item->matched_token = event->matched_token;
        item->e2e_latency_s = event->e2e_latency_s;
        item->new_prediction_tokens = event->prediction_tokens;
        item->new_accepted_prediction_tokens = event->accepted_prediction_tokens;
        item->new_drafts = event->drafts;
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

/* What the parser holds is taken of the request memory. */
static rad_status charge_parser(call_item *item)
{
    memory_budget *budget = item->call->server->params.request_memory;
    uint64_t now = tool_parser_bytes(item->parser), before = item->parser_bytes;
    if (now > before && !memory_budget_take(budget, now - before)) return RAD_E_NOMEM;
    if (now < before) memory_budget_give(budget, before - now);
    item->parser_bytes = now;
    return RAD_OK;
}

/* The text so far to the parser, event by event: so it is known which tokens are reasoning. */
static void read_output(call_item *item)
{
    tool_parser *p = item->parser;
    size_t at = 0;
    rad_status status = item->unread ? RAD_E_NOMEM : RAD_OK;
    if (!item->parser_begun) tool_parser_begin(p, item->new_tail, item->new_tail_len);
    item->parser_begun = true;
    for (size_t i = 0; i < item->cuts.len && !status; i += 2 * sizeof(uint32_t)) {
        uint32_t cut[2];
        memcpy(cut, item->cuts.data + i, sizeof cut);
        bool thinks = tool_parser_thinks(p);
        status = tool_parser_feed(p, cut[1] ? item->text.data + at : "", cut[1], answer_parts_take,
                                  &item->parts);
        if (thinks || tool_parser_thinks(p)) item->reasoning_tokens += cut[0];
        at += cut[1];
    }
    item->text.len = item->cuts.len = 0;
    if (item->finished && !status) status = tool_parser_finish(p, answer_parts_take, &item->parts);
    if (item->finished) answer_parts_end(&item->parts);
    if (!status) status = charge_parser(item);
    item->unread = item->unread || status != RAD_OK; /* who hears of it aborts the request */
    if (item->unread && item->finished) {
        item->finish = ENGINE_FINISH_ERROR;
        item->status = RAD_E_NOMEM;
        snprintf(item->message, sizeof item->message, "no memory for the answer");
    }
    /* The answer is over, whatever the model would have said: we end it. */
    if (item->over && item->finish == ENGINE_FINISH_ABORT) item->finish = ENGINE_FINISH_STOP;
    if (!item->over && !item->finished && tool_parser_is_over(p)) {
        item->over = true;
        engine_abort(item->call->server->engine, item->id);
    }
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
        !byte_buf_append(budget, &item->cuts, item->new_cuts.data, item->new_cuts.len) ||
        !byte_buf_append(budget, &item->hidden, item->new_hidden.data, item->new_hidden.len) ||
        !byte_buf_append(budget, &item->logprobs, item->new_logprobs.data,
                         item->new_logprobs.len) ||
        !byte_buf_append(budget, &item->prompt_logprobs, item->new_prompt_logprobs.data,
                         item->new_prompt_logprobs.len))
        item->lost = true;
    item->new_text.len = item->new_ids.len = item->new_logprobs.len = item->new_cuts.len = 0;
    item->new_prompt_logprobs.len = item->new_hidden.len = 0;
    item->prompt_tokens = item->new_prompt_tokens;
    item->completion_tokens = item->new_completion_tokens;
    item->prediction_tokens = item->new_prediction_tokens;
    item->accepted_prediction_tokens = item->new_accepted_prediction_tokens;
    item->drafts = item->new_drafts;
    item->hits = item->new_hits;
    item->admitted_ns = item->new_admitted_ns;
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
    if (item->parser) read_output(item);
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
    byte_buf_fini(budget, &item->new_cuts);
    byte_buf_fini(budget, &item->cuts);
    memory_budget_give(budget, item->parser_bytes);
    tool_parser_destroy(item->parser);
    answer_parts_fini(&item->parts);
    byte_buf_fini(budget, &item->new_logprobs);
    byte_buf_fini(budget, &item->logprobs);
    byte_buf_fini(budget, &item->new_prompt_logprobs);
    byte_buf_fini(budget, &item->prompt_logprobs);
    byte_buf_fini(budget, &item->new_hidden);
    byte_buf_fini(budget, &item->hidden);
    byte_buf_fini(budget, &item->text);
    byte_buf_fini(budget, &item->ids);
    free(item->matched_stop);
}
