/* test_columns.c - files and messages as columns: each column may be wanted or not, rows come in
 * any portions, and what is damaged is passed over. On a simulated disk. Usage: test_columns
 * <directory>
 */
#include "corner.h"
#include "look/look.h"

#define ROOM  64u
#define BYTES 16384u

struct table {
    uint8_t kind[ROOM], msg_id[ROOM * 16];
    int64_t req_id[ROOM], offset[ROOM], size[ROOM], expiry_us[ROOM], due_us[ROOM], embedded[ROOM],
        file[ROOM];
    int32_t priority[ROOM], count[ROOM], body_starts[ROOM + 1], header_starts[ROOM + 1];
    uint8_t bits[6][ROOM / 8], bodies[BYTES], headers[BYTES];
};

static struct table table;

static qi_columns columns_of(uint32_t room, bool bodies) {
    memset(&table, 0, sizeof table);
    return (qi_columns){.room = room,
                        .kind = table.kind,
                        .req_id = table.req_id,
                        .offset = table.offset,
                        .size = table.size,
                        .expiry_us = table.expiry_us,
                        .due_us = table.due_us,
                        .priority = table.priority,
                        .embedded = table.embedded,
                        .file = table.file,
                        .count = table.count,
                        .msg_id = table.msg_id,
                        .has_size = table.bits[0],
                        .has_expiry = table.bits[1],
                        .has_count = table.bits[2],
                        .has_msg_id = table.bits[3],
                        .has_due = table.bits[4],
                        .has_priority = table.bits[5],
                        .bodies = bodies ? table.bodies : NULL,
                        .headers = bodies ? table.headers : NULL,
                        .body_starts = bodies ? table.body_starts : NULL,
                        .header_starts = bodies ? table.header_starts : NULL,
                        .bodies_room = BYTES,
                        .headers_room = BYTES};
}

/* Of the store's files the first whose path ends so; its bytes are valid until the next call. */
static const uint8_t *file_of(qi_sim *sim, const char *ending, uint64_t *size) {
    char path[200];
    const void *bytes;
    for (uint32_t i = 0; qi_sim_file(sim, i, path, sizeof path, &bytes, size) == 0; i++)
        if (strlen(path) > strlen(ending) &&
            strcmp(path + strlen(path) - strlen(ending), ending) == 0)
            return bytes;
    return NULL;
}

static uint8_t *copy_of(qi_sim *sim, const char *ending, uint64_t *size) {
    const uint8_t *bytes = file_of(sim, ending, size);
    assert(bytes);
    return memcpy(malloc(*size), bytes, *size);
}

/* ---- records ---- */

/* The rows of a file's bytes, asked for in portions; what a column says of a row may not depend on
 * that. */
static uint32_t rows_of(const uint8_t *bytes, uint64_t size, uint32_t portion, uint32_t *kinds) {
    qi_columns columns = columns_of(portion, false), none = {.room = portion};
    uint32_t rows = 0;
    int64_t got;
    memset(kinds, 0, 10 * sizeof *kinds);
    while ((got = qi_columns_records(bytes, size, &columns)) > 0) {
        assert(qi_columns_records(bytes, size, &none) == got); /* the same without any column */
        for (int64_t i = 0; i < got; i++)
            kinds[table.kind[i]]++;
        rows += (uint32_t)got;
    }
    assert(got == 0 && qi_columns_records(bytes, size, &none) == 0);
    return rows;
}

