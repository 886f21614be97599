/* frame.h - checksummed frames, the unit of truth in journals and segments.
 *
 * A frame at offset F is valid if and only if:
 *   1. its 8 header bytes and its payload lie inside the file;
 *   2. its type is known and its length is not zero;
 *   3. its checksum equals CRC32C(seed, F as 64 bits, type and length word, payload),
 * where the seed is the CRC32C of the file's identity and epoch (journal) or identity, number and epoch (segment).
 * So bytes from another file, another life of a recycled file, or another place are never valid, nor are zeros.
 */
#ifndef QI_FRAME_H
#define QI_FRAME_H

#include "format.h"

struct qi_frame {
    uint64_t offset; /* of its header */
    uint32_t type;
    uint32_t length; /* of its payload */
    const uint8_t *payload;
};

enum qi_frame_state {
    QI_FRAME_VALID,
    QI_FRAME_END, /* zeros or nothing: a clean end */
    QI_FRAME_BAD, /* bytes that are no frame: a torn tail or damage */
};

uint32_t qi_frame_seed(const uint8_t identity[QI_IDENTITY_SIZE], uint64_t number, uint64_t epoch);

/* Writes the header of a frame whose payload already lies behind it. */
void qi_frame_seal(uint32_t seed, uint8_t *header, uint64_t offset, uint32_t type, uint32_t length);

/* Looks at the frame at bytes + offset; `base` is the file offset of bytes[0]. */
enum qi_frame_state qi_frame_read(uint32_t seed, const uint8_t *bytes, uint64_t size,
                                  uint64_t offset, uint64_t base, struct qi_frame *frame);

/* Searches the next valid frame at or behind `offset` of a file that begins with bytes[0]. What does not parse as one is
 * not checked, and checks draw on `effort`, which a walk over the file gets once: so hostile bytes cost linear time, how
 * many damaged places they ever have. Returns false if there is none. */
#define QI_FRAME_EFFORT(size) (16 * (uint64_t)(size) + 4096)
bool qi_frame_find(uint32_t seed, const uint8_t *bytes, uint64_t size, uint64_t offset,
                   uint64_t *effort, struct qi_frame *frame);

/* The same without the seed, for a file whose header is lost: the first two frames in a row that one seed makes valid. */
bool qi_frame_find_seed(const uint8_t *bytes, uint64_t size, uint64_t offset, uint64_t *effort,
                        uint32_t *seed, struct qi_frame *frame);

#endif
