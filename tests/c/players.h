/* players.h - what a thread of a play has in its hands. */
#ifndef PLAYERS_H
#define PLAYERS_H

#include "ledger.h"
#include "stage_disk.h"

#define OUT_MAX 512u
#define PLAYERS 3

struct item {
    uint64_t req_id, leased_until, delivery;
    uint32_t deliveries;
};

struct player {
    struct item out[QUEUES][OUT_MAX];
    uint32_t out_count[QUEUES];
};

static uint32_t new_body(uint8_t body[200]) {
    uint32_t size = roll(4) ? roll(60) : 200;
    memset(body, (int)size, size);
    return size;
}

/* Something that the player has leaves its hands; several at once only without a lease. */
static uint32_t pick(struct player *player, int q, struct item *items, uint32_t most) {
    uint32_t count = 0;
    while (count < most && player->out_count[q] > 0) {
        uint32_t at = roll(player->out_count[q]);
        bool is_leased = player->out[q][at].leased_until != 0;
        if (is_leased && count > 0)
            break;
        items[count++] = player->out[q][at];
        player->out[q][at] = player->out[q][--player->out_count[q]];
        if (is_leased)
            break;
    }
    return count;
}

#endif
