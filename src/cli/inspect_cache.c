/* inspect_cache.c - `radish inspect cache`: the radix tree of a running server.
 *
 * GET /inspect/tree tells the nodes with the most tokens at and below them, parents first
 * (docs/dashboard.md); here they are drawn as a tree, children with the most tokens first. */
#include "cli/cli.h"
#include "cli/http_get.h"
#include "cli/screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The columns of a node that are drawn. */
typedef enum column {
    ID,
    PARENT,
    NAMESPACE,
    TOKENS,
    LOCKS,
    HITS,
    TIERS,
    SESSIONS,
    FLAGS,
    USED_MS,
    HIDDEN_NODES,
    HIDDEN_TOKENS,
    COLUMNS
} column;

static const char *const column_names[COLUMNS] = {
    "id",    "parent",   "namespace", "tokens",  "locks",        "hits",
    "tiers", "sessions", "flags",     "used_ms", "hidden_nodes", "hidden_tokens"};

typedef struct node {
    uint64_t values[COLUMNS];
    uint64_t weight; /* tokens at and below it */
    uint32_t parent; /* its place, UINT32_MAX: none of these */
} node;

typedef struct picture {
    node *nodes;
    uint32_t count;
    double now_ms;
} picture;

/* Places of the columns in a row; false: one is not told. */
static bool find_columns(const json_t *columns, size_t places[COLUMNS])
{
    for (int c = 0; c < COLUMNS; c++) {
        size_t i = 0;
        for (; i < json_array_size(columns); i++) {
            const char *name = json_string_value(json_array_get(columns, i));
            if (name && !strcmp(name, column_names[c])) break;
        }
        if (i == json_array_size(columns)) return false;
        places[c] = i;
    }
    return true;
}

static int by_id(const void *a, const void *b)
{
    const node *x = a, *y = b;
    return (x->values[ID] > y->values[ID]) - (x->values[ID] < y->values[ID]);
}

static uint32_t place_of(const picture *p, uint64_t id)
{
    const node key = {.values = {[ID] = id}};
    const node *found = bsearch(&key, p->nodes, p->count, sizeof key, by_id);
    return found ? (uint32_t)(found - p->nodes) : UINT32_MAX;
}

/* A parent's weight gets its children's; parents are told first, but the nodes lie by id. */
static void add_weights(picture *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const node *n = &p->nodes[i];
        const uint64_t own = n->values[TOKENS] + n->values[HIDDEN_TOKENS];
        uint32_t at = i;
        for (uint32_t steps = 0; at != UINT32_MAX && steps <= p->count; steps++) {
            p->nodes[at].weight += own;
            at = p->nodes[at].parent;
        }
    }
}

static rad_status read_picture(const json_t *tree, picture *p, rad_error *err)
{
    const json_t *rows = json_object_get(tree, "nodes");
    size_t places[COLUMNS];
    if (!find_columns(json_object_get(tree, "columns"), places))
        return rad_fail(err, RAD_E_FORMAT,
                        "the server tells its tree in a form that this radish does "
                        "not know");
    p->count = (uint32_t)json_array_size(rows);
    p->now_ms = json_number_value(json_object_get(tree, "now_ms"));
    p->nodes = calloc(p->count + 1u, sizeof *p->nodes);
    if (!p->nodes) return rad_fail(err, RAD_E_NOMEM, "no memory for %u nodes", p->count);
    for (uint32_t i = 0; i < p->count; i++)
        for (int c = 0; c < COLUMNS; c++) {
            const double value =
                json_number_value(json_array_get(json_array_get(rows, i), places[c]));
            p->nodes[i].values[c] = value > 0 ? (uint64_t)value : 0;
        }
    qsort(p->nodes, p->count, sizeof *p->nodes, by_id);
    for (uint32_t i = 0; i < p->count; i++)
        p->nodes[i].parent = place_of(p, p->nodes[i].values[PARENT]);
    add_weights(p);
    return RAD_OK;
}

/* ---- drawing ---- */

/* By parent, then the heaviest first. */
static int by_parent(const void *a, const void *b)
{
    const node *x = *(node *const *)a, *y = *(node *const *)b;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    if (x->values[NAMESPACE] != y->values[NAMESPACE])
        return x->values[NAMESPACE] < y->values[NAMESPACE] ? -1 : 1;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return by_id(x, y);
}

/* A level of the walk: which of its children comes next. */
typedef struct level {
    uint32_t next, end; /* in the order by parent */
} level;

typedef struct drawing {
    const picture *p;
    node **order;
    level *levels;
    screen page;
} drawing;

