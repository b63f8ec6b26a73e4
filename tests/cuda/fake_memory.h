/* fake_memory.h - memory of the fake GPU, and pinned memory of the host. Callers hold the driver's
 * lock. */
#ifndef TESTS_CUDA_FAKE_MEMORY_H
#define TESTS_CUDA_FAKE_MEMORY_H

#include "emulator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void memory_set_total(size_t bytes);
size_t memory_total(void);
size_t memory_used(void);
size_t memory_pinned(void);
void memory_reset(void); /* frees everything */

void *memory_alloc(size_t bytes); /* aligned to 512; NULL: too little is left */
bool memory_free(void *memory);   /* false: it is no allocation's begin */

/* From begin to end device memory can be read and written. They nest. */
void memory_window_begin(void);
void memory_window_end(void);

/* Remembers what is in device memory; and what of it has changed since, whose number is returned.
 * Both inside a window. Nothing is compared where memory was allocated or freed since. */
void memory_remember(void);
uint32_t memory_compare(const emulator_stale **out);

/* All of device memory as what blocks share, whose number is returned. */
uint32_t memory_share(const emulator_shared **out);

void *pinned_alloc(size_t bytes);
bool pinned_free(void *memory); /* false: it is no allocation's begin */

typedef enum memory_kind { MEMORY_OTHER, MEMORY_PINNED, MEMORY_DEVICE } memory_kind;

/* What all of these bytes are; MEMORY_OTHER where they are not one allocation's. */
memory_kind memory_kind_of(const void *memory, size_t bytes);
bool memory_is_arena(const void *memory); /* device memory, allocated or not */

#endif
