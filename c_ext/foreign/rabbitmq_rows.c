/* rabbitmq_rows.c - messages of classic queues as the engine publishes them: their bodies where
 * they lie, their headers as a field table, their expiry. First what has to be read of which file,
 * then the rows.
 *
 * Rules of this file: no I/O, no allocation; a length is compared with what is left before it is
 * used. It takes messages with which nothing is the matter. Any other is for Python, which reads it
 * once more, and says what is the matter: brokers/rabbitmq/node.py is the only one that does.
 */
#include "foreign/foreign.h"

#include "base/base.h"
#include "foreign/cursor.h"
#include "qindex.h"

enum {
    GAP_MAX = 32768, /* to read so many bytes that nobody wants takes less time than a call */
    SECTOR = 512,
    STORED_HEAD = 8, /* before a term in N.qs */
    HAS_CRC = 1,
    HAS_EXPIRATION = 0x0100, /* a flag of a property list */
    HEADERS = 2,             /* bits of the flags, from the highest on */
    DELIVERY_MODE = 3,
    PRIORITY = 4,
    TIMESTAMP = 9,
    PROPERTIES = 14,
    NAMES_ROOM = 96, /* more than the names in a table take, and its whole numbers */
};
static const uint64_t OFFSET_MAX = UINT64_C(1) << 62;

/* --- what has to be read --- */

/* Where the term is, with the head before it; false: nowhere. */
static bool locate(const qi_rabbit_entry *entry, const qi_rabbit_places *places, bool has_heads,
                   qi_rabbit_wanted *wanted) {
    uint64_t size = entry->term_bytes;
    if (size) {
        bool is_beside = entry->flags & QI_RABBIT_BESIDE;
        uint32_t head = is_beside && has_heads ? STORED_HEAD : 0;
        wanted->file = is_beside ? QI_RABBIT_FILE_BESIDE : QI_RABBIT_FILE_INDEX;
        wanted->offset = entry->term_offset - head;
        size += head;
    } else {
        qi_rabbit_place place;
        if (entry->flags & QI_RABBIT_NOWHERE ||
            !qi_rabbit_places_find(places, entry->msg_id, &place))
            return false;
        wanted->file = place.file;
        wanted->offset = place.offset;
        size = place.size;
    }
    wanted->size = wanted->offset < OFFSET_MAX && size < UINT32_MAX ? (uint32_t)size : 0;
    return true;
}

/* Makes the last extent so long that it holds the term, or begins another one; false: no room. */
static bool reserve(qi_rabbit_plan *plan, qi_rabbit_wanted *wanted, uint64_t *room) {
    uint64_t end = wanted->offset + wanted->size;
    if (plan->extent_count) {
        qi_rabbit_extent *last = &plan->extents[plan->extent_count - 1];
        uint64_t start = wanted->offset < last->offset ? wanted->offset : last->offset;
        uint64_t last_end = last->offset + last->size;
        uint64_t more = (end > last_end ? end : last_end) - start - last->size;
        if (last->file == wanted->file && more <= (uint64_t)wanted->size + GAP_MAX &&
            more <= *room) {
            last->offset = start;
            last->size += (uint32_t)more;
            *room -= more;
            wanted->extent = plan->extent_count - 1;
            return true;
        }
    }
    if (wanted->size > *room || plan->extent_count == QI_RABBIT_ROWS_MAX)
        return false;
    plan->extents[plan->extent_count] =
        (qi_rabbit_extent){.offset = wanted->offset, .size = wanted->size, .file = wanted->file};
    *room -= wanted->size;
    wanted->extent = plan->extent_count++;
    return true;
}

uint32_t qi_rabbit_make_plan(const qi_rabbit_entry *entries, uint32_t count, uint32_t from,
                             uint64_t first, uint64_t last, const qi_rabbit_places *places,
                             bool has_heads, uint32_t room, qi_rabbit_plan *plan) {
    uint64_t left = room;
    plan->count = plan->extent_count = 0;
    for (; from < count && plan->count < QI_RABBIT_ROWS_MAX; from++) {
        const qi_rabbit_entry *entry = &entries[from];
        qi_rabbit_wanted wanted = {.entry = from};
        if (entry->seq < first || entry->seq > last || !(entry->flags & QI_RABBIT_PERSISTENT) ||
            entry->flags & QI_RABBIT_MISSING || !locate(entry, places, has_heads, &wanted))
            continue;
        if (wanted.size > room)
            wanted.size = 0; /* Python reads it */
        if (wanted.size && !reserve(plan, &wanted, &left))
            break;
        plan->wanted[plan->count++] = wanted;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < plan->extent_count; i++) {
        plan->extents[i].at = at;
        at += plan->extents[i].size;
    }
    return from;
}

