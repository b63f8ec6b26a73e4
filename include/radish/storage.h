/* storage.h - the third tier: pages that outlive the process, and what a backend must do.
 *
 * A backend is a table of functions over records. A record is one page of all layers with
 * a header in front, always the same number of bytes for one user of a backend:
 *
 *     | header, 128 bytes | K/V of the page, payload_bytes |
 *
 * It is found under a key of 32 bytes:
 *
 *     fingerprint = SHA-256 over what must agree for a page to be usable: the model's own
 *                   digest, store dtype, layout, page size, heads, dims, layers
 *     key         = SHA-256( fingerprint || page hash )           (page_hash.h)
 *
 * The page hash covers all tokens up to the page's end and the namespace, so neither another
 * model nor another salt can ever ask for the same key. A backend treats record and key as
 * opaque bytes. What comes back is verified (rad_storage_verify) before anything is used,
 * whatever the backend: a torn, altered or foreign record is a miss.
 *
 * Whoever writes a backend fills a rad_storage_ops (examples/my_storage_backend.c). */
#ifndef RADISH_STORAGE_H
#define RADISH_STORAGE_H

#include <radish/env.h>
#include <radish/page_hash.h>
#include <radish/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rad_storage_key {
    uint8_t bytes[32];
} rad_storage_key;

enum { RAD_STORAGE_HEADER_BYTES = 128 };

/* What KV events say of where a store's pages are (hicache.h): who routes by them prefers a page on
 * this machine's disk to one across the network. */
typedef enum rad_storage_medium {
    RAD_STORAGE_EXTERNAL = 0, /* "EXTERNAL" */
    RAD_STORAGE_DISK = 1      /* "DISK" */
} rad_storage_medium;

/* One call's worth of records. This struct does not grow. */
typedef struct rad_storage_batch {
    const rad_storage_key *keys; /* [count] */
    void *const *records;        /* [count] of record_bytes each, the caller's; read by set,
                                  * written by get, not looked at by exists */
    size_t record_bytes;
    uint32_t count;
    uint32_t reserved;    /* 0 */
    uint64_t deadline_ns; /* of the env's clock: give up then with what there is; 0: never */
    uint8_t *done;        /* [count] or NULL; 1: this one was read, or is stored now */
} rad_storage_batch;

typedef struct rad_storage_stats {
    uint64_t pages;       /* there now, as far as the backend knows; 0 when it cannot say */
    uint64_t bytes;       /* of them */
    uint64_t max_bytes;   /* budget; 0: none */
    uint64_t gets;        /* records asked for, and so on since open */
    uint64_t hits;        /* records handed out */
    uint64_t sets;        /* records accepted as new */
    uint64_t evicted;     /* records given up for the budget or by the store's own rules */
    uint64_t quarantined; /* records found bad and put away */
    uint64_t errors;      /* calls that failed */
    uint64_t retries;     /* reconnects, redirections, calls made again */
    uint32_t down;        /* 1: the store cannot be reached; everything is a miss */
    uint32_t reserved;
} rad_storage_stats;

/* What a backend does. Calls come from the transfer workers: several at a time, of any
 * kind, so a backend locks what it shares; close comes last and alone. A failure is a
 * negative status with words and is counted by the caller, who goes on with a miss: no call
 * may block for ever. Functions marked optional may be NULL. */
