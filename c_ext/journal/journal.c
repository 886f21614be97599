/* journal.c - begin, append and walk a journal.
 *
 * Owns nothing but the tape. Promises: a frame is either wholly there and valid, or it is not
 * there; an append that fails leaves the tail where it was, with zeros behind it (H20). A store
 * that has failed gets no frame any more, whoever comes with one (H13). What must be synced before
 * what is decided by the callers: sync.c for confirms, flush.c for the move into segments.
 */
#include "journal/journal.h"

#include <assert.h>
#include <errno.h>

#define PAGE  UINT64_C(4096)
#define PIECE (UINT64_C(64) << 10) /* what is loaded at once to look for something */
#define SMALL                                                                                      \
    (UINT64_C(16) << 10) /* giving back less costs a file system more than it is worth             \
                          */
#define SPARE_MAX (UINT64_C(1) << 20) /* zeros that the next recovery has to read */

const char *qi_journal_name(uint64_t epoch) {
    return epoch % 2 == 0 ? "journal.jif" : "journal.alt";
}

int qi_journal_begin(struct qi_journal *journal, const uint8_t *identity, uint64_t epoch,
                     uint32_t version, uint64_t now_us) {
    qi_tape_unready(&journal->tape, 0);
    int error = qi_tape_make_ready(&journal->tape, 0, QI_JOURNAL_START + QI_FRAME_HEADER, 0);
    if (error)
        return error;
    uint8_t *header = journal->tape.memory;
    memset(header, 0, QI_JH_SIZE);
    memcpy(header, QI_JOURNAL_MAGIC, 8);
    qi_put32(header + QI_JH_VERSION, version);
    memcpy(header + QI_JH_IDENTITY, identity, QI_IDENTITY_SIZE);
    qi_put64(header + QI_JH_EPOCH, epoch);
    qi_put64(header + QI_JH_CREATED, now_us);
    qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    memcpy(header + QI_JOURNAL_HEADER_COPY, header, QI_JH_SIZE);
    memset(header + QI_JOURNAL_START, 0, QI_FRAME_HEADER);
    error = qi_tape_wrote(&journal->tape, QI_JOURNAL_HEADER_COPY,
                          QI_JOURNAL_START + QI_FRAME_HEADER - QI_JOURNAL_HEADER_COPY);
    if (!error)
        error = qi_tape_wrote(&journal->tape, 0, QI_JH_SIZE);
    if (error)
        return error;
    qi_journal_use(journal, identity, epoch);
    journal->version = version;
    return 0;
}

void qi_journal_use(struct qi_journal *journal, const uint8_t *identity, uint64_t epoch) {
    journal->epoch = epoch;
    journal->seed = qi_frame_seed(identity, 0, epoch);
    journal->tail = QI_JOURNAL_START;
    journal->synced = 0;
    journal->settled = 0;
    journal->copied = 0;
    journal->covered = 0;
    journal->marked = 0;
    journal->moment_us = 0;
    journal->drain_room = 0;
    journal->ended = journal->cold = journal->unproven = false;
}

int qi_journal_load_cold(struct qi_journal *journal) {
    int error = journal->tape.file < 0 ? -EBADF : qi_tape_load(&journal->tape, 0, journal->tail);
    journal->cold = error != 0;
    return error;
}

/* Both copies of the header become what the first one is in memory. */
static int write_copies(struct qi_journal *journal) {
    memcpy(journal->tape.memory + QI_JOURNAL_HEADER_COPY, journal->tape.memory, QI_JH_SIZE);
    int error = qi_tape_wrote(&journal->tape, 0, QI_JH_SIZE);
    return error ? error : qi_tape_wrote(&journal->tape, QI_JOURNAL_HEADER_COPY, QI_JH_SIZE);
}

int qi_journal_retire(struct qi_journal *journal) {
    assert(journal->tape.file >= 0);
    memset(journal->tape.memory, 0, QI_JH_SIZE);
    return write_copies(journal);
}

int qi_journal_put_away(struct qi_journal *journal) {
    assert(journal->tape.file >= 0);
    uint8_t *header = journal->tape.memory;
    memcpy(header, QI_PAST_MAGIC, 8);
    qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    return write_copies(journal);
}

static bool header_is_valid(const uint8_t *header, const uint8_t *identity) {
    return memcmp(header, QI_JOURNAL_MAGIC, 8) == 0 &&
           memcmp(header + QI_JH_IDENTITY, identity, QI_IDENTITY_SIZE) == 0 &&
           qi_get32(header + QI_JH_CRC) == qi_crc32c(0, header, QI_JH_CRC);
}

