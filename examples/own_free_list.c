/* own_free_list.c - the cache in an engine that keeps its own free pages and its own rows.
 *
 * As engines with their memory on a GPU do: a list of free pages, and for each request an array of
 * slots. The cache gets neither; it says which pages a prompt can reuse, takes the pages that a
 * request inserts, and tells the list (free_list.h) which ones it gave up.
 *
 *     match a batch -> lock -> take pages (evict when short) -> compute
 *                                  -> insert, lock the new end, unlock the old one -> ... -> free
 *
 * The "K/V" is one number a slot, a hash of the token and of the number before it: a slot that is
 * reused wrongly changes the answer. */
#include <radish/radish.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, PAGES = 96, LONGEST = 512, BATCH = 4 };

typedef struct engine {
    rad_cache *cache;
    rad_page free[PAGES]; /* a stack */
    uint32_t num_free;
    int64_t evictable; /* tokens: kept by what the calls say they changed */
    uint64_t memory[PAGES * PAGE];
} engine;

typedef struct request {
    rad_token tokens[LONGEST];
    rad_slot slots[LONGEST]; /* of position i; yours, so they may as well be on a device */
    uint32_t len;            /* tokens known */
    uint32_t computed;       /* those that have K/V */
    uint32_t shared;         /* leading positions whose slots are the tree's: locked */
    rad_receipt lock;
    uint32_t found; /* what the prompt's match found */
} request;

static void must(rad_status status, const char *what)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s: %s\n", what, rad_status_name(status));
    exit(1);
}

/* The one way back: pages of requests, and those that the cache gave up. */
static void free_pages(void *user, const rad_page *pages, uint32_t count)
{
    engine *e = user;
    for (uint32_t i = 0; i < count; i++)
        e->free[e->num_free++] = pages[i];
}

/* Slots for positions up to `len`. When pages are short, the least valuable ones that nobody has
 * locked are evicted, and are in the list when evict returns. */
static void reserve(engine *e, request *r, uint32_t have, uint32_t len)
{
    uint32_t need = (len + PAGE - 1) / PAGE - (have + PAGE - 1) / PAGE;
    rad_error err = {0};
    if (need > e->num_free) {
        uint64_t gone;
        must(rad_cache_evict(e->cache, (uint64_t)(need - e->num_free) * PAGE, &gone, &err),
             err.text);
        e->evictable -= (int64_t)gone;
    }
    for (uint32_t at = have; at < len; at++)
        r->slots[at] = at % PAGE ? r->slots[at - 1] + 1 : e->free[--e->num_free] * PAGE;
}

static uint64_t next_number(uint64_t before, rad_token token)
{
    return (before + (uint64_t)token + 1) * 6364136223846793005u;
}

/* Computes what has no K/V yet; returns the token that follows. */
static rad_token forward(engine *e, request *r)
{
    for (; r->computed < r->len; r->computed++) {
        uint64_t before = r->computed ? e->memory[r->slots[r->computed - 1]] : 17;
        e->memory[r->slots[r->computed]] = next_number(before, r->tokens[r->computed]);
    }
    return (rad_token)(e->memory[r->slots[r->len - 1]] >> 48);
}

/* Moves the request's lock to a node; {0, 0} is the root, which holds nothing. */
static void relock(engine *e, request *r, rad_ref node)
{
    rad_receipt old = r->lock;
    rad_error err = {0};
    must(rad_cache_inc_lock_ref(e->cache, node, &r->lock, &err), err.text);
    e->evictable += r->lock.evictable_change;
    if (!old.held) return;
    must(rad_cache_dec_lock_ref(e->cache, &old, &err), err.text);
    e->evictable += old.evictable_change;
}

/* What is computed becomes the tree's, so that others find it. Whole pages change their owner; of
 * those that somebody else brought meanwhile the tree's stay, and ours are free again. */
