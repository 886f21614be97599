/* test_births.c - compacted files whose birth table is wrong although its checksum is right, or
 * cannot be read. Usage: test_births <directory> */
#include "shop.h"

#include "bodies/bodies_private.h"

/* A compacted file 3.qms with births of two files. */
static size_t compacted(struct shop *shop, const char *name, uint8_t **bytes) {
    *shop = shop_new(name, 64 + 4 * 35, false);
    for (int i = 0; i < 9; i++)
        shop_put(shop, 10);
    for (size_t i = 0; i < 8; i++)
        if (i % 2)
            shop_ack(shop, i);
    assert(shop_compact(shop, 40) == 2);
    shop_check(shop);
    qi_messages_close(&shop->messages);
    return read_file(shop, "3.qms", bytes);
}

/* Writes the file with its checksums made right again. The frames say the same as the table did:
 * nothing is lost. */
static void expect_not_believed(struct shop *shop, uint8_t *bytes, size_t size, uint64_t frames_end,
                                uint32_t groups) {
    uint32_t seed = qi_frame_seed(IDENTITY, 3, 0);
    uint64_t first = 4 + 8 * (uint64_t)groups, second = frames_end + first + 4;
    qi_put32(bytes + QI_MH_CRC, qi_crc32c(0, bytes, QI_MH_CRC));
    if (second + 4 <= size) {
        qi_put32(bytes + frames_end + first,
                 qi_crc32c(qi_births_crc(seed, frames_end), bytes + frames_end, first));
        qi_put32(bytes + size - 4,
                 qi_crc32c(qi_births_crc(seed, second), bytes + second, size - 4 - second));
    }
    write_file(shop, "3.qms", bytes, size);
    shop_open(shop, false);
    shop_check(shop);
    struct qi_compaction compaction;
    shop_put(shop, 10);
    assert(shop_sync(shop) == 0);
    qi_compact_pick(&shop->messages, 1, &compaction);
    qi_compact_abandon(&shop->messages, &compaction);
    shop_free(shop);
    assert(exists(shop, "3.qms"));
    free(bytes);
    shop_end(shop);
}

static void test_a_table_that_cannot_be_is_not_believed(void) {
    const uint32_t frames = 64 + 4 * 35, pairs = frames + 4 + 2 * 8 + 4;
    struct {
        const char *name;
        uint32_t offset, value;
    } const edits[] = {
        {"no-frames", QI_MH_FRAMES + 4, 0},
        {"more-frames", QI_MH_FRAMES + 4, 1000},
        {"less-frames", QI_MH_FRAMES + 4, 3},
        {"more-bytes", QI_MH_BYTES + 4, 100000},
        {"less-bytes", QI_MH_BYTES + 4, 3 * 35},
        {"no-groups", frames, 0},
        {"more-groups", frames, 3},
        {"many-groups", frames, 70},
        {"group-of-none", frames + 8, 0},
        {"groups-fall", frames + 12, 0},
        {"groups-do-not-add-up", frames + 16, 3},
        {"births-fall", pairs + 8, 1},
        {"birth-in-the-header", pairs + 4, 10},
        {"birth-behind-the-end", pairs + 4, frames},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        struct shop shop;
        uint8_t *bytes;
        size_t size = compacted(&shop, edits[i].name, &bytes);
        assert(size == frames + 4 + 2 * 8 + 4 + 4 * 8 + 4);
        qi_put32(bytes + edits[i].offset, edits[i].value);
        expect_not_believed(&shop, bytes, size, frames, 2);
    }
}

/* Nobody writes a copy whose frames lie in another order than their births; but it can be read, and
 * copied again. */
