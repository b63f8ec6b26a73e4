/* test_browsers.c - which requests of pages are taken, by Host, Origin and Sec-Fetch-Site, as
 * rules and through a server. */
#include "server_rig.h"

#include "server/api_keys.h"
#include "server/browsers.h"
#include "server/routes.h"

static const char *const origins[] = {"http://localhost:3000", "https://Chat.example"};
static const char *const hosts[] = {"llm.example", "gateway:8080"};

TEST(rules_tell_pages_from_programs)
{
    static const struct {
        browser_request r;
        int status;
    } cases[] = {
        /* programs: what curl -d and proxies send */
        {{.host = "127.0.0.1:30000"}, 0},
        {{.host = NULL}, 0},
        {{.host = "localhost",
          .content_type = "application/x-www-form-urlencoded",
          .is_post = true},
         0},
        {{.host = "LOCALHOST:1", .is_post = true}, 0},
        {{.host = "localhost."}, 0},
        {{.host = "a.localhost:80"}, 0},
        {{.host = "127.1.2.3"}, 0},
        {{.host = "[::1]:30000"}, 0},
        {{.host = "LLM.example"}, 0},
        {{.host = "llm.example:443"}, 0},
        {{.host = "gateway:8080"}, 0},
        /* names that mean 127.0.0.1 only for a while */
        {{.host = "evil.example"}, 403},
        {{.host = ""}, 403},
        {{.host = "evil.example:30000", .sec_fetch_site = "same-origin"}, 403},
        {{.host = "notlocalhost"}, 403},
        {{.host = ".localhost.evil"}, 403},
        {{.host = "127.0.0.1.evil.example"}, 403},
        {{.host = "127.1"}, 403},
        {{.host = "1.127.0.0"}, 403},
        {{.host = "192.168.0.1"}, 403},
        {{.host = "[::2]"}, 403},
        {{.host = "gateway"}, 403},
        {{.host = "gateway:80"}, 403},
        /* pages of our own, and what the user opened himself */
        {{.host = "localhost:1", .sec_fetch_site = "same-origin"}, 0},
        {{.host = "localhost:1", .sec_fetch_site = "none"}, 0},
        {{.host = "localhost:1", .origin = "http://localhost:1"}, 0},
        {{.host = "llm.example", .origin = "https://LLM.example"}, 0},
        {{.host = "localhost:1",
          .origin = "https://behind.a.proxy",
          .sec_fetch_site = "same-origin",
          .content_type = "application/json; charset=utf-8",
          .is_post = true},
         0},
        /* of others */
        {{.host = "localhost:1", .sec_fetch_site = "cross-site"}, 403},
        {{.host = "localhost:1", .sec_fetch_site = "same-site"}, 403},
        {{.host = "localhost:1", .sec_fetch_site = "whatever"}, 403},
        {{.host = "localhost:1", .origin = "http://localhost:2"}, 403},
        {{.host = "localhost:1", .origin = "http://localhost"}, 403},
        {{.host = "localhost:1", .origin = "https://evil.example"}, 403},
        {{.host = "localhost:1", .origin = "null"}, 403},
        {{.host = "localhost:1", .origin = ""}, 403},
        {{.host = "localhost:1", .origin = "http://localhost:1", .sec_fetch_site = "cross-site"},
         403},
        {{.host = NULL, .origin = "http://localhost:1"}, 403},
        /* of others that were named */
        {{.host = "localhost:1", .origin = "http://localhost:3000", .sec_fetch_site = "same-site"},
         0},
        {{.host = "localhost:1", .origin = "https://chat.example", .sec_fetch_site = "cross-site"},
         0},
        {{.host = "localhost:1", .origin = "https://chat.example:444"}, 403},
        {{.host = "localhost:1", .origin = "https://chat.example.evil"}, 403},
        /* what a form can send */
        {{.host = "localhost:1", .sec_fetch_site = "same-origin", .is_post = true}, 415},
        {{.host = "localhost:1",
          .origin = "https://chat.example",
          .content_type = "text/plain",
          .is_post = true},
         415},
        {{.host = "localhost:1",
          .origin = "https://chat.example",
          .content_type = "application/jsonp",
          .is_post = true},
         415},
        {{.host = "localhost:1",
          .origin = "https://chat.example",
          .content_type = "Application/JSON",
          .is_post = true},
         0},
    };
    const browser_rules rules = {origins, hosts, 2, 2, true};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        api_error err = {0};
        bool may = browser_may(&rules, &cases[i].r, &err);
        CHECKF(may == !cases[i].status && err.http_status == cases[i].status,
               "case %zu: host %s, origin %s, site %s: %d, wanted %d: %s", i,
               cases[i].r.host ? cases[i].r.host : "-", cases[i].r.origin ? cases[i].r.origin : "-",
               cases[i].r.sec_fetch_site ? cases[i].r.sec_fetch_site : "-", err.http_status,
               cases[i].status, err.message);
    }
}

