/* sim_store.c - the engine on the simulated disk. */
#include "index/index.h"
#include "proof/sim/disk_sim.h"
#include "store/store.h"

uint64_t qi_sim_next_id(qi_queue *queue, uint32_t lane) {
    const struct qi_lane *found = qi_lane_find(&queue->lanes, lane);
    return found ? found->next : qi_lane_start(lane) | queue->floor;
}

int qi_store_open_sim(qi_sim *sim, const qi_options *options, qi_store **store) {
    return qi_store_open_on(&sim->disk, "/", options, store);
}
