/* codec.c - reading bit-packed records. No I/O. No allocation. Same bytes in, same answer out. */
#include "base/base.h"

static bool read_side(const uint8_t *at, uint64_t left, struct qi_record *record) {
    uint64_t what = record->req_id & QI_COUNT_MASK;
    uint64_t size = what & ((UINT64_C(1) << QI_SIDE_SIZE_BITS) - 1);
    record->kind = QI_SIDE;
    record->side.kind = (uint32_t)(what >> QI_SIDE_SIZE_BITS);
    record->side.size = (uint32_t)size;
    record->side.bytes = at + QI_SIDE_RECORD;
    record->size = QI_SIDE_RECORD + size;
    if (record->side.kind == 0 || left < QI_SIDE_RECORD || size > left - QI_SIDE_RECORD)
        return false;
    record->req_id = qi_get64(at + QI_RECORD_ID) & QI_REQ_ID_MASK;
    return true;
}

bool qi_read_record(const uint8_t *at, uint64_t left, struct qi_record *record) {
    if (left < QI_RECORD_ID)
        return false;
    uint64_t word = qi_get64(at);
    record->kind = (enum qi_record_kind)(word >> QI_REQ_ID_BITS);
    record->req_id = word & QI_REQ_ID_MASK;
    record->fields = NULL;
    record->size = QI_RECORD_ID;
    if (record->kind == QI_DELIVER && record->req_id >> QI_COUNT_BITS == QI_TIME_LANE) {
        if (record->req_id & QI_COUNT_MASK)
            return read_side(at, left, record);
        if (left < QI_TIME_RECORD)
            return false;
        record->kind = QI_TIME;
        record->req_id = qi_get64(at + QI_RECORD_ID) & QI_REQ_ID_MASK;
        record->time = qi_get64(at + QI_RECORD_ID + 8);
        record->size = QI_TIME_RECORD;
        return true;
    }
    if (record->kind >= QI_DELIVER)
        return true;
    if (left < QI_RECORD_ID + QI_PUB_FIELDS)
        return false;
    record->fields = at + QI_RECORD_ID;
    record->size =
        QI_RECORD_ID + QI_PUB_FIELDS + (uint64_t)qi_get32(record->fields + QI_PUB_EMBEDDED);
    return record->size <= left;
}

bool qi_read_entry(const uint8_t *at, uint64_t left, struct qi_entry *entry) {
    if (left < QI_ENTRY_ID)
        return false;
    uint32_t word = qi_get16(at);
    *entry = (struct qi_entry){.slot = word & QI_ENTRY_SLOT_MASK, .size = QI_ENTRY_ID};
    if (word & QI_ENTRY_PUB) {
        if (left < QI_ENTRY_ID + QI_PUB_FIELDS)
            return false;
        entry->is = QI_ENTRY_IS_PUB;
        entry->persistent = (word & QI_ENTRY_PERSISTENT) != 0;
        entry->fields = at + QI_ENTRY_ID;
        entry->size =
            QI_ENTRY_ID + QI_PUB_FIELDS + (uint64_t)qi_get32(entry->fields + QI_PUB_EMBEDDED);
        return entry->size <= left;
    }
    if (word & QI_ENTRY_EVENT) {
        entry->is = QI_ENTRY_IS_EVENT;
        return true;
    }
    if (left < QI_ENTRY_ID + 2)
        return false;
    entry->is = QI_ENTRY_IS_COUNT;
    entry->count = qi_get16(at + QI_ENTRY_ID);
    entry->size = QI_ENTRY_ID + 2;
    if (entry->count == QI_SIDE_COUNT) {
        if (left < QI_SIDE_ENTRY)
            return false;
        entry->is = QI_ENTRY_IS_SIDE;
        entry->side = (struct qi_side){qi_get16(at + QI_ENTRY_ID + 2),
                                       qi_get32(at + QI_ENTRY_ID + 4), at + QI_SIDE_ENTRY};
        entry->size = QI_SIDE_ENTRY + (uint64_t)entry->side.size;
        return entry->size <= left;
    }
    if (entry->count > 0)
        return true;
    entry->is = QI_ENTRY_IS_TIME;
    entry->size += 8;
    if (left < entry->size)
        return false;
    entry->time = qi_get64(at + QI_ENTRY_ID + 2);
    return true;
}

/* Rows are sorted by slot; of others something is found or nothing. */
uint64_t qi_moment_of_slot(const uint8_t *payload, uint32_t length, uint32_t slot) {
    if (length < QI_KIND_SIZE)
        return 0;
    const uint8_t *rows = payload + QI_KIND_SIZE;
    uint32_t low = 0, high = (length - QI_KIND_SIZE) / QI_MOMENTS_ROW;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (qi_get16(rows + middle * QI_MOMENTS_ROW) <= slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? qi_get64(rows + (low - 1) * QI_MOMENTS_ROW + 2) & QI_INSTANT_MASK : 0;
}
