/* sim_store.c - the engine on the simulated disk. */
#include "../store.h"
#include "disk_sim.h"

int qi_store_open_sim(qi_sim *sim, const qi_options *options, qi_store **store) {
    return qi_store_open_on(&sim->disk, "/", options, store);
}
