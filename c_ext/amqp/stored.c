/* stored.c - a message's headers as the broker stores them (qindex/broker/message.py, to_table).
 *
 *     size (4), "exchange" S name, "routing_keys" A keys, ["expires_us" l moment,]
 *     "properties" x bytes
 *
 * Each name is a short string, each value begins with the letter of its kind. Names that are no
 * UTF-8 have the kind x. What another program has written is none of these: Python decodes it.
 */
#include "amqp/amqp.h"

#include <string.h>

/* What is left to read. */
struct reader {
    const uint8_t *at, *end;
};

static bool take(struct reader *reader, size_t size, struct qi_piece *piece) {
    if (size > (size_t)(reader->end - reader->at))
        return false;
    *piece = (struct qi_piece){reader->at, size};
    reader->at += size;
    return true;
}

/* The name with its size in front, and the letter of its value's kind. */
static bool take_name(struct reader *reader, const char *name, size_t size, char kind) {
    struct qi_piece piece;
    if ((size_t)(reader->end - reader->at) < size + 1 || memcmp(reader->at, name, size) != 0 ||
        (kind && reader->at[size] != kind))
        return false;
    return take(reader, size + 1, &piece);
}

static bool take_long(struct reader *reader, struct qi_piece *piece) {
    struct qi_piece size;
    return take(reader, 4, &size) && take(reader, qi_big32(size.at), piece);
}

/* A text of which the letter was the last byte, as a short string can have it. */
static bool take_text(struct reader *reader, struct qi_piece *piece) {
    uint8_t kind = reader->at[-1];
    return (kind == 'S' || kind == 'x') && take_long(reader, piece) && piece->size <= UINT8_MAX;
}

#define NAME(text) text, sizeof(text) - 1

bool qi_read_stored(struct qi_piece table, struct qi_stored *stored) {
    struct reader reader = {table.at, table.at + table.size}, keys;
    struct qi_piece piece, array;
    *stored = (struct qi_stored){0};
    if (!take(&reader, 4, &piece) || qi_big32(piece.at) != table.size - 4 ||
        !take_name(&reader,
                   NAME("\x08"
                        "exchange"),
                   0) ||
        !take_text(&reader, &stored->exchange) ||
        !take_name(&reader,
                   NAME("\x0c"
                        "routing_keys"),
                   'A') ||
        !take_long(&reader, &array))
        return false;
    keys = (struct reader){array.at, array.at + array.size};
    if (!take(&keys, 1, &piece) || !take_text(&keys, &stored->key))
        return false;
    if (take_name(&reader,
                  NAME("\x0a"
                       "expires_us"),
                  'l')) {
        if (!take(&reader, 8, &piece))
            return false;
        stored->expires_us = qi_big64(piece.at);
    }
    return stored->expires_us <= INT64_MAX &&
           take_name(&reader,
                     NAME("\x0a"
                          "properties"),
                     'x') &&
           take_long(&reader, &stored->properties) && reader.at == reader.end;
}
