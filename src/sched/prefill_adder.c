/* prefill_adder.c - the arithmetic of admission.
 *
 * The pools are asked anew each time: locking a request's prefix moves pages from
 * evictable to protected, so the room shrinks by what a hit keeps, and a hit is not
 * counted as free twice.
 *
 * Invariant: the pages planned in `batch` never exceed free + evictable. */
#include "sched/prefill_adder.h"

enum { FEW_TOKENS = 16 }; /* of prompts in a step, whatever it takes; an end counts as one */

static kv_pages room_with(const prefill_adder *a, kv_pages more)
{
    kv_pages room = kv_room(a->pools);
    return (kv_pages){room.full + more.full, room.window + more.window, room.states + more.states};
}

/* What a request will still take: the rest of fill_ids and a guess at its outputs. */
static kv_pages future_pages(const prefill_adder *a, const req *r)
{
    const window_memory *w = &a->pools->window;
    uint32_t more = RAD_MIN(r->max_new_tokens - r->num_output, (uint32_t)CLIP_MAX_NEW_TOKENS);
    uint64_t tokens = req_num_fill(r) - r->kv.allocated_len;
    tokens += (uint64_t)(more * a->new_token_ratio + 0.999);
    kv_pages pages = {.full = pages_for(r->kv.allocated_len, tokens, a->pools->page_size),
                      .states = state_to_come(&a->pools->states, &r->kv)};
    if (!w->tokens) return pages;
    uint64_t most = window_most_pages(w, r->kv.allocated_len + tokens);
    uint64_t held = window_held_pages(w, &r->kv);
    pages.window = most > held ? most - held : 0;
    return pages;
}

static void speak_for(prefill_adder *a, kv_pages pages)
{
    a->spoken_for.full += pages.full;
    a->spoken_for.window += pages.window;
    a->spoken_for.states += pages.states;
}

void prefill_adder_init(prefill_adder *a, const schedule_pools *pools, schedule_batch *batch,
                        req *const *reqs, uint32_t num_reqs, double new_token_ratio,
                        uint32_t rem_tokens, bool chunked)
{
    *a = (prefill_adder){.pools = pools,
                         .batch = batch,
                         .num_running = num_reqs,
                         .new_token_ratio = new_token_ratio,
                         .rem_tokens = rem_tokens,
                         .chunked = chunked};
    for (uint32_t i = 0; i < num_reqs; i++)
        speak_for(a, future_pages(a, reqs[i]));
}

void prefill_adder_limit_ns(prefill_adder *a, const step_cost *cost, double ns)
{
    a->cost = cost;
    a->rem_ns = ns;
    a->few_tokens = FEW_TOKENS;
    a->rem_tokens = RAD_MIN(a->rem_tokens, step_cost_trusted_tokens(cost));
    a->rem_ends = step_cost_trusted_ends(cost);
}

/* Tokens that fit into the pages which this step has not planned yet. */
static uint64_t tokens_in_room(const prefill_adder *a, const req *r, kv_pages more)
{
    uint32_t page_size = a->pools->page_size;
    kv_pages both = room_with(a, more);
    uint64_t room = RAD_MIN(both.full, both.window);
    /* What it locks, or a session brought along, was room when the step was planned so far: not
     * even the rest of its last page, nor a token with a state of its own, is to be had at the cost
     * of those. */
    if (both.states < a->batch->num_states + !r->kv.state) return 0;
    if (room < a->batch->num_pages) return 0;
    uint64_t pages = room > a->batch->num_pages ? room - a->batch->num_pages : 0;
    uint32_t partial = r->kv.allocated_len % page_size;
    return pages * page_size + (partial ? page_size - partial : 0);
}

/* Whether logprobs of what is left of its prompt are wanted. */
static bool wants_rows(const req *r, uint32_t left)
{
    const uint32_t done = r->kv.committed_len;
    return r->prompt_logprobs && req_rows_within(r, done, done + left);
}

/* Tokens of the `left` that a prompt still has that the step's time allows. The end of a prompt
 * costs more than a token: what cannot end now leaves its last token for later, unless so little
 * is left that waiting is better than a step in two. */
