/* test_message_corners.c - the message store where a disk fails at one word, is synced twice at
 * once, and numbers run out. Usage: test_message_corners <directory> */
#include "bodies/bodies_private.h"
#include "shop.h"

#define BUFFER (256u << 10) /* of a copy: what it holds before it writes */

/* ---- a disk that fails on demand ---- */

static struct qi_disk_ops sick_ops;
static struct qi_disk sick_disk = {&sick_ops};
static int write_error, unlink_error, sync_error, truncate_error, open_error, free_error;
static int good_writes; /* before write_error */
static uint64_t free_now = UINT64_MAX;

static int sick_write(struct qi_disk *disk, int file, const void *bytes, size_t length,
                      uint64_t offset) {
    bool fails = write_error && good_writes-- <= 0;
    return fails ? write_error : qi_disk_posix.ops->write(disk, file, bytes, length, offset);
}

static int sick_unlink(struct qi_disk *disk, int dir, const char *name) {
    return unlink_error ? unlink_error : qi_disk_posix.ops->unlink(disk, dir, name);
}

static int sick_sync(struct qi_disk *disk, int file) {
    return sync_error ? sync_error : qi_disk_posix.ops->sync(disk, file);
}

static int sick_truncate(struct qi_disk *disk, int file, uint64_t size) {
    return truncate_error ? truncate_error : qi_disk_posix.ops->truncate(disk, file, size);
}

static int sick_open(struct qi_disk *disk, int dir, const char *name, enum qi_open_mode mode) {
    bool fails = open_error && mode == QI_OPEN_READ;
    return fails ? open_error : qi_disk_posix.ops->open(disk, dir, name, mode);
}

static int sick_free_bytes(struct qi_disk *disk, int dir, uint64_t *bytes) {
    int error = qi_disk_posix.ops->free_bytes(disk, dir, bytes);
    if (free_now < *bytes)
        *bytes = free_now;
    return free_error ? free_error : error;
}

static void make_sick_disk(void) {
    sick_disk = qi_disk_posix;
    sick_ops = *qi_disk_posix.ops;
    sick_disk.ops = &sick_ops;
    sick_ops.write = sick_write;
    sick_ops.unlink = sick_unlink;
    sick_ops.sync = sick_sync;
    sick_ops.truncate = sick_truncate;
    sick_ops.open = sick_open;
    sick_ops.free_bytes = sick_free_bytes;
}

static struct shop sick_shop(const char *name, uint64_t file_size_max, bool mapping) {
    struct shop shop = {.file_size_max = file_size_max, .mapping = mapping, .disk = &sick_disk};
    snprintf(shop.path, sizeof shop.path, "%s/%s-%s", root, name, mapping ? "mmap" : "pwrite");
    shop_open(&shop, false);
    return shop;
}

/* ---- copies that fail ---- */

/* Two survivors in one file and one in another, of `length` bytes together with their frames; the
 * rest is garbage. */
static void put_survivors(struct shop *shop, uint32_t length) {
    const uint32_t first = 100000, second = 90000;
    shop_put(shop, first);
    shop_put(shop, second);
    shop_put(shop, 650000);
    shop_put(shop, length - first - second - 3 * 25);
    shop_put(shop, 600000);
    shop_put(shop, 700000); /* the newest, a file of its own */
    shop_put(shop, 10);
    shop_ack(shop, 2);
    shop_ack(shop, 4);
    assert(shop->items[0].id.file == shop->items[1].id.file);
    assert(shop->items[3].id.file != shop->items[0].id.file);
    assert(shop_sync(shop) == 0);
}

static int try_copy(struct shop *shop, int error) {
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop->messages, 30, &compaction) >= 2);
    shop_mark(shop, &compaction);
    assert(qi_compact_look(&shop->messages, 30, &compaction) == 2);
    write_error = error;
    int result = qi_compact_copy(&shop->messages, &compaction);
    write_error = 0;
    if (result)
        qi_compact_abandon(&shop->messages, &compaction);
    else
        assert(qi_compact_commit(&shop->messages, &compaction) > 0);
    return result;
}

