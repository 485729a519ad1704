/* Makes one system call that writes fail, as a full disk or a read-only one would.
 *
 * Loaded before a process starts (LD_PRELOAD); fault_arm() then counts the calls that would change
 * anything below a folder, and lets the n-th fail. What libc's own stdio writes is not seen: Python
 * does not use it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char below[PATH_MAX];
static int fails_at, error_number, armed;
static int counted;

/* Count calls below `folder` from now on, and let number `at` fail with `error`; 0 counts only. */
void fault_arm(const char *folder, int at, int error) {
    strncpy(below, folder, sizeof below - 1);
    fails_at = at, error_number = error;
    counted = 0;
    armed = 1;
}

/* Let nothing fail any more; how many calls were counted. */
int fault_disarm(void) {
    armed = 0;
    return counted;
}

static int hit(void) {
    int number = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    if (number != fails_at) return 0;
    errno = error_number;
    return 1;
}

static int is_below(const char *path) {
    size_t length = strlen(below);
    return length && !strncmp(path, below, length) && (path[length] == '/' || !path[length]);
}

static int path_fails(int folder, const char *path) {
    char whole[2 * PATH_MAX], link[64];
    if (!armed || !below[0]) return 0;
    if (path[0] == '/') return is_below(path) && hit();
    if (folder == AT_FDCWD) {
        if (!getcwd(whole, PATH_MAX)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t got = readlink(link, whole, PATH_MAX - 1);
        if (got < 0) return 0;
        whole[got] = 0;
    }
    strcat(whole, "/");
    strncat(whole, path, PATH_MAX - 1);
    return is_below(whole) && hit();
}

static int handle_fails(int fd) {
    char link[64], path[PATH_MAX];
    if (!armed) return 0;
    if (!below[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got < 0) return 0;
    path[got] = 0;
    return is_below(path) && hit();
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))
#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))

#define OPEN(name)                                                                  \
    int name(const char *path, int flags, ...) {                                    \
        va_list rest;                                                               \
        va_start(rest, flags);                                                      \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;   \
        va_end(rest);                                                               \
        if (WRITES(flags) && path_fails(AT_FDCWD, path)) return -1;                 \
        return REAL(name)(path, flags, mode);                                       \
    }
#define OPENAT(name)                                                                \
    int name(int folder, const char *path, int flags, ...) {                        \
        va_list rest;                                                               \
        va_start(rest, flags);                                                      \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;   \
        va_end(rest);                                                               \
        if (WRITES(flags) && path_fails(folder, path)) return -1;                   \
        return REAL(name)(folder, path, flags, mode);                               \
    }
#define CALL(type, name, takes, given, fails)                                       \
    type name takes {                                                               \
        if (fails) return -1;                                                       \
        return REAL(name) given;                                                    \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
CALL(ssize_t, write, (int fd, const void *from, size_t size), (fd, from, size), handle_fails(fd))
CALL(ssize_t, pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at),
     handle_fails(fd))
CALL(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at),
     handle_fails(fd))
CALL(ssize_t, writev, (int fd, const struct iovec *from, int count), (fd, from, count),
     handle_fails(fd))
CALL(int, ftruncate, (int fd, off_t size), (fd, size), handle_fails(fd))
CALL(int, ftruncate64, (int fd, off64_t size), (fd, size), handle_fails(fd))
CALL(int, fsync, (int fd), (fd), handle_fails(fd))
CALL(int, fdatasync, (int fd), (fd), handle_fails(fd))
CALL(int, rename, (const char *from, const char *to), (from, to), path_fails(AT_FDCWD, to))
CALL(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
     path_fails(b, to))
CALL(int, link, (const char *from, const char *to), (from, to), path_fails(AT_FDCWD, to))
CALL(int, symlink, (const char *from, const char *to), (from, to), path_fails(AT_FDCWD, to))
/* A folder that is there already is told as such before a disk is asked for room. */
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode),
     access(path, F_OK) && path_fails(AT_FDCWD, path))
CALL(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode),
     faccessat(folder, path, F_OK, 0) && path_fails(folder, path))

int posix_fallocate64(int fd, off64_t at, off64_t size) {
    return handle_fails(fd) ? errno : REAL(posix_fallocate64)(fd, at, size);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    return handle_fails(fd) ? errno : REAL(posix_fallocate)(fd, at, size);
}