static void test_records_of_every_kind_come_in_any_portions(void) {
    struct corner corner = corner_new();
    uint64_t ids[32];
    uint64_t size, now = qi_store_now_us(corner.store);
    publish_many(corner.a, 20);
    assert(qi_flush(corner.a) == 0);
    assert(qi_publish_with(corner.a, "h", 1, "later", 5, 3u << QI_PRIORITY_SHIFT, 0, now + 9) >= 0);
    assert(qi_publish_with(corner.a, NULL, 0, "gone", 4, QI_TRANSIENT, now + 99, 0) >= 0);
    assert(get_many(corner.a, 4, ids) == 4 && qi_ack_many(corner.a, ids, NULL, 3) == 0);
    assert(qi_nack_many(corner.a, ids + 3, NULL, 1, now + 5) == 0);
    publish_many(corner.b, 3);
    assert(qi_purge(corner.b, QI_PURGE_ALL) == 3 && qi_flush(corner.a) == 0);
    publish_many(corner.a, 1);
    assert(get_many(corner.a, 6, ids) == 6 && qi_nack_many(corner.a, ids, NULL, 6, 0) == 0);
    assert(get_many(corner.a, 1, ids) == 1 && qi_ack(corner.a, ids[0], 0) == 0);
    assert(qi_reschedule(corner.a, ids[0] + 1, now + 100000) == 0);
    char path[200];
    const void *bytes;
    uint32_t seen[10] = {0}, files = 0;
    for (uint32_t i = 0; qi_sim_file(corner.sim, i, path, sizeof path, &bytes, &size) == 0; i++) {
        uint32_t whole[10], parts[10];
        if (!strstr(path, ".idx") && !strstr(path, "journal."))
            continue;
        qi_columns columns = columns_of(ROOM, false);
        if (qi_columns_records(bytes, size, &columns) == QI_E_FORMAT)
            continue; /* a journal that is flushed */
        files++;
        uint32_t rows = rows_of(bytes, size, ROOM, whole);
        assert(rows_of(bytes, size, 1, parts) == rows && rows_of(bytes, size, 3, parts) == rows);
        assert(memcmp(whole, parts, sizeof whole) == 0);
        for (int kind = 0; kind < 10; kind++)
            seen[kind] += whole[kind];
    }
    assert(files > 3);
    for (int kind = QI_ROW_PUBLISH; kind <= QI_ROW_PURGE; kind++)
        if (kind != QI_ROW_COUNT)
            assert(seen[kind] > 0);
    corner_end(&corner);
}

/* One file behind the other in the same columns: what stands before `first` is not touched. */
static void test_records_go_on_behind_those_of_another_file(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 3);
    publish_many(corner.b, 2);
    uint64_t size, other_size;
    uint8_t *bytes = copy_of(corner.sim, "a/journal.jif", &size);
    uint8_t *other = copy_of(corner.sim, "b/journal.jif", &other_size);
    qi_columns columns = columns_of(ROOM, false);
    assert(qi_columns_records(bytes, size, &columns) == 3);
    columns.first = 3;
    assert(qi_columns_records(bytes, size, &columns) == 3); /* the end */
    columns.at = columns.inside = 0;
    assert(qi_columns_records(other, other_size, &columns) == 5);
    for (int64_t row = 0; row < 5; row++)
        assert(table.req_id[row] == row % 3 && table.bits[0][0] >> row & 1);
    assert(table.bits[0][0] == 0x1F);
    columns.first = ROOM; /* no room */
    columns.at = columns.inside = 0;
    assert(qi_columns_records(other, other_size, &columns) == ROOM);
    free(bytes);
    free(other);
    corner_end(&corner);
}

