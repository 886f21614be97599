/* fuzz_store.c - arbitrary files, opened as a store.
 *
 * Each input is an archive of files (archive.h), put on a disk in memory. It is opened read-only,
 * checked, browsed and dumped; then opened for writing, used and closed; then opened again. What
 * must hold, besides what the sanitizers see:
 *   1. opening takes at most LIMIT_SECONDS of processor time and LIMIT_BYTES of memory;
 *   2. after a session in which nothing failed, and a close, the next one shows exactly the same
 * messages of each queue, or tells of damage there: checksums are repaired half of the time, so a
 * manifest may lie about a file, and nobody knows that before the file is read. What is never
 * allowed is a difference that nobody is told of.
 *
 * Built with -DSTANDALONE it has a main() of its own, without libFuzzer: it opens the files that it
 * is given, one by one, and says what each cost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "archive.h"
#include "base/base.h"
#include "disk_memory.h"
#include "look/look.h"
#include "qindex.h"

#define LIMIT_BYTES (INT64_C(64) << 20)
#ifndef LIMIT_SECONDS
#define LIMIT_SECONDS 1.0
#endif
#define PAYLOAD_ROOM (1u << 20)
#define BROWSED_MAX  5000
#define QUEUES_MAX   4
#define OUT_MAX      64

#define FIRST_QUEUE_DIR  "queues/44ca0059a7c4a09e661ed10ce6c69e52"
#define SECOND_QUEUE_DIR "queues/00000000000000000000000000000000"

static int64_t live_bytes, peak_bytes;
static double slowest;

/* ---- what it costs ---- */

#ifdef STANDALONE
static void watch_memory(void) {}
#else
size_t __sanitizer_get_allocated_size(const volatile void *memory);
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, size_t),
                                              void (*)(const volatile void *));
static void count_malloc(const volatile void *memory, size_t size) {
    (void)memory;
    live_bytes += (int64_t)size;
    if (live_bytes > peak_bytes)
        peak_bytes = live_bytes;
}
static void count_free(const volatile void *memory) {
    live_bytes -= (int64_t)__sanitizer_get_allocated_size(memory);
}
static void watch_memory(void) {
    static bool watching;
    if (!watching)
        __sanitizer_install_malloc_and_free_hooks(count_malloc, count_free);
    watching = true;
}
#endif

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void expect(bool holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "fuzz_store: %s\n", what);
    abort();
}

static void check_cost(double begin) {
    double took = seconds() - begin;
    if (took > slowest)
        slowest = took;
    expect(took <= LIMIT_SECONDS, "opening took too long");
    expect(peak_bytes <= LIMIT_BYTES, "opening took too much memory");
}

/* ---- from an archive to a disk ---- */

static bool put_journal(const char *folder, const struct archive_file *file) {
    const char *name = file->kind == JOURNAL_EVEN ? "journal.jif" : "journal.alt";
    size_t header = file->size < QI_JH_SIZE ? file->size : QI_JH_SIZE;
    size_t frames = file->size - header;
    uint8_t *bytes = calloc(1, QI_JOURNAL_START + frames);
    if (!bytes)
        return false;
    memcpy(bytes, file->bytes, header);
    memcpy(bytes + QI_JOURNAL_HEADER_COPY, file->bytes, header);
    memcpy(bytes + QI_JOURNAL_START, file->bytes + header, frames);
    bool put = memory_disk_put(folder, name, bytes, QI_JOURNAL_START + frames);
    free(bytes);
    return put;
}

/* Both copies. */
static bool put_meta(const char *folder, const char *name, const struct archive_file *file) {
    size_t half = (file->size + 4095) / 4096 * 4096;
    uint8_t *bytes = calloc(2, half + 1);
    if (!bytes)
        return false;
    memcpy(bytes, file->bytes, file->size);
    memcpy(bytes + half, file->bytes, file->size);
    bool put = memory_disk_put(folder, name, bytes, 2 * half);
    free(bytes);
    return put;
}

static bool put_file(const struct archive_file *file) {
    const char *queue = file->second ? SECOND_QUEUE_DIR : FIRST_QUEUE_DIR;
    char name[32];
    switch (file->kind) {
    case STORE_META:
        return put_meta("", "store.meta", file);
    case QUEUE_META:
        return put_meta(queue, "queue.meta", file);
    case JOURNAL_EVEN:
    case JOURNAL_ODD:
        return put_journal(queue, file);
    case RAW_EVEN:
        return memory_disk_put(queue, "journal.jif", file->bytes, file->size);
    case RAW_ODD:
        return memory_disk_put(queue, "journal.alt", file->bytes, file->size);
    case SEGMENT:
        snprintf(name, sizeof name, "%u.idx", file->number);
        return memory_disk_put(queue, name, file->bytes, file->size);
    default:
        snprintf(name, sizeof name, file->kind == MESSAGES ? "%u.qms" : "%u.new", file->number);
        return memory_disk_put("messages", name, file->bytes, file->size);
    }
}

