/* compact.c - which message files are worth copying, and the switch to the copy.
 *
 * Files that are mostly garbage give their survivors to one new file and are unlinked. Order (H15):
 * copy, sync, rename, sync the directory (compact_copy.c); only then unlink the victims. A crash
 * before the rename leaves a file N.new that the next open removes; a crash behind it leaves
 * victims whose births live elsewhere: they have no references, so they are freed like any empty
 * file.
 */
#include "bodies/bodies_private.h"

#include <assert.h>

/* Of a fan-out message that some queues have acked only a share counts; a compaction that looked
 * knows better. */
static uint64_t live_at_least(const struct qi_message_file *file) {
    bool known = file->looked_at && file->references == file->references_then;
    return known ? file->live_then : file->live;
}

static bool is_worth(const struct qi_message_file *file, uint64_t live, uint32_t percent) {
    uint64_t frames = file->frames_end - QI_MESSAGES_START;
    return live < frames && (frames - live) * 100 >= frames * percent;
}

static bool may_be_victim(const struct qi_messages *messages, const struct qi_message_file *file,
                          uint32_t percent) {
    if (file->unsynced || file->alien || file->damaged || file->victim || file->pinned > 0)
        return false;
    if (qi_message_file_is_newest(messages, file->number) || file->frames_end <= QI_MESSAGES_START)
        return false;
    if (!is_worth(file, live_at_least(file), percent))
        return false;
    return !file->looked_at || is_worth(file, file->live_then, percent) ||
           file->references * 100 <= file->references_then * (100 - percent);
}

/* Notes the birth files that live in the victims; sorted, because the birth files are. */
static bool note_homes(struct qi_messages *messages, struct qi_compaction *compaction) {
    compaction->homes = qi_malloc((messages->births_count + 1) * sizeof *compaction->homes);
    if (!compaction->homes)
        return false;
    for (uint32_t i = 0; i < messages->births_count; i++) {
        const struct qi_birth_file *birth = &messages->births[i];
        uint32_t file = 0;
        while (file < compaction->victims_count && compaction->victims[file] != birth->home)
            file++;
        if (file == compaction->victims_count)
            continue;
        compaction->homes[compaction->homes_count++] =
            (struct qi_birth_home){.birth = birth->number, .file = file};
    }
    return true;
}

uint32_t qi_compact_pick(struct qi_messages *messages, uint32_t garbage_percent,
                         struct qi_compaction *compaction) {
    *compaction = (struct qi_compaction){
        .disk = messages->disk, .dir = messages->dir, .keep_free = messages->keep_free};
    memcpy(compaction->identity, messages->identity, QI_IDENTITY_SIZE);
    if (!messages->counted || messages->miscounted || messages->read_only || messages->failed)
        return 0;
    if (messages->number_next > QI_MESSAGES_NUMBER_MAX)
        return 0;
    if (garbage_percent == 0)
        garbage_percent = 1; /* nothing is gained by copying a file that is wholly alive */
    qi_messages_weigh(messages);
    uint64_t room = messages->file_size_max - QI_MESSAGES_START;
    for (uint32_t i = 0; i < messages->files_count && compaction->victims_count < QI_VICTIMS_MAX;
         i++) {
        struct qi_message_file *file = &messages->files[i];
        if (live_at_least(file) > room || !may_be_victim(messages, file, garbage_percent))
            continue;
        room -= live_at_least(file);
        compaction->victims[compaction->victims_count] = file->number;
        struct qi_message_file *copy = &compaction->files[compaction->victims_count++];
        *copy = *file;
        copy->handle = -1;
        copy->births = NULL;
    }
    if (compaction->victims_count == 0 || !note_homes(messages, compaction)) {
        compaction->victims_count = 0;
        return 0;
    }
    for (uint32_t i = 0; i < compaction->victims_count; i++) {
        qi_message_file_find(messages, compaction->victims[i])->victim = true;
        compaction->files[i].victim = true;
    }
    compaction->number = messages->number_next++;
    return compaction->victims_count;
}

struct qi_birth_home *qi_compaction_home(const struct qi_compaction *compaction,
                                         uint32_t birth_file) {
    uint32_t low = 0, high = compaction->homes_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compaction->homes[middle].birth < birth_file)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < compaction->homes_count && compaction->homes[low].birth == birth_file;
    return found ? &compaction->homes[low] : NULL;
}

/* Bytes of each victim that are alive; `live` is sorted, equal ids follow each other. */
static void weigh_victims(struct qi_compaction *compaction) {
    struct qi_birth_home *home = NULL;
    for (uint32_t i = 0; i < compaction->victims_count; i++)
        compaction->files[i].live = 0;
    for (uint64_t i = 0; i < compaction->live_count; i++) {
        struct qi_msg_id id = compaction->live[i];
        if (i > 0 && memcmp(&compaction->live[i - 1], &id, sizeof id) == 0)
            continue;
        if (!home || home->birth != id.file)
            home = qi_compaction_home(compaction, id.file);
        assert(home); /* or nobody would have marked it */
        compaction->files[home->file].live += qi_frame_bytes(id);
    }
}

