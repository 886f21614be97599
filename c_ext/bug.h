/* bug.h - protocol bugs on purpose, so that the crash explorer can show that it would see them.
 *
 * `if (!QI_BUG(sync_directory_left_out))` stands at the place that a rule of ARCHITECTURE.rst protects. In every normal
 * build it is the constant 0 and leaves no code; with -DQI_BUGS one bug at a time is chosen by name (tools/explore.py
 * --mutants), and the explorer must find it.
 */
#ifndef QI_BUG_H
#define QI_BUG_H

#ifdef QI_BUGS
#include <string.h>
extern const char *qi_bug; /* the name of the one that is alive, or "" */
#define QI_BUG(name) (strcmp(qi_bug, #name) == 0)
#else
#define QI_BUG(name) 0
#endif

#endif
