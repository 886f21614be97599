/* messages_files.c - which files there are: reading the directory, handles, references, freeing.
 *
 * A number is never used twice: the next one is above all that exist, and the newest file is not
 * removed before a newer one exists. A file is removed only if it was understood, if every queue
 * has reported its references, and if none of the birth files that live in it has any.
 */
#include "bodies/bodies_private.h"

#include <assert.h>
#include <errno.h>

/* ---- the list ---- */

static int make_room(void **array, uint32_t *room, uint32_t count, uint32_t more, size_t size) {
    if (*room - count >= more)
        return 0;
    uint64_t target =
        (uint64_t)*room * 2 < (uint64_t)count + more ? (uint64_t)count + more : (uint64_t)*room * 2;
    if (target < 16)
        target = 16;
    assert(target <= UINT32_MAX); /* of 2^32 numbers */
    void *grown = qi_realloc(*array, target * size);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    *room = (uint32_t)target;
    return 0;
}

static uint32_t file_index(const struct qi_messages *messages, uint32_t number) {
    uint32_t low = 0, high = messages->files_count;
    if (high > 0 && messages->files[high - 1].number < number)
        return high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (messages->files[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct qi_message_file *qi_message_file_find(const struct qi_messages *messages, uint32_t number) {
    uint32_t index = file_index(messages, number);
    bool found = index < messages->files_count && messages->files[index].number == number;
    return found ? &messages->files[index] : NULL;
}

int qi_message_files_room(struct qi_messages *messages, uint32_t more) {
    return make_room((void **)&messages->files, &messages->files_room, messages->files_count, more,
                     sizeof *messages->files);
}

int qi_message_file_insert(struct qi_messages *messages, const struct qi_message_file *file) {
    int error = qi_message_files_room(messages, 1);
    if (error)
        return error;
    uint32_t index = file_index(messages, file->number);
    struct qi_message_file *at = &messages->files[index];
    memmove(at + 1, at, (messages->files_count - index) * sizeof *at);
    *at = *file;
    messages->files_count++;
    if (file->handle >= 0)
        messages->files_open++;
    if (file->unsynced)
        messages->files_unsynced++;
    return 0;
}

void qi_message_file_remove(struct qi_messages *messages, struct qi_message_file *file) {
    assert(file->pinned == 0);
    qi_message_file_close(messages, file);
    if (file->unsynced)
        messages->files_unsynced--;
    uint32_t index = (uint32_t)(file - messages->files);
    messages->files_count--;
    memmove(file, file + 1, (messages->files_count - index) * sizeof *file);
}

bool qi_message_file_is_newest(const struct qi_messages *messages, uint32_t number) {
    if (messages->tape.file >= 0 && messages->tape_number > number)
        return false;
    assert(messages->files_count > 0); /* it is one of them */
    return messages->files[messages->files_count - 1].number <= number;
}

/* ---- handles ---- */

static uint32_t handles_max(const struct qi_messages *messages) {
    return qi_disk_share(messages->disk, QI_MESSAGES_HANDLES_MAX);
}

void qi_message_file_close(struct qi_messages *messages, struct qi_message_file *file) {
    qi_free(file->births);
    file->births = NULL;
    if (file->handle < 0)
        return;
    messages->disk->ops->close(messages->disk, file->handle);
    file->handle = -1;
    messages->files_open--;
}

void qi_message_file_synced(struct qi_messages *messages, struct qi_message_file *file) {
    file->unsynced = false;
    messages->files_unsynced--;
    if (file->pinned == 0 && messages->files_open > handles_max(messages))
        qi_message_file_close(messages, file);
}

static bool close_oldest(struct qi_messages *messages) {
    struct qi_message_file *oldest = NULL;
    for (uint32_t i = 0; i < messages->files_count; i++) {
        struct qi_message_file *file = &messages->files[i];
        if (file->handle < 0 || file->unsynced || file->pinned > 0)
            continue;
        if (!oldest || file->used < oldest->used)
            oldest = file;
    }
    if (oldest)
        qi_message_file_close(messages, oldest);
    return oldest != NULL;
}

int qi_message_file_open(struct qi_messages *messages, struct qi_message_file *file) {
    file->used = ++messages->uses;
    if (file->handle >= 0)
        return 0;
    while (messages->files_open >= handles_max(messages) && close_oldest(messages)) {
    }
    struct qi_message_name name = qi_message_name(file->number, false);
    int handle = messages->disk->ops->open(messages->disk, messages->dir, name.file, QI_OPEN_READ);
    if (handle == -ENOENT)
        return qi_fail(QI_E_CORRUPT, "%s is missing", name.shown);
    if (handle < 0)
        return qi_fail_disk(handle, "open", name.shown);
    file->handle = handle;
    messages->files_open++;
    return 0;
}

void qi_message_file_unnamed(struct qi_messages *messages, struct qi_message_file *file) {
    if (messages->window_file == file->number)
        messages->window_file = UINT32_MAX;
    qi_message_file_close(messages, file);
    messages->dir_unsynced = true;
    messages->dir_changes++;
}

int qi_message_file_unlink(struct qi_messages *messages, struct qi_message_file *file) {
    struct qi_message_name name = qi_message_name(file->number, false);
    int error = messages->disk->ops->unlink(messages->disk, messages->dir, name.file);
    if (error && error != -ENOENT)
        return qi_fail_disk(error, "remove", name.shown);
    qi_message_file_unnamed(messages, file);
    return 0;
}

/* ---- birth files: references ---- */

static uint32_t birth_index(const struct qi_messages *messages, uint32_t number) {
    uint32_t low = 0, high = messages->births_count;
    if (high > 0 && messages->births[high - 1].number <= number)
        return messages->births[high - 1].number == number ? high - 1 : high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (messages->births[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct qi_birth_file *qi_birth_file_find(const struct qi_messages *messages, uint32_t number) {
    uint32_t index = birth_index(messages, number);
    bool found = index < messages->births_count && messages->births[index].number == number;
    return found ? &messages->births[index] : NULL;
}

struct qi_birth_file *qi_birth_file_add(struct qi_messages *messages, uint32_t number) {
    struct qi_birth_file *found = qi_birth_file_find(messages, number);
    if (found)
        return found;
    if (make_room((void **)&messages->births, &messages->births_room, messages->births_count, 1,
                  sizeof *messages->births) != 0)
        return NULL;
    uint32_t index = birth_index(messages, number);
    struct qi_birth_file *at = &messages->births[index];
    memmove(at + 1, at, (messages->births_count - index) * sizeof *at);
    messages->births_count++;
    *at = (struct qi_birth_file){.number = number, .home = number};
    return at;
}

void qi_birth_files_drop(struct qi_messages *messages, uint32_t home) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < messages->births_count; i++) {
        struct qi_birth_file *birth = &messages->births[i];
        assert(birth->home != home || birth->references == 0);
        if (birth->home != home)
            messages->births[kept++] = *birth;
    }
    messages->births_count = kept;
}

void qi_messages_count(struct qi_messages *messages, uint32_t birth_file, int64_t references,
                       int64_t bytes) {
    struct qi_birth_file *birth = qi_birth_file_add(messages, birth_file);
    if (!birth) {
        messages->miscounted = true;
        return;
    }
    bool below = (references < 0 && birth->references < (uint64_t)-references) ||
                 (bytes < 0 && birth->bytes < (uint64_t)-bytes);
    if (below) { /* To free a file late is cheap, to free it early is not: stop freeing. */
        messages->miscounted = true;
        return;
    }
    birth->references += (uint64_t)references;
    birth->bytes += (uint64_t)bytes;
}

void qi_messages_weigh(struct qi_messages *messages) {
    for (uint32_t i = 0; i < messages->files_count; i++)
        messages->files[i].references = messages->files[i].live = 0;
    for (uint32_t i = 0; i < messages->births_count; i++) {
        const struct qi_birth_file *birth = &messages->births[i];
        struct qi_message_file *file = qi_message_file_find(messages, birth->home);
        if (!file)
            continue;
        file->references += birth->references;
        file->live += birth->bytes;
    }
}

static bool may_be_freed(const struct qi_messages *messages, const struct qi_message_file *file) {
    return file->references == 0 && !file->alien && !file->victim && file->pinned == 0 &&
           !qi_message_file_is_newest(messages, file->number);
}

uint32_t qi_messages_empty(struct qi_messages *messages, uint32_t *numbers, uint32_t room) {
    if (!messages->counted || messages->miscounted || messages->read_only)
        return 0;
    qi_messages_weigh(messages);
    uint32_t count = 0;
    for (uint32_t i = 0; i < messages->files_count && count < room; i++)
        if (may_be_freed(messages, &messages->files[i]))
            numbers[count++] = messages->files[i].number;
    return count;
}

int64_t qi_messages_free(struct qi_messages *messages, const uint32_t *numbers, uint32_t count) {
    if (!messages->counted || messages->miscounted || messages->read_only)
        return 0;
    qi_messages_weigh(messages);
    int64_t freed = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct qi_message_file *file = qi_message_file_find(messages, numbers[i]);
        if (!file || !may_be_freed(messages, file))
            continue;
        int error = qi_blank_keep(messages, file);
        if (error)
            return error;
        freed += (int64_t)file->size;
        qi_birth_files_drop(messages, file->number);
        qi_message_file_remove(messages, file);
    }
    return freed;
}
