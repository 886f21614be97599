/* shop.h - a message store with a model that always tells the truth: what was put in, and who still
 * refers to it. */
#ifndef SHOP_H
#define SHOP_H

#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bodies/bodies.h"

struct item {
    struct qi_msg_id id;
    uint32_t length, seed;
    uint32_t references;
};

struct shop {
    struct qi_messages messages;
    char path[256];
    uint64_t file_size_max;
    bool mapping;
    struct qi_disk *disk;
    struct item *items;
    size_t items_count, items_room;
};

static const uint8_t IDENTITY[QI_IDENTITY_SIZE] = "sixteen bytes!!";
static const char *root;

static uint8_t body_byte(uint32_t seed, uint32_t at) {
    uint32_t mixed = (seed + 1) * 2654435761u + at * 40503u;
    return (uint8_t)(mixed >> 13 ^ mixed);
}

static uint8_t *body_of(uint32_t seed, uint32_t length) {
    uint8_t *body = malloc(length + 1);
    for (uint32_t i = 0; i < length; i++)
        body[i] = body_byte(seed, i);
    return body;
}

static int shop_try_open(struct shop *shop, bool read_only) {
    int dir = shop->disk->ops->open_root(shop->disk, shop->path, true);
    assert(dir >= 0);
    shop->messages = (struct qi_messages){0};
    return qi_messages_open(&shop->messages, shop->disk, dir, IDENTITY, shop->file_size_max,
                            shop->mapping, read_only);
}

/* Opens again; references are told anew, as queues do. */
static void shop_open(struct shop *shop, bool read_only) {
    int error = shop_try_open(shop, read_only);
    if (error)
        fprintf(stderr, "open: %s\n", qi_error_text());
    assert(error == 0);
    for (size_t i = 0; i < shop->items_count; i++) {
        struct item *item = &shop->items[i];
        qi_messages_count(&shop->messages, item->id.file, item->references,
                          (int64_t)item->references * qi_stored_bytes(item->id));
    }
    shop->messages.counted = true;
}

static struct shop shop_new(const char *name, uint64_t file_size_max, bool mapping) {
    struct shop shop = {.file_size_max = file_size_max, .mapping = mapping, .disk = &qi_disk_posix};
    snprintf(shop.path, sizeof shop.path, "%s/%s-%s", root, name, mapping ? "mmap" : "pwrite");
    shop_open(&shop, false);
    return shop;
}

static void shop_reopen(struct shop *shop) {
    qi_messages_close(&shop->messages);
    shop_open(shop, false);
}

static void shop_end(struct shop *shop) {
    qi_messages_close(&shop->messages);
    free(shop->items);
    shop->items = NULL;
}

/* Appends a message with `references` queues that refer to it; a third of it are headers. */
static int shop_try_put(struct shop *shop, uint32_t length, uint32_t references) {
    uint32_t seed = (uint32_t)shop->items_count, headers = length / 3;
    uint8_t *body = body_of(seed, length);
    struct item item = {.length = length, .seed = seed, .references = references};
    const struct qi_payload payload = {body,       body + headers, headers, length - headers,
                                       references, seed % 2 == 0};
    int error = qi_messages_append(&shop->messages, &payload, &item.id);
    free(body);
    if (error)
        return error;
    if (shop->items_count == shop->items_room) {
        shop->items_room = shop->items_room * 2 + 64;
        shop->items = realloc(shop->items, shop->items_room * sizeof item);
    }
    shop->items[shop->items_count++] = item;
    qi_messages_count(&shop->messages, item.id.file, references,
                      (int64_t)references * qi_stored_bytes(item.id));
    return 0;
}

static struct item *shop_put(struct shop *shop, uint32_t length) {
    int error = shop_try_put(shop, length, 1);
    if (error)
        fprintf(stderr, "put: %s\n", qi_error_text());
    assert(error == 0);
    return &shop->items[shop->items_count - 1];
}

static void shop_ack(struct shop *shop, size_t index) {
    struct item *item = &shop->items[index];
    assert(item->references > 0);
    item->references--;
    qi_messages_count(&shop->messages, item->id.file, -1, -(int64_t)qi_stored_bytes(item->id));
}

