/* ra_files.c - records of Ra's write-ahead log, and slots of its segments, as long as nothing is
 * wrong with them. ra/wal.py and ra/segments.py have the layouts.
 *
 * Rules of this file: no I/O, no allocation; a length is compared with what is left before it is
 * used. It takes records whose server is known by a number; the rest, and all that is damaged, is
 * for Python.
 */
#include "foreign/foreign.h"

#include "base/base.h"

enum { HEAD = 27, CHECKED_FROM = 11, ADLER = 65521, ADLER_RUN = 5552 };

/* Adler-32. A run is as long as 32 bits can add up without a remainder. */
static uint32_t adler32(const uint8_t *p, size_t size) {
    uint32_t a = 1, b = 0;
    while (size) {
        size_t run = size < ADLER_RUN ? size : ADLER_RUN;
        size -= run;
        for (; run >= 8; run -= 8, p += 8) {
            b += 8 * a + 8u * p[0] + 7u * p[1] + 6u * p[2] + 5u * p[3] + 4u * p[4] + 3u * p[5] +
                 2u * p[6] + p[7];
            a += (uint32_t)p[0] + p[1] + p[2] + p[3] + p[4] + p[5] + p[6] + p[7];
        }
        for (; run > 0; run--)
            b += a += *p++;
        a %= ADLER;
        b %= ADLER;
    }
    return b << 16 | a;
}

size_t qi_ra_check_entries(const void *block, size_t size, uint64_t base, size_t count,
                           const uint64_t *offsets, const uint32_t *sizes, const uint32_t *crcs,
                           uint32_t *wrong) {
    struct qi_crc32_tables tables;
    qi_crc32_make(&tables);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = offsets[i] - base;
        if (!crcs[i])
            continue;
        if (start > size || sizes[i] > size - start ||
            qi_crc32(&tables, (const uint8_t *)block + start, sizes[i]) != crcs[i])
            wrong[found++] = (uint32_t)i;
    }
    return found;
}

enum { OLD_SLOT = 28, SLOT = 32, SEGMENT_HEADER = 8, SLOTS_MAX = 65536 };
static const uint64_t INDEX_MAX = UINT64_C(1) << 48;

/* How many of these slots are used: behind the last one are but zeros. */
static size_t used_slots(const uint8_t *table, size_t size, size_t width) {
    while (size && !table[size - 1])
        size--;
    return (size + width - 1) / width;
}

size_t qi_ra_read_slots(const void *table, size_t size, uint32_t version, uint64_t file_size,
                        qi_ra_slots *slots) {
    const uint8_t *p = table;
    size_t width = version == 1 ? OLD_SLOT : SLOT, half = version == 1 ? 4 : 8;
    size_t used = used_slots(p, size, width);
    uint64_t filled = SEGMENT_HEADER + (uint64_t)size;
    if (!used || used > SLOTS_MAX || used * width > size)
        return 0;
    slots->first = qi_get64(p);
    slots->term = qi_get64(p + 8);
    if (slots->first >= INDEX_MAX - SLOTS_MAX || slots->term >= INDEX_MAX)
        return 0;
    for (size_t i = 0; i < used; i++, p += width) {
        slots->offsets[i] = half == 4 ? qi_get32(p + 16) : qi_get64(p + 16);
        slots->sizes[i] = qi_get32(p + 16 + half);
        slots->crcs[i] = qi_get32(p + 20 + half);
        if (qi_get64(p) != slots->first + i || qi_get64(p + 8) != slots->term ||
            slots->offsets[i] != filled)
            return 0;
        filled += slots->sizes[i];
    }
    return filled == file_size ? used : 0;
}

size_t qi_ra_read_records(const void *data, size_t size, qi_ra_records *records) {
    const uint8_t *bytes = data;
    size_t count = 0, pos = records->pos;
    for (; count < QI_RA_RECORDS_MAX; count++) {
        if (pos > size || size - pos < HEAD)
            break;
        const uint8_t *p = bytes + pos;
        uint32_t checksum = qi_get32(p + 3), length = qi_get32(p + 7);
        if (!(p[0] & 0x40) || length > size - pos - HEAD)
            break;
        if (checksum ? adler32(p + CHECKED_FROM, HEAD - CHECKED_FROM + (size_t)length) != checksum
                     : records->has_checksums)
            break;
        records->has_checksums = records->has_checksums || checksum;
        records->restarts[count] = p[0] >> 7;
        records->refs[count] = (p[0] & 0x3Fu) << 16 | qi_get16(p + 1);
        records->indexes[count] = qi_get64(p + CHECKED_FROM);
        records->terms[count] = qi_get64(p + CHECKED_FROM + 8);
        records->offsets[count] = pos + HEAD;
        records->sizes[count] = length;
        pos += HEAD + length;
    }
    records->pos = pos;
    return count;
}
