/* kv_wire.c - see the header.
 *
 * msgpack has its lengths in front, and how many events a batch will have is not known when it
 * begins: that one length is written in its longest form (array 32) and filled in at the end. */
#include "engine/kv_wire.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    MOST_INT = 9,    /* bytes of any number */
    MOST_HEAD = 256, /* of an event beside its hashes and tokens */
    MOST_END = MOST_INT
};

/* ---- msgpack: the caller has made sure that there is room ---- */

static void put_be(kv_wire *w, uint8_t tag, uint64_t value, unsigned bytes)
{
    w->bytes[w->len++] = tag;
    while (bytes--)
        w->bytes[w->len++] = (uint8_t)(value >> (8 * bytes));
}

static void put_uint(kv_wire *w, uint64_t v)
{
    if (v < 128)
        w->bytes[w->len++] = (uint8_t)v;
    else if (v <= UINT8_MAX)
        put_be(w, 0xcc, v, 1);
    else if (v <= UINT16_MAX)
        put_be(w, 0xcd, v, 2);
    else if (v <= UINT32_MAX)
        put_be(w, 0xce, v, 4);
    else
        put_be(w, 0xcf, v, 8);
}

static void put_int(kv_wire *w, int64_t v)
{
    if (v >= 0)
        put_uint(w, (uint64_t)v);
    else
        put_be(w, 0xd3, (uint64_t)v, 8);
}

static void put_nil(kv_wire *w)
{
    w->bytes[w->len++] = 0xc0;
}

/* A short text: at most 31 bytes. */
static void put_text(kv_wire *w, const char *text)
{
    size_t len = strlen(text);
    RAD_ASSERT(len < 32);
    w->bytes[w->len++] = (uint8_t)(0xa0 | len);
    memcpy(w->bytes + w->len, text, len);
    w->len += len;
}

static void put_array(kv_wire *w, uint32_t count)
{
    if (count < 16)
        w->bytes[w->len++] = (uint8_t)(0x90 | count);
    else if (count <= UINT16_MAX)
        put_be(w, 0xdc, count, 2);
    else
        put_be(w, 0xdd, count, 4);
}

static void put_map(kv_wire *w, uint32_t count)
{
    RAD_ASSERT(count < 16);
    w->bytes[w->len++] = (uint8_t)(0x80 | count);
}

/* ---- batches ---- */

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void begin(kv_wire *w)
{
    union {
        double seconds;
        uint64_t bits;
    } now = {.seconds = now_seconds()};
    w->len = 0;
    w->num_events = 0;
    put_array(w, 3);
    put_be(w, 0xcb, now.bits, 8);
    w->count_at = w->len + 1;
    put_be(w, 0xdd, 0, 4);
}

void kv_wire_end(kv_wire *w)
{
    if (!w->num_events) return;
    for (unsigned i = 0; i < 4; i++)
        w->bytes[w->count_at + i] = (uint8_t)(w->num_events >> (24 - 8 * i));
    put_uint(w, w->params.dp_rank);
    w->params.on_batch(w->params.user, w->bytes, w->len);
    w->len = 0;
    w->num_events = 0;
}

static size_t room(const kv_wire *w)
{
    return w->size - w->len - MOST_END;
}

/* For `bytes` more of this batch, else it begins a new one, which has as much. */
static void make_room(kv_wire *w, size_t bytes)
{
    if (w->num_events && room(w) < bytes) kv_wire_end(w);
    if (!w->num_events) begin(w);
}

static size_t block_bytes(uint32_t tokens)
{
    return MOST_INT + 1 + (size_t)tokens * 5; /* its hash, its place in extra_keys, its tokens */
}

rad_status kv_wire_init(kv_wire *w, const rad_env *env, const kv_wire_params *params)
{
    size_t least = 2 * (size_t)MOST_HEAD + block_bytes(params->block_tokens);
    *w = (kv_wire){.params = *params, .size = RAD_MAX((size_t)KV_WIRE_BATCH_BYTES, least)};
    w->bytes = rad_alloc(env, w->size);
    return w->bytes ? RAD_OK : RAD_E_NOMEM;
}

void kv_wire_fini(kv_wire *w, const rad_env *env)
{
    rad_free(env, w->bytes, w->size);
    w->bytes = NULL;
}

/* ---- events ---- */

static void name_of_space(const rad_kv_event *e, char *name, size_t size)
{
    snprintf(name, size, "%016llx", (unsigned long long)e->namespace_id);
}

static bool has_space(const rad_kv_event *e)
{
    return e->has_extra_key || e->has_cache_salt;
}

static void put_hashes(kv_wire *w, const int64_t *hashes, uint32_t count)
{
    put_array(w, count);
    for (uint32_t i = 0; i < count; i++)
        put_int(w, hashes[i]);
}

