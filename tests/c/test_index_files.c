/* test_index_files.c - the journals and segments of a store, read without it: which, in which
 * order, and what is told of those that the disk does not give. On a simulated disk. Usage:
 * test_index_files <directory>
 */
#include "corner.h"

#define FILES_MAX 16

struct seen {
    char where[FILES_MAX][100];
    uint64_t size[FILES_MAX];
    uint32_t crc[FILES_MAX];
    int count, errors;
};

/* Queue a has three segments and a journal with something in it, queue b a journal; the other
 * journals are flushed. */
static struct corner store_of_files(void) {
    struct corner corner = corner_new();
    publish_many(corner.a, 20);
    assert(qi_flush(corner.a) == 0);
    publish_many(corner.a, 3);
    publish_many(corner.b, 2);
    return corner;
}

static struct seen look(qi_index_files *files, const char *wanted, size_t count) {
    struct seen seen = {.count = 0};
    qi_index_file file;
    if (qi_index_files_begin(files, "/", wanted, count) < 0) {
        seen.errors++;
        assert(qi_index_files_next(files, &file) == 0); /* and has no files */
        return seen;
    }
    for (int got; (got = qi_index_files_next(files, &file));) {
        if (got < 0) {
            assert(++seen.errors < FILES_MAX);
            continue;
        }
        assert(got == 1 && seen.count < FILES_MAX);
        snprintf(seen.where[seen.count], sizeof seen.where[0], "%s", file.where);
        seen.size[seen.count] = file.size;
        seen.crc[seen.count++] = qi_crc32c(0, file.bytes, file.size);
    }
    return seen;
}

static bool is_same(const struct seen *one, const struct seen *other) {
    return one->count == other->count && one->errors == other->errors &&
           memcmp(one->where, other->where, sizeof one->where) == 0 &&
           memcmp(one->crc, other->crc, sizeof one->crc) == 0;
}

/* What the simulated disk itself says of a file. */
static void assert_bytes(qi_sim *sim, const char *where, uint64_t size, uint32_t crc) {
    char path[200];
    const void *bytes;
    uint64_t its;
    for (uint32_t i = 0; qi_sim_file(sim, i, path, sizeof path, &bytes, &its) == 0; i++)
        if (strstr(path, where)) {
            assert(its == size && qi_crc32c(0, bytes, its) == crc);
            return;
        }
    assert(!"no such file");
}

static void test_all_files_come_in_the_order_of_their_names(void) {
    static const char *const expected[] = {"queues/" A "/0.idx", "queues/" A "/1.idx",
                                           "queues/" A "/2.idx", "queues/" A "/journal.alt",
                                           "queues/" B "/journal.jif"};
    struct corner corner = store_of_files();
    qi_index_files *files = qi_index_files_new_on(&corner.sim->disk);
    for (int again = 0; again < 2; again++) {
        struct seen seen = look(files, NULL, 0);
        assert(seen.count == 5 && seen.errors == 0);
        for (int i = 0; i < seen.count; i++) {
            assert(strcmp(seen.where[i], expected[i]) == 0);
            assert_bytes(corner.sim, seen.where[i], seen.size[i], seen.crc[i]);
        }
    }
    qi_index_files_free(files);
    qi_index_files_free(NULL);
    corner_end(&corner);
}

static void test_only_what_is_wanted_is_read(void) {
    struct corner corner = store_of_files();
    qi_index_files *files = qi_index_files_new_on(&corner.sim->disk);
    static const char wanted[] =
        "queues/" B "\0queues/" A "/2.idx\0queues/" A "/0.idx\0queues/" A "/9.idx\0queues/" A
        "/queue.meta\0queues/" A "/journal.jif\0queues/nobody\0queues/nobody/0.idx\0store.meta\0"
        "queues/" A "/x/0.idx\0queues/store.meta/0.idx";
    struct seen seen = look(files, wanted, 11);
    assert(seen.count == 3 && seen.errors == 0);
    assert(strcmp(seen.where[0], "queues/" A "/0.idx") == 0);
    assert(strcmp(seen.where[1], "queues/" A "/2.idx") == 0);
    assert(strcmp(seen.where[2], "queues/" B "/journal.jif") == 0);
    seen = look(files, "", 0);
    assert(seen.count == 0 && seen.errors == 0);
    char longer[400] = "queues/";
    memset(longer + 7, 'x', 300);
    seen = look(files, longer, 1);
    assert(seen.count == 0 && seen.errors == 0);
    qi_index_files_free(files);
    corner_end(&corner);
}

