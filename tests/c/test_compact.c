/* test_compact.c - compaction, damage and a long random life, against a model. Usage: test_compact
 * <directory> */
#include "shop.h"

static uint32_t dice_state = 1;

static uint32_t dice(uint32_t sides) {
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

static void put_many(struct shop *shop, int count, uint32_t length) {
    for (int i = 0; i < count; i++)
        shop_put(shop, length);
}

static void ack_all_but(struct shop *shop, size_t from, size_t to, size_t step) {
    for (size_t i = from; i < to; i++)
        if (i % step != 0 && shop->items[i].references > 0)
            shop_ack(shop, i);
}

static void test_survivors_of_several_files_move_together_and_twice(bool mapping) {
    struct shop shop = shop_new("twice", 64 + 10 * 125, mapping);
    put_many(&shop, 45, 100);
    ack_all_but(&shop, 0, 40, 5);
    assert(shop_compact(&shop, 50) == 4);
    assert(shop.messages.files_count == 1 && shop.messages.files[0].number == 5);
    for (int i = 0; i < 4; i++) {
        struct qi_message_name name = qi_message_name((uint32_t)i, false);
        assert(!exists(&shop, name.file));
    }
    assert(exists(&shop, "4.qms") && exists(&shop, "5.qms") && !exists(&shop, "5.new"));
    shop_check(&shop);
    shop_reopen(&shop);
    shop_check(&shop);

    put_many(&shop, 11, 100); /* 6.qms and 7.qms: 5.qms is not the newest any more */
    ack_all_but(&shop, 0, 56, 20);
    assert(shop_compact(&shop, 50) == 3); /* the copy itself, 4.qms and 6.qms */
    shop_check(&shop);
    for (size_t i = 0; i < shop.items_count; i++)
        if (shop.items[i].references == 0)
            assert(shop_try_get(&shop, i) == QI_E_CORRUPT || i >= 55);
    shop_reopen(&shop);
    shop_check(&shop);
    assert(shop.messages.files_count == 2 && exists(&shop, "8.qms"));
    shop_ack(&shop, 0);
    shop_ack(&shop, 20);
    shop_ack(&shop, 40);
    put_many(&shop, 1, 100);
    assert(shop_free(&shop) > 0 && !exists(&shop, "8.qms"));
    shop_end(&shop);
}

static void test_a_file_without_survivors_goes_without_output(bool mapping) {
    struct shop shop = shop_new("nobody", 64 + 4 * 125, mapping);
    put_many(&shop, 9, 100);
    ack_all_but(&shop, 0, 4, 100);
    shop_ack(&shop, 0);
    assert(shop_compact(&shop, 50) == 1);
    assert(!exists(&shop, "0.qms") && !exists(&shop, "3.qms"));
    shop_check(&shop);
    ack_all_but(&shop, 4, 9, 100);
    shop_reopen(&shop);
    assert(shop_compact(&shop, 1) == 1 && shop.messages.files_count == 1);
    assert(exists(&shop, "2.qms")); /* without the newest its number would be used again */
    assert(shop_put(&shop, 1)->id.file > 2);
    shop_end(&shop);
}

static void test_fan_out_messages_are_copied_once(bool mapping) {
    struct shop shop = shop_new("fan", 64 + 20 * 125, mapping);
    for (int i = 0; i < 21; i++)
        assert(shop_try_put(&shop, 100, i % 10 == 0 ? 4 : 1) == 0);
    for (size_t i = 0; i < 20; i++)
        if (i % 10 != 0)
            shop_ack(&shop, i);
    assert(shop_compact(&shop, 50) == 1);
    assert(shop.messages.files[0].births_count == 2);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_compaction_that_was_not_told_a_survivor_changes_nothing(bool mapping) {
    struct shop shop = shop_new("forgot", 64 + 4 * 125, mapping);
    put_many(&shop, 9, 100);
    ack_all_but(&shop, 0, 4, 100);
    assert(shop_sync(&shop) == 0);
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop.messages, 50, &compaction) == 1);
    struct qi_compaction other;
    assert(qi_compact_pick(&shop.messages, 50, &other) == 0); /* the victim is taken */
    assert(shop_free(&shop) == 0);
    assert(qi_compact_copy(&shop.messages, &compaction) == 0);
    assert(qi_compact_commit(&shop.messages, &compaction) < 0);
    qi_compact_abandon(&shop.messages, &compaction);
    shop_check(&shop);

    assert(qi_compact_pick(&shop.messages, 50, &compaction) == 1);
    shop_mark(&shop, &compaction);
    assert(qi_compact_copy(&shop.messages, &compaction) == 0);
    struct qi_message_name name = qi_message_name(compaction.number, false);
    assert(exists(&shop, name.file));
    qi_compact_abandon(&shop.messages, &compaction);
    assert(!exists(&shop, name.file));
    shop_check(&shop);
    assert(shop_compact(&shop, 50) == 1);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_a_crash_between_copy_and_commit_loses_nothing(bool mapping) {
    struct shop shop = shop_new("between", 64 + 10 * 125, mapping);
    put_many(&shop, 31, 100);
    ack_all_but(&shop, 0, 30, 4);
    assert(shop_sync(&shop) == 0);
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop.messages, 50, &compaction) == 3);
    shop_mark(&shop, &compaction);
    assert(qi_compact_copy(&shop.messages, &compaction) == 0);
    struct qi_messages crashed = shop.messages; /* leave commit out, as a crash does */
    shop_open(&shop, false);
    shop_check(&shop);
    assert(exists(&shop, "0.qms"));
    shop_put(&shop, 100);
    assert(shop_free(&shop) == 3 * (64 + 10 * 125));
    assert(!exists(&shop, "0.qms") && exists(&shop, "4.qms"));
    shop_check(&shop);
    struct qi_messages now = shop.messages;
    shop.messages = crashed;
    qi_compact_abandon(&shop.messages, &compaction);
    qi_messages_close(&shop.messages);
    shop.messages = now;
    shop_end(&shop);
}