bool qi_journal_read_header(struct qi_journal *journal, const uint8_t *identity, uint64_t *epoch,
                            bool *damaged) {
    if (journal->tape.allocated < QI_JOURNAL_START)
        return false;
    const uint8_t *first = journal->tape.memory, *second = first + QI_JOURNAL_HEADER_COPY;
    bool first_valid = header_is_valid(first, identity),
         second_valid = header_is_valid(second, identity);
    if (!first_valid && !second_valid)
        return false;
    uint64_t epochs[2] = {first_valid ? qi_get64(first + QI_JH_EPOCH) : 0,
                          second_valid ? qi_get64(second + QI_JH_EPOCH) : 0};
    /* Zeros: a rotation or a retirement that was cut off between the copies. */
    *damaged = (!first_valid && qi_get64(first) != 0) || (!second_valid && qi_get64(second) != 0);
    /* Two epochs: a recycled file whose new header reached the medium by half. The frames of the
     * older one were flushed before the file was recycled, so the newer is the only one that can
     * matter. */
    bool is_second = epochs[1] > epochs[0] || !first_valid;
    *epoch = epochs[is_second];
    journal->version = qi_get32((is_second ? second : first) + QI_JH_VERSION);
    return true;
}

int qi_journal_mend(struct qi_journal *journal, const uint8_t *identity) {
    uint8_t *first = journal->tape.memory, *second = first + QI_JOURNAL_HEADER_COPY;
    if (memcmp(first, second, QI_JH_SIZE) == 0)
        return 0;
    bool first_is_good =
        header_is_valid(first, identity) && qi_get64(first + QI_JH_EPOCH) == journal->epoch;
    uint8_t *bad = first_is_good ? second : first, before[QI_JH_SIZE];
    memcpy(before, bad, QI_JH_SIZE);
    memcpy(bad, first_is_good ? first : second, QI_JH_SIZE);
    struct qi_tape *tape = &journal->tape;
    uint64_t at = (uint64_t)(bad - first);
    int error = qi_tape_wrote(tape, at, QI_JH_SIZE);
    /* A MARK says that both copies were durable: one that a power cut tears is damage then. */
    if (!error)
        error = tape->disk->ops->sync(tape->disk, tape->file);
    if (error) { /* who tries again has to see it: the next sync may say yes for nothing (H13) */
        memcpy(bad, before, QI_JH_SIZE);
        qi_tape_wrote(tape, at, QI_JH_SIZE);
    }
    return error;
}

static uint8_t *frame_at(struct qi_journal *journal) {
    return journal->tape.memory + journal->tail;
}

int qi_journal_room(struct qi_journal *journal, uint64_t payload, bool urgent, uint8_t **at) {
    if (payload > QI_FRAME_LENGTH_MAX)
        return -EFBIG;
    uint64_t need = journal->tail + QI_MARK_SIZE + QI_MOMENT_FRAME + QI_FRAME_HEADER + payload +
                    QI_FRAME_HEADER + (urgent ? 0 : 2 * QI_JOURNAL_SPARE + journal->drain_room);
    if (__builtin_expect(need > journal->tape.ready, 0)) {
        int error = qi_tape_make_ready(&journal->tape, journal->tail, need,
                                       urgent ? 0 : journal->keep_free);
        if (error)
            return error;
    }
    if (__builtin_expect(journal->synced > journal->marked, 0)) {
        uint8_t *mark = frame_at(journal) + QI_FRAME_HEADER;
        qi_put64(mark, journal->synced);
        qi_put64(mark + 8, journal->mark_time_us);
        uint64_t says = journal->synced;
        int error = qi_journal_append(journal, QI_FRAME_MARK, 16);
        if (error)
            return error;
        journal->marked = says;
    }
    *at = frame_at(journal) + QI_FRAME_HEADER;
    return 0;
}

int qi_journal_moment_new(struct qi_journal *journal, uint64_t now_us) {
    uint8_t *at;
    int error = qi_journal_room(journal, QI_MOMENT_SIZE, false, &at);
    if (error)
        return error;
    qi_put16(at, QI_KIND_MOMENT);
    qi_put64(at + QI_KIND_SIZE, now_us);
    error = qi_journal_append(journal, QI_FRAME_EXTENDED, QI_MOMENT_SIZE);
    if (!error)
        journal->moment_us = now_us;
    return error;
}

uint64_t qi_read_moment(const struct qi_frame *frame) {
    bool is_moment = frame->type == QI_FRAME_EXTENDED && frame->length >= QI_MOMENT_SIZE &&
                     qi_get16(frame->payload) == QI_KIND_MOMENT;
    return is_moment ? qi_get64(frame->payload + QI_KIND_SIZE) : UINT64_MAX;
}

