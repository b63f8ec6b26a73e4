/* event_ring.c - a bounded queue of page events. */
#include "cache/event_ring.h"

static const char *const mediums[] = {"GPU", "CPU_PINNED", "DISK", "EXTERNAL"};

bool event_ring_init(event_ring *r, const rad_env *env, uint32_t capacity, uint32_t page_size,
                     bool pairs)
{
    uint32_t tokens_per_page = page_size << pairs;
    *r = (event_ring){.capacity = capacity,
                      .page_size = page_size,
                      .tokens_per_page = tokens_per_page,
                      .pairs = pairs};
    r->entries = rad_alloc(env, rad_mul(capacity, sizeof *r->entries));
    r->hashes = rad_alloc(env, rad_mul(capacity, sizeof *r->hashes));
    r->tokens = rad_alloc(env, rad_mul(rad_mul(capacity, tokens_per_page), sizeof *r->tokens));
    return r->entries && r->hashes && r->tokens;
}

void event_ring_fini(event_ring *r, const rad_env *env)
{
    size_t n = r->capacity;
    rad_free(env, r->entries, n * sizeof *r->entries);
    rad_free(env, r->hashes, n * sizeof *r->hashes);
    rad_free(env, r->tokens, n * r->tokens_per_page * sizeof *r->tokens);
    *r = (event_ring){0};
}

size_t event_ring_bytes(const event_ring *r)
{
    return (size_t)r->capacity *
           (sizeof *r->entries + sizeof *r->hashes + r->tokens_per_page * sizeof *r->tokens);
}

static void copy_tokens(const event_ring *r, const event_page *page, rad_token *to)
{
    if (!r->pairs) {
        memcpy(to, page->tokens, r->page_size * sizeof *to);
        return;
    }
    rad_token first = page->lead;
    for (uint32_t i = 0; i < r->page_size; first = page->tokens[i++]) {
        *to++ = first;
        *to++ = page->tokens[i];
    }
}

void event_ring_push(event_ring *r, const event_page *page)
{
    if (r->lost || r->count == r->capacity) {
        r->lost++;
        return;
    }
    uint32_t at = r->first + r->count;
    if (at >= r->capacity) at -= r->capacity;
    r->count++;
    r->entries[at] = page->entry;
    r->hashes[at] = page->hash;
    if (page->tokens) copy_tokens(r, page, r->tokens + (size_t)at * r->tokens_per_page);
}

/* Whether entry `at` belongs into one event with the one before it. */
static bool continues(const event_ring *r, uint32_t at)
{
    const event_entry *e = &r->entries[at], *before = e - 1;
    if (e->type != before->type || e->space != before->space || e->spaces != before->spaces ||
        e->medium != before->medium)
        return false;
    if (e->type == RAD_KV_STORED) return e->has_parent && e->parent == r->hashes[at - 1];
    return e->type == RAD_KV_REMOVED;
}

void event_ring_take(event_ring *r, rad_kv_event_fn visit, void *user)
{
    for (uint32_t len; r->count; r->count -= len) {
        uint32_t at = r->first, most = RAD_MIN(r->count, r->capacity - at);
        const event_entry *e = &r->entries[at];
        for (len = 1; len < most && continues(r, at + len);)
            len++;
        rad_kv_event event = {
            .type = e->type, .block_size = r->page_size, .medium = mediums[e->medium]};
        if (e->type != RAD_KV_CLEARED) {
            event.num_blocks = len;
            event.block_hashes = r->hashes + at;
            event.has_extra_key = (e->spaces & EVENT_HAS_EXTRA_KEY) != 0;
            event.has_cache_salt = (e->spaces & EVENT_HAS_CACHE_SALT) != 0;
            event.namespace_id = e->space;
        }
        if (e->type == RAD_KV_STORED) {
            event.token_ids = r->tokens + (size_t)at * r->tokens_per_page;
            event.num_token_ids = len * r->tokens_per_page;
            event.parent_block_hash = e->parent;
            event.has_parent = e->has_parent;
        }
        visit(user, &event);
        r->first = at + len == r->capacity ? 0 : at + len;
    }
    if (r->lost) {
        rad_kv_event gap = {.type = RAD_KV_LOST,
                            .block_size = r->page_size,
                            .medium = "GPU",
                            .lost_blocks = r->lost};
        r->lost = 0;
        visit(user, &gap);
    }
}