uint32_t qi_compact_look(struct qi_messages *messages, uint32_t garbage_percent,
                         struct qi_compaction *compaction) {
    uint64_t room = messages->file_size_max - QI_MESSAGES_START;
    uint32_t left = 0;
    weigh_victims(compaction);
    for (uint32_t i = 0; i < compaction->victims_count; i++) {
        struct qi_message_file *copy = &compaction->files[i];
        struct qi_message_file *file = qi_message_file_find(messages, copy->number);
        file->looked_at = true;
        file->live_then = copy->live;
        file->references_then = copy->references;
        if (is_worth(copy, copy->live, garbage_percent) && copy->live <= room) {
            room -= copy->live;
            left++;
        } else {
            copy->victim = file->victim = false;
            copy->spared = true;
        }
    }
    return left;
}

bool qi_compaction_holds(const struct qi_compaction *compaction, uint32_t birth_file) {
    return qi_compaction_home(compaction, birth_file) != NULL;
}

/* Gives up what pick took; the output, if there is one, has been listed or unlinked. */
static void release(struct qi_messages *messages, struct qi_compaction *compaction) {
    for (uint32_t i = 0; i < compaction->victims_count; i++) {
        struct qi_message_file *file = qi_message_file_find(messages, compaction->victims[i]);
        if (!file)
            continue;
        file->victim = false;
        if (!compaction->files[i].victim && !compaction->files[i].spared)
            file->damaged = true;
    }
    qi_free(compaction->live);
    qi_free(compaction->births);
    qi_free(compaction->homes);
    compaction->live = NULL;
    compaction->live_count = 0;
    compaction->births = NULL;
    compaction->homes = NULL;
    compaction->homes_count = compaction->victims_count = 0;
    messages->dir_unsynced = true;
    messages->dir_changes++;
}

void qi_compact_abandon(struct qi_messages *messages, struct qi_compaction *compaction) {
    if (compaction->victims_count == 0)
        return;
    if (compaction->number !=
        0) /* Should this fail: the next open finds a file whose births nobody needs there. */
        messages->disk->ops->unlink(messages->disk, messages->dir,
                                    qi_message_name(compaction->number, false).file);
    release(messages, compaction);
}

/* A birth file with references must have survivors, or be among the victims that stay. */
static bool would_lose_messages(const struct qi_messages *messages,
                                const struct qi_compaction *compaction) {
    for (uint32_t i = 0; i < compaction->homes_count; i++) {
        const struct qi_birth_home *home = &compaction->homes[i];
        if (home->survives || !compaction->files[home->file].victim)
            continue;
        const struct qi_birth_file *birth = qi_birth_file_find(messages, home->birth);
        assert(birth); /* of a file that nobody else may free */
        if (birth->references > 0)
            return true;
    }
    return false;
}

static int list_output(struct qi_messages *messages, const struct qi_compaction *compaction) {
    if (compaction->number == 0)
        return 0;
    struct qi_message_file output = {.number = compaction->number,
                                     .size = compaction->size,
                                     .frames_end = compaction->frames_end,
                                     .handle = -1,
                                     .compacted = true,
                                     .looked_at = true,
                                     .live_then = compaction->frames_end - QI_MESSAGES_START,
                                     .births_count = (uint32_t)compaction->births_count};
    int error = qi_message_file_insert(messages, &output);
    if (error)
        return qi_fail_disk(error, "list", qi_message_name(compaction->number, false).shown);
    struct qi_message_file *listed = qi_message_file_find(messages, compaction->number);
    for (uint32_t i = 0; i < compaction->homes_count; i++) {
        struct qi_birth_file *birth = qi_birth_file_find(messages, compaction->homes[i].birth);
        if (!compaction->homes[i].survives)
            continue;
        assert(birth);
        birth->home = compaction->number;
        listed->references_then += birth->references;
    }
    return 0;
}

int64_t qi_compact_commit(struct qi_messages *messages, struct qi_compaction *compaction) {
    int error = 0;
    if (would_lose_messages(messages, compaction))
        error = qi_fail(QI_E_CORRUPT, "compaction was not told all survivors: nothing was changed");
    if (!error)
        error = list_output(messages, compaction);
    if (error) {
        qi_compact_abandon(messages, compaction);
        return error;
    }
    int64_t freed = -(int64_t)compaction->size;
    for (uint32_t i = 0; i < compaction->victims_count; i++) {
        if (!compaction->files[i].victim)
            continue; /* it was spared, and may have been freed during the copy */
        struct qi_message_file *file = qi_message_file_find(messages, compaction->victims[i]);
        assert(file);
        int failed = qi_message_file_unlink(messages, file);
        if (failed) { /* it has no references any more: it will be freed as an empty file */
            error = failed;
            continue;
        }
        freed += (int64_t)file->size;
        qi_birth_files_drop(messages, file->number);
        qi_message_file_remove(messages, file);
    }
    release(messages, compaction);
    return error ? error : freed > 0 ? freed : 0;
}
