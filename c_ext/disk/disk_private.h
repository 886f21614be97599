/* disk_private.h - what only this folder knows. */
#ifndef QI_DISK_PRIVATE_H
#define QI_DISK_PRIVATE_H

#include "disk/disk.h"

/* ---- spare ---- */

#define QI_SPARE_MAX 8

/* Keeps so many descriptors back from now on, as soon as they are to be had. */
void qi_spare_keep(struct qi_disk *disk, uint32_t most);
/* As openat(), with O_CLOEXEC; uses a spare descriptor if there is no other. */
int qi_open_at(struct qi_disk *disk, int dir, const char *name, int flags);
/* A descriptor came free. */
void qi_spare_refill(struct qi_disk *disk);
/* In a forked child: a thread that is not there any more may have held the lock. */
void qi_spare_forked(void);

/* ---- limits ---- */

uint32_t qi_files_limit(struct qi_disk *disk);
uint64_t qi_memory_limit(struct qi_disk *disk);

/* ---- pieces ---- */

bool qi_is_in_memory(struct qi_disk *disk, int dir);
int64_t qi_read_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                       uint32_t count, uint64_t offset, bool may_wait);
int qi_write_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces, uint32_t count,
                    uint64_t offset);

#endif