int qi_journal_mark(struct qi_journal *journal) {
    uint8_t *at;
    int error = journal->synced > journal->marked ? qi_journal_room(journal, 0, true, &at) : 0;
    return qi_is_disk_full(error) || error == -EFBIG ? 0 : error;
}

/* A write that failed may have written the whole frame: its caller is told that nothing was
 * changed, so it must not be there when the journal is read again. Bytes that cannot be taken back
 * fail the store. */
static int take_back(struct qi_journal *journal, int error) {
    static const uint8_t nothing[QI_FRAME_HEADER];
    const struct qi_disk_ops *ops = journal->tape.disk->ops;
    uint8_t there[QI_FRAME_HEADER] = {0};
    int64_t got =
        ops->read(journal->tape.disk, journal->tape.file, there, sizeof there, journal->tail);
    if (got >= 0 && memcmp(there, nothing, sizeof there) == 0)
        return error;
    if (qi_tape_wrote(&journal->tape, journal->tail, QI_FRAME_HEADER) == 0)
        return error;
    journal->in_doubt = true;
    return -EIO;
}

int qi_journal_append(struct qi_journal *journal, uint32_t type, uint32_t length) {
    uint8_t *frame = frame_at(journal);
    uint64_t size = QI_FRAME_HEADER + (uint64_t)length;
    assert(!journal->ended || type == QI_FRAME_SESSION || type == QI_FRAME_MARK);
    if (__builtin_expect(journal->failed && *journal->failed, 0) &&
        !QI_BUG(appended_behind_failure)) {
        memset(frame, 0, size);
        return -QI_STORE_HAS_FAILED;
    }
    memset(frame + size, 0, QI_FRAME_HEADER);
    qi_frame_seal(journal->seed, frame, journal->tail, type, length);
    int error = qi_tape_wrote(&journal->tape, journal->tail, size + QI_FRAME_HEADER);
    if (__builtin_expect(error != 0, 0)) {
        memset(frame, 0, size);
        return take_back(journal, error);
    }
    journal->tail += size;
    return 0;
}

/* Up to *size, which a cut keeps. */
static int write_zeros(struct qi_journal *journal, uint64_t end, uint64_t room, uint64_t *size) {
    struct qi_tape *tape = &journal->tape;
    *size = qi_journal_size_cut_at(end + room);
    if (*size > tape->allocated)
        *size = tape->allocated;
    memset(tape->memory + end, 0, *size - end);
    return qi_tape_wrote(tape, end, *size - end);
}

int qi_journal_cut(struct qi_journal *journal, uint64_t end) {
    return qi_journal_cut_with_room(journal, end, 0);
}

int qi_journal_cut_with_room(struct qi_journal *journal, uint64_t end, uint64_t room) {
    uint64_t size;
    if (room)
        qi_tape_reserve(&journal->tape, qi_journal_size_cut_at(end + room), 0); /* or less */
    int error = write_zeros(journal, end, room, &size);
    return error ? error : qi_tape_cut(&journal->tape, size);
}

int qi_journal_end_file(struct qi_journal *journal, uint64_t room) {
    uint64_t size = qi_journal_size_cut_at(journal->tail + room);
    if (size <= journal->tape.allocated && journal->tape.allocated <= size + SMALL &&
        qi_journal_ends_with_zeros(journal, journal->tail) == 1)
        return 0;
    return qi_journal_cut_with_room(journal, journal->tail, room);
}

int qi_journal_ends_with_zeros(struct qi_journal *journal, uint64_t end) {
    struct qi_tape *tape = &journal->tape;
    for (uint64_t to, step = PAGE; end < tape->allocated; end = to, step = PIECE) {
        to = (end / step + 1) * step;
        if (to > tape->allocated)
            to = tape->allocated;
        int error = qi_tape_load(tape, end, to);
        if (error)
            return error;
        const uint8_t *bytes = tape->memory + end;
        if (bytes[0] != 0 || memcmp(bytes, bytes + 1, to - end - 1) != 0)
            return 0;
    }
    return 1;
}

int qi_journal_cut_tail(struct qi_journal *journal, uint64_t end) {
    struct qi_tape *tape = &journal->tape;
    int zeros = qi_journal_ends_with_zeros(journal, end);
    if (zeros < 0)
        return zeros;
    if (zeros) /* with more of them or fewer, it is the same */
        return tape->allocated > end + SPARE_MAX ? qi_journal_cut(journal, end) : 0;
    uint64_t size;
    int error = write_zeros(journal, end, 0, &size);
    if (!error)
        error = qi_tape_clear(tape, size);
    return error ? error : tape->disk->ops->sync(tape->disk, tape->file);
}