/* A frame whose checksum is right and whose content is none: as much of it as makes sense. */
static void test_a_record_that_does_not_fit_ends_its_frame(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 3);
    uint64_t size;
    uint8_t *bytes = copy_of(corner.sim, "a/journal.jif", &size);
    uint32_t seed = qi_frame_seed(bytes + QI_JH_IDENTITY, 0, qi_get64(bytes + QI_JH_EPOCH));
    uint64_t at = QI_JOURNAL_START;
    struct qi_frame frame;
    while (qi_frame_read(seed, bytes, size, at, 0, &frame) == QI_FRAME_VALID)
        at = frame.offset + QI_FRAME_HEADER + frame.length;
    uint32_t before[10], after[10];
    uint32_t rows = rows_of(bytes, size, ROOM, before);
    assert(rows == 3 && at + 40 < size);
    qi_put_record_id(bytes + at + QI_FRAME_HEADER, QI_ACK, 1);
    qi_put_record_id(bytes + at + QI_FRAME_HEADER + QI_RECORD_ID, QI_PUB_PERSISTENT, 9);
    qi_frame_seal(seed, bytes + at, at, QI_FRAME_RECORDS, 2 * QI_RECORD_ID);
    assert(rows_of(bytes, size, ROOM, after) == rows + 1 && after[QI_ROW_ACK] == 1);
    qi_put64(bytes + at + QI_FRAME_HEADER, 0); /* a purge needs eight bytes */
    qi_frame_seal(seed, bytes + at, at, QI_FRAME_PURGE, 4);
    memset(bytes + at + QI_FRAME_HEADER + 4, 0, 12);
    assert(rows_of(bytes, size, ROOM, after) == rows && after[QI_ROW_PURGE] == 0);
    /* What a reader is in the middle of may change under it: the frame is looked at anew. */
    qi_columns columns = columns_of(1, false);
    assert(qi_columns_records(bytes, size, &columns) == 1 && columns.inside > 0);
    qi_put32(bytes + columns.at, qi_get32(bytes + columns.at) | QI_FRAME_LENGTH_MAX);
    assert(qi_columns_records(bytes, size, &columns) >= 0 && columns.inside == 0);
    free(bytes);
    corner_end(&corner);
}

/* A journal that is kept for a replay has another magic, and says the same. */
static void test_a_journal_of_the_past_has_the_rows_that_it_had(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 3);
    uint64_t size;
    uint32_t kinds[10];
    uint8_t *bytes = copy_of(corner.sim, "a/journal.jif", &size);
    for (uint32_t copy = 0; copy < 2; copy++) {
        uint8_t *header = bytes + (uint64_t)copy * QI_JOURNAL_HEADER_COPY;
        memcpy(header, QI_PAST_MAGIC, 8);
        qi_put32(header + QI_JH_CRC, qi_crc32c(0, header, QI_JH_CRC));
    }
    assert(rows_of(bytes, size, ROOM, kinds) == 3);
    bytes[QI_JH_EPOCH + 7] ^= 1; /* one copy is enough */
    assert(rows_of(bytes, size, ROOM, kinds) == 3);
    free(bytes);
    corner_end(&corner);
}

static void test_what_is_no_file_of_ours_has_no_rows(void) {
    static uint8_t bytes[QI_JOURNAL_START + 64];
    qi_columns columns = columns_of(ROOM, false);
    assert(qi_columns_records(bytes, sizeof bytes, &columns) == QI_E_FORMAT);
    assert(qi_columns_records(bytes, 10, &columns) == QI_E_FORMAT);
    assert(qi_columns_bodies("0123456789abcdef", 0, bytes, 10, &columns) == 0);
    assert(qi_columns_bodies("0123456789abcdef", 0, bytes, sizeof bytes, &columns) == 0);
}

/* ---- stored bodies ---- */

static int64_t get_one(qi_queue *queue, uint64_t *req_id) {
    static uint8_t payload[1000];
    qi_reader reader = {.queue = queue, .payload = payload, .room = sizeof payload};
    int64_t got = qi_get(&reader);
    *req_id = reader.message.req_id;
    return got;
}

static uint64_t bodies_in(const struct corner *corner, uint64_t number, const uint8_t *bytes,
                          uint64_t size, uint32_t portion, uint64_t *damaged) {
    qi_columns columns = columns_of(portion, false), none = {.room = portion};
    uint64_t sound = 0;
    int64_t got;
    *damaged = 0;
    while ((got = qi_columns_bodies(corner->store->identity, number, bytes, size, &columns)) > 0) {
        assert(qi_columns_bodies(corner->store->identity, number, bytes, size, &none) == got);
        for (int64_t i = 0; i < got; i++) {
            sound += table.kind[i] == QI_ROW_SOUND;
            *damaged += table.kind[i] == QI_ROW_DAMAGED;
        }
    }
    assert(got == 0);
    return sound;
}

