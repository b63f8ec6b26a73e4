/* bench_tiers.c - what a prompt of 8192 tokens costs by where its prefix is, in the shape of
 * qwen3-0.6b (28 layers, 8 KV heads of 128, bf16: 112 KiB a token), and how fast pages move
 * beside memcpy of as many bytes in the same run.
 *
 *     bench_tiers [TOKENS [PAGE_SIZE [DIR [MODEL]]]]     DIR: where the file store goes, /tmp
 *
 * A redis-server of its own on loopback stands for the other machine, where one is installed.
 *
 * With a MODEL (a GGUF file; `tools/make-model.py --shape qwen3-0.6b FILE` makes one of that shape) the
 * time to the first token is measured as well: computed, and from each tier, by a whole engine
 * (first_token.h). The rates of the copies need none. */
#define _GNU_SOURCE
#include "bench.h"
#include "first_token.h"

#include <radish/hicache.h>
#include <radish/storage_file.h>
#include <radish/storage_redis.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 28, HEADS = 8, DIM = 128 };

typedef struct parts {
    rad_token_to_kv_pool *pool;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_host_kv_pool *host;
    rad_cache *cache;
    rad_storage store;
    uint32_t tokens, page_size;
    size_t bytes; /* of the prompt's K/V */
    rad_token *prompt;
} parts;

static void must(rad_status status, const rad_error *err, const char *what)
{
    if (status >= 0) return;
    fprintf(stderr, "%s: %s %s\n", what, rad_status_name(status), err ? err->text : "");
    exit(1);
}

/* `dir`: of a file store, or NULL; `redis`: its port, or 0. */
static void start(parts *p, uint32_t layout, const char *dir, int redis)
{
    rad_error err = {0};
    uint32_t pages = p->tokens / p->page_size + 4;
    rad_token_to_kv_pool_params pool = {.struct_size = sizeof pool,
                                        .num_pages = pages,
                                        .page_size = p->page_size,
                                        .num_layers = LAYERS,
                                        .num_kv_heads = HEADS,
                                        .head_dim = DIM,
                                        .dtype = RAD_BF16};
    rad_kv_allocator_params ids = {
        .struct_size = sizeof ids, .num_pages = pages, .page_size = p->page_size};
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 2, .row_tokens = p->tokens + 16};
    must(rad_token_to_kv_pool_create(NULL, &pool, &p->pool, &err), &err, "pool");
    must(rad_kv_allocator_create(NULL, &ids, &p->kv, &err), &err, "allocator");
    must(rad_req_to_token_pool_create(NULL, &rows, &p->rows, &err), &err, "rows");
    rad_host_kv_pool_params host = {
        .struct_size = sizeof host, .device_pool = p->pool, .ratio = 1, .layout = layout};
    must(rad_host_kv_pool_create(NULL, &host, &p->host, &err), &err, "host pool");
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = p->page_size,
                             .kv_allocator = p->kv,
                             .req_to_token_pool = p->rows};
    rad_storage_identity identity = {.struct_size = sizeof identity,
                                     .model = "bench",
                                     .dtype = RAD_BF16,
                                     .page_size = p->page_size};
    rad_hicache_params tiers = {.struct_size = sizeof tiers,
                                .cache = &tree,
                                .host_pool = p->host,
                                .prefetch_policy = RAD_PREFETCH_WAIT_COMPLETE,
                                .prefetch_tokens = p->tokens,
                                .identity = &identity};
    if (dir) {
        rad_storage_file_params file = {
            .struct_size = sizeof file, .dir = dir, .max_bytes = 4 * (uint64_t)p->bytes};
        must(rad_storage_file_open(NULL, &file, &p->store, &err), &err, "store");
        tiers.storage = &p->store;
    }
    if (redis) {
        char node[32];
        snprintf(node, sizeof node, "127.0.0.1:%d", redis);
        rad_storage_redis_params server = {
            .struct_size = sizeof server, .nodes = node, .ttl_seconds = 3600};
        must(rad_storage_redis_open(NULL, &server, &p->store, &err), &err, "store");
        tiers.storage = &p->store;
    }
    must(rad_hicache_create(NULL, &tiers, &p->cache, &err), &err, "cache");
}