static void test_frames_in_another_order_than_their_births_are_copied(void) {
    const uint32_t frames = 64 + 4 * 35, pairs = frames + 4 + 2 * 8 + 4;
    struct shop shop;
    uint8_t *bytes, first[35];
    size_t size = compacted(&shop, "order", &bytes);
    uint32_t seed = qi_frame_seed(IDENTITY, 3, 0);
    memcpy(first, bytes + 64, 35);
    memcpy(bytes + 64, bytes + 64 + 35, 35);
    memcpy(bytes + 64 + 35, first, 35);
    for (uint64_t at = 64; at < 64 + 70; at += 35)
        qi_put32(bytes + at + 4, qi_crc32c(qi_message_crc(seed, at, bytes + at),
                                           bytes + at + QI_MESSAGE_HEADER, 10));
    qi_put32(bytes + pairs + 4, 64 + 35);
    qi_put32(bytes + pairs + 12, 64);
    qi_put32(bytes + size - 4,
             qi_crc32c(qi_births_crc(seed, pairs), bytes + pairs, size - 4 - pairs));
    write_file(&shop, "3.qms", bytes, size);
    shop_open(&shop, false);
    shop_check(&shop);
    shop_ack(&shop, 6);
    shop_put(&shop, 10);
    assert(shop_compact(&shop, 20) > 0 && !exists(&shop, "3.qms"));
    shop_check(&shop);
    free(bytes);
    shop_end(&shop);
}

/* Neither the table nor the frames of a copy can be read: its messages are lost, and said to be. */
static void test_a_copy_without_table_and_frames_is_damage(void) {
    struct shop shop;
    uint8_t *bytes;
    size_t size = compacted(&shop, "nothing", &bytes);
    bytes[size - 6] ^= 1;               /* the places; the groups can be read */
    bytes[64 + QI_MESSAGE_HEADER] ^= 1; /* the first frame */
    write_file(&shop, "3.qms", bytes, size);
    shop_open(&shop, false);
    assert(shop_try_get(&shop, 0) == QI_E_CORRUPT && strstr(qi_error_text(), "birth table"));
    assert(shop_try_get(&shop, 8) == 0);
    free(bytes);
    shop_end(&shop);
}

/* More births than a first piece of memory holds, found again from the frames. */
static void test_a_hundred_births_are_found_without_their_table(void) {
    struct shop shop = shop_new("hundred", 10000, false);
    uint8_t *bytes;
    for (int i = 0; i < 400; i++)
        shop_put(&shop, 10);
    for (size_t i = 0; i < 300; i++)
        if (i % 3)
            shop_ack(&shop, i);
    assert(shop_compact(&shop, 40) > 0);
    qi_messages_close(&shop.messages);
    const char *name = "2.qms";
    size_t size = read_file(&shop, name, &bytes);
    bytes[size - 6] ^= 1;
    write_file(&shop, name, bytes, size);
    shop_open(&shop, false);
    shop_check(&shop);
    free(bytes);
    shop_end(&shop);
}

/* An id that the victim's table does not know: it is of no message, and the file stays for a
 * salvage. */
static void test_a_survivor_that_was_never_born_keeps_its_file(void) {
    struct shop shop;
    uint8_t *bytes;
    compacted(&shop, "unborn", &bytes);
    free(bytes);
    shop_open(&shop, false);
    shop_ack(&shop, 6);
    shop_put(&shop, 10);
    assert(shop_sync(&shop) == 0);
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop.messages, 20, &compaction) > 0);
    shop_mark(&shop, &compaction);
    compaction.live[0].offset++;
    assert(qi_compact_copy(&shop.messages, &compaction) == 0 && compaction.damaged == 1);
    assert(qi_compact_commit(&shop.messages, &compaction) >= 0 && exists(&shop, "3.qms"));
    shop_check(&shop);
    shop_end(&shop);
}

int main(int count, char **arguments) {
    assert(count == 2);
    root = arguments[1];
    test_a_table_that_cannot_be_is_not_believed();
    test_frames_in_another_order_than_their_births_are_copied();
    test_a_copy_without_table_and_frames_is_damage();
    test_a_hundred_births_are_found_without_their_table();
    test_a_survivor_that_was_never_born_keeps_its_file();
    printf("births: all passed\n");
    return 0;
}
