/* test_batches.c - bodies of a batch: one call writes many of them, all of them come back, and a
 * batch that fails was not appended. Usage: test_batches <directory> */
#include "bodies/bodies_private.h"
#include "shop.h"

static struct qi_disk_ops sick_ops;
static struct qi_disk sick_disk;
static int sick_error;                                 /* of a write, */
static uint32_t writes_left = UINT32_MAX, writes_made; /* after so many */
static uint8_t *changing; /* a body that somebody changes whenever bytes are written */
static uint32_t changing_size;

static int fail_write(void) {
    writes_made++;
    for (uint32_t i = 0; changing && i < changing_size; i++)
        changing[i] ^= 0xff;
    if (writes_left > 0) {
        writes_left--;
        return 0;
    }
    return sick_error;
}

static int sick_write(struct qi_disk *disk, int file, const void *bytes, size_t length,
                      uint64_t offset) {
    int error = fail_write();
    return error ? error : qi_disk_posix.ops->write(disk, file, bytes, length, offset);
}

/* A write that fails has written a part. */
static int sick_write_pieces(struct qi_disk *disk, int file, const struct qi_piece *pieces,
                             uint32_t count, uint64_t offset) {
    int error = fail_write();
    if (error)
        qi_disk_posix.ops->write_pieces(disk, file, pieces, 1, offset);
    return error ? error : qi_disk_posix.ops->write_pieces(disk, file, pieces, count, offset);
}

static struct shop sick_shop(const char *name, uint64_t file_size_max, bool mapping) {
    struct shop shop = shop_new(name, file_size_max, mapping);
    shop.disk = shop.messages.disk = &sick_disk;
    writes_made = 0;
    writes_left = UINT32_MAX;
    sick_error = 0;
    return shop;
}

/* Bodies that stay where they are until the batch is over: appended, not yet put down as items. */
struct batch {
    struct item items[200];
    uint8_t *bodies[200];
    uint32_t count;
};

static int put(struct shop *shop, struct batch *batch, uint32_t length, bool steady) {
    struct item *item = &batch->items[batch->count];
    uint32_t seed = (uint32_t)shop->items_count + batch->count, headers = length / 3;
    uint8_t *body = body_of(seed, length);
    *item = (struct item){.length = length, .seed = seed, .references = 1};
    batch->bodies[batch->count++] = body;
    const struct qi_payload payload = {body, body + headers, headers, length - headers, 1, steady};
    return qi_messages_append(&shop->messages, &payload, &item->id);
}

static int end(struct shop *shop, struct batch *batch, int error) {
    error = qi_messages_gathered(&shop->messages, error);
    for (uint32_t i = 0; i < batch->count; i++)
        free(batch->bodies[i]);
    for (uint32_t i = 0; i < batch->count && !error; i++) {
        if (shop->items_count == shop->items_room) {
            shop->items_room = shop->items_room * 2 + 64;
            shop->items = realloc(shop->items, shop->items_room * sizeof *shop->items);
        }
        shop->items[shop->items_count++] = batch->items[i];
        qi_messages_count(&shop->messages, batch->items[i].id.file, 1,
                          qi_stored_bytes(batch->items[i].id));
    }
    batch->count = 0;
    return error;
}

/* Short and long ones, with and without copies, longer than all copies, and over the ends of files.
 */
static void test_all_of_a_batch_comes_back(bool mapping) {
    static const uint32_t lengths[] = {0,     1,     1000,   4066,   4067,    5000,   16383,
                                       30000, 69602, 69603,  69604,  100000,  300000, 7,
                                       70000, 12,    600000, 900000, 1048575, 20000,  3};
    const uint32_t many = sizeof lengths / sizeof *lengths;
    struct shop shop = sick_shop("all", 1 << 20, mapping);
    for (uint32_t turn = 0; turn < many; turn++) {
        struct batch batch = {.count = 0};
        qi_messages_gather(&shop.messages);
        for (uint32_t i = 0; i < many; i++)
            assert(put(&shop, &batch, lengths[(turn + i) % many], (turn + i) % 3 != 0) == 0);
        assert(end(&shop, &batch, 0) == 0);
        shop_put(&shop, lengths[turn]);
    }
    shop_check(&shop);
    shop_reopen(&shop);
    shop_check(&shop);
    shop_end(&shop);
}

static uint32_t calls_for(struct shop *shop, uint32_t count, uint32_t length, bool steady) {
    struct batch batch = {.count = 0};
    writes_made = 0;
    qi_messages_gather(&shop->messages);
    for (uint32_t i = 0; i < count; i++)
        assert(put(shop, &batch, length, steady) == 0);
    assert(end(shop, &batch, 0) == 0);
    return writes_made;
}

