/* radix_key.h - token keys: how far two agree, and where a page's child is found.
 *
 * A child is named by the hash of (parent, first page); a hash only proposes, the
 * tokens decide. Everything here counts raw tokens; callers round to pages. */
#ifndef CACHE_RADIX_KEY_H
#define CACHE_RADIX_KEY_H

#include <radish/types.h>

#include "base/base.h"

/* The number of leading tokens in which a and b agree, at most `count`. */
uint32_t key_match_len(const rad_token *a, const rad_token *b, uint32_t count);

/* The hash under which the child of `parent` that begins with this page is found. */
uint32_t key_child_hash(uint32_t parent, const rad_token *page, uint32_t page_size);

/* The hash of a namespace's two names; NULL, "" and "a" differ. */
uint32_t key_namespace_hash(const char *extra_key, const char *cache_salt);

#endif