static void test_bodies_are_found_behind_damage(void) {
    struct corner corner = corner_new();
    static uint8_t body[500];
    uint64_t size, damaged;
    for (int i = 0; i < 6; i++) {
        memset(body, 'a' + i, sizeof body);
        assert(qi_publish(corner.a, body, sizeof body) == i);
    }
    uint8_t *bytes = copy_of(corner.sim, "0.qms", &size);
    for (uint32_t portion = 1; portion <= 8; portion++)
        assert(bodies_in(&corner, 0, bytes, size, portion, &damaged) == 6 && damaged == 0);
    uint64_t frame = QI_MESSAGE_OVERHEAD + sizeof body, first = QI_MESSAGES_START;
    bytes[first + frame + QI_MESSAGE_HEADER + 7] ^= 1; /* a body */
    assert(bodies_in(&corner, 0, bytes, size, 3, &damaged) == 5 && damaged == 1);
    bytes[first + 3 * frame] ^= 1; /* a length: what follows is searched for */
    assert(bodies_in(&corner, 0, bytes, size, 3, &damaged) == 4 && damaged == 1);
    /* A stamp where no frame is, and a frame that says where it was born, which is elsewhere. */
    memset(bytes + first + 3 * frame + 40, 7, 32);
    memcpy(bytes + first + 3 * frame + 100, bytes + first, 60);
    assert(bodies_in(&corner, 0, bytes, size, 3, &damaged) == 4 && damaged == 1);
    bytes[first + 4 * frame + QI_MESSAGE_HEADER] ^= 1; /* found, and no body either */
    assert(bodies_in(&corner, 0, bytes, size, 3, &damaged) == 3);
    memset(bytes + first + 3 * frame, 0, size - first - 3 * frame);
    assert(bodies_in(&corner, 0, bytes, size, 3, &damaged) == 2 && damaged == 1);
    free(bytes);
    corner_end(&corner);
}

/* So many seeming frames that to check them all would cost too much. */
static void test_the_search_for_bodies_is_bounded(void) {
    struct corner corner = corner_new();
    static uint8_t body[3000];
    uint64_t size;
    assert(qi_publish(corner.a, body, sizeof body) == 0);
    uint8_t *bytes = copy_of(corner.sim, "0.qms", &size);
    bytes[QI_MESSAGES_START] ^= 1;
    uint8_t *seeming =
        bytes + QI_MESSAGES_START + 100; /* its MsgId says that it is here, and how long */
    memcpy(seeming, bytes + QI_MESSAGES_START, QI_MESSAGE_HEADER);
    struct qi_msg_id id = qi_get_msg_id(seeming + 8);
    id.offset = QI_MESSAGES_START + 100;
    id.stamp = (id.stamp & UINT64_C(0xFFFFFFFF)) | UINT64_C(50) << 32;
    qi_put_msg_id(seeming + 8, id);
    qi_put32(seeming, qi_payload_length(id));
    qi_columns columns = columns_of(ROOM, false);
    columns.at = QI_MESSAGES_START; /* as if it had cost all */
    columns.effort = 0;
    assert(qi_columns_bodies(corner.store->identity, 0, bytes, size, &columns) == 0);
    assert(columns.at == size);
    free(bytes);
    corner_end(&corner);
}

/* A file that a compaction wrote: its frames were born elsewhere, and behind them stands the table
 * of births. */
