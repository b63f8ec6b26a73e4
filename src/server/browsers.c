/* browsers.c - see browsers.h; texts and lists, no sockets. */
#include "server/browsers.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The host of "host", "host:port" or "[host]:port", brackets included. */
static size_t host_len(const char *authority)
{
    const char *end = *authority == '[' ? strchr(authority, ']') : NULL;
    return end ? (size_t)(end + 1 - authority) : strcspn(authority, ":");
}

static bool is_word(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && strncasecmp(text, word, len) == 0;
}

static bool is_loopback(const char *host, size_t len)
{
    static const char local[] = ".localhost";
    char text[64];
    struct in_addr v4;
    if (len && host[len - 1] == '.') len--; /* a name may end with the root's dot */
    if (is_word(host, len, local + 1) || is_word(host, len, "[::1]")) return true;
    if (len >= sizeof local && is_word(host + len - (sizeof local - 1), sizeof local - 1, local))
        return true;
    if (len >= sizeof text) return false;
    memcpy(text, host, len);
    text[len] = 0;
    return inet_pton(AF_INET, text, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static bool host_named(const browser_rules *rules, const char *host)
{
    size_t len = host_len(host);
    for (uint32_t i = 0; i < rules->num_allow_hosts; i++) {
        const char *name = rules->allow_hosts[i];
        if (strcmp(name, "*") == 0 || strcasecmp(name, host) == 0 || is_word(host, len, name))
            return true;
    }
    return false;
}

static bool host_may(const browser_rules *rules, const char *host, api_error *err)
{
    if (!rules->loopback && !rules->num_allow_hosts) return true;
    if (!host || is_loopback(host, host_len(host)) || host_named(rules, host)) return true;
    return api_fail(err, 403, NULL,
                    "Host '%.200s' is none of this server's names; --allow-host %.*s adds it", host,
                    (int)RAD_MIN(host_len(host), (size_t)200), host);
}

bool browser_origin_named(const browser_rules *rules, const char *origin)
{
    for (uint32_t i = 0; origin && i < rules->num_allow_origins; i++)
        if (strcmp(rules->allow_origins[i], "*") == 0 ||
            strcasecmp(rules->allow_origins[i], origin) == 0)
            return true;
    return false;
}

/* Its host and port are where the request went; the scheme may have been changed by a proxy. */
static bool is_own_origin(const char *origin, const char *host)
{
    const char *at = strstr(origin, "://");
    return at && host && strcasecmp(at + 3, host) == 0;
}

static bool origin_may(const browser_rules *rules, const browser_request *r, api_error *err)
{
    const char *site = r->sec_fetch_site;
    bool own = site ? strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0
                    : is_own_origin(r->origin, r->host);
    if (own || browser_origin_named(rules, r->origin)) return true;
    if (r->origin)
        return api_fail(err, 403, NULL,
                        "a page of '%.200s' may not use this server; --allow-origin lets it",
                        r->origin);
    return api_fail(err, 403, NULL,
                    "a page of another site may not use this server; --allow-origin lets it, for "
                    "requests with an Origin");
}

static bool is_json(const char *content_type)
{
    static const char json[] = "application/json";
    size_t len = content_type ? strcspn(content_type, "; \t") : 0;
    return len && is_word(content_type, len, json);
}

bool browser_may(const browser_rules *rules, const browser_request *r, api_error *err)
{
    if (!host_may(rules, r->host, err)) return false;
    if (!r->origin && !r->sec_fetch_site) return true;
    if (!origin_may(rules, r, err)) return false;
    if (!r->is_post || is_json(r->content_type)) return true;
    return api_fail(err, 415, NULL, "a browser's POST must have Content-Type: application/json");
}

/* ---- what the lists may hold ---- */

bool browser_is_host(const char *text)
{
    if (strcmp(text, "*") == 0) return true;
    size_t len = host_len(text);
    if (!len) return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-._[]:", text[i])) return false;
    return !text[len] || (text[len] == ':' && text[len + 1] &&
                          strspn(text + len + 1, "0123456789") == strlen(text + len + 1));
}

bool browser_is_origin(const char *text)
{
    const char *at = strstr(text, "://");
    if (strcmp(text, "*") == 0 || strcmp(text, "null") == 0) return true;
    if (!at || at == text || strcmp(at + 3, "*") == 0) return false;
    for (const char *c = text; c < at; c++)
        if (!isalnum((unsigned char)*c) && !strchr("+-.", *c)) return false;
    return browser_is_host(at + 3);
}
