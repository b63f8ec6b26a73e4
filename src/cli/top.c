/* top.c - `radish top`: a running server, looked at once a second.
 *
 * All of it is GET /inspect/status (docs/dashboard.md). Counters grow from the server's start, so
 * rates come of two looks; percentiles, of what the histograms got within the last ten. */
#include "cli/cli.h"
#include "cli/http_get.h"
#include "cli/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { LOOKS = 11, CURVE = 120, MAX_BOUNDS = 256 };

typedef struct top {
    http_server *server;
    const char *url;
    json_t *looks[LOOKS]; /* the newest first; NULL: not yet */
    double curve[CURVE];  /* generated tokens a second, the newest last */
    uint32_t curve_len, first_request;
    screen page;
    rad_error err; /* of the last look */
    bool gone;
} top;

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *word(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double counter(const json_t *look, const char *key)
{
    return number(json_object_get(look, "counters"), key);
}

/* The oldest look of the same server run; the newest itself, if there is no other. */
static const json_t *oldest(const top *t)
{
    const json_t *found = t->looks[0];
    for (uint32_t i = 1; i < LOOKS && t->looks[i]; i++) {
        if (number(t->looks[i], "uptime_s") > number(found, "uptime_s")) break;
        found = t->looks[i];
    }
    return found;
}

/* What a counter grew by in a second, since that look; 0 where there is no such look. */
static double rate(const json_t *now, const json_t *then, const char *key)
{
    const double s = number(now, "uptime_s") - number(then, "uptime_s");
    return s > 0 ? (counter(now, key) - counter(then, key)) / s : 0;
}

static void look(top *t)
{
    json_t *now;
    t->err = (rad_error){0};
    t->gone = http_get_json(t->server, "/inspect/status", &now, &t->err) != RAD_OK;
    if (t->gone) return;
    json_decref(t->looks[LOOKS - 1]);
    memmove(t->looks + 1, t->looks, (LOOKS - 1) * sizeof *t->looks);
    t->looks[0] = now;
    if (!t->looks[1]) return;
    if (t->curve_len == CURVE)
        memmove(t->curve, t->curve + 1, (CURVE - 1) * sizeof *t->curve);
    else
        t->curve_len++;
    const double tokens = rate(now, t->looks[1], "generated_tokens");
    t->curve[t->curve_len - 1] = RAD_MAX(tokens, 0);
}

/* ---- parts of the page ---- */

static void put_head(top *t, const json_t *now)
{
    screen *s = &t->page;
    char age[32], text[32];
    screen_put(s, SCREEN_BOLD, "%s", word(now, "model"));
    screen_put(s, SCREEN_PLAIN, "  %s, %s, context %s, pages of %.0f", word(now, "architecture"),
               word(now, "computes_on"),
               screen_number(text, (uint64_t)number(now, "context_length")),
               number(now, "page_size"));
    screen_put(s, SCREEN_DIM, "   up %s   radish %s   %s", screen_age(age, number(now, "uptime_s")),
               word(now, "radish"), t->url);
    screen_end_line(s);
    if (t->gone) {
        screen_put(s, SCREEN_BAD, "%s; this is what was seen last", t->err.text);
        screen_end_line(s);
    }
    screen_end_line(s);
}

static void put_rates(top *t, const json_t *now)
{
    screen *s = &t->page;
    const json_t *then = oldest(t), *state = json_object_get(now, "now");
    screen_put(s, SCREEN_PLAIN, "tokens/s ");
    screen_put(s, SCREEN_BOLD, "%8.1f", rate(now, then, "generated_tokens"));
    screen_put(s, SCREEN_PLAIN, "   prompt tokens/s ");
    screen_put(s, SCREEN_BOLD, "%8.0f", rate(now, then, "prompt_tokens"));
    screen_put(s, SCREEN_PLAIN, "   running ");
    screen_put(s, SCREEN_BOLD, "%.0f", number(state, "running"));
    screen_put(s, SCREEN_PLAIN, "   waiting ");
    screen_put(s, SCREEN_BOLD, "%.0f", number(state, "waiting"));
    if (number(state, "sessions_open") > 0)
        screen_put(s, SCREEN_PLAIN, "   sessions %.0f", number(state, "sessions_open"));
    if (number(state, "transfers") > 0)
        screen_put(s, SCREEN_PLAIN, "   transfers %.0f", number(state, "transfers"));
    const double wrong = counter(now, "self_check_violations");
    if (wrong > 0) screen_put(s, SCREEN_BAD, "   self-check: %.0f violations", wrong);
    screen_end_line(s);
    if (t->curve_len) {
        screen_put(s, SCREEN_PLAIN, "         ");
        screen_curve(s, t->curve, t->curve_len, s->width > 12 ? s->width - 12 : 1);
        screen_end_line(s);
    }
}

/* The bound that `share` of what came between two looks is at or below; < 0: nothing came. */
static double percentile(const json_t *now, const json_t *then, const char *name, double share)
{
    const json_t *bounds = json_object_get(json_object_get(now, "latency"), "bounds_s");
    const json_t *a =
        json_object_get(json_object_get(json_object_get(now, "latency"), name), "counts");
    const json_t *b =
        then == now
            ? NULL
            : json_object_get(json_object_get(json_object_get(then, "latency"), name), "counts");
    double counts[MAX_BOUNDS], sum = 0, below = 0;
    const size_t n = RAD_MIN(json_array_size(a), (size_t)MAX_BOUNDS);
    for (size_t i = 0; i < n; i++) {
        counts[i] = json_number_value(json_array_get(a, i)) -
                    json_number_value(json_array_get(b, i));
        sum += counts[i];
    }
    if (!(sum > 0)) return -1;
    for (size_t i = 0; i < n; i++) {
        below += counts[i];
        const size_t last = json_array_size(bounds) ? json_array_size(bounds) - 1 : 0;
        if (below >= share * sum)
            return json_number_value(json_array_get(bounds, RAD_MIN(i, last)));
    }
    return -1;
}

static void put_latency(top *t, const json_t *now)
{
    static const struct {
        const char *name, *label;
    } kinds[] = {{"queue", "queue"},
                 {"first_token", "first token"},
                 {"inter_token", "between tokens"},
                 {"end_to_end", "whole answer"}};
    screen *s = &t->page;
    screen_put(s, SCREEN_PLAIN, "at most  ");
    for (size_t i = 0; i < RAD_COUNT(kinds); i++) {
        const json_t *then = oldest(t);
        double half = percentile(now, then, kinds[i].name, 0.5);
        const bool all = half < 0; /* nothing new: of the whole run */
        if (all) half = percentile(now, now, kinds[i].name, 0.5);
        const double most = percentile(now, all ? now : then, kinds[i].name, 0.95);
        screen_put(s, SCREEN_DIM, "%s ", kinds[i].label);
        if (half < 0)
            screen_put(s, SCREEN_PLAIN, "-   ");
        else
            screen_put(s, all ? SCREEN_DIM : SCREEN_PLAIN, "%g / %g ms   ", half * 1e3, most * 1e3);
    }
    screen_put(s, SCREEN_DIM, "(p50 / p95)");
    screen_end_line(s);
}

static void put_hits(top *t, const json_t *now)
{
    static const struct {
        const char *key, *label;
    } kinds[] = {{"cached_device_tokens", "device"},
                 {"cached_host_tokens", "host"},
                 {"cached_storage_tokens", "storage"},
                 {"computed_tokens", "computed"}};
    static const screen_style styles[] = {SCREEN_GOOD, SCREEN_GOOD, SCREEN_GOOD, SCREEN_PLAIN};
    screen *s = &t->page;
    double parts[RAD_COUNT(kinds)];
    const double all = counter(now, "prompt_tokens");
    screen_put(s, SCREEN_PLAIN, "prompts  ");
    for (size_t i = 0; i < RAD_COUNT(kinds); i++)
        parts[i] = all > 0 ? counter(now, kinds[i].key) / all : 0;
    screen_bar(s, parts, styles, 3, 30);
    for (size_t i = 0; i < RAD_COUNT(kinds); i++)
        if (parts[i] > 0 || i == 0 || i == 3)
            screen_put(s, i < 3 ? SCREEN_GOOD : SCREEN_PLAIN, "  %s %.1f %%", kinds[i].label,
                       parts[i] * 100);
    char text[32];
    screen_put(s, SCREEN_DIM, "  of %s tokens", screen_number(text, (uint64_t)all));
    screen_end_line(s);
}

static void put_pools(top *t, const json_t *now)
{
    static const screen_style styles[] = {SCREEN_BAD, SCREEN_GOOD, SCREEN_GOOD};
    screen *s = &t->page;
    size_t i;
    json_t *pool;
    json_array_foreach(json_object_get(now, "pools"), i, pool)
    {
        const double total = number(pool, "total");
        const double parts[] = {total > 0 ? number(pool, "held") / total : 0,
                                total > 0 ? number(pool, "protected") / total : 0,
                                total > 0 ? number(pool, "evictable") / total : 0};
        char a[32], b[32];
        const bool window = strcmp(word(pool, "component"), "window") == 0;
        screen_put(s, SCREEN_PLAIN, "%-8.8s ", word(pool, "tier"));
        screen_bar(s, parts, styles, 3, 30);
        screen_put(s, SCREEN_PLAIN, "  %3.0f %%  %s of %s %s%s",
                   (parts[0] + parts[1] + parts[2]) * 100,
                   screen_number(a, (uint64_t)(total - number(pool, "available"))),
                   screen_number(b, (uint64_t)total), window ? "window " : "", word(pool, "unit"));
        screen_put(s, SCREEN_DIM, "  (held %.0f, in use %.0f, cached %.0f)", number(pool, "held"),
                   number(pool, "protected"), number(pool, "evictable"));
        screen_end_line(s);
    }
    const json_t *storage = json_object_get(now, "storage");
    if (!json_is_object(storage)) return;
    screen_put(s, SCREEN_PLAIN, "storage  %s, %.0f pages, %.0f of %.0f found",
               word(storage, "backend"), number(storage, "pages"), number(storage, "hits"),
               number(storage, "gets"));
    if (json_is_true(json_object_get(storage, "down"))) screen_put(s, SCREEN_BAD, "  down");
    if (number(storage, "errors") > 0)
        screen_put(s, SCREEN_BAD, "  %.0f errors", number(storage, "errors"));
    screen_end_line(s);
}

static void put_evictions(top *t, const json_t *now)
{
    screen *s = &t->page;
    char a[32], b[32], age[32];
    screen_put(s, SCREEN_PLAIN, "evicted  %s tokens",
               screen_number(a, (uint64_t)counter(now, "evicted_tokens")));
    if (counter(now, "host_evicted_tokens") > 0)
        screen_put(s, SCREEN_PLAIN, ", %s from the host",
                   screen_number(b, (uint64_t)counter(now, "host_evicted_tokens")));
    const json_t *evictions = json_object_get(now, "evictions");
    const json_t *last = json_array_get(json_object_get(evictions, "recent"), 0);
    screen_put(s, SCREEN_DIM, "  (%s)", word(evictions, "policy"));
    if (last)
        screen_put(s, SCREEN_DIM, "  last: %.0f tokens of node %.0f, %s ago (%s)",
                   number(last, "tokens"), number(last, "node"),
                   screen_age(age, number(last, "age_s")), word(last, "cause"));
    screen_end_line(s);
}

static void put_request(screen *s, const json_t *r)
{
    char age[32];
    screen_put(s, SCREEN_PLAIN, "%-10.10s", word(r, "state"));
    screen_put(s, SCREEN_PLAIN, "%9.9s", screen_age(age, number(r, "age_s")));
    screen_put(s, SCREEN_PLAIN, "%9.0f", number(r, "prompt_tokens"));
    const double cached = number(r, "cached_tokens");
    screen_put(s, cached > 0 ? SCREEN_GOOD : SCREEN_PLAIN, "%9.0f", cached);
    screen_put(s, SCREEN_PLAIN, "%9.0f/%-8.0f", number(r, "output_tokens"),
               number(r, "max_new_tokens"));
    if (number(r, "retractions") > 0)
        screen_put(s, SCREEN_BAD, " retracted %.0fx ", number(r, "retractions"));
    screen_put(s, SCREEN_DIM, " %s", word(r, "name"));
    screen_end_line(s);
}

static void put_requests(top *t, const json_t *now)
{
    screen *s = &t->page;
    const json_t *requests = json_object_get(now, "requests");
    const size_t count = json_array_size(requests);
    screen_end_line(s);
    screen_put(s, SCREEN_BOLD, "%-10s%9s%9s%9s%9s/%-8s %s", "state", "age", "prompt", "cached",
               "out", "max", "request");
    screen_end_line(s);
    if (!count) screen_put(s, SCREEN_DIM, "nobody asks");
    for (size_t i = RAD_MIN((size_t)t->first_request, count); i < count && !screen_is_full(s); i++)
        put_request(s, json_array_get(requests, i));
    if (!count) screen_end_line(s);
}

static void draw(top *t, uint32_t width, uint32_t height, bool colour)
{
    const json_t *now = t->looks[0];
    screen_begin(&t->page, width, height, colour);
    if (!now) {
        screen_put(&t->page, SCREEN_BAD, "%s", t->err.text);
        screen_end_line(&t->page);
        return;
    }
    put_head(t, now);
    put_rates(t, now);
    put_latency(t, now);
    put_hits(t, now);
    put_pools(t, now);
    put_evictions(t, now);
    put_requests(t, now);
}

/* ---- the terminal ---- */

static volatile sig_atomic_t ended, resized;

static void on_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else
        ended = 1;
}

