/* record_write.h - operations become the bytes of a record (record_format.h).
 *
 * One thread. Operations come with the hashes of their whole chain of pages, or of those behind one
 * that is known; which of them the file has named already the writer finds in a table of bounded
 * size: a page that is forgotten there is named again, which readers notice. */
#ifndef TRACE_RECORD_WRITE_H
#define TRACE_RECORD_WRITE_H

#include "trace/record_format.h"

enum {
    RECORD_PAGES_KNOWN = 1 << 20,     /* the newest so many at least; 64 bytes each at most */
    RECORD_NAMESPACES_KNOWN = 1 << 16 /* likewise */
};

typedef struct record_writer record_writer;

/* `known_pages`: of the table; 0: RECORD_PAGES_KNOWN. NULL: no memory. */
record_writer *record_writer_create(const rad_env *env, uint32_t known_pages);
void record_writer_destroy(record_writer *w); /* NULL is fine */

/* The magic and the first frame. False: no memory, as below; then nothing was added. */
bool record_write_head(record_writer *w, const record_head *head);

/* Adds an operation to the frame that is being made. Its chain is hashes[0..count), behind the page
 * of the hash `before` where that is not 0; op->page and op->num_pages are not looked at. A
 * `before` that is no longer known is written down as RECORD_LOST of one operation instead. */
bool record_write(record_writer *w, const record_op *op, uint64_t before, const uint64_t *hashes,
                  uint32_t count);

/* The number of the namespace with this hash (0: the one without names, number 0), which is written
 * down first where it is new; UINT32_MAX: no memory. */
uint32_t record_write_namespace(record_writer *w, uint64_t hash, uint64_t time_us);

/* The frame is complete: with its head in *bytes, valid until the next call. *len 0: it is empty.
 */
void record_write_frame(record_writer *w, const uint8_t **bytes, size_t *len);

/* The last frame, likewise. */
bool record_write_end(record_writer *w, record_end why, const uint8_t **bytes, size_t *len);

#endif
