/* limits.c - what the system allows this process. */
#define _GNU_SOURCE
#include "disk/disk_private.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A queue in use has up to two mappings beside three descriptors; half of all mappings are the
 * program's. */
uint32_t qi_files_limit(struct qi_disk *disk) {
    (void)disk;
    struct rlimit limit;
    uint64_t most = 65530 / 2;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    unsigned long maps;
    if (file && fscanf(file, "%lu", &maps) == 1 && maps > 0)
        most = maps / 2 < UINT32_MAX ? maps / 2 : UINT32_MAX;
    if (file)
        fclose(file);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < most)
        most = limit.rlim_cur;
    return (uint32_t)most;
}

/* The number in a file of the system; UINT64_MAX: there is none, or the file says "max". */
static uint64_t number_in(const char *path) {
    unsigned long long number;
    FILE *file = fopen(path, "re");
    bool found = file && fscanf(file, "%llu", &number) == 1;
    if (file)
        fclose(file);
    return found ? number : UINT64_MAX;
}

/* Of the control group that this process is in: what a container or a service may use. Version 2,
 * then version 1. */
static uint64_t group_limit(void) {
    char line[512], path[600];
    uint64_t most = number_in("/sys/fs/cgroup/memory.max");
    uint64_t older = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::", 3) != 0)
            continue;
        for (char *end = line + strlen(line); end > line + 3; end = strrchr(line + 3, '/')) {
            *end = 0; /* its own group, then those that this one is in */
            snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", line + 3);
            uint64_t own = number_in(path);
            most = own < most ? own : most;
        }
    }
    if (file)
        fclose(file);
    return most < older ? most : older;
}

uint64_t qi_memory_limit(struct qi_disk *disk) {
    (void)disk;
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
    uint64_t group = group_limit();
    return group < all ? group : all;
}