static void print_page(const screen *s)
{
    /* Over what is there, each line's rest and all below erased: nothing flickers. */
    fputs("\033[H", stdout);
    for (const char *line = s->text; *line;) {
        const size_t len = strcspn(line, "\n");
        const bool last = !line[len] || !line[len + 1];
        fwrite(line, 1, len, stdout);
        fputs(last ? "\033[K" : "\033[K\r\n", stdout);
        line += len + (line[len] == '\n');
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

/* Waits for a key, so long at most. False: q. */
static bool wait_for_key(top *t, double seconds)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char keys[16];
    if (poll(&in, 1, (int)(seconds * 1000)) <= 0) return true;
    const ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n <= 0) return n < 0 && errno == EINTR;
    for (ssize_t i = 0; i < n; i++)
        if (keys[i] == 'q') return false;
    const size_t count = json_array_size(json_object_get(t->looks[0], "requests"));
    const bool up = n >= 3 && memcmp(keys, "\033[A", 3) == 0;
    const bool down = n >= 3 && memcmp(keys, "\033[B", 3) == 0;
    if ((up || keys[0] == 'k') && t->first_request) t->first_request--;
    if ((down || keys[0] == 'j') && t->first_request + 1 < count) t->first_request++;
    return true;
}

static uint64_t now_ms(void)
{
    const rad_env env = rad_env_or_default(NULL);
    return env.now_ns(env.user) / 1000000;
}

