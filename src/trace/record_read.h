/* record_read.h - reads a record (record_format.h) that it does not trust.
 *
 * Operations come one by one, each with its pages named by numbers: equal pages have equal ones,
 * whatever the writer had forgotten of them. Memory: 24 bytes for each page that the file names,
 * and its table; all from the env. The bytes are the caller's and stay as long as the reader. One
 * thread. */
#ifndef TRACE_RECORD_READ_H
#define TRACE_RECORD_READ_H

#include "trace/record_format.h"

typedef struct record_reader record_reader;

/* Do they begin as a record does, of whatever version? */
bool record_is(const void *bytes, uint64_t size);

/* RAD_E_FORMAT in words: it is no record, or not this version's, or its head is damaged;
 * RAD_E_NOMEM. */
rad_status record_open(const rad_env *env, const void *bytes, uint64_t size, record_reader **out,
                       rad_error *err);
void record_close(record_reader *r); /* NULL is fine */

const record_head *record_get_head(const record_reader *r);

/* The next operation. RAD_NONE: there is none; record_get_end says why. RAD_E_FORMAT names the byte
 * of the frame that is damaged, and the operation; RAD_E_NOMEM. After an error there is none. */
rad_status record_next(record_reader *r, record_op *op, rad_error *err);

/* Once there are no more operations. */
record_end record_get_end(const record_reader *r);
uint64_t record_get_lost(const record_reader *r); /* operations, so far */

uint32_t record_num_pages(const record_reader *r); /* so far; numbers go from 1 to this */
uint64_t record_num_ops(const record_reader *r);   /* so far */

/* The pages of the chain that ends with `page` (op->page), op->num_pages of them, first to last. */
void record_chain(const record_reader *r, uint32_t page, uint32_t *pages);

/* The same as runs of numbers of the file, of which each is one more than the one before: calls
 * run(user, first, count) from the last run to the first, until it says no. A page that the
 * writer had forgotten has several numbers in the file: record_page_of tells the first of them. */
typedef bool (*record_run_fn)(void *user, uint32_t first, uint32_t count);
bool record_visit_runs(const record_reader *r, uint32_t page, record_run_fn run, void *user);
uint32_t record_page_of(const record_reader *r, uint32_t number);

#endif
