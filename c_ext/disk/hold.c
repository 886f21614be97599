/* hold.c - second names for files, and folders that change places. Beside the disk's table: only
 * the backup of a store on a real disk needs them (store/backup.c).
 *
 * A file with a second name is held: whoever unlinks or replaces the first one leaves it as it was.
 */
#define _GNU_SOURCE
#include "disk/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2u
#endif

int qi_hold_file(int from_dir, int to_dir, const char *name) {
    return linkat(from_dir, name, to_dir, name, 0) != 0 ? -errno : 0;
}

int qi_exchange(const char *one, const char *other) {
    long failed = syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
    return failed ? -errno : 0;
}