static void put_archive(uint8_t *data, size_t size, bool *index_only) {
    struct archive_file file;
    *index_only = false;
    memory_disk_reset();
    for (size_t at = 0; archive_next(data, size, &at, &file);) {
        put_file(&file);
        if (file.kind == STORE_META && file.size >= 64)
            *index_only = file.bytes[56] == 1;
    }
}

/* ---- a session ---- */

struct session {
    qi_store *store;
    qi_queue *queues[QUEUES_MAX];
    char directories[QUEUES_MAX][33];
    uint32_t digests[QUEUES_MAX]; /* of all messages, when they were browsed last */
    uint32_t count;
    bool sound; /* no call has failed */
};

/* Opens the store and recovers its queues: what the limits are about. */
static bool open_session(struct session *session, bool read_only, bool index_only) {
    qi_options options = {.max_journal_entries = 64,
                          .max_journal_bytes = 1 << 20,
                          .embed_below = 64,
                          .message_file_size = 1 << 16,
                          .io = 2,
                          .read_only = read_only,
                          .index_only = index_only};
    char name[65536];
    *session = (struct session){.sound = true};
    int64_t before = live_bytes;
    peak_bytes = live_bytes;
    double begin = seconds();
    if (qi_store_open("/", &options, &session->store) != 0) {
        check_cost(begin);
        return false;
    }
    int count = qi_store_queues(session->store);
    for (int i = 0; i < count && session->count < QUEUES_MAX; i++) {
        char *directory = session->directories[session->count];
        int size = qi_store_queue_name(session->store, (uint32_t)i, name, sizeof name, directory);
        qi_queue *queue;
        qi_queue_stats stats;
        if (size < 0 ||
            qi_queue_open(session->store, name, (size_t)size, directory, false, &queue) != 0 ||
            qi_queue_stats_of(queue, &stats) != 0)
            session->sound = false;
        else
            session->queues[session->count++] = queue;
    }
    peak_bytes -= before;
    check_cost(begin);
    return true;
}

static void browse(struct session *session) {
    static uint8_t payload[PAYLOAD_ROOM];
    for (uint32_t i = 0; i < session->count; i++) {
        uint32_t digest = 0;
        qi_message message;
        uint64_t from = 0;
        int64_t got = 0;
        for (uint32_t n = 0; n < BROWSED_MAX && got != QI_EMPTY; n++) {
            got = qi_browse(session->queues[i], from, false, &message, payload, sizeof payload);
            if (got < 0 && got != QI_EMPTY) {
                session->sound = false;
                break;
            }
            if (got == QI_EMPTY)
                continue;
            expect(message.req_id >= from, "browsing goes back");
            from = message.req_id + 1;
            uint8_t id[8];
            qi_put64(id, message.req_id);
            digest = qi_crc32c(qi_crc32c(digest, id, sizeof id), payload, (size_t)got);
        }
        session->digests[i] = digest;
    }
}

static bool is_damage_told(const struct session *session, const char *directory) {
    bool damage;
    const char *where, *text;
    uint64_t offset;
    for (uint32_t i = 0; qi_store_finding(session->store, i, &damage, &where, &offset, &text) == 0;
         i++)
        if (damage && strstr(where, directory))
            return true;
    return false;
}

/* Both have been browsed. */
static bool is_same(const struct session *before, const struct session *after) {
    if (before->count != after->count)
        return false;
    for (uint32_t i = 0; i < after->count; i++)
        if (strcmp(before->directories[i], after->directories[i]) != 0 ||
            (before->digests[i] != after->digests[i] &&
             !is_damage_told(after, after->directories[i])))
            return false;
    return true;
}

/* Every file as a journal or segment and as a message file, in batches of few rows. */
static void columns_of(const uint8_t *bytes, uint64_t size) {
    enum { ROWS = 7 };
    int64_t longs[7][ROWS];
    int32_t count[ROWS], priority[ROWS];
    uint8_t kind[ROWS], msg_id[16 * ROWS], bits[6];
    qi_columns columns = {.room = ROWS,
                          .kind = kind,
                          .req_id = longs[0],
                          .offset = longs[1],
                          .size = longs[2],
                          .expiry_us = longs[3],
                          .embedded = longs[4],
                          .file = longs[5],
                          .due_us = longs[6],
                          .priority = priority,
                          .count = count,
                          .msg_id = msg_id,
                          .has_size = bits,
                          .has_expiry = bits + 1,
                          .has_count = bits + 2,
                          .has_msg_id = bits + 3,
                          .has_due = bits + 4,
                          .has_priority = bits + 5};
    qi_columns again = columns, raw = columns;
    raw.raw = 1;
    for (int rows = 0; size > 0 && rows < 2000; rows += (int)raw.room)
        if (qi_columns_records(bytes, size, &raw) <= 0)
            break;
    while (size > 0 && qi_columns_records(bytes, size, &columns) > 0)
        continue;
    while (size >= 32 && qi_columns_bodies(bytes + 16, 0, bytes, size, &again) > 0)
        continue;
}

