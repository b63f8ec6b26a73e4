/* session.h - conversations that come back turn by turn.
 *
 * A request says which session it belongs to in key.session. What that means depends on
 * the cache it is given to:
 *
 *   tags        a RadixCache with rad_cache_params.max_sessions. A session refers to the path
 *               that its last published turn ended on, and those nodes are evicted after
 *               the ones that no open session refers to, fewer references first (more
 *               than two count as three; pins go before sessions, sessions before
 *               retention and policy). Nothing else changes: rad_session_begin only says
 *               whether the session is open, turns may overlap, and closing drops the
 *               references without freeing. O(depth) a turn.
 *
 *   streaming   rad_streaming_cache_create puts a wrapper before any cache. Between two
 *               turns it keeps a session's row and all its K/V as they are, generated
 *               text and the partial last page included, in a slot of its own; the next
 *               turn goes on where the last one ended:
 *
 *                 turn 1   match -> lock -> begin -> row, alloc, run -> finished_req
 *                                                                          | kept
 *                 turn 2   match -> lock -> begin  <- row, lengths --------+
 *
 * Nothing of it is unevictable: when the pool is short, idle sessions are given back to
 * the cache behind, the one used least recently first, and their next turn finds what is
 * left there and computes the rest. An aborted turn (finished_req with is_insert 0) drops
 * all K/V of its session; the next one begins anew.
 *
 * A streaming wrapper answers what cache.h has. Events, page hashes, explanations, dumps,
 * match handles and partial pages belong to the cache behind it and are refused there or
 * empty; an engine that wants them uses tags.
 *
 * Tokens are compared with those that the K/V were computed for: a turn that changed its
 * history keeps what agrees, and never reads anything else.
 *
 * Called from the thread that owns the cache; nothing blocks or touches the heap. */
#ifndef RADISH_SESSION_H
#define RADISH_SESSION_H

#include <radish/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names a session; 0 is none. An id of a closed session is refused until its place was
 * used 32768 times more. */
typedef uint32_t rad_session;

typedef struct rad_streaming_cache_params {
    size_t struct_size;    /* sizeof(rad_streaming_cache_params) */
    rad_cache *inner;      /* owned by the wrapper when create succeeds */
    uint32_t max_sessions; /* open at one time, 1..65535; 0: the number of rows */
    uint32_t reserved;     /* 0 */
} rad_streaming_cache_params;

/* A cache in front of `inner`, which must have rows; requests without a session pass
 * through untouched. From now on use the wrapper only. Memory: 4 bytes for each session
 * and token of a row, and half a kilobyte a session. RAD_E_INVAL, RAD_E_UNSUPPORTED (bigram keys),
 * RAD_E_NOMEM in words; then *out is NULL and inner the caller's. */
RAD_API rad_status rad_streaming_cache_create(const rad_env *env,
                                              const rad_streaming_cache_params *params,
                                              rad_cache **out, rad_error *err);

/* RAD_FULL: as many are open as may be. RAD_E_UNSUPPORTED: this cache has no sessions. */
RAD_API rad_status rad_session_open(rad_cache *cache, rad_session *session);

/* Forgets the session. Tags are dropped, nothing is freed. A streaming one frees its K/V at once,
 * or when its running turn ends. RAD_E_STATE: it is not open. */
RAD_API rad_status rad_session_close(rad_cache *cache, rad_session session);

/* Claims a streaming session for the request's turn. Call it behind match_prefix and
 * inc_lock_ref, when the request has no row yet. When the match came from the session (then its
 * prefix_tokens may end within a page), the record gets the row and the lengths: what does not
 * agree with the tokens is freed, at least the last token is left to compute, and committed_len is
 * where to go on; it need not be whole pages. With states it gets those too, and committed_len is
 * where `state` stands; it must have had none. Else the record stays as it is, and the
 * caller goes on as without a session. A request without a session: RAD_OK.
 *
 * RAD_AGAIN: what was matched has gone meanwhile; the lock is cleared, match again.
 * RAD_E_STATE: the session is closed, or another turn of it is running. O(tokens). */
RAD_API rad_status rad_session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err);

/* Gives up to `count` idle sessions' K/V and rows back, the one used least recently first,
 * publishing them in the cache behind; the sessions stay open. rad_cache_evict does the
 * same when the cache behind has too little to evict; call this when rows are short.
 * Returns how many were given back. */
RAD_API uint32_t rad_session_release_idle(rad_cache *cache, uint32_t count);

typedef struct rad_session_stats {
    uint64_t open;        /* with tags: this, and in `held` those that refer to a node */
    uint64_t held;        /* idle sessions that keep K/V: a row each */
    uint64_t held_tokens; /* theirs alone, in whole pages; part of evictable_size */
    uint64_t active;      /* with a turn running: its K/V are counted with the request */
    uint64_t restored;    /* turns that went on from a slot, since create */
    uint64_t dropped;     /* slots given back under pressure, since create */
} rad_session_stats;
RAD_API void rad_session_get_stats(const rad_cache *cache, rad_session_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
