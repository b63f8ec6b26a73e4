/* file_place.h - a store's directory: ownership, modes, and opening files in it safely.
 *
 * What a store hands out is as good as its files: who can write into the directory can forge pages,
 * and who can read it reads prompts' K/V. So a directory that is made has mode 0700 and its files
 * 0600, whatever the umask is; 0640 or 0660 let a group read, or take part. Nothing is opened
 * through a symbolic link, and what is opened must be a plain file of ours: of this user, of root,
 * or (with 0660) of the directory's group. */
#ifndef STORAGE_FILE_PLACE_H
#define STORAGE_FILE_PLACE_H

#include "base/base.h"

#include <sys/stat.h>

/* For `radish inspect store`: no mode is refused or changed, and the owner of the directory owns
 * what is in it, whoever looks (root, mostly), and what must be made. */
enum { FILE_MODE_AS_FOUND = 1 };

typedef struct file_place {
    int dir;       /* -1: closed */
    uint32_t mode; /* of files: 0600, 0640 or 0660 */
    bool as_found;
    uid_t owner; /* of the directory, as its group */
    gid_t group;
} file_place;

/* 0600, 0640 or 0660. */
bool file_place_mode_is_good(uint32_t mode);

/* Opens the directory, which is made when it is not there. RAD_E_IO in words: it cannot be, is a
 * link, is another user's, or others may write into it. */
rad_status file_place_open(file_place *p, const char *path, uint32_t mode, rad_error *err);
void file_place_close(file_place *p); /* closed is fine */

/* Whether this is a plain file of ours. */
bool file_place_owns(const file_place *p, const struct stat *st);

/* openat(dir, name, flags) of a plain file of ours, which gets the place's mode; `dir` is the
 * place's or one below it. With O_CREAT it is made when it is not there, with O_TRUNC emptied. -1
 * with errno; file_place_why says it. */
int file_place_file(const file_place *p, int dir, const char *name, int flags);

/* A directory below, made when `make` is given and it is not there; -1 with errno. */
int file_place_below(const file_place *p, const char *name, bool make);

/* What an errno of these means. */
const char *file_place_why(int error);

#endif
