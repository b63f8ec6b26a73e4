/* byte_buf.h - bytes that grow, within what requests may hold. */
#ifndef SERVER_BYTE_BUF_H
#define SERVER_BYTE_BUF_H

#include "base/memory_budget.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct byte_buf {
    char *data;
    size_t len;
    size_t cap;
} byte_buf;

/* False: no memory, or none left of the budget (NULL: no limit); nothing changed. */
bool byte_buf_append(memory_budget *budget, byte_buf *b, const void *bytes, size_t len);
void byte_buf_fini(memory_budget *budget, byte_buf *b);

#endif