static void test_one_call_writes_many(bool mapping) {
    struct shop shop = sick_shop("calls", 16 << 20, mapping);
    shop_put(&shop, 100);
    assert(calls_for(&shop, 3, 1000, true) == (mapping ? 0 : 1)); /* as short as one */
    assert(calls_for(&shop, 60, 1000, false) == 1);
    assert(calls_for(&shop, 100, 1000, true) == (mapping ? 2 : 1)); /* a copy is full */
    assert(calls_for(&shop, 16, 65536, false) == 16);
    assert(calls_for(&shop, 15, 65536, true) == 1);
    assert(calls_for(&shop, 100, 30000, true) == 3);
    assert(calls_for(&shop, 2, 1 << 20, true) == 2);
    shop_check(&shop);
    shop_end(&shop);
}

/* Whichever write fails, and however: the store goes on as if there had been no batch. */
static void test_a_batch_that_fails_was_not_appended(bool mapping) {
    static const int errors[] = {-ENOSPC, -EIO};
    for (int n = 0; n < 2; n++) {
        int error = errors[n];
        struct shop shop = sick_shop(error == -EIO ? "failed" : "full", 300000, mapping);
        shop_put(&shop, 1000);
        for (uint32_t passed = 0;; passed++) {
            struct batch batch = {.count = 0};
            struct qi_messages before = shop.messages;
            writes_left = passed;
            sick_error = error;
            qi_messages_gather(&shop.messages);
            int failed = 0;
            for (uint32_t i = 0; i < 40 && !failed; i++)
                failed = put(&shop, &batch, i % 8 == 7 ? 60000 : 2000 + i, i % 3 == 0);
            bool all = batch.count == 40 && !failed;
            failed = end(&shop, &batch, failed);
            writes_left = UINT32_MAX;
            assert(all || failed);
            if (!failed)
                break;
            assert(failed == (error == -EIO ? QI_E_IO : QI_E_FULL));
            assert(shop.messages.written >= before.written);
            assert(passed > 0 ||
                   (shop.messages.tail == before.tail && shop.messages.written == before.written));
            shop_put(&shop, 500);
            shop_check(&shop);
        }
        shop_reopen(&shop);
        shop_check(&shop);
        shop_end(&shop);
    }
}

static void test_a_batch_that_its_caller_gives_up_is_never_written(bool mapping) {
    struct shop shop = sick_shop("given-up", 1 << 20, mapping);
    struct batch batch = {.count = 0};
    shop_put(&shop, 1000);
    uint64_t tail = shop.messages.tail, written = shop.messages.written;
    writes_made = 0;
    qi_messages_gather(&shop.messages);
    for (uint32_t i = 0; i < 30; i++)
        assert(put(&shop, &batch, 1500, false) == 0);
    assert(end(&shop, &batch, QI_E_FULL) == QI_E_FULL && writes_made == 0);
    assert(shop.messages.tail == tail && shop.messages.written == written);
    shop_put(&shop, 1000);
    shop_check(&shop);
    shop_end(&shop);
}

/* Of a body that changes while its batch is written, each byte is of one content or the other, and
 * the message is valid. */
static void test_bodies_that_change_are_valid(bool mapping) {
    static const uint32_t lengths[] = {1, 3000, 16384, 69602, 69604, 300000};
    struct shop shop = sick_shop("changing", 1 << 20, mapping);
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        uint32_t length = lengths[n];
        uint8_t *body = body_of(7, length), *got = malloc(length);
        struct qi_msg_id ids[4];
        changing = body;
        changing_size = length;
        qi_messages_gather(&shop.messages);
        for (int i = 0; i < 4; i++) {
            const struct qi_payload payload = {NULL, body, 0, length, 1, false};
            assert(qi_messages_append(&shop.messages, &payload, &ids[i]) == 0);
        }
        assert(qi_messages_gathered(&shop.messages, 0) == 0);
        changing = NULL;
        for (int i = 0; i < 4; i++) {
            assert(qi_messages_read(&shop.messages, ids[i], got, length) == 0);
            for (uint32_t at = 0; at < length; at++)
                assert(got[at] == body_byte(7, at) || got[at] == (body_byte(7, at) ^ 0xff));
        }
        free(got);
        free(body);
    }
    shop_end(&shop);
}

int main(int count, char **arguments) {
    assert(count == 2);
    root = arguments[1];
    sick_disk = qi_disk_posix;
    sick_disk.ops = &sick_ops;
    sick_ops = *qi_disk_posix.ops;
    sick_ops.write = sick_write;
    sick_ops.write_pieces = sick_write_pieces;
    for (int mapping = 0; mapping < 2; mapping++) {
        test_all_of_a_batch_comes_back(mapping);
        test_one_call_writes_many(mapping);
        test_a_batch_that_fails_was_not_appended(mapping);
        test_a_batch_that_its_caller_gives_up_is_never_written(mapping);
        test_bodies_that_change_are_valid(mapping);
    }
    printf("batches: all passed\n");
    return 0;
}
