/* answer_counts.h - how many answers each endpoint gave, by status.
 *
 * Paths that are none of ours are one endpoint, and so are requests that were refused before they
 * were whole: so strangers cannot make this grow. The server's thread only. */
#ifndef SERVER_ANSWER_COUNTS_H
#define SERVER_ANSWER_COUNTS_H

#include <stdint.h>

enum { ANSWER_ENDPOINTS = 64, ANSWER_CODES = 24 }; /* room; each has one for all others */

typedef struct answer_counts {
    uint64_t of[ANSWER_ENDPOINTS][ANSWER_CODES];
} answer_counts;

/* status 0: the client had left. */
void answer_counts_add(answer_counts *c, uint32_t endpoint, int status);

/* Of a column: "200"; "0": the client had left; "other". */
const char *answer_code_name(uint32_t code);

#endif
