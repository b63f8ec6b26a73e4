/* state_memory.h - states of recurrent layers: what requests work with, and which are kept.
 *
 * A model with recurrent layers (delta rule, Mamba, short convolution) carries a state of fixed
 * size from token to token. A state cannot be cut: who goes on behind a prefix needs the one that
 * stood exactly there. States are slots of one pool (radish/state_pool.h):
 *
 *     working copy   of a running request, behind its last computed token
 *     spare          of a decoding one, behind its last whole page: its prompt leaves it there, and
 *                    when a token begins a page, the step reads the one and writes the other, and
 *                    they change places
 *     snapshot       the tree's; a match is read in place, and never written
 *
 * With pages of one token each position is a page's end, and there is no spare.
 *
 * A step leaves snapshots behind without being cut for them (forward_batch.h, saves). Where:
 *
 *     prompt | system, history ........ | last message ..... | "assistant:" |
 *                 ^        ^      ^     ^                    ^            ^
 *                 every    forks: others branch off there    |            n - 1, the most that a
 *                 interval                                   |            match covers, where turns
 *                                  message_start             turn_start   are not known
 *
 * and the request's own copy at the end of its answer. So an edited last message goes on from
 * message_start, a regenerated answer from turn_start, as does one whose reasoning the template
 * leaves out later, and the next turn from the answer's end.
 *
 * Working copies must be had: admission counts them. Spares and snapshots are taken from what is
 * free, or from cached snapshots that are worth least, or not at all.
 *
 * Without recurrent layers (`pool` is NULL) the functions do nothing. */
#ifndef SCHED_STATE_MEMORY_H
#define SCHED_STATE_MEMORY_H

#include "attn/forward_batch.h"
#include "model/runner.h"
#include "sched/cache_tap.h"
#include "sched/req.h"
#include <radish/state_pool.h>

enum {
    STATE_LEAST = 2,         /* states with which one request gets on: its own, and its snapshot */
    STATE_MOST_POINTS = 128, /* in one step of one request */
    STATE_NEAR = 16,         /* tokens that are not worth a snapshot */
    STATE_DRAFTS_SHARE = 8   /* of all states; so many of them may be drafts' though none is free */
};

typedef struct state_memory {
    rad_state_pool *pool; /* NULL: the model has no recurrent layers */
    uint32_t page_size;
    uint32_t interval;    /* tokens between snapshots of a long prompt */
    bool keeps;           /* the cache has a tree; else working copies are all there is */
    rad_token turn_token; /* the first of each message; -1: not known */
    cache_tap tap;        /* who is told of evictions */
    uint64_t unsaved;     /* snapshots that were wanted, and no state was to be had */
} state_memory;

/* Takes all its memory. RAD_E_INVAL, RAD_E_NOMEM and the like in words; fini in any case. */
rad_status state_memory_init(state_memory *m, const rad_env *env, runner *model,
                             uint32_t num_states, uint32_t page_size, rad_error *err);
void state_memory_fini(state_memory *m);

/* The tokens between snapshots that nobody asked for: as many as have K/V of a state's size, within
 * reason. A power of two. */
uint32_t state_default_interval(const runner_info *model);

/* How many there are by default, for so many requests and tokens. */
uint64_t state_default_count(uint32_t interval, uint64_t max_requests, uint64_t max_total_tokens);

/* States that are free or can be evicted; without recurrent layers there is no end of them. */
uint64_t state_room(const state_memory *m, const rad_cache *cache);

/* Takes one that a request cannot do without: where none is free it evicts a snapshot, or gives up
 * a write to the host that holds one. False: there is none. */
bool state_take(const state_memory *m, rad_cache *cache, rad_state *out);

/* The same for a snapshot or a spare: no write is given up for it. */
bool state_take_spare(const state_memory *m, rad_cache *cache, rad_state *out);

/* Steps will have drafts, in as many rows: what stands behind each is written in a step and given
 * back, mostly. So drafts have the same states again and again, of which some are made ready now: the
 * kernel takes as long for the memory of a new one as a step with a draft takes more than one
 * without, and longer. All others take states that nobody has had, as long as there are any. */
void state_expect_drafts(const state_memory *m, uint32_t rows);
bool state_take_draft(const state_memory *m, rad_cache *cache, rad_state *out);

/* States that a request holds of its own; and those that it will still take, but for snapshots. */
uint32_t state_held(const rad_req_kv *kv);
uint32_t state_to_come(const state_memory *m, const rad_req_kv *kv);

/* Looks for the places in r's prompt that snapshots are wanted at. O(its last message). */
void state_find_turns(const state_memory *m, req *r);

/* Where the last step of r's prompt, up to seq_len, leaves the spare; 0: nowhere, it stays as it
 * is.
 */
uint32_t state_spare_point(const state_memory *m, const req *r, uint32_t seq_len);

/* Whether r's prompt should be cut at its last whole page: all states are held, one of them by r as
 * its match, which it lets go of after its first step. The rest of the page then finds one for the
 * spare. `room`: states that can be had and that nobody was promised. */
bool state_wants_cut(const state_memory *m, const req *r, uint64_t room);

/* A request's step behind what it has: it must have a working copy (state_take). Writes the state
 * it begins with, its own, what a load brought as a spare, or `from`, its match's; and where it
 * leaves the one behind the step. `turns`: the copy that stands where a page ends before the step
 * becomes the spare, since none ends within it, or since a turn may be taken back to there. */
void state_begin_step(const state_memory *m, rad_cache *cache, rad_req_kv *kv, rad_state from,
                      bool turns, rad_state *in, rad_state *out);

/* It has been computed up to seq_len, and `out` is what state_begin_step said. */
void state_end_step(const state_memory *m, rad_req_kv *kv, rad_state out, uint32_t seq_len);

/* Of a step with drafts only the first `kept` tokens behind `prefix` stay, after state_end_step:
 * the request goes on with what was saved there, and has the last whole page's as its spare. What
 * stood behind its `num_saves` + 1 tokens, all but the last, is saves[0..num_saves); they get what
 * the request needs no more. */
void state_keep(const state_memory *m, rad_req_kv *kv, uint32_t prefix, uint32_t kept,
                forward_state_save *saves, uint32_t num_saves);

/* Positions in (prefix, seq_len] where r should leave snapshots, ascending, each a whole page's
 * end; `forks` are positions where others branch off. Returns how many, STATE_MOST_POINTS at most.
 */
uint32_t state_points(const state_memory *m, const req *r, const uint32_t *forks,
                      uint32_t num_forks, uint32_t prefix, uint32_t seq_len, uint32_t *points);

/* What a request holds between two steps is sound. RAD_E_CORRUPT in words. */
rad_status state_check(const state_memory *m, const rad_req_kv *kv, rad_error *err);

#endif
