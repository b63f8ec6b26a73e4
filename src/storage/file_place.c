/* file_place.c - opens directories and files of a store; see the header.
 *
 * O_NOFOLLOW keeps links out and O_NONBLOCK pipes without a writer from holding us; what was opened
 * is then looked at by its descriptor, so nobody can change it in between. */
#define _GNU_SOURCE
#include "storage/file_place.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { FLAGS = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

bool file_place_mode_is_good(uint32_t mode)
{
    return mode == 0600 || mode == 0640 || mode == 0660;
}

const char *file_place_why(int error)
{
    if (error == ELOOP) return "it is a symbolic link, and none is followed";
    if (error == ENOTSUP) return "it is no plain file of this user";
    return strerror(error);
}

/* A group's members read or search a directory where they read its files. */
static mode_t dir_mode(uint32_t mode)
{
    mode_t bits = (mode_t)mode;
    return bits | (bits & 0444) >> 2 | (bits & 0060 ? S_ISGID : 0);
}

static bool is_ours(const file_place *p, const struct stat *st)
{
    bool shared = p->mode == 0660 && st->st_gid == p->group;
    bool found = p->as_found && st->st_uid == p->owner;
    return st->st_uid == geteuid() || st->st_uid == 0 || shared || found;
}

bool file_place_owns(const file_place *p, const struct stat *st)
{
    return S_ISREG(st->st_mode) && is_ours(p, st);
}

/* The mode that a directory suggests. */
static uint32_t found_mode(const struct stat *st)
{
    return st->st_mode & 0020 ? 0660 : st->st_mode & 0040 ? 0640 : 0600;
}

static bool in_group(gid_t group)
{
    gid_t groups[1024];
    int count = getgroups((int)RAD_COUNT(groups), groups);
    for (int i = 0; i < count; i++)
        if (groups[i] == group) return true;
    return getegid() == group;
}

/* Refuses a directory that is another user's, or that others may write into. */
static rad_status check_dir(file_place *p, const char *path, const struct stat *st, rad_error *err)
{
    p->owner = st->st_uid;
    p->group = st->st_gid;
    if (p->as_found) {
        p->mode = found_mode(st);
        return RAD_OK;
    }
    bool shared = p->mode == 0660 && in_group(st->st_gid);
    if (st->st_uid != geteuid() && st->st_uid != 0 && !shared)
        return rad_fail(err, RAD_E_IO,
                        "storage: %s: belongs to user %u, not to us (%u): pages that others can "
                        "write are not trusted",
                        path, (unsigned)st->st_uid, (unsigned)geteuid());
    if (st->st_mode & 0002 || (st->st_mode & 0020 && p->mode != 0660))
        return rad_fail(err, RAD_E_IO,
                        "storage: %s: others may write into it (mode %04o): chmod it to %04o%s",
                        path, (unsigned)(st->st_mode & 07777), (unsigned)(dir_mode(p->mode) & 0777),
                        p->mode == 0660 ? "" : ", or give a group the mode 0660");
    return RAD_OK;
}

rad_status file_place_open(file_place *p, const char *path, uint32_t mode, rad_error *err)
{
    struct stat st;
    *p = (file_place){.dir = -1, .mode = mode, .as_found = mode == FILE_MODE_AS_FOUND};
    if (p->as_found) p->mode = 0600;
    bool made = mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST)
        return rad_fail(err, RAD_E_IO, "storage: %s: cannot be made: %s", path, strerror(errno));
    p->dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (p->dir < 0 && (errno == ENOTDIR || errno == ELOOP) && lstat(path, &st) == 0 &&
        S_ISLNK(st.st_mode))
        return rad_fail(err, RAD_E_IO,
                        "storage: %s: is a symbolic link; name the directory that it leads to",
                        path);
    if (p->dir < 0 || fstat(p->dir, &st) ||
        (made && fchmod(p->dir, dir_mode(p->mode)) == 0 && fstat(p->dir, &st))) {
        rad_fail(err, RAD_E_IO, "storage: %s: cannot be opened: %s", path, strerror(errno));
        file_place_close(p);
        return RAD_E_IO;
    }
    rad_status status = check_dir(p, path, &st, err);
    if (status) file_place_close(p);
    return status;
}

void file_place_close(file_place *p)
{
    if (p->dir >= 0) close(p->dir);
    p->dir = -1;
}

/* What was made belongs to the group that shares the store, or to whom root only looks after. */
static void give_away(const file_place *p, int fd)
{
    uid_t owner = p->as_found ? p->owner : (uid_t)-1;
    if (p->as_found || p->mode != 0600) (void)!fchown(fd, owner, p->group);
}

/* What was made, or is wider than it should be, gets the mode; others' files keep theirs. */
static void set_mode(const file_place *p, int fd, const struct stat *st, bool made)
{
    if (!made && (p->as_found || st->st_uid != geteuid())) return;
    if (made) give_away(p, fd);
    if ((st->st_mode & 07777) != p->mode) (void)fchmod(fd, (mode_t)p->mode);
}

int file_place_file(const file_place *p, int dir, const char *name, int flags)
{
    const int usual = flags & ~(O_CREAT | O_TRUNC);
    struct stat st;
    bool made = false;
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 3; tries++) { /* somebody else may make or remove it */
        fd = openat(dir, name, usual | FLAGS);
        if (fd >= 0 || errno != ENOENT || !(flags & O_CREAT)) break;
        fd = openat(dir, name, usual | FLAGS | O_CREAT | O_EXCL, (mode_t)p->mode);
        made = fd >= 0;
        if (!made && errno != EEXIST) break;
    }
    if (fd < 0) return -1;
    bool ours = fstat(fd, &st) == 0 && file_place_owns(p, &st);
    if (!ours) errno = ENOTSUP;
    if (!ours || (!made && flags & O_TRUNC && ftruncate(fd, 0))) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    set_mode(p, fd, &st, made);
    return fd;
}

int file_place_below(const file_place *p, const char *name, bool make)
{
    struct stat st;
    bool made = make && mkdirat(p->dir, name, 0700) == 0;
    int fd = openat(p->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &st) || !is_ours(p, &st)) {
        close(fd);
        errno = ENOTSUP;
        return -1;
    }
    if (made) {
        give_away(p, fd);
        (void)fchmod(fd, dir_mode(p->mode));
    }
    return fd;
}
