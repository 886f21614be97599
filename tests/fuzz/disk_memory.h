/* disk_memory.h - the smallest disk that a store can be opened on: files in memory, nothing is ever
 * lost. */
#ifndef DISK_MEMORY_H
#define DISK_MEMORY_H

#include "disk/disk.h"

/* Forgets all files; everything before belongs to nobody. */
void memory_disk_reset(void);
/* Adds a file (or takes its place) below the folder, which is made if needed; false: the disk is
 * full. */
bool memory_disk_put(const char *folder, const char *name, const void *bytes, size_t size);
/* The index-th file of the disk, also those that were removed (size 0); false behind the last. */
bool memory_disk_file(uint32_t index, const char **name, const uint8_t **bytes, uint64_t *size);

#endif