/* 0: the right bytes; else the error. Wrong bytes end the test. */
static int shop_try_get(struct shop *shop, size_t index) {
    const struct item *item = &shop->items[index];
    uint8_t *got = malloc(item->length + 1);
    int error = qi_messages_read(&shop->messages, item->id, got, item->length);
    for (uint32_t i = 0; !error && i < item->length; i++)
        assert(got[i] == body_byte(item->seed, i));
    free(got);
    return error;
}

static void shop_check(struct shop *shop) {
    for (size_t i = 0; i < shop->items_count; i++) {
        if (shop->items[i].references == 0)
            continue;
        int error = shop_try_get(shop, i);
        if (error)
            fprintf(stderr, "message %zu: %s\n", i, qi_error_text());
        assert(error == 0);
        uint32_t length = 0;
        assert(qi_messages_length(&shop->messages, shop->items[i].id, &length) == 0);
        assert(length == shop->items[i].length);
    }
}

static int shop_sync(struct shop *shop) {
    struct qi_messages_sync sync;
    do {
        qi_messages_sync_begin(&shop->messages, &sync);
        int error = qi_messages_sync_run(&shop->messages, &sync);
        qi_messages_sync_end(&shop->messages, &sync, error);
        if (error)
            return error;
    } while (sync.more);
    assert(shop->messages.synced == shop->messages.written && !shop->messages.dir_unsynced);
    assert(shop->messages.files_unsynced == 0);
    return 0;
}

static int64_t shop_free(struct shop *shop) {
    uint32_t numbers[1024], count = qi_messages_empty(&shop->messages, numbers, 1024);
    int64_t freed = qi_messages_free(&shop->messages, numbers, count);
    assert(freed >= 0);
    return freed;
}

static int compare_ids(const void *a, const void *b) {
    const struct qi_msg_id *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* What the store does between pick and copy: once per reference, so fan-out gives duplicates. */
static void shop_mark(struct shop *shop, struct qi_compaction *compaction) {
    size_t room = 1;
    for (size_t i = 0; i < shop->items_count; i++)
        room += shop->items[i].references;
    compaction->live = malloc(room * sizeof *compaction->live);
    for (size_t i = 0; i < shop->items_count; i++)
        for (uint32_t k = 0; k < shop->items[i].references; k++)
            if (qi_compaction_holds(compaction, shop->items[i].id.file))
                compaction->live[compaction->live_count++] = shop->items[i].id;
    qsort(compaction->live, compaction->live_count, sizeof *compaction->live, compare_ids);
}

/* Returns the number of victims. */
static uint32_t shop_compact(struct shop *shop, uint32_t percent) {
    struct qi_compaction compaction;
    assert(shop_sync(shop) == 0);
    uint32_t victims = qi_compact_pick(&shop->messages, percent, &compaction);
    if (victims == 0)
        return 0;
    shop_mark(shop, &compaction);
    if (qi_compact_look(&shop->messages, percent, &compaction) == 0) {
        qi_compact_abandon(&shop->messages, &compaction);
        return shop_compact(shop, percent);
    }
    int error = qi_compact_copy(&shop->messages, &compaction);
    if (error)
        fprintf(stderr, "copy: %s\n", qi_error_text());
    assert(error == 0);
    assert(qi_compact_commit(&shop->messages, &compaction) >= 0);
    return victims;
}

/* ---- what lies on the disk ---- */

static void file_path(const struct shop *shop, const char *name, char path[512]) {
    snprintf(path, 512, "%s/%s", shop->path, name);
}

static bool exists(const struct shop *shop, const char *name) {
    char path[512];
    file_path(shop, name, path);
    return access(path, F_OK) == 0;
}

static void write_file(const struct shop *shop, const char *name, const void *bytes, size_t size) {
    char path[512];
    file_path(shop, name, path);
    FILE *file = fopen(path, "wb");
    assert(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static size_t read_file(const struct shop *shop, const char *name, uint8_t **bytes) {
    char path[512];
    file_path(shop, name, path);
    FILE *file = fopen(path, "rb");
    assert(file && fseek(file, 0, SEEK_END) == 0);
    size_t size = (size_t)ftell(file);
    rewind(file);
    *bytes = malloc(size + 1);
    assert(fread(*bytes, 1, size, file) == size && fclose(file) == 0);
    return size;
}

#endif
