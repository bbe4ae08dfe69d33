#include "cpu_pick.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* Launches on each side that are compared; one more is not, in which threads may have been made. */
#define SAMPLES 6
/* Launches from the first comparison to the next; doubled each time. */
#define HOLD 512
#define MOST_HOLD 1048576U
/* Launches that took longer than usual, at first; four times as many after each round. */
#define PATIENCE 8
/* Of the usual time, in percent: what is longer than that. One launch says little, but where most
 * of them are, other threads came. */
#define LONGER 150
#define SLOW_TEAMS 3
/* Of the pool's time, in percent, that the runtime's may take and be picked. Its threads are on
 * CPUs for milliseconds after a launch, which no launch shows. */
#define CLEARLY_LESS 90
/* The runtime's are given up before a round ends where each launch takes so many times as long. A
 * team waits for all its threads, so on a busy machine one launch may take many milliseconds. */
#define FAR_MORE 3

#define PLACES 256

static struct {
    const void *kernel;
    int size, own, team;
    struct silo_cpu_pick known;
} places[PLACES];

static _Atomic int
    better[2]; /* kernels that the pool's threads, and the runtime's, are faster for */

struct silo_cpu_pick *silo_cpu_pick_of(const void *kernel, uint64_t programs, int own, int team) {
    int size = 0;
    for (; programs > 1; programs >>= 1)
        size++;
    const uint64_t mixed =
        ((uint64_t)(uintptr_t)kernel / 16 + (uint64_t)size) * 0x9e3779b97f4a7c15U;
    const size_t place = (size_t)(mixed >> 56) % PLACES;
    if (places[place].kernel != kernel || places[place].size != size || places[place].own != own ||
        places[place].team != team) {
        if (places[place].known.hold != 0)
            atomic_fetch_sub(&better[places[place].known.team], 1);
        memset(&places[place], 0, sizeof places[place]);
        places[place].kernel = kernel;
        places[place].size = size;
        places[place].own = own;
        places[place].team = team;
    }
    return &places[place].known;
}

void silo_cpu_pick_count(int *own, int *team) {
    *own = atomic_load(&better[0]);
    *team = atomic_load(&better[1]);
}

void silo_cpu_pick_forget(void) {
    memset(places, 0, sizeof places);
    atomic_store(&better[0], 0);
    atomic_store(&better[1], 0);
}

static uint64_t mean(const struct silo_cpu_pick *known, bool team) {
    return (known->taken[team] - known->longest[team]) / (known->samples[team] - 2);
}

static void end_round(struct silo_cpu_pick *known, bool team) {
    const struct silo_cpu_pick before = *known;
    if (before.hold != 0)
        atomic_fetch_sub(&better[before.team], 1);
    atomic_fetch_add(&better[team], 1);
    *known = (struct silo_cpu_pick){.team = team, .usual = mean(&before, team)};
    /* Ever more seldom: a round may cost many milliseconds on a busy machine. */
    known->hold = before.hold == 0 ? HOLD : before.hold < MOST_HOLD ? 2 * before.hold : MOST_HOLD;
    known->left = known->hold;
    known->patience = before.patience == 0          ? PATIENCE
                      : before.patience < MOST_HOLD ? 4 * before.patience
                                                    : MOST_HOLD;
}

/* While the faster ones of the last round are used. */
static void hold(struct silo_cpu_pick *known, uint64_t took) {
    known->left--;
    const uint64_t most =
        known->team ? known->usual * FAR_MORE : known->usual + known->usual / 100 * (LONGER - 100);
    if (took > most)
        known->slow++;
    else if (known->slow > 0)
        known->slow--;
    if (known->team && known->slow >= SLOW_TEAMS) { /* the machine is busy now */
        atomic_fetch_sub(&better[1], 1);
        atomic_fetch_add(&better[0], 1);
        known->team = false;
        known->slow = 0;
        known->usual = took;
        known->left = known->hold;
    } else if (known->slow >= known->patience) { /* other threads came, maybe the runtime's */
        known->left = 0;
    }
}

bool silo_cpu_pick_team(const struct silo_cpu_pick *known) {
    if (known->left > 0)
        return known->team;
    return known->samples[0] > SAMPLES; /* the pool's first: the runtime's spin for long */
}

void silo_cpu_pick_tell(struct silo_cpu_pick *known, bool team, uint64_t took) {
    if (known->left > 0) {
        hold(known, took);
        return;
    }
    if (known->samples[team]++ == 0)
        return; /* threads may have been made */
    known->taken[team] += took;
    if (took > known->longest[team])
        known->longest[team] = took;
    if (known->least[team] == 0 || took < known->least[team])
        known->least[team] = took;
    if (known->samples[0] <= SAMPLES || !team)
        return;
    if (known->samples[1] == 3 && known->least[1] / FAR_MORE > known->longest[0])
        end_round(known, false);
    else if (known->samples[1] > SAMPLES)
        end_round(known, mean(known, true) < mean(known, false) / 100 * CLEARLY_LESS);
}
