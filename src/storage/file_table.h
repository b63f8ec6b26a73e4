/* file_table.h - what a file store holds, in memory: key -> slot, in the order of use.
 *
 * The table is the sum of the entries of the store's index (file_log.h), applied one after
 * the other. Every process that uses the store applies the same entries and so has the same
 * table. A slot is a place for one record in a data file; records of one size share a file
 * and form a class:
 *
 *     class 0, 16512 bytes  | page | page | free | taken by a writer | page |
 *     class 1, 1056896 bytes| page | free | page |
 *
 * An index is not believed: a class has at most as many slots as its data file has records, plus
 * those that writers may have taken behind its end, and a page lies within the file. So what a few
 * bytes of index cost is bounded by what they are an index of.
 *
 * Invariant, verified by file_table_check(): each slot of a class is free, or taken by one
 * writer, or holds one page; each page is in the hash, and once in the list of use. */
#ifndef STORAGE_FILE_TABLE_H
#define STORAGE_FILE_TABLE_H

#include <assert.h>
#include <radish/storage.h>

#include "base/base.h"

enum {
    FILE_CLASSES = 64,         /* record sizes in one store */
    FILE_MAX_SLOTS = 1u << 28, /* of a class */
    FILE_AHEAD = 1u << 16,     /* slots that writers may have taken behind a file's end: 2048
                                * callers with FILE_CHUNK records each; 256 KB a class */
    FILE_NONE = UINT32_MAX,    /* no page, no slot, no class */
    FILE_ENTRY_BYTES = 64
};

typedef enum file_op {
    FILE_CLASS = 1, /* class `class_` has records of record_bytes, in `slot` slots or more */
    FILE_TAKE,      /* `slot` is being written by `owner` */
    FILE_RELEASE,   /* and will not be */
    FILE_PUT,       /* `slot` holds the page `key` */
    FILE_DROP,      /* the page `key` is gone, and its slot free */
    FILE_TOUCH,     /* the page `key` was used */
    FILE_CLEAR      /* all pages are gone; what is being written stays */
} file_op;

typedef struct file_entry {
    uint64_t sum; /* file_log.c fills and checks it */
    uint32_t slot;
    uint16_t class_;
    uint8_t op;
    uint8_t owner;
    uint64_t seq;        /* of a put: no two have the same */
    uint32_t made, used; /* seconds since 1970 */
    union {
        rad_storage_key key;
        uint64_t record_bytes;
    };
} file_entry;

typedef struct file_page {
    rad_storage_key key;
    uint64_t seq;
    uint32_t slot;
    uint16_t class_;
    uint16_t touched; /* for who uses the table; 0 after a put */
    uint32_t made, used;
    uint32_t older, newer; /* neighbours in the order of use */
} file_page;
static_assert(sizeof(file_page) == 64 && sizeof(file_entry) == FILE_ENTRY_BYTES, "");

typedef struct file_class {
    uint64_t record_bytes; /* 0: no such class */
    uint64_t stride;       /* bytes from slot to slot */
    uint32_t *slots;       /* page index; or FILE_SLOT_FREE, or FILE_SLOT_TAKEN + owner */
    uint32_t num_slots, cap_slots;
    uint32_t first_free; /* no slot below is free */
    uint32_t num_pages;
    uint64_t records; /* the data file had room for so many when it was looked at */
} file_class;

enum { FILE_SLOT_FREE = UINT32_MAX, FILE_SLOT_TAKEN = 0x80000000u };

typedef struct file_table {
    const rad_env *env;
    uint64_t (*records)(void *user, uint64_t record_bytes); /* room in a data file; NULL: any */
    void *user;
    file_page *pages; /* grows by doubling; free ones are linked by `newer` */
    uint32_t cap_pages, num_pages, free_page, used_pages;
    uint32_t *hash; /* page + 1, or 0; linear probing, at most half full */
    uint32_t hash_mask;
    uint32_t oldest, newest;
    file_class classes[FILE_CLASSES];
    uint64_t bytes;   /* of all pages and of what is being written, in strides */
    uint64_t max_seq; /* of any entry seen */
    uint32_t num_taken;
} file_table;

void file_table_init(file_table *t, const rad_env *env);
void file_table_reset(file_table *t); /* empty; memory goes back. Also the end of a table */

/* The page of a key, or FILE_NONE. */
uint32_t file_table_find(const file_table *t, const rad_storage_key *key);

/* Adds one entry. RAD_E_NOMEM: nothing changed. RAD_E_FORMAT: it makes no sense (a slot of
 * no class, a page behind the end of its file), and nothing changed. A page or a slot that is there
 * already is replaced, so that a damaged index gives a wrong page at worst, which its key then
 * betrays. O(1). */
rad_status file_table_apply(file_table *t, const file_entry *e);

/* The class with these record_bytes, or FILE_NONE. */
uint32_t file_table_class(const file_table *t, uint64_t record_bytes);

/* The lowest free slot, which may be the one past the last. */
uint32_t file_table_free_slot(file_table *t, uint32_t class_);

/* Bytes from slot to slot. */
uint64_t file_stride(uint64_t record_bytes);

/* RAD_E_CORRUPT in words when the invariant is broken. O(all). */
rad_status file_table_check(const file_table *t, rad_error *err);

#endif
