/* main.c - the explorer as a program; tools/explore.py builds it and shows what it says.
 *
 * It prints one line per event, a word and then key=value pairs: progress, finding, program, done.
 * Exit code 0: nothing found, 1: a finding, 2: wrong arguments.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "proof/explore/flips.h"
#include "proof/explore/sweep.h"

#define FLIPS_EACH  200u /* of one program's image */
#define HANGS_AFTER 60u  /* seconds without a new program */

#ifdef QI_BUGS
const char *qi_bug = "";
#endif

static uint64_t now_seed;
static const struct explorer *now_explorer;
static struct sweep sweep; /* --faults */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The engine died or hangs: at least say where. */
static void last_words(int number) {
    char fault[40] = "none";
    if (sweep.fault.at)
        fault_write(&sweep.fault, fault, sizeof fault);
    printf("\nfinding seed=%llu point=%llu image=%u fault=%s call=signal %s\n",
           (unsigned long long)now_seed, (unsigned long long)now_explorer->point,
           now_explorer->image, fault, number == SIGALRM ? "it hangs" : strsignal(number));
    fflush(stdout);
    _Exit(1);
}

/* SIGALRM if it takes longer; 0: it may. */
static void watch_out(uint32_t limit) {
    struct itimerval timer = {.it_value = {.tv_sec = limit}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void progress(const char *word, const struct explorer *explorer, double begun) {
    const struct counts *counts = &explorer->counts;
    printf("%s points=%llu recoveries=%llu nested=%llu barriers=%llu damages=%llu programs=%llu "
           "seconds=%.2f\n",
           word, (unsigned long long)counts->points, (unsigned long long)counts->recoveries,
           (unsigned long long)counts->nested, (unsigned long long)counts->barriers,
           (unsigned long long)counts->damages, (unsigned long long)counts->programs,
           seconds() - begun);
    fflush(stdout);
}

static void tell(const struct explorer *explorer, const char *seed, const struct program *program,
                 const struct verdict *verdict) {
    printf("finding seed=%s point=%llu image=%u call=%s %s\n", seed,
           (unsigned long long)explorer->point, explorer->image, explorer->call, verdict->text);
    char *text = program_write(program);
    printf("program %s\n", text);
    free(text);
    fflush(stdout);
}

struct arguments {
    struct explorer explorer;
    uint64_t seed;
    uint32_t operations;
    const char *program;
    bool shrink, sweeps;
    uint64_t flips;     /* --flips: so many damaged places */
    struct fault fault; /* of a sweep, this one alone */
    uint64_t programs_max;
    double time_max;
};

static bool read_arguments(int count, char **words, struct arguments *arguments) {
    for (int i = 1; i < count; i++) {
        const char *word = words[i], *value = i + 1 < count ? words[i + 1] : "";
        unsigned long long number = strtoull(value, NULL, 10);
        if (strcmp(word, "--shrink") == 0) {
            arguments->shrink = true;
            continue;
        }
        if (strcmp(word, "--faults") == 0) {
            arguments->sweeps = true;
            continue;
        }
        if (strcmp(word, "--seed") == 0)
            arguments->seed = number;
        else if (strcmp(word, "--points") == 0)
            arguments->explorer.points_max = number;
        else if (strcmp(word, "--point") == 0)
            arguments->explorer.only_point = number;
        else if (strcmp(word, "--images") == 0)
            arguments->explorer.images = (uint32_t)number;
        else if (strcmp(word, "--every") == 0)
            arguments->explorer.every = (uint32_t)number;
        else if (strcmp(word, "--operations") == 0)
            arguments->operations = (uint32_t)number;
        else if (strcmp(word, "--flips") == 0)
            arguments->flips = number;
        else if (strcmp(word, "--programs") == 0)
            arguments->programs_max = number;
        else if (strcmp(word, "--fault") == 0 && fault_read(value, &arguments->fault))
            sweep.only = &arguments->fault;
        else if (strcmp(word, "--seconds") == 0)
            arguments->time_max = (double)number;
#ifdef QI_BUGS
        else if (strcmp(word, "--bug") == 0)
            qi_bug = value;
#endif
        else if (strcmp(word, "--program") == 0)
            arguments->program = value;
        else
            return false;
        i++;
    }
    return true;
}

static int one_program(struct arguments *arguments) {
    struct program program;
    struct verdict verdict;
    if (!program_read(arguments->program, &program))
        return 2;
    arguments->explorer.seed = arguments->seed;
    watch_out(HANGS_AFTER);
    bool clean = explore_program(&arguments->explorer, &program, &verdict);
    if (!clean)
        tell(&arguments->explorer, "0", &program, &verdict);
    program_free(&program);
    return !clean;
}

static int many_programs(struct arguments *arguments, double begun) {
    struct explorer *explorer = &arguments->explorer;
    double told = begun;
    int found = 0;
    while (!found && explorer->counts.points < explorer->points_max &&
           (arguments->time_max <= 0 || seconds() - begun < arguments->time_max)) {
        struct program program = program_make(arguments->seed, arguments->operations);
        struct verdict verdict;
        char seed[24];
        now_seed = explorer->seed = arguments->seed;
        watch_out(HANGS_AFTER);
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)arguments->seed++);
        if (!explore_program(explorer, &program, &verdict)) {
            tell(explorer, seed, &program, &verdict);
            found = 1;
            if (arguments->shrink) {
                watch_out(0); /* this may take a while */
                struct program shorter = explore_shrink(explorer, &program, 400);
                explore_program(explorer, &shorter, &verdict);
                tell(explorer, seed, &shorter, &verdict);
                program_free(&shorter);
            }
        }
        program_free(&program);
        if (explorer->only_point)
            break;
        if (seconds() - told > 0.5) {
            told = seconds();
            progress("progress", explorer, begun);
        }
    }
    return found;
}

