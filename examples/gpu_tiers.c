/* gpu_tiers.c - K and V in an NVIDIA GPU's memory, with pinned host memory as a tier behind it.
 *
 * Nothing of an SDK is needed to build this, and a machine without a GPU runs it, too: it says why
 * there is none, and that is all. An engine's kernels would write K and V where
 * rad_kv_pool_get_buffers says; here the CPU sends them there.
 *
 *     prompt computed -> published -> copied to the host -> evicted on the GPU
 *     prompt again    -> matched on the host -> loaded back -> read, layer by layer */
#include <radish/radish.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, PAGES = 32, LAYERS = 3, HEADS = 2, DIM = 64, WIDTH = HEADS * DIM, LEN = 100 };

static void must(rad_status status, const rad_error *err)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s: %s\n", rad_status_name(status), err ? err->text : "");
    exit(1);
}

typedef struct engine {
    rad_device *gpu;
    void *stream; /* a CUstream (cudaStream_t) that its kernels run on; NULL: the default one */
    rad_token_to_kv_pool *pool;
    rad_kv_allocator *kv;
    rad_req_to_token_pool *rows;
    rad_host_kv_pool *host;
    rad_cache *cache;
} engine;

/* 0: there is no GPU, and it was said why. */
static int engine_init(engine *e)
{
    rad_error err;
    rad_device_cuda_params gpu = {
        .struct_size = sizeof gpu}; /* the first one, its primary context */
    rad_status status = rad_device_cuda_create(NULL, &gpu, &e->gpu, &err);
    if (status == RAD_E_UNSUPPORTED) {
        printf("K and V stay on the CPU: %s\n", err.text);
        return 0;
    }
    must(status, &err);
    rad_device_cuda_info info = {.struct_size = sizeof info};
    must(rad_device_cuda_get_info(e->gpu, &info, &err), &err);
    printf("K and V on %s, sm_%u, of whose %zu MB %zu are free\n", info.name,
           (unsigned)info.capability, info.total_bytes >> 20, info.free_bytes >> 20);

    rad_token_to_kv_pool_params pool = {.struct_size = sizeof pool,
                                        .num_pages = PAGES,
                                        .page_size = PAGE,
                                        .num_layers = LAYERS,
                                        .num_kv_heads = HEADS,
                                        .head_dim = DIM,
                                        .dtype = RAD_F32,
                                        .device = e->gpu};
    rad_kv_allocator_params kv = {.struct_size = sizeof kv, .num_pages = PAGES, .page_size = PAGE};
    rad_req_to_token_pool_params rows = {
        .struct_size = sizeof rows, .num_rows = 2, .row_tokens = LEN + PAGE};
    must(rad_token_to_kv_pool_create(NULL, &pool, &e->pool, &err), &err);
    must(rad_kv_allocator_create(NULL, &kv, &e->kv, &err), &err);
    must(rad_req_to_token_pool_create(NULL, &rows, &e->rows, &err), &err);
    /* Pinned memory, which the GPU copies to and from by itself: the device pool's device does. */
    rad_host_kv_pool_params host = {.struct_size = sizeof host, .device_pool = e->pool, .ratio = 4};
    must(rad_host_kv_pool_create(NULL, &host, &e->host, &err), &err);
    rad_cache_params tree = {.struct_size = sizeof tree,
                             .page_size = PAGE,
                             .kv_allocator = e->kv,
                             .req_to_token_pool = e->rows};
    rad_hicache_params tiers = {.struct_size = sizeof tiers, .cache = &tree, .host_pool = e->host};
    must(rad_hicache_create(NULL, &tiers, &e->cache, &err), &err);
    return 1;
}

static void engine_fini(engine *e) /* the cache first; its pools; what they use */
{
    rad_cache_destroy(e->cache);
    rad_host_kv_pool_destroy(e->host);
    rad_req_to_token_pool_destroy(e->rows);
    rad_kv_allocator_destroy(e->kv);
    rad_token_to_kv_pool_destroy(e->pool);
    rad_device_cuda_destroy(e->gpu);
}

/* What K of a position is, and V its negative; any model's would do. */
static void numbers(const rad_token *prompt, uint32_t at, uint32_t layer, float k[WIDTH],
                    float v[WIDTH])
{
    for (uint32_t i = 0; i < WIDTH; i++) {
        k[i] = (float)(prompt[at] % 1000) + 0.25f * (float)layer + (float)(at * WIDTH + i) * 4;
        v[i] = -k[i];
    }
}

