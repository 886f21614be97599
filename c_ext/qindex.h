/* What Python sees of the engine. build.py gives the text between the two marks to cffi, so that
 * nothing is declared twice. */
#ifndef QI_QINDEX_H
#define QI_QINDEX_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
uint32_t qi_crc32c(uint32_t crc, const void *bytes, size_t length);
uint32_t qi_crc32c_portable(uint32_t crc, const void *bytes, size_t length);
/* cffi: end */

#endif
