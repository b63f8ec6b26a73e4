/* weights_ahead.h - asks for a model file's bytes ahead of those who pack them.
 *
 * A thread of its own goes over the tensors in the order in which they will be packed, and asks the
 * system to read what lies up to `window` bytes further on than the packing has come. So the disk
 * reads while threads compute, and a file larger than the free memory does not push out what was
 * asked for and not yet packed. Asking is advice: without the thread the bytes are the same, later.
 *
 *     weights_ahead_note ...    once a field, in the order of loading
 *     weights_ahead_start       the thread
 *     weights_ahead_advance ... by those who pack, from any thread
 *     weights_ahead_fini        ends the thread */
#ifndef MODEL_WEIGHTS_AHEAD_H
#define MODEL_WEIGHTS_AHEAD_H

#include "gguf/gguf.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WEIGHTS_AHEAD_PARTS = 3, WEIGHTS_AHEAD_PIECE = 4 << 20, WEIGHTS_AHEAD_BYTES = 192 << 20 };

/* Tensors of `count` slices each: the first slice of each, then the second of each ... */
typedef struct ahead_field {
    const gguf_tensor *tensors[WEIGHTS_AHEAD_PARTS];
    uint32_t num_tensors, count;
} ahead_field;

typedef struct weights_ahead {
    rad_env env;
    const gguf_file *file;
    ahead_field *fields;
    size_t num_fields, room;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    atomic_uint_fast64_t packed, asked; /* bytes of the file */
    uint64_t window;                    /* asked is less than so much and a piece ahead of packed */
    bool started, stopped;
} weights_ahead;

/* Room for `fields` of them, a window of WEIGHTS_AHEAD_BYTES; RAD_E_NOMEM. */
rad_status weights_ahead_init(weights_ahead *a, const rad_env *env, const gguf_file *file,
                              size_t fields, rad_error *err);

/* Before the start. One more than there is room for is not asked for. */
void weights_ahead_note(weights_ahead *a, const ahead_field *field);

void weights_ahead_start(weights_ahead *a);

/* So many bytes more were packed. */
void weights_ahead_advance(weights_ahead *a, uint64_t bytes);

void weights_ahead_fini(weights_ahead *a); /* one that is all zeros, too */

#endif