/* Frames and birth table are longer than the buffer: each of its writes fails in turn. */
static void test_a_copy_fails_at_any_write_and_nothing_is_lost(bool mapping) {
    struct shop shop = sick_shop("writes", 1500000, mapping);
    struct qi_compaction compaction;
    int error = -1;
    for (int i = 0; i < 35000; i++)
        shop_put(&shop, 1);
    shop_put(&shop, 550000);
    shop_put(&shop, 1400000);
    shop_put(&shop, 200000);
    shop_ack(&shop, 35000);
    for (int n = 1; error; n++) {
        assert(shop_sync(&shop) == 0);
        assert(qi_compact_pick(&shop.messages, 30, &compaction) == 1);
        shop_mark(&shop, &compaction);
        assert(qi_compact_look(&shop.messages, 30, &compaction) == 1);
        good_writes = n;
        write_error = -ENOSPC;
        error = qi_compact_copy(&shop.messages, &compaction);
        write_error = good_writes = 0;
        assert(error == 0 || error == QI_E_FULL);
        if (error)
            qi_compact_abandon(&shop.messages, &compaction);
        assert(error || n > 4);
    }
    assert(qi_compact_commit(&shop.messages, &compaction) > 0);
    shop_check(&shop);
    shop_reopen(&shop);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_a_message_bigger_than_the_copys_buffer_moves(bool mapping) {
    struct shop shop = sick_shop("bigger", 1500000, mapping);
    shop_put(&shop, 400000);
    shop_put(&shop, 50);
    shop_put(&shop, 900000);
    shop_put(&shop, 300000);
    shop_put(&shop, 1400000);
    shop_ack(&shop, 2);
    for (int error = -EIO; error <= 0; error -= error ? error : -1) {
        struct qi_compaction compaction;
        assert(shop_sync(&shop) == 0);
        assert(qi_compact_pick(&shop.messages, 30, &compaction) == 1);
        shop_mark(&shop, &compaction);
        assert(qi_compact_look(&shop.messages, 30, &compaction) == 1);
        write_error = error;
        assert(qi_compact_copy(&shop.messages, &compaction) == (error ? QI_E_IO : 0));
        write_error = 0;
        if (error)
            qi_compact_abandon(&shop.messages, &compaction);
        else
            assert(qi_compact_commit(&shop.messages, &compaction) > 0);
        shop_check(&shop);
    }
    shop_end(&shop);
}

static void test_compaction_needs_room_counts_and_a_healthy_store(bool mapping) {
    struct shop shop = sick_shop("needs", 900000, mapping);
    put_survivors(&shop, BUFFER);
    struct qi_compaction compaction;
    uint32_t numbers[4];
    bool *const flags[] = {&shop.messages.miscounted, &shop.messages.read_only,
                           &shop.messages.failed};
    for (size_t i = 0; i < 3; i++) {
        *flags[i] = true;
        assert(qi_compact_pick(&shop.messages, 30, &compaction) == 0);
        *flags[i] = false;
    }
    shop.messages.read_only = true;
    assert(qi_messages_empty(&shop.messages, numbers, 4) == 0);
    assert(qi_messages_free(&shop.messages, numbers, 0) == 0);
    shop.messages.read_only = false;
    shop.messages.counted = false;
    assert(qi_compact_pick(&shop.messages, 30, &compaction) == 0);
    shop.messages.counted = true;
    uint32_t next = shop.messages.number_next;
    shop.messages.number_next = UINT32_MAX;
    assert(qi_compact_pick(&shop.messages, 30, &compaction) == 0); /* no number for the output */
    shop.messages.number_next = next;
    free_now = 1000;
    assert(try_copy(&shop, 0) == QI_E_FULL);
    free_now = UINT64_MAX;
    free_error = -EIO;
    assert(try_copy(&shop, 0) == QI_E_IO);
    free_error = 0;
    assert(try_copy(&shop, 0) == 0);
    shop_check(&shop);
    shop_end(&shop);
}

/* What says nothing about the bytes does not cost a file its place. */
static void test_a_lack_of_handles_is_no_damage(bool mapping) {
    static const int passing[] = {-EMFILE, -ENFILE, -ENOMEM};
    struct shop shop = sick_shop("handles", 900000, mapping);
    put_survivors(&shop, BUFFER);
    for (size_t i = 0; i < 3; i++) {
        struct qi_compaction compaction;
        assert(qi_compact_pick(&shop.messages, 30, &compaction) == 2);
        shop_mark(&shop, &compaction);
        assert(qi_compact_look(&shop.messages, 30, &compaction) == 2);
        open_error = passing[i];
        assert(qi_compact_copy(&shop.messages, &compaction) != 0);
        open_error = 0;
        assert(compaction.damaged == 0);
        qi_compact_abandon(&shop.messages, &compaction);
    }
    assert(try_copy(&shop, 0) == 0);
    shop_end(&shop);
}

/* A caller's mistake is refused and changes nothing. */
static void test_survivors_that_are_not_sorted_are_refused(bool mapping) {
    struct shop shop = sick_shop("sorted", 900000, mapping);
    put_survivors(&shop, BUFFER);
    for (int swap = 0; swap < 2; swap++) { /* within a file; of two files */
        struct qi_compaction compaction;
        assert(qi_compact_pick(&shop.messages, 30, &compaction) == 2);
        shop_mark(&shop, &compaction);
        assert(compaction.live_count == 3);
        struct qi_msg_id first = compaction.live[swap];
        compaction.live[swap] = compaction.live[swap + 1];
        compaction.live[swap + 1] = first;
        assert(qi_compact_copy(&shop.messages, &compaction) == QI_E_ARGUMENT);
        qi_compact_abandon(&shop.messages, &compaction);
        shop_check(&shop);
    }
    shop_end(&shop);
}

/* Two ids of one place: one of them is of no message, and its file stays for a salvage. */
static void test_two_ids_of_one_place_keep_the_file(bool mapping) {
    struct shop shop = sick_shop("twice", 900000, mapping);
    put_survivors(&shop, BUFFER);
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop.messages, 30, &compaction) == 2);
    shop_mark(&shop, &compaction);
    compaction.live[1] = compaction.live[0];
    compaction.live[1].stamp ^= 1;
    assert(qi_compact_copy(&shop.messages, &compaction) == 0);
    assert(compaction.damaged == 1 && !compaction.files[0].victim && compaction.files[1].victim);
    assert(qi_compact_commit(&shop.messages, &compaction) > 0);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_an_id_without_a_stamp_is_of_no_message(bool mapping) {
    struct shop shop = shop_new("stamp", 10000, mapping);
    struct qi_msg_id id = shop_put(&shop, 100)->id;
    uint8_t payload[100];
    id.stamp = id.stamp >> 32 << 32;
    assert(qi_messages_read(&shop.messages, id, payload, 100) == QI_E_CORRUPT);
    id.stamp = 0;
    assert(qi_messages_read(&shop.messages, id, payload, 0) == QI_E_CORRUPT);
    shop_end(&shop);
}

