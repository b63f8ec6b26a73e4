/* weights_ahead.c - see weights_ahead.h.
 *
 * What was asked for is counted as what was packed is, from the first field on, so their difference
 * is what waits in the page cache. A piece is small enough for the disk to be asked early, and
 * large enough for it to read in runs. */
#include "model/weights_ahead.h"

#include "base/base.h"

/* Waits until less than the window was asked for ahead; false: no more is wanted. */
static bool wait_for_room(weights_ahead *a)
{
    pthread_mutex_lock(&a->mutex);
    while (!a->stopped && atomic_load(&a->asked) >= atomic_load(&a->packed) + a->window)
        pthread_cond_wait(&a->moved, &a->mutex);
    const bool go_on = !a->stopped;
    pthread_mutex_unlock(&a->mutex);
    return go_on;
}

static void *ask(void *arg)
{
    weights_ahead *a = arg;
    for (size_t i = 0; i < a->num_fields; i++) {
        const ahead_field *f = &a->fields[i];
        for (uint32_t slice = 0; slice < f->count; slice++)
            for (uint32_t t = 0; t < f->num_tensors; t++) {
                const uint64_t bytes = f->tensors[t]->bytes / f->count, first = slice * bytes;
                for (uint64_t at = 0; at < bytes; at += WEIGHTS_AHEAD_PIECE) {
                    const uint64_t some = RAD_MIN(bytes - at, (uint64_t)WEIGHTS_AHEAD_PIECE);
                    if (!wait_for_room(a)) return NULL;
                    gguf_will_need(a->file, f->tensors[t], first + at, some);
                    atomic_fetch_add(&a->asked, some);
                }
            }
    }
    return NULL;
}

rad_status weights_ahead_init(weights_ahead *a, const rad_env *env, const gguf_file *file,
                              size_t fields, rad_error *err)
{
    *a = (weights_ahead){.env = *env, .file = file, .room = fields, .window = WEIGHTS_AHEAD_BYTES};
    a->fields = rad_alloc(env, rad_mul(fields, sizeof *a->fields));
    if (a->fields) return RAD_OK;
    *a = (weights_ahead){0};
    return rad_fail(err, RAD_E_NOMEM, "model: no memory for the order of %zu tensors", fields);
}

void weights_ahead_note(weights_ahead *a, const ahead_field *field)
{
    if (a->num_fields < a->room) a->fields[a->num_fields++] = *field;
}

void weights_ahead_start(weights_ahead *a)
{
    pthread_mutex_init(&a->mutex, NULL);
    pthread_cond_init(&a->moved, NULL);
    a->started = pthread_create(&a->thread, NULL, ask, a) == 0;
    if (a->started) return;
    pthread_cond_destroy(&a->moved);
    pthread_mutex_destroy(&a->mutex);
}

void weights_ahead_advance(weights_ahead *a, uint64_t bytes)
{
    atomic_fetch_add(&a->packed, bytes);
    if (!a->started) return;
    /* With the mutex, lest the thread has just looked and not yet waited. */
    pthread_mutex_lock(&a->mutex);
    pthread_cond_signal(&a->moved);
    pthread_mutex_unlock(&a->mutex);
}

void weights_ahead_fini(weights_ahead *a)
{
    if (a->started) {
        pthread_mutex_lock(&a->mutex);
        a->stopped = true;
        pthread_cond_signal(&a->moved);
        pthread_mutex_unlock(&a->mutex);
        pthread_join(a->thread, NULL);
        pthread_cond_destroy(&a->moved);
        pthread_mutex_destroy(&a->mutex);
    }
    rad_free(&a->env, a->fields, a->room * sizeof *a->fields);
    *a = (weights_ahead){0};
}
