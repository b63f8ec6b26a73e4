/* call_client.c - what a call takes of its client's share (clients.h).
 *
 * Tokens are known late: a prompt's when the engine has made them, an answer's one by one. So a
 * call is charged with a guess when it comes, by its body's length, that many of them cannot begin
 * before the first one's tokens are known; with what is more than that as it is heard; and at its
 * end gets back what was less. Cached tokens count like others: a client must not learn from what
 * it has left how much of a prompt others have asked before. */
#include "server/call_parts.h"

#include <event2/keyvalq_struct.h>
#include <stdio.h>

enum { BYTES_A_TOKEN = 4 }; /* of a body, guessed */

static bool is_computed(const call_ops *ops)
{
    return !ops->work && !ops->compute;
}

bool call_client_may(server *s, const call_ops *ops, struct evhttp_request *http)
{
    client *who = connection_client(s, evhttp_request_get_connection(http));
    uint32_t wait_s = is_computed(ops) ? client_wait_s(who, server_now_ns(s)) : 0;
    char text[16];
    api_error err;
    if (!wait_s) return true;
    snprintf(text, sizeof text, "%u", wait_s);
    evhttp_add_header(evhttp_request_get_output_headers(http), "Retry-After", text);
    api_fail(&err, 429, NULL,
             "this client has had its %llu tokens of a minute (--max-tokens-per-minute); try again "
             "in %u s",
             (unsigned long long)client_limits_of(who)->tokens_per_minute, wait_s);
    err.code = "rate_limit_exceeded";
    reply_error(http, &err);
    return false;
}

void call_client_begin(call *c)
{
    c->client = client_hold(connection_client(c->server, evhttp_request_get_connection(c->http)));
    if (!c->client || !is_computed(c->ops)) return;
    c->charged = evbuffer_get_length(evhttp_request_get_input_buffer(c->http)) / BYTES_A_TOKEN;
    client_spend(c->client, (int64_t)c->charged, c->created_ns);
}

bool call_client_queue(call *c)
{
    if (client_queue(c->client, c->num_items)) {
        c->num_queued = c->num_items;
        return true;
    }
    api_fail(&c->error, 429, NULL,
             "with %s this client would have more than %u prompts that wait "
             "(--max-queued-per-client); try again soon",
             c->num_items > 1 ? "these" : "this one", client_limits_of(c->client)->queued);
    return false;
}

void call_client_heard(call *c, call_item *item)
{
    if (!c->client) return;
    if (!item->first_ns && c->num_queued) {
        c->num_queued--;
        client_unqueue(c->client, 1);
    }
    /* A prompt counts once, however many choices it has. */
    bool counts = item->index % RAD_MAX(c->request.n, 1u) == 0;
    uint64_t now = item->completion_tokens + (uint64_t)(counts ? item->prompt_tokens : 0);
    c->tokens += now - item->tokens_counted;
    item->tokens_counted = now;
    if (c->tokens <= c->charged) return;
    client_spend(c->client, (int64_t)(c->tokens - c->charged), server_now_ns(c->server));
    c->charged = c->tokens;
}

void call_client_end(call *c)
{
    if (!c->client) return;
    client_unqueue(c->client, c->num_queued);
    client_spend(c->client, (int64_t)(c->tokens - c->charged), server_now_ns(c->server));
    client_let_go(c->client);
}
