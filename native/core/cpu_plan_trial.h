/* Whether a replay of a plan on the CPU runs its launches in order, or at the same time where they
 * may. Both ways are tried and compared; the comparison is repeated, and sooner when it is in
 * doubt. Functions of the told times alone, which read no clock. */
#ifndef SILO_CPU_PLAN_TRIAL_H
#define SILO_CPU_PLAN_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

enum silo_plan_order { SILO_PLAN_IN_ORDER, SILO_PLAN_TOGETHER };

/* Why the last replay ran in order, or together. */
enum silo_plan_trial_reason {
    SILO_TRIAL_ONE_THREAD, /* launches have one thread */
    SILO_TRIAL_LARGE,      /* a launch is worth several threads itself */
    SILO_TRIAL_MEASURES,   /* the ways are being compared */
    SILO_TRIAL_AGAIN,      /* compared anew: replays took longer than the other way had */
    SILO_TRIAL_SHORT,      /* a replay in order is too short to share */
    SILO_TRIAL_NEAR,       /* the ways took about as long: compared again soon */
    SILO_TRIAL_FASTER,     /* it took less, in the first comparison: compared again soon */
    SILO_TRIAL_CONFIRMED,  /* it took less in several comparisons */
    SILO_TRIAL_REASONS,    /* their number */
};

/* A sentence for each. */
extern const char *const silo_plan_trial_texts[SILO_TRIAL_REASONS];

struct silo_plan_trial {
    uint64_t least[2]; /* nanoseconds of each way in the comparison that runs, or the last one */
    uint64_t order;    /* nanoseconds in order, as last compared; 0: not known */
    uint32_t tried[2]; /* replays in that comparison */
    uint32_t left;     /* replays until the next comparison; 0: it is under way */
    uint32_t hold;     /* `left` at the end of the last comparison; 0: none yet */
    uint32_t slow;     /* replays in a row that took longer than the other way had */
    uint8_t best;      /* enum silo_plan_order */
    uint8_t settled;   /* enum silo_plan_trial_reason of the last comparison */
    uint8_t reason;
    bool counts; /* the caller has to pass the last replay's time */
};

void silo_plan_trial_init(struct silo_plan_trial *trial);

/* The way of the next replay, on so many threads. `large`: a launch is worth several threads. */
enum silo_plan_order silo_plan_trial_next(struct silo_plan_trial *trial, int threads, bool large);

/* Record that a replay in this way took so many nanoseconds. */
void silo_plan_trial_tell(struct silo_plan_trial *trial, enum silo_plan_order way, uint64_t took);

#endif
