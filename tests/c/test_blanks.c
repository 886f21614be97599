/* test_blanks.c - empty message files that are written over again: which are kept, when they may be
 * used, and that nothing of what they held comes back. Usage: test_blanks <directory> */
#include "bodies/bodies_private.h"
#include "shop.h"

#define FILE_SIZE 100000u
#define LENGTH    9000u
#define IN_FILE   11u /* messages */

static bool is_there(const struct shop *shop, uint32_t number, bool unfinished) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", shop->path, qi_message_name(number, unfinished).file);
    return access(path, F_OK) == 0;
}

/* Of a blank. */
static int header_byte(const struct shop *shop, uint32_t number) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", shop->path, qi_message_name(number, true).file);
    FILE *file = fopen(path, "rb");
    int byte = file ? fgetc(file) : EOF;
    if (file)
        fclose(file);
    return byte;
}

static void put_files(struct shop *shop, uint32_t files) {
    for (uint32_t i = 0; i < files * IN_FILE; i++)
        shop_put(shop, LENGTH);
}

/* What was in these files is acked, and the acks are durable. */
static void empty_files(struct shop *shop, uint32_t first, uint32_t count) {
    for (size_t i = 0; i < shop->items_count; i++) {
        struct item *item = &shop->items[i];
        if (item->references && item->id.file - first < count)
            shop_ack(shop, i);
    }
    assert(shop_sync(shop) == 0);
    assert(shop_free(shop) > 0);
}

/* As a process that was killed leaves it. */
static void shop_kill(struct shop *shop) {
    struct qi_messages *messages = &shop->messages;
    for (uint32_t i = 0; i < messages->blanks_count; i++)
        shop->disk->ops->close(shop->disk, messages->blanks[i].handle);
    messages->blanks_count = 0;
    messages->tape.allocated = messages->tail; /* so that it is not cut */
    shop_reopen(shop);
}

static void test_an_empty_file_is_written_over(bool mapping) {
    struct shop shop = shop_new("over", FILE_SIZE, mapping);
    put_files(&shop, 3);
    empty_files(&shop, 0, 2);
    assert(shop.messages.blanks_count == 2);
    assert(!is_there(&shop, 0, false) && is_there(&shop, 0, true));
    assert(!is_there(&shop, 1, false) && is_there(&shop, 1, true));
    put_files(&shop, 1); /* file 3: no sync has made the blanks durable */
    assert(shop.messages.tape_number == 3 && shop.messages.blanks_count == 2);
    assert(header_byte(&shop, 0) == 'Q' && shop_sync(&shop) == 0); /* the names are gone for good */
    assert(header_byte(&shop, 0) == 0);
    put_files(&shop, 1); /* file 4: but their headers may come back */
    assert(shop.messages.tape_number == 4 && shop.messages.blanks_count == 2);
    assert(shop_sync(&shop) == 0);
    put_files(&shop, 1);
    assert(shop.messages.tape_number == 5 && shop.messages.blanks_count == 1);
    assert(is_there(&shop, 5, false) && is_there(&shop, 0, true) != is_there(&shop, 1, true));
    put_files(&shop, 2);
    assert(shop.messages.tape_number == 7 && shop.messages.blanks_count == 0);
    assert(!is_there(&shop, 0, true) && !is_there(&shop, 1, true));
    shop_check(&shop);
    for (size_t i = 0; i < 2 * IN_FILE; i++)
        assert(shop_try_get(&shop, i) == QI_E_CORRUPT); /* its file is missing */
    shop_reopen(&shop);
    shop_check(&shop);
    shop_end(&shop);
}

/* File 0 is written over by file 2, which gets few messages: behind these the old frames stand. */
static void test_an_old_frame_behind_the_end_is_no_message(bool mapping) {
    struct shop shop = shop_new("behind", FILE_SIZE, mapping);
    put_files(&shop, 2);
    struct qi_msg_id old = shop.items[5].id;
    empty_files(&shop, 0, 1);
    assert(shop_sync(&shop) == 0 && shop_sync(&shop) == 0);
    for (int i = 0; i < 2; i++)
        shop_put(&shop, LENGTH);
    uint32_t number = shop.messages.tape_number;
    assert(number == 2);
    shop_kill(&shop);
    shop_check(&shop);
    struct qi_message_file *file = qi_message_file_find(&shop.messages, number);
    assert(file && file->size > 5 * LENGTH && !file->alien);
    uint8_t bytes[LENGTH];
    assert(qi_messages_read(&shop.messages, old, bytes, LENGTH) == QI_E_CORRUPT);
    old.file = number; /* its place is right, its bytes are not */
    assert(qi_messages_read(&shop.messages, old, bytes, LENGTH) == QI_E_CORRUPT);
    shop_ack(&shop, 2 * IN_FILE);
    shop_ack(&shop, 2 * IN_FILE + 1);
    shop_put(&shop, LENGTH);
    assert(shop_sync(&shop) == 0 && shop_free(&shop) > 0); /* all of it */
    assert(!is_there(&shop, number, false));
    shop_end(&shop);
}

static void test_blanks_are_gone_after_an_open_and_after_a_close(bool mapping) {
    struct shop shop = shop_new("gone", FILE_SIZE, mapping);
    put_files(&shop, 3);
    empty_files(&shop, 0, 2);
    shop_kill(&shop);
    assert(!is_there(&shop, 0, true) && !is_there(&shop, 1, true));
    assert(shop.messages.number_next == 3);
    put_files(&shop, 2);
    empty_files(&shop, 3, 1);
    assert(is_there(&shop, 3, true));
    shop_reopen(&shop);
    assert(!is_there(&shop, 3, true));
    shop_check(&shop);
    shop_end(&shop);
}

