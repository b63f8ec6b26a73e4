/* file_lock.c - see the header. */
#define _GNU_SOURCE
#include "storage/file_lock.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static struct flock one_byte(short type, off_t byte)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

bool file_lock_take(int fd, off_t byte)
{
    struct flock l = one_byte(F_WRLCK, byte);
    return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

void file_lock_leave(int fd, off_t byte)
{
    struct flock l = one_byte(F_UNLCK, byte);
    (void)fcntl(fd, F_OFD_SETLK, &l);
}

bool file_lock_is_held(int fd, off_t byte)
{
    struct flock l = one_byte(F_WRLCK, byte);
    return fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_WRLCK;
}

const char *file_lock_holder(int fd, off_t byte, char words[96])
{
    struct flock l = one_byte(F_WRLCK, byte);
    bool known = fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
    const char *how = known && l.l_type == F_RDLCK ? ", with a shared lock, which no radish takes"
                                                   : "";
    if (known && l.l_pid > 0) /* the kernel knows it of the older kind of locks */
        snprintf(words, 96, "process %ld holds the lock%s", (long)l.l_pid, how);
    else
        snprintf(words, 96, "another process holds the lock%s", how);
    return words;
}
