/* crc32.c - the CRC-32 of zlib, which RabbitMQ's files have: eight bytes at a time.
 *
 * Rules of this file: no I/O, no allocation.
 */
#include "foreign/foreign.h"

enum { CRC_ROWS = 8 };
static const uint32_t POLYNOMIAL = 0xEDB88320u;

void qi_crc32_make(struct qi_crc32_tables *tables) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
        tables->rows[0][i] = value;
    }
    for (size_t row = 1; row < CRC_ROWS; row++)
        for (size_t i = 0; i < 256; i++) {
            uint32_t before = tables->rows[row - 1][i];
            tables->rows[row][i] = before >> 8 ^ tables->rows[0][before & 255];
        }
}

uint32_t qi_crc32(const struct qi_crc32_tables *tables, const uint8_t *p, size_t size) {
    const uint32_t (*rows)[256] = tables->rows;
    uint32_t crc = UINT32_MAX;
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24);
        crc = rows[7][low & 255] ^ rows[6][low >> 8 & 255] ^ rows[5][low >> 16 & 255] ^
              rows[4][low >> 24] ^ rows[3][p[4]] ^ rows[2][p[5]] ^ rows[1][p[6]] ^ rows[0][p[7]];
    }
    for (; size; size--)
        crc = crc >> 8 ^ rows[0][(crc ^ *p++) & 255];
    return ~crc;
}
