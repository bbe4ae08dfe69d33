#include "cpu_plan_trial.h"

/* The number of replays of each way (in order, together) in a comparison. The ways alternate, so
 * that noise affects both. */
#define TRIES 4
/* Replays of fewer than this many nanoseconds are not worth a second thread. */
#define LEAST_REPLAY UINT64_C(6000)
/* Replays between two comparisons: FEWEST while the result is in doubt; doubled, up to MOST, after
 * each comparison with the same result. A comparison costs four replays of the slower way. */
#define FEWEST 64
#define MOST 1000
/* If the ratio of two times is above 7/8, they count as equal: noise would decide which is shorter,
 * and choosing the slower way costs little. */
#define NEAR_PART 8
/* If this many replays in a row were slower than the shortest replay of the other way, that is not
 * chance, and the next comparison may start early. */
#define SLOW 8
/* Slow replays start the next comparison only after 1/16 of the replays that were planned to come
 * before it. */
#define EARLIEST_PART 16

const char *const silo_plan_trial_texts[SILO_TRIAL_REASONS] = {
    [SILO_TRIAL_ONE_THREAD] = "launches have one thread",
    [SILO_TRIAL_LARGE] = "a launch is worth several threads by itself",
    [SILO_TRIAL_MEASURES] = "launches that use other memory may run at one time: both ways are "
                            "being compared",
    [SILO_TRIAL_AGAIN] = "both ways are being compared again: replays took longer than the other "
                         "way had",
    [SILO_TRIAL_SHORT] = "a replay is too short for a second thread",
    [SILO_TRIAL_NEAR] = "both ways took about as long: they are compared again soon",
    [SILO_TRIAL_FASTER] =
        "it took less than the other way in one comparison, and is compared again "
        "soon",
    [SILO_TRIAL_CONFIRMED] = "it took less than the other way in each of several comparisons",
};

static void begin(struct silo_plan_trial *trial) {
    trial->least[0] = trial->least[1] = UINT64_MAX;
    trial->tried[0] = trial->tried[1] = 0;
    trial->left = trial->slow = 0;
}

void silo_plan_trial_init(struct silo_plan_trial *trial) {
    *trial =
        (struct silo_plan_trial){.settled = SILO_TRIAL_MEASURES, .reason = SILO_TRIAL_MEASURES};
    begin(trial);
}

/* Ends a comparison, after both ways were tried, or after a replay in order that was too short to
 * be worth a second thread. */
static void settle(struct silo_plan_trial *trial) {
    const uint64_t order = trial->least[SILO_PLAN_IN_ORDER];
    const uint64_t together = trial->least[SILO_PLAN_TOGETHER];
    const bool short_one = order < LEAST_REPLAY;
    const uint8_t best = !short_one && together < order ? SILO_PLAN_TOGETHER : SILO_PLAN_IN_ORDER;
    const uint64_t faster = order < together ? order : together;
    const uint64_t slower = order < together ? together : order;
    const bool same =
        trial->hold != 0 && best == trial->best &&
        (trial->settled == SILO_TRIAL_FASTER || trial->settled == SILO_TRIAL_CONFIRMED);
    trial->order = order;
    trial->best = best;
    if (short_one) {
        trial->settled = SILO_TRIAL_SHORT;
        trial->hold = MOST;
    } else if (faster * NEAR_PART > slower * (NEAR_PART - 1)) {
        trial->settled = SILO_TRIAL_NEAR;
        trial->hold = FEWEST;
    } else if (same) {
        trial->settled = SILO_TRIAL_CONFIRMED;
        trial->hold = 2 * trial->hold < MOST ? 2 * trial->hold : MOST;
    } else {
        trial->settled = SILO_TRIAL_FASTER;
        trial->hold = FEWEST;
    }
    trial->left = trial->hold;
    trial->slow = 0;
    trial->reason = trial->settled;
}

enum silo_plan_order silo_plan_trial_next(struct silo_plan_trial *trial, int threads, bool large) {
    trial->counts = threads > 1 && !large;
    if (!trial->counts) {
        trial->reason = threads > 1 ? SILO_TRIAL_LARGE : SILO_TRIAL_ONE_THREAD;
        return SILO_PLAN_IN_ORDER;
    }
    if (trial->left == 0) {
        const uint32_t *tried = trial->tried;
        if (trial->reason != SILO_TRIAL_AGAIN)
            trial->reason = SILO_TRIAL_MEASURES;
        if (tried[SILO_PLAN_IN_ORDER] == 0)
            return SILO_PLAN_IN_ORDER;
        if (trial->least[SILO_PLAN_IN_ORDER] >= LEAST_REPLAY && tried[SILO_PLAN_TOGETHER] < TRIES)
            return tried[SILO_PLAN_TOGETHER] < tried[SILO_PLAN_IN_ORDER] ? SILO_PLAN_TOGETHER
                                                                         : SILO_PLAN_IN_ORDER;
        settle(trial);
    }
    trial->reason = trial->settled;
    return (enum silo_plan_order)trial->best;
}

void silo_plan_trial_record(struct silo_plan_trial *trial, enum silo_plan_order order,
                            uint64_t duration) {
    if (!trial->counts)
        return;
    if (trial->left == 0) {
        if (duration < trial->least[order])
            trial->least[order] = duration;
        trial->tried[order]++;
        return;
    }
    const uint64_t other =
        trial->settled == SILO_TRIAL_SHORT ? 2 * LEAST_REPLAY : trial->least[!trial->best];
    trial->slow = duration > other ? trial->slow + 1 : 0;
    trial->left--;
    const bool early =
        trial->slow >= SLOW && trial->hold - trial->left >= trial->hold / EARLIEST_PART;
    if (early)
        trial->reason = SILO_TRIAL_AGAIN;
    if (early || trial->left == 0)
        begin(trial);
}
