/* radish.h - all of libradish, and which one it is.
 *
 *     status.h              yes, no, and why
 *     env.h                 memory, time, log and panic, all replaceable
 *     types.h               page, slot, row, ref
 *     kv_allocator.h        who has which page, and what of it sliding-window layers still need
 *     free_list.h           or an engine's own free pages in its place
 *     req_to_token_pool.h   a row per running request: position -> slot
 *     token_to_kv_pool.h    the memory behind the slots (mla_kv_pool.h for MLA)
 *     state_pool.h          what layers without K/V carry from token to token
 *     device.h              where that memory lives, a GPU of yours included
 *     device_cuda.h         an NVIDIA GPU as one
 *     host_kv_pool.h        and behind the pages of the second tier
 *     cache.h               which pages a prompt can reuse
 *     evict_policy.h        in which order they are given up, yours included
 *     retention.h           and what is to be kept longer
 *     session.h             conversations that come back turn by turn
 *     page_hash.h           the names of pages, chained SHA-256
 *     hicache.h             the same over several tiers: pages that go to the host and come back
 *     storage.h             the third tier: what a storage backend must do
 *     kv_events.h           what entered and left, for routers that follow
 *     explain.h             where a match ends, and why
 *     hicache_explain.h     the same over all tiers
 *
 * The storage backends that come with radish (storage_file.h, storage_redis.h) are in
 * libradish-storage and not included here.
 *
 * Versions are MAJOR.MINOR.PATCH. While MAJOR is 0, a new MINOR may change the ABI although
 * the soname stays libradish.so.0; a new PATCH never does. Params structs begin with their
 * size and only grow at their end, so a program and a library of one MINOR go together
 * whichever is older. Structs without a size (rad_cache_stats, rad_req_kv, rad_match, ...)
 * change with MINOR only. CMake reads the version from here. */
#ifndef RADISH_RADISH_H
#define RADISH_RADISH_H

#include <radish/cache.h>
#include <radish/cache_dump.h>
#include <radish/device.h>
#include <radish/device_cuda.h>
#include <radish/env.h>
#include <radish/evict_policy.h>
#include <radish/explain.h>
#include <radish/free_list.h>
#include <radish/hicache.h>
#include <radish/hicache_explain.h>
#include <radish/host_kv_pool.h>
#include <radish/kv_allocator.h>
#include <radish/kv_events.h>
#include <radish/match_handle.h>
#include <radish/mla_kv_pool.h>
#include <radish/page_hash.h>
#include <radish/partial_page.h>
#include <radish/req_to_token_pool.h>
#include <radish/retention.h>
#include <radish/session.h>
#include <radish/state_pool.h>
#include <radish/status.h>
#include <radish/storage.h>
#include <radish/token_to_kv_pool.h>
#include <radish/types.h>

#define RAD_VERSION_MAJOR 0
#define RAD_VERSION_MINOR 2
#define RAD_VERSION_PATCH 0

/* One number that grows: compare it with rad_version(). */
#define RAD_VERSION (RAD_VERSION_MAJOR * 10000 + RAD_VERSION_MINOR * 100 + RAD_VERSION_PATCH)

#define RAD_VERSION_QUOTE_(x) #x
#define RAD_VERSION_TEXT_(major, minor, patch)                                                     \
    RAD_VERSION_QUOTE_(major) "." RAD_VERSION_QUOTE_(minor) "." RAD_VERSION_QUOTE_(patch)
#define RAD_VERSION_STRING                                                                         \
    RAD_VERSION_TEXT_(RAD_VERSION_MAJOR, RAD_VERSION_MINOR, RAD_VERSION_PATCH) /* "0.2.0" */

#ifdef __cplusplus
extern "C" {
#endif

/* RAD_VERSION of the library that the program runs with, which may be another than the one
 * it was compiled against. Any thread; O(1). */
RAD_API uint32_t rad_version(void);

/* The same for people: "0.2.0". The library's own text, never NULL. Any thread; O(1). */
RAD_API const char *rad_version_string(void);

#ifdef __cplusplus
}
#endif
#endif