static void test_bodies_of_a_compacted_file_are_found(void) {
    struct corner corner = corner_new();
    static uint8_t body[500];
    uint64_t size, damaged, ids[12];
    for (int i = 0; i < 14; i++)
        assert(qi_publish(corner.a, body, sizeof body) == i);
    for (int i = 0; i < 12; i++) {
        assert(get_one(corner.a, &ids[i]) == sizeof body);
        assert(i % 4 == 3 || qi_ack(corner.a, ids[i], 0) == 0);
    }
    assert(qi_queue_sync(corner.a) == 0 && qi_store_compact(corner.store, 20) > 0);
    char path[200], name[16];
    const void *found;
    uint8_t *bytes = NULL;
    uint32_t number = 0;
    for (uint32_t i = 0; qi_sim_file(corner.sim, i, path, sizeof path, &found, &size) == 0; i++)
        if (sscanf(path, "messages/%u.%3s", &number, name) == 2 &&
            qi_get32((const uint8_t *)found + QI_MH_KIND) == QI_MESSAGES_COMPACTED) {
            bytes = memcpy(malloc(size), found, size);
            break;
        }
    assert(bytes);
    uint64_t sound = bodies_in(&corner, number, bytes, size, 2, &damaged);
    assert(sound > 0 && damaged == 0);
    qi_put64(bytes + QI_MH_BYTES,
             size); /* more than there can be: the whole file is looked through */
    qi_put32(bytes + QI_MH_CRC, qi_crc32c(0, bytes, QI_MH_CRC));
    assert(bodies_in(&corner, number, bytes, size, 2, &damaged) == sound && damaged == 0);
    free(bytes);
    corner_end(&corner);
}

/* ---- messages ---- */

static void test_messages_are_parted_into_headers_and_bodies(void) {
    struct corner corner = corner_new();
    uint64_t ids[4], now = qi_store_now_us(corner.store);
    static uint8_t big[900];
    assert(qi_queue_set_rules(corner.a, &(qi_rules){.dead_letters = true}) == 0);
    assert(qi_publish_with(corner.a, "head", 4, "body", 4, 0, now + 1000, 0) == 0);
    assert(qi_publish(corner.a, big, sizeof big) == 1);
    assert(qi_publish_with(corner.a, NULL, 0, "third", 5, 7u << QI_PRIORITY_SHIFT, 0, 0) > 0);
    assert(qi_publish_with(corner.a, NULL, 0, "later", 5, 0, 0, now + 1000000) > 0);
    assert(get_many(corner.a, 2, ids) == 2 &&
           qi_settle_all(corner.a, QI_SETTLE_REJECT, ids, NULL, 1, 0) == 0);
    qi_columns columns = columns_of(ROOM, true);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 4);
    assert(table.header_starts[1] == 4 && memcmp(table.headers, "head", 4) == 0);
    assert(table.body_starts[1] == 4 && memcmp(table.bodies, "body", 4) == 0);
    assert(table.embedded[1] == 0 && table.body_starts[2] == 904);
    uint32_t dead = 0;
    for (int i = 0; i < 4; i++)
        dead += (table.kind[i] & QI_DEAD_LETTER) != 0;
    assert(dead == 1 && table.due_us[3] == (int64_t)now + 1000000);
    columns = columns_of(2, false); /* two by two, without payloads and with a bound */
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 2);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 2);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 0);
    columns = columns_of(ROOM, true);
    assert(qi_columns_messages(corner.a, 1, &columns) == 1);
    assert(qi_columns_messages(corner.a, 1, &columns) == 0); /* it is at the bound */
    qi_columns none = {.room = ROOM};
    assert(qi_columns_messages(corner.a, UINT64_MAX, &none) == 4 && none.at > 3);
    corner_end(&corner);
}

static void test_rooms_that_are_too_small_end_a_portion_or_are_told(void) {
    struct corner corner = corner_new();
    for (int i = 0; i < 3; i++)
        assert(qi_publish_with(corner.a, "head", 4, "body", 4, 0, 0, 0) == i);
    qi_columns columns = columns_of(ROOM, true);
    columns.bodies_room = 12; /* one payload, and the body of it */
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 2);
    columns = columns_of(ROOM, true);
    columns.headers_room = 6;
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 1);
    columns.headers_room = 3;
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == QI_E_ROOM);
    columns.headers_room = BYTES;
    columns.bodies_room = 7;
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == QI_E_ROOM);
    assert(columns.at == 1);
    corner_end(&corner);
}

