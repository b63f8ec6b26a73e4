/* swap_pages.h - damage that must show: two cached pages exchange their K/V. */
#ifndef GEAR_SWAP_PAGES_H
#define GEAR_SWAP_PAGES_H

#include "engine/engine_impl.h"
#include "sched/scheduler_impl.h"

/* The pages under position pos_a of key `a` and pos_b of `b`, as the tree has them now. RAD_NONE:
 * one of them is not cached. */
rad_status gear_swap_pages(scheduler *s, const rad_key *a, uint32_t pos_a, const rad_key *b,
                           uint32_t pos_b);

/* The same on an engine's scheduler thread. */
rad_status gear_engine_swap_pages(engine *e, const rad_key *a, uint32_t pos_a, const rad_key *b,
                                  uint32_t pos_b);

#endif
