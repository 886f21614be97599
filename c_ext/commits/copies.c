/* copies.c - what the commit logs have of each queue that was not recovered yet (see commits.h).
 *
 * COPYs, and the parts of TRANSACTIONs, which are the same. They are written into journals, which
 * are synced before anybody sees them.
 */

#include "commits/commits.h"
#include "commits/commits_private.h"

#define QI_JOURNAL_BYTES_MAX (UINT64_C(1) << 30) /* FORMAT.rst, section 8 */

/* ---- the table of queues ---- */

static struct qi_copied *place_of(const struct qi_commits *commits, const uint8_t *identity) {
    uint32_t at = (uint32_t)qi_get64(identity) & (commits->copied_room - 1);
    while (commits->copied[at].first &&
           memcmp(commits->copied[at].identity, identity, QI_IDENTITY_SIZE) != 0)
        at = (at + 1) & (commits->copied_room - 1);
    return &commits->copied[at];
}

/* At most half of the places are taken. False: no memory. */
static bool has_place(struct qi_commits *commits) {
    if (2 * (commits->copied_count + 1) <= commits->copied_room)
        return true;
    struct qi_commits wider = {.copied_room = commits->copied_room ? 2 * commits->copied_room : 64};
    wider.copied = qi_calloc(wider.copied_room, sizeof *wider.copied);
    if (!wider.copied)
        return false;
    for (uint32_t i = 0; i < commits->copied_room; i++)
        if (commits->copied[i].first)
            *place_of(&wider, commits->copied[i].identity) = commits->copied[i];
    qi_free(commits->copied);
    commits->copied = wider.copied;
    commits->copied_room = wider.copied_room;
    return true;
}

/* NULL: nothing is known of it, or it was recovered. */
static struct qi_copied *find(const struct qi_commits *commits, const uint8_t *identity) {
    if (!commits || commits->copied_room == 0)
        return NULL;
    struct qi_copied *copied = place_of(commits, identity);
    return copied->oldest ? copied : NULL;
}

static bool has_copy_room(struct qi_commits *commits) {
    if (commits->copies_count < commits->copies_room)
        return true;
    uint32_t room = commits->copies_room ? 2 * commits->copies_room : 1024;
    struct qi_copy *copies = qi_realloc(commits->copies, room * sizeof *copies);
    if (!copies)
        return false;
    commits->copies = copies;
    commits->copies_room = room;
    return true;
}

/* The payload of a COPY, of so many bytes, which stands there in the frame's. */
static int note_copy(struct qi_commits *commits, struct qi_commit_log *log,
                     const struct qi_frame *frame, uint32_t at, uint32_t size) {
    const uint8_t *payload = frame->payload + at, *identity = payload + QI_COPY_IDENTITY;
    if (!has_copy_room(commits) || !has_place(commits))
        return qi_fail(QI_E_MEMORY, "no memory to read the commit log");
    struct qi_copied *copied = place_of(commits, identity);
    commits->copies[commits->copies_count++] =
        (struct qi_copy){.log = log,
                         .at = frame->offset,
                         .epoch = qi_get64(payload + QI_COPY_EPOCH),
                         .offset = qi_get64(payload + QI_COPY_OFFSET),
                         .length = frame->length,
                         .bytes = at + QI_COPY_BYTES,
                         .size = size - QI_COPY_BYTES};
    if (copied->first) {
        commits->copies[copied->last - 1].next = commits->copies_count;
    } else {
        memcpy(copied->identity, identity, QI_IDENTITY_SIZE);
        copied->first = commits->copies_count;
        copied->oldest = log;
        log->needed++;
        commits->copied_count++;
    }
    copied->last = commits->copies_count;
    return 0;
}

bool qi_is_copy(const uint8_t *payload, uint32_t size) {
    return size > QI_COPY_BYTES && qi_get16(payload) == QI_KIND_COPY &&
           qi_get64(payload + QI_COPY_OFFSET) < QI_JOURNAL_BYTES_MAX;
}

int qi_copies_take(struct qi_commits *commits, struct qi_commit_log *log,
                   const struct qi_frame *frame, uint32_t at, uint32_t size) {
    return qi_is_copy(frame->payload + at, size) ? note_copy(commits, log, frame, at, size)
                                                 : QI_EMPTY;
}

/* ---- the COPYs of a queue ---- */

/* The frame was checked when the store was opened; what the disk gives now is checked again. */
static int lay_one(struct qi_commits *commits, const struct qi_copy *copy, qi_put_fn put,
                   void *context) {
    const struct qi_journal *journal = &copy->log->journal;
    struct qi_tape *tape = &copy->log->journal.tape;
    uint64_t end = copy->at + QI_FRAME_HEADER + copy->length;
    int error = commits->use_mapping ? qi_tape_load(tape, copy->at, end) : 0;
    struct qi_frame frame;
    if (error)
        return qi_fail_disk(error, "cannot read commits", qi_log_name(journal->epoch).text);
    if (qi_frame_read(journal->seed, tape->memory, end, copy->at, 0, &frame) != QI_FRAME_VALID)
        return qi_fail_changed(qi_log_name(journal->epoch).text, "commits");
    error = put(context, frame.payload + copy->bytes, copy->size, copy->offset);
    return error ? qi_fail_disk(error, "cannot write what the commit log has of", "a journal") : 0;
}

int qi_commits_lay(struct qi_commits *commits, const uint8_t *identity, uint64_t epoch,
                   qi_put_fn put, void *context) {
    const struct qi_copied *copied = find(commits, identity);
    int error = 0;
    for (uint32_t i = copied ? copied->first : 0; i && !error; i = commits->copies[i - 1].next) {
        const struct qi_copy *copy = &commits->copies[i - 1];
        if (copy->epoch == epoch || QI_BUG(copy_of_another_epoch))
            error = lay_one(commits, copy, put, context);
    }
    return error;
}

uint64_t qi_commits_covered(const struct qi_commits *commits, const uint8_t *identity,
                            uint64_t epoch) {
    const struct qi_copied *copied = find(commits, identity);
    uint64_t covered = 0;
    for (uint32_t i = copied ? copied->first : 0; i; i = commits->copies[i - 1].next) {
        const struct qi_copy *copy = &commits->copies[i - 1];
        if (copy->epoch == epoch && copy->offset + copy->size > covered)
            covered = copy->offset + copy->size;
    }
    return covered;
}

uint64_t qi_commits_epoch(const struct qi_commits *commits, const uint8_t *identity) {
    const struct qi_copied *copied = find(commits, identity);
    uint64_t epoch = 0;
    for (uint32_t i = copied ? copied->first : 0; i; i = commits->copies[i - 1].next)
        if (commits->copies[i - 1].epoch > epoch)
            epoch = commits->copies[i - 1].epoch;
    return epoch;
}

static void take(struct qi_copied *copied) {
    copied->oldest->needed--;
    copied->oldest = NULL;
}

void qi_commits_taken(struct qi_commits *commits, const uint8_t *identity) {
    struct qi_copied *copied = find(commits, identity);
    if (!copied)
        return;
    take(copied);
    qi_commits_release(commits);
}

void qi_commits_all_taken(struct qi_commits *commits) {
    if (!commits)
        return;
    for (uint32_t i = 0; i < commits->copied_room; i++)
        if (commits->copied[i].oldest)
            take(&commits->copied[i]);
    qi_free(commits->copies);
    qi_free(commits->copied);
    commits->copies = NULL;
    commits->copied = NULL;
    commits->copies_count = commits->copies_room = commits->copied_count = commits->copied_room = 0;
    qi_commits_release(commits);
}
