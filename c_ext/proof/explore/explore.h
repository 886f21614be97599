/* explore.h - the crash explorer: one run of a program covers all its crash points.
 *
 * Before each change of the disk and after each sync the player stops, and the explorer takes
 * several images of what a power cut would leave there. Each is recovered and compared with the
 * model, the power is cut again right after, and for some of them at every call inside the recovery
 * too, three levels deep. The run itself goes on untouched.
 */
#ifndef EXPLORE_H
#define EXPLORE_H

#include "proof/explore/player.h"

struct counts {
    uint64_t points, recoveries, programs, nested, barriers, damages, findings;
};

struct explorer {
    uint64_t seed;
    uint32_t images;     /* per point */
    uint64_t only_point; /* look at this point alone; 0: at all */
    uint32_t every;      /* look at one point in so many: more programs for the same time */
    uint64_t points_max; /* stop behind so many, over all programs */
    bool kills;          /* look at what a kill leaves, too */
    struct counts counts;
    uint64_t point; /* within the program; from 1 */
    struct sight first, second;
    char call[32]; /* where a finding was made */
    uint32_t image;
    const char *kind; /* of the last finding */
};

/* Recovers the image (and frees it) and says whether that is what the model allows. `depth`: how
 * many more power cuts inside the recovery to try. */
bool image_is_allowed(struct explorer *explorer, struct qi_sim *image, struct model *model,
                      const struct settings *settings, bool killed, int depth, uint64_t random,
                      struct verdict *verdict);

/* Damages a file of the image (and frees it): what is lost must be told, what is shown must be
 * right. */
bool damage_is_told(struct explorer *explorer, struct qi_sim *image, struct model *model,
                    const struct settings *settings, uint64_t random, struct verdict *verdict);

/* Runs one program; true: no finding. Else verdict, explorer->point and ->call tell. */
bool explore_program(struct explorer *explorer, const struct program *program,
                     struct verdict *verdict);
/* A shorter program with a finding; at most `tries` runs. */
struct program explore_shrink(struct explorer *explorer, const struct program *program,
                              uint32_t tries);

#endif
