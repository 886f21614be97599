/* faults_verbs.h - the verbs of a story (faults.h): each calls the engine and writes down what it
 * was told; and damage. */
#ifndef FAULTS_VERBS_H
#define FAULTS_VERBS_H

/* ---- the verbs, with what they say ---- */

static void fill(uint32_t serial, uint8_t *bytes, uint32_t size) {
    for (uint32_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i < 4 ? serial >> 8 * (3 - i) : serial * 31 + i * 7);
}

static struct item *add_item(struct run *run, uint32_t queue, uint32_t size, bool fleeting) {
    assert(run->count < ITEMS_MAX && size >= 4 && size <= PAYLOAD_MAX);
    struct item *item = &run->items[run->count++];
    *item = (struct item){.serial = run->serial,
                          .size = size,
                          .queue = queue,
                          .fleeting = fleeting,
                          .published = TRIED};
    return item;
}

static struct item *find_item(struct run *run, uint32_t queue, const uint8_t *bytes) {
    uint32_t serial =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    for (uint32_t i = 0; i < run->count; i++)
        if (run->items[i].queue == queue && run->items[i].serial == serial)
            return &run->items[i];
    return NULL;
}

static bool open_options(struct run *run, qi_options options) {
    options.index_only = run->story->index_only;
    options.keep_history = run->story->keep_history;
    int error = qi_store_open_sim(run->sim, &options, &run->store);
    if (error)
        run->store = NULL;
    return went(run, "open", error);
}

/* With a worker: on this disk qi_store_tick does its duties. */
static qi_options with_worker(void) {
    qi_options options = usual();
    options.sync_interval_us = 5000;
    options.worker = true;
    return options;
}

static void open_store(struct run *run) {
    open_options(run, with_worker());
}

static void open_reader(struct run *run) {
    qi_options options = usual();
    options.read_only = true;
    options.create = false;
    open_options(run, options);
}

static const char *directory_of(uint32_t queue) {
    static const char *const directories[QUEUES] = {A, B, C};
    return directories[queue];
}

/* False: it is not there, or something failed. */
static bool open_queue(struct run *run, uint32_t queue, bool create) {
    char name = (char)('a' + queue);
    if (!run->store)
        return false;
    int error =
        qi_queue_open(run->store, &name, 1, directory_of(queue), create, &run->queues[queue]);
    if (error)
        run->queues[queue] = NULL;
    return error != QI_E_MISSING && went(run, "open a queue", error);
}

static void open_all(struct run *run) {
    open_store(run);
    for (uint32_t i = 0; i < QUEUES; i++)
        open_queue(run, i, true);
}

static void let_go(struct run *run) {
    if (run->store)
        qi_store_free(run->store);
    run->store = NULL;
    memset(run->queues, 0, sizeof run->queues);
}

static void mark_synced(struct run *run, uint32_t queue) {
    for (uint32_t i = 0; i < run->count; i++) {
        struct item *item = &run->items[i];
        if (item->queue != queue)
            continue;
        if (item->published == RETURNED)
            item->published = SYNCED;
        if (item->acked == RETURNED)
            item->acked = SYNCED;
    }
}

static void close_store(struct run *run) {
    if (!run->store)
        return;
    if (went(run, "close", qi_store_close(run->store)))
        for (uint32_t i = 0; i < QUEUES; i++)
            mark_synced(run, i);
    let_go(run);
}

static void publish(struct run *run, uint32_t queue, uint32_t size, uint32_t flags) {
    uint8_t bytes[PAYLOAD_MAX];
    if (!run->queues[queue])
        return;
    run->serial++;
    struct item *item = add_item(run, queue, size, flags & QI_TRANSIENT);
    fill(item->serial, bytes, size);
    uint32_t headers = size > 30 ? 8 : 0;
    if (went(run, "publish",
             qi_publish_with(run->queues[queue], bytes, headers, bytes + headers, size - headers,
                             flags, 0, 0)))
        item->published = RETURNED;
}