static void look_at_all(void) {
    const char *name;
    const uint8_t *bytes;
    uint64_t size;
    for (uint32_t i = 0; memory_disk_file(i, &name, &bytes, &size); i++)
        columns_of(bytes, size);
}

static void look(bool index_only) {
    struct session session;
    if (!open_session(&session, true, index_only))
        return;
    browse(&session);
    qi_store_check(session.store);
    qi_store_close(session.store);
    qi_store_free(session.store);
}

static void note(struct session *session, int64_t result) {
    if (result < 0 && result != QI_EMPTY)
        session->sound = false;
}

static void use_queue(struct session *session, qi_queue *queue) {
    static uint8_t payload[PAYLOAD_ROOM];
    uint64_t out[OUT_MAX];
    uint32_t count = 0;
    for (; count < OUT_MAX; count++) {
        qi_reader reader = {.queue = queue, .payload = payload, .room = sizeof payload};
        int64_t got = qi_get(&reader);
        note(session, got);
        if (got < 0)
            break;
        out[count] = reader.message.req_id;
    }
    note(session, qi_ack_many(queue, out, NULL, count / 2));
    if (count % 2)
        note(session, qi_nack_many(queue, out + count / 2, NULL, count - count / 2, 0));
    note(session, qi_publish(queue, "hello", 5));
    note(session, qi_publish(queue, payload, 100));
    note(session, qi_flush(queue));
    if (count % 5 == 4)
        note(session, qi_purge(queue, QI_PURGE_ALL));
}

/* Returns true if nothing failed; then the digests are of what the next session must show. */
static bool use(bool index_only, struct session *session) {
    if (!open_session(session, false, index_only))
        return false;
    browse(session);
    qi_store_check(session->store);
    for (uint32_t i = 0; i < session->count && !index_only; i++)
        use_queue(session, session->queues[i]);
    note(session, qi_store_compact(session->store, 50));
    browse(session);
    note(session, qi_store_close(session->store));
    qi_store_free(session->store);
    return session->sound;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    bool index_only;
    struct session before, after;
    watch_memory();
    uint8_t *data = malloc(size + 1);
    memcpy(data, input, size);
    put_archive(data, size, &index_only);
    free(data);
    look(index_only);
    look_at_all();
    if (!use(index_only, &before))
        return 0;
    expect(open_session(&after, false, index_only), "a store that was closed cannot be opened");
    browse(&after);
    expect(!after.sound || is_same(&before, &after), "the next session shows something else");
    qi_store_free(after.store);
    return 0;
}

/* ---- mutations, or a main() ---- */

#ifdef STANDALONE
#include <sys/resource.h>

int main(int count, char **names) {
    static uint8_t input[64 << 20];
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(names[i], "rb");
        expect(file != NULL, "cannot open an input");
        size_t size = fread(input, 1, sizeof input, file);
        fclose(file);
        slowest = 0;
        LLVMFuzzerTestOneInput(input, size);
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        printf("%s: %zu bytes, opened in %.3f s, %ld KiB so far\n", names[i], size, slowest,
               usage.ru_maxrss);
    }
    return 0;
}
#else
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

static uint32_t dice(unsigned *state) {
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

/* Mutates the bytes of one file, so that the others stay what they are. */
static size_t mutate_file(uint8_t *data, size_t size, size_t size_max, unsigned *state) {
    struct archive_file file, chosen = {0};
    uint32_t seen = 0;
    for (size_t at = 0; archive_next(data, size, &at, &file);)
        if (file.size > 0 && dice(state) % ++seen == 0)
            chosen = file;
    if (!chosen.bytes)
        return LLVMFuzzerMutate(data, size, size_max);
    size_t head = (size_t)(chosen.bytes - data), behind = size - head - chosen.size;
    size_t room = size_max - head - behind;
    uint8_t *tail = malloc(behind + 1);
    memcpy(tail, chosen.bytes + chosen.size, behind);
    /* Often only a part: frames behind the place that changed stay where they are. */
    size_t part = chosen.size, skip = 0, mutated;
    if (dice(state) % 2 == 0) {
        skip = dice(state) % chosen.size;
        part = 1 + dice(state) % 16;
        part = part > chosen.size - skip ? chosen.size - skip : part;
        LLVMFuzzerMutate(chosen.bytes + skip, part, part);
        mutated = chosen.size;
    } else {
        mutated = LLVMFuzzerMutate(chosen.bytes, part, room);
    }
    memcpy(chosen.bytes + mutated, tail, behind);
    free(tail);
    qi_put32(chosen.bytes - 4, (uint32_t)mutated);
    return head + mutated + behind;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed) {
    unsigned state = seed;
    if (dice(&state) % 8 == 0)
        size = LLVMFuzzerMutate(data, size, size_max);
    else
        size = mutate_file(data, size, size_max, &state);
    if (dice(&state) % 2 == 0)
        archive_repair(data, size);
    return size;
}
#endif