static void stop(parts *p)
{
    rad_cache_destroy(p->cache);
    if (p->store.ops) p->store.ops->close(p->store.self);
    p->store = (rad_storage){0};
    rad_host_kv_pool_destroy(p->host);
    rad_req_to_token_pool_destroy(p->rows);
    rad_kv_allocator_destroy(p->kv);
    rad_token_to_kv_pool_destroy(p->pool);
}

static rad_key key_of(const parts *p)
{
    return (rad_key){.tokens = p->prompt, .num_tokens = p->tokens};
}

static uint32_t row_of(parts *p, rad_req_kv *req)
{
    rad_match match;
    rad_row row;
    rad_key key = key_of(p);
    must(rad_req_to_token_alloc(p->rows, &row), NULL, "row");
    *req = (rad_req_kv){.row = row, .key = key};
    must(rad_cache_match_prefix(p->cache, &key, rad_req_to_token_row(p->rows, row), &match, NULL),
         NULL, "match");
    must(rad_cache_inc_lock_ref(p->cache, match.last_node, &req->lock, NULL), NULL, "lock");
    req->protected_len = req->committed_len = req->allocated_len = match.prefix_tokens;
    return match.host_hit_tokens;
}

/* The prompt enters the device, as if computed. */
static void compute(parts *p)
{
    rad_req_kv req;
    rad_error err = {0};
    row_of(p, &req);
    uint32_t pages = (p->tokens - req.allocated_len) / p->page_size;
    rad_page *got = calloc(pages + 1, sizeof *got);
    rad_slot *row = rad_req_to_token_row(p->rows, req.row);
    must(rad_kv_alloc(p->kv, got, pages), NULL, "pages");
    for (uint32_t i = req.allocated_len; i < p->tokens; i++)
        row[i] = got[(i - req.allocated_len) / p->page_size] * (rad_slot)p->page_size +
                 (rad_slot)(i % p->page_size);
    free(got);
    req.committed_len = req.allocated_len = p->tokens;
    must(rad_cache_finished_req(p->cache, &req, 1, &err), &err, "finish");
}

/* Seconds until layer `layers` of the prompt could be read, from the host. */
static double load(parts *p, uint32_t layers)
{
    rad_req_kv req;
    rad_error err = {0};
    rad_load_result loaded = {0};
    rad_key key = key_of(p);
    rad_kv_buffers layer;
    rad_cache_evict(p->cache, p->tokens, NULL, NULL);
    double begin = bench_now();
    if (row_of(p, &req) != p->tokens) must(RAD_E_STATE, NULL, "the host lacks the prompt");
    must(rad_hicache_load_back(p->cache, &req, &key, UINT64_MAX, &loaded), NULL, "load");
    must(rad_hicache_ready_to_load(p->cache), NULL, "start");
    for (uint32_t i = 0; i < layers; i++)
        (void)rad_kv_pool_get_buffers(p->pool, i, &layer);
    double seconds = bench_now() - begin;
    for (uint32_t i = 0; i < LAYERS; i++)
        (void)rad_kv_pool_get_buffers(p->pool, i, &layer);
    while (rad_hicache_load_status(p->cache, &req) == RAD_AGAIN) {
    }
    must(rad_cache_finished_req(p->cache, &req, 1, &err), &err, "finish");
    rad_hicache_drain(p->cache, 60000000000);
    return seconds;
}

static double fetch(parts *p)
{
    rad_prefetch ticket;
    rad_key key = key_of(p);
    uint32_t tokens = 0;
    double begin = bench_now();
    must(rad_hicache_prefetch_start(p->cache, &key, 0, &ticket), NULL, "prefetch");
    while (rad_hicache_prefetch_progress(p->cache, &ticket, &key, &tokens) == RAD_AGAIN)
        rad_hicache_wait(p->cache, 1000000000);
    double seconds = bench_now() - begin;
    if (tokens != p->tokens) must(RAD_E_STATE, NULL, "storage lacks the prompt");
    return seconds;
}

