/* test_messages.c - the message store against a model. Usage: test_messages <empty directory> */
#include "bodies/bodies_private.h"
#include "shop.h"

static void test_bodies_of_all_sizes_come_back(bool mapping) {
    static const uint32_t lengths[] = {0,     1,     2,     100,    4071,  4096,
                                       32767, 32768, 49152, 65535,  65536, 65537,
                                       69607, 69608, 99999, 131072, 300000};
    struct shop shop = shop_new("sizes", 100000, mapping);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            shop_put(&shop, lengths[i]);
            assert(shop_try_get(&shop, shop.items_count - 1) == 0);
        }
    shop_check(&shop);
    assert(shop_sync(&shop) == 0);
    shop_check(&shop);
    shop_reopen(&shop);
    shop_check(&shop);
    shop_put(&shop, 77);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_a_message_bigger_than_a_file_gets_its_own(bool mapping) {
    struct shop shop = shop_new("big", 4096, mapping);
    shop_put(&shop, 10);
    struct item *big = shop_put(&shop, 50000);
    assert(big->id.file == 1 && big->id.offset == QI_MESSAGES_START);
    assert(shop_put(&shop, 10)->id.file == 2);
    assert(shop.messages.files[1].size == QI_MESSAGES_START + 50000 + QI_MESSAGE_OVERHEAD);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_a_file_is_filled_to_its_last_byte_and_then_rolls(bool mapping) {
    struct shop shop = shop_new("roll", 64 + 4 * 125, mapping);
    for (int i = 0; i < 9; i++)
        shop_put(&shop, 100);
    assert(shop.items[3].id.file == 0 && shop.items[4].id.file == 1 && shop.items[8].id.file == 2);
    assert(shop.messages.files_count == 2);
    uint8_t *bytes;
    size_t size = read_file(&shop, "0.qms", &bytes);
    assert(size == 64 + 4 * 125 && bytes[size - 1] == QI_MESSAGE_END);
    free(bytes);
    shop_check(&shop);
    qi_messages_close(&shop.messages);
    size = read_file(&shop, "2.qms", &bytes);
    assert(size == 64 + 125); /* what was preallocated is given back */
    free(bytes);
    shop_end(&shop);
}

static void test_numbers_are_never_used_twice(bool mapping) {
    struct shop shop = shop_new("numbers", 500, mapping);
    uint32_t highest = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 5; i++) {
            uint32_t number = shop_put(&shop, 200)->id.file;
            assert(number >= highest);
            if (i == 0)
                assert(round == 0 || number > highest);
            highest = number;
        }
        for (size_t i = shop.items_count - 5; i < shop.items_count; i++)
            shop_ack(&shop, i);
        shop_free(&shop);
        shop_reopen(&shop);
        shop_free(&shop);
        assert(shop.messages.files_count == 1); /* the newest stays, though it is empty */
    }
    shop_end(&shop);
}

static void test_a_file_is_freed_when_its_last_reference_goes(bool mapping) {
    struct shop shop = shop_new("free", 64 + 2 * 125, mapping);
    for (int i = 0; i < 3; i++)
        assert(shop_try_put(&shop, 100, 2) == 0);
    shop_put(&shop, 100);
    shop_put(&shop, 100);
    shop.messages.counted = false;
    for (int i = 0; i < 4; i++)
        shop_ack(&shop, (size_t)i / 2);
    assert(shop_free(&shop) == 0); /* somebody may not have told its references yet */
    shop.messages.counted = true;
    assert(shop_free(&shop) == 64 + 2 * 125);
    assert(!exists(&shop, "0.qms") && exists(&shop, "1.qms") && exists(&shop, "2.qms"));
    assert(shop_try_get(&shop, 0) == QI_E_CORRUPT);
    assert(strstr(qi_error_text(), "messages/0.qms is missing"));
    shop_check(&shop);
    shop_ack(&shop, 4);
    assert(shop_free(&shop) == 0);                    /* the newest */
    qi_messages_count(&shop.messages, 1, -10, -1250); /* never said: stop freeing */
    shop_ack(&shop, 3);
    shop_ack(&shop, 2);
    shop_ack(&shop, 2);
    assert(shop.messages.miscounted && shop_free(&shop) == 0 && exists(&shop, "1.qms"));
    shop_reopen(&shop);
    assert(shop_free(&shop) > 0 && !exists(&shop, "1.qms"));
    shop_end(&shop);
}