static void publish(engine *e, request *r)
{
    rad_key key = {.tokens = r->tokens, .num_tokens = r->computed};
    uint32_t whole = r->computed / PAGE * PAGE;
    rad_error err = {0};
    rad_inserted in;
    must(rad_cache_insert(e->cache, &key, r->slots, NULL, &in, &err), err.text);
    e->evictable += in.evictable_change;
    relock(e, r, in.node); /* before anything else: an unlocked node may go */
    for (uint32_t at = r->shared; at < in.prefix_tokens; at += PAGE)
        free_pages(e, &(rad_page){r->slots[at] / PAGE}, 1);
    if (in.prefix_tokens > r->shared) { /* the tree's slots in the place of ours */
        rad_match_handle end = {.node = in.node, .num_tokens = whole};
        must(rad_match_handle_slots(e->cache, &end, r->shared, in.prefix_tokens - r->shared,
                                    r->slots + r->shared),
             "slots");
    }
    r->shared = whole;
}

/* The requests run together: what is cached of all of them is asked and locked before the first
 * page is evicted for any. */
static void serve(engine *e, request *r, uint32_t count, uint32_t new_tokens)
{
    rad_key keys[BATCH] = {0};
    rad_slot *slots[BATCH] = {0};
    rad_match matches[BATCH];
    rad_error err = {0};
    for (uint32_t i = 0; i < count; i++) { /* the last token is always computed */
        keys[i] = (rad_key){.tokens = r[i].tokens, .num_tokens = r[i].len - 1};
        slots[i] = r[i].slots;
    }
    must(rad_cache_match_batch(e->cache, keys, count, slots, matches, &err), err.text);
    for (uint32_t i = 0; i < count; i++) {
        relock(e, &r[i], matches[i].last_node);
        r[i].found = r[i].shared = r[i].computed = matches[i].prefix_tokens;
    }
    for (uint32_t step = 0; step < new_tokens; step++)
        for (uint32_t i = 0; i < count; i++) {
            reserve(e, &r[i], r[i].computed, r[i].len);
            rad_token next = forward(e, &r[i]);
            if (!step) publish(e, &r[i]); /* the prompt, as soon as it is there */
            r[i].tokens[r[i].len++] = next;
        }
    for (uint32_t i = 0; i < count; i++) {
        publish(e, &r[i]);
        if (r[i].computed > r[i].shared) /* a page that is not full is nobody else's */
            free_pages(e, &(rad_page){r[i].slots[r[i].shared] / PAGE}, 1);
        must(rad_cache_dec_lock_ref(e->cache, &r[i].lock, &err), err.text);
        e->evictable += r[i].lock.evictable_change;
    }
}

/* Every cached number is what its prefix says. */
typedef struct audit {
    const engine *e;
    uint64_t before[LONGEST]; /* the number that ends the path, by depth */
    int wrong;
} audit;

static void audit_node(void *user, rad_ref node, uint32_t depth, const rad_token *tokens,
                       const rad_slot *slots, uint32_t num_tokens, uint32_t lock_ref,
                       uint32_t hit_count)
{
    audit *a = user;
    uint64_t number = depth > 1 ? a->before[depth - 1] : 17;
    rad_node_info info = {.struct_size = sizeof info};
    (void)hit_count;
    for (uint32_t i = 0; i < num_tokens; i++) {
        number = next_number(number, tokens[i]);
        a->wrong |= a->e->memory[slots[i]] != number;
    }
    a->before[depth] = number;
    if (rad_cache_get_node_info(a->e->cache, node, &info, NULL)) a->wrong = 1;
    a->wrong |= info.num_tokens != num_tokens || info.lock_ref != lock_ref || lock_ref != 0;
}

