/* browsers_http.c - the rules of browsers.h for evhttp's requests, and CORS for named origins. */
#include "server/server_priv.h"

#include <event2/keyvalq_struct.h>

bool browser_admit(server *s, struct evhttp_request *http, api_error *err)
{
    const struct evkeyvalq *in = evhttp_request_get_input_headers(http);
    struct evkeyvalq *out = evhttp_request_get_output_headers(http);
    browser_request r = {.host = evhttp_find_header(in, "Host"),
                         .origin = evhttp_find_header(in, "Origin"),
                         .sec_fetch_site = evhttp_find_header(in, "Sec-Fetch-Site"),
                         .content_type = evhttp_find_header(in, "Content-Type"),
                         .is_post = evhttp_request_get_command(http) == EVHTTP_REQ_POST};
    if (s->browsers.num_allow_origins) evhttp_add_header(out, "Vary", "Origin");
    /* Also of what is refused below: it may read why. */
    if (browser_origin_named(&s->browsers, r.origin)) {
        evhttp_add_header(out, "Access-Control-Allow-Origin", r.origin);
        evhttp_add_header(out, "Access-Control-Expose-Headers",
                          "X-Request-Id, request-id, Retry-After");
    }
    return browser_may(&s->browsers, &r, err);
}

bool browser_preflight(server *s, struct evhttp_request *http)
{
    const struct evkeyvalq *in = evhttp_request_get_input_headers(http);
    struct evkeyvalq *out = evhttp_request_get_output_headers(http);
    const char *fields = evhttp_find_header(in, "Access-Control-Request-Headers");
    if (evhttp_request_get_command(http) != EVHTTP_REQ_OPTIONS ||
        !evhttp_find_header(in, "Access-Control-Request-Method") ||
        !evhttp_find_header(out, "Access-Control-Allow-Origin"))
        return false;
    evhttp_add_header(out, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
    if (fields) evhttp_add_header(out, "Access-Control-Allow-Headers", fields);
    if (evhttp_find_header(in, "Access-Control-Request-Private-Network"))
        evhttp_add_header(out, "Access-Control-Allow-Private-Network", "true");
    evhttp_add_header(out, "Access-Control-Max-Age", "600");
    s->access.status = 204;
    send_bytes(http, 204, NULL);
    access_end(s, &s->access, "");
    return true;
}
