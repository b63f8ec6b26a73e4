/* page_chains.c - chains of hashes to numbers. */
#include "replay/page_chains.h"

#include "base/hash_key.h"
#include "base/map.h"

typedef struct numbering { /* hashes to numbers, in the order of their coming */
    const rad_env *env;
    map by_hash;
    uint64_t *hashes;
    uint64_t count, cap;
} numbering;

static bool grow(numbering *n)
{
    if (n->count < n->cap) return true;
    const uint64_t cap = n->cap ? 2 * n->cap : 4096;
    uint64_t *hashes = cap > INT32_MAX ? NULL : rad_alloc(n->env, cap * sizeof *hashes);
    if (!hashes || !map_move(&n->by_hash, n->env, (uint32_t)cap)) {
        rad_free(n->env, hashes, cap * sizeof *hashes);
        return false;
    }
    if (n->count) memcpy(hashes, n->hashes, n->count * sizeof *hashes);
    rad_free(n->env, n->hashes, n->cap * sizeof *hashes);
    n->hashes = hashes;
    n->cap = cap;
    return true;
}

static void numbering_fini(numbering *n)
{
    map_fini(&n->by_hash);
    rad_free(n->env, n->hashes, n->cap * sizeof *n->hashes);
}

/* False: no memory. */
static bool number_of(numbering *n, uint64_t hash, uint32_t *number)
{
    if (!grow(n)) return false;
    uint32_t at = map_start(&n->by_hash, (uint32_t)hash);
    for (uint32_t id; (id = map_next(&n->by_hash, (uint32_t)hash, &at));)
        if (n->hashes[id - 1] == hash) {
            *number = id - 1;
            return true;
        }
    *number = (uint32_t)n->count;
    n->hashes[n->count++] = hash;
    map_insert(&n->by_hash, (uint32_t)hash, *number + 1);
    return true;
}

/* Behind `before`, which stands for all that came before. */
static uint64_t chain(const hash_key *k, uint64_t before, const void *bytes, size_t len)
{
    return hash_bytes(k, bytes, len) ^ (before * k->odd[0] ^ before >> 31) * k->odd[1];
}

static rad_status number_pages(page_chains *c, const trace *t, rad_token *scratch, rad_error *err)
{
    numbering all = {.env = &c->env}, content = {.env = &c->env};
    hash_key secret;
    bool ok = true;
    uint64_t at = 0;
    hash_key_init(&secret, &c->env);
    for (uint64_t i = 0; ok && i < c->num_requests; i++) {
        trace_request r;
        trace_get(t, i, scratch, &r);
        uint64_t here = chain(&secret, 1, &r.number, sizeof r.number), plain = 1;
        c->start[i] = at;
        for (uint32_t k = 0; ok && k < r.num_elements / c->page_size; k++, at++) {
            const rad_token *page = r.elements + (size_t)k * c->page_size;
            uint32_t id, same;
            here = chain(&secret, here, page, c->page_size * sizeof *page);
            plain = chain(&secret, plain, page, c->page_size * sizeof *page);
            ok = number_of(&all, here, &id) && number_of(&content, plain, &same);
            if (!ok) break;
            c->ids[at] = id;
            if (c->first_use[id] == PAGE_NEVER) c->first_use[id] = (uint32_t)i;
            c->content[id] = same;
            if (c->first_any[same] == PAGE_NEVER) c->first_any[same] = (uint32_t)i;
        }
    }
    c->start[c->num_requests] = at;
    c->num_ids = (uint32_t)all.count;
    numbering_fini(&all);
    numbering_fini(&content);
    return ok ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "no memory to number the pages");
}

rad_status page_chains_make(const rad_env *env, const trace *t, uint32_t page_size,
                            page_chains **out, rad_error *err)
{
    *out = NULL;
    rad_env full = rad_env_or_default(env);
    page_chains *c = rad_alloc(&full, sizeof *c);
    rad_token *scratch = rad_alloc(&full, ((size_t)trace_longest(t) + 1) * sizeof *scratch);
    if (c) {
        *c = (page_chains){
            .env = full, .page_size = page_size, .num_requests = trace_num_requests(t)};
        for (uint64_t i = 0; i < c->num_requests; i++) {
            trace_request r;
            trace_get(t, i, NULL, &r);
            c->num_pages += r.num_elements / page_size;
        }
        c->start = rad_alloc(&full, (c->num_requests + 1) * sizeof *c->start);
        const size_t bytes = rad_mul(c->num_pages + 1, sizeof(uint32_t));
        c->ids = rad_alloc(&full, bytes);
        c->first_use = rad_alloc(&full, bytes);
        c->content = rad_alloc(&full, bytes);
        c->first_any = rad_alloc(&full, bytes);
        if (c->first_use) memset(c->first_use, 0xff, bytes);
        if (c->first_any) memset(c->first_any, 0xff, bytes);
    }
    rad_status status = RAD_OK;
    if (!c || !scratch || !c->start || !c->ids || !c->first_use || !c->content || !c->first_any)
        status = rad_fail(err, RAD_E_NOMEM, "no memory to number the pages");
    else if (c->num_pages > INT32_MAX)
        status = rad_fail(err, RAD_E_LIMIT, "%llu pages are more than can be numbered",
                          (unsigned long long)c->num_pages);
    if (status == RAD_OK) status = number_pages(c, t, scratch, err);
    rad_free(&full, scratch, ((size_t)trace_longest(t) + 1) * sizeof *scratch);
    if (status == RAD_OK)
        *out = c;
    else
        page_chains_free(c);
    return status;
}

void page_chains_free(page_chains *c)
{
    if (!c) return;
    rad_env env = c->env;
    const size_t bytes = rad_mul(c->num_pages + 1, sizeof(uint32_t));
    rad_free(&env, c->start, (c->num_requests + 1) * sizeof *c->start);
    rad_free(&env, c->ids, bytes);
    rad_free(&env, c->first_use, bytes);
    rad_free(&env, c->content, bytes);
    rad_free(&env, c->first_any, bytes);
    rad_free(&env, c, sizeof *c);
}