typedef struct rad_storage_ops {
    size_t struct_size; /* sizeof(rad_storage_ops) */
    const char *name;   /* "file", "redis"; lives as long as the table */

    /* How many of the keys are there, counted from the first until one is missing. A wrong
     * answer does no harm but costs time. */
    rad_status (*batch_exists)(void *self, const rad_storage_batch *batch, uint32_t *present,
                               rad_error *err);

    /* Reads records; `done` says which came whole. A missing one is no error. */
    rad_status (*batch_get)(void *self, const rad_storage_batch *batch, rad_error *err);

    /* Stores records; `done` says which are there for good (acknowledged), by this call or
     * from earlier. The same key always means the same page: one that is there may be left
     * as it is. RAD_FULL: no room and nothing can be evicted. */
    rad_status (*batch_set)(void *self, const rad_storage_batch *batch, rad_error *err);

    /* Optional: a record that did not verify goes, so that it is not asked for again. */
    rad_status (*remove)(void *self, const rad_storage_key *key, rad_error *err);

    /* Optional: forgets all of it. */
    rad_status (*clear)(void *self, rad_error *err);

    /* Optional: on return, what was accepted is as durable as it will be. */
    rad_status (*flush)(void *self, rad_error *err);

    void (*get_stats)(void *self, rad_storage_stats *stats); /* optional */
    void (*close)(void *self);

    /* Optional; any thread: a clear that is under way ends soon, in an error, and so does a later
     * one. Called before close, by a process that is to end. */
    void (*end_clear)(void *self);

    uint32_t medium;   /* rad_storage_medium */
    uint32_t reserved; /* 0 */
} rad_storage_ops;

/* A backend that is open. Plain values; who opened it closes it, through ops->close. */
typedef struct rad_storage {
    const rad_storage_ops *ops;
    void *self;
} rad_storage;

/* What must agree between who wrote a page and who reads it. Zero what does not apply. */
typedef struct rad_storage_identity {
    size_t struct_size; /* sizeof(rad_storage_identity) */
    const char *model;  /* a digest or name of the weights; must not be NULL */
    const char *build;  /* whose arithmetic wrote it, when bits depend on that; or NULL */
    uint32_t dtype;     /* rad_dtype of the pool */
    uint32_t kind;      /* rad_kv_kind */
    uint32_t page_size; /* tokens */
    uint32_t num_layers;
    uint32_t start_layer;
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint32_t v_head_dim;
    uint32_t is_eagle; /* keys are bigrams */
    uint32_t reserved; /* 0 */
} rad_storage_identity;

typedef struct rad_storage_fingerprint {
    uint8_t bytes[32];
} rad_storage_fingerprint;

/* RAD_E_INVAL without a model; RAD_E_UNSUPPORTED when libcrypto offers no SHA-256. */
RAD_API rad_status rad_storage_fingerprint_of(const rad_storage_identity *identity,
                                              rad_storage_fingerprint *out, rad_error *err);

/* The key of a page. About 0.3 us. RAD_E_UNSUPPORTED: libcrypto failed. Any thread. */
RAD_API rad_status rad_storage_key_of(const rad_storage_fingerprint *fingerprint,
                                      const rad_page_hash *page, rad_storage_key *key);

/* What a record says of itself. */
typedef struct rad_storage_record {
    rad_storage_key key;
    rad_storage_fingerprint fingerprint;
    uint64_t namespace_digest; /* the first 8 bytes of the namespace's seed; 0: default */
    uint32_t num_tokens;       /* in the page */
    uint32_t reserved;         /* 0 */
    uint64_t payload_bytes;
} rad_storage_record;

/* Writes the header in front of payload_bytes that lie at record + 128 already: magic,
 * version, all of `about`, checksums of payload and header. O(payload). Any thread. */
RAD_API void rad_storage_seal(void *record, const rad_storage_record *about);

/* What the first RAD_STORAGE_HEADER_BYTES of a record say; the payload is not looked at, so
 * this tells whose a page is and not that it is whole. RAD_E_FORMAT in words when they are no
 * header, a damaged one, or of another version. O(1). Any thread. */
RAD_API rad_status rad_storage_peek(const void *header, rad_storage_record *about, rad_error *err);

/* RAD_OK when the record is whole: magic, version, both checksums, and a length that goes
 * with record_bytes; `about` (may be NULL) is filled then. `key` and `fingerprint`, where
 * not NULL, must be the record's. RAD_E_FORMAT in words otherwise. O(payload), about the
 * speed of memory. Any thread. */
RAD_API rad_status rad_storage_verify(const void *record, size_t record_bytes,
                                      const rad_storage_key *key,
                                      const rad_storage_fingerprint *fingerprint,
                                      rad_storage_record *about, rad_error *err);

#ifdef __cplusplus
}
#endif
#endif