static void test_an_id_of_another_message_at_the_same_place_is_refused(bool mapping) {
    struct shop shop = shop_new("stale", 4096, mapping);
    shop_put(&shop, 100);
    shop_put(&shop, 100);
    uint8_t payload[100];
    uint32_t length;
    for (int round = 0; round < 2; round++) {
        struct qi_msg_id id = shop.items[1].id;
        id.stamp++;
        assert(qi_messages_read(&shop.messages, id, payload, 100) == QI_E_CORRUPT);
        assert(qi_messages_length(&shop.messages, id, &length) == QI_E_CORRUPT);
        id = shop.items[1].id;
        assert(qi_messages_read(&shop.messages, id, payload, 99) == QI_E_CORRUPT);
        const uint32_t offsets[] = {0, 63, id.offset - 1, id.offset + 125, 4090, UINT32_MAX};
        for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
            id.offset = offsets[i];
            assert(qi_messages_read(&shop.messages, id, payload, 100) == QI_E_CORRUPT);
            assert(qi_messages_length(&shop.messages, id, &length) == QI_E_CORRUPT);
        }
        id = (struct qi_msg_id){77, 64, 1};
        assert(qi_messages_read(&shop.messages, id, payload, 100) == QI_E_CORRUPT);
        shop_check(&shop);
        shop_reopen(&shop);
    }
    shop_end(&shop);
}

static void test_sync_counts_what_it_covered(bool mapping) {
    struct shop shop = shop_new("sync", 300, mapping);
    for (int i = 0; i < 200; i++) /* more rolled files than one round takes, and than may wait */
        shop_put(&shop, 200);
    assert(shop.messages.files_unsynced >= 15 && shop.messages.files_unsynced <= 64);
    assert(shop_sync(&shop) == 0);
    shop_put(&shop, 10); /* rolls: a new name, and the file before was cut to its end */
    struct qi_messages_sync sync, other;
    qi_messages_sync_begin(&shop.messages, &sync);
    assert(sync.count == 2 && sync.tape && sync.dir && !sync.more);
    uint64_t upto = sync.upto;
    uint32_t rolled = shop.messages.tape_number;
    shop_put(&shop, 10);
    shop_put(&shop, 200); /* rolls while the sync runs */
    assert(qi_messages_sync_run(&shop.messages, &sync) == 0);
    qi_messages_sync_begin(&shop.messages, &other); /* a second one at the same time */
    assert(qi_messages_sync_run(&shop.messages, &other) == 0);
    qi_messages_sync_end(&shop.messages, &sync, 0);
    assert(shop.messages.synced == upto);
    assert(qi_message_file_find(&shop.messages, rolled)->unsynced);
    assert(shop.messages.dir_unsynced);
    qi_messages_sync_end(&shop.messages, &other, 0);
    assert(shop.messages.synced == shop.messages.written && !shop.messages.dir_unsynced);
    assert(!qi_message_file_find(&shop.messages, rolled)->unsynced);
    assert(qi_message_file_find(&shop.messages, rolled)->pinned == 0);
    shop_check(&shop); /* with many files and few handles */
    assert(shop.messages.files_open <= QI_MESSAGES_HANDLES_MAX + 1);
    shop_end(&shop);
}