/* --- one message --- */

struct found {
    const uint8_t *data; /* its term */
    size_t size;
    qi_rabbit_message message;
};

/* The bytes of a term, and of the head before it. */
static bool bytes_of(const qi_rabbit_plan *plan, const qi_rabbit_wanted *wanted, const void *block,
                     size_t size, struct found *found) {
    const qi_rabbit_extent *extent = &plan->extents[wanted->extent];
    uint64_t within = wanted->offset - extent->offset;
    if (!wanted->size || within > extent->size || wanted->size > extent->size - within ||
        extent->at > size || extent->size > size - extent->at)
        return false;
    found->data = (const uint8_t *)block + extent->at + within;
    found->size = wanted->size;
    return true;
}

static bool is_zero(const uint8_t *p, size_t size) {
    return size == 0 || (p[0] == 0 && memcmp(p, p + 1, size - 1) == 0);
}

/* The first zeros of a sector's length or more begin where a sector of the file begins, and end
 * where one ends: that is what a disk leaves that lost them (vhost.has_lost_sector()). */
static bool has_lost_sector(const struct found *found, uint64_t offset) {
    size_t sector = (SECTOR - offset % SECTOR) % SECTOR, zeros = 0, end = 0;
    while (sector + SECTOR <= found->size && !is_zero(found->data + sector, SECTOR))
        sector += SECTOR;
    if (sector + SECTOR > found->size)
        return false;
    for (; end < found->size && (zeros < SECTOR || !found->data[end]); end++)
        zeros = found->data[end] ? 0 : zeros + 1;
    return (offset + end) % SECTOR == 0 && zeros % SECTOR == 0;
}

/* Passes the head that a term has in N.qs, and the zeros behind it; false: it is not what was
 * written. */
static bool take_head(struct found *found, const struct qi_crc32_tables *tables) {
    const uint8_t *head = found->data, *data = head + STORED_HEAD;
    if (found->size <= STORED_HEAD || qi_get32(head) != found->size - STORED_HEAD)
        return false;
    size_t size = found->size - STORED_HEAD, end = size;
    if (data[size - 1] == 0 && data[0] == 131) {
        size_t pos = 1;
        if (qi_terms(data, size, &pos, QI_TERM_DEPTH_MAX, VALUES_MAX, NULL, 0) > 0 &&
            is_zero(data + pos, size - pos))
            end = pos;
    }
    uint16_t crc = qi_get16(head + 5);
    if (head[4] & HAS_CRC && (uint16_t)qi_crc32(tables, data, size) != crc &&
        (uint16_t)qi_crc32(tables, data, end) != crc)
        return false;
    found->data = data;
    found->size = end;
    return true;
}

static bool is_the_one(const qi_rabbit_entry *entry, const struct found *found) {
    const qi_rabbit_message *message = &found->message;
    bool has_no_id =
        entry->flags & QI_RABBIT_BESIDE && is_zero(entry->msg_id, sizeof entry->msg_id);
    return message->fragment_size == entry->body_bytes &&
           (has_no_id ||
            (message->msg_id_size == sizeof entry->msg_id &&
             memcmp(found->data + message->msg_id, entry->msg_id, sizeof entry->msg_id) == 0));
}

/* Bytes of the routing keys, with a tag and a size each; false: not all are text. */
static bool keys_size(const struct found *found, uint64_t *size) {
    uint32_t pos = found->message.key;
    *size = 0;
    for (uint32_t i = 0; i < found->message.key_count; i++) {
        uint32_t length = qi_get32(found->data + pos - 4);
        if (!qi_is_utf8(found->data + pos, length))
            return false;
        *size += 5 + (uint64_t)length;
        pos += length + 5;
    }
    return true;
}

