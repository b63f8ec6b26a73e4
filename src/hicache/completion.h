/* completion.h - the moments at which transfers end, told as they happen and made to happen again.
 *
 * All that a cache with tiers does follows from the calls of its owner, but for one thing: a
 * transfer ends when it ends, and the owner finds it in the call that looks next. So whoever knows
 * the calls and these findings can make the same cache again (replay/replay_record.h):
 *
 *     a server   calls ---------> cache, threads copy ----> findings
 *     a replay   calls, findings -> cache without threads, nothing is copied
 *
 * The owner's thread. */
#ifndef HICACHE_COMPLETION_H
#define HICACHE_COMPLETION_H

#include <radish/cache.h>

typedef struct hi_completion {
    uint64_t look;   /* the how manyeth look for what is done, since create, found it; times 2, and
                      * 1 more where a load had brought its last layer and was waited for */
    uint32_t ticket; /* its id, free again once it is given back */
    int32_t status;  /* as in transfer.status */
} hi_completion;

typedef void (*hi_completion_fn)(void *user, const hi_completion *done);

/* From now on `fn` is told of each, in order, within the call that finds it. Before any transfer.
 * RAD_E_UNSUPPORTED: the cache has one tier. */
rad_status hi_tell_completions(rad_cache *cache, hi_completion_fn fn, void *user);

/* From now on transfers end when, and as, the script says, and no other way. Of a cache that is
 * deterministic and has begun no transfer. RAD_E_UNSUPPORTED, RAD_E_NOMEM. */
rad_status hi_begin_script(rad_cache *cache);

/* What the next call of the cache finds, in order. RAD_E_LIMIT: more than there are tickets. */
rad_status hi_add_to_script(rad_cache *cache, const hi_completion *done);

/* After that call: how much of it did not happen, since no such transfer was under way or nobody
 * looked that often. It is forgotten. */
uint32_t hi_end_of_call(rad_cache *cache);

#endif
