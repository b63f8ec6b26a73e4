/* file_io.c - reads and writes that are complete or say why not; see file_io.h.
 *
 * A ring is used by one thread at a time; a thread that finds none free reads plainly, and
 * so does everybody when the kernel has no io_uring for us. Writes are always plain: they go
 * to the page cache at the speed of memory, and a ring would hand them to a kernel thread. */
#define _GNU_SOURCE
#include "storage/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t real_pread(void *user, int fd, void *to, size_t bytes, uint64_t offset)
{
    (void)user;
    return pread(fd, to, bytes, (off_t)offset);
}

static ssize_t real_pwrite(void *user, int fd, const void *from, size_t bytes, uint64_t offset)
{
    (void)user;
    return pwrite(fd, from, bytes, (off_t)offset);
}

static int real_sync(void *user, int fd)
{
    (void)user;
    return fdatasync(fd);
}

static int real_rename(void *user, int dir, const char *from, const char *to)
{
    (void)user;
    return renameat(dir, from, dir, to);
}

static int real_punch(void *user, int fd, uint64_t offset, uint64_t bytes)
{
    (void)user;
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

const file_io file_io_real = {NULL, real_pread, real_pwrite, real_sync, real_rename, real_punch};

ssize_t file_read_all(const file_io *io, int fd, void *to, size_t bytes, uint64_t offset)
{
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = io->pread(io->user, fd, (char *)to + got, bytes - got, offset + got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

bool file_write_all(const file_io *io, int fd, const void *from, size_t bytes, uint64_t offset,
                    size_t *written)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n =
            io->pwrite(io->user, fd, (const char *)from + done, bytes - done, offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) break;
        done += (size_t)n;
    }
    if (written) *written = done;
    return done == bytes;
}

enum { RING_DEPTH = 32 };

typedef struct ring {
    pthread_mutex_t lock;
    struct io_uring uring;
    bool broken;
} ring;

struct file_rings {
    rad_env env;
    uint32_t count;
    ring rings[];
};

static size_t rings_bytes(uint32_t count)
{
    return sizeof(file_rings) + count * sizeof(ring);
}

file_rings *file_rings_create(const rad_env *env, uint32_t count)
{
    file_rings *rings = rad_alloc(env, rings_bytes(count));
    if (!rings) return NULL;
    rings->env = *env;
    for (rings->count = 0; rings->count < count; rings->count++) {
        ring *r = &rings->rings[rings->count];
        if (io_uring_queue_init(RING_DEPTH, &r->uring, 0) < 0) break;
        pthread_mutex_init(&r->lock, NULL);
    }
    if (rings->count == count) return rings;
    uint32_t made = rings->count;
    for (uint32_t i = 0; i < made; i++) {
        io_uring_queue_exit(&rings->rings[i].uring);
        pthread_mutex_destroy(&rings->rings[i].lock);
    }
    rad_free(env, rings, rings_bytes(count));
    return NULL;
}

void file_rings_destroy(file_rings *rings)
{
    if (!rings) return;
    for (uint32_t i = 0; i < rings->count; i++) {
        io_uring_queue_exit(&rings->rings[i].uring);
        pthread_mutex_destroy(&rings->rings[i].lock);
    }
    rad_env env = rings->env;
    rad_free(&env, rings, rings_bytes(rings->count));
}

static ring *take_ring(file_rings *rings)
{
    for (uint32_t i = 0; rings && i < rings->count; i++) {
        if (pthread_mutex_trylock(&rings->rings[i].lock)) continue;
        if (!rings->rings[i].broken) return &rings->rings[i];
        pthread_mutex_unlock(&rings->rings[i].lock);
    }
    return NULL;
}

/* The rest of up to RING_DEPTH reads. We leave only when the kernel has finished with all that
 * it took, since it writes into the caller's memory. */
static void read_on_ring(ring *r, file_read **reads, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
        file_read *f = reads[i];
        uint32_t bytes = (uint32_t)RAD_MIN(f->bytes - (size_t)f->got, 1u << 30);
        io_uring_prep_read(sqe, f->fd, (char *)f->to + f->got, bytes, f->offset + (uint64_t)f->got);
        io_uring_sqe_set_data(sqe, f);
    }
    uint32_t taken = 0;
    while (taken < count) {
        int n = io_uring_submit(&r->uring);
        if (n == -EINTR || n == -EAGAIN || n == -EBUSY) continue;
        if (n <= 0) {
            r->broken = true; /* what waits in it must never start */
            break;
        }
        taken += (uint32_t)n;
    }
    for (uint32_t seen = 0; seen < taken;) {
        struct io_uring_cqe *cqe;
        if (io_uring_wait_cqe(&r->uring, &cqe) < 0) continue; /* a signal */
        file_read *read = io_uring_cqe_get_data(cqe);
        read->got += RAD_MAX(cqe->res, 0); /* an error is met again, and named, by pread */
        io_uring_cqe_seen(&r->uring, cqe);
        seen++;
    }
}

/* What is in memory already: reading that through a ring costs twice as much as a plain read
 * (16 KiB records: 47% of pread's rate against 85%), so the ring gets what would wait. */
static void read_cached(file_read *f)
{
#ifdef __GLIBC__
    struct iovec to = {f->to, f->bytes};
    ssize_t n = preadv2(f->fd, &to, 1, (off_t)f->offset, RWF_NOWAIT);
    if (n > 0) f->got = n;
#else
    (void)f; /* musl has preadv2 from 1.2.5 on; the ring reads it all */
#endif
}

void file_read_batch(file_rings *rings, const file_io *io, file_read *reads, uint32_t count)
{
    file_read *waiting[RING_DEPTH];
    uint32_t num_waiting = 0;
    ring *r = count > 1 && io->pread == real_pread ? take_ring(rings) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        file_read *f = &reads[i];
        f->got = 0;
        f->error = 0;
        if (!r) continue;
        read_cached(f);
        if (f->got < (ssize_t)f->bytes) waiting[num_waiting++] = f;
        if (num_waiting == RING_DEPTH || (i + 1 == count && num_waiting)) {
            if (!r->broken) read_on_ring(r, waiting, num_waiting);
            num_waiting = 0;
        }
    }
    if (r) pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < count; i++) {
        file_read *f = &reads[i];
        if (f->got == (ssize_t)f->bytes) continue;
        ssize_t got = file_read_all(io, f->fd, (char *)f->to + f->got, f->bytes - (size_t)f->got,
                                    f->offset + (uint64_t)f->got);
        if (got < 0)
            f->error = errno;
        else
            f->got += got;
    }
}