static void note_frame(struct qi_scan *scan, const struct qi_frame *frame) {
    scan->end = frame->offset + QI_FRAME_HEADER + frame->length;
    scan->closed = qi_read_close(frame, &scan->next);
    if (frame->type == QI_FRAME_MANIFEST)
        scan->manifest = frame->offset;
    if (frame->type == QI_FRAME_EXTENDED && qi_get16(frame->payload) != QI_KIND_MOMENT) {
        uint32_t kind = qi_get16(frame->payload);
        bool skipped = kind >= QI_KIND_SKIPPED;
        scan->skipped += skipped;
        if (!skipped && !scan->refused) {
            scan->refused = frame->offset;
            scan->refused_kind = kind;
        }
    }
    if (frame->type == QI_FRAME_MANIFEST && frame->length >= 16)
        scan->session = qi_get64(frame->payload + 8);
    if (frame->type == QI_FRAME_SESSION && frame->length >= 8)
        scan->session = qi_get64(frame->payload);
    if ((frame->type == QI_FRAME_MARK || frame->type == QI_FRAME_CLOSE) && frame->length >= 16) {
        uint64_t mark = qi_get64(frame->payload), time_us = qi_get64(frame->payload + 8);
        if (mark > scan->mark)
            scan->mark = mark;
        if (time_us > scan->time_us)
            scan->time_us = time_us;
    }
}

/* The highest offset that a frame of that type and length between the two says was durable. The
 * header word is searched for as it is, by its last byte, the rarest: a recycled file has megabytes
 * of old frames, which need not be looked at. */
static uint64_t highest_mark(const struct qi_journal *journal, uint64_t offset, uint64_t end,
                             uint32_t type, uint32_t length) {
    const uint8_t *bytes = journal->tape.memory;
    uint64_t mark = 0;
    uint8_t word[4];
    qi_put32(word, type << 28 | length);
    while (offset + sizeof word <= end) {
        const uint8_t *found = memchr(bytes + offset + 3, word[3], end - offset - 3);
        if (!found)
            break;
        offset = (uint64_t)(found - bytes) - 3;
        struct qi_frame frame;
        if (memcmp(bytes + offset, word, sizeof word) == 0 &&
            qi_frame_read(journal->seed, bytes, journal->tape.allocated, offset, 0, &frame) ==
                QI_FRAME_VALID &&
            qi_get64(frame.payload) > mark)
            mark = qi_get64(frame.payload);
        offset++;
    }
    return mark;
}

static uint64_t mark_between(const struct qi_journal *journal, uint64_t offset, uint64_t end) {
    uint64_t mark = highest_mark(journal, offset, end, QI_FRAME_MARK, 16);
    uint64_t close = highest_mark(journal, offset, end, QI_FRAME_CLOSE, 28);
    return mark > close ? mark : close;
}

/* A MARK never says more than its own offset, so one search from the first bad place on answers for
 * all later ones. */
static uint64_t mark_behind(const struct qi_journal *journal, uint64_t offset, uint64_t size) {
    uint64_t mark = mark_between(journal, offset, size);
    if (QI_BUG(marks_ignored))
        return 0;
    return mark > journal->covered ? mark : journal->covered;
}

/* They come every few milliseconds: from the end, the first piece that has one has the last. */
int qi_journal_last_mark(struct qi_journal *journal, uint64_t *mark, uint64_t *from) {
    struct qi_tape *tape = &journal->tape;
    *mark = 0;
    *from = tape->allocated;
    while (*from > QI_JOURNAL_START && *mark == 0) {
        uint64_t end = *from, reach = end + 3 < tape->allocated ? end + 3 : tape->allocated;
        *from = end > QI_JOURNAL_START + PIECE ? end - PIECE : QI_JOURNAL_START;
        int error = qi_tape_load(tape, *from, end);
        if (error)
            return error;
        *mark = mark_between(journal, *from, reach);
    }
    return 0;
}

uint64_t qi_journal_walk_from(const struct qi_journal *journal, uint64_t offset) {
    struct qi_frame frame;
    while (qi_frame_read(journal->seed, journal->tape.memory, journal->tape.allocated, offset, 0,
                         &frame) == QI_FRAME_VALID)
        offset = frame.offset + QI_FRAME_HEADER + frame.length;
    return offset;
}

/* There is one behind `from`: zeros would be the end. */
static uint64_t last_nonzero(const struct qi_journal *journal, uint64_t from, uint64_t at) {
    while (at > from && journal->tape.memory[at - 1] == 0)
        at--;
    return at;
}