/* False: something is the matter with it, or it is in no usual shape. */
static bool find_message(const qi_rabbit_plan *plan, const qi_rabbit_wanted *wanted,
                         const qi_rabbit_entry *entry, const void *block, size_t size,
                         const qi_rabbit_wish *wish, const struct qi_crc32_tables *tables,
                         struct found *found) {
    if (!bytes_of(plan, wanted, block, size, found))
        return false;
    bool has_head = wish->has_heads && wanted->file == QI_RABBIT_FILE_BESIDE;
    if (has_head ? !take_head(found, tables) : has_lost_sector(found, wanted->offset))
        return false;
    const qi_rabbit_message *message = &found->message;
    if (!qi_rabbit_read_message(found->data, found->size, &found->message) || message->decoded ||
        message->fragment_count > 1 || !is_the_one(entry, found) ||
        !qi_is_utf8(found->data + message->exchange, message->exchange_size))
        return false;
    /* An expiry that neither the queue nor the message asked for is doubtful. */
    const uint8_t *properties = found->data + message->properties;
    return !entry->expiry_us || !wish->has_no_ttl ||
           (message->properties_size >= 2 && qi_get16(properties) & HAS_EXPIRATION);
}

/* --- its field table --- */

static uint8_t *put_name(uint8_t *at, const char *name) {
    size_t size = strlen(name);
    *at++ = (uint8_t)size;
    memcpy(at, name, size);
    return at + size;
}

static uint8_t *put_bytes(uint8_t *at, char tag, const uint8_t *bytes, uint32_t size) {
    *at = (uint8_t)tag;
    qi_put32(at + 1, size);
    memcpy(at + 5, bytes, size);
    return at + 5 + size;
}

static uint8_t *put_whole(uint8_t *at, uint64_t number) {
    bool is_short = number <= INT32_MAX;
    *at++ = is_short ? 'I' : 'l';
    if (is_short)
        qi_put32(at, (uint32_t)number);
    else
        qi_put64(at, number);
    return at + (is_short ? 4 : 8);
}

static uint8_t *put_keys(uint8_t *at, const struct found *found, uint64_t size) {
    uint32_t pos = found->message.key;
    *at++ = 'A';
    qi_put32(at, (uint32_t)size);
    at += 4;
    for (uint32_t i = 0; i < found->message.key_count; i++) {
        uint32_t length = qi_get32(found->data + pos - 4);
        at = put_bytes(at, 'S', found->data + pos, length);
        pos += length + 5;
    }
    return at;
}

/* As field_table.py writes the headers of node.py's Message, with DEAD_LETTER_AT of recover.py, or
 * as broker/rescue/copying.py has them. How many bytes; 0: it cannot. */
static uint32_t put_table(const struct found *found, uint64_t expiry_us, uint32_t expiry,
                          uint8_t *table, size_t room) {
    const qi_rabbit_message *message = &found->message;
    uint64_t keys;
    if (!keys_size(found, &keys) ||
        keys + message->exchange_size + message->properties_size + NAMES_ROOM > room)
        return 0;
    uint8_t *at = put_name(table + 4, "exchange");
    at = put_bytes(at, 'S', found->data + message->exchange, message->exchange_size);
    at = put_keys(put_name(at, "routing_keys"), found, keys);
    if (expiry_us && expiry == QI_RABBIT_IS_TOLD)
        at = put_whole(put_name(at, "expires_us"), expiry_us);
    at = put_name(at, "properties");
    at = put_bytes(at, 'x', found->data + message->properties, message->properties_size);
    if (expiry_us && expiry == QI_RABBIT_DIES)
        at = put_whole(put_name(at, "dead_letter_at"), expiry_us);
    uint32_t size = (uint32_t)(at - table);
    qi_put32(table, size - 4);
    return size;
}

/* --- rows --- */

struct row {
    struct found found;
    uint64_t expiry_us;
    uint32_t priority;
    bool is_over; /* it has expired */
};

/* When it expires in the store; false: that is for Python. 0: never. */
static bool expiry_of(const qi_rabbit_entry *entry, const qi_rabbit_wish *wish, bool *is_over,
                      uint64_t *expiry_us) {
    *is_over = entry->expiry_us && entry->expiry_us <= wish->now_us;
    *expiry_us = 0;
    if (!entry->expiry_us || *is_over)
        return !*is_over || wish->expired != QI_RABBIT_TELL_EXPIRED;
    if (entry->expiry_us > wish->expiry_max_us || wish->later_us > (int64_t)wish->expiry_max_us ||
        wish->later_us < -(int64_t)wish->expiry_max_us)
        return false;
    int64_t later = (int64_t)entry->expiry_us + wish->later_us;
    *expiry_us = later > 1 ? (uint64_t)later : 1;
    return *expiry_us <= wish->expiry_max_us;
}