/* ---- --faults ---- */

static void begin_run(void) {
    watch_out(HANGS_AFTER);
}

static void tell_fault(struct sweep *of, const struct program *program,
                       const struct verdict *verdict) {
    char fault[40];
    fault_write(&of->fault, fault, sizeof fault);
    printf("finding seed=%llu fault=%s call=%s\n", (unsigned long long)of->explorer->seed, fault,
           verdict->text);
    char *text = program_write(program);
    printf("program %s\n", text);
    free(text);
    fflush(stdout);
}

static void tell_sweep(void) {
    static const char *const names[FAULT_KINDS] = {"eio", "enospc", "memory", "lost"};
    for (int kind = 0; kind < FAULT_KINDS; kind++)
        for (int ever = 0; ever < 2; ever++)
            printf("swept %s-%s=%llu/%llu\n", names[kind], ever ? "ever" : "once",
                   (unsigned long long)sweep.failed[kind][ever],
                   (unsigned long long)sweep.calls[kind][ever]);
    for (uint8_t op = 0; op < OP_KINDS + 2; op++)
        if (sweep.calls_of[op])
            printf("calls %s=%llu\n",
                   op < OP_KINDS    ? op_name(op)
                   : op == OP_KINDS ? "open"
                                    : "close",
                   (unsigned long long)sweep.calls_of[op]);
    printf("refused runs=%llu\n", (unsigned long long)sweep.refused);
}

static int sweep_programs(struct arguments *arguments, double begun) {
    struct explorer *explorer = &arguments->explorer;
    uint32_t found = 0;
    sweep.explorer = explorer;
    sweep.found = tell_fault;
    sweep.begin = begin_run;
    uint64_t last = arguments->seed + (arguments->program ? 1 : arguments->programs_max);
    for (; arguments->seed < last && found == 0; arguments->seed++) {
        struct program program;
        if (!arguments->program)
            program = program_make(arguments->seed, arguments->operations);
        else if (!program_read(arguments->program, &program))
            return 2;
        now_seed = explorer->seed = arguments->seed;
        found += sweep_program(&sweep, &program);
        program_free(&program);
        progress("progress", explorer, begun);
    }
    tell_sweep();
    return found > 0;
}

/* ---- --flips ---- */

static void tell_flips(const struct flips *flips) {
    static const char *const kinds[4] = {"gone", "bit", "zeros", "stale"};
    static const char *const reaches[REACHES] = {"nothing", "message", "frame",
                                                 "more",    "queue",   "store"};
    for (int kind = 0; kind < 4; kind++) {
        printf("flipped %s-tried=%llu %s-silent=%llu %s-wrong=%llu", kinds[kind],
               (unsigned long long)flips->tried[kind], kinds[kind],
               (unsigned long long)flips->silent[kind], kinds[kind],
               (unsigned long long)flips->wrong[kind]);
        for (int reach = 0; reach < REACHES; reach++)
            printf(" %s-%s=%llu", kinds[kind], reaches[reach],
                   (unsigned long long)flips->reach[kind][reach]);
        printf("\nmost %s-lost=%llu\n", kinds[kind], (unsigned long long)flips->most_lost[kind]);
    }
}

static int flip_programs(struct arguments *arguments, double begun) {
    struct explorer *explorer = &arguments->explorer;
    struct flips flips = {.explorer = explorer};
    uint64_t tried = 0;
    int found = 0;
    while (!found && tried < arguments->flips) {
        struct verdict verdict;
        struct program program = program_make(arguments->seed, arguments->operations);
        now_seed = explorer->seed = arguments->seed++;
        flips.each = arguments->flips - tried < FLIPS_EACH ? arguments->flips - tried : FLIPS_EACH;
        watch_out(HANGS_AFTER);
        if (!flips_program(&flips, &program, &verdict)) {
            char seed[24];
            snprintf(seed, sizeof seed, "%llu", (unsigned long long)explorer->seed);
            tell(explorer, seed, &program, &verdict);
            found = 1;
        }
        program_free(&program);
        tried = flips.tried[0] + flips.tried[1] + flips.tried[2] + flips.tried[3];
    }
    progress("progress", explorer, begun);
    tell_flips(&flips);
    return found;
}

int main(int count, char **words) {
    struct arguments arguments = {
        .explorer = {.images = 3, .points_max = UINT64_MAX, .kills = true},
        .seed = 1,
        .programs_max = 1,
        .operations = 150};
    if (!read_arguments(count, words, &arguments)) {
        fprintf(stderr, "unknown argument; see tools/explore.py\n");
        return 2;
    }
    now_explorer = &arguments.explorer;
    static const int deadly[] = {SIGALRM, SIGSEGV, SIGABRT, SIGBUS, SIGFPE};
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        signal(deadly[i], last_words);
    double begun = seconds();
    int code = arguments.flips     ? flip_programs(&arguments, begun)
               : arguments.sweeps  ? sweep_programs(&arguments, begun)
               : arguments.program ? one_program(&arguments)
                                   : many_programs(&arguments, begun);
    progress("done", &arguments.explorer, begun);
    return code;
}