/* A redis-server on a free port, which ends with us; 0 when there is none. */
static int start_redis(const char *dir, pid_t *pid)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof a;
    char port[16];
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, len) || getsockname(fd, (struct sockaddr *)&a, &len))
        return 0;
    close(fd);
    snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
    *pid = fork();
    if (!*pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
               "--appendonly", "no", "--dir", dir, "--logfile", "redis.log", (char *)NULL);
        _exit(127);
    }
    for (int tries = 0; *pid > 0 && tries < 500; tries++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        bool there = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
        close(fd);
        if (there) return ntohs(a.sin_port);
        if (waitpid(*pid, NULL, WNOHANG) == *pid) break;
        usleep(10000);
    }
    *pid = 0;
    return 0;
}

static void stop_redis(pid_t pid)
{
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* One thread reads the pages' file into memory that is there, as little as a fetch could do. */
static double read_raw(const parts *p, const char *dir, char *to)
{
    size_t record = (size_t)p->page_size * LAYERS * HEADS * DIM * 4 + RAD_STORAGE_HEADER_BYTES;
    char name[400];
    snprintf(name, sizeof name, "%s/pages-%zu.data", dir, record);
    int fd = open(name, O_RDONLY);
    double begin = bench_now();
    for (size_t at = 0, n = 0; at < p->bytes; at += n) {
        ssize_t got = pread(fd, to + at, RAD_MIN(p->bytes - at, record), (off_t)at);
        if (got <= 0) must(RAD_E_IO, NULL, name);
        n = (size_t)got;
    }
    double seconds = bench_now() - begin;
    close(fd);
    return seconds;
}

/* Seconds of a fetch of the whole prompt from the store that is given, the median of `runs`; and
 * with a directory, of a plain read of as many bytes between two of them, into `to`. */
static double time_fetches(parts *p, uint32_t layout, const char *dir, int redis, int runs,
                           char *to, double *raw)
{
    double seconds[16], raws[16];
    start(p, layout, dir, redis);
    compute(p);
    must(rad_hicache_drain(p->cache, 600000000000), NULL, "drain");
    for (int i = 0; i < runs; i++) {
        rad_cache_reset(p->cache);
        seconds[i] = fetch(p);
        if (dir) raws[i] = read_raw(p, dir, to);
    }
    stop(p);
    if (dir) *raw = bench_median(raws, runs);
    return bench_median(seconds, runs);
}

/* One thread copies as many bytes, in blocks of a page's layer, from one buffer to another. */
static double copy_plain(const parts *p, char *to, const char *from)
{
    size_t block = (size_t)p->page_size * HEADS * DIM * 2;
    double begin = bench_now();
    for (size_t at = 0; at + block <= p->bytes; at += block)
        memcpy(to + at, from + at, block);
    return bench_now() - begin;
}

static void rate(const char *what, double bytes, double seconds, double limit)
{
    printf("  %-34s %8.1f ms %7.2f GB/s %5.0f%% of memcpy\n", what, 1e3 * seconds,
           1e-9 * bytes / seconds, 100 * limit / seconds);
}

enum { RUNS = 5 };

/* Seconds, medians. */
typedef struct tier_times {
    double plain, write, load, first_layer, publish;
    double raw, file, redis; /* redis 0: there is no redis-server */
} tier_times;

static bool make_dir(char *dir, size_t bytes, const char *where)
{
    snprintf(dir, bytes, "%s/radish-bench-XXXXXX", where);
    return mkdtemp(dir) != NULL;
}

static bool remove_dir(const char *dir)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0;
}

