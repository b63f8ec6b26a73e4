/* own_device.c - K and V on a device of the engine's own, with host memory as a tier behind it.
 *
 * The device here is malloc'ed memory; what makes it a device is that radish moves K and V by its
 * table alone. On a GPU alloc would be cuMemAlloc, alloc_pinned cuMemHostAlloc, copy_rows a
 * kernel that gathers rows on a stream, and fence the wait for that stream.
 *
 *     prompt computed -> published -> copied to the host -> evicted on the device
 *     prompt again    -> matched on the host -> loaded back -> read, layer by layer
 *
 * A third prompt is computed elsewhere: its K and V come in over a wire, layer by layer, while the
 * first layers run. The engine brings them, beside the tiers; so it registers a function of its
 * own that readers of a layer wait for. */
#include <radish/radish.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, PAGES = 32, LAYERS = 3, HEADS = 2, DIM = 4, WIDTH = HEADS * DIM, LONGEST = 128 };

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s: %s\n", rad_status_name(status), err ? err->text : "");
    exit(1);
}

/* ---- the device ---- */

typedef struct my_device {
    rad_device base; /* first: what radish is given points here */
    atomic_ulong rows_copied;
} my_device;

static void *my_alloc(rad_device *self, size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    (void)self;
    return memory ? memset(memory, 0, bytes) : NULL;
}

static void my_free(rad_device *self, void *memory, size_t bytes)
{
    (void)self, (void)bytes;
    free(memory);
}

static char *row_at(const rad_device_rows *rows, uint32_t i)
{
    size_t index = rows->indices ? (size_t)rows->indices[i] : i;
    return (char *)rows->base + index * rows->stride;
}

/* Called by this thread and by those that copy between the tiers, at the same time. */
static rad_status my_copy_rows(rad_device *self, const rad_device_rows *dst,
                               const rad_device_rows *src, size_t row_bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        memcpy(row_at(dst, i), row_at(src, i), row_bytes);
    atomic_fetch_add(&((my_device *)self)->rows_copied, count);
    return RAD_OK; /* done on return: so there is no fence */
}

static const rad_device_ops my_ops = {.struct_size = sizeof my_ops,
                                      .name = "mine",
                                      .alloc = my_alloc,
                                      .free = my_free,
                                      .copy_rows = my_copy_rows};

/* ---- the engine ---- */

/* K and V that come from another machine: [LAYERS][num_tokens][WIDTH] of K, and as much of V. */
typedef struct wire {
    rad_token_to_kv_pool *pool;
    const float *k, *v;
    const rad_slot *slots;
    uint32_t num_tokens;
    uint32_t arrived; /* layers */
} wire;

typedef struct engine {
    my_device device;
    rad_token_to_kv_pool *pool;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_host_kv_pool *host;
    rad_cache *cache;
    wire wire;
} engine;

/* Readers of a layer call this: on return, all of it that comes over the wire is there. */
static void wait_for_wire(void *user, uint32_t layer)
{
    wire *w = user;
    while (w->num_tokens && w->arrived <= layer) {
        const size_t numbers = (size_t)w->arrived * w->num_tokens * WIDTH;
        must(rad_kv_pool_set_kv_buffer(w->pool, w->arrived++, w->slots, w->num_tokens,
                                       w->k + numbers, w->v + numbers),
             NULL);
    }
}

static void engine_init(engine *e)
{
    rad_error err;
    memset(e, 0, sizeof *e);
    e->device.base.ops = &my_ops;
    rad_token_to_kv_pool_params pool = {.struct_size = sizeof pool,
                                        .num_pages = PAGES,
                                        .page_size = PAGE,
                                        .num_layers = LAYERS,
                                        .num_kv_heads = HEADS,
                                        .head_dim = DIM,
                                        .dtype = RAD_F32,
                                        .device = &e->device.base};
    rad_kv_allocator_params kv = {.struct_size = sizeof kv, .num_pages = PAGES, .page_size = PAGE};
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 2, .row_tokens = LONGEST};
    must(rad_token_to_kv_pool_create(NULL, &pool, &e->pool, &err), &err);
    must(rad_kv_allocator_create(NULL, &kv, &e->kv, &err), &err);
    must(rad_req_to_token_pool_create(NULL, &rows, &e->rows, &err), &err);

    /* The host tier copies by the device pool's table. */
    rad_host_kv_pool_params host = {.struct_size = sizeof host, .device_pool = e->pool, .ratio = 4};
    must(rad_host_kv_pool_create(NULL, &host, &e->host, &err), &err);
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = PAGE,
                             .kv_allocator = e->kv,
                             .req_to_token_pool = e->rows};
    rad_hicache_params tiers = {.struct_size = sizeof tiers, .cache = &tree, .host_pool = e->host};
    must(rad_hicache_create(NULL, &tiers, &e->cache, &err), &err);

    e->wire.pool = e->pool;
    must(rad_kv_pool_add_wait(e->pool, wait_for_wire, &e->wire, &err), &err);
}

static void engine_fini(engine *e) /* the cache first; its pools; what they use */
{
    rad_cache_destroy(e->cache);
    must(rad_kv_pool_remove_wait(e->pool, wait_for_wire, &e->wire), NULL);
    rad_host_kv_pool_destroy(e->host);
    rad_req_to_token_pool_destroy(e->rows);
    rad_kv_allocator_destroy(e->kv);
    rad_token_to_kv_pool_destroy(e->pool);
}

