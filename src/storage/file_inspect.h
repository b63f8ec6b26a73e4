/* file_inspect.h - looking into a file store from outside, while others may use it. */
#ifndef STORAGE_FILE_INSPECT_H
#define STORAGE_FILE_INSPECT_H

#include "storage/file_store.h"

enum { FILE_INSPECT_MODELS = 256 };

/* The pages of one model (one fingerprint) and record size. */
typedef struct file_inspect_model {
    rad_storage_fingerprint fingerprint;
    uint64_t record_bytes;
    uint64_t pages, bytes, tokens;
    uint64_t bad;        /* of the pages */
    uint32_t used_first; /* seconds since 1970: the page used longest ago */
    uint32_t used_last;
} file_inspect_model;

typedef struct file_inspection {
    uint64_t pages, bytes, bad, quarantined, busy; /* busy: slots being written now */
    uint64_t pruned;
    uint32_t num_models; /* those after the 256th are only in the totals */
    file_inspect_model models[FILE_INSPECT_MODELS];
} file_inspection;

typedef struct file_inspect_options {
    bool verify;    /* read every record whole; else its header only */
    bool prune_bad; /* and put the bad ones into quarantine */
    bool has_prune;
    uint64_t prune_bytes; /* give up the pages used longest ago beyond this */
} file_inspect_options;

/* Whether the directory looks like a store: RAD_OK, or RAD_E_IO / RAD_E_FORMAT in words. Nothing
 * is made or changed. */
rad_status file_inspect_is_store(const char *dir, rad_error *err);

/* One look at an open store; O(pages) small reads, or all of it with `verify`. Bad pages have
 * the fingerprint that their header gives, or zero. */
rad_status file_inspect(file_store *s, const file_inspect_options *o, file_inspection *out,
                        rad_error *err);

#endif
