/* test_tape.c - which pages of a mapped journal come before they are written to, and what a page
 * that does not costs. On a real disk whose `populate` is counted. Usage: test_tape
 * <directory> */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk/disk.h"

#define PAGE      UINT64_C(4096)
#define AHEAD_MAX (16 * PAGE)

static struct qi_disk_ops ops;
static struct qi_disk disk = {.ops = &ops, .growth_min = UINT64_C(1) << 20};
static struct qi_tape tape;
static int dir, calls, failure;
static uint64_t from, end; /* of the last call, in the tape */

static int populate(struct qi_disk *self, uint8_t *memory, uint64_t length, bool to_write) {
    calls++;
    from = (uint64_t)(memory - tape.memory);
    end = from + length;
    assert(from % PAGE == 0 && to_write);
    return failure ? failure : qi_disk_posix.ops->populate(self, memory, length, to_write);
}

static void begin(bool use_mapping) {
    int file = ops.open(&disk, dir, "journal.jif", QI_OPEN_FRESH);
    assert(file >= 0 && qi_tape_open(&tape, &disk, file, 8 << 20, use_mapping) == 0);
    calls = failure = 0;
}

static void finish(void) {
    qi_tape_close(&tape);
    assert(ops.unlink(&disk, dir, "journal.jif") == 0);
}

/* Bytes up to `size` are written, `step` at a time. Returns how many calls that took. */
static int append(uint64_t *tail, uint64_t size, uint64_t step) {
    int before = calls;
    for (; *tail < size; *tail += step) {
        if (*tail + step > tape.ready)
            assert(qi_tape_make_ready(&tape, *tail, *tail + step, 0) == 0);
        assert(*tail + step <= tape.ready && tape.ready <= tape.allocated);
        memset(tape.memory + *tail, 'x', step);
    }
    return calls - before;
}

/* A sync has to write all of them: who publishes one message between two syncs must not pay for
 * sixteen pages. */
static void test_a_quarter_as_many_pages_come_ahead_as_were_written(void) {
    uint64_t tail = 0;
    begin(true);
    assert(append(&tail, 100, 100) == 1 && from == 0 && end == PAGE);
    assert(append(&tail, 4000, 100) == 0);
    assert(append(&tail, 4200, 100) == 1 && from == PAGE && end == 2 * PAGE);
    assert(append(&tail, 40000, 100) < 10 && end <= tail + tail / 4 + PAGE);
    assert(append(&tail, UINT64_C(1) << 20, 64) < 40 && end <= tail + AHEAD_MAX + PAGE);
    qi_tape_unready(&tape, tail); /* a sync */
    uint64_t page = tail & ~(PAGE - 1);
    assert(append(&tail, tail + 1, 1) == 1 && from == page && end == page + PAGE);
    finish();
}

static void test_a_long_append_takes_its_pages_as_they_come(void) {
    uint64_t tail = 0;
    begin(true);
    assert(append(&tail, 16 << 10, 16 << 10) == 1);
    assert(append(&tail, 16 << 10, 1) == 0 && append(&tail, 40 << 10, 17 << 10) == 0);
    assert(tape.ready >= tail);
    finish();
}

static void test_what_lies_before_a_tail_that_was_found_stays_as_it_is(void) {
    begin(true);
    assert(qi_tape_reserve(&tape, 5 << 20, 0) == 0);
    uint64_t tail = (UINT64_C(4) << 20) + 10;
    assert(append(&tail, tail + 100, 100) == 1);
    assert(from == UINT64_C(4) << 20 && end == from + PAGE);
    finish();
}

static void test_a_page_that_does_not_come_is_an_error_and_can_be_asked_for_again(void) {
    uint64_t tail = 0;
    begin(true);
    append(&tail, 5000, 100);
    uint64_t ready = tape.ready;
    failure = -EIO;
    assert(qi_tape_make_ready(&tape, tail, ready + 1, 0) == -EIO && tape.ready == ready);
    failure = 0;
    assert(append(&tail, ready + 100, 100) == 1);
    finish();
}

static void test_a_cut_takes_pages_away(void) {
    uint64_t tail = 0;
    begin(true);
    append(&tail, 50000, 100);
    assert(qi_tape_cut(&tape, 2 * PAGE) == 0 && tape.ready == 2 * PAGE);
    tail = PAGE;
    assert(append(&tail, 2 * PAGE, 64) == 0 && append(&tail, 3 * PAGE, 64) == 1);
    finish();
}

static bool can_zero; /* does this file system? */
static int zeroed, zero_failure;

static int zero(struct qi_disk *self, int file, uint64_t zeros_from, uint64_t zeros_to) {
    zeroed++;
    return zero_failure ? zero_failure : qi_disk_posix.ops->zero(self, file, zeros_from, zeros_to);
}

