/* glibc_names.c - what Debian's libcrypto.a, which was compiled for glibc with FORTIFY, wants of its C
 * library and musl has not. Coroutines (libcrypto's async jobs) are not there: radish starts none. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *__memcpy_chk(void *to, const void *from, size_t bytes, size_t room);
void *__memset_chk(void *to, int byte, size_t bytes, size_t room);
int __vfprintf_chk(FILE *file, int flag, const char *fmt, va_list args);
int __fprintf_chk(FILE *file, int flag, const char *fmt, ...);
long __fdelt_chk(long fd);
int getcontext(void *context);
int setcontext(const void *context);
void makecontext(void *context, void (*function)(void), int argc, ...);

void *__memcpy_chk(void *to, const void *from, size_t bytes, size_t room)
{
    if (bytes > room) abort();
    return memcpy(to, from, bytes);
}

void *__memset_chk(void *to, int byte, size_t bytes, size_t room)
{
    if (bytes > room) abort();
    return memset(to, byte, bytes);
}

int __vfprintf_chk(FILE *file, int flag, const char *fmt, va_list args)
{
    (void)flag;
    return vfprintf(file, fmt, args);
}

int __fprintf_chk(FILE *file, int flag, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = __vfprintf_chk(file, flag, fmt, args);
    va_end(args);
    return n;
}

long __fdelt_chk(long fd)
{
    if (fd < 0 || fd >= 1024) abort();
    return fd / 64;
}

int getcontext(void *context)
{
    (void)context;
    errno = ENOSYS;
    return -1;
}

int setcontext(const void *context)
{
    (void)context;
    errno = ENOSYS;
    return -1;
}

void makecontext(void *context, void (*function)(void), int argc, ...)
{
    (void)context, (void)function, (void)argc;
}
