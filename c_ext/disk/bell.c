/* bell.c - a descriptor that an event loop can wait for. Beside the disk's table: what rings is no
 * file. */
#include "disk/disk.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int qi_bell_open(void) {
    int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return bell < 0 ? -errno : bell;
}

/* It fails only if it has rung 2^64 times and nobody listened. */
void qi_bell_ring(int bell) {
    uint64_t once = 1;
    ssize_t written = write(bell, &once, sizeof once);
    (void)written;
}

void qi_bell_close(int bell) {
    if (bell >= 0)
        close(bell);
}