/* In a container, or for a network: any Host, until one is named. */
TEST(elsewhere_than_on_loopback_hosts_are_checked_once_one_is_named)
{
    api_error err;
    browser_request r = {.host = "anything.example:1"};
    browser_rules rules = {.loopback = false};
    CHECK(browser_may(&rules, &r, &err));
    r.origin = "https://evil.example";
    CHECK(!browser_may(&rules, &r, &err) && err.http_status == 403);
    r.origin = "https://anything.example:1";
    CHECK(browser_may(&rules, &r, &err));
    rules.allow_hosts = hosts;
    rules.num_allow_hosts = 2;
    CHECK(!browser_may(&rules, &r, &err) && err.http_status == 403);
    CHECK(strstr(err.message, "--allow-host anything.example") != NULL);
    r = (browser_request){.host = "localhost"};
    CHECK(browser_may(&rules, &r, &err));
}

TEST(a_star_allows_all)
{
    static const char *const all[] = {"*"};
    const browser_rules rules = {all, all, 1, 1, true};
    const browser_request r = {
        .host = "a.example", .origin = "null", .sec_fetch_site = "cross-site"};
    api_error err;
    CHECK(browser_may(&rules, &r, &err));
}

TEST(what_could_never_match_is_told)
{
    static const char *const good[] = {"http://a", "https://a.b:1", "null",
                                       "*",        "app-x://y",     "http://[::1]:3000"};
    static const char *const bad[] = {"a",        "http://",    "http://a/", "http://a/b", "//a",
                                      "http://*", "http://a b", "http://a:", "http://a:b", ""};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECKF(browser_is_origin(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECKF(!browser_is_origin(bad[i]), "%s", bad[i]);
    CHECK(browser_is_host("a") && browser_is_host("a:1") && browser_is_host("*") &&
          browser_is_host("[::1]") && browser_is_host("10.0.0.1:80"));
    CHECK(!browser_is_host("") && !browser_is_host("http://a") && !browser_is_host("a/b") &&
          !browser_is_host("a:"));
}

/* ---- through a server ---- */

/* The whole answer to a request without a body, or with "{}". */
static const char *answer(const struct fixture *f, const char *line, const char *headers, bool body)
{
    char text[1024];
    snprintf(text, sizeof text, "%s HTTP/1.1\r\n%sConnection: close\r\n%s\r\n%s", line, headers,
             body ? "Content-Length: 2\r\n" : "", body ? "{}" : "");
    return exchange(f, text);
}

static void expect(const struct fixture *f, const char *line, const char *headers, bool body,
                   const char *status)
{
    const char *reply = answer(f, line, headers, body);
    CHECKF(strncmp(reply + 9, status, 3) == 0, "%s, %s: %s", line, headers, reply);
}

TEST(a_foreign_page_neither_flushes_nor_asks)
{
    static const char foreign[] = "Host: localhost:1\r\nOrigin: https://evil.example\r\n";
    static const char simple[] = "Host: localhost:1\r\nContent-Type: text/plain\r\n"
                                 "Sec-Fetch-Site: cross-site\r\nOrigin: https://evil.example\r\n";
    struct fixture f;
    engine_stats stats;
    start_with(&f, (server_params){.allow_origins = origins, .num_allow_origins = 2});
    expect(&f, "POST /flush_cache", foreign, false, "403");
    expect(&f, "POST /v1/completions", simple, true, "403");
    expect(&f, "GET /v1/models", foreign, false, "403");
    expect(&f, "GET /v1/models", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", false, "403");
    expect(&f, "GET /v1/models", "Host: rebound.example\r\n", false, "403");
    expect(&f, "GET http://rebound.example/v1/models", "Host: localhost\r\n", false, "403");
    expect(&f, "GET /v1/models", "Host: localhost\r\nOrigin: \r\n", false, "403");
    expect(&f, "OPTIONS /v1/completions",
           "Host: localhost\r\nOrigin: https://evil.example\r\n"
           "Access-Control-Request-Method: POST\r\n",
           false, "403");
    expect(&f, "GET /v1/models", "Host: localhost\r\n", false, "200");
    /* curl -d, as everybody writes it */
    expect(&f, "POST /v1/completions",
           "Host: 127.0.0.1:30000\r\nContent-Type: application/x-www-form-urlencoded\r\n", true,
           "400");
    engine_get_stats(f.engine, &stats);
    CHECK(stats.requests.num_requests == 0);
    stop(&f);
}

/* CORS: what its browser asks is answered, and the page may read errors as well as answers. */
TEST(a_named_origin_may_ask_and_read)
{
    static const char headers[] =
        "Host: localhost:1\r\nOrigin: https://chat.example\r\n"
        "Sec-Fetch-Site: cross-site\r\nContent-Type: application/json\r\n";
    static const char allowed[] = "Access-Control-Allow-Origin: https://chat.example\r\n";
    struct fixture f;
    start_with(&f, (server_params){.allow_origins = origins, .num_allow_origins = 2});
    const char *reply = answer(&f, "OPTIONS /v1/completions",
                               "Host: localhost:1\r\nOrigin: https://chat.example\r\n"
                               "Access-Control-Request-Method: POST\r\n"
                               "Access-Control-Request-Headers: authorization,content-type\r\n",
                               false);
    CHECKF(strstr(reply, " 204 ") && strstr(reply, allowed) &&
               strstr(reply, "Access-Control-Allow-Methods: GET, HEAD, POST") &&
               strstr(reply, "Access-Control-Allow-Headers: authorization,content-type\r\n"),
           "%s", reply);
    reply = answer(&f, "GET /v1/models", headers, false);
    CHECKF(strstr(reply, " 200 ") && strstr(reply, allowed) && strstr(reply, "Vary: Origin"), "%s",
           reply);
    reply = answer(&f, "POST /v1/completions", headers, true);
    CHECKF(strstr(reply, " 400 ") && strstr(reply, allowed), "%s", reply);
    reply = answer(&f, "GET /v1/models", "Host: localhost\r\n", false);
    CHECKF(!strstr(reply, "Access-Control"), "%s", reply);
    stop(&f);
}

/* At every path there is, with keys too: what a browser asks first has none with it, and a page may
 * read that its request lacked one, in the words of the path's protocol. */
TEST(every_endpoint_has_the_rules_and_cors)
{
#define PATH(path, methods, handle) path,
    static const char *const paths[] = {SERVER_ROUTES(PATH) SERVER_NAMED_ROUTES(PATH)};
#undef PATH
    static const char named[] = "Host: localhost:1\r\nOrigin: https://chat.example\r\n";
    static const char asks[] = "Host: localhost:1\r\nOrigin: https://chat.example\r\n"
                               "Access-Control-Request-Method: POST\r\n"
                               "Access-Control-Request-Headers: x-api-key\r\n";
    static const char allowed[] = "Access-Control-Allow-Origin: https://chat.example\r\n";
    struct fixture f;
    api_keys *keys;
    CHECK_OK(api_keys_create(&keys, NULL));
    CHECK_OK(api_keys_add(keys, "ann", false, NULL));
    start_with(&f,
               (server_params){.allow_origins = origins, .num_allow_origins = 2, .api_keys = keys});
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char line[120];
        snprintf(line, sizeof line, "OPTIONS %s", paths[i]);
        const char *reply = answer(&f, line, asks, false);
        CHECKF(strstr(reply, " 204 ") && strstr(reply, allowed) &&
                   strstr(reply, "Access-Control-Allow-Headers: x-api-key\r\n"),
               "%s: %s", line, reply);
        snprintf(line, sizeof line, "GET %s", paths[i]);
        reply = answer(&f, line, named, false);
        CHECKF((strstr(reply, " 401 ") || strstr(reply, " 200 ")) && strstr(reply, allowed) &&
                   strstr(reply, "Access-Control-Expose-Headers: X-Request-Id") &&
                   strstr(reply, "\r\nX-Request-Id: "),
               "%s: %s", line, reply);
        reply = answer(&f, line, "Host: localhost:1\r\nOrigin: https://evil.example\r\n", false);
        const char *shape = strncmp(paths[i], "/api/", 5) == 0 ? "{\"error\":\""
                            : strncmp(paths[i], "/v1/messages", 12) == 0
                                ? "\"type\":\"permission_error\""
                                : "\"param\":null";
        CHECKF(strstr(reply, " 403 ") && strstr(reply, shape) && !strstr(reply, "Access-Control"),
               "%s: %s", line, reply);
    }
    stop(&f);
    api_keys_destroy(keys);
}

/* It listens for nobody but this machine, however that is written. */
TEST(a_mapped_loopback_address_is_loopback)
{
    struct fixture f = {0};
    server_params params = {.host = "::ffff:127.0.0.1", .drain_ms = 500, .ping_ms = 1000};
    CHECK_OK(engine_create(NULL, NULL, &f.engine, NULL));
    CHECK_OK(server_create(NULL, f.engine, &params, &f.server, NULL));
    CHECK(pthread_create(&f.thread, NULL, run_server, &f) == 0);
    expect(&f, "GET /v1/models", "Host: rebound.example\r\n", false, "403");
    expect(&f, "GET /v1/models", "Host: localhost\r\n", false, "200");
    stop(&f);
}

TEST_MAIN()