/* Until q or a signal. */
static void watch(top *t, double interval)
{
    struct termios before, raw;
    struct sigaction on = {.sa_handler = on_signal};
    sigaction(SIGINT, &on, NULL);
    sigaction(SIGTERM, &on, NULL);
    sigaction(SIGHUP, &on, NULL);
    sigaction(SIGWINCH, &on, NULL);
    const bool keys = tcgetattr(STDIN_FILENO, &before) == 0;
    if (keys) {
        raw = before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* a page of its own, without a cursor */
    for (bool more = true; more && !ended;) {
        const uint64_t next = now_ms() + (uint64_t)(interval * 1000);
        look(t);
        do {
            struct winsize size = {0};
            if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_col || !size.ws_row)
                size = (struct winsize){.ws_col = 80, .ws_row = 24};
            resized = 0;
            draw(t, size.ws_col, size.ws_row, !getenv("NO_COLOR"));
            print_page(&t->page);
            const uint64_t now = now_ms();
            if (now >= next) break;
            more = wait_for_key(t, (double)(next - now) / 1000);
        } while (more && !ended);
    }
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (keys) tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

int cmd_top(int argc, char **argv)
{
    server_options o = {0};
    double interval = 1;
    bool once = false;
    const char *url = NULL;
    const cli_manual manual = {
        .command = "top",
        .words = "",
        .usage = "top [URL] [options]",
        .about =
            "What a running server does, in the terminal: speed, waiting times, what was found in\n"
            "the cache and where, pools, evictions, requests. URL: http://127.0.0.1:30000. Keys: "
            "q\n"
            "leaves, the arrows go through the requests. Without a terminal, or with --once: one\n"
            "page, of the server's whole run.",
        .after = "Examples:\n\n"
                 "  radish top\n"
                 "  radish top https://llm.example.org --api-key \"$KEY\" --interval 5\n",
    };
    const cli_option options[] = {
        {.kind = CLI_F64,
         .name = "interval",
         .arg = "SECONDS",
         .target = &interval,
         .min = 0.1,
         .max = 3600,
         .help = "Between two looks. Default 1."},
        {.kind = CLI_FLAG, .name = "once", .target = &once, .help = "One page, then leave."},
        SERVER_OPTIONS(&o),
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &url);
    if (code != CLI_GO_ON) return code;
    top t = {.url = url ? url : SERVER_URL};
    if (server_options_open(&o, t.url, &t.server, &t.err) != RAD_OK)
        return cli_usage("top", "%s", t.err.text);
    code = 0;
    if (once || !isatty(STDOUT_FILENO)) {
        look(&t);
        if (t.gone) {
            code = cli_fail("%s", t.err.text);
        } else {
            draw(&t, 200, 0, isatty(STDOUT_FILENO) && !getenv("NO_COLOR"));
            fputs(t.page.text, stdout);
        }
    } else {
        watch(&t, interval);
    }
    for (uint32_t i = 0; i < LOOKS; i++)
        json_decref(t.looks[i]);
    screen_fini(&t.page);
    http_server_close(t.server);
    return code;
}
