/* program.c - making, writing and reading programs. */
#include "proof/explore/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proof/explore/model.h"
#include "proof/sim/disk_sim.h"

/* In the order of their bits. */
static const char FLAG_LETTERS[] = "trehpdlz";

/* What the numbers of an operation mean, in the order of its text. */
static const struct {
    const char *name;
    bool queue, count, size, flags;
    uint32_t odds;
} KINDS[OP_KINDS] = {
    [OP_PUBLISH] = {"publish", true, false, true, true, 260},
    [OP_BATCH] = {"batch", true, true, true, true, 60},
    [OP_FANOUT] = {"fanout", true, true, true, true, 40},
    [OP_GET] = {"get", true, false, false, true, 130},
    [OP_GET_MANY] = {"get_many", true, true, false, true, 60},
    [OP_ACK] = {"ack", true, false, true, false, 110},
    [OP_ACK_MANY] = {"ack_many", true, true, true, false, 70},
    [OP_NACK] = {"nack", true, true, true, true, 20},
    [OP_PURGE] = {"purge", true, true, false, false, 12}, /* x1: all; else states of waiting ones */
    [OP_FLUSH] = {"flush", true, false, false, false, 25},
    [OP_COMPACT] = {"compact", false, false, false, false, 20},
    [OP_SYNC] = {"sync", true, false, false, false, 60},
    [OP_SYNC_ALL] = {"sync_all", false, false, false, false, 12},
    [OP_TICK] = {"tick", false, false, false, false, 50},
    [OP_IDLE] = {"idle", false, false, false, false, 10},
    [OP_ADVANCE] = {"advance", false, false, true, false, 20},
    [OP_REOPEN] = {"reopen", false, false, false, false, 8},
    [OP_DELETE] = {"delete", true, false, false, false, 5},
    [OP_CREATE] = {"create", true, true, false, false, 10},
    [OP_CUT] = {"cut", false, false, true, false, 24},
    [OP_KILL] = {"kill", false, false, false, false, 10},
    [OP_FAIL] = {"fail", false, false, true, false, 16},
    [OP_RESCHEDULE] = {"reschedule", true, false, true, true, 16},
    [OP_DROP] = {"drop", true, false, true, false, 10},
    [OP_REJECT] = {"reject", true, true, true, false, 16},
    [OP_REDRIVE] = {"redrive", true, true, false, false, 16},
    [OP_EXPIRE] = {"expire", true, false, false, false, 16},
    [OP_LATE] = {"late", true, true, true, false, 20},
    [OP_STEP] = {"step", false, false, true, false, 20},
    [OP_DATA] = {"data", true, true, true, false, 0},          /* see program_make */
    [OP_TRANSACT] = {"transact", true, true, true, true, 0},   /* see program_make */
    [OP_UPGRADE] = {"upgrade", false, false, false, false, 0}, /* see program_make */
    [OP_RENAME] = {"rename", true, false, false, false, 0},    /* see program_make */
    [OP_HAD] = {"had", true, true, true, false, 0},            /* see program_make */
    [OP_DIE] = {"die", true, true, true, false, 0},            /* see program_make */
};

const char *op_name(uint8_t kind) {
    return KINDS[kind].name;
}

static uint8_t pick_kind(uint64_t *random) {
    uint32_t sum = 0;
    for (int kind = 0; kind < OP_KINDS; kind++)
        sum += KINDS[kind].odds;
    uint32_t at = (uint32_t)qi_sim_below(random, sum);
    uint8_t kind = 0;
    while (at >= KINDS[kind].odds)
        at -= KINDS[kind++].odds;
    return kind;
}

static uint32_t pick_size(uint64_t *random) {
    uint64_t way = qi_sim_below(random, 16);
    return (uint32_t)(way < 9    ? qi_sim_below(random, 60)
                      : way < 14 ? 60 + qi_sim_below(random, 400)
                      : way < 15 ? 500 + qi_sim_below(random, 3000)
                                 : 0);
}

static struct op make_op(uint64_t *random, uint32_t queues) {
    struct op op = {.kind = pick_kind(random)};
    op.queue = (uint8_t)qi_sim_below(random, queues);
    op.count = (uint16_t)(1 + qi_sim_below(random, op.kind == OP_FANOUT ? 3 : 9));
    if (op.kind == OP_BATCH && qi_sim_below(random, 4) == 0)
        op.count = 30;
    op.size = op.kind <= OP_FANOUT ? pick_size(random) : (uint32_t)qi_sim_below(random, 1000);
    if (op.kind == OP_CUT)
        op.size = (uint32_t)qi_sim_random(random) >> 1;
    if (op.kind <= OP_FANOUT) {
        uint64_t way = qi_sim_random(random);
        op.flags = (way & 7 ? 0 : FLAG_TRANSIENT) | (way >> 3 & 7 ? 0 : FLAG_REDELIVERED) |
                   (way >> 6 & 7 ? 0 : FLAG_EXPIRES) | (way >> 9 & 7 ? 0 : FLAG_HEADERS) |
                   (way >> 12 & 7 ? 0 : FLAG_PRIORITY) | (way >> 15 & 7 ? 0 : FLAG_DELAY) |
                   (way >> 18 & 7 ? 0 : FLAG_PAST) |
                   (way >> 21 & 7 || op.kind != OP_PUBLISH ? 0 : FLAG_LEASE);
    } else if (op.kind == OP_GET || op.kind == OP_GET_MANY) {
        op.flags = qi_sim_below(random, 8) ? 0 : FLAG_LEASE;
    } else if (op.kind == OP_NACK || op.kind == OP_RESCHEDULE) {
        op.flags = qi_sim_below(random, 2) ? 0 : FLAG_DELAY;
        op.flags |= qi_sim_below(random, 6) ? 0 : FLAG_PAST;
    }
    return op;
}

