/* CRC32C (Castagnoli), the checksum of every frame that qindex writes. */
#ifndef QI_CRC32C_H
#define QI_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of what `crc` covers followed by these bytes. Begin with 0; qi_crc32c(0, "123456789", 9)
 * is 0xe3069283. Uses the processor's instruction where there is one. */
uint32_t qi_crc32c(uint32_t crc, const void *bytes, size_t length);

/* The same answer without special instructions: for other processors, and for tests. */
uint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length);

/* What `crc` covered before these bytes: the inverse of qi_crc32c. O(length), and no slower. */
uint32_t qi_crc32c_before(uint32_t crc, const void *bytes, size_t length);

#endif
