/* index_files.c - the journals and segments of a store, without the store (journal.h).
 *
 * Owns what is opened, the names of one folder, and the memory that one file after the other is
 * read into: fresh memory costs as much again as the reading. Nothing of a store is believed but
 * its names. What vanishes meanwhile is passed over, as is a folder that is none; what else cannot
 * be opened is told, and the next call goes on behind it. Bytes that the disk does not give are
 * zeros, so that what stands behind them is still found.
 */
#include "journal/journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (UINT64_C(1) << 30) /* of a journal or a segment: FORMAT.rst, section 8 */
#define ROOM_MIN       (UINT64_C(1) << 16)
#define SECTOR         4096u
#define NAME_MAX_SIZE  256u
#define QUEUES         "queues/"

struct names {
    char *text; /* one behind the other, each with its zero */
    size_t used, room;
    char **items; /* sorted */
    size_t count, next;
    bool incomplete; /* no memory */
};

struct qi_index_files {
    struct qi_disk *disk;
    int queues, folder;       /* open, or -1 */
    char name[NAME_MAX_SIZE]; /* of `folder` */
    struct names folders;     /* in `queues`, to be listed */
    struct names files;       /* "folder/file", to be read */
    uint8_t *bytes;
    uint64_t room;
    char where[sizeof QUEUES + 2 * NAME_MAX_SIZE]; /* of the last file */
};

/* ---- names ---- */

static void forget(struct names *names) {
    names->used = names->count = names->next = 0;
    names->incomplete = false;
}

