/* window_memory.c - see the header.
 *
 * Invariant: for a row that is in use, positions [first seen by its next token, mapped) of the
 * window row hold the window slots of the full slots in the row, none of them the dummy page's. */
#include "sched/window_memory.h"

/* A call of the cache for each token would cost a decoding request more than the rest of its step:
 * some 5 us, since the cache looks over the request's record. So window sides are given back some
 * at a time, few enough to be a small part of the window. */
static uint32_t release_grain(uint32_t window)
{
    enum { MOST = 64, SHARE = 16 };
    return RAD_MIN(RAD_MAX(window / SHARE, 1u), (uint32_t)MOST);
}

uint32_t window_memory_least_pages(uint32_t window, uint32_t page_size)
{
    /* What a request holds between two steps, and a page for its next token. */
    const window_memory w = {.tokens = window, .page_size = page_size};
    return (uint32_t)window_most_pages(&w, UINT32_MAX) + 1;
}

rad_status window_memory_init(window_memory *w, const rad_env *env, runner *model,
                              uint32_t num_pages, uint32_t page_size,
                              const rad_req_to_token_pool_params *rows, rad_error *err)
{
    *w = (window_memory){.tokens = model->info.sliding_window,
                         .page_size = page_size,
                         .num_pages = num_pages,
                         .num_rows = rows->num_rows};
    uint32_t least = window_memory_least_pages(w->tokens, page_size);
    if (num_pages < least)
        return rad_fail(err, RAD_E_INVAL,
                        "window memory of %llu tokens is too small for a window of %u: it needs "
                        "%llu at least",
                        (unsigned long long)num_pages * page_size, w->tokens,
                        (unsigned long long)least * page_size);
    rad_status status = rad_req_to_token_pool_create(env, rows, &w->rows, err);
    if (status == RAD_OK)
        status = runner_create_pool(model, env, RUNNER_WINDOW_LAYERS, num_pages, page_size,
                                    &w->kv_pool, err);
    if (status != RAD_OK) return status;
    w->mapped = rad_alloc(env, ((size_t)w->num_rows + 1) * sizeof *w->mapped);
    return w->mapped ? RAD_OK : rad_fail(err, RAD_E_NOMEM, "scheduler: no memory");
}

void window_memory_fini(window_memory *w, const rad_env *env)
{
    rad_token_to_kv_pool_destroy(w->kv_pool);
    rad_req_to_token_pool_destroy(w->rows);
    rad_free(env, w->mapped, ((size_t)w->num_rows + 1) * sizeof *w->mapped);
    *w = (window_memory){0};
}

static rad_slot window_slot(const rad_page *map, rad_slot slot, rad_slot page_size)
{
    if (page_size == 1) return map[slot];
    rad_page page = map[slot / page_size];
    return page ? page * page_size + slot % page_size : 0;
}

void window_row_extend(window_memory *w, const rad_kv_allocator *kv, rad_row row,
                       const rad_slot *slots, uint32_t prefix, uint32_t seq_len, rad_slot *out)
{
    if (!w->tokens) return;
    const rad_page *map = rad_kv_window_page_map(kv);
    const rad_slot page_size = (rad_slot)w->page_size;
    rad_slot *to = rad_req_to_token_row(w->rows, row);
    for (uint32_t i = RAD_MAX(w->mapped[row], window_first_seen(w, prefix)); i < seq_len; i++) {
        to[i] = window_slot(map, slots[i], page_size);
        w->used = RAD_MAX(w->used, (size_t)to[i] + 1);
    }
    w->mapped[row] = seq_len;
    memcpy(out, to + prefix, (seq_len - prefix) * sizeof *out);
}

rad_status window_copy_slots(const window_memory *w, const rad_kv_allocator *kv, rad_slot from,
                             rad_slot to, uint32_t count)
{
    if (!w->tokens) return RAD_OK;
    const rad_page *map = rad_kv_window_page_map(kv);
    const rad_slot page_size = (rad_slot)w->page_size;
    return rad_kv_pool_copy_slots(w->kv_pool, window_slot(map, from, page_size),
                                  window_slot(map, to, page_size), count);
}

/* Where the window side of a request begins. */
static uint32_t held_from(const rad_req_kv *kv)
{
    if (kv->window_len >= kv->protected_len) return kv->window_len;
    return kv->protected_len ? kv->lock.window_from : 0;
}

rad_status window_release(const window_memory *w, rad_cache *cache, rad_req_kv *kv, uint32_t *upto,
                          rad_error *err)
{
    *upto = 0;
    uint64_t keep = (uint64_t)w->tokens + w->page_size;
    if (!w->tokens || kv->committed_len < held_from(kv) + keep + release_grain(w->tokens))
        return RAD_OK;
    *upto = kv->committed_len - (uint32_t)keep;
    return rad_cache_release_window(cache, kv, *upto, err);
}

static uint64_t div_up(uint64_t tokens, uint32_t page_size)
{
    return (tokens + page_size - 1) / page_size;
}

uint64_t window_held_pages(const window_memory *w, const rad_req_kv *kv)
{
    uint32_t from = RAD_MIN(held_from(kv), kv->allocated_len);
    return div_up(kv->allocated_len, w->page_size) - from / w->page_size;
}

uint64_t window_most_pages(const window_memory *w, uint64_t num_tokens)
{
    /* window_release leaves a page more than the window, whose two ends need not be pages', and
     * less than its grain. */
    uint64_t most = div_up((uint64_t)w->tokens + release_grain(w->tokens), w->page_size) + 2;
    return RAD_MIN(div_up(num_tokens, w->page_size), most);
}

rad_status window_row_check(const window_memory *w, const rad_kv_allocator *kv,
                            const rad_req_kv *req, const rad_slot *slots, rad_error *err)
{
    if (!w->tokens) return RAD_OK;
    const rad_page *map = rad_kv_window_page_map(kv);
    const rad_slot page_size = (rad_slot)w->page_size;
    const rad_slot *row = rad_req_to_token_row(w->rows, req->row);
    uint32_t end = RAD_MIN(w->mapped[req->row], req->committed_len);
    for (uint32_t i = window_first_seen(w, req->committed_len); i < req->committed_len; i++) {
        rad_slot slot = window_slot(map, slots[i], page_size);
        if (slot < page_size)
            return rad_fail(err, RAD_E_CORRUPT,
                            "row %u: position %u of %u is in the window and has no window slot",
                            req->row, i, req->committed_len);
        if (i < end && row[i] != slot)
            return rad_fail(err, RAD_E_CORRUPT,
                            "row %u: position %u has window slot %d, and %d is written there",
                            req->row, i, slot, row[i]);
    }
    return RAD_OK;
}