static void walk(const struct qi_journal *journal, uint64_t offset, uint64_t size,
                 struct qi_scan *scan) {
    const uint8_t *bytes = journal->tape.memory;
    uint64_t mark = 0;
    struct qi_frame frame;
    for (bool first = true;;) {
        enum qi_frame_state state = qi_frame_read(journal->seed, bytes, size, offset, 0, &frame);
        if (state == QI_FRAME_VALID) {
            note_frame(scan, &frame);
            offset = scan->end;
            continue;
        }
        if (first && offset + QI_FRAME_HEADER <= size)
            mark = mark_behind(journal, offset, size);
        first = false;
        if (state == QI_FRAME_END && offset + QI_FRAME_HEADER <= size && mark <= offset)
            return;
        if (offset + QI_FRAME_HEADER > size) {
            scan->cut_short = !scan->closed && size % PAGE != 0;
            return;
        }
        if (mark <= offset) { /* nothing says that this was ever durable: a torn tail */
            scan->torn_bytes = last_nonzero(journal, offset, size) - offset;
            scan->cut_short = size % PAGE != 0;
            return;
        }
        if (scan->damaged++ == 0)
            scan->first_damage = offset;
        if (!qi_frame_find(journal->seed, bytes, size, offset + 1, &scan->effort, &frame)) {
            scan->damaged_bytes += last_nonzero(journal, offset, size) - offset;
            return;
        }
        scan->damaged_bytes += frame.offset - offset;
        offset = frame.offset;
    }
}

static struct qi_scan new_scan(const struct qi_journal *journal) {
    return (struct qi_scan){.end = QI_JOURNAL_START,
                            .mark = journal->covered,
                            .effort = 4 * QI_FRAME_EFFORT(journal->tape.allocated)};
}

void qi_journal_scan(const struct qi_journal *journal, uint64_t size, struct qi_scan *scan) {
    *scan = new_scan(journal);
    walk(journal, QI_JOURNAL_START, size < journal->tape.allocated ? size : journal->tape.allocated,
         scan);
}

void qi_journal_scan_behind(const struct qi_journal *journal, struct qi_scan *scan) {
    *scan = new_scan(journal);
    scan->damaged = 1;
    scan->first_damage = QI_JOURNAL_START;
    struct qi_frame frame;
    if (!qi_frame_find(journal->seed, journal->tape.memory, journal->tape.allocated,
                       QI_JOURNAL_START + 1, &scan->effort, &frame))
        return;
    scan->damaged_bytes = frame.offset - QI_JOURNAL_START;
    walk(journal, frame.offset, journal->tape.allocated, scan);
}

bool qi_journal_next(const struct qi_journal *journal, struct qi_scan *scan, uint64_t *offset,
                     struct qi_frame *frame) {
    const uint8_t *bytes = journal->tape.memory;
    if (*offset >= scan->end)
        return false;
    if (scan->damaged == 0) { /* every frame below end was checked: read the header only */
        uint32_t word = qi_get32(bytes + *offset);
        scan->changed = *offset + QI_FRAME_HEADER + (word & QI_FRAME_LENGTH_MAX) > scan->end;
        if (scan->changed)
            return false;
        *frame = (struct qi_frame){*offset, word >> 28, word & QI_FRAME_LENGTH_MAX,
                                   bytes + *offset + QI_FRAME_HEADER};
    } else if (qi_frame_read(journal->seed, bytes, scan->end, *offset, 0, frame) !=
                   QI_FRAME_VALID &&
               !qi_frame_find(journal->seed, bytes, scan->end, *offset, &scan->effort, frame)) {
        return false;
    }
    *offset = frame->offset + QI_FRAME_HEADER + frame->length;
    return true;
}

int qi_files_prove(struct qi_journal *journal, const uint8_t *identity, uint64_t from,
                   uint64_t to) {
    if (QI_BUG(parked_not_proven))
        return 0;
    uint64_t epoch, offset = from < QI_JOURNAL_START ? QI_JOURNAL_START : from;
    bool damaged = false;
    if (from < QI_JOURNAL_START &&
        (!qi_journal_read_header(journal, identity, &epoch, &damaged) || epoch != journal->epoch))
        return -EIO;
    struct qi_frame frame;
    while (offset < to && qi_frame_read(journal->seed, journal->tape.memory, to, offset, 0,
                                        &frame) == QI_FRAME_VALID)
        offset = frame.offset + QI_FRAME_HEADER + frame.length;
    return offset == to ? 0 : -EIO;
}
