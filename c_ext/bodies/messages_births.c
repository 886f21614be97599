/* messages_births.c - the bytes of message files: names, headers, frames' checksums, birth tables.
 *
 * A frame is valid if and only if:
 *   1. its 24 header bytes, its payload and its end marker 0xFF lie inside the file;
 *   2. it repeats the MsgId that was asked for, stamp and all;
 *   3. its checksum equals CRC32C(seed, its offset as 64 bits, length, MsgId, payload), where the
 * seed is the CRC32C of the store's identity and the file's number.
 */
#include "bodies/bodies_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct qi_message_name qi_message_name(uint32_t number, bool unfinished) {
    struct qi_message_name name;
    snprintf(name.file, sizeof name.file, "%u.%s", number, unfinished ? "new" : "qms");
    snprintf(name.shown, sizeof name.shown, "messages/%s", name.file);
    return name;
}

int qi_read_exactly(struct qi_disk *disk, int file, void *bytes, size_t length, uint64_t offset) {
    int64_t got = disk->ops->read(disk, file, bytes, length, offset);
    if (got < 0)
        return (int)got;
    return (uint64_t)got == length ? 0 : -EBADMSG;
}

void qi_message_header_put(uint8_t *header, enum qi_messages_kind kind, const uint8_t *identity,
                           uint32_t number, uint64_t frames, uint64_t bytes) {
    memset(header, 0, QI_MH_SIZE);
    memcpy(header, QI_MESSAGES_MAGIC, 8);
    qi_put32(header + QI_MH_VERSION, QI_FORMAT_VERSION);
    qi_put32(header + QI_MH_KIND, kind);
    memcpy(header + QI_MH_IDENTITY, identity, QI_IDENTITY_SIZE);
    qi_put64(header + QI_MH_NUMBER, number);
    qi_put64(header + QI_MH_FRAMES, frames);
    qi_put64(header + QI_MH_BYTES, bytes);
    qi_put32(header + QI_MH_CRC, qi_crc32c(0, header, QI_MH_CRC));
}

uint32_t qi_message_crc(uint32_t seed, uint64_t offset, const uint8_t *frame) {
    uint8_t place[8 + 4 + QI_MSG_ID_SIZE];
    qi_put64(place, offset);
    memcpy(place + 8, frame, 4);
    memcpy(place + 12, frame + 8, QI_MSG_ID_SIZE);
    return qi_crc32c(seed, place, sizeof place);
}

bool qi_message_is_valid(uint32_t seed, uint64_t offset, const uint8_t *frame,
                         const uint8_t *payload, const uint8_t *end, struct qi_msg_id id) {
    uint8_t expected[QI_MSG_ID_SIZE];
    qi_put_msg_id(expected, id);
    if (id.stamp == 0 || memcmp(frame + 8, expected, sizeof expected) != 0 ||
        *end != QI_MESSAGE_END)
        return false;
    return qi_crc32c(qi_message_crc(seed, offset, frame), payload, qi_get32(frame)) ==
           qi_get32(frame + 4);
}

uint32_t qi_births_crc(uint32_t seed, uint64_t offset) {
    uint8_t place[8];
    qi_put64(place, offset);
    return qi_crc32c(seed, place, sizeof place);
}

/* One part of the table, with its checksum; freed by the caller. Its length is bounded by the
 * file's size. */
static int read_part(struct qi_disk *disk, uint32_t seed, const struct qi_message_file *file,
                     uint64_t offset, uint64_t length, uint8_t **part) {
    assert(offset <= file->size && file->size - offset >= length + 4); /* see "whole" */
    uint8_t *bytes = qi_malloc(length + 4);
    if (!bytes)
        return -ENOMEM;
    int error = qi_read_exactly(disk, file->handle, bytes, length + 4, offset);
    if (!error && qi_crc32c(qi_births_crc(seed, offset), bytes, length) != qi_get32(bytes + length))
        error = -EBADMSG;
    if (error)
        qi_free(bytes);
    else
        *part = bytes;
    return error;
}

int qi_birth_groups_read(struct qi_disk *disk, uint32_t seed, const struct qi_message_file *file,
                         struct qi_birth_group **groups, uint32_t *count) {
    uint8_t word[4];
    int error = qi_read_exactly(disk, file->handle, word, sizeof word, file->frames_end);
    if (error)
        return error;
    uint32_t found = qi_get32(word);
    uint64_t length = 4 + 8 * (uint64_t)found;
    uint64_t whole = length + 4 + 8 * (uint64_t)file->births_count + 4;
    if (found == 0 || found > file->births_count || file->size - file->frames_end != whole)
        return -EBADMSG;

    uint8_t *part = NULL;
    error = read_part(disk, seed, file, file->frames_end, length, &part);
    if (error)
        return error;
    struct qi_birth_group *list = qi_malloc((size_t)found * sizeof *list);
    if (!list)
        error = -ENOMEM;
    uint64_t sum = 0;
    for (uint32_t i = 0; !error && i < found; i++) {
        list[i] = (struct qi_birth_group){qi_get32(part + 4 + 8 * (uint64_t)i),
                                          qi_get32(part + 8 + 8 * (uint64_t)i)};
        sum += list[i].count;
        if (list[i].count == 0 || (i > 0 && list[i].file <= list[i - 1].file))
            error = -EBADMSG;
    }
    if (!error && sum != file->births_count)
        error = -EBADMSG;
    qi_free(part);
    if (error) {
        qi_free(list);
        return error;
    }
    *groups = list;
    *count = found;
    return 0;
}

