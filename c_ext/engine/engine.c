/* engine.c - what every layer above needs of a store: its lock, its clocks, its findings and its
 * failure. */
#define _GNU_SOURCE
#include "engine/engine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

int qi_files_warm(struct qi_queue *queue, struct qi_journal *journal) {
    if (__builtin_expect(!journal->cold, 1))
        return 0;
    int error = qi_journal_warm(journal);
    if (error)
        return qi_fail_disk_of(queue, error, "cannot read", "the journal");
    if (journal->unproven &&
        qi_files_prove(journal, queue->identity, journal->settled, journal->tail) != 0)
        return qi_store_fail(queue->store, qi_fail(QI_E_OUTCOME, "%s",
                                                   "the disk lost what was written to a journal"));
    return 0;
}

void qi_forget_findings(struct qi_store *store, uint32_t since) {
    while (store->findings_count > since) {
        const struct qi_finding *finding = &store->findings[--store->findings_count];
        qi_free(finding->where);
        qi_free(finding->text);
    }
}

int qi_append_failed(struct qi_queue *queue, int error) {
    if (qi_is_disk_full(error))
        return qi_fail(
            QI_E_FULL,
            "the disk is full: nothing was changed; ack messages or free space, then try again");
    if (error == -EFBIG)
        return qi_fail(QI_E_FULL, "the journal of queue %s is full: nothing was changed",
                       qi_name_of(queue).text);
    return qi_store_fail(queue->store,
                         qi_fail_disk_of(queue, error, "cannot append", "to the journal"));
}

/* The name as far as there is room; a control character in it would end the text, or the line. */
static void show_name(const char *name, size_t size, char *text, size_t room) {
    size_t used = 0;
    for (size_t i = 0; i < size && used + 5 < room; i++) {
        uint8_t byte = (uint8_t)name[i];
        bool is_control = byte < 0x20 || byte == 0x7f;
        used += (size_t)snprintf(text + used, room - used, is_control ? "\\x%02x" : "%c", byte);
    }
}

struct qi_shown qi_file_of_name(const char *name, size_t size, const char *directory,
                                const char *file) {
    static const char of_nothing[] = "cae66941d9efbd404e4d88758ea67670"; /* BLAKE2b of "" */
    struct qi_shown shown;
    char text[140] = "\"\"";
    bool is_known = size > 0 || strcmp(directory, of_nothing) == 0;
    show_name(name, size, text, sizeof text);
    if (is_known)
        snprintf(shown.text, sizeof shown.text, "%s of queue %s", file ? file : "the directory",
                 text);
    else
        snprintf(shown.text, sizeof shown.text, "queues/%s%s%s", directory, file ? "/" : "",
                 file ? file : "");
    return shown;
}

struct qi_shown qi_name_of(const struct qi_queue *queue) {
    struct qi_shown shown = {"\"\""};
    show_name(queue->name, queue->name_size, shown.text, sizeof shown.text);
    return shown;
}

struct qi_shown qi_file_of(const struct qi_queue *queue, const char *file) {
    return qi_file_of_name(queue->name, queue->name_size, queue->directory, file);
}

int qi_fail_disk_of(const struct qi_queue *queue, int negative_errno, const char *doing,
                    const char *file) {
    return qi_fail_disk(negative_errno, doing, qi_file_of(queue, file).text);
}

struct timespec qi_time_after(uint64_t us) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + us % 1000000 * 1000;
    until.tv_sec += (time_t)(us / 1000000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    return until;
}

#define FINDINGS_MAX 10000u

uint64_t qi_wall_sleep_us(const struct qi_store *store, uint64_t left) {
    /* On a disk for one thread both clocks go on together, when somebody waits. */
    return left > QI_STEP_US && !store->disk->single_threaded ? QI_STEP_US : left;
}

static void write_time(uint64_t us, char text[32]) {
    time_t seconds = (time_t)(us / 1000000);
    struct tm parts;
    if (!gmtime_r(&seconds, &parts) || !strftime(text, 32, "%Y-%m-%d %H:%M:%S UTC", &parts))
        snprintf(text, 32, "%llu s", (unsigned long long)(us / 1000000));
}

/* Steps that small are the work of NTP, or of a leap second. */
#define STEP_TOLD_US (UINT64_C(2) * 1000000)

void qi_note_clock(struct qi_store *store, uint64_t seen_us) {
    uint64_t now = qi_wall_us(store);
    seen_us = seen_us > now ? seen_us : now;
    if (seen_us > store->latest_us)
        store->latest_us = seen_us;
    if (store->clock_told || store->latest_us <= now + STEP_TOLD_US)
        return;
    char text[32], before[32];
    write_time(now, text);
    write_time(store->latest_us, before);
    qi_report(store, false, "", "", 0,
              "the clock says %s, but it has said %s before: what was published meanwhile with a "
              "delay or a time to live may be due, or expire, that much too late",
              text, before);
    store->clock_told = true;
}

int qi_store_usable(struct qi_store *store, bool to_write) {
    if (__builtin_expect(store->fork_generation != qi_fork_generation(), 0))
        return qi_fail(QI_E_FORKED, "this store was opened before a fork: open it anew in the "
                                    "child, after the parent closed it");
    if (__builtin_expect(store->closed || store->closing, 0))
        return qi_fail(QI_E_CLOSED, "the store is closed");
    if (__builtin_expect(store->failed != 0, 0))
        return qi_fail(QI_E_FAILED,
                       "an earlier write or sync failed (%s): what was not confirmed may be lost; "
                       "close and reopen the store",
                       store->why_failed);
    if (to_write && store->options.read_only)
        return qi_fail(QI_E_READ_ONLY, "the store was opened read-only");
    return 0;
}

