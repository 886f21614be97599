/* test_frames.c - bytes that are searched for frames, and shown as text; errors that get
 * their codes. Pure: no disk. Usage: test_frames <directory> */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec.h"
#include "crc32c.h"
#include "error.h"
#include "frame.h"
#include "qindex.h"

/* Hostile bytes cost what effort there is, and no more. */
static void test_a_search_for_frames_ends_with_its_effort(void) {
    static uint8_t bytes[4096];
    struct qi_frame frame;
    uint64_t effort = 4;
    for (uint32_t at = 0; at < 400; at += 8)
        qi_put64(bytes + 8 + at, UINT64_C(3) << QI_REQ_ID_BITS | at); /* acks */
    qi_frame_seal(7, bytes, 0, QI_FRAME_RECORDS, 400);
    assert(!qi_frame_find(7, bytes, sizeof bytes, 0, &effort, &frame));
    effort = 500; /* enough to parse, not for the checksum */
    assert(!qi_frame_find(7, bytes, 420, 0, &effort, &frame));
    effort = QI_FRAME_EFFORT(sizeof bytes);
    assert(qi_frame_find(7, bytes, sizeof bytes, 0, &effort, &frame) && frame.length == 400);
}

/* What makes no sense is not worth a checksum. */
static void test_a_manifest_has_a_row_for_each_segment(void) {
    static uint8_t bytes[200];
    struct qi_frame frame;
    for (uint32_t more = 0; more < 2; more++) {
        uint64_t effort = QI_FRAME_EFFORT(sizeof bytes);
        qi_put32(bytes + 8 + QI_MANIFEST_COUNT, 2);
        qi_frame_seal(7, bytes, 0, QI_FRAME_MANIFEST,
                      QI_MANIFEST_FIXED + 2 * QI_MANIFEST_SEGMENT + more);
        assert(qi_frame_find(7, bytes, sizeof bytes, 0, &effort, &frame) == !more);
    }
    uint64_t effort = QI_FRAME_EFFORT(sizeof bytes);
    qi_frame_seal(7, bytes, 0, QI_FRAME_MANIFEST, QI_MANIFEST_FIXED - 4);
    assert(!qi_frame_find(7, bytes, sizeof bytes, 0, &effort, &frame));
}

static void test_a_checksum_is_taken_back(void) {
    uint8_t bytes[300];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 >> 2);
    for (uint32_t length = 0; length < sizeof bytes; length++) {
        uint32_t before = length * 2654435761u;
        uint32_t crc = qi_crc32c(before, bytes, length);
        assert(qi_crc32c_before(crc, bytes, length) == before);
    }
}

/* ---- dumps ---- */

