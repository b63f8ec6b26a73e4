/* session_cache_impl.h - what session_cache.c and session_turn.c share: the slots of streaming
 * sessions. session_cache.c tells how they work. */
#ifndef CACHE_SESSION_CACHE_IMPL_H
#define CACHE_SESSION_CACHE_IMPL_H

#include "base/bits.h"
#include "base/slab.h"
#include "cache/cache_impl.h"
#include "cache/namespace.h"

typedef struct session_slot {
    rad_row row;            /* 0: nothing is kept */
    uint32_t protected_len; /* as in rad_req_kv; allocated_len is committed_len */
    uint32_t committed_len;
    uint32_t window_len;
    rad_state state; /* likewise */
    uint32_t state_len;
    rad_state spare_state;
    uint32_t spare_len;
    int32_t priority;
    rad_receipt lock; /* the inner cache's */
    uint32_t turn;    /* grows with each begin */
    uint32_t kept;    /* grows whenever what was kept is gone: virtual nodes become stale */
    uint32_t older;   /* idle slots with a row, by last use */
    uint32_t newer;
    bool active;
    bool closing; /* when the turn ends */
    namespace_name name;
} session_slot;

typedef struct session_cache {
    rad_cache base; /* before the inner cache */
    uint32_t max_sessions;
    uint32_t row_tokens;
    slab ids;
    session_slot *slots; /* [max_sessions + 1] */
    rad_token *tokens;   /* [max_sessions + 1][row_tokens]: of the committed positions */
    uint64_t *held;      /* a bit for each page */
    uint32_t num_pages;  /* bits in `held` */
    uint32_t num_states; /* bits in held_states, state 0's too */
    uint64_t *held_states; /* a bit for each state; NULL: there are none */
    uint64_t kept_states;  /* in idle slots */
    uint32_t oldest, newest;
    uint64_t held_window; /* tokens in idle slots that have a window side */
    rad_session_stats stats;
} session_cache;

static inline session_cache *session_of(rad_cache *cache)
{
    return (session_cache *)cache;
}

static inline const session_cache *session_of_const(const rad_cache *cache)
{
    return (const session_cache *)cache;
}

static inline rad_token *session_tokens(const session_cache *c, uint32_t id)
{
    return c->tokens + (size_t)id * c->row_tokens;
}

static inline rad_ref session_node(const session_cache *c, uint32_t id)
{
    return (rad_ref){SESSION_NODE | id, c->slots[id].kept};
}

/* Whether a match's last_node is a session's and not a node of the tree. */
static inline bool session_is_kept(rad_ref last_node)
{
    return (last_node.index & SESSION_NODE) != 0;
}

static inline bool session_is_virtual(const rad_receipt *r)
{
    return session_is_kept(r->node);
}

/* session_turn.c, for the table of operations. */
rad_status session_empty(session_cache *c, uint32_t id, int is_insert);
void session_match_prefix(rad_cache *cache, const rad_key *key, rad_slot *slots, rad_match *match);
void session_lookup(const rad_cache *cache, const rad_key *key, rad_match *match);
rad_status session_inc_lock_ref(rad_cache *cache, rad_ref node, rad_receipt *receipt,
                                rad_error *err);
bool session_receipt_holds(const rad_cache *cache, const rad_receipt *r);
rad_status session_dec_lock_ref(rad_cache *cache, rad_receipt *receipt, rad_error *err);
rad_status session_begin(rad_cache *cache, rad_req_kv *req, rad_error *err);
rad_status session_check_req(const rad_cache *cache, const rad_req_kv *req, rad_error *err);
rad_status session_unfinished_req(rad_cache *cache, rad_req_kv *req, int chunked, rad_error *err);
rad_status session_finished_req(rad_cache *cache, rad_req_kv *req, int is_insert, rad_error *err);
rad_status session_open(rad_cache *cache, rad_session *session);
rad_status session_close(rad_cache *cache, rad_session session);
uint32_t session_release_idle(rad_cache *cache, uint32_t count);
rad_status session_evict(rad_cache *cache, uint64_t num_tokens, uint64_t *evicted_tokens);
rad_status session_evict_window(rad_cache *cache, uint64_t window_tokens, uint64_t *evicted_tokens);
void session_hold_window(rad_cache *cache, rad_receipt *receipt, uint32_t from);
rad_status session_put_state(rad_cache *cache, rad_ref node, uint32_t depth_tokens, rad_state state,
                             rad_error *err);
rad_status session_evict_state(rad_cache *cache, uint64_t count, uint64_t *evicted);

/* Tokens of the slot's own pages that have a window side. */
uint64_t session_window_tokens(const session_cache *c, const session_slot *s);

#endif
