/* cache_dump.c - a cache as slots, text or JSON, in one walk and without memory.
 *
 * Pieces go into a small buffer on the stack and out through the caller's function when
 * it is full; the first no of that function ends the dump. */
#include <radish/cache_dump.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "cache/radix_cache.h"
#include "cache/radix_state.h"
#include "cache/radix_window.h"

enum { BUFFER = 1024, LONGEST = 64, SHOWN = 10 };

typedef struct out {
    rad_cache_write_fn write;
    void *user;
    rad_status status;
    size_t used;
    char text[BUFFER];
} out;

static void flush(out *o)
{
    if (o->used && !o->status) o->status = o->write(o->user, o->text, o->used);
    o->used = 0;
}

/* Formats one piece, of at most LONGEST bytes. */
static void put(out *o, const char *format, ...) RAD_PRINTF(2, 3);
static void put(out *o, const char *format, ...)
{
    va_list args;
    if (o->used + LONGEST > BUFFER) flush(o);
    va_start(args, format);
    int bytes = vsnprintf(o->text + o->used, LONGEST, format, args);
    va_end(args);
    o->used += bytes > 0 ? RAD_MIN((size_t)bytes, (size_t)LONGEST - 1) : 0;
}

/* Element i of the node's raw tokens: its tokens, and under bigram keys the lead first. */
static rad_token raw_token(const radix_cache *c, const radix_node *n, uint32_t i)
{
    if (c->bigram && i == 0) return radix_lead(&c->tree, n);
    return radix_tokens(&c->tree, n)[i - c->bigram];
}

static void text_node(out *o, const radix_cache *c, uint32_t id, uint32_t depth)
{
    const radix_node *n = &c->tree.nodes[id];
    uint32_t count = n->pages * c->base.page_size;
    for (uint32_t i = 1; i < depth; i++)
        put(o, "  ");
    put(o, "%u [", count);
    for (uint32_t i = 0; i < RAD_MIN(count, (uint32_t)SHOWN); i++)
        if (c->bigram)
            put(o, "%s(%d, %d)", i ? ", " : "", raw_token(c, n, i), raw_token(c, n, i + 1));
        else
            put(o, "%s%d", i ? ", " : "", raw_token(c, n, i));
    put(o, "%s] r=%u", count > SHOWN ? ", ..." : "", n->lock_ref);
    if (c->tree.states[RADIX_DEVICE] && radix_state_of(&c->tree, RADIX_DEVICE, id))
        put(o, " s=%d", radix_state_of(&c->tree, RADIX_DEVICE, id));
    put(o, "\n");
}

static void json_name(out *o, const char *field, const char *name)
{
    if (!name) {
        put(o, ",\"%s\":null", field);
        return;
    }
    put(o, ",\"%s\":\"", field);
    for (; *name; name++) {
        unsigned char byte = (unsigned char)*name;
        if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\')
            put(o, "\\u%04x", byte);
        else
            put(o, "%c", byte);
    }
    put(o, "\"");
}

static void json_node(out *o, const radix_cache *c, uint32_t id)
{
    const radix_tree *t = &c->tree;
    const radix_node *n = &t->nodes[id];
    uint32_t count = n->pages * c->base.page_size;
    put(o, "{\"node\":%u,", id);
    if (t->nodes[n->parent].parent) {
        put(o, "\"parent\":%u,\"namespace\":%u", n->parent, n->ns);
    } else {
        const namespace_entry *ns = &t->names.entries[n->ns];
        put(o, "\"parent\":null,\"namespace\":%u", n->ns);
        json_name(o, "extra_key", namespace_extra_key(&ns->name));
        json_name(o, "cache_salt", namespace_cache_salt(&ns->name));
    }
    put(o, ",\"num_tokens\":%u,\"tokens\":[", count);
    for (uint32_t i = 0; i < count + c->bigram; i++)
        put(o, i ? ",%d" : "%d", raw_token(c, n, i));
    put(o, "],\"pages\":[");
    for (uint32_t i = 0; i < n->pages; i++)
        put(o, i ? ",%d" : "%d", radix_page_at(t, n, i));
    put(o, "],");
    if (t->windows[RADIX_DEVICE])
        put(o, "\"window_pages\":%u,", n->pages - radix_window_of(t, RADIX_DEVICE, id)->first);
    if (t->states[RADIX_DEVICE]) put(o, "\"state\":%d,", radix_state_of(t, RADIX_DEVICE, id));
    put(o, "\"lock_ref\":%u,\"hit_count\":%u,", n->lock_ref, n->hit_count);
    put(o, "\"priority\":%d,\"last_access\":%" PRIu64 "}", n->priority, n->last_access);
}

static void text_dump(out *o, const rad_cache *cache, const radix_cache *c)
{
    uint32_t depth;
    for (uint32_t id = 0; c && !o->status && (id = radix_next(&c->tree, id, &depth));)
        if (radix_on_device(&c->tree, id)) text_node(o, c, id, depth);
    put(o, "#tokens: %" PRIu64 "\n", rad_cache_total_size(cache));
}

static void json_dump(out *o, const rad_cache *cache, const radix_cache *c)
{
    uint32_t depth, count = 0;
    put(o, "{\"page_size\":%u,\"is_eagle\":%s,", cache->page_size,
        c && c->bigram ? "true" : "false");
    put(o, "\"total_tokens\":%" PRIu64 ",", rad_cache_total_size(cache));
    put(o, "\"evictable_tokens\":%" PRIu64 ",", rad_cache_evictable_size(cache));
    put(o, "\"protected_tokens\":%" PRIu64 ",\"nodes\":[", rad_cache_protected_size(cache));
    for (uint32_t id = 0; c && !o->status && (id = radix_next(&c->tree, id, &depth));) {
        if (!radix_on_device(&c->tree, id)) continue;
        put(o, count++ ? ",\n" : "\n");
        json_node(o, c, id);
    }
    put(o, "]}\n");
}

rad_status rad_cache_dump(const rad_cache *cache, uint32_t format, rad_cache_write_fn write,
                          void *user)
{
    out o = {.write = write, .user = user};
    if (!write || format > RAD_CACHE_DUMP_JSON) return RAD_E_INVAL;
    const radix_cache *c = radix_cache_of(cache);
    if (format == RAD_CACHE_DUMP_JSON)
        json_dump(&o, cache, c);
    else
        text_dump(&o, cache, c);
    flush(&o);
    return o.status;
}

rad_status rad_cache_all_values_flatten(const rad_cache *cache, rad_slot *slots, uint64_t max,
                                        uint64_t *count)
{
    const radix_cache *c = radix_cache_of(cache);
    uint32_t depth, ps = cache->page_size;
    uint64_t at = 0;
    if (!count || (max && !slots)) return RAD_E_INVAL;
    for (uint32_t id = 0; c && (id = radix_next(&c->tree, id, &depth));) {
        const radix_node *n = &c->tree.nodes[id];
        uint32_t tokens = n->pages * ps;
        if (!radix_on_device(&c->tree, id)) continue;
        if (at < max)
            page_runs_expand_part(&c->tree.env, c->tree.regions + n->at, 0,
                                  (uint32_t)RAD_MIN(max - at, (uint64_t)tokens), ps, slots + at);
        at += tokens;
    }
    *count = at;
    return RAD_OK;
}