/* In a forked child who has the lock stayed in the parent and never gives it up. The verb is
 * refused there (H16) before it looks at anything that the lock is for. */
void qi_wait_for_lock(struct qi_store *store) {
    if (store->fork_generation != qi_fork_generation())
        return;
    if (atomic_load_explicit(&store->returning, memory_order_relaxed)) {
        pthread_mutex_lock(&store->gate);
        pthread_mutex_unlock(&store->gate);
    }
    pthread_mutex_lock(&store->lock);
}

void qi_relock(struct qi_store *store) {
    pthread_mutex_lock(&store->gate);
    atomic_store(&store->returning, true);
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->returning, false);
    pthread_mutex_unlock(&store->gate);
}

int qi_store_fail(struct qi_store *store, int code) {
    if (!store->failed) {
        store->failed = code;
        snprintf(store->why_failed, sizeof store->why_failed, "%s", qi_error_text());
    }
    pthread_cond_broadcast(&store->changed);
    qi_wake_all(store);
    return code;
}

void qi_report(struct qi_store *store, bool damage, const char *directory, const char *file,
               uint64_t offset, const char *format, ...) {
    if (store->findings_count == FINDINGS_MAX)
        return;
    if (store->findings_count == store->findings_room) {
        uint32_t room = store->findings_room ? store->findings_room * 2 : 16;
        struct qi_finding *findings = qi_realloc(store->findings, room * sizeof *findings);
        if (!findings)
            return;
        store->findings = findings;
        store->findings_room = room;
    }
    char text[512], where[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(where, sizeof where, "%s%s%s%s", directory[0] ? "queues/" : "", directory,
             directory[0] && file[0] ? "/" : "", file);
    if (store->findings_count == FINDINGS_MAX - 1)
        snprintf(text, sizeof text, "more was found than is kept here");
    struct qi_finding finding = {damage, qi_strdup(where), offset, 0, 0, qi_strdup(text)};
    if (finding.where && finding.text)
        store->findings[store->findings_count++] = finding;
    else
        qi_free(finding.where), qi_free(finding.text);
}

void qi_report_lost(struct qi_store *store, uint64_t lost) {
    if (store->findings_count > 0 && store->findings_count < FINDINGS_MAX)
        store->findings[store->findings_count - 1].lost = lost;
}

void qi_report_orphans(struct qi_store *store, const char *directory, const char *file,
                       uint64_t orphans) {
    bool one = orphans == 1;
    qi_report(store, true, directory, file, 0,
              "%llu deliver%s or ack%s without a publish %s ignored", (unsigned long long)orphans,
              one ? "y" : "ies", one ? "" : "s", one ? "was" : "were");
    if (store->findings_count > 0 && store->findings_count < FINDINGS_MAX)
        store->findings[store->findings_count - 1].orphans = orphans;
}

void qi_counts_add(qi_counts *sum, const qi_counts *counts) {
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)counts;
    for (uint32_t i = 0; i < QI_COUNTS; i++)
        to[i] += from[i];
}

void qi_count_sync(struct qi_store *store, uint64_t began_us) {
    uint64_t took = store->disk->ops->monotonic_us(store->disk) - began_us;
    uint32_t bits = took ? 64 - (uint32_t)__builtin_clzll(took) : 0;
    store->syncs.count++;
    store->syncs.total_us += took;
    store->syncs.longest_us = took > store->syncs.longest_us ? took : store->syncs.longest_us;
    store->syncs.times[bits < QI_SYNC_TIMES ? bits : QI_SYNC_TIMES - 1]++;
    if (__builtin_expect(took > QI_SLOW_SYNC_US && store->tell_slow != NULL, 0)) {
        store->slow_due = true;
        qi_wake_worker(store);
    }
}

#define RELIEF_US 100000 /* queues are not put to sleep more often for want of memory */

bool qi_memory_is_scarce(const struct qi_store *store) {
    uint64_t most = atomic_load_explicit(&store->disk->pool.memory, memory_order_relaxed);
    return qi_memory_used() > most / 4 * 3;
}

bool qi_memory_has_room(struct qi_store *store) {
    if (__builtin_expect(!qi_memory_is_scarce(store), 1))
        return true;
    if (!store->relief_due &&
        store->disk->ops->monotonic_us(store->disk) - store->relieved_us > RELIEF_US) {
        store->relief_due = true;
        qi_wake_worker(store);
    }
    uint64_t most = atomic_load_explicit(&store->disk->pool.memory, memory_order_relaxed);
    uint64_t used = qi_memory_used();
    if (used <= most)
        return true;
    qi_fail(QI_E_STORE_FULL,
            "the stores of this process use %llu bytes of memory, and may use %llu: ack some "
            "messages, or open them with a higher max_memory",
            (unsigned long long)used, (unsigned long long)most);
    return false;
}

bool qi_is_short_of_space(struct qi_store *store) {
    uint64_t left = 0;
    return store->disk->ops->free_bytes(store->disk, store->root, &left) == 0 &&
           left < store->keep_free;
}

void qi_wake_worker(struct qi_store *store) {
    pthread_mutex_lock(&store->sleep);
    pthread_cond_signal(&store->work);
    pthread_mutex_unlock(&store->sleep);
}

bool qi_req_id_add(uint64_t **req_ids, uint32_t *count, uint32_t *room, uint64_t req_id) {
    if (*count == *room) {
        uint32_t more = *room ? *room * 2 : 16;
        uint64_t *grown = qi_realloc(*req_ids, more * sizeof *grown);
        if (!grown)
            return false;
        *req_ids = grown;
        *room = more;
    }
    (*req_ids)[(*count)++] = req_id;
    return true;
}