/* Stands for a layer's kernels: computes positions [from, LEN), and says whether all before them
 * are what they must be. A reader of a layer waits until a load has brought it. */
static int run_layer(engine *e, const rad_slot *row, const rad_token *prompt, uint32_t layer,
                     uint32_t from)
{
    int right = 1;
    for (uint32_t t = 0; t < LEN; t++) {
        float k[WIDTH], v[WIDTH], have_k[WIDTH], have_v[WIDTH];
        numbers(prompt, t, layer, k, v);
        if (t >= from) {
            must(rad_kv_pool_set_kv_buffer(e->pool, layer, row + t, 1, k, v), NULL);
            continue;
        }
        must(rad_kv_pool_get_kv(e->pool, layer, row + t, 1, have_k, have_v), NULL);
        right = right && !memcmp(k, have_k, sizeof k) && !memcmp(v, have_v, sizeof v);
    }
    return right;
}

typedef struct result {
    uint32_t on_gpu, loaded;
    int right;
} result;

static result serve(engine *e, const rad_token *prompt)
{
    rad_error err = {0};
    rad_match match;
    rad_load_result loaded = {0};
    rad_req_kv req = {.key = {.tokens = prompt, .num_tokens = LEN}};
    rad_key look = {.tokens = prompt, .num_tokens = LEN - 1};
    must(rad_req_to_token_alloc(e->rows, &req.row), &err);
    rad_slot *row = rad_req_to_token_row(e->rows, req.row);
    must(rad_cache_match_prefix(e->cache, &look, row, &match, &err), &err);
    must(rad_cache_inc_lock_ref(e->cache, match.last_node, &req.lock, &err), &err);
    req.protected_len = req.committed_len = req.allocated_len = match.prefix_tokens;
    if (match.host_hit_tokens) /* RAD_NONE: refused, and then it is computed */
        (void)rad_hicache_load_back(e->cache, &req, &look, UINT64_MAX, &loaded);

    uint32_t have = req.allocated_len, len = LEN;
    rad_slot last = have ? row[have - 1] : -1;
    must(rad_kv_alloc_extend(e->kv, 1, &have, &len, &last, row + have, &err), &err);
    req.allocated_len = len;
    result r = {.on_gpu = match.prefix_tokens, .loaded = loaded.tokens, .right = 1};
    must(rad_hicache_ready_to_load(e->cache), NULL); /* the batch is formed: copies begin */

    /* Here an engine copies what it has itself (positions, slots) and launches. Its stream waits
     * for this thread's copies, and copies of others wait for its stream: nobody's CPU does. */
    must(rad_device_cuda_stream_after(e->gpu, e->stream, &err), &err);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        r.right = run_layer(e, row, prompt, layer, have) && r.right;
    must(rad_device_cuda_copy_after(e->gpu, e->stream, &err), &err);

    must(rad_hicache_load_status(e->cache, &req), NULL);
    req.committed_len = len;
    must(rad_cache_unfinished_req(e->cache, &req, 0, &err), &err);
    must(rad_cache_finished_req(e->cache, &req, 1, &err), &err);
    return r;
}

int main(void)
{
    static engine e;
    rad_token prompt[LEN];
    for (int i = 0; i < LEN; i++)
        prompt[i] = 10 + i;
    if (!engine_init(&e)) return 0;

    result cold = serve(&e, prompt);
    must(rad_hicache_drain(e.cache, 10000000000u), NULL);  /* the copy to the host is through, */
    must(rad_cache_evict(e.cache, LEN, NULL, NULL), NULL); /* and the GPU gives all of it up */
    result again = serve(&e, prompt);
    printf("cold: %u on the GPU; again: %u on the GPU, %u from the host\n", cold.on_gpu,
           again.on_gpu, again.loaded);
    must(rad_hicache_drain(e.cache, 10000000000u), NULL);

    rad_device_cuda_info info = {.struct_size = sizeof info};
    must(rad_device_cuda_get_info(e.gpu, &info, NULL), NULL);
    int right = cold.right && again.right && again.on_gpu == 0 && again.loaded == LEN / PAGE * PAGE;
    printf("%llu bytes were copied, and all K and V are right: %s\n",
           (unsigned long long)info.copied_bytes, right ? "yes" : "NO");
    engine_fini(&e);
    return right ? 0 : 1;
}
