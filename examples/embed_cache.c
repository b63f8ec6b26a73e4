/* embed_cache.c - the cache in the loop of a toy engine.
 *
 * The "model" keeps one number per slot where a real one keeps K and V: a hash of the
 * token and of the number before it. So every number depends on the whole prefix, as
 * attention makes it, and a slot reused wrongly changes the answer. Everything that an
 * engine has to do for the cache is in serve() and reserve(). */
#include <radish/radish.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, PAGES = 64, SLOTS = (PAGES + 1) * PAGE, ROWS = 4, LONGEST = 512 };

static rad_kv_allocator *kv;        /* who has which page */
static rad_req_to_token_pool *rows; /* position -> slot, per running request */
static rad_cache *cache;            /* which pages a prompt can reuse */
static uint64_t memory[SLOTS];      /* the "K/V", by slot */

static void must(rad_status status, const char *what)
{
    if (status == RAD_OK) return;
    fprintf(stderr, "%s: %s\n", what, rad_status_name(status));
    exit(1);
}

/* Computes positions [from, to) and returns the token that follows. */
static rad_token forward(const rad_slot *row, const rad_token *tokens, uint32_t from, uint32_t to)
{
    for (uint32_t at = from; at < to; at++) {
        uint64_t before = at ? memory[row[at - 1]] : 17;
        memory[row[at]] = (before + (uint64_t)tokens[at] + 1) * 6364136223846793005u;
    }
    return (rad_token)(memory[row[to - 1]] >> 48);
}

/* Slots for positions [have, len): a decoded token's, or a prompt's. An engine asks for all
 * requests of a step at once, here it is one. */
static rad_status take_slots(rad_slot *row, uint32_t have, uint32_t len, rad_error *err)
{
    rad_slot last = have ? row[have - 1] : -1;
    if (len - have == 1) return rad_kv_alloc_decode(kv, 1, &len, &last, row + have, err);
    return rad_kv_alloc_extend(kv, 1, &have, &len, &last, row + have, err);
}

/* Slots for positions up to `len`. When the pool is short, the least valuable cached
 * pages that nobody has locked make room. */
static void reserve(rad_req_kv *req, uint32_t len)
{
    rad_slot *row = rad_req_to_token_row(rows, req->row);
    uint32_t have = req->allocated_len;
    rad_error err = {0};
    rad_status status = take_slots(row, have, len, &err);
    if (status == RAD_FULL) {
        must(rad_cache_evict(cache, len - have + PAGE, NULL, &err), err.text);
        status = take_slots(row, have, len, &err);
    }
    must(status, err.text); /* a real engine lets a request wait */
    req->allocated_len = len;
}

/* One request: tokens[0..len) is the prompt, `count` tokens are generated behind it.
 * Returns how many tokens of the prompt were found instead of computed. */
static uint32_t serve(rad_token *tokens, uint32_t len, uint32_t count)
{
    rad_req_kv req = {.key = {.tokens = tokens, .num_tokens = len}};
    must(rad_req_to_token_alloc(rows, &req.row), "row");
    rad_slot *row = rad_req_to_token_row(rows, req.row);

    /* What is cached goes into the row and is locked. The last token of the prompt is
     * always computed: the first new token comes out of it. */
    rad_key look = req.key;
    rad_match match;
    look.num_tokens = len - 1;
    rad_error err = {0};
    must(rad_cache_match_prefix(cache, &look, row, &match, &err), err.text);
    must(rad_cache_inc_lock_ref(cache, match.last_node, &req.lock, NULL), "lock");
    req.protected_len = req.committed_len = req.allocated_len = match.prefix_tokens;

    /* Prefill the rest, and let others share it at once. */
    reserve(&req, len);
    rad_token next = forward(row, tokens, req.committed_len, len);
    req.committed_len = len;
    rad_status status = rad_cache_unfinished_req(cache, &req, 0, NULL);
    if (status != RAD_FULL) must(status, "unfinished"); /* full: goes on unshared */

    /* Decode. The token made last has no K/V yet; the next step computes it. */
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0) {
            reserve(&req, len);
            next = forward(row, tokens, len - 1, len);
            req.committed_len = len;
        }
        tokens[len++] = next;
        req.key.num_tokens = len;
    }

    /* Whole pages stay cached; the rest, the row and the lock go back. */
    must(rad_cache_finished_req(cache, &req, 1, NULL), "finished");
    return match.prefix_tokens;
}

int main(void)
{
    /* While MAJOR is 0, another MINOR is another ABI. */
    if (rad_version() / 100 != RAD_VERSION / 100) {
        fprintf(stderr, "compiled for radish %s, loaded %s\n", RAD_VERSION_STRING,
                rad_version_string());
        return 1;
    }
    rad_kv_allocator_params kv_params = {
        .struct_size = sizeof kv_params, .num_pages = PAGES, .page_size = PAGE};
    rad_req_to_token_pool_params row_params = {
        .struct_size = sizeof row_params, .num_rows = ROWS, .row_tokens = LONGEST};
    must(rad_kv_allocator_create(NULL, &kv_params, &kv, NULL), "kv allocator");
    must(rad_req_to_token_pool_create(NULL, &row_params, &rows, NULL), "rows");
    rad_cache_params params = {.struct_size = sizeof params,
                               .page_size = PAGE,
                               .kv_allocator = kv,
                               .req_to_token_pool = rows};
    rad_error err;
    if (rad_cache_create(NULL, &params, &cache, &err)) {
        fprintf(stderr, "%s\n", err.text); /* words for a person, where they help */
        return 1;
    }

    /* Two users with one system prompt of 200 tokens, and the first one again. */
    rad_token tokens[3][LONGEST];
    uint32_t cached[3];
    for (int user = 0; user < 3; user++) {
        for (int i = 0; i < 240; i++)
            tokens[user][i] = i < 200 ? i : 1000 * (user % 2) + i;
        cached[user] = serve(tokens[user], 240, 32);
        printf("user %d: %u of 240 prompt tokens cached\n", user % 2, cached[user]);
    }
    int right = cached[0] == 0 && cached[1] == 192 && cached[2] == 224 &&
                memcmp(tokens[0], tokens[2], 272 * sizeof(rad_token)) == 0;

    /* Far more than fits: old prompts make room, answers stay the same. */
    rad_token other[LONGEST];
    for (int i = 0; i < 100; i++) {
        for (int at = 0; at < 300; at++)
            other[at] = 5000 + 1000 * i + at;
        serve(other, 300, 8);
    }
    memcpy(tokens[2], tokens[0], 240 * sizeof(rad_token));
    right = right && serve(tokens[2], 240, 32) == 0 &&
            memcmp(tokens[0], tokens[2], 272 * sizeof(rad_token)) == 0;

    /* Free + cached + held == all, slot by slot: nothing was lost on the way. */
    if (rad_cache_check_ownership(cache, NULL, 0, &err)) {
        fprintf(stderr, "%s\n", err.text);
        right = 0;
    }
    rad_cache_stats stats;
    rad_cache_get_stats(cache, &stats);
    printf("%llu tokens cached, %llu evicted, answers %s\n",
           (unsigned long long)rad_cache_total_size(cache),
           (unsigned long long)stats.evicted_tokens, right ? "unchanged" : "WRONG");

    rad_cache_destroy(cache);
    rad_req_to_token_pool_destroy(rows);
    rad_kv_allocator_destroy(kv);
    return right ? 0 : 1;
}