/* A body that is gone has a row all the same; a record that cannot be read ends the portion, and is
 * told next time. */
static void test_messages_whose_bodies_are_gone_have_rows(void) {
    struct corner corner = corner_new();
    static uint8_t big[900];
    for (int i = 0; i < 3; i++)
        assert(qi_publish_with(corner.a, "head", 4, big, sizeof big, 0, 0, 0) == i);
    publish_many(corner.a, 1);
    assert(qi_store_close(corner.store) == 0);
    qi_store_free(corner.store);
    char text[200];
    assert(qi_sim_damage(corner.sim, QI_SIM_MISSING_FILE, 1, ".qms", text, sizeof text) == 0);
    open_with(&corner, usual());
    qi_columns columns = columns_of(ROOM, true);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 4);
    uint32_t gone = 0;
    for (int i = 0; i < 4; i++)
        gone += (table.kind[i] & QI_NO_BODY) != 0;
    assert(gone > 0 && gone <= 3);
    assert(qi_store_close(corner.store) == 0);
    columns = columns_of(ROOM, true);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == QI_E_CLOSED);
    corner_end(&corner);
}

/* Without payloads no room is needed for them, however long they are. A record that is gone is
 * told, and ends a portion. */
static void test_messages_of_any_size_have_rows_and_records_that_are_gone_do_not(void) {
    qi_options options = usual();
    options.embed_below = 9000;
    struct corner corner = corner_with(options);
    static uint8_t big[5000];
    for (int i = 0; i < 2; i++)
        assert(qi_publish(corner.a, big, i ? sizeof big : 10) == i);
    qi_columns columns = columns_of(ROOM, false);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 2);
    assert(table.embedded[1] == sizeof big && table.req_id[1] == 1);
    uint64_t ids[1];
    assert(get_one(corner.a, &ids[0]) == 10); /* its segment stays in memory */
    assert(qi_flush(corner.a) == 0);
    struct qi_disk *disk = &corner.sim->disk;
    int file = disk->ops->open(disk, corner.a->dir, "0.idx", QI_OPEN_WRITE);
    assert(file >= 0 && disk->ops->truncate(disk, file, 300) == 0);
    disk->ops->close(disk, file);
    corner.a->window_length = 0;
    columns = columns_of(ROOM, true);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 1 && columns.at == 1);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == QI_E_CORRUPT);
    assert(qi_error_req_id() == 1);
    columns.at = 0;
    assert(qi_columns_messages(corner.a, 1, &columns) == 1);
    assert(qi_ack(corner.a, 0, 0) == 0);
    columns.at = 0;
    assert(qi_columns_messages(corner.a, 9, &columns) == QI_E_CORRUPT && columns.at == 0);
    corner_end(&corner);
}

/* Publishers get the lock in between. */
static void test_messages_of_many_segments_have_rows_in_their_order(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 40);
    qi_columns columns = columns_of(ROOM, false);
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 40 && columns.at == 40);
    for (int i = 0; i < 40; i++)
        assert(table.req_id[i] == i && table.embedded[i] == 10);
    corner_end(&corner);
}

/* The next message is behind the end that was asked for. */
static void test_messages_end_where_they_are_to(void) {
    struct corner corner = corner_new();
    uint64_t id;
    publish_many(corner.a, 3);
    assert(get_one(corner.a, &id) == 10 && qi_ack(corner.a, 0, 0) == 0);
    qi_columns columns = columns_of(ROOM, true);
    assert(qi_columns_messages(corner.a, 1, &columns) == 0 && columns.at == 0);
    assert(qi_columns_messages(corner.a, 2, &columns) == 1 && table.req_id[0] == 1);
    corner_end(&corner);
}

