/* reread.c - a reader beside a live writer: is what it holds still so, and reading a queue again.
 *
 * A reader takes no lock. What it read of a queue stays as it was, but the files behind it go: a
 * message that was acked since may have lost its body, a segment that died its file. So a reader
 * that misses something looks whether the journals moved; if they did, it reads the queue again,
 * and only what is missing then is damage. A flush, a compaction and a deletion all come behind an
 * append to the current journal, so journals that did not move prove that nothing was taken away on
 * purpose.
 */
#include "durable/durable_private.h"

#include "index/index.h"

#define ATTEMPTS        5u  /* where it cannot be told whether a writer is there */
#define BESIDE_A_WRITER 50u /* that flushes faster than this reader reads */

static bool found_damage(const struct qi_store *store, uint32_t since) {
    for (uint32_t i = since; i < store->findings_count; i++)
        if (store->findings[i].damage)
            return true;
    return false;
}

int qi_fail_outrun(const struct qi_queue *queue) {
    return qi_fail(QI_E_CORRUPT,
                   "queue %s changes faster than it can be read: try again, or read a copy",
                   qi_name_of(queue).text);
}

int qi_recover_view(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    uint32_t before = store->findings_count;
    for (uint32_t outruns = 0, attempts = 0;;) {
        int error = qi_recover(queue);
        bool outrun = !error && found_damage(store, before) && qi_view_is_old(queue);
        bool again =
            outrun ? ++outruns < BESIDE_A_WRITER : error == QI_E_CORRUPT && ++attempts < ATTEMPTS;
        if (!store->options.read_only || (!again && !outrun))
            return error;
        qi_queue_reset(queue);
        qi_forget_findings(store, before);
        if (!again)
            return qi_fail_outrun(queue);
    }
}

static bool is_told(const struct qi_store *store, uint32_t count, const struct qi_finding *news) {
    for (uint32_t i = 0; i < count; i++) {
        const struct qi_finding *old = &store->findings[i];
        if (old->offset == news->offset && strcmp(old->where, news->where) == 0 &&
            strcmp(old->text, news->text) == 0)
            return true;
    }
    return false;
}

/* What was found by the reading before is not told twice. */
static void forget_repeated(struct qi_store *store, uint32_t before) {
    uint32_t kept = before;
    for (uint32_t i = before; i < store->findings_count; i++) {
        struct qi_finding finding = store->findings[i];
        if (is_told(store, before, &finding)) {
            qi_free(finding.where);
            qi_free(finding.text);
        } else {
            store->findings[kept++] = finding;
        }
    }
    store->findings_count = kept;
}

int qi_reread(struct qi_queue *queue) {
    struct qi_store *store = queue->store;
    if (!qi_view_is_old(queue))
        return QI_E_CORRUPT;
    uint32_t before = store->findings_count;
    qi_queue_reset(queue);
    queue->browsed = UINT64_MAX;
    int error = qi_recover_view(queue);
    forget_repeated(store, before);
    return error ? error : qi_messages_reread(&store->messages);
}