static bool measure(parts *p, uint32_t layout, const char *where, tier_times *times)
{
    char dir[256];
    double t[5][RUNS];
    pid_t pid = 0;
    char *a = aligned_alloc(4096, p->bytes), *b = aligned_alloc(4096, p->bytes);
    if (!a || !b || !make_dir(dir, sizeof dir, where)) return false;
    memset(a, 1, p->bytes);
    memset(b, 2, p->bytes);
    start(p, layout, NULL, 0);
    for (int i = 0; i < RUNS; i++) {
        t[0][i] = copy_plain(p, a, b);
        rad_cache_reset(p->cache);
        double begin = bench_now();
        compute(p);
        t[4][i] = bench_now() - begin;
        begin = bench_now();
        must(rad_hicache_drain(p->cache, 60000000000), NULL, "drain");
        t[1][i] = bench_now() - begin;
        t[2][i] = load(p, LAYERS);
        t[3][i] = load(p, 1);
    }
    stop(p);
    free(b);
    *times = (tier_times){.plain = bench_median(t[0], RUNS),
                          .write = bench_median(t[1], RUNS),
                          .load = bench_median(t[2], RUNS),
                          .first_layer = bench_median(t[3], RUNS),
                          .publish = bench_median(t[4], RUNS)};
    times->file = time_fetches(p, layout, dir, 0, RUNS, a, &times->raw);
    free(a);
    int port = start_redis(dir, &pid);
    if (port) times->redis = time_fetches(p, layout, NULL, port, RUNS, NULL, NULL);
    stop_redis(pid);
    return remove_dir(dir);
}

static void print_hits(const char *until, const tier_times *t, double from_host)
{
    printf("%s: host hit %.1f ms, file hit %.1f ms", until, 1e3 * from_host,
           1e3 * (t->file + from_host));
    if (t->redis > 0) printf(", Redis hit %.1f ms", 1e3 * (t->redis + from_host));
}

static void report(const parts *p, uint32_t layout, const tier_times *t)
{
    double bytes = (double)p->bytes;
    printf("%s\n", layout ? "page_first" : "layer_first");
    rate("memcpy, one thread", bytes, t->plain, t->plain);
    rate("write, device -> host", bytes, t->write, t->plain);
    rate("load, host -> device", bytes, t->load, t->plain);
    rate("pread of the file, one thread", bytes, t->raw, t->plain);
    rate("fetch, file -> host", bytes, t->file, t->plain);
    printf("  %-34s %.0f%% of pread\n", "", 100 * t->raw / t->file);
    if (t->redis > 0)
        rate("fetch, Redis -> host", bytes, t->redis, t->plain);
    else
        printf("  %-34s skipped: no redis-server\n", "fetch, Redis -> host");
    print_hits("  until the first layer can be read", t, t->first_layer);
    print_hits("\n  until all layers can", t, t->load);
    printf("; publishing the prompt took %.2f ms\n", 1e3 * t->publish);
}

int main(int argc, char **argv)
{
    parts p = {.tokens = argc > 1 ? (uint32_t)atoi(argv[1]) : 8192,
               .page_size = argc > 2 ? (uint32_t)atoi(argv[2]) : 16};
    const char *where = argc > 3 ? argv[3] : "/tmp";
    const char *model = argc > 4 ? argv[4] : NULL;
    if (!p.page_size || p.tokens < 2 * p.page_size) return 1;
    p.tokens -= p.tokens % p.page_size;
    p.bytes = (size_t)p.tokens * LAYERS * HEADS * DIM * 2 * 2;
    p.prompt = calloc(p.tokens, sizeof *p.prompt);
    for (uint32_t i = 0; i < p.tokens; i++)
        p.prompt[i] = (rad_token)(i * 2654435761u >> 8);
    bench_print_machine(NULL);
    printf("# %u tokens in pages of %u, %.1f MiB of K/V; medians of %d\n", p.tokens, p.page_size,
           (double)p.bytes / (1 << 20), RUNS);
    for (uint32_t layout = 0; layout < 2; layout++) {
        tier_times times;
        if (!measure(&p, layout, where, &times)) return 1;
        report(&p, layout, &times);
    }
    free(p.prompt);
    if (!model) {
        printf("# no MODEL is given: the time to the first token is not measured\n");
        return 0;
    }
    char dir[256];
    pid_t pid = 0;
    if (!make_dir(dir, sizeof dir, where)) return 1;
    int port = start_redis(dir, &pid);
    first_token_times(model, p.tokens, p.page_size, dir, port);
    stop_redis(pid);
    return !remove_dir(dir);
}
