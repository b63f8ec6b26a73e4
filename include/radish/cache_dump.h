/* cache_dump.h - looking at all of a cache: as slots, as text for a person, as JSON.
 *
 * Dumps are written through a callback, in small pieces, and use no memory. */
#ifndef RADISH_CACHE_DUMP_H
#define RADISH_CACHE_DUMP_H

#include <radish/cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every cached slot, node after node, parents first. *count is how many there are; only
 * the first `max` are written. O(everything). */
RAD_API rad_status rad_cache_all_values_flatten(const rad_cache *cache, rad_slot *slots,
                                                uint64_t max, uint64_t *count);

/* Takes a piece of the dump, which is not terminated. A status other than RAD_OK ends the
 * dump, which answers with it. */
typedef rad_status (*rad_cache_write_fn)(void *user, const char *text, size_t bytes);

typedef enum rad_cache_dump_format {
    RAD_CACHE_DUMP_TEXT = 0, /* SGLang's pretty_print */
    RAD_CACHE_DUMP_JSON = 1
} rad_cache_dump_format;

/* Text: a line per node, two spaces per level: key length, first ten tokens, lock_ref;
 * then the total.
 *
 *     2 [1, 2] r=1
 *       1 [3] r=0
 *     #tokens: 3
 *
 * With states, " s=7" behind a node with the snapshot 7, and in JSON state, 0 for none.
 *
 * JSON: one object: page_size, is_eagle, total_tokens, evictable_tokens, protected_tokens
 * and nodes[] of node, parent (null below a root), namespace (a number), extra_key, cache_salt
 * (below a root only; null when absent), num_tokens, tokens[], pages[], lock_ref, hit_count,
 * priority, last_access. Under is_eagle tokens has one entry more: pair i is tokens[i],
 * tokens[i + 1]. Names are escaped byte by byte, so the text is ASCII whatever they are. */
RAD_API rad_status rad_cache_dump(const rad_cache *cache, uint32_t format,
                                  rad_cache_write_fn write, void *user);

#ifdef __cplusplus
}
#endif
#endif