/* What another session filled may have holes, what has another name is a backup's, and a disk that
 * is nearly full needs its room. */
static void test_what_is_not_written_over(bool mapping) {
    struct shop shop = shop_new("not", FILE_SIZE, mapping);
    put_files(&shop, 2);
    shop_reopen(&shop);
    put_files(&shop, 3); /* files 2, 3, 4 */
    empty_files(&shop, 0, 2);
    assert(shop.messages.blanks_count == 0 && !is_there(&shop, 0, true));
    char path[300], other[300];
    snprintf(path, sizeof path, "%s/2.qms", shop.path);
    snprintf(other, sizeof other, "%s/held", shop.path);
    assert(link(path, other) == 0);
    empty_files(&shop, 2, 1);
    assert(shop.messages.blanks_count == 0);
    assert(!is_there(&shop, 2, false) && !is_there(&shop, 2, true));
    uint8_t header[8];
    FILE *held = fopen(other, "rb");
    assert(held && fread(header, 1, 8, held) == 8 && memcmp(header, QI_MESSAGES_MAGIC, 8) == 0);
    fclose(held);
    shop.messages.keep_free = UINT64_MAX / 2;
    empty_files(&shop, 3, 1);
    assert(shop.messages.blanks_count == 0 && !is_there(&shop, 3, true));
    shop.messages.keep_free = 0;
    shop_check(&shop);
    shop_end(&shop);
}

/* ---- a disk that refuses ---- */

static struct qi_disk_ops sick_ops;
static struct qi_disk sick_disk;
static int write_error, rename_error, allocate_error;

static int sick_write(struct qi_disk *disk, int file, const void *bytes, size_t length,
                      uint64_t offset) {
    return write_error ? write_error : qi_disk_posix.ops->write(disk, file, bytes, length, offset);
}

static int sick_rename(struct qi_disk *disk, int from_dir, const char *from, int to_dir,
                       const char *to) {
    return rename_error ? rename_error
                        : qi_disk_posix.ops->rename(disk, from_dir, from, to_dir, to);
}

/* Until somebody removes a blank. */
static int sick_allocate(struct qi_disk *disk, int file, uint64_t from, uint64_t size) {
    return allocate_error ? allocate_error : qi_disk_posix.ops->allocate(disk, file, from, size);
}

static int sick_unlink(struct qi_disk *disk, int dir, const char *name) {
    allocate_error = 0;
    return qi_disk_posix.ops->unlink(disk, dir, name);
}

static void test_a_file_that_cannot_be_kept_or_used_goes(bool mapping) {
    struct shop shop = shop_new("refused", FILE_SIZE, mapping);
    put_files(&shop, 4);
    shop.disk = shop.messages.disk = shop.messages.tape.disk = &sick_disk;
    rename_error = -EIO;
    empty_files(&shop, 0, 1);
    assert(shop.messages.blanks_count == 0 && !is_there(&shop, 0, false));
    rename_error = 0;
    write_error = -EIO;
    empty_files(&shop, 1, 1);
    assert(shop_sync(&shop) == 0);
    assert(shop.messages.blanks_count == 0 && !is_there(&shop, 1, true));
    write_error = 0;
    empty_files(&shop, 2, 1);
    assert(shop_sync(&shop) == 0 && shop_sync(&shop) == 0);
    assert(shop.messages.blanks_count == 1);
    rename_error = -EIO;
    put_files(&shop, 1); /* a fresh file instead */
    rename_error = 0;
    assert(shop.messages.tape_number == 4 && shop.messages.blanks_count == 0);
    assert(!is_there(&shop, 2, true) && is_there(&shop, 4, false));
    shop_check(&shop);
    shop.disk = shop.messages.disk = shop.messages.tape.disk = &qi_disk_posix;
    shop_end(&shop);
}

static void test_a_full_disk_gets_the_blanks_back(bool mapping) {
    struct shop shop = shop_new("full", FILE_SIZE, mapping);
    put_files(&shop, 3);
    empty_files(&shop, 0, 2);
    shop.disk = shop.messages.disk = shop.messages.tape.disk = &sick_disk;
    allocate_error = -ENOSPC;
    shop_put(&shop, LENGTH); /* rolls; no blank is durable */
    assert(shop.messages.tape_number == 3 && shop.messages.blanks_count == 0);
    assert(!is_there(&shop, 0, true) && !is_there(&shop, 1, true));
    shop_check(&shop);
    shop.disk = shop.messages.disk = shop.messages.tape.disk = &qi_disk_posix;
    shop_end(&shop);
}

int main(int count, char **arguments) {
    assert(count == 2);
    root = arguments[1];
    sick_disk = qi_disk_posix;
    sick_ops = *qi_disk_posix.ops;
    sick_disk.ops = &sick_ops;
    sick_ops.write = sick_write;
    sick_ops.rename = sick_rename;
    sick_ops.allocate = sick_allocate;
    sick_ops.unlink = sick_unlink;
    for (int mapping = 0; mapping < 2; mapping++) {
        test_an_empty_file_is_written_over(mapping);
        test_an_old_frame_behind_the_end_is_no_message(mapping);
        test_blanks_are_gone_after_an_open_and_after_a_close(mapping);
        test_what_is_not_written_over(mapping);
        test_a_file_that_cannot_be_kept_or_used_goes(mapping);
        test_a_full_disk_gets_the_blanks_back(mapping);
    }
    puts("blanks: all passed");
    return 0;
}
