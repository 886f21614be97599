/* archive.c - walks an archive, and mends its checksums so that a mutation reaches what lies behind
 * them. */
#include "archive.h"

#include <string.h>

#include "base/base.h"

bool archive_next(uint8_t *data, size_t size, size_t *at, struct archive_file *file) {
    if (size - *at < ARCHIVE_HEAD)
        return false;
    const uint8_t *head = data + *at;
    size_t left = size - *at - ARCHIVE_HEAD, length = qi_get32(head + 5);
    if (length > left)
        length = left;
    *file = (struct archive_file){(head[0] & 15) % ARCHIVE_KINDS, head[0] & SECOND_QUEUE,
                                  qi_get32(head + 1), data + *at + ARCHIVE_HEAD, length};
    *at += ARCHIVE_HEAD + length;
    return true;
}

static void repair_frames(uint32_t seed, uint8_t *bytes, size_t size, size_t at, uint64_t shift) {
    while (size - at >= QI_FRAME_HEADER) {
        uint32_t word = qi_get32(bytes + at), length = word & QI_FRAME_LENGTH_MAX;
        if (length == 0 || length > size - at - QI_FRAME_HEADER)
            return;
        qi_frame_seal(seed, bytes + at, at + shift, word >> 28, length);
        at += QI_FRAME_HEADER + length;
    }
}

static void repair_journal(const struct archive_file *file, const uint8_t *identity) {
    bool raw = file->kind >= RAW_EVEN;
    size_t start = raw ? QI_JOURNAL_START : QI_JH_SIZE;
    if (file->size < start)
        return;
    for (uint32_t copy = 0; copy < (raw ? 2 : 1); copy++) {
        uint8_t *header = file->bytes + copy * QI_JOURNAL_HEADER_COPY;
        memcpy(header, QI_JOURNAL_MAGIC, 8);
        memcpy(header + QI_JH_IDENTITY, identity, QI_IDENTITY_SIZE);
        qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    }
    uint32_t seed = qi_frame_seed(identity, 0, qi_get64(file->bytes + QI_JH_EPOCH));
    repair_frames(seed, file->bytes, file->size, start, QI_JOURNAL_START - start);
}

static void repair_segment(const struct archive_file *file, const uint8_t *identity) {
    if (file->size < QI_SH_SIZE)
        return;
    uint8_t *header = file->bytes;
    memcpy(header, QI_SEGMENT_MAGIC, 8);
    memcpy(header + QI_SH_IDENTITY, identity, QI_IDENTITY_SIZE);
    qi_put64(header + QI_SH_NUMBER, file->number);
    qi_put32(header + QI_SH_CRC, qi_crc32c(0, header, QI_SH_CRC));
    uint32_t seed = qi_frame_seed(identity, file->number, qi_get64(header + QI_SH_EPOCH));
    repair_frames(seed, file->bytes, file->size, QI_SEGMENT_START, 0);
}

static uint32_t crc_at(uint32_t seed, uint64_t offset, const void *bytes, size_t size) {
    uint8_t place[8];
    qi_put64(place, offset);
    return qi_crc32c(qi_crc32c(seed, place, sizeof place), bytes, size);
}

static void repair_births(uint8_t *bytes, size_t size, uint32_t seed) {
    uint64_t frames = qi_get64(bytes + QI_MH_FRAMES), length = qi_get64(bytes + QI_MH_BYTES);
    if (length > size - QI_MESSAGES_START)
        return;
    size_t at = QI_MESSAGES_START + length, left = size - at;
    uint64_t groups = left < 4 ? 0 : qi_get32(bytes + at);
    if (left < 8 || groups > (left - 8) / 8)
        return;
    qi_put32(bytes + at + 4 + 8 * groups, crc_at(seed, at, bytes + at, 4 + 8 * groups));
    at += 8 + 8 * groups;
    left = size - at;
    if (left >= 4 && frames <= (left - 4) / 8)
        qi_put32(bytes + at + 8 * frames, crc_at(seed, at, bytes + at, 8 * frames));
}

static void repair_messages(const struct archive_file *file, const uint8_t *identity) {
    uint8_t *bytes = file->bytes;
    if (file->size < QI_MH_SIZE)
        return;
    memcpy(bytes, QI_MESSAGES_MAGIC, 8);
    memcpy(bytes + QI_MH_IDENTITY, identity, QI_IDENTITY_SIZE);
    qi_put64(bytes + QI_MH_NUMBER, file->number);
    qi_put32(bytes + QI_MH_CRC, qi_crc32c(0, bytes, QI_MH_CRC));
    uint32_t seed = qi_frame_seed(identity, file->number, 0);
    size_t at = QI_MESSAGES_START;
    while (file->size - at >= QI_MESSAGE_OVERHEAD) {
        uint32_t length = qi_get32(bytes + at);
        if (length > file->size - at - QI_MESSAGE_OVERHEAD)
            break;
        uint32_t crc = crc_at(seed, at, bytes + at, 4); /* length, then MsgId and payload */
        crc = qi_crc32c(crc, bytes + at + 8, QI_MSG_ID_SIZE + length);
        qi_put32(bytes + at + 4, crc);
        at += QI_MESSAGE_OVERHEAD + length;
        bytes[at - 1] = QI_MESSAGE_END;
    }
    if (qi_get32(bytes + QI_MH_KIND) == 1)
        repair_births(bytes, file->size, seed);
}

void archive_repair(uint8_t *data, size_t size) {
    uint8_t store[QI_IDENTITY_SIZE] = {0}, queues[2][QI_IDENTITY_SIZE] = {{0}};
    struct archive_file file;
    for (size_t at = 0; archive_next(data, size, &at, &file);) {
        if (file.kind == STORE_META && file.size >= 64) {
            memcpy(store, file.bytes + 16, sizeof store);
            qi_put32(file.bytes + 60, qi_crc32c(0, file.bytes, 60));
        } else if (file.kind == QUEUE_META && file.size >= 36) {
            memcpy(queues[file.second], file.bytes + 16, sizeof *queues);
            qi_put32(file.bytes + file.size - 4, qi_crc32c(0, file.bytes, file.size - 4));
        }
    }
    for (size_t at = 0; archive_next(data, size, &at, &file);) {
        const uint8_t *identity = queues[file.second];
        if (file.kind == JOURNAL_EVEN || file.kind == JOURNAL_ODD || file.kind == RAW_EVEN ||
            file.kind == RAW_ODD)
            repair_journal(&file, identity);
        else if (file.kind == SEGMENT)
            repair_segment(&file, identity);
        else if (file.kind == MESSAGES || file.kind == MESSAGES_DRAFT)
            repair_messages(&file, store);
    }
}