static void test_a_spared_file_may_be_freed_while_the_others_are_copied(bool mapping) {
    struct shop shop = shop_new("spared", 64 + 10 * 125, mapping);
    for (int i = 0; i < 10; i++)
        assert(shop_try_put(&shop, 100, 4) == 0); /* a quarter is left of each, by shares */
    for (size_t i = 0; i < 10; i++)
        for (int ack = 0; ack < 3; ack++)
            shop_ack(&shop, i);
    put_many(&shop, 11, 100);
    ack_all_but(&shop, 10, 20, 15);
    assert(shop_sync(&shop) == 0);
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop.messages, 50, &compaction) == 2);
    shop_mark(&shop, &compaction);
    assert(qi_compact_look(&shop.messages, 50, &compaction) == 1);
    assert(qi_compact_copy(&shop.messages, &compaction) == 0);
    for (size_t i = 0; i < 10; i++)
        shop_ack(&shop, i);
    assert(shop_free(&shop) > 0 && !exists(&shop, "0.qms"));
    assert(qi_compact_commit(&shop.messages, &compaction) > 0);
    shop_check(&shop);
    shop_end(&shop);
}

static void flip(const struct shop *shop, const char *name, size_t at) {
    uint8_t *bytes;
    size_t size = read_file(shop, name, &bytes);
    assert(at < size);
    bytes[at] ^= 0x40;
    write_file(shop, name, bytes, size);
    free(bytes);
}

static void test_a_damaged_survivor_keeps_its_file(bool mapping) {
    struct shop shop = shop_new("victim", 64 + 10 * 125, mapping);
    put_many(&shop, 31, 100);
    ack_all_but(&shop, 0, 30, 4);
    assert(shop_sync(&shop) == 0);
    flip(&shop, "1.qms", shop.items[12].id.offset + 60);
    struct qi_compaction compaction;
    assert(qi_compact_pick(&shop.messages, 50, &compaction) == 3);
    shop_mark(&shop, &compaction);
    assert(qi_compact_copy(&shop.messages, &compaction) == 0);
    assert(compaction.damaged == 1);
    assert(memcmp(&compaction.damaged_id, &shop.items[12].id, sizeof(struct qi_msg_id)) == 0);
    assert(qi_compact_commit(&shop.messages, &compaction) > 0);
    assert(!exists(&shop, "0.qms") && exists(&shop, "1.qms") && !exists(&shop, "2.qms"));
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < shop.items_count; i++)
            if (shop.items[i].references > 0)
                assert(shop_try_get(&shop, i) == (i == 12 ? QI_E_CORRUPT : 0));
        assert(shop_compact(&shop, 50) == (round == 0 ? 0 : 1)); /* not again in one session */
        assert(exists(&shop, "1.qms"));
        shop_reopen(&shop);
    }
    shop_end(&shop);
}

