/* codec.c - reading bit-packed records. No I/O. No allocation. Same bytes in, same answer out. */
#include "codec.h"

bool qi_read_record(const uint8_t *at, uint64_t left, struct qi_record *record) {
    if (left < QI_RECORD_ID)
        return false;
    uint64_t word = qi_get64(at);
    record->kind = (enum qi_record_kind)(word >> QI_REQ_ID_BITS);
    record->req_id = word & QI_REQ_ID_MASK;
    record->fields = NULL;
    record->size = QI_RECORD_ID;
    if (record->kind == QI_DELIVER && record->req_id >> QI_COUNT_BITS == QI_TIME_LANE) {
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
    if (entry->count > 0)
        return true;
    entry->is = QI_ENTRY_IS_TIME;
    entry->size += 8;
    if (left < entry->size)
        return false;
    entry->time = qi_get64(at + QI_ENTRY_ID + 2);
    return true;
}