static int parse_births(struct qi_birth *births, const struct qi_message_file *file,
                        const struct qi_birth_group *groups, uint32_t groups_count,
                        const uint8_t *pair) {
    for (uint32_t g = 0; g < groups_count; g++) {
        for (uint32_t i = 0; i < groups[g].count; i++, pair += 8, births++) {
            *births = (struct qi_birth){groups[g].file, qi_get32(pair), qi_get32(pair + 4)};
            if (i > 0 && births->offset <= births[-1].offset)
                return -EBADMSG;
            if (births->now < QI_MESSAGES_START || births->now >= file->frames_end)
                return -EBADMSG;
        }
    }
    return 0;
}

static int compare_births(const void *a, const void *b) {
    const struct qi_birth *left = a, *right = b;
    int by_file = (left->file > right->file) - (left->file < right->file);
    int by_offset = (left->offset > right->offset) - (left->offset < right->offset);
    return by_file ? by_file : by_offset;
}

/* One frame at `offset`: its MsgId and length, or -EBADMSG: there is none. */
static int read_stored(struct qi_disk *disk, uint32_t seed, const struct qi_message_file *file,
                       uint64_t offset, struct qi_msg_id *id, uint32_t *length) {
    uint8_t frame[QI_MESSAGE_HEADER];
    if (file->size < QI_MESSAGE_OVERHEAD || offset > file->size - QI_MESSAGE_OVERHEAD)
        return -EBADMSG;
    int error = qi_read_exactly(disk, file->handle, frame, sizeof frame, offset);
    *length = qi_get32(frame);
    if (error || *length > file->size - QI_MESSAGE_OVERHEAD - offset)
        return error ? error : -EBADMSG;
    uint8_t *payload = qi_malloc((size_t)*length + 1);
    if (!payload)
        return -ENOMEM;
    *id = qi_get_msg_id(frame + 8);
    error = qi_read_exactly(disk, file->handle, payload, (size_t)*length + 1,
                            offset + QI_MESSAGE_HEADER);
    if (!error && !qi_message_is_valid(seed, offset, frame, payload, payload + *length, *id))
        error = -EBADMSG;
    qi_free(payload);
    return error;
}

int qi_births_find(struct qi_disk *disk, uint32_t seed, struct qi_message_file *file) {
    struct qi_birth *births = NULL;
    struct qi_msg_id id;
    uint32_t length, count = 0, room = 0;
    uint64_t offset = QI_MESSAGES_START;
    int error;
    while ((error = read_stored(disk, seed, file, offset, &id, &length)) == 0) {
        if (count == room) {
            room = room ? 2 * room : 64;
            struct qi_birth *more = qi_realloc(births, room * sizeof *births);
            if (!more) {
                error = -ENOMEM;
                break;
            }
            births = more;
        }
        births[count++] = (struct qi_birth){id.file, id.offset, (uint32_t)offset};
        offset += QI_MESSAGE_OVERHEAD + length;
    }
    bool rolling = count > 0 && births[0].file == file->number;
    if (error != -EBADMSG || count == 0 || rolling) {
        qi_free(births);
        return error;
    }
    qsort(births, count, sizeof *births, compare_births);
    file->compacted = true;
    file->frames_end = offset;
    file->births = births;
    file->births_count = count;
    return 0;
}

static int read_table(struct qi_disk *disk, uint32_t seed, struct qi_message_file *file) {
    struct qi_birth_group *groups = NULL;
    uint32_t groups_count = 0;
    int error = qi_birth_groups_read(disk, seed, file, &groups, &groups_count);
    if (error)
        return error;
    uint8_t *pairs = NULL;
    uint64_t offset = file->frames_end + 4 + 8 * (uint64_t)groups_count + 4;
    struct qi_birth *births = qi_malloc((size_t)file->births_count * sizeof *births);
    error = births ? read_part(disk, seed, file, offset, 8 * (uint64_t)file->births_count, &pairs)
                   : -ENOMEM;
    if (!error)
        error = parse_births(births, file, groups, groups_count, pairs);
    qi_free(pairs);
    qi_free(groups);
    if (error)
        qi_free(births);
    else
        file->births = births;
    return error;
}

int qi_births_read(struct qi_disk *disk, uint32_t seed, struct qi_message_file *file) {
    int error = file->births ? 0 : read_table(disk, seed, file);
    return error == -EBADMSG ? qi_births_find(disk, seed, file) : error;
}

bool qi_births_place(const struct qi_message_file *file, struct qi_msg_id id, uint64_t *offset) {
    if (!file->compacted) {
        *offset = id.offset;
        return id.file == file->number;
    }
    uint32_t low = 0, high = file->births_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct qi_birth *birth = &file->births[middle];
        if (birth->file < id.file || (birth->file == id.file && birth->offset < id.offset))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == file->births_count || file->births[low].file != id.file ||
        file->births[low].offset != id.offset)
        return false;
    *offset = file->births[low].now;
    return true;
}
