/* index_files.h - the journals and segments of a store as bytes, without the store: for who reads thousands of stores. */
#ifndef QI_INDEX_FILES_H
#define QI_INDEX_FILES_H

#include "disk.h"
#include "qindex.h"

/* The same as qi_index_files_new, on any disk; the disk outlives it. */
qi_index_files *qi_index_files_new_on(struct qi_disk *disk);

#endif
