/* failing_malloc.c - the allocator of a whole process, which fails where a test says so.
 *
 * Linked into a copy of the program (radish_oom): the definitions here come before the C library's
 * for everybody, libcrypto, jansson and libevent included, and pass on to it. The test holds a page
 * in common with the process, the file that RADISH_OOM names:
 *
 *     armed    allocations until the next one that fails; 0: none does
 *     run      how many fail in a row from there
 *     calls    allocations so far
 *     failed   of them
 *     sites[]  who asked, of those that failed: addresses for addr2line, newest last
 *
 * What glibc itself takes for threads, files and printf goes the same way; mappings do not. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SITES = 64 };

typedef struct control {
    atomic_llong armed, run;
    atomic_ullong calls, failed;
    atomic_uintptr_t sites[SITES];
} control;

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

static control nobody;
static control *shared = &nobody;

__attribute__((constructor)) static void find_control(void)
{
    const char *path = getenv("RADISH_OOM");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof(control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) shared = page;
}

/* One countdown for all threads: exactly `run` calls fail. */
static int fails(void *site)
{
    control *c = shared;
    atomic_fetch_add(&c->calls, 1);
    if (atomic_load(&c->armed) <= 0) return 0;
    long long left = atomic_fetch_sub(&c->armed, 1);
    if (left != 1) return 0;
    if (atomic_fetch_sub(&c->run, 1) > 1) atomic_store(&c->armed, 1);
    unsigned long long n = atomic_fetch_add(&c->failed, 1);
    atomic_store(&c->sites[n % SITES], (uintptr_t)site);
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (fails(__builtin_return_address(0))) return ENOMEM;
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

void free(void *memory)
{
    __libc_free(memory);
}