/* ---- appends ---- */

static void test_an_append_that_cannot_be_says_why(bool mapping) {
    struct shop shop = sick_shop("append", 100000, mapping);
    struct qi_msg_id id;
    shop_put(&shop, 1000);
    uint64_t tail = shop.messages.tail;
    const struct qi_payload huge = {"", "", UINT32_MAX, 100, 1, false};
    assert(qi_messages_append(&shop.messages, &huge, &id) == QI_E_ARGUMENT);
    write_error = -EDQUOT;
    assert(shop_try_put(&shop, 90000, 1) == QI_E_FULL);
    assert(strstr(qi_error_text(), "ack messages"));
    write_error = 0;
    truncate_error = -EIO;
    assert(shop_try_put(&shop, 99999, 1) == QI_E_IO); /* the file before is not cut: it stays */
    truncate_error = 0;
    assert(shop.messages.tail == tail && shop.messages.tape_number == 0);
    uint32_t next = shop.messages.number_next;
    shop.messages.number_next = UINT32_MAX;
    assert(shop_try_put(&shop, 99999, 1) == QI_E_FULL);
    assert(strstr(qi_error_text(), "used up"));
    shop.messages.number_next = next;
    shop_check(&shop);
    shop_put(&shop, 99999);
    shop_check(&shop);
    shop_end(&shop);
}

/* With sync="never" the 65th file waits for the sync of the oldest, unless a sync has them all in
 * hand. */
