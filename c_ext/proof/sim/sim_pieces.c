/* sim_pieces.c - what one call reads or writes in pieces. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proof/sim/disk_sim.h"

bool qi_sim_is_in_memory(struct qi_disk *disk, int dir) {
    (void)disk, (void)dir;
    return true;
}

int64_t qi_sim_read_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                           uint32_t count, uint64_t offset, bool may_wait) {
    uint64_t done = 0;
    (void)may_wait;
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].length == 0) /* memcpy() wants an address all the same */
            continue;
        int64_t got = disk->ops->read(disk, file, pieces[i].bytes, pieces[i].length, offset + done);
        if (got < 0)
            return got;
        done += (uint64_t)got;
        if ((uint64_t)got < pieces[i].length)
            break;
    }
    return (int64_t)done;
}

/* One write, as the file gets it: a power cut leaves any of its sectors. */
int qi_sim_write_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                        uint32_t count, uint64_t offset) {
    size_t length = 0;
    for (uint32_t i = 0; i < count; i++)
        length += pieces[i].length;
    uint8_t *bytes = malloc(length + 1), *next = bytes;
    if (!bytes)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        if (pieces[i].length == 0) /* memcpy() wants an address all the same */
            continue;
        memcpy(next, pieces[i].bytes, pieces[i].length);
        next += pieces[i].length;
    }
    int error = disk->ops->write(disk, file, bytes, length, offset);
    free(bytes);
    return error;
}