static uint64_t tokens_in_time(const prefill_adder *a, const req *r, uint32_t left)
{
    uint32_t done = r->kv.committed_len, fit = step_cost_fit(a->cost, done, false, a->rem_ns);
    uint32_t most = RAD_MAX(fit, a->few_tokens);
    if (wants_rows(r, left) && r->next_row > done) return RAD_MIN(most, r->next_row - done);
    if (wants_rows(r, left)) { /* a row for each token, which costs what an end does */
        fit = step_cost_fit(a->cost, done, true, a->rem_ns);
        return RAD_MAX(RAD_MIN(fit, a->rem_ends), a->few_tokens / 2);
    }
    if (left > most || r->num_output >= r->max_new_tokens) return most; /* no end, or no logits */
    double to_end = a->rem_ns - step_cost_prompt_end_ns(a->cost);
    if (a->rem_ends &&
        (left <= a->few_tokens || left <= step_cost_fit(a->cost, done, false, to_end)))
        return most;
    return left > FEW_TOKENS ? left - 1 : 0;
}

/* A whole prompt that window memory could not take at once, beside what a request may hold before
 * it, is computed in pieces all the same. */
static bool exceeds_window_memory(const prefill_adder *a, uint32_t tokens)
{
    const window_memory *w = &a->pools->window;
    if (!w->tokens) return false;
    return tokens > (w->num_pages - window_most_pages(w, UINT32_MAX)) * w->page_size;
}

/* States that can be had beside those that the step takes, and r's own. */
static uint64_t spare_states(const prefill_adder *a, const req *r)
{
    const uint64_t room = room_with(a, (kv_pages){0}).states, own = !r->kv.state;
    const uint64_t planned = a->batch->num_states + own;
    return room > planned ? room - planned : 0;
}

/* Of the `left` tokens those whose rows of logits fit into the step. A prompt whose logprobs are
 * wanted leaves one row to each request that runs, and of the rest a part to those that come: so
 * nobody waits for rows that a long prompt takes step by step. */
static uint32_t tokens_in_rows(const prefill_adder *a, const req *r, uint32_t left)
{
    const schedule_batch *b = a->batch;
    const uint32_t rows = b->max_logits - b->num_logits, done = r->kv.committed_len;
    const uint32_t later = a->num_running - RAD_MIN(a->num_running, b->num_reqs);
    if (!wants_rows(r, left)) return rows || r->num_output >= r->max_new_tokens ? left : left - 1;
    const uint32_t more = rows - RAD_MIN(rows, RAD_MAX(later, 1u));
    return r->next_row - done + RAD_MIN(rows, 1 + more / 4 * 3);
}

/* The length of the next chunk. One that does not reach the end stops at a page border
 * if it can, so that all of it can be published. */
static uint32_t chunk_tokens(const prefill_adder *a, const req *r, kv_pages more)
{
    if (!a->rem_tokens) return 0;
    uint32_t done = r->kv.committed_len;
    uint32_t left = req_num_fill(r) - done;
    uint64_t most = tokens_in_room(a, r, more);
    /* Cut even with --chunked-prefill-size -1: what cannot run whole would wait for ever. */
    const uint32_t in_rows = tokens_in_rows(a, r, left);
    bool chunked = a->chunked || exceeds_window_memory(a, left) || left > in_rows;
    most = RAD_MIN(most, in_rows);
    if (a->chunked || left > in_rows) most = RAD_MIN(most, a->rem_tokens);
    if (a->cost) most = RAD_MIN(most, tokens_in_time(a, r, left));
    /* Whole prompts: one that exceeds the budget runs in a step of its own, behind nothing but
     * decoding requests, which have one token and one row of logits each. */
    if (!chunked && left > a->rem_tokens && a->batch->num_tokens > a->batch->num_reqs) return 0;
    if (left <= most && !state_wants_cut(&a->pools->states, r, spare_states(a, r))) return left;
    if (left <= most) return left - req_num_fill(r) % a->pools->page_size;
    if (!chunked) return 0; /* all of it or nothing */

    /* Back to a page border: the tree takes whole pages, and this chunk's partial last page could
     * be nobody else's hit until the next chunk. Less than a page of room is used as it is. */
    uint32_t end = done + (uint32_t)most;
    end -= end % a->pools->page_size;
    return end > done ? end - done : (uint32_t)most;
}