/* One queue behind the other in the same columns: what stands before `first` is not touched, an
 * error neither. */
static void test_messages_go_on_behind_those_of_another_queue(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 3);
    assert(qi_publish_with(corner.b, "head", 4, "body", 4, 0, 0, 0) >= 0);
    publish_many(corner.b, 1);
    for (int bodies = 0; bodies < 2; bodies++) {
        qi_columns columns = columns_of(ROOM, bodies);
        assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 3);
        columns.first = 3;
        assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 3); /* the end */
        columns.at = 0;
        if (bodies) { /* the headers fit no more, then the body */
            columns.headers_room = 3;
            assert(qi_columns_messages(corner.b, UINT64_MAX, &columns) == QI_E_ROOM);
            columns.headers_room = BYTES;
            columns.bodies_room = 30 + 7;
            assert(qi_columns_messages(corner.b, UINT64_MAX, &columns) == QI_E_ROOM);
            columns.bodies_room = BYTES;
        }
        assert(qi_columns_messages(corner.b, UINT64_MAX, &columns) == 5);
        static const int64_t ids[] = {0, 1, 2, 0, 1}, sizes[] = {10, 10, 10, 4, 10};
        assert(memcmp(table.req_id, ids, sizeof ids) == 0);
        assert(memcmp(table.size, sizes, sizeof sizes) == 0);
        static const int32_t starts[] = {0, 10, 20, 30, 34, 44}, heads[] = {0, 0, 0, 0, 4, 4};
        assert(!bodies || memcmp(table.body_starts, starts, sizeof starts) == 0);
        assert(!bodies || memcmp(table.header_starts, heads, sizeof heads) == 0);
        assert(!bodies || memcmp(table.bodies + 30, "body", 4) == 0);
    }
    corner_end(&corner);
}

/* Its headers fit no more, and then somebody acks it: the next one in its row has nothing of it. */
static void test_a_row_that_was_not_finished_leaves_nothing(void) {
    struct corner corner = corner_new();
    uint64_t ids[2], now = qi_store_now_us(corner.store);
    assert(qi_publish_with(corner.a, "head", 4, "body", 4, 0, 0, 0) >= 0);
    assert(qi_publish_with(corner.a, "head", 4, "body", 4, 0, now + 99000000, 0) >= 0);
    assert(get_many(corner.a, 2, ids) == 2);
    publish_many(corner.b, 1);
    qi_columns columns = columns_of(ROOM, true);
    columns.headers_room = 7;
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 1);
    assert(qi_ack(corner.a, ids[1], 0) == 0);
    columns.first = 1;
    assert(qi_columns_messages(corner.a, UINT64_MAX, &columns) == 1); /* the end */
    columns.at = 0;
    assert(qi_columns_messages(corner.b, UINT64_MAX, &columns) == 2);
    assert(table.expiry_us[1] == 0 && columns.has_expiry[0] == 0);
    corner_end(&corner);
}

/* ---- raw rows ---- */

/* Of the next row; 0: there is none. */
static uint32_t next_kind(const uint8_t *bytes, size_t size, qi_columns *columns) {
    uint8_t kind = 0;
    columns->kind = &kind;
    int64_t got = qi_columns_records(bytes, size, columns);
    assert(got == 0 || got == 1);
    return got ? kind : 0;
}