/* One call or one allocation fails: what is missing is told, the rest is there, and the next try
 * has all. False: there is no such call. */
static bool look_where_something_fails(struct corner *corner, const struct seen *all, bool memory,
                                       uint64_t call) {
    uint64_t hits = corner->sim->fault_hits;
    qi_index_files *files = qi_index_files_new_on(&corner->sim->disk);
    allocations.calls = allocations.failed = 0;
    if (memory)
        allocations.fail_at = call;
    else
        qi_sim_fault(corner->sim, call, QI_SIM_EIO, false);
    struct seen seen = look(files, NULL, 0);
    bool failed = memory ? allocations.failed > 0 : corner->sim->fault_hits > hits;
    allocations.fail_at = 0;
    qi_sim_fault(corner->sim, 0, 0, false);
    assert(seen.errors <= 1 && (failed || !seen.errors));
    assert(seen.errors || is_same(&seen, all));
    for (int i = 0, of = 0; i < seen.count; i++, of++) {
        while (strcmp(seen.where[i], all->where[of]) != 0)
            assert(++of < all->count);
        assert(seen.crc[i] == all->crc[of]);
    }
    seen = look(files, NULL, 0);
    assert(is_same(&seen, all));
    qi_index_files_free(files);
    return failed;
}

static void test_what_cannot_be_read_is_told_and_passed_over(void) {
    struct corner corner = store_of_files();
    qi_index_files *files = qi_index_files_new_on(&corner.sim->disk);
    struct seen all = look(files, NULL, 0);
    qi_index_files_free(files);
    for (int memory = 0; memory < 2; memory++) {
        uint64_t call = 1;
        while (look_where_something_fails(&corner, &all, memory, call))
            call++;
        assert(call > 5);
    }
    corner_end(&corner);
}

/* Of a file whose bytes the disk does not give any more there are zeros. */
static void test_sectors_that_cannot_be_read_are_zeros(void) {
    struct corner corner = store_of_files();
    qi_index_files *files = qi_index_files_new_on(&corner.sim->disk);
    static const char wanted[] = "queues/" A "/1.idx";
    struct seen whole = look(files, wanted, 1);
    assert(whole.count == 1);
    qi_index_file file;
    int zeros = 0;
    for (uint64_t call = 1; call < 10; call++) {
        assert(qi_index_files_begin(files, "/", wanted, 1) == 0);
        qi_sim_fault(corner.sim, call, QI_SIM_EIO, true);
        int got = qi_index_files_next(files, &file);
        qi_sim_fault(corner.sim, 0, 0, false);
        assert(got == QI_E_IO || (got == 1 && file.size == whole.size[0]));
        for (uint64_t i = 0; got == 1 && i < file.size && file.bytes[i] == 0; i++)
            zeros += i == file.size - 1;
    }
    assert(zeros == 1);
    qi_index_files_free(files);
    corner_end(&corner);
}

static void test_a_store_that_is_none_is_told(void) {
    qi_sim *sim = qi_sim_new(1, NULL);
    qi_index_files *files = qi_index_files_new_on(&sim->disk);
    qi_index_file file;
    assert(qi_index_files_begin(files, "/", NULL, 0) == QI_E_IO);
    assert(strstr(qi_error_text(), "cannot open the queues of /"));
    assert(qi_index_files_next(files, &file) == 0);
    qi_index_files_free(files);
    qi_sim_free(sim);
}

int main(void) {
    test_all_files_come_in_the_order_of_their_names();
    test_only_what_is_wanted_is_read();
    test_what_cannot_be_read_is_told_and_passed_over();
    test_sectors_that_cannot_be_read_are_zeros();
    test_a_store_that_is_none_is_told();
    printf("index_files: all passed\n");
    return 0;
}