static void test_a_dump_may_be_asked_to_go_on_anywhere(void) {
    static uint8_t bytes[12288];
    char line[200];
    uint8_t identity[QI_IDENTITY_SIZE] = {1};
    for (int copy = 0; copy < 2; copy++) { /* the second one is newer */
        uint8_t *header = bytes + copy * QI_JOURNAL_HEADER_COPY;
        memcpy(header, QI_JOURNAL_MAGIC, 8);
        qi_put32(header + QI_JH_VERSION, QI_FORMAT_VERSION);
        memcpy(header + QI_JH_IDENTITY, identity, sizeof identity);
        qi_put64(header + QI_JH_EPOCH, (uint64_t)copy * 2 + 2);
        qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    }
    uint8_t *at = bytes + QI_JOURNAL_START + QI_FRAME_HEADER;
    qi_put64(at, UINT64_C(3) << QI_REQ_ID_BITS | 5);
    qi_put64(at + 8, UINT64_C(2) << QI_REQ_ID_BITS | 6);
    qi_frame_seal(qi_frame_seed(identity, 0, 4), bytes + QI_JOURNAL_START, QI_JOURNAL_START,
                  QI_FRAME_RECORDS, 16);
    uint64_t offset = 0;
    assert(qi_dump(bytes, sizeof bytes, &offset, line, sizeof line) == 1);
    assert(strstr(line, "ack") && offset >> 36 == 8);
    assert(qi_dump(bytes, sizeof bytes, &offset, line, sizeof line) == 1);
    assert(strstr(line, "deliver") && offset == QI_JOURNAL_START + 24);
    assert(qi_dump(bytes, sizeof bytes, &offset, line, sizeof line) == 0);
    static const uint64_t places[] = {sizeof bytes, sizeof bytes - 4, UINT64_C(1) << 35};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        offset = UINT64_C(8) << 36 | places[i];
        assert(qi_dump(bytes, sizeof bytes, &offset, line, sizeof line) == 0);
    }
    offset = UINT64_C(100) << 36 | QI_JOURNAL_START; /* behind the frame's end: its first record */
    qi_dump(bytes, sizeof bytes, &offset, line, sizeof line);
    offset = UINT64_C(8) << 36 | (QI_JOURNAL_START + 8); /* inside: no frame begins there */
    assert(qi_dump(bytes, sizeof bytes, &offset, line, sizeof line) == 1 && strstr(line, "BAD"));
    qi_frame_seal(qi_frame_seed(identity, 0, 4), bytes + QI_JOURNAL_START, QI_JOURNAL_START,
                  QI_FRAME_MARK, 16);
    offset = UINT64_C(8) << 36 | QI_JOURNAL_START; /* a frame without records */
    assert(qi_dump(bytes, sizeof bytes, &offset, line, sizeof line) == 1 && strstr(line, "mark"));
    qi_put32(bytes + QI_JOURNAL_START, (uint32_t)QI_FRAME_ENTRIES << 28 | 20);
    offset = UINT64_C(8) << 36 | QI_JOURNAL_START; /* as a segment's */
    qi_dump(bytes, sizeof bytes, &offset, line, sizeof line);
}

/* A flushed journal has no header, and nothing to show. One whose headers are damaged has, though the first is empty. */
static void test_a_dump_of_a_journal_without_headers_shows_what_is_not_flushed(void) {
    static uint8_t bytes[12288];
    char line[200];
    const uint8_t identity[QI_IDENTITY_SIZE] = {1};
    for (uint64_t i = 0, at = QI_JOURNAL_START; i < 4; i++, at += QI_FRAME_HEADER + 8) {
        qi_put64(bytes + at + QI_FRAME_HEADER, UINT64_C(3) << QI_REQ_ID_BITS | i);
        qi_frame_seal(qi_frame_seed(identity, 0, 4), bytes + at, at, QI_FRAME_RECORDS, 8);
    }
    for (uint8_t damaged = 0; damaged < 2; damaged++) {
        uint64_t offset = 0;
        bytes[QI_JOURNAL_HEADER_COPY + 3] = damaged;
        int64_t got = qi_dump(bytes, sizeof bytes, &offset, line, sizeof line);
        assert(got == (damaged ? 1 : QI_E_FORMAT));
        assert(!damaged || strstr(line, "the header is damaged"));
    }
}

static void test_errors_of_the_system_have_their_codes(void) {
    assert(qi_fail_disk(-EDQUOT, "write", "x") == QI_E_FULL);
    assert(qi_fail_disk(-ENOMEM, "write", "x") == QI_E_MEMORY);
    assert(qi_fail_disk(-EACCES, "write", "x") == QI_E_IO);
    assert(qi_fail_disk(-123456, "write", "x") == QI_E_IO);
    assert(strstr(qi_error_text(), "123456"));
    static const int of_the_disk[] = {EIO, ENOMEM, EMFILE, ENFILE};
    for (size_t i = 0; i < 4; i++)
        assert(qi_is_of_the_disk(-of_the_disk[i]));
    assert(!qi_is_of_the_disk(-ELOOP) && !qi_is_of_the_disk(0));
}

int main(void) {
    test_errors_of_the_system_have_their_codes();
    test_a_search_for_frames_ends_with_its_effort();
    test_a_manifest_has_a_row_for_each_segment();
    test_a_checksum_is_taken_back();
    test_a_dump_may_be_asked_to_go_on_anywhere();
    test_a_dump_of_a_journal_without_headers_shows_what_is_not_flushed();
    printf("frames: all passed\n");
    return 0;
}
