/* byte_buf.c - doubled when full. */
#include "server/byte_buf.h"

#include <stdlib.h>
#include <string.h>

bool byte_buf_append(memory_budget *budget, byte_buf *b, const void *bytes, size_t len)
{
    if (!len) return true;
    if (len > b->cap - b->len) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap - b->len < len)
            cap *= 2;
        if (!memory_budget_take(budget, cap - b->cap)) return false;
        char *data = realloc(b->data, cap);
        if (!data) {
            memory_budget_give(budget, cap - b->cap);
            return false;
        }
        b->data = data;
        b->cap = cap;
    }
    memcpy(b->data + b->len, bytes, len);
    b->len += len;
    return true;
}

void byte_buf_fini(memory_budget *budget, byte_buf *b)
{
    memory_budget_give(budget, b->cap);
    free(b->data);
    *b = (byte_buf){0};
}