static void test_a_reader_sees_what_the_writer_does_meanwhile(bool mapping) {
    struct shop shop = shop_new("reader", 1000, mapping);
    for (int i = 0; i < 12; i++)
        shop_put(&shop, 200);
    struct shop reader = shop;
    shop_open(&reader, true);
    shop_check(&reader);
    for (int i = 0; i < 20; i++)
        shop_put(&shop, 200);
    for (size_t i = 0; i < 16; i += 2)
        shop_ack(&shop, i);
    assert(shop_compact(&shop, 30) > 0);
    reader.items = shop.items;
    reader.items_count = shop.items_count;
    usleep(150000);
    shop_check(&reader);
    struct qi_msg_id id;
    const struct qi_payload payload = {"", "x", 0, 1, 1, false};
    assert(qi_messages_append(&reader.messages, &payload, &id) == QI_E_READ_ONLY);
    qi_messages_close(&reader.messages);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_only_files_that_are_understood_are_touched(bool mapping) {
    struct shop shop = shop_new("names", 500, mapping);
    static const char *others[] = {"007.qms", "x.qms",  "1.qms.bak", "4294967295.qms",
                                   "-1.qms",  "5.QMS",  "5.qmss",    " 5.qms",
                                   "00.new",  "9.news", "11.qms",    "12.qms",
                                   "13.qms",  ".new",   "14.qms",    "12345678901.qms"};
    uint8_t header[QI_MH_SIZE];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        write_file(&shop, others[i], "what is this?", 13);
    qi_message_header_put(header, QI_MESSAGES_ROLLING, (const uint8_t *)"another identity", 12, 0,
                          0);
    write_file(&shop, "12.qms", header, sizeof header);
    qi_message_header_put(header, QI_MESSAGES_COMPACTED, IDENTITY, 13, 1, 1000);
    write_file(&shop, "13.qms", header, sizeof header);
    char pipe[512];
    file_path(&shop, "15.qms", pipe);
    assert(mkfifo(pipe, 0600) == 0);
    write_file(&shop, "16.qms", "", 0);
    write_file(&shop, "17.new", "unfinished", 10);
    qi_messages_close(&shop.messages);
    shop_open(&shop, true);
    assert(exists(&shop, "17.new"));
    shop_reopen(&shop);
    assert(!exists(&shop, "17.new"));
    assert(shop_put(&shop, 10)->id.file == 18);
    assert(shop_sync(&shop) == 0);
    shop_free(&shop);
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop.messages, 0, &compaction) == 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert(exists(&shop, others[i]));
    assert(exists(&shop, "15.qms") && !exists(&shop, "16.qms")); /* a power cut left the latter */
    qi_messages_close(&shop.messages);
    qi_message_header_put(header, QI_MESSAGES_ROLLING, IDENTITY, 30, 0, 0);
    qi_put32(header + QI_MH_VERSION, 2);
    qi_put32(header + QI_MH_CRC, qi_crc32c(0, header, QI_MH_CRC));
    write_file(&shop, "30.qms", header, sizeof header);
    assert(shop_try_open(&shop, false) == QI_E_FORMAT);
    shop_end(&shop);
}

/* ---- a disk that says no ---- */

static struct qi_disk_ops sick_ops;
static struct qi_disk sick_disk;
static int sick_error, sick_syncs;

static int sick_allocate(struct qi_disk *disk, int file, uint64_t from, uint64_t size) {
    return sick_error ? sick_error : qi_disk_posix.ops->allocate(disk, file, from, size);
}

/* Whose body somebody changes whenever bytes are written. */
static uint8_t *changing;
static uint32_t changing_size;

static int sick_write(struct qi_disk *disk, int file, const void *bytes, size_t length,
                      uint64_t offset) {
    if (sick_error)
        return sick_error;
    for (uint32_t i = 0; changing && i < changing_size; i++)
        changing[i] ^= 0xff;
    return qi_disk_posix.ops->write(disk, file, bytes, length, offset);
}

static uint32_t writes_made;

static int sick_write_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                             uint32_t count, uint64_t offset) {
    writes_made++;
    if (sick_error)
        return sick_error;
    for (uint32_t i = 0; changing && i < changing_size; i++)
        changing[i] ^= 0xff;
    return qi_disk_posix.ops->write_pieces(disk, file, pieces, count, offset);
}

static uint32_t reads_made;
static int64_t cached_max = INT64_MAX; /* of a read that must not wait */

static int64_t sick_read_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                                uint32_t count, uint64_t offset, bool may_wait) {
    reads_made++;
    if (!may_wait && cached_max < 0)
        return cached_max;
    int64_t got = qi_disk_posix.ops->read_pieces(disk, file, pieces, count, offset, true);
    return may_wait || got < cached_max ? got : cached_max;
}

/* What comes back is what was read of it, each byte of one content or of the other, and no damaged
 * message. */
