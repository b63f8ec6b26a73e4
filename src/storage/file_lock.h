/* file_lock.h - locks between processes on bytes of the file `lock`.
 *
 * They are the kernel's (open file descriptions), which lets go of them when their holder ends,
 * however that was. Ours are always exclusive; one that is shared is somebody else's. */
#ifndef STORAGE_FILE_LOCK_H
#define STORAGE_FILE_LOCK_H

#include "base/base.h"

#include <sys/types.h>

/* Without waiting: false with errno (EAGAIN, EACCES: somebody has it). */
bool file_lock_take(int fd, off_t byte);
void file_lock_leave(int fd, off_t byte);

/* A backend of this or another process has it. */
bool file_lock_is_held(int fd, off_t byte);

/* Who is in the way of taking it, in words: "another process", "process 812, with a shared lock:
 * it is none of ours". */
const char *file_lock_holder(int fd, off_t byte, char words[96]);

#endif