/* Free + cached == all, page by page, as nobody runs; and the sums are those of the cache. */
static int check(const engine *e)
{
    static audit a;
    static rad_slot cached[PAGES * PAGE];
    int owners[PAGES] = {0}, wrong = 0;
    uint64_t count;
    rad_error err;
    if (rad_cache_check(e->cache, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (uint32_t i = 0; i < e->num_free; i++)
        owners[e->free[i]]++;
    must(rad_cache_all_values_flatten(e->cache, cached, PAGES * PAGE, &count), "values");
    for (uint64_t i = 0; i < count; i += PAGE)
        owners[cached[i] / PAGE]++;
    for (int page = 0; page < PAGES; page++)
        wrong |= owners[page] != 1;
    a = (audit){.e = e};
    must(rad_cache_walk(e->cache, audit_node, &a), "walk");
    return wrong || a.wrong || (uint64_t)e->evictable != rad_cache_evictable_size(e->cache);
}

/* How a cached prompt lies in the tree, from its end up. */
static void show_path(const engine *e, const rad_key *key)
{
    rad_match m;
    rad_node_info info = {.struct_size = sizeof info};
    must(rad_cache_lookup(e->cache, key, &m), "lookup");
    for (rad_ref at = m.last_node; at.index; at = info.parent) {
        must(rad_cache_get_node_info(e->cache, at, &info, NULL), "node");
        printf("  tokens %u to %u: %u hits, %u children\n", info.depth_tokens - info.num_tokens,
               info.depth_tokens, info.hit_count, info.num_children);
    }
}

static rad_status print(void *user, const char *text, size_t bytes)
{
    return fwrite(text, 1, bytes, user) == bytes ? RAD_OK : RAD_E_IO;
}

/* A prompt of 240 tokens: the first 200 are one system prompt, the rest is the user's. */
static void ask(request *r, rad_token system, rad_token user)
{
    *r = (request){.len = 240};
    for (int i = 0; i < 240; i++)
        r->tokens[i] = i < 200 ? system + i : 1000 * user + i;
}

int main(int argc, char **argv)
{
    static engine e;
    static request first[BATCH], again[BATCH], other;
    for (rad_page page = PAGES; page-- > 0;)
        e.free[e.num_free++] = page;
    rad_free_list list = {
        .struct_size = sizeof list, .num_pages = PAGES, .user = &e, .free_pages = free_pages};
    rad_cache_params params = {.struct_size = sizeof params, .page_size = PAGE, .free_list = &list};
    rad_error err;
    if (rad_cache_create(NULL, &params, &e.cache, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }

    /* Four users of one system prompt at once, and the same four again. */
    for (int i = 0; i < BATCH; i++) {
        ask(&first[i], 0, i + 1);
        ask(&again[i], 0, i + 1);
    }
    serve(&e, first, BATCH, 20);
    int wrong = check(&e);
    serve(&e, again, BATCH, 20);
    wrong |= check(&e);
    for (int i = 0; i < BATCH; i++) {
        printf("user %d: %u, then %u of 240 prompt tokens cached\n", i, first[i].found,
               again[i].found);
        wrong |= first[i].found != 0 || again[i].found != 224 ||
                 memcmp(first[i].tokens, again[i].tokens, 260 * sizeof(rad_token)) != 0;
    }
    rad_key key = {.tokens = again[3].tokens, .num_tokens = again[3].len};
    show_path(&e, &key);

    /* Far more than fits: old prompts make room, nothing is lost, answers stay. */
    for (int i = 0; i < 100; i++) {
        ask(&other, 5000 + 1000 * i, i);
        serve(&e, &other, 1, 8);
        wrong |= check(&e) || other.found != 0;
    }
    ask(&other, 0, 1);
    serve(&e, &other, 1, 20);
    wrong |= check(&e) || memcmp(first[0].tokens, other.tokens, 260 * sizeof(rad_token)) != 0;
    if (argc > 1 && !strcmp(argv[1], "--dump")) /* what the tree looks like */
        must(rad_cache_dump(e.cache, RAD_CACHE_DUMP_TEXT, print, stdout), "dump");
    printf("%u of %d pages free, %lld tokens cached, answers %s\n", e.num_free, PAGES,
           (long long)rad_cache_total_size(e.cache), wrong ? "WRONG" : "unchanged");

    must(rad_cache_reset(e.cache), "reset"); /* the list lives on: it is told of everything */
    wrong |= e.num_free != PAGES;
    rad_cache_destroy(e.cache);
    return wrong ? 1 : 0;
}
