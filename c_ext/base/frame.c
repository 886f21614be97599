/* frame.c - seal, read and find frames. No I/O, no allocation: the same bytes in, the same answer
 * out. */
#include "base/base.h"

static uint32_t checksum(uint32_t seed, uint64_t offset, uint32_t word, const uint8_t *payload,
                         uint32_t length) {
    uint8_t place[12];
    qi_put64(place, offset);
    qi_put32(place + 8, word);
    return qi_crc32c(qi_crc32c(seed, place, sizeof place), payload, length);
}

uint32_t qi_frame_seed(const uint8_t identity[QI_IDENTITY_SIZE], uint64_t number, uint64_t epoch) {
    uint8_t bytes[QI_IDENTITY_SIZE + 16];
    memcpy(bytes, identity, QI_IDENTITY_SIZE);
    qi_put64(bytes + QI_IDENTITY_SIZE, number);
    qi_put64(bytes + QI_IDENTITY_SIZE + 8, QI_BUG(epoch_left_out) ? 0 : epoch);
    return qi_crc32c(0, bytes, sizeof bytes);
}

void qi_frame_seal(uint32_t seed, uint8_t *header, uint64_t offset, uint32_t type,
                   uint32_t length) {
    uint32_t word = type << 28 | length;
    qi_put32(header, word);
    qi_put32(header + 4, checksum(seed, offset, word, header + QI_FRAME_HEADER, length));
}

enum qi_frame_state qi_frame_read(uint32_t seed, const uint8_t *bytes, uint64_t size,
                                  uint64_t offset, uint64_t base, struct qi_frame *frame) {
    if (offset >= size || size - offset < QI_FRAME_HEADER)
        return QI_FRAME_END;
    const uint8_t *header = bytes + offset;
    if (qi_get64(header) == 0)
        return QI_FRAME_END;
    uint32_t word = qi_get32(header);
    uint32_t type = word >> 28, length = word & QI_FRAME_LENGTH_MAX;
    bool known = (type >= QI_FRAME_RECORDS && type <= QI_FRAME_LANES) || type == QI_FRAME_EXTENDED;
    if (!known || length == 0)
        return QI_FRAME_BAD;
    if (type == QI_FRAME_EXTENDED && length < QI_KIND_SIZE)
        return QI_FRAME_BAD;
    if (length > size - offset - QI_FRAME_HEADER)
        return QI_FRAME_BAD;
    const uint8_t *payload = header + QI_FRAME_HEADER;
    if (checksum(seed, base + offset, word, payload, length) != qi_get32(header + 4))
        return QI_FRAME_BAD;
    *frame = (struct qi_frame){base + offset, type, length, payload};
    return QI_FRAME_VALID;
}

/* Do the records fill the payload exactly? Random bytes fail here after a step or two. */
static bool records_fit(uint32_t type, const uint8_t *payload, uint32_t length, uint64_t *effort) {
    uint64_t at = 0;
    while (at < length) {
        struct qi_record record;
        struct qi_entry entry;
        if (*effort < 8)
            return false;
        *effort -= 8;
        if (type == QI_FRAME_RECORDS ? !qi_read_record(payload + at, length - at, &record)
                                     : !qi_read_entry(payload + at, length - at, &entry))
            return false;
        at += type == QI_FRAME_RECORDS ? record.size : entry.size;
    }
    return true;
}

/* Worth a checksum? */
static bool may_be_frame(const uint8_t *header, uint64_t left, uint64_t *effort) {
    uint32_t word = qi_get32(header);
    uint32_t type = word >> 28, length = word & QI_FRAME_LENGTH_MAX;
    if (length == 0 || length > left - QI_FRAME_HEADER)
        return false;
    switch (type) {
    case QI_FRAME_RECORDS:
    case QI_FRAME_ENTRIES:
        return records_fit(type, header + QI_FRAME_HEADER, length, effort);
    case QI_FRAME_MARK:
        return length == 16;
    case QI_FRAME_SESSION:
    case QI_FRAME_CLOSE:
        return length == 28;
    case QI_FRAME_MANIFEST:
        return length >= QI_MANIFEST_FIXED &&
               (length - QI_MANIFEST_FIXED) % QI_MANIFEST_SEGMENT == 0 &&
               qi_get32(header + QI_FRAME_HEADER + QI_MANIFEST_COUNT) ==
                   (length - QI_MANIFEST_FIXED) / QI_MANIFEST_SEGMENT;
    case QI_FRAME_PURGE:
        return length % 8 == 0;
    case QI_FRAME_LANES:
        return length % QI_LANES_ROW == 0;
    case QI_FRAME_EXTENDED:
        return length >= QI_KIND_SIZE;
    case QI_FRAME_SUMMARY:
        return length >= QI_SUMMARY_FIXED &&
               qi_get32(header + length + QI_FRAME_HEADER - 4) == length + QI_FRAME_HEADER;
    default:
        return false;
    }
}

/* The next place at or behind *offset that is worth a checksum, and pays for it. */
static bool next_candidate(const uint8_t *bytes, uint64_t size, uint64_t *offset,
                           uint64_t *effort) {
    for (; *offset + QI_FRAME_HEADER <= size; ++*offset) {
        while (qi_get64(bytes + *offset) == 0) { /* no header begins with a zero byte */
            *offset += 8;
            if (*offset + QI_FRAME_HEADER > size)
                return false;
        }
        if (!may_be_frame(bytes + *offset, size - *offset, effort))
            continue;
        uint32_t length = qi_get32(bytes + *offset) & QI_FRAME_LENGTH_MAX;
        if (length > *effort)
            continue;
        *effort -= length;
        return true;
    }
    return false;
}

bool qi_frame_find(uint32_t seed, const uint8_t *bytes, uint64_t size, uint64_t offset,
                   uint64_t *effort, struct qi_frame *frame) {
    for (; next_candidate(bytes, size, &offset, effort); offset++)
        if (qi_frame_read(seed, bytes, size, offset, 0, frame) == QI_FRAME_VALID)
            return true;
    return false;
}

/* The seed with which the frame there is valid. */
static uint32_t seed_of(const uint8_t *header, uint64_t offset) {
    uint8_t place[12];
    qi_put64(place, offset);
    qi_put32(place + 8, qi_get32(header));
    uint32_t length = qi_get32(header) & QI_FRAME_LENGTH_MAX;
    uint32_t crc = qi_crc32c_before(qi_get32(header + 4), header + QI_FRAME_HEADER, length);
    return qi_crc32c_before(crc, place, sizeof place);
}

bool qi_frame_find_seed(const uint8_t *bytes, uint64_t size, uint64_t offset, uint64_t *effort,
                        uint32_t *seed, struct qi_frame *frame) {
    for (; next_candidate(bytes, size, &offset, effort); offset++) {
        uint32_t length = qi_get32(bytes + offset) & QI_FRAME_LENGTH_MAX;
        struct qi_frame second;
        *seed = seed_of(bytes + offset, offset);
        if (qi_frame_read(*seed, bytes, size, offset + QI_FRAME_HEADER + length, 0, &second) ==
            QI_FRAME_VALID) {
            qi_frame_read(*seed, bytes, size, offset, 0, frame); /* valid: it gave the seed */
            return true;
        }
    }
    return false;
}
