/* spare.c - descriptors that are kept back for calls that find no other one.
 *
 * A program may take the last descriptor at any time, and a flush, a close or the sync of a queue
 * whose files are closed must not fail for that. Owns descriptors of /dev/null: who finds none
 * closes one of these and tries again, and the next descriptor that comes free takes its place.
 * They count as descriptors of the engine. One set for the process, as its limit is.
 */
#define _GNU_SOURCE
#include "disk/disk_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int kept[QI_SPARE_MAX];
static int count, wanted;

static void fill(struct qi_pool *pool) {
    while (count < wanted) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            break;
        kept[count++] = fd;
        atomic_fetch_add_explicit(&pool->open, 1, memory_order_relaxed);
    }
    atomic_store_explicit(&pool->lacks, wanted - count, memory_order_relaxed);
}

static void close_last(struct qi_pool *pool) {
    close(kept[--count]);
    atomic_fetch_sub_explicit(&pool->open, 1, memory_order_relaxed);
}

void qi_spare_keep(struct qi_disk *disk, uint32_t most) {
    pthread_mutex_lock(&lock);
    wanted = most < QI_SPARE_MAX ? (int)most : QI_SPARE_MAX;
    while (count > wanted)
        close_last(&disk->pool);
    fill(&disk->pool);
    pthread_mutex_unlock(&lock);
}

/* True: one came free now. */
static bool use_one(struct qi_pool *pool) {
    pthread_mutex_lock(&lock);
    bool any = count > 0;
    if (any)
        close_last(pool);
    atomic_store_explicit(&pool->lacks, wanted - count, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return any;
}

int qi_open_at(struct qi_disk *disk, int dir, const char *name, int flags) {
    int fd;
    do
        fd = openat(dir, name, flags | O_CLOEXEC, 0600);
    while (fd < 0 && (errno == EMFILE || errno == ENFILE) && use_one(&disk->pool));
    return fd;
}

void qi_spare_refill(struct qi_disk *disk) {
    if (atomic_load_explicit(&disk->pool.lacks, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&lock);
    fill(&disk->pool);
    pthread_mutex_unlock(&lock);
}

void qi_spare_forked(void) {
    pthread_mutex_init(&lock, NULL);
}
