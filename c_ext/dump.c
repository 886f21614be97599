/* dump.c - raw bytes of a journal or a segment as lines of text, one per record. For people; needs no store.
 *
 * If the header is damaged, the frames say with what their checksums begin: two in a row that agree.
 */
#include <inttypes.h>
#include <stdio.h>

#include "codec.h"
#include "error.h"
#include "timers.h"
#include "walk.h"

struct dump {
    struct qi_walk walk;
    char *line;
    size_t room;
};

static const char *const frame_names[] = {"",      "records", "mark",    "manifest", "session",
                                          "close", "purge",   "entries", "summary",  "lanes"};

static void dump_publish(struct dump *dump, uint64_t offset, const char *kind, uint64_t id,
                         const uint8_t *at) {
    struct qi_fields fields;
    qi_get_fields(at, &fields);
    char msg_id[33] = "-";
    if (qi_msg_id_is_set(fields.msg_id))
        for (int i = 0; i < 16; i++)
            snprintf(msg_id + 2 * i, 3, "%02x", fields.msg_id[i]);
    snprintf(dump->line, dump->room,
             "%10" PRIu64 "  publish  %-10s %12" PRIu64
             "  size %u  embedded %u  msg_id %s  expiry_us %" PRIu64,
             offset, kind, id, fields.size, fields.embedded, msg_id, fields.expiry_us);
}

/* One record inside a frame; returns its size, 0 at the end. */
static uint64_t dump_record(struct dump *dump, const struct qi_frame *frame, uint64_t at) {
    uint64_t offset = frame->offset + QI_FRAME_HEADER + at, left = frame->length - at;
    if (dump->walk.journal) {
        struct qi_record record;
        if (!qi_read_record(frame->payload + at, left, &record))
            return 0;
        if (record.kind <= QI_PUB_TRANSIENT)
            dump_publish(dump, offset,
                         record.kind == QI_PUB_PERSISTENT ? "persistent" : "transient",
                         record.req_id, record.fields);
        else if (record.kind == QI_TIME)
            snprintf(dump->line, dump->room,
                     "%10" PRIu64 "  time     %-10s %12" PRIu64 "  due_us %" PRIu64 "  priority %u",
                     offset, "", record.req_id, qi_time_us(record.time),
                     qi_time_priority(record.time));
        else
            snprintf(dump->line, dump->room, "%10" PRIu64 "  %-8s %-10s %12" PRIu64, offset,
                     record.kind == QI_DELIVER ? "deliver" : "ack", "", record.req_id);
        return record.size;
    }
    struct qi_entry entry;
    if (!qi_read_entry(frame->payload + at, left, &entry))
        return 0;
    if (entry.is == QI_ENTRY_IS_PUB)
        dump_publish(dump, offset, entry.persistent ? "persistent" : "transient", entry.slot,
                     entry.fields);
    else if (entry.is == QI_ENTRY_IS_EVENT)
        snprintf(dump->line, dump->room,
                 "%10" PRIu64 "  event    %-10s %12u  (first: deliver, second: ack)", offset, "",
                 entry.slot);
    else if (entry.is == QI_ENTRY_IS_TIME)
        snprintf(dump->line, dump->room,
                 "%10" PRIu64 "  time     %-10s %12u  due_us %" PRIu64 "  priority %u", offset, "",
                 entry.slot, qi_time_us(entry.time), qi_time_priority(entry.time));
    else
        snprintf(dump->line, dump->room, "%10" PRIu64 "  count    %-10s %12u  delivered %u times",
                 offset, "", entry.slot, entry.count);
    return entry.size;
}

/* `offset` is where the next frame stands (0 at first) in its low 36 bits, and in the high bits how far inside it. */
int64_t qi_dump(const void *bytes, size_t size, uint64_t *offset, char *line, size_t room) {
    struct dump dump = {.line = line, .room = room};
    uint64_t inside = *offset >> 36, at = *offset & ((UINT64_C(1) << 36) - 1);
    if (!qi_walk_begin(&dump.walk, bytes, size) && !qi_walk_begin_headless(&dump.walk))
        return qi_fail(QI_E_FORMAT, "neither a journal nor a segment of qindex (a journal whose "
                                    "epoch is flushed has no header)");
    if (at == 0 && dump.walk.headless) {
        snprintf(line, room,
                 "%10d  BAD      %" PRIu64 " bytes: the header is damaged; the frames agree "
                 "on what it said",
                 0, dump.walk.start);
        *offset = dump.walk.start;
        return 1;
    }
    if (at == 0)
        at = dump.walk.start;
    struct qi_frame frame;
    enum qi_frame_state state = qi_walk_frame(&dump.walk, at, inside, &frame);
    if (state == QI_FRAME_END && !dump.walk.journal && at + QI_FRAME_HEADER <= size)
        state = QI_FRAME_BAD; /* a segment has no zeros at its end */
    if (state == QI_FRAME_END)
        return 0;
    if (state == QI_FRAME_BAD) {
        uint64_t effort = QI_FRAME_EFFORT(size);
        bool found = qi_frame_find(dump.walk.seed, bytes, size, at + 1, &effort, &frame);
        snprintf(line, room, "%10" PRIu64 "  BAD      %" PRIu64 " bytes are no frame: %s", at,
                 (found ? frame.offset : size) - at,
                 found ? "damage" : "a torn tail, stale bytes or damage");
        *offset = found ? frame.offset : size;
        return 1;
    }
    uint64_t next = frame.offset + QI_FRAME_HEADER + frame.length;
    bool plain = frame.type != QI_FRAME_RECORDS && frame.type != QI_FRAME_ENTRIES;
    uint64_t step = plain ? 0 : dump_record(&dump, &frame, inside);
    if (plain || step == 0) {
        snprintf(line, room, "%10" PRIu64 "  %-8s %u bytes", frame.offset, frame_names[frame.type],
                 frame.length);
        *offset = next;
    } else {
        *offset = inside + step >= frame.length ? next : (inside + step) << 36 | frame.offset;
    }
    return 1;
}
