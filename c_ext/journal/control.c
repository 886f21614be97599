/* control.c - reads the frames that describe the queue itself: MANIFEST, SESSION, CLOSE.
 * (durable/state.c writes them.) */
#include "journal/journal.h"

static bool get_lane(const uint8_t *at, uint64_t *req_id) {
    if (qi_get16(at) != QI_LANE_ROWS || qi_get16(at + 2) != 0)
        return false;
    *req_id = qi_get64(at + 4);
    return *req_id <= QI_COUNT_MASK; /* else it is not of lane 0 */
}

bool qi_read_manifest(const struct qi_frame *frame, struct qi_manifest *manifest) {
    if (frame->type != QI_FRAME_MANIFEST || frame->length < QI_MANIFEST_FIXED)
        return false;
    const uint8_t *at = frame->payload;
    manifest->flushed_epoch = qi_get64(at);
    manifest->session = qi_get64(at + 8);
    manifest->floor = qi_get64(at + 16);
    manifest->previous_tail = qi_get64(at + 24);
    if (!get_lane(at + 32, &manifest->reserved))
        return false;
    manifest->count = qi_get32(at + QI_MANIFEST_COUNT);
    manifest->segments = at + QI_MANIFEST_FIXED;
    return manifest->count == (frame->length - QI_MANIFEST_FIXED) / QI_MANIFEST_SEGMENT;
}

bool qi_read_session(const struct qi_frame *frame, uint64_t *session, uint64_t *floor,
                     uint64_t *reserved) {
    if (frame->type != QI_FRAME_SESSION || frame->length != 28)
        return false;
    *session = qi_get64(frame->payload);
    *floor = qi_get64(frame->payload + 8);
    return get_lane(frame->payload + 16, reserved);
}

bool qi_read_close(const struct qi_frame *frame, uint64_t *next) {
    return frame->type == QI_FRAME_CLOSE && frame->length == 28 &&
           get_lane(frame->payload + 16, next);
}
