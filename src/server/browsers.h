/* browsers.h - what a page that somebody has open may do with a server on his machine.
 *
 * A server on 127.0.0.1 has no authentication and needs none against strangers, but every page in
 * a browser on that machine can send it requests: a form or a fetch to http://127.0.0.1:30000, or
 * to a name of the page's own site that suddenly means 127.0.0.1 (DNS rebinding). What browsers
 * say about themselves tells both:
 *
 *  - Sec-Fetch-Site and Origin, which no page can forge: the request must come from a page of this
 *    server (same-origin, or what the user opened himself), or from an origin that was named.
 *    A POST of a browser must be application/json: what a form can send is not.
 *  - Host, where the server listens on loopback: a rebound name stands there. It must be a name of
 *    loopback, or one that was named. Elsewhere there is no such rule until a name is given.
 *
 * Programs that are no browsers send neither Origin nor Sec-Fetch-Site and are not concerned by
 * the first rule; their Content-Type is not looked at. */
#ifndef SERVER_BROWSERS_H
#define SERVER_BROWSERS_H

#include "server/api_request.h"

typedef struct browser_rules {
    const char *const *allow_origins; /* "scheme://host[:port]", "null", or "*": any */
    const char *const *allow_hosts;   /* "name": any port; "name:port"; "*": any */
    uint32_t num_allow_origins, num_allow_hosts;
    bool loopback; /* the server is reached through loopback only */
} browser_rules;

/* Of the head; NULL: not there. */
typedef struct browser_request {
    const char *host, *origin, *sec_fetch_site, *content_type;
    bool is_post;
} browser_request;

/* False: *err says which rule, and which option would change it. */
bool browser_may(const browser_rules *rules, const browser_request *r, api_error *err);

/* The page of this origin may read our answers: it was named. */
bool browser_origin_named(const browser_rules *rules, const char *origin);

/* What may stand in the two lists; false for what could never match. */
bool browser_is_origin(const char *text);
bool browser_is_host(const char *text);

#endif