static void test_a_body_that_changes_while_it_is_stored_is_valid(bool mapping) {
    static const uint32_t lengths[] = {1, 3000, 5000, 65536, 69607, 69608, 300000};
    struct shop shop = shop_new("changing", 1000000, mapping);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t length = lengths[i];
        uint8_t *body = body_of(7, length), *got = malloc(length);
        struct qi_msg_id id;
        shop.messages.disk = &sick_disk;
        shop.messages.tape.disk = &sick_disk;
        changing = body;
        changing_size = length;
        const struct qi_payload payload = {NULL, body, 0, length, 1, false};
        assert(qi_messages_append(&shop.messages, &payload, &id) == 0);
        changing = NULL;
        assert(qi_messages_read(&shop.messages, id, got, length) == 0);
        for (uint32_t at = 0; at < length; at++)
            assert(got[at] == body_byte(7, at) || got[at] == (body_byte(7, at) ^ 0xff));
        free(got);
        free(body);
    }
    shop_end(&shop);
}

/* Neighbours are read by one call, up to the first that is damaged; others by one each. */
static void test_neighbours_are_read_by_one_call(bool mapping) {
    enum { COUNT = 100, LENGTH = 5000 };
    struct shop shop = shop_new("neighbours", 1 << 20, mapping);
    struct qi_message_read reads[COUNT];
    static uint8_t bytes[COUNT][LENGTH];
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct item *item = shop_put(&shop, LENGTH);
        reads[i] = (struct qi_message_read){item->id,
                                            {.headers = bytes[i],
                                             .body = bytes[i] + 7,
                                             .headers_size = 7,
                                             .body_size = LENGTH - 7}};
    }
    shop.messages.disk = shop.messages.tape.disk = &sick_disk;
    reads_made = 0;
    assert(qi_messages_read_many(&shop.messages, reads, COUNT) == COUNT);
    assert(reads_made == 2); /* of 64 and 36 */
    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t *expected = body_of(shop.items[i].seed, LENGTH);
        assert(memcmp(bytes[i], expected, LENGTH) == 0);
        free(expected);
    }
    reads[70].id.stamp ^= 1;
    assert(qi_messages_read_many(&shop.messages, reads, COUNT) == 70);
    reads[70].id.stamp ^= 1;
    reads[1] = reads[2]; /* a gap, and one that lies before the one before it */
    reads[2] = reads[0];
    reads_made = 0;
    assert(qi_messages_read_many(&shop.messages, reads, 4) == 4);
    assert(reads_made == 4);
    shop.messages.disk = shop.messages.tape.disk = &qi_disk_posix;
    shop_end(&shop);
}

static int sick_sync(struct qi_disk *disk, int file) {
    sick_syncs++;
    return sick_error ? sick_error : qi_disk_posix.ops->sync(disk, file);
}