/* `folder` and a slash before it, if it is not NULL. */
static void add_name(struct names *names, const char *folder, const char *name) {
    size_t size = (folder ? strlen(folder) + 1 : 0) + strlen(name) + 1;
    if (names->room - names->used < size) {
        size_t room = 2 * names->room + size + 1024;
        char *text = qi_realloc(names->text, room);
        names->incomplete = names->incomplete || !text;
        if (!text)
            return;
        names->text = text;
        names->room = room;
    }
    snprintf(names->text + names->used, size, "%s%s%s", folder ? folder : "", folder ? "/" : "",
             name);
    names->used += size;
    names->count++;
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static int sort(struct names *names) {
    char **items = qi_realloc(names->items, (names->count + 1) * sizeof *items);
    if (items)
        names->items = items;
    if (!items || names->incomplete)
        return qi_fail(QI_E_MEMORY, "no memory for the names of a store's files");
    char *at = names->text;
    for (size_t i = 0; i < names->count; i++, at += strlen(at) + 1)
        items[i] = at;
    qsort(items, names->count, sizeof *items, by_name);
    return 0;
}

static bool is_journal(const char *name) {
    return strcmp(name, "journal.jif") == 0 || strcmp(name, "journal.alt") == 0;
}

static bool is_index_file(const char *name) {
    const char *ending = name + strspn(name, "0123456789");
    bool segment = strcmp(ending, ".idx") == 0 || strcmp(ending, ".alt") == 0;
    return (segment && ending > name) || is_journal(name);
}

static void note_folder(void *context, const char *name) {
    add_name(&((struct qi_index_files *)context)->folders, NULL, name);
}

static void note_file(void *context, const char *name) {
    struct qi_index_files *files = context;
    if (is_index_file(name))
        add_name(&files->files, files->name, name);
}

/* "queues/folder" or "queues/folder/file". */
static void note_wanted(struct qi_index_files *files, const char *where) {
    const char *inside = where + strlen(QUEUES), *slash;
    if (strncmp(where, QUEUES, strlen(QUEUES)) != 0)
        return;
    slash = strchr(inside, '/');
    if (!slash)
        add_name(&files->folders, NULL, inside);
    else if (is_index_file(slash + 1))
        add_name(&files->files, NULL, inside);
}

/* ---- folders ---- */

static void close_dir(struct qi_index_files *files, int *dir) {
    if (*dir >= 0)
        files->disk->ops->close(files->disk, *dir);
    *dir = -1;
}

static void leave(struct qi_index_files *files) {
    close_dir(files, &files->folder);
    close_dir(files, &files->queues);
    forget(&files->folders);
    forget(&files->files);
}

static int open_queues(struct qi_index_files *files, const char *path) {
    struct qi_disk *disk = files->disk;
    int root = disk->ops->open_root(disk, path, false);
    if (root >= 0) {
        files->queues = disk->ops->open_dir(disk, root, "queues");
        disk->ops->close(disk, root);
    }
    int error = root < 0 ? root : files->queues < 0 ? files->queues : 0;
    return error ? qi_fail_disk(error, "cannot open the queues of", path) : 0;
}

/* 1: it is open; 0: there is no such folder. */
static int open_folder(struct qi_index_files *files, const char *name, size_t length) {
    struct qi_disk *disk = files->disk;
    if (length >= NAME_MAX_SIZE)
        return 0;
    if (files->folder >= 0 && strncmp(files->name, name, length) == 0 && !files->name[length])
        return 1;
    close_dir(files, &files->folder);
    memcpy(files->name, name, length);
    files->name[length] = 0;
    files->folder = disk->ops->open_dir(disk, files->queues, files->name);
    if (files->folder >= 0)
        return 1;
    bool none = files->folder == -ENOENT || files->folder == -ENOTDIR || files->folder == -ELOOP;
    return none ? 0
                : qi_fail_disk(files->folder, "cannot open the folder of a queue,", files->name);
}

static int list_folder(struct qi_index_files *files, const char *name) {
    struct qi_disk *disk = files->disk;
    forget(&files->files);
    int open = open_folder(files, name, strlen(name));
    int error = open > 0 ? disk->ops->list(disk, files->folder, note_file, files) : 0;
    if (error)
        error = qi_fail_disk(error, "cannot list the folder of a queue,", name);
    else
        error = open > 0 ? sort(&files->files) : open;
    if (error)
        forget(&files->files);
    return error;
}

/* ---- files ---- */

/* As many bytes as are there; after an error sector by sector. */
static uint64_t read_at(struct qi_disk *disk, int file, uint8_t *bytes, uint64_t size,
                        uint64_t offset) {
    int64_t got = disk->ops->read(disk, file, bytes, size, offset);
    if (got >= 0)
        return (uint64_t)got;
    uint64_t done = 0;
    while (done < size) {
        uint64_t piece = SECTOR - (offset + done) % SECTOR;
        piece = piece < size - done ? piece : size - done;
        got = disk->ops->read(disk, file, bytes + done, piece, offset + done);
        if (got == 0)
            break; /* the file became shorter */
        if (got < 0)
            memset(bytes + done, 0, piece);
        done += got < 0 ? piece : (uint64_t)got;
    }
    return done;
}

static bool make_room(struct qi_index_files *files, uint64_t size) {
    if (size <= files->room)
        return true;
    qi_free(files->bytes); /* nothing in it is needed any more */
    files->room = size > ROOM_MIN ? size : ROOM_MIN;
    files->bytes = qi_malloc(files->room);
    files->room = files->bytes ? files->room : 0;
    return files->bytes;
}

/* How many bytes it has; none of a journal without a header: it was flushed, and may still have its
 * length. */
static int64_t read_index_file(struct qi_index_files *files, int file, const char *name) {
    struct qi_disk *disk = files->disk;
    struct qi_walk walk;
    uint64_t size = 0, got;
    int error = disk->ops->size(disk, file, &size);
    if (error)
        return qi_fail_disk(error, "cannot look at", name);
    size = size < FILE_BYTES_MAX ? size : FILE_BYTES_MAX;
    if (!make_room(files, size))
        return qi_fail(QI_E_MEMORY, "no memory for the %llu bytes of %s", (unsigned long long)size,
                       name);
    if (!is_journal(name))
        return (int64_t)read_at(disk, file, files->bytes, size, 0);
    if (size < QI_JOURNAL_START)
        return 0;
    got = read_at(disk, file, files->bytes, QI_JOURNAL_START, 0);
    if (got < QI_JOURNAL_START || (!qi_walk_begin(&walk, files->bytes, got) && !walk.version))
        return 0; /* one of a newer format is for the caller to refuse */
    return (int64_t)(got + read_at(disk, file, files->bytes + got, size - got, got));
}

/* 1: it was read; 0: it is not there, or nothing is in it. */
static int read_file(struct qi_index_files *files, const char *where, qi_index_file *found) {
    struct qi_disk *disk = files->disk;
    const char *slash = strchr(where, '/'), *name = slash + 1;
    int open = open_folder(files, where, (size_t)(slash - where));
    if (open <= 0)
        return open;
    int file = disk->ops->open(disk, files->folder, name, QI_OPEN_READ);
    if (file < 0)
        return file == -ENOENT ? 0 : qi_fail_disk(file, "cannot open", where);
    int64_t got = read_index_file(files, file, name);
    disk->ops->close(disk, file);
    if (got <= 0)
        return (int)got;
    snprintf(files->where, sizeof files->where, "%s%s", QUEUES, where);
    *found = (qi_index_file){files->bytes, (uint64_t)got, files->where};
    return 1;
}

/* ---- what a caller sees ---- */

qi_index_files *qi_index_files_new_on(struct qi_disk *disk) {
    struct qi_index_files *files = qi_calloc(1, sizeof *files);
    if (files) {
        files->disk = disk;
        files->queues = files->folder = -1;
    }
    return files;
}

qi_index_files *qi_index_files_new(void) {
    return qi_index_files_new_on(&qi_disk_posix);
}

static int note_all(struct qi_index_files *files, const char *path) {
    int error = files->disk->ops->list(files->disk, files->queues, note_folder, files);
    return error ? qi_fail_disk(error, "cannot list the queues of", path) : 0;
}

int qi_index_files_begin(qi_index_files *files, const char *path, const char *wanted,
                         size_t count) {
    leave(files);
    int error = open_queues(files, path);
    if (!error && !wanted)
        error = note_all(files, path);
    for (size_t i = 0; wanted && i < count; i++, wanted += strlen(wanted) + 1)
        note_wanted(files, wanted);
    if (!error)
        error = sort(&files->folders);
    if (!error)
        error = sort(&files->files);
    if (error)
        leave(files);
    return error;
}

int qi_index_files_next(qi_index_files *files, qi_index_file *found) {
    for (;;) {
        while (files->files.next < files->files.count) {
            int got = read_file(files, files->files.items[files->files.next++], found);
            if (got)
                return got;
        }
        if (files->folders.next == files->folders.count)
            return 0;
        int error = list_folder(files, files->folders.items[files->folders.next++]);
        if (error)
            return error;
    }
}

void qi_index_files_free(qi_index_files *files) {
    if (!files)
        return;
    leave(files);
    qi_free(files->folders.text);
    qi_free(files->folders.items);
    qi_free(files->files.text);
    qi_free(files->files.items);
    qi_free(files->bytes);
    qi_free(files);
}
