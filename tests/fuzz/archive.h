/* archive.h - a fuzzer's input: the files of a store, one after the other.
 *
 *     kind 1 (low 4 bits: see below; 0x10: of the second queue) | number 4 | size 4 | bytes
 *
 * Integers are big-endian. A size that is more than what is left takes what is left.
 */
#ifndef ARCHIVE_H
#define ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum archive_kind {
    STORE_META,
    QUEUE_META,
    JOURNAL_EVEN, /* header once, then the frames: spread to two headers and frames from 8192 on */
    JOURNAL_ODD,
    SEGMENT,  /* N.idx */
    MESSAGES, /* N.qms */
    RAW_EVEN, /* journal.jif as it is */
    RAW_ODD,
    MESSAGES_DRAFT, /* N.new */
    ARCHIVE_KINDS,
};
#define SECOND_QUEUE      0x10
#define ARCHIVE_HEAD      9u
#define ARCHIVE_FILES_MAX 65536u

struct archive_file {
    enum archive_kind kind;
    bool second;
    uint32_t number;
    uint8_t *bytes;
    size_t size;
};

/* The file at *at; false at the end. */
bool archive_next(uint8_t *data, size_t size, size_t *at, struct archive_file *file);

/* Recomputes every checksum in the archive, in place: headers, frames, stored messages. */
void archive_repair(uint8_t *data, size_t size);

#endif