/* Programs of stores that are of format 2, or become it: some of their operations are changes of a
 * mapping, transactions, and renames. */
static void put_data(struct program *program, bool often) {
    for (uint32_t i = 1; i < program->count; i += 2) {
        uint8_t *kind = &program->ops[i].kind;
        if (*kind == OP_ADVANCE || *kind == OP_STEP || *kind == OP_COMPACT || *kind == OP_EXPIRE ||
            (often && *kind == OP_PUBLISH && i % 5 < 2))
            *kind = OP_DATA;
        else if (*kind == OP_FANOUT || *kind == OP_BATCH)
            *kind = OP_TRANSACT;
        else if (often && (*kind == OP_DELETE || *kind == OP_CREATE || *kind == OP_LATE))
            *kind = OP_RENAME;
    }
}

/* Programs of stores whose batches are long now and then, and that get copies from other stores. */
static void put_long_and_copies(struct program *program) {
    for (uint32_t i = 0; i < program->count; i += 2) {
        struct op *op = &program->ops[i];
        if (op->kind == OP_ADVANCE || op->kind == OP_STEP || op->kind == OP_LATE)
            *op = (struct op){.kind = OP_HAD, .queue = op->queue, .count = op->count, .size = i};
        else if (op->kind == OP_BATCH && op->count < 30)
            op->size += LONG_BODY;
    }
}

/* Programs of stores of format 2 whose dead letters move, most of them between two queues. */
static void put_deaths(struct program *program) {
    for (uint32_t i = 0; i < program->count; i++) {
        struct op *op = &program->ops[i];
        op->queue &= i % 4 ? 2 : 3;
        if (op->kind == OP_REJECT || op->kind == OP_EXPIRE || op->kind == OP_REDRIVE ||
            op->kind == OP_LATE || op->kind == OP_PURGE || (op->kind == OP_ACK && i % 3 == 0))
            *op = (struct op){
                .kind = OP_DIE, .queue = 2 + op->queue % 2, .count = op->count, .size = op->size};
    }
}

struct program program_make(uint64_t seed, uint32_t count) {
    uint64_t random = seed * UINT64_C(0xD1342543DE82EF95) + 1;
    static const uint32_t entries[4] = {8, 16, 16, 128}, journals[4] = {12, 24, 24, 100};
    static const uint64_t bytes[3] = {9000, 10240, 20000}, files[3] = {700, 2048, 4096};
    static const uint32_t logs[4] = {8800, 9500, 12000, 1 << 20};
    struct program program = {
        .settings = {.seed = qi_sim_random(&random),
                     .mapping = qi_sim_below(&random, 2),
                     .segment_entries = entries[qi_sim_below(&random, 4)],
                     .max_journal_entries = journals[qi_sim_below(&random, 4)],
                     .embed_below = qi_sim_below(&random, 4) ? 64 : 100000,
                     .max_journal_bytes = bytes[qi_sim_below(&random, 3)],
                     .message_file_size = files[qi_sim_below(&random, 3)],
                     .keep_history = seed % 4 == 3 ? 30000 : 0,
                     .files = seed % 3 == 1   ? 8
                              : seed % 6 == 2 ? 14
                                              : 0,
                     .alone = seed % 5 == 1,
                     .crowd = seed % 11 < 5 ? 1 : 0,
                     .format = seed % 7 < 3 ? 2 : 1,
                     .few = seed % 7 < 3 && seed % 9 ? 1 : 3,
                     .log = logs[seed / 7 % 4],
                     .next = seed % 9 == 2},
        .ops = calloc(count, sizeof *program.ops),
        .count = count};
    if (!program.ops)
        abort();
    bool deaths = seed % 7 < 3 && seed % 5 > 2;
    uint32_t queues = 1 + (uint32_t)qi_sim_below(&random, QUEUES);
    queues = deaths ? QUEUES : queues;
    for (uint32_t i = 0; i < count; i++)
        program.ops[i] = make_op(&random, queues);
    for (uint32_t i = 0; i < count && seed % 7 < 5;
         i++) /* stores that stay in format 1 stay, too */
        if (program.ops[i].kind == OP_REOPEN)
            program.ops[i].kind = OP_UPGRADE;
    if (seed % 7 < 5)
        put_data(&program, seed % 7 < 3);
    if (deaths)
        put_deaths(&program);
    if (seed % 9 == 2)
        put_long_and_copies(&program);
    program.settings.never = qi_sim_below(&random, 4) == 0;
    return program;
}