static void add(prefill_adder *a, req *r, uint32_t tokens)
{
    uint32_t before = a->batch->num_logits;
    schedule_batch_add(a->batch, r, tokens, a->pools->page_size);
    uint32_t ends = a->batch->num_logits - before; /* or 0 */
    a->rem_tokens -= RAD_MIN(a->rem_tokens, tokens);
    a->few_tokens -= RAD_MIN(a->few_tokens, tokens + ends);
    a->rem_ends -= RAD_MIN(a->rem_ends, ends);
    if (a->cost)
        a->rem_ns -= step_cost_prompt_ns(a->cost, r->kv.committed_len, tokens) +
                     ends * step_cost_prompt_end_ns(a->cost);
}

bool prefill_adder_continue(prefill_adder *a, req *r)
{
    uint32_t tokens = chunk_tokens(a, r, (kv_pages){0});
    if (tokens) add(a, r, tokens);
    return tokens > 0;
}

static bool has_room(const prefill_adder *a, const req *r, bool alone, kv_pages more)
{
    if (alone) return true;
    kv_pages need = future_pages(a, r), room = room_with(a, more);
    if (a->spoken_for.full + need.full > room.full) return false;
    if (a->spoken_for.states + need.states > room.states) return false;
    if (!a->pools->window.tokens) return true;
    /* A chunk needs window pages for all of its tokens until the step has ended; with less than
     * that it would crawl. */
    uint64_t chunk = a->chunked ? pages_for(0, a->rem_tokens, a->pools->page_size) : 0;
    uint64_t beside = need.full > need.window ? RAD_MIN(chunk, need.full - need.window) : 0;
    return a->spoken_for.window + need.window + beside <= room.window;
}

bool prefill_adder_has_room(const prefill_adder *a, const req *r, bool alone)
{
    return has_room(a, r, alone, (kv_pages){0});
}

bool prefill_adder_has_state_to_load(const prefill_adder *a, const req *r, bool alone)
{
    if (!a->pools->states.pool) return true;
    const uint64_t needs = (uint64_t)!r->kv.state + !r->kv.spare_state;
    const uint64_t let_go = r->state_from != 0; /* its match's, which the load's end is behind */
    const uint64_t taken = alone ? a->batch->num_states : a->spoken_for.states;
    return taken + needs <= room_with(a, (kv_pages){0}).states + let_go;
}

bool prefill_adder_gains(const prefill_adder *a, const req *r, bool alone, kv_pages more)
{
    const kv_pages none = {0};
    if (!has_room(a, r, alone, more)) return false;
    uint32_t now = has_room(a, r, alone, none) ? chunk_tokens(a, r, none) : 0;
    return chunk_tokens(a, r, more) > now;
}

uint64_t prefill_adder_room(const prefill_adder *a, const req *r)
{
    return tokens_in_room(a, r, (kv_pages){0});
}

uint64_t prefill_adder_load_room(const prefill_adder *a, const req *r)
{
    const kv_pages none = {0};
    const window_memory *w = &a->pools->window;
    uint64_t planned = a->batch->num_pages, full = room_with(a, none).full;
    uint64_t window = room_with(a, none).window, needs = w->tokens / a->pools->page_size + 2;
    if (!w->tokens || window < planned + needs) return prefill_adder_room(a, r);
    return (full > planned ? full - planned : 0) * a->pools->page_size;
}

bool prefill_adder_admit(prefill_adder *a, req *r, bool alone)
{
    kv_pages need = future_pages(a, r);
    if (!prefill_adder_has_room(a, r, alone)) return false;
    uint32_t tokens = chunk_tokens(a, r, (kv_pages){0});
    if (!tokens) return false;
    add(a, r, tokens);
    speak_for(a, need);
    return true;
}