static void put_tokens(kv_wire *w, const rad_token *tokens, uint32_t count)
{
    put_array(w, count);
    for (uint32_t i = 0; i < count; i++)
        put_int(w, tokens[i]);
}

/* Some of an event's blocks. */
typedef struct block_run {
    const int64_t *hashes;
    const rad_token *tokens; /* stored ones' */
    uint32_t num_blocks, num_tokens;
    bool has_parent;
    int64_t parent;
} block_run;

static void put_parent(kv_wire *w, const block_run *run)
{
    if (run->has_parent)
        put_int(w, run->parent);
    else
        put_nil(w);
}

static void put_stored_array(kv_wire *w, const rad_kv_event *e, const block_run *run)
{
    put_array(w, has_space(e) ? 8 : 7);
    put_text(w, "BlockStored");
    put_hashes(w, run->hashes, run->num_blocks);
    put_parent(w, run);
    put_tokens(w, run->tokens, run->num_tokens);
    put_uint(w, e->block_size);
    put_nil(w); /* lora_id */
    put_text(w, e->medium);
    if (!has_space(e)) return;
    char name[20];
    name_of_space(e, name, sizeof name);
    put_map(w, 1);
    put_text(w, "cache_salt");
    put_text(w, name);
}

/* extra_keys is vLLM's: a list beside the blocks, of which the first of a prompt has the salt. */
static void put_stored_map(kv_wire *w, const rad_kv_event *e, const block_run *run)
{
    put_map(w, has_space(e) ? 9 : 7);
    put_text(w, "type");
    put_text(w, "BlockStored");
    put_text(w, "block_hashes");
    put_hashes(w, run->hashes, run->num_blocks);
    put_text(w, "parent_block_hash");
    put_parent(w, run);
    put_text(w, "token_ids");
    put_tokens(w, run->tokens, run->num_tokens);
    put_text(w, "block_size");
    put_uint(w, e->block_size);
    put_text(w, "lora_id");
    put_nil(w);
    put_text(w, "medium");
    put_text(w, e->medium);
    if (!has_space(e)) return;
    char name[20];
    name_of_space(e, name, sizeof name);
    put_text(w, "cache_salt");
    put_text(w, name);
    put_text(w, "extra_keys");
    put_array(w, run->num_blocks);
    for (uint32_t i = 0; i < run->num_blocks; i++) {
        if (i || run->has_parent) {
            put_nil(w);
        } else {
            put_array(w, 1);
            put_text(w, name);
        }
    }
}

static void put_removed(kv_wire *w, const rad_kv_event *e, const block_run *run)
{
    const bool map = w->params.form == KV_WIRE_MAP;
    if (map) {
        put_map(w, 3);
        put_text(w, "type");
    } else {
        put_array(w, 3);
    }
    put_text(w, "BlockRemoved");
    if (map) put_text(w, "block_hashes");
    put_hashes(w, run->hashes, run->num_blocks);
    if (map) put_text(w, "medium");
    put_text(w, e->medium);
}

static void put_cleared(kv_wire *w)
{
    if (w->params.form == KV_WIRE_MAP) {
        put_map(w, 1);
        put_text(w, "type");
    } else {
        put_array(w, 1);
    }
    put_text(w, "AllBlocksCleared");
}

/* As many of the event's blocks as fit, then the rest in the next batch. */
static void add_blocks(kv_wire *w, const rad_kv_event *e)
{
    const uint32_t tokens = e->num_blocks ? e->num_token_ids / e->num_blocks : 0;
    const size_t each = block_bytes(tokens);
    block_run run = {.has_parent = e->has_parent, .parent = e->parent_block_hash};
    RAD_ASSERT(tokens <= w->params.block_tokens);
    for (uint32_t at = 0; at < e->num_blocks; at += run.num_blocks) {
        make_room(w, MOST_HEAD + each);
        const size_t fit = (room(w) - MOST_HEAD) / each;
        run.hashes = e->block_hashes + at;
        run.num_blocks = (uint32_t)RAD_MIN((size_t)(e->num_blocks - at), fit);
        run.num_tokens = run.num_blocks * tokens;
        if (e->type == RAD_KV_STORED) {
            run.tokens = e->token_ids + (size_t)at * tokens;
            if (w->params.form == KV_WIRE_MAP)
                put_stored_map(w, e, &run);
            else
                put_stored_array(w, e, &run);
        } else {
            put_removed(w, e, &run);
        }
        w->num_events++;
        run.has_parent = true;
        run.parent = run.hashes[run.num_blocks - 1];
    }
}

void kv_wire_add(kv_wire *w, const rad_kv_event *e)
{
    if (e->type == RAD_KV_STORED || e->type == RAD_KV_REMOVED) {
        add_blocks(w, e);
    } else if (e->type == RAD_KV_CLEARED) {
        make_room(w, MOST_HEAD);
        put_cleared(w);
        w->num_events++;
    }
}
