/* device_guarded.c - memory behind a wall; see the header. */
#define _GNU_SOURCE
#include "gear/device_guarded.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* What a thread began and has not fenced: the rows' places, resolved. */
typedef struct late_row {
    char *to;
    const char *from;
    size_t bytes;
} late_row;

static _Thread_local late_row *late;
static _Thread_local size_t num_late, room_late;

static void *guarded_alloc(rad_device *self, size_t bytes)
{
    device_guarded *d = (device_guarded *)self;
    if (!bytes) return NULL;
    int fd = memfd_create("guarded", 0);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) abort();
    char *seen = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    char *real = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (seen == MAP_FAILED || real == MAP_FAILED) abort();
    pthread_mutex_lock(&d->lock);
    uint32_t i = 0;
    while (i < GUARDED_BLOCKS && d->blocks[i].seen)
        i++;
    if (i == GUARDED_BLOCKS) abort();
    d->blocks[i].seen = seen;
    d->blocks[i].real = real;
    d->blocks[i].bytes = bytes;
    d->num_blocks = RAD_MAX(d->num_blocks, i + 1);
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_add(&d->bytes, bytes);
    return seen;
}

static void guarded_free(rad_device *self, void *memory, size_t bytes)
{
    device_guarded *d = (device_guarded *)self;
    if (!memory) return;
    pthread_mutex_lock(&d->lock);
    uint32_t i = 0;
    while (i < GUARDED_BLOCKS && d->blocks[i].seen != memory)
        i++;
    if (i == GUARDED_BLOCKS || d->blocks[i].bytes != bytes) abort();
    munmap(d->blocks[i].seen, bytes);
    munmap(d->blocks[i].real, bytes);
    d->blocks[i].seen = NULL;
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_sub(&d->bytes, bytes);
}

static void *guarded_alloc_pinned(rad_device *self, size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!memory) return NULL;
    memset(memory, 0, bytes);
    atomic_fetch_add(&((device_guarded *)self)->pinned_bytes, bytes);
    return memory;
}

static void guarded_free_pinned(rad_device *self, void *memory, size_t bytes)
{
    if (memory) atomic_fetch_sub(&((device_guarded *)self)->pinned_bytes, bytes);
    free(memory);
}

/* Where the device reaches what is at `place`: host memory is where it is. */
static char *real_of(device_guarded *d, char *place, size_t bytes)
{
    char *real = place;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < d->num_blocks; i++) {
        char *seen = d->blocks[i].seen;
        if (!seen || place < seen || place >= seen + d->blocks[i].bytes) continue;
        if (bytes > (size_t)(seen + d->blocks[i].bytes - place)) abort();
        real = d->blocks[i].real + (place - seen);
    }
    pthread_mutex_unlock(&d->lock);
    return real;
}

static char *row_at(const rad_device_rows *r, uint32_t i)
{
    return (char *)r->base + (size_t)(r->indices ? (uint32_t)r->indices[i] : i) * r->stride;
}

static rad_status guarded_copy_rows(rad_device *self, const rad_device_rows *dst,
                                    const rad_device_rows *src, size_t row_bytes, uint32_t count)
{
    device_guarded *d = (device_guarded *)self;
    if (num_late + count > room_late) {
        room_late = 2 * (num_late + count);
        late = realloc(late, room_late * sizeof *late);
        if (!late) abort();
    }
    for (uint32_t i = 0; i < count; i++)
        late[num_late++] = (late_row){real_of(d, row_at(dst, i), row_bytes),
                                      real_of(d, row_at(src, i), row_bytes), row_bytes};
    atomic_fetch_add(&d->rows, count);
    atomic_fetch_add(&d->calls, 1);
    return RAD_OK;
}

static rad_status guarded_fence(rad_device *self)
{
    for (size_t i = 0; i < num_late; i++)
        memcpy(late[i].to, late[i].from, late[i].bytes);
    free(late);
    late = NULL;
    num_late = room_late = 0;
    atomic_fetch_add(&((device_guarded *)self)->fences, 1);
    return RAD_OK;
}

static const rad_device_ops guarded_ops = {.struct_size = sizeof guarded_ops,
                                           .name = "guarded",
                                           .alloc = guarded_alloc,
                                           .free = guarded_free,
                                           .alloc_pinned = guarded_alloc_pinned,
                                           .free_pinned = guarded_free_pinned,
                                           .copy_rows = guarded_copy_rows,
                                           .fence = guarded_fence};

void device_guarded_init(device_guarded *d)
{
    *d = (device_guarded){.base.ops = &guarded_ops};
    pthread_mutex_init(&d->lock, NULL);
}

bool device_guarded_asked(void)
{
    const char *asked = getenv("RADISH_TEST_GUARDED");
    return asked && *asked;
}