/* Each a byte longer than the one before; they expire a second from now if wanted. */
static void publish_batch(struct run *run, uint32_t queue, uint32_t count, uint32_t size,
                          bool expires) {
    static uint8_t bytes[ITEMS_MAX * 64];
    uint32_t sizes[ITEMS_MAX], from = run->count, used = 0;
    if (!run->queues[queue])
        return;
    for (uint32_t i = 0; i < count; i++) {
        sizes[i] = size + i;
        assert(used + sizes[i] <= sizeof bytes);
        run->serial++;
        add_item(run, queue, sizes[i], expires);
        fill(run->serial, bytes + used, sizes[i]);
        used += sizes[i];
    }
    uint64_t expiry = expires ? run->sim->wall_us + 1000000 : 0;
    if (went(run, "publish_many",
             qi_publish_many(run->queues[queue], count, bytes, sizes, NULL, NULL, 0, expiry, 0,
                             NULL, NULL)))
        for (uint32_t i = from; i < run->count; i++)
            run->items[i].published = RETURNED;
}

/* Into an index alone; the serial stands in the MsgId. Returns the first ReqId, or an error. */
static int64_t index_publish(struct run *run, uint32_t queue, uint32_t count, uint32_t flags) {
    uint8_t ids[ITEMS_MAX * 16];
    uint32_t from = run->count;
    if (!run->queues[queue])
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        run->serial++;
        add_item(run, queue, 16, flags & QI_TRANSIENT);
        fill(run->serial, ids + i * 16, 16);
    }
    int64_t first = qi_index_publish(run->queues[queue], count, ids, NULL, flags);
    if (went(run, "index publish", first))
        for (uint32_t i = from; i < run->count; i++)
            run->items[i].published = RETURNED;
    return first;
}

/* Acks messages that index_publish() gave, by their ids or as a range. `from`: the first of them
 * among the items. */
static void index_ack(struct run *run, uint32_t queue, uint32_t from, int64_t first, uint32_t count,
                      bool listed) {
    uint64_t ids[ITEMS_MAX];
    if (!run->queues[queue] || first < 0)
        return;
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = (uint64_t)first + i;
        run->items[from + i].acked = TRIED;
    }
    const uint64_t *list = listed ? ids : NULL;
    went(run, "index deliver", qi_index_deliver(run->queues[queue], list, count, (uint64_t)first));
    if (went(run, "index ack", qi_index_ack(run->queues[queue], list, count, (uint64_t)first)))
        for (uint32_t i = 0; i < count; i++)
            run->items[from + i].acked = RETURNED;
}

/* To all queues that are open. */
static void fan_out(struct run *run, uint32_t size) {
    qi_queue *queues[QUEUES];
    uint64_t ids[QUEUES];
    uint8_t bytes[PAYLOAD_MAX];
    uint32_t count = 0, from = run->count;
    run->serial++;
    for (uint32_t i = 0; i < QUEUES; i++)
        if (run->queues[i]) {
            queues[count++] = run->queues[i];
            add_item(run, i, size, false);
        }
    fill(run->serial, bytes, size);
    if (run->store && went(run, "fan out",
                           qi_store_publish(run->store, queues, count, NULL, 0, bytes, size, 0, 0,
                                            0, 0, false, ids)))
        for (uint32_t i = from; i < run->count; i++)
            run->items[i].published = RETURNED;
}

/* Gets up to `count` and acks those that the mask says (bit 0: the first), in falling order; the
 * rest goes back. */
static void consume(struct run *run, uint32_t queue, uint32_t count, uint32_t mask) {
    static uint8_t payloads[32 * PAYLOAD_MAX];
    qi_message messages[32];
    uint64_t ids[32], acks[32], rest[32];
    uint32_t acks_count = 0, rest_count = 0, at = 0;
    struct item *acked[32];
    if (!run->queues[queue])
        return;
    int64_t got =
        qi_get_many(run->queues[queue], count, messages, payloads, sizeof payloads, ids, 0);
    if (!went(run, "get_many", got) || got == QI_EMPTY)
        return;
    for (uint32_t i = 0; i < got; at += messages[i++].payload_size) {
        struct item *item = find_item(run, queue, payloads + at);
        uint8_t bytes[PAYLOAD_MAX];
        assert(item && item->size == messages[i].payload_size);
        fill(item->serial, bytes, item->size);
        assert(memcmp(bytes, payloads + at, item->size) == 0);
        if (mask >> i & 1) {
            item->acked = TRIED;
            acked[acks_count++] = item;
        } else {
            rest[rest_count++] = ids[i];
        }
    }
    for (uint32_t i = 0, to = acks_count; i < got; i++)
        if (mask >> i & 1)
            acks[--to] = ids[i];
    if (went(run, "ack_many", qi_ack_many(run->queues[queue], acks, NULL, acks_count)))
        for (uint32_t i = 0; i < acks_count; i++)
            acked[i]->acked = RETURNED;
    went(run, "nack_many", qi_nack_many(run->queues[queue], rest, NULL, rest_count, 0));
}

