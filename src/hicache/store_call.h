/* store_call.h - which of the optional calls a store's table has: a table compiled against an older
 * header is shorter. */
#ifndef HICACHE_STORE_CALL_H
#define HICACHE_STORE_CALL_H

#include <radish/storage.h>

#include "base/base.h"

#define STORE_HAS(ops, call)                                                                       \
    ((ops)->struct_size >= offsetof(rad_storage_ops, call) + sizeof(ops)->call && (ops)->call)

#endif