static uint32_t first_of(const drawing *d, uint32_t parent)
{
    uint32_t low = 0, high = d->p->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (d->order[middle]->parent < parent)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static level children_of(const drawing *d, uint32_t parent)
{
    const uint32_t from = first_of(d, parent);
    uint32_t end = from;
    while (end < d->p->count && d->order[end]->parent == parent)
        end++;
    return (level){from, end};
}

static void put_flags(screen *s, uint64_t flags)
{
    static const char *const names[] = {"evictable", "pinned", "retained", "state", "in transfer"};
    for (size_t i = 0; i < RAD_COUNT(names); i++)
        if (flags >> i & 1) screen_put(s, i == 1 ? SCREEN_GOOD : SCREEN_DIM, "  %s", names[i]);
}

static void put_count(screen *s, screen_style style, const char *before, uint64_t count,
                      const char *what)
{
    screen_put(s, style, "%s%llu %s%s", before, (unsigned long long)count, what,
               count == 1 ? "" : "s");
}

static void put_node(drawing *d, uint32_t depth, const node *n)
{
    static const char *const tiers[] = {"", "  device", "  host", "  device+host"};
    screen *s = &d->page;
    char text[32];
    for (uint32_t i = 1; i <= depth; i++) {
        const bool more = d->levels[i].next < d->levels[i].end;
        screen_put(s, SCREEN_DIM, "%s", i < depth ? more ? "│  " : "   " : more ? "├─ " : "└─ ");
    }
    screen_put(s, SCREEN_BOLD, "%s", screen_number(text, n->values[TOKENS]));
    screen_put(s, SCREEN_PLAIN, " tokens");
    screen_put(s, SCREEN_DIM, "  #%llu", (unsigned long long)n->values[ID]);
    screen_put(s, SCREEN_PLAIN, "%s", tiers[n->values[TIERS] & 3]);
    if (n->values[HITS]) put_count(s, SCREEN_GOOD, "  ", n->values[HITS], "hit");
    if (n->values[LOCKS]) put_count(s, SCREEN_BAD, "  ", n->values[LOCKS], "lock");
    if (n->values[SESSIONS]) put_count(s, SCREEN_GOOD, "  ", n->values[SESSIONS], "session");
    put_flags(s, n->values[FLAGS]);
    screen_put(s, SCREEN_DIM, "  used %s ago",
               screen_age(text, (d->p->now_ms - (double)n->values[USED_MS]) / 1000));
    screen_end_line(s);
    if (!n->values[HIDDEN_NODES]) return;
    for (uint32_t i = 1; i <= depth; i++)
        screen_put(s, SCREEN_DIM, "%s", d->levels[i].next < d->levels[i].end ? "│  " : "   ");
    put_count(s, SCREEN_DIM, "   ... and ", n->values[HIDDEN_NODES], "node");
    screen_put(s, SCREEN_DIM, " more with %s tokens",
               screen_number(text, n->values[HIDDEN_TOKENS]));
    screen_end_line(s);
}

/* The nodes whose parent is none of these stand at the left, by namespace. */
static void draw(drawing *d)
{
    uint64_t namespace = UINT64_MAX;
    uint32_t depth = 0;
    d->levels[0] = children_of(d, UINT32_MAX);
    for (;;) {
        level *l = &d->levels[depth];
        if (l->next == l->end) {
            if (!depth--) break;
            continue;
        }
        const node *n = d->order[l->next++];
        if (!depth && n->values[NAMESPACE] != namespace) {
            namespace = n->values[NAMESPACE];
            screen_put(&d->page, SCREEN_BOLD, "namespace %llu", (unsigned long long)namespace);
            screen_end_line(&d->page);
        }
        put_node(d, depth, n);
        d->levels[++depth] = children_of(d, (uint32_t)(n - d->p->nodes));
    }
}

static uint32_t columns_of_output(void)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_col) return 1000;
    return size.ws_col;
}

static rad_status print_tree(const json_t *tree, rad_error *err)
{
    picture p = {0};
    rad_status status = read_picture(tree, &p, err);
    drawing d = {.p = &p};
    char a[32], b[32];
    if (status == RAD_OK) {
        d.order = malloc((p.count + 1u) * sizeof *d.order);
        d.levels = malloc((p.count + 2u) * sizeof *d.levels);
        if (!d.order || !d.levels)
            status = rad_fail(err, RAD_E_NOMEM, "no memory for %u nodes", p.count);
    }
    if (status == RAD_OK) {
        for (uint32_t i = 0; i < p.count; i++)
            d.order[i] = &p.nodes[i];
        qsort(d.order, p.count, sizeof *d.order, by_parent);
        screen_begin(&d.page, columns_of_output(), 0, isatty(STDOUT_FILENO) && !getenv("NO_COLOR"));
        screen_put(
            &d.page, SCREEN_PLAIN, "%s nodes with %s tokens",
            screen_number(a, (uint64_t)json_integer_value(json_object_get(tree, "nodes_total"))),
            screen_number(b, (uint64_t)json_integer_value(json_object_get(tree, "tokens_total"))));
        if (json_integer_value(json_object_get(tree, "nodes_total")) > (json_int_t)p.count)
            screen_put(&d.page, SCREEN_DIM,
                       "; the %u with the most tokens at and below them:", p.count);
        screen_end_line(&d.page);
        draw(&d);
        fputs(d.page.text, stdout);
        screen_fini(&d.page);
    }
    free(d.levels);
    free(d.order);
    free(p.nodes);
    return status;
}

