/* Durable mappings, as Python sees them: a part of qindex.h, which includes this. */
#ifndef QI_DATA_H
#define QI_DATA_H

/* cffi: begin */

/* Small durable entries of the store (`queue` is NULL) or of a queue, in stores of format 2. Keys
 * have 1 to 65535 bytes; one that begins with a zero byte is the engine's. Entries are as in a DATA
 * frame: size of the key 2, key, size of the value 4, value; all ones as the size: the key goes. */
/* The size of the value, or QI_E_UNKNOWN: there is no such key. It is copied if there is room. */
int64_t qi_data_get(qi_store *store, qi_queue *queue, const void *key, size_t key_size, void *value,
                    size_t room);
/* All of these changes or none, in their order. `confirm`: they are durable when this returns. At
 * most 512 KiB. */
int qi_data_change(qi_store *store, qi_queue *queue, const void *entries, size_t size,
                   bool confirm);
/* How many keys of the user there are; and all of them with their values: their size as entries, in
 * the order in which the keys came. They are copied if there is room. */
int64_t qi_data_count(qi_store *store, qi_queue *queue);
int64_t qi_data_all(qi_store *store, qi_queue *queue, void *entries, size_t room);
/* The same for those of the store's own keys in its mapping that begin with `prefix`. */
int64_t qi_data_own(qi_store *store, const void *prefix, size_t prefix_size, void *entries,
                    size_t room);
/* A time that a close kept of a queue (FORMAT.rst, "Commit logs") counts if the session that it
 * names is later than this. */
uint64_t qi_store_kept_after(qi_store *store);
/* Settings and data that were lost with the commit log or the catalog are reported no more. 1: some
 * were; 0: none. Reads all queues if the damaged files are still there. */
int qi_store_accept_losses(qi_store *store);
/* This name is not that of which the directory is the hash, which the core does not know how to
 * make: another queue's folder stands there. Nobody uses it, and a check says so. */
void qi_store_misplaced(qi_store *store, const char *directory, const char *name, size_t name_size);

/* cffi: end */

#endif
