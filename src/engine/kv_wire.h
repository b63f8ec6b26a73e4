/* kv_wire.h - KV events in the form that routers read: msgpack batches as SGLang and vLLM send.
 *
 *     [ts, [event, event, ...], data-parallel rank]
 *
 *     KV_WIRE_ARRAY  ["BlockStored", [hash], parent | nil, [token], block_size, lora_id, medium]
 *                    ["BlockRemoved", [hash], medium]        ["AllBlocksCleared"]
 *     KV_WIRE_MAP    the same as maps with the key "type", the newer form of both
 *
 * A block of another namespace than the default one names it: an eighth element, {"cache_salt":
 * "16 hex digits"}, or that key of the map. The digits are those of rad_kv_event.namespace_id,
 * which a router computes from extra_key and cache_salt as page_hash.h says; the names themselves
 * are secrets and are never sent.
 *
 * No batch is longer than KV_WIRE_BATCH_BYTES, unless a single block is: a chain of blocks that
 * would not fit goes on in the next batch, with the last hash of the first part as its parent. */
#ifndef ENGINE_KV_WIRE_H
#define ENGINE_KV_WIRE_H

#include <radish/kv_events.h>

#include "base/base.h"

typedef enum kv_wire_form { KV_WIRE_ARRAY, KV_WIRE_MAP } kv_wire_form;

enum { KV_WIRE_BATCH_BYTES = 64 << 10 };

typedef struct kv_wire_params {
    kv_wire_form form;
    uint32_t dp_rank;
    uint32_t block_tokens; /* token ids of the largest block */
    void (*on_batch)(void *user, const uint8_t *bytes, size_t len); /* a whole one; copied there */
    void *user;
} kv_wire_params;

/* A batch that is being written. */
typedef struct kv_wire {
    kv_wire_params params;
    uint8_t *bytes;
    size_t size, len;    /* of bytes; written: 0 = no event yet */
    size_t count_at;     /* where the number of events will stand */
    uint32_t num_events; /* of this batch */
} kv_wire;

/* RAD_E_NOMEM: and nothing is to be given back. */
rad_status kv_wire_init(kv_wire *w, const rad_env *env, const kv_wire_params *params);
void kv_wire_fini(kv_wire *w, const rad_env *env); /* a zeroed one is fine */

/* Appends an event; on_batch is called for each batch that became full. RAD_KV_LOST is none of the
 * wire's events and is ignored. The time is that of the batch's first event. */
void kv_wire_add(kv_wire *w, const rad_kv_event *event);

/* on_batch for what has been added since, if anything. */
void kv_wire_end(kv_wire *w);

#endif