static void test_files_that_wait_for_a_sync_are_bounded(bool mapping) {
    struct shop shop = sick_shop("bounded", 500, mapping);
    for (int i = 0; i < 100; i++)
        shop_put(&shop, 400);
    assert(shop.messages.files_unsynced == 64);
    struct qi_messages_sync sync;
    qi_messages_sync_begin(&shop.messages, &sync);
    shop_put(&shop, 400); /* rolls the file that is being synced */
    for (uint32_t i = 0; i < shop.messages.files_count; i++)
        shop.messages.files[i].pinned++; /* all in hand */
    shop_put(&shop, 400);
    assert(shop.messages.files_unsynced > 64);
    assert(shop_try_get(&shop, 0) ==
           0); /* of a file that was synced: no handle can be taken from another */
    for (uint32_t i = 0; i < shop.messages.files_count; i++)
        if (shop.messages.files[i].pinned > 0)
            shop.messages.files[i].pinned--;
    int error = qi_messages_sync_run(&shop.messages, &sync);
    qi_messages_sync_end(&shop.messages, &sync, error);
    assert(error == 0 && shop_sync(&shop) == 0);
    for (int i = 0; i < 64; i++)
        shop_put(&shop, 400);
    sync_error = -EIO;
    assert(shop_try_put(&shop, 400, 1) == QI_E_FAILED);
    sync_error = 0;
    assert(shop_try_put(&shop, 400, 1) == QI_E_FAILED); /* not a second time */
    shop_reopen(&shop);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_an_empty_message_is_read_from_a_file_that_changed(bool mapping) {
    struct shop shop = shop_new("empty", 200, mapping);
    shop_put(&shop, 0);
    shop_put(&shop, 150);
    assert(shop_try_get(&shop, 0) == 0);
    memset(shop.messages.window, 0, 64); /* as if the writer had written it since */
    assert(shop_try_get(&shop, 0) == 0);
    shop_end(&shop);
}

/* Two syncs at once: what the second one covered is still in the hands of the first, so it is no
 * victim, and its handle stays open. A tape that rolled since belongs to another file now. */
static void test_a_file_in_two_syncs_stays_until_both_end(bool mapping) {
    struct shop shop = sick_shop("syncs", 500, mapping);
    shop_put(&shop, 150);
    shop_put(&shop, 200);
    struct qi_messages_sync one, two;
    struct qi_compaction compaction;
    qi_messages_sync_begin(&shop.messages, &one);
    shop_put(&shop, 300); /* rolls the file that is being synced, */
    shop_ack(&shop, 1);
    qi_messages_sync_begin(&shop.messages, &two);
    int error = qi_messages_sync_run(&shop.messages, &two);
    qi_messages_sync_end(&shop.messages, &two, error);
    assert(error == 0 && qi_compact_pick(&shop.messages, 30, &compaction) == 0);
    for (int i = 0; i < 100; i++) { /* and many more: handles are scarce */
        shop_put(&shop, 400);
        assert(shop_sync(&shop) == 0);
    }
    for (size_t i = 2; i < shop.items_count; i++) /* who reads takes them from others */
        assert(shop_try_get(&shop, i) == 0);
    assert(qi_message_file_find(&shop.messages, shop.items[0].id.file)->handle >= 0);
    error = qi_messages_sync_run(&shop.messages, &one);
    qi_messages_sync_end(&shop.messages, &one, error);
    assert(error == 0 && qi_compact_pick(&shop.messages, 30, &compaction) == 1);
    qi_compact_abandon(&shop.messages, &compaction);
    shop_check(&shop);
    shop_end(&shop);
}

/* ---- freeing ---- */

static void test_freeing_takes_what_is_gone_for_gone(bool mapping) {
    struct shop shop = sick_shop("gone", 500, mapping);
    for (int i = 0; i < 6; i++)
        shop_put(&shop, 400);
    for (size_t i = 0; i < 5; i++)
        shop_ack(&shop, i);
    assert(shop_sync(&shop) == 0);
    uint32_t numbers[8] = {0};
    assert(qi_messages_empty(&shop.messages, numbers, 2) == 2);
    shop.messages.keep_free = UINT64_MAX / 2; /* as on a full disk: none is kept as a blank */
    unlink_error = -EIO;
    assert(qi_messages_free(&shop.messages, numbers, 1) == QI_E_IO);
    unlink_error = -ENOENT; /* somebody else did it */
    assert(qi_messages_free(&shop.messages, numbers, 1) > 0);
    unlink_error = 0;
    struct qi_message_file *pinned = qi_message_file_find(&shop.messages, numbers[1]);
    pinned->pinned++; /* somebody began to sync it since */
    const uint32_t others[] = {numbers[0], numbers[1], 4711, shop.items[5].id.file};
    assert(qi_messages_free(&shop.messages, others, 4) ==
           0); /* gone, pinned, never there, in use */
    pinned->pinned--;
    assert(shop_free(&shop) > 0);
    shop_check(&shop);
    qi_messages_count(&shop.messages, shop.items[5].id.file, 0, -1000000);
    assert(shop.messages.miscounted); /* below zero: nothing is freed any more */
    shop_ack(&shop, 5);
    assert(shop_free(&shop) == 0);
    shop_end(&shop);
}

int main(int count, char **arguments) {
    assert(count == 2);
    root = arguments[1];
    make_sick_disk();
    for (int mapping = 0; mapping < 2; mapping++) {
        test_a_copy_fails_at_any_write_and_nothing_is_lost(mapping);
        test_a_message_bigger_than_the_copys_buffer_moves(mapping);
        test_compaction_needs_room_counts_and_a_healthy_store(mapping);
        test_a_lack_of_handles_is_no_damage(mapping);
        test_survivors_that_are_not_sorted_are_refused(mapping);
        test_two_ids_of_one_place_keep_the_file(mapping);
        test_an_id_without_a_stamp_is_of_no_message(mapping);
        test_an_append_that_cannot_be_says_why(mapping);
        test_files_that_wait_for_a_sync_are_bounded(mapping);
        test_a_file_in_two_syncs_stays_until_both_end(mapping);
        test_an_empty_message_is_read_from_a_file_that_changed(mapping);
        test_freeing_takes_what_is_gone_for_gone(mapping);
    }
    printf("message_corners: all passed\n");
    return 0;
}
