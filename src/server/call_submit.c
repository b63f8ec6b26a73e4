/* call_submit.c - from a body to requests of the engine: read, held against what this server and
 * its model can do, an item for each answer, submitted. The server's thread or a worker does it,
 * whoever has the call. */
#include "server/call_parts.h"

#include <stdio.h>
#include <stdlib.h>

bool call_encode(call *c, const engine_request *q, const char *param, token_buf *out)
{
    rad_error why = {0};
    rad_status status = engine_encode(c->server->engine, q, out, &why);
    if (status == RAD_OK) return true;
    return fail_by_status(&c->error, status, param,
                          why.text[0] ? why.text : rad_status_name(status));
}

/* What of the wishes for the answer this model's formats cannot do. A call that must come is one by
 * what was asked for, and call_finish_form says what it lacks. */
static bool check_output(call *c)
{
    const api_output *o = &c->request.output;
    if (!o->calls || !o->one_call || c->server->output.calls || c->request.called.required)
        return true;
    return api_fail(&c->error, 400, "parallel_tool_calls",
                    "'parallel_tool_calls': false is not possible: how this model writes calls is "
                    "not known (--tool-call-parser)");
}

void call_parse(call *c, const char *bytes, size_t len)
{
    api_context at = {.budget = c->server->params.request_memory,
                      .store = c->server->responses,
                      .owner = c->owner,
                      .space = c->server->params.shared_cache ? NULL : c->owner,
                      .now_ns = server_now_ns(c->server)};
    if (!bytes)
        api_fail(&c->error, 503, NULL, "no memory for this request");
    else
        c->parsed = api_request_parse_at(c->ops->kind, bytes, len, &at, &c->request, &c->error) &&
                    models_check(c->server, c->request.model, &c->error) && check_output(c) &&
                    embeddings_check(c) && call_finish_form(c);
    c->bytes += c->parsed ? c->request.room.taken : len;
}

/* Zero where the request wants its answer as text. False: no memory. */
static bool create_parser(call *c, call_item *item)
{
    const api_output *o = &c->request.output;
    const output_formats *f = &c->server->output;
    if (!o->parts) return true;
    const tool_parser_params p = {.calls = o->calls ? f->calls : NULL,
                                  .reasoning = o->reasoning ? f->reasoning : NULL,
                                  .types = o->types,
                                  .whole_calls = o->whole_calls,
                                  .one_call = o->one_call};
    item->parts.budget = c->server->params.request_memory;
    item->parts.short_ids = tool_format_wants_short_ids(f->calls);
    return tool_parser_create(&p, &item->parser) == RAD_OK;
}

static bool create_items(call *c)
{
    memory_budget *budget = c->server->params.request_memory;
    uint32_t n = c->request.num_items;
    if (!n) return true;
    if (!memory_budget_take(budget, n * sizeof *c->items)) return false;
    c->items = calloc(n, sizeof *c->items);
    if (!c->items) {
        memory_budget_give(budget, n * sizeof *c->items);
        return false;
    }
    c->num_items = n;
    for (uint32_t i = 0; i < n; i++) {
        const engine_request *r = &c->request.items[i];
        c->items[i] = (call_item){.call = c,
                                  .index = i,
                                  .place = i,
                                  .matched_token = -1,
                                  .keep_special = r->keep_special};
        c->items[i].refused_param =
            r->messages || r->chat_json                                                ? "messages"
            : c->request.kind == API_EMBEDDINGS || c->request.kind == API_OLLAMA_EMBED ? "input"
            : c->request.kind != API_GENERATE                                          ? "prompt"
            : r->ids                                                                   ? "input_ids"
                                                                                       : "text";
        if (!create_parser(c, &c->items[i]) || !choices_echo(&c->items[i], r)) return false;
    }
    return true;
}

/* False: the item says why the engine did not take it. */
static bool submit_item(call *c, call_item *item, engine_share *share)
{
    engine_request *r = &c->request.items[item->index];
    rad_error err = {0};
    r->share = share;
    r->on_event = inbox_on_event;
    if (c->server->can_pin) r->pin_ns = c->request.pin_ns;
    r->pin_tokens = c->request.pin_tokens;
    r->user = item;
    if (item->parser) {
        const output_formats *f = &c->server->output;
        bool calls = c->request.output.calls;
        r->keep_ids = calls ? f->ids : f->reasoning_ids;
        r->num_keep_ids = calls ? f->num_ids : f->num_reasoning_ids;
        r->wants_prompt_tail = true;
        if (r->form && c->request.output.reasoning && f->reasoning)
            reasoning_format_markers(f->reasoning, &r->think_open, &r->think_close, &r->thinks);
    }
    /* its first event may come before submit returns */
    rad_status status = engine_submit(c->server->engine, r, &item->id, &err);
    item->submitted = status == RAD_OK;
    if (item->submitted && c->turn) session_turn_submitted(c->turn, item->id);
    if (item->submitted) return true; /* from now on the rest is the events' */
    item->status = status;
    item->prompt_tokens = r->num_ids;
    snprintf(item->message, sizeof item->message, "%s",
             err.text[0] ? err.text : "the queue is full; try again soon");
    return false;
}

bool call_is_encoded(const call *c)
{
    const api_request *r = &c->request;
    return r->session.id || (r->mark.inside && c->server->can_pin) ||
           (r->kind == API_RESPONSES && (r->kept.store || r->history.ids));
}

/* False: the reason is in c->error. */
static bool encode_prompt(call *c)
{
    if (c->request.session.id) return call_begin_turn(c);
    if (c->request.kind == API_RESPONSES)
        call_go_on(c);
    else
        call_find_mark(c);
    return true;
}

/* The engine has copies of all of it then: the JSON is given back before anybody waits. */
void call_submit(call *c)
{
    engine_share share = {0};
    const char *model = c->request.model ? models_find(c->server, c->request.model) : NULL;
    if (c->request.model && !model) model = c->model_name = strdup(c->request.model);
    if (c->request.rid) snprintf(c->id, sizeof c->id, "%s", c->request.rid);
    if (!create_items(c))
        c->parsed = api_fail(&c->error, 503, NULL, "no memory for this request");
    else if (!call_client_queue(c))
        c->parsed = false;
    else if (call_is_encoded(c))
        c->parsed = encode_prompt(c);
    for (uint32_t i = 0; i < c->num_items && c->parsed && !c->failed; i++)
        if (!submit_item(c, &c->items[i], &share)) c->failed = &c->items[i];
    engine_share_end(&share);
    c->given_ns = server_now_ns(c->server);
    api_request_forget(&c->request);
    c->request.model = model;
}
