/* look_private.h - what the files of look/ share: how a row of columns is filled. */
#ifndef QI_LOOK_PRIVATE_H
#define QI_LOOK_PRIVATE_H

#include "look/look.h"

#include "index/index.h"
#include "queue/queue.h"

/* What most rows do not have is zero, column by column, before they are filled: a row then writes
 * only what it has. */
#define CLEAR_AT_ONCE                                                                              \
    1024u /* rows; few enough to be in the cache when they are filled, and whole bytes of bits */

static inline void clear(void *column, uint32_t row, uint32_t rows, size_t size) {
    if (column)
        memset((uint8_t *)column + row * size, 0, rows * size);
}

/* Called with each row, in order. */
static inline void clear_rows(qi_columns *columns, uint32_t row) {
    if (__builtin_expect(row % CLEAR_AT_ONCE != 0, 1))
        return;
    uint32_t left = columns->room - row, rows = left < CLEAR_AT_ONCE ? left : CLEAR_AT_ONCE;
    int64_t *longs[] = {columns->size,   columns->embedded, columns->expiry_us,
                        columns->due_us, columns->file,     columns->published_us};
    uint8_t *bits[] = {columns->has_size,     columns->has_expiry, columns->has_count,
                       columns->has_msg_id,   columns->has_due,    columns->has_priority,
                       columns->has_published};
    for (size_t i = 0; i < sizeof longs / sizeof *longs; i++)
        clear(longs[i], row, rows, sizeof **longs);
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        clear(bits[i], row / 8, (rows + 7) / 8, 1);
    clear(columns->priority, row, rows, sizeof *columns->priority);
    clear(columns->count, row, rows, sizeof *columns->count);
    clear(columns->msg_id, row, rows, QI_MSG_ID_SIZE);
}

static inline void set_bit(uint8_t *bits, uint32_t row) {
    if (bits)
        bits[row >> 3] |= (uint8_t)(1u << (row & 7));
}

static inline void set64(int64_t *column, uint32_t row, uint64_t value) {
    if (column)
        column[row] = (int64_t)value;
}

static inline void set_msg_id(qi_columns *columns, uint32_t row, const uint8_t *msg_id) {
    if (!qi_msg_id_is_set(msg_id))
        return;
    set_bit(columns->has_msg_id, row);
    if (columns->msg_id)
        memcpy(columns->msg_id + (size_t)row * QI_MSG_ID_SIZE, msg_id, QI_MSG_ID_SIZE);
}

static inline void set_expiry(qi_columns *columns, uint32_t row, uint64_t expiry_us) {
    if (expiry_us == 0)
        return;
    set64(columns->expiry_us, row, expiry_us);
    set_bit(columns->has_expiry, row);
}

static inline void set_count(qi_columns *columns, uint32_t row, uint32_t count) {
    set_bit(columns->has_count, row);
    if (columns->count)
        columns->count[row] = (int32_t)count;
}

static inline void set_due(qi_columns *columns, uint32_t row, uint64_t due_us, uint32_t priority) {
    if (due_us) {
        set64(columns->due_us, row, due_us);
        set_bit(columns->has_due, row);
    }
    set_bit(columns->has_priority, row);
    if (columns->priority)
        columns->priority[row] = (int32_t)priority;
}

static inline void set_published(qi_columns *columns, uint32_t row, uint64_t us) {
    if (us == 0)
        return;
    set64(columns->published_us, row, us);
    set_bit(columns->has_published, row);
}

#endif