static void take_and_ack(struct run *run, uint32_t queue, const char *verb,
                         int64_t (*take)(qi_reader *reader)) {
    static uint8_t payload[PAYLOAD_MAX];
    qi_reader reader = {.queue = run->queues[queue], .payload = payload, .room = sizeof payload};
    if (!reader.queue)
        return;
    int64_t got = take(&reader);
    if (!went(run, verb, got) || got == QI_EMPTY)
        return;
    struct item *item = find_item(run, queue, payload);
    assert(item && item->size == (uint32_t)got);
    item->acked = TRIED;
    if (went(run, "ack", qi_ack(reader.queue, reader.message.req_id, 0)))
        item->acked = RETURNED;
}

static void get_and_ack(struct run *run, uint32_t queue) {
    take_and_ack(run, queue, "get", qi_get);
}

/* Gets the last message, and acks it. */
static void get_newest_and_ack(struct run *run, uint32_t queue) {
    take_and_ack(run, queue, "get_newest", qi_get_newest);
}

/* Gets messages in every way there is, and keeps them. */
static void take_around(struct run *run, uint32_t queue) {
    static uint8_t payloads[8 * PAYLOAD_MAX];
    qi_reader reader = {.queue = run->queues[queue], .payload = payloads, .room = PAYLOAD_MAX};
    qi_message messages[8];
    uint64_t ids[8];
    if (!reader.queue)
        return;
    for (int i = 0; i < 3; i++) {
        went(run, "get", qi_get(&reader));
        went(run, "get_newest", qi_get_newest(&reader));
    }
    went(run, "get_many",
         qi_get_many(reader.queue, 8, messages, payloads, sizeof payloads, ids, 0));
}

static void purge(struct run *run, uint32_t queue) {
    if (!run->queues[queue])
        return;
    for (uint32_t i = 0; i < run->count; i++)
        if (run->items[i].queue == queue && run->items[i].acked == NOT)
            run->items[i].acked = TRIED; /* what is out is not purged */
    went(run, "purge", qi_purge(run->queues[queue], QI_PURGE_ALL));
}

static void delete_queue(struct run *run, uint32_t queue) {
    if (!run->queues[queue])
        return;
    run->gone[queue] = true;
    went(run, "delete", qi_queue_delete(run->queues[queue]));
    run->queues[queue] = NULL;
}

static void sync_queue(struct run *run, uint32_t queue) {
    if (run->queues[queue] && went(run, "sync", qi_queue_sync(run->queues[queue])))
        mark_synced(run, queue);
}

static void flush(struct run *run, uint32_t queue) {
    if (run->queues[queue])
        went(run, "flush", qi_flush(run->queues[queue]));
}

static void tick(struct run *run, bool idle) {
    if (idle)
        qi_sim_advance(run->sim, 2500000);
    if (run->store)
        went(run, "tick", qi_store_tick(run->store));
}

static void compact(struct run *run) {
    if (run->store)
        went(run, "compact", qi_store_compact(run->store, 20));
}

