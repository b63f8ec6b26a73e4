/* inspect.c - who may look, and what the questions have in common; see inspect.h. */
#include "server/inspect.h"

#include "server/api_fields.h"
#include "server/cached_tokens.h"
#include "server/server_priv.h"

#include <event2/keyvalq_struct.h>
#include <stdlib.h>

bool inspect_may(server *s, api_error *err)
{
    const api_keys *keys = s->params.api_keys;
    if (s->params.no_dashboard)
        return api_fail(err, 404, NULL, "this server was started with --no-dashboard");
    if (s->is_admin) return true; /* and where there is such a key nobody else comes here */
    if (api_keys_wanted(keys))
        return api_fail(err, 403, NULL,
                        "this tells of every key's cache: start the server with --admin-api-key");
    if (!s->browsers.loopback)
        return api_fail(err, 403, NULL,
                        "this tells of everybody's cache, and the server listens beyond this "
                        "machine: start it with --admin-api-key");
    if (!cached_figures(&s->params))
        return api_fail(err, 403, NULL,
                        "--report-cached-tokens hides what would be told here: start the server "
                        "with --admin-api-key or --report-cache-figures");
    return true;
}

static const char *query_of(struct evhttp_request *http)
{
    const char *text = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(http));
    return text ? text : "";
}

bool inspect_number(struct evhttp_request *http, const char *name, uint64_t most, uint64_t *out,
                    api_error *err)
{
    struct evkeyvalq query;
    if (!*query_of(http) || evhttp_parse_query_str(query_of(http), &query) != 0) return true;
    const char *text = evhttp_find_header(&query, name);
    char *end = NULL;
    bool fine = true;
    if (text) {
        unsigned long long n = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
        fine = end && !*end && n <= most;
        if (fine)
            *out = n;
        else
            api_fail(err, 400, name, "%s is a number, 0 to %llu: '%.40s'", name,
                     (unsigned long long)most, text);
    }
    evhttp_clear_headers(&query);
    return fine;
}

static bool is_known(const char *name, const char *known)
{
    size_t len = strlen(name);
    for (const char *at = known; (at = strstr(at, name)); at += len)
        if ((at == known || at[-1] == ' ') && (!at[len] || at[len] == ' ')) return len > 0;
    return false;
}

bool inspect_query(struct evhttp_request *http, const char *known, api_error *err)
{
    struct evkeyvalq query;
    bool fine = true;
    if (!*query_of(http)) return true;
    if (evhttp_parse_query_str(query_of(http), &query) != 0)
        return api_fail(err, 400, NULL, "the query is not name=value&...: %s", known);
    for (const struct evkeyval *at = query.tqh_first; at && fine; at = at->next.tqe_next)
        if (!is_known(at->key, known)) {
            char where[120];
            snprintf(where, sizeof where, "the query: %s", known);
            fine = api_refuse_field(at->key, where, err);
        }
    evhttp_clear_headers(&query);
    return fine;
}

bool inspect_begin(call *c)
{
    if (!c->out) c->out = evbuffer_new();
    return c->out || inspect_fail(c, RAD_E_NOMEM);
}

bool inspect_fail(call *c, rad_status status)
{
    c->status = status;
    if (status == RAD_E_NOMEM) return api_fail(&c->error, 503, NULL, "no memory for this answer");
    return api_fail(&c->error, 503, NULL, "the server is stopping");
}

void inspect_answer(call *c)
{
    if (c->status != RAD_OK) {
        call_reply_json(c, c->error.http_status, error_json(&c->error));
        return;
    }
    evhttp_add_header(evhttp_request_get_output_headers(c->http), "Cache-Control", "no-store");
    call_reply_text(c, "application/json", c->out);
}