/* ---- one node ---- */

static void print_node(const json_t *n)
{
    static const char *const shown[] = {"tokens",    "tokens_below", "children", "depth_tokens",
                                        "on_device", "on_host",      "locks",    "host_locks",
                                        "hits",      "sessions",     "priority", "retention",
                                        "idle_s",    "pinned_s"};
    printf("node %lld\n", (long long)json_integer_value(json_object_get(n, "id")));
    for (size_t i = 0; i < RAD_COUNT(shown); i++) {
        const json_t *value = json_object_get(n, shown[i]);
        char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(4)) : NULL;
        if (text && strcmp(text, "null") != 0) printf("  %-13s %s\n", shown[i], text);
        free(text);
    }
    size_t i;
    json_t *why;
    json_array_foreach(json_object_get(n, "why"), i, why)
    {
        const char *text = json_string_value(json_object_get(why, "text"));
        printf("  %-13s %s\n", i ? "" : "why", text ? text : "");
    }
    const char *text = json_string_value(json_object_get(n, "text"));
    if (text) {
        printf("  %-13s ", "text");
        cli_print_json_text(text, strlen(text));
        putchar('\n');
    } else {
        printf("  %-13s hidden; the server shows it with --dashboard-text\n", "text");
    }
}

int cmd_inspect_cache(int argc, char **argv)
{
    server_options o = {0};
    const char *url = NULL;
    uint32_t limit = 200;
    uint64_t under = 0, id = 0;
    bool json = false;
    const cli_manual manual = {
        .command = "inspect cache",
        .words = "",
        .usage = "inspect cache [URL] [--limit N] [--under ID | --node ID] [--json]",
        .about = "Draws the radix tree of a running server: the nodes with the most tokens at and\n"
                 "below them, what holds them, in which tiers they are. URL:\n"
                 "http://127.0.0.1:30000.",
        .after = "Examples:\n\n"
                 "  radish inspect cache\n"
                 "  radish inspect cache --under 4711 --limit 1000\n"
                 "  radish inspect cache http://127.0.0.1:30000 --node 4711\n",
    };
    const cli_option options[] = {
        {.kind = CLI_U32,
         .name = "limit",
         .arg = "N",
         .target = &limit,
         .min = 1,
         .max = 16384,
         .help = "Nodes at most. Default 200."},
        {.kind = CLI_U64,
         .name = "under",
         .arg = "ID",
         .target = &under,
         .help = "Those below this node. Default: 0, of the whole tree."},
        {.kind = CLI_U64,
         .name = "node",
         .arg = "ID",
         .target = &id,
         .help =
             "All of one node instead: who holds it, why it is kept, its text where the server\n"
             "shows texts. Default: 0, the tree."},
        {.kind = CLI_FLAG, .name = "json", .target = &json, .help = "Print what the server says."},
        SERVER_OPTIONS(&o),
    };
    int code = cli_parse(&manual, options, RAD_COUNT(options), argc, argv, &url);
    if (code != CLI_GO_ON) return code;
    if (id && under) return cli_usage("inspect cache", "--node shows one, --under the others");
    http_server *server;
    rad_error err = {0};
    if (server_options_open(&o, url ? url : SERVER_URL, &server, &err) != RAD_OK)
        return cli_usage("inspect cache", "%s", err.text);
    char path[128];
    json_t *said = NULL;
    if (id)
        snprintf(path, sizeof path, "/inspect/node?id=%llu", (unsigned long long)id);
    else if (under)
        snprintf(path, sizeof path, "/inspect/tree?under=%llu&limit=%u", (unsigned long long)under,
                 limit);
    else
        snprintf(path, sizeof path, "/inspect/tree?limit=%u", limit);
    rad_status status = http_get_json(server, path, &said, &err);
    if (status == RAD_OK && json) {
        json_dumpf(said, stdout, JSON_INDENT(1));
        putchar('\n');
    } else if (status == RAD_OK && id) {
        print_node(said);
    } else if (status == RAD_OK) {
        status = print_tree(said, &err);
    }
    json_decref(said);
    http_server_close(server);
    return status == RAD_OK ? 0 : cli_fail("%s", err.text);
}