struct program program_copy(const struct program *program) {
    struct program copy = *program;
    copy.ops = malloc((program->count + 1) * sizeof *copy.ops);
    if (!copy.ops)
        abort();
    memcpy(copy.ops, program->ops, program->count * sizeof *copy.ops);
    return copy;
}

void program_free(struct program *program) {
    free(program->ops);
    *program = (struct program){0};
}

char *program_write(const struct program *program) {
    const struct settings *s = &program->settings;
    size_t room = 200 + (size_t)program->count * 60, used = 0;
    char *text = malloc(room);
    if (!text)
        abort();
    used +=
        (size_t)snprintf(text, room,
                         "seed=%llu mapping=%d segment=%u journal=%u bytes=%llu embed=%u file=%llu "
                         "history=%u files=%u format=%u few=%u log=%u crowd=%u%s%s%s",
                         (unsigned long long)s->seed, s->mapping, s->segment_entries,
                         s->max_journal_entries, (unsigned long long)s->max_journal_bytes,
                         s->embed_below, (unsigned long long)s->message_file_size, s->keep_history,
                         s->files, s->format, s->few, s->log, s->crowd, s->alone ? " alone" : "",
                         s->never ? " never" : "", s->next ? " next" : "");
    for (uint32_t i = 0; i < program->count; i++) {
        const struct op *op = &program->ops[i];
        used += (size_t)snprintf(text + used, room - used, "; %s", op_name(op->kind));
        if (KINDS[op->kind].queue)
            used += (size_t)snprintf(text + used, room - used, " %c", 'a' + op->queue);
        if (KINDS[op->kind].count)
            used += (size_t)snprintf(text + used, room - used, " x%u", op->count);
        if (KINDS[op->kind].size)
            used += (size_t)snprintf(text + used, room - used, " %u", op->size);
        if (op->flags)
            used += (size_t)snprintf(text + used, room - used, " +");
        for (size_t flag = 0; flag < strlen(FLAG_LETTERS); flag++)
            if (op->flags >> flag & 1)
                text[used++] = FLAG_LETTERS[flag];
    }
    text[used] = 0;
    return text;
}

static bool read_op(const char *text, struct op *op) {
    char name[16], *end;
    int used = 0;
    *op = (struct op){.count = 1};
    if (sscanf(text, " %15[a-z_]%n", name, &used) != 1)
        return false;
    while (op->kind < OP_KINDS && strcmp(KINDS[op->kind].name, name) != 0)
        op->kind++;
    if (op->kind == OP_KINDS)
        return false;
    for (text += used; *text && *text != ';';) {
        if (*text >= 'a' && *text < 'a' + QUEUES) {
            op->queue = (uint8_t)(*text++ - 'a');
        } else if (*text == 'x') {
            op->count = (uint16_t)strtoul(text + 1, &end, 10);
            text = end;
        } else if (*text >= '0' && *text <= '9') {
            op->size = (uint32_t)strtoul(text, &end, 10);
            text = end;
        } else if (*text == '+') {
            for (text++; *text && strchr(FLAG_LETTERS, *text); text++)
                op->flags |= (uint8_t)(1 << (strchr(FLAG_LETTERS, *text) - FLAG_LETTERS));
        } else if (*text++ != ' ') {
            return false;
        }
    }
    return true;
}

/* Behind its name; NULL: the program is older than the setting, or does without. */
static const char *setting(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at && at < text + strcspn(text, ";") ? at + strlen(name) : NULL;
}

static uint32_t number_of(const char *text, const char *name, uint32_t otherwise) {
    const char *at = setting(text, name);
    return at ? (uint32_t)strtoul(at, NULL, 10) : otherwise;
}

bool program_read(const char *text, struct program *program) {
    unsigned long long seed, bytes, file;
    int mapping;
    struct settings *s = &program->settings;
    *program = (struct program){0};
    if (sscanf(text, "seed=%llu mapping=%d segment=%u journal=%u bytes=%llu embed=%u file=%llu",
               &seed, &mapping, &s->segment_entries, &s->max_journal_entries, &bytes,
               &s->embed_below, &file) != 7)
        return false;
    s->alone = setting(text, " alone") != NULL;
    s->never = setting(text, " never") != NULL;
    s->next = setting(text, " next") != NULL;
    s->files = number_of(text, " files=", 0);
    s->keep_history = number_of(text, " history=", 0);
    s->format = number_of(text, " format=", 1);
    s->few = number_of(text, " few=", 0);
    s->log = number_of(text, " log=", 0);
    s->crowd = number_of(text, " crowd=", 0);
    s->seed = seed;
    s->mapping = mapping != 0;
    s->max_journal_bytes = bytes;
    s->message_file_size = file;
    program->ops = calloc(strlen(text) / 4 + 1, sizeof *program->ops);
    for (text = strchr(text, ';'); program->ops && text; text = strchr(text + 1, ';'))
        if (!read_op(text + 1, &program->ops[program->count++]))
            return false;
    return program->ops != NULL;
}