/* What K and V of a position are; any model's would do, as they follow from the prompt. */
static float number(const rad_token *prompt, uint32_t at, uint32_t layer, uint32_t i)
{
    return (float)(prompt[at] % 1000) + 0.25f * (float)layer + (float)(at * WIDTH + i) * 4;
}

/* Stands for the engine's kernels: they run on the device, so they reach its memory. Computes
 * positions [from, to) and says whether all before them are what they must be. */
static int run_layer(engine *e, const rad_slot *row, const rad_token *prompt, uint32_t layer,
                     uint32_t from, uint32_t to)
{
    rad_kv_buffers at;
    int right = 1;
    must(rad_kv_pool_get_buffers(e->pool, layer, &at), NULL); /* waits for what is on its way */
    for (uint32_t t = 0; t < to; t++) {
        float *k = (float *)(void *)((char *)at.k + (size_t)row[t] * at.k_stride);
        float *v = (float *)(void *)((char *)at.v + (size_t)row[t] * at.v_stride);
        for (uint32_t i = 0; i < WIDTH; i++) {
            const float want = number(prompt, t, layer, i);
            if (t >= from) k[i] = want, v[i] = -want;
            right = right && k[i] == want && v[i] == -want;
        }
    }
    return right;
}

typedef struct result {
    uint32_t on_device, loaded;
    int right;
} result;

/* A prompt's life; `k` and `v` NULL, or what another machine computed of it. */
static result serve(engine *e, const rad_token *prompt, uint32_t len, const float *k,
                    const float *v)
{
    rad_error err = {0};
    rad_match match;
    rad_load_result loaded = {0};
    rad_req_kv req = {.key = {.tokens = prompt, .num_tokens = len}};
    rad_key look = {.tokens = prompt, .num_tokens = len - 1};
    must(rad_req_to_token_alloc(e->rows, &req.row), &err);
    rad_slot *row = rad_req_to_token_row(e->rows, req.row);
    must(rad_cache_match_prefix(e->cache, &look, row, &match, &err), &err);
    must(rad_cache_inc_lock_ref(e->cache, match.last_node, &req.lock, &err), &err);
    req.protected_len = req.committed_len = req.allocated_len = match.prefix_tokens;
    if (match.host_hit_tokens) /* RAD_NONE: refused, and then it is computed */
        (void)rad_hicache_load_back(e->cache, &req, &look, UINT64_MAX, &loaded);

    uint32_t have = req.allocated_len;
    rad_slot last = have ? row[have - 1] : -1;
    must(rad_kv_alloc_extend(e->kv, 1, &have, &len, &last, row + have, &err), &err);
    req.allocated_len = len;

    result r = {.on_device = match.prefix_tokens, .loaded = loaded.tokens, .right = 1};
    must(rad_hicache_ready_to_load(e->cache), NULL); /* the batch is formed: copies begin */
    e->wire = (wire){.pool = e->pool, .k = k, .v = v, .slots = row, .num_tokens = k ? len : 0};
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        r.right = run_layer(e, row, prompt, layer, k ? len : have, len) && r.right;
    e->wire.num_tokens = 0;
    must(rad_hicache_load_status(e->cache, &req), NULL);
    req.committed_len = len;
    must(rad_cache_unfinished_req(e->cache, &req, 0, &err), &err);
    must(rad_cache_finished_req(e->cache, &req, 1, &err), &err);
    return r;
}

int main(void)
{
    enum { LEN = 100 };
    static engine e;
    static float k[LAYERS][LEN][WIDTH], v[LAYERS][LEN][WIDTH];
    rad_token first[LEN], remote[LEN];
    for (int i = 0; i < LEN; i++) {
        first[i] = 10 + i;
        remote[i] = 500 - i;
    }
    engine_init(&e);

    result cold = serve(&e, first, LEN, NULL, NULL);
    must(rad_hicache_drain(e.cache, 10000000000u), NULL);  /* the copy to the host is through, */
    must(rad_cache_evict(e.cache, LEN, NULL, NULL), NULL); /* and the device gives all of it up */
    result again = serve(&e, first, LEN, NULL, NULL);
    printf("cold: %u on the device; again: %u on the device, %u from the host\n", cold.on_device,
           again.on_device, again.loaded);

    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t t = 0; t < LEN; t++)
            for (uint32_t i = 0; i < WIDTH; i++) {
                k[l][t][i] = number(remote, t, l, i);
                v[l][t][i] = -k[l][t][i];
            }
    result sent = serve(&e, remote, LEN, &k[0][0][0], &v[0][0][0]);
    result shared = serve(&e, remote, LEN, NULL, NULL);
    printf("computed elsewhere, then again: %u on the device\n", shared.on_device);

    int right = cold.right && again.right && sent.right && shared.right;
    right = right && again.on_device == 0 && again.loaded == LEN / PAGE * PAGE;
    right = right && shared.on_device == LEN / PAGE * PAGE;
    must(rad_hicache_drain(e.cache, 10000000000u), NULL);
    engine_fini(&e);
    printf("%lu rows went through the engine's own copy_rows, and all K and V are right: %s\n",
           atomic_load(&e.device.rows_copied), right ? "yes" : "NO");
    return right && atomic_load(&e.device.rows_copied) ? 0 : 1;
}