/* Which messages can be read? Wrong bytes end the test. */
static size_t readable(struct shop *shop, bool *can) {
    size_t count = 0;
    for (size_t i = 0; i < shop->items_count; i++) {
        int error = shop_try_get(shop, i);
        uint32_t length;
        assert(error == 0 || error == QI_E_CORRUPT);
        if (qi_messages_length(&shop->messages, shop->items[i].id, &length) == 0)
            assert(length < 65536);
        can[i] = error == 0;
        count += can[i] && shop->items[i].references > 0;
    }
    return count;
}

static void test_no_flipped_or_missing_byte_ever_gives_wrong_bytes(bool mapping) {
    struct shop shop = shop_new("flip", 64 + 6 * 65, mapping);
    put_many(&shop, 13, 40);
    ack_all_but(&shop, 0, 12, 3);
    assert(shop_compact(&shop, 50) == 2);
    put_many(&shop, 10, 40); /* 2.qms is rolling, 3.qms is compacted, 4.qms the newest */
    bool can[64];
    size_t all = readable(&shop, can);
    qi_messages_close(&shop.messages);
    static const char *names[] = {"2.qms", "3.qms"};
    for (size_t n = 0; n < 2; n++) {
        uint8_t *bytes;
        size_t size = read_file(&shop, names[n], &bytes);
        for (size_t at = 0; at < 2 * size; at++) { /* flipped at, then cut at */
            uint8_t change = at < size ? (uint8_t)(1 + dice(255)) : 0;
            bytes[at % size] ^= change;
            write_file(&shop, names[n], bytes, at < size ? size : at - size);
            bytes[at % size] ^= change;
            shop_open(&shop, true);
            size_t count = readable(&shop, can);
            /* A header is not needed to read a rolling file; each other byte belongs to a
             * message. */
            if (n == 0 && at < size)
                assert(count == all - (at >= QI_MESSAGES_START));
            qi_messages_close(&shop.messages);
        }
        write_file(&shop, names[n], bytes, size);
        free(bytes);
    }
    shop_open(&shop, false);
    shop_check(&shop);
    shop_end(&shop);
}

static void test_compaction_and_freeing_never_make_damage_worse(bool mapping) {
    for (size_t at = 0; at < 64 + 6 * 65; at++) {
        char name[32];
        snprintf(name, sizeof name, "worse%zu", at);
        struct shop shop = shop_new(name, 64 + 6 * 65, mapping);
        put_many(&shop, 20, 40);
        ack_all_but(&shop, 0, 18, 3);
        assert(shop_sync(&shop) == 0);
        qi_messages_close(&shop.messages);
        flip(&shop, "1.qms", at);
        shop_open(&shop, false);
        bool before[64], after[64];
        size_t count = readable(&shop, before);
        for (int round = 0; round < 2; round++) {
            shop_compact(&shop, 50);
            shop_free(&shop);
            assert(readable(&shop, after) == count);
            for (size_t i = 0; i < shop.items_count; i++)
                assert(shop.items[i].references == 0 || before[i] == after[i]);
            shop_reopen(&shop);
        }
        shop_end(&shop);
    }
}

