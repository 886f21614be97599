/* test_frames.c - bytes that are searched for frames, and shown as text; errors that get
 * their codes. Pure: no disk. Usage: test_frames <directory> */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
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

static void test_errors_of_the_system_have_their_codes(void) {
    assert(qi_fail_disk(-EDQUOT, "write", "x") == QI_E_FULL);
    assert(qi_fail_disk(-ENOMEM, "write", "x") == QI_E_MEMORY);
    assert(qi_fail_disk(-EACCES, "write", "x") == QI_E_IO);
    assert(qi_fail_disk(-123456, "write", "x") == QI_E_IO);
    assert(strstr(qi_error_text(), "123456"));
    static const int of_the_disk[] = {EIO, ENOMEM, EMFILE, ENFILE, ELOOP};
    for (size_t i = 0; i < sizeof of_the_disk / sizeof *of_the_disk; i++)
        assert(qi_is_of_the_disk(-of_the_disk[i]));
    assert(!qi_is_of_the_disk(-ENOENT) && !qi_is_of_the_disk(0));
}

int main(void) {
    test_errors_of_the_system_have_their_codes();
    test_a_search_for_frames_ends_with_its_effort();
    test_a_manifest_has_a_row_for_each_segment();
    test_a_checksum_is_taken_back();
    printf("frames: all passed\n");
    return 0;
}