static void test_a_full_disk_changes_nothing(bool mapping) {
    struct shop shop = shop_new("full", 200000, mapping);
    shop_put(&shop, 1000);
    for (uint32_t length = 100000; length <= 400000; length += 300000) { /* grows, rolls */
        struct qi_messages before = shop.messages;
        shop.messages.disk = shop.messages.tape.disk = &sick_disk;
        sick_error = -ENOSPC;
        assert(shop_try_put(&shop, length, 1) == QI_E_FULL);
        assert(strstr(qi_error_text(), "ack messages, or free disk space"));
        sick_error = -EIO;
        assert(shop_try_put(&shop, length, 1) == QI_E_IO);
        sick_error = 0;
        shop.messages.disk = shop.messages.tape.disk = &qi_disk_posix;
        assert(shop.messages.tail == before.tail && shop.messages.written == before.written);
        assert(shop.messages.tape_number == before.tape_number && !exists(&shop, "1.qms"));
        shop_put(&shop, 1000);
        shop_check(&shop);
    }
    shop.messages.keep_free = UINT64_MAX / 2;
    assert(shop_try_put(&shop, 190000, 1) == QI_E_FULL);
    shop.messages.keep_free = 0;
    shop_put(&shop, 190000);
    shop_reopen(&shop);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_a_failed_sync_is_never_tried_again(bool mapping) {
    struct shop shop = shop_new("sick", 2000, mapping);
    shop_put(&shop, 100);
    shop.messages.disk = &sick_disk;
    sick_error = -EIO;
    sick_syncs = 0;
    assert(shop_sync(&shop) == QI_E_IO && sick_syncs == 1);
    sick_error = 0;
    assert(shop_sync(&shop) == QI_E_FAILED && sick_syncs == 1);
    assert(shop_try_put(&shop, 100, 1) == QI_E_FAILED);
    assert(shop.messages.synced == 0 && shop.messages.tape_pinned == 0);
    shop.messages.disk = &qi_disk_posix;
    shop_reopen(&shop);
    assert(qi_messages_barrier(&shop.messages, 0) == 0);
    shop_check(&shop);
    shop_end(&shop);
}

static int read_now(struct shop *shop, const struct item *item, uint8_t *bytes, bool may_wait) {
    const uint32_t first = item->length / 3;
    const struct qi_into into = {bytes, bytes + first, first, item->length - first};
    return qi_messages_read_into(&shop->messages, item->id, &into, may_wait);
}

/* Long and short ones, in the newest file and in a sealed one: a part of a message in the cache is
 * no message, and the read that may wait has the last word about what is wrong. */
static void test_a_read_that_must_not_wait_gives_all_or_nothing(bool mapping) {
    static const uint32_t lengths[] = {10, 4095, 4096, 16383, 16384, 70000};
    struct shop shop = shop_new("now", 130000, mapping);
    shop.messages.in_memory = false;
    for (int sealed = 0; sealed < 2; sealed++) {
        size_t first = shop.items_count;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            shop_put(&shop, lengths[i]);
        if (sealed)
            shop_put(&shop, 90000);
        shop.messages.disk = &sick_disk;
        for (size_t i = first; i < first + sizeof lengths / sizeof *lengths; i++) {
            const struct item *item = &shop.items[i];
            uint8_t *bytes = malloc(item->length), *expected = body_of(item->seed, item->length);
            bool in_mapping = !sealed && item->length < qi_disk_posix.call_min;
            const int64_t some[] = {-EAGAIN, 0, 24, item->length, INT64_MAX};
            assert(sealed == (item->id.file != shop.messages.tape_number));
            for (size_t n = 0; n < sizeof some / sizeof *some; n++) {
                bool all = in_mapping || some[n] == INT64_MAX;
                shop.messages.window_file = UINT32_MAX;
                cached_max = some[n];
                memset(bytes, '?', item->length);
                assert(read_now(&shop, item, bytes, false) == (all ? 0 : QI_BUSY));
                assert(!all || memcmp(bytes, expected, item->length) == 0);
                assert(read_now(&shop, item, bytes, true) == 0);
                assert(memcmp(bytes, expected, item->length) == 0);
            }
            struct item damaged = *item;
            damaged.id.stamp ^= 1;
            assert(read_now(&shop, &damaged, bytes, false) == QI_BUSY);
            assert(read_now(&shop, &damaged, bytes, true) == QI_E_CORRUPT);
            free(bytes);
            free(expected);
        }
        shop.messages.disk = &qi_disk_posix;
    }
    shop_end(&shop);
}

int main(int count, char **arguments) {
    assert(count == 2);
    root = arguments[1];
    sick_disk = qi_disk_posix;
    sick_disk.ops = &sick_ops;
    sick_ops = *qi_disk_posix.ops;
    sick_ops.allocate = sick_allocate;
    sick_ops.write = sick_write;
    sick_ops.read_pieces = sick_read_pieces;
    sick_ops.write_pieces = sick_write_pieces;
    sick_ops.sync = sick_sync;
    for (int mapping = 0; mapping < 2; mapping++) {
        test_bodies_of_all_sizes_come_back(mapping);
        test_a_body_that_changes_while_it_is_stored_is_valid(mapping);
        test_a_message_bigger_than_a_file_gets_its_own(mapping);
        test_a_file_is_filled_to_its_last_byte_and_then_rolls(mapping);
        test_numbers_are_never_used_twice(mapping);
        test_a_file_is_freed_when_its_last_reference_goes(mapping);
        test_an_id_of_another_message_at_the_same_place_is_refused(mapping);
        test_sync_counts_what_it_covered(mapping);
        test_a_reader_sees_what_the_writer_does_meanwhile(mapping);
        test_only_files_that_are_understood_are_touched(mapping);
        test_a_full_disk_changes_nothing(mapping);
        test_a_failed_sync_is_never_tried_again(mapping);
        test_neighbours_are_read_by_one_call(mapping);
        test_a_read_that_must_not_wait_gives_all_or_nothing(mapping);
    }
    puts("messages: all passed");
    return 0;
}
