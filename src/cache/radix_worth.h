/* radix_worth.h - what only the policies cost and user need to know of a node: its heat, and how
 * far from the root it is. */
#ifndef CACHE_RADIX_WORTH_H
#define CACHE_RADIX_WORTH_H

#include "cache/radix_tree.h"

/* Adds the part to a tree without nodes; heat halves with each so many pages added. False: no
 * memory. */
bool worth_init(radix_tree *t, uint64_t half_life);

/* `pages` pages have come; the clock of heat counts them. */
void worth_pages_came(radix_tree *t, uint32_t pages);

#endif