/* False: its property list is none. */
static bool priority_of(const struct found *found, uint32_t priority_max, uint32_t *priority) {
    const uint8_t *list = found->data + found->message.properties;
    uint32_t size = found->message.properties_size, pos = 2;
    *priority = 0;
    if (!priority_max)
        return true;
    uint32_t flags = size < 2 ? 3 : qi_get16(list);
    for (uint32_t bit = 0; bit < PROPERTIES && !(flags & 3); bit++) {
        if (!(flags & 0x8000u >> bit))
            continue;
        uint64_t length = bit == TIMESTAMP ? 8 : 1;
        if (pos >= size || (bit == HEADERS && size - pos < 4))
            return false;
        if (bit == HEADERS)
            length = 4 + (uint64_t)qi_get32(list + pos);
        else if (bit == PRIORITY)
            *priority = list[pos] < priority_max ? list[pos] : priority_max;
        else if (bit != TIMESTAMP && bit != DELIVERY_MODE)
            length = 1 + (uint64_t)list[pos];
        if (length > size - pos)
            return false;
        pos += (uint32_t)length;
    }
    return !(flags & 3) && pos == size;
}

static void put_row(const struct row *row, uint64_t seq, uint32_t expiry, bool is_redelivered,
                    uint32_t table_size, qi_rabbit_rows *rows) {
    const struct found *found = &row->found;
    uint64_t expiry_us = row->expiry_us;
    uint32_t i = rows->count++;
    rows->seqs[i] = seq;
    rows->bodies[i] = (uintptr_t)(found->data + found->message.fragment);
    rows->body_sizes[i] = found->message.fragment_size;
    rows->table_sizes[i] = table_size;
    rows->expiries_us[i] = expiry == QI_RABBIT_EXPIRES ? expiry_us : 0;
    rows->flags[i] = is_redelivered ? QI_REDELIVERED : 0;
    rows->body_bytes += found->message.fragment_size;
    rows->redelivered += is_redelivered;
    rows->dying += expiry_us && expiry == QI_RABBIT_DIES;
}

/* What is found of a message, its expiry, 0: never, and its priority; false: that is for Python. */
static bool find_row(const qi_rabbit_plan *plan, const qi_rabbit_wanted *wanted,
                     const qi_rabbit_entry *entry, const void *block, size_t size,
                     const qi_rabbit_wish *wish, const struct qi_crc32_tables *tables,
                     struct row *row) {
    return find_message(plan, wanted, entry, block, size, wish, tables, &row->found) &&
           expiry_of(entry, wish, &row->is_over, &row->expiry_us) &&
           priority_of(&row->found, wish->priority_max, &row->priority);
}

uint32_t qi_rabbit_read_rows(const qi_rabbit_plan *plan, uint32_t from,
                             const qi_rabbit_entry *entries, const void *block, size_t size,
                             const qi_rabbit_wish *wish, uint8_t *tables, size_t tables_room,
                             qi_rabbit_rows *rows) {
    struct qi_crc32_tables crc;
    if (wish->has_heads)
        qi_crc32_make(&crc);
    rows->count = rows->expired = rows->redelivered = rows->dying = 0;
    rows->body_bytes = 0;
    rows->is_strange = false;
    for (; from < plan->count; from++) {
        const qi_rabbit_wanted *wanted = &plan->wanted[from];
        const qi_rabbit_entry *entry = &entries[wanted->entry];
        struct row row;
        rows->is_strange = !find_row(plan, wanted, entry, block, size, wish, &crc, &row);
        if (rows->is_strange || (rows->count && row.priority != rows->priority))
            break;
        if (row.is_over && wish->expired == QI_RABBIT_DROP_EXPIRED) {
            rows->expired++;
            continue;
        }
        uint32_t table = put_table(&row.found, row.expiry_us, wish->expiry, tables, tables_room);
        rows->is_strange = !table;
        if (!table)
            break;
        bool is_redelivered =
            entry->seq < wish->redelivered_below ||
            (wish->redelivered_if_delivered && entry->state == QI_RABBIT_DELIVERED);
        put_row(&row, entry->seq, wish->expiry, is_redelivered, table, rows);
        rows->priority = row.priority;
        tables += table;
        tables_room -= table;
    }
    return from;
}