static void probe_zeros(void) {
    begin(true);
    assert(qi_tape_reserve(&tape, 2 * PAGE, 0) == 0);
    can_zero = qi_disk_posix.ops->zero(&disk, tape.file, PAGE, 2 * PAGE) == 0;
    finish();
}

/* Nothing but zeros from `at` on, in memory and in the file, which has `size` bytes. */
static void has_zeros(uint64_t at, uint64_t size) {
    static uint8_t bytes[6 << 20];
    uint64_t is = 0;
    assert(tape.allocated == size && ops.size(&disk, tape.file, &is) == 0 && is == size);
    assert(ops.read(&disk, tape.file, bytes, size, 0) == (int64_t)size);
    assert(bytes[at - 1] == 'x' && tape.memory[at - 1] == 'x');
    for (; at < size; at++)
        assert(bytes[at] == 0 && tape.memory[at] == 0);
}

/* Megabytes are cut off: a recovery would read them all. So is what the file system cannot make
 * zeros of, or does not. */
static void test_what_is_cleared_stays_with_the_file_if_it_is_little(void) {
    probe_zeros();
    static const struct {
        uint64_t size, from;
        int failure, calls;
        bool stays, odd;
    } cases[] = {
        {UINT64_C(1) << 20, 3 * PAGE, 0, 1, .stays = true},
        {UINT64_C(5) << 20, UINT64_C(1) << 20, 0, 1, .stays = true},
        {UINT64_C(5) << 20, 255 * PAGE, 0, 0},
        {UINT64_C(1) << 20, 3 * PAGE, -EOPNOTSUPP, 1},
        {UINT64_C(1) << 20, 3 * PAGE, -ENOSPC, 1},
        {UINT64_C(1) << 20, 3 * PAGE, 0, 0, .odd = true}, /* its last page would stay */
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        uint64_t tail = 0, from_here = cases[i / 2].from;
        begin(i % 2);
        append(&tail, cases[i / 2].size, PAGE);
        assert(qi_tape_wrote(&tape, 0, tail) == 0);
        if (cases[i / 2].odd)
            assert(qi_tape_cut(&tape, tape.allocated - 1000) == 0);
        uint64_t before = tape.allocated;
        zeroed = 0;
        zero_failure = cases[i / 2].failure;
        assert(qi_tape_clear(&tape, from_here) == 0);
        bool stays = cases[i / 2].stays && can_zero;
        assert(zeroed == cases[i / 2].calls && tape.ready <= from_here);
        has_zeros(from_here, stays ? before : from_here);
        assert(qi_tape_clear(&tape, tape.allocated) == 0 && zeroed == cases[i / 2].calls);
        finish();
    }
}

static uint64_t asked_from, asked_calls;

static int allocate(struct qi_disk *disk_, int file, uint64_t from, uint64_t size) {
    assert(from == asked_from);
    asked_from = size;
    asked_calls++;
    return qi_disk_posix.ops->allocate(disk_, file, from, size);
}

/* Blocks are asked for once: to look for those that are there costs the more the longer the file
 * is. After a cut they are asked for again. */
static void test_each_block_is_asked_for_once(void) {
    ops.allocate = allocate;
    for (int mapping = 0; mapping < 2; mapping++) {
        asked_from = asked_calls = 0;
        begin(mapping);
        for (uint64_t size = 1 << 20; size <= 8 << 20; size += 1 << 20)
            assert(qi_tape_reserve(&tape, size, 0) == 0);
        assert(asked_calls > 1 && tape.blocks == tape.allocated);
        assert(qi_tape_cut(&tape, 3 * PAGE) == 0);
        asked_from = 3 * PAGE;
        assert(qi_tape_reserve(&tape, 5 * PAGE, 0) == 0);
        finish();
    }
    ops.allocate = qi_disk_posix.ops->allocate;
}

static void test_plain_memory_needs_none(void) {
    uint64_t tail = 0;
    begin(false);
    assert(append(&tail, 50000, 100) == 0 && tape.ready >= tail);
    finish();
}

int main(int count, char **arguments) {
    assert(count == 2);
    ops = *qi_disk_posix.ops;
    ops.populate = populate;
    ops.zero = zero;
    dir = ops.open_dir(&disk, -1, arguments[1]);
    assert(dir >= 0);
    test_a_quarter_as_many_pages_come_ahead_as_were_written();
    test_a_long_append_takes_its_pages_as_they_come();
    test_what_lies_before_a_tail_that_was_found_stays_as_it_is();
    test_a_page_that_does_not_come_is_an_error_and_can_be_asked_for_again();
    test_a_cut_takes_pages_away();
    test_what_is_cleared_stays_with_the_file_if_it_is_little();
    test_each_block_is_asked_for_once();
    test_plain_memory_needs_none();
    printf("tape: all passed\n");
    return 0;
}