static void test_raw_rows_may_be_asked_for_from_anywhere(void) {
    static uint8_t bytes[12288];
    qi_columns columns = {.room = 1, .raw = 1};
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
    assert(next_kind(bytes, sizeof bytes, &columns) == QI_ROW_ACK && columns.inside == 8);
    assert(next_kind(bytes, sizeof bytes, &columns) == QI_ROW_DELIVER);
    assert(columns.at == QI_JOURNAL_START + 24 && columns.inside == 0);
    assert(next_kind(bytes, sizeof bytes, &columns) == 0);
    static const uint64_t places[] = {sizeof bytes, sizeof bytes - 4, UINT64_C(1) << 35};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        columns.at = places[i], columns.inside = 8;
        assert(next_kind(bytes, sizeof bytes, &columns) == 0);
    }
    columns.at = QI_JOURNAL_START,
    columns.inside = 100; /* behind the frame's end: it is passed over */
    assert(next_kind(bytes, sizeof bytes, &columns) == 0);
    columns.at = QI_JOURNAL_START + 8, columns.inside = 8; /* inside: no frame begins there */
    assert(next_kind(bytes, sizeof bytes, &columns) == QI_ROW_TAIL);
    qi_frame_seal(qi_frame_seed(identity, 0, 4), bytes + QI_JOURNAL_START, QI_JOURNAL_START,
                  QI_FRAME_MARK, 16);
    columns.at = QI_JOURNAL_START, columns.inside = 8; /* a frame without records */
    assert(next_kind(bytes, sizeof bytes, &columns) == QI_ROW_FRAME + QI_FRAME_MARK);
    qi_put32(bytes + QI_JOURNAL_START, (uint32_t)QI_FRAME_ENTRIES << 28 | 20);
    columns.at = QI_JOURNAL_START, columns.inside = 8; /* as a segment's */
    next_kind(bytes, sizeof bytes, &columns);
}

/* A flushed journal has no header, and no records. One whose headers are damaged has, though the
 * first is empty. */
static void test_a_journal_without_headers_has_the_records_that_are_not_flushed(void) {
    static uint8_t bytes[12288];
    const uint8_t identity[QI_IDENTITY_SIZE] = {1};
    for (uint64_t i = 0, at = QI_JOURNAL_START; i < 4; i++, at += QI_FRAME_HEADER + 8) {
        qi_put64(bytes + at + QI_FRAME_HEADER, UINT64_C(3) << QI_REQ_ID_BITS | i);
        qi_frame_seal(qi_frame_seed(identity, 0, 4), bytes + at, at, QI_FRAME_RECORDS, 8);
    }
    for (uint8_t damaged = 0; damaged < 2; damaged++) {
        uint8_t kinds[8];
        qi_columns columns = {.room = 8, .raw = 1, .kind = kinds}, whole = {.room = 8};
        bytes[QI_JOURNAL_HEADER_COPY + 3] = damaged;
        assert(qi_columns_records(bytes, sizeof bytes, &columns) == (damaged ? 5 : QI_E_FORMAT));
        assert(!damaged || (kinds[0] == QI_ROW_HEADLESS && kinds[4] == QI_ROW_ACK));
        assert(qi_columns_records(bytes, sizeof bytes, &whole) == QI_E_FORMAT); /* no raw rows */
    }
}

int main(void) {
    test_a_row_that_was_not_finished_leaves_nothing();
    test_messages_go_on_behind_those_of_another_queue();
    test_bodies_of_a_compacted_file_are_found();
    test_messages_of_any_size_have_rows_and_records_that_are_gone_do_not();
    test_messages_of_many_segments_have_rows_in_their_order();
    test_messages_end_where_they_are_to();
    test_records_of_every_kind_come_in_any_portions();
    test_raw_rows_may_be_asked_for_from_anywhere();
    test_a_journal_without_headers_has_the_records_that_are_not_flushed();
    test_records_go_on_behind_those_of_another_file();
    test_a_record_that_does_not_fit_ends_its_frame();
    test_a_journal_of_the_past_has_the_rows_that_it_had();
    test_what_is_no_file_of_ours_has_no_rows();
    test_bodies_are_found_behind_damage();
    test_the_search_for_bodies_is_bounded();
    test_messages_are_parted_into_headers_and_bodies();
    test_rooms_that_are_too_small_end_a_portion_or_are_told();
    test_messages_whose_bodies_are_gone_have_rows();
    printf("columns: all passed\n");
    return 0;
}
