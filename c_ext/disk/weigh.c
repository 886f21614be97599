/* weigh.c - how much lies in directories. Beside the disk's table: a fleet that is to be read is on
 * no simulated one.
 *
 * For planners, who ask for ten thousand at once, from several threads. What cannot be looked at
 * counts nothing: it may have gone since it was listed, and who reads it says why it cannot be
 * read. A lack of descriptors is told: a store that is not seen for it would be left out by
 * everybody.
 */
#define _GNU_SOURCE
#include "disk/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define DEPTH_MAX 32u /* each level is an open descriptor; no format has half as many */

static int64_t weigh(int folder, unsigned depth);

static int open_folder(int parent, const char *name) {
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* What is allocated in advance but was never written costs nothing. */
static int64_t bytes_read(const struct stat *status) {
    int64_t allocated = (int64_t)status->st_blocks * 512, size = (int64_t)status->st_size;
    return size < allocated ? size : allocated;
}

static int64_t weigh_entry(int folder, const struct dirent *entry, unsigned depth) {
    struct stat status = {.st_mode = 0};
    bool is_folder = entry->d_type == DT_DIR;
    if (entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN) {
        if (fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            return 0;
        is_folder = S_ISDIR(status.st_mode);
    }
    if (is_folder) {
        int below = depth ? open_folder(folder, entry->d_name) : -1;
        return below < 0 ? 0 : weigh(below, depth - 1);
    }
    return S_ISREG(status.st_mode) ? bytes_read(&status) : 0;
}

/* Closes the folder. */
static int64_t weigh(int folder, unsigned depth) {
    int64_t bytes = 0;
    DIR *stream = fdopendir(folder);
    if (!stream) {
        close(folder);
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            bytes += weigh_entry(folder, entry, depth);
    closedir(stream);
    return bytes;
}

static bool has_file(int folder, const char *name) {
    struct stat status;
    return fstatat(folder, name, &status, 0) == 0 && S_ISREG(status.st_mode);
}

int qi_weigh(const char *paths, size_t count, const char *with, int64_t *bytes) {
    for (size_t i = 0; i < count; i++, paths += strlen(paths) + 1) {
        int folder = open_folder(AT_FDCWD, paths);
        if (folder < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
            return qi_fail_disk(-errno, "cannot look into", paths);
        bool wanted = folder >= 0 && (!with || has_file(folder, with));
        if (folder >= 0 && !wanted)
            close(folder);
        bytes[i] = wanted ? weigh(folder, DEPTH_MAX) : with ? -1 : 0;
    }
    return 0;
}