/* Browses all of a queue, or peeks: what was seen, as a checksum of ids and bytes. */
static uint32_t browse(struct run *run, uint32_t queue, bool ready_only) {
    static uint8_t payload[PAYLOAD_MAX];
    qi_message message;
    uint64_t from = 0;
    uint32_t seen = 1;
    int64_t got = 0;
    if (!run->queues[queue])
        return 0;
    for (;;) {
        got = qi_browse(run->queues[queue], from, ready_only, &message, payload, sizeof payload);
        if (got == QI_E_CORRUPT && qi_error_req_id() >= 0 && run->story->damaged) {
            seen = qi_crc32c(seen, "damaged", 7);
            from = (uint64_t)qi_error_req_id() + 1;
            continue;
        }
        if (got < 0)
            break;
        seen = qi_crc32c(seen, &message.req_id, sizeof message.req_id);
        seen = qi_crc32c(seen, run->story->index_only ? message.msg_id : payload,
                         run->story->index_only ? 16 : (size_t)got);
        from = message.req_id + 1;
        if (ready_only)
            break; /* always the one that get would take */
    }
    went(run, "browse", got);
    return seen;
}

static void check(struct run *run) {
    if (run->store)
        went(run, "check", qi_store_check(run->store));
}

static void look_around(struct run *run) {
    qi_queue_stats stats;
    qi_store_stats all;
    char name[16], directory[33];
    if (!run->store)
        return;
    went(run, "queues", qi_store_queues(run->store));
    for (uint32_t i = 0; qi_store_queue_name(run->store, i, name, sizeof name, directory) >= 0; i++)
        assert(name[0] == 0 || strlen(directory) == 32);
    went(run, "stats", qi_store_stats_of(run->store, &all));
    for (uint32_t i = 0; i < QUEUES; i++)
        if (run->queues[i])
            went(run, "stats", qi_queue_stats_of(run->queues[i], &stats));
}

/* ---- damage ---- */

struct place {
    const struct qi_disk_ops *ops;
    struct qi_disk *disk;
    int root, parent, dir;
};

/* A folder of the store: "messages", or that of a queue; NULL: the store's own. */
static struct place place_of(struct run *run, const char *queue) {
    struct place place = {run->sim->disk.ops, &run->sim->disk, -1, -1, -1};
    place.root = place.ops->open_root(place.disk, "/", false);
    bool of_queue = queue && strlen(queue) == 32;
    place.parent = place.ops->open_dir(place.disk, place.root, of_queue ? "queues" : "messages");
    place.dir = of_queue ? place.ops->open_dir(place.disk, place.parent, queue)
                         : (queue ? place.parent : place.root);
    assert(place.dir >= 0);
    return place;
}

static void leave(struct place *place) {
    if (place->dir != place->parent && place->dir != place->root)
        place->ops->close(place->disk, place->dir);
    place->ops->close(place->disk, place->parent);
    place->ops->close(place->disk, place->root);
}

/* Changes `length` bytes of a file, if it is there; an offset below zero counts from its end. */
static void spoil(struct run *run, const char *folder, const char *name, int64_t offset,
                  uint32_t length) {
    struct place place = place_of(run, folder);
    int file = place.ops->open(place.disk, place.dir, name, QI_OPEN_WRITE);
    uint8_t bytes[512];
    uint64_t size = 0;
    assert(length <= sizeof bytes);
    if (file >= 0) {
        place.ops->size(place.disk, file, &size);
        uint64_t at = offset < 0 ? size - (uint64_t)-offset : (uint64_t)offset;
        place.ops->read(place.disk, file, bytes, length, at);
        for (uint32_t i = 0; i < length; i++)
            bytes[i] ^= 0x55;
        place.ops->write(place.disk, file, bytes, length, at);
        place.ops->sync(place.disk, file);
        place.ops->close(place.disk, file);
    }
    leave(&place);
}

/* Cuts a file, if it is there, to that size; UINT64_MAX: removes it. */
static void cut(struct run *run, const char *folder, const char *name, uint64_t size) {
    struct place place = place_of(run, folder);
    int file = place.ops->open(place.disk, place.dir, name, QI_OPEN_WRITE);
    if (file >= 0 && size != UINT64_MAX) {
        place.ops->truncate(place.disk, file, size);
        place.ops->sync(place.disk, file);
    }
    if (file >= 0)
        place.ops->close(place.disk, file);
    if (file >= 0 && size == UINT64_MAX) {
        place.ops->unlink(place.disk, place.dir, name);
        place.ops->sync_dir(place.disk, place.dir);
    }
    leave(&place);
}

#endif