/* Everything at once, in any order, against the model. */
static void test_a_long_random_life(bool mapping) {
    struct shop shop = shop_new("life", 20000, mapping);
    size_t acked_below = 0;
    uint32_t highest = 0, compactions = 0;
    for (int step = 0; step < 6000; step++) {
        uint32_t what = dice(100);
        if (what < 60 || shop.items_count < 10) {
            uint32_t length = dice(50) ? dice(600) : dice(70000);
            assert(shop_try_put(&shop, length, 1 + (dice(5) == 0)) == 0);
            uint32_t number = shop.items[shop.items_count - 1].id.file;
            assert(number >= highest);
            highest = number;
        } else if (what < 90) {
            for (int i = 0; i < 3; i++) { /* mostly old ones, so that files empty */
                size_t span = shop.items_count - acked_below;
                size_t index = acked_below + dice((uint32_t)(dice(3) ? span / 3 + 1 : span));
                if (shop.items[index].references > 0)
                    shop_ack(&shop, index);
                while (acked_below < shop.items_count - 1 &&
                       shop.items[acked_below].references == 0)
                    acked_below++;
            }
        } else if (what < 94) {
            assert(shop_sync(&shop) == 0);
        } else if (what < 96) {
            shop_free(&shop);
        } else if (what < 98) {
            compactions += shop_compact(&shop, 20 + dice(60)) > 0;
        } else {
            if (dice(4) == 0)
                shop_check(&shop);
            if (dice(4) == 0)
                shop_reopen(&shop);
        }
    }
    shop_check(&shop);
    assert(compactions > 10);
    uint64_t live = 0, stored = 0;
    while (shop_compact(&shop, 20) > 0)
        shop_free(&shop);
    shop_check(&shop);
    for (size_t i = 0; i < shop.items_count; i++)
        live += shop.items[i].references ? qi_frame_bytes(shop.items[i].id) : 0;
    for (uint32_t i = 0; i < shop.messages.files_count; i++)
        stored += shop.messages.files[i].size;
    assert(stored < 2 * live + 3 * 70000);
    shop_end(&shop);
}

/* The table that bodies_private.h draws, byte by byte. */
static void test_the_birth_table_is_what_the_drawing_says(bool mapping) {
    struct shop shop = shop_new("table", 64 + 4 * 35, mapping);
    put_many(&shop, 9, 10);
    ack_all_but(&shop, 0, 8, 3);
    assert(shop_compact(&shop, 50) == 2);
    uint8_t *bytes;
    size_t size = read_file(&shop, "3.qms", &bytes);
    const uint32_t frames = 64 + 3 * 35; /* of messages 0, 3 and 6 */
    assert(size == frames + 4 + 2 * 8 + 4 + 3 * 8 + 4);
    const uint32_t table[] = {2, 0, 2, 1, 1};
    for (size_t i = 0; i < 5; i++)
        assert(qi_get32(bytes + frames + 4 * i) == table[i]);
    const uint32_t pairs[] = {64, 64, 64 + 3 * 35, 64 + 35, 64 + 2 * 35, 64 + 2 * 35};
    for (size_t i = 0; i < 6; i++)
        assert(qi_get32(bytes + frames + 24 + 4 * i) == pairs[i]);
    assert(qi_get32(bytes + QI_MH_KIND) == 1 && qi_get64(bytes + QI_MH_FRAMES) == 3);
    assert(qi_get64(bytes + QI_MH_BYTES) == 3 * 35 && qi_get64(bytes + QI_MH_NUMBER) == 3);
    free(bytes);
    shop_end(&shop);
}

int main(int count, char **arguments) {
    assert(count == 2);
    root = arguments[1];
    for (int mapping = 0; mapping < 2; mapping++) {
        test_survivors_of_several_files_move_together_and_twice(mapping);
        test_a_file_without_survivors_goes_without_output(mapping);
        test_fan_out_messages_are_copied_once(mapping);
        test_compaction_that_was_not_told_a_survivor_changes_nothing(mapping);
        test_a_crash_between_copy_and_commit_loses_nothing(mapping);
        test_a_spared_file_may_be_freed_while_the_others_are_copied(mapping);
        test_a_damaged_survivor_keeps_its_file(mapping);
        test_no_flipped_or_missing_byte_ever_gives_wrong_bytes(mapping);
        test_compaction_and_freeing_never_make_damage_worse(mapping);
        test_a_long_random_life(mapping);
        test_the_birth_table_is_what_the_drawing_says(mapping);
    }
    puts("compact: all passed");
    return 0;
}
