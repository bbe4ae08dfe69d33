/* Decides whether a replay of a CPU plan runs its launches in order, or together (at the same time
 * where possible). Both ways are tried and compared; the comparison is repeated, sooner while it is
 * in doubt. The functions read no clock: the caller passes the times. */
#ifndef SILO_CPU_PLAN_TRIAL_H
#define SILO_CPU_PLAN_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

enum silo_plan_order { SILO_PLAN_IN_ORDER, SILO_PLAN_TOGETHER };

/* The reason why the last replay ran in order or together. */
enum silo_plan_trial_reason {
    SILO_TRIAL_ONE_THREAD, /* launches may use one thread only */
    SILO_TRIAL_LARGE,      /* a launch is worth several threads by itself */
    SILO_TRIAL_MEASURES,   /* the ways are being compared */
    SILO_TRIAL_AGAIN,  /* the ways are compared again: replays were slower than the shortest replay
                          of the other way */
    SILO_TRIAL_SHORT,  /* a replay on one thread is so short that more threads cannot help */
    SILO_TRIAL_NEAR,   /* both ways took about the same time; they are compared again soon */
    SILO_TRIAL_FASTER, /* this way was faster in one comparison; the ways are compared again soon */
    SILO_TRIAL_CONFIRMED, /* this way was faster in several comparisons */
    SILO_TRIAL_REASONS,   /* number of reasons */
};

/* A sentence for each reason. */
extern const char *const silo_plan_trial_texts[SILO_TRIAL_REASONS];

struct silo_plan_trial {
    uint64_t least[2]; /* shortest replay in nanoseconds for each way (enum silo_plan_order), in the
                          current or last comparison */
    uint64_t order;    /* nanoseconds of the shortest replay that ran its launches in order
                          (SILO_PLAN_IN_ORDER) in the last comparison; 0: unknown */
    uint32_t tried[2]; /* number of replays of each way in that comparison */
    uint32_t left;     /* replays until the next comparison; 0 during a comparison */
    uint32_t hold;     /* initial value of `left` after the last comparison; 0: no comparison yet */
    uint32_t slow;   /* number of replays in a row that took longer than the shortest replay of the
                        other way */
    uint8_t best;    /* enum silo_plan_order: the faster way */
    uint8_t settled; /* enum silo_plan_trial_reason of the last comparison */
    uint8_t reason;
    bool counts; /* whether the caller must report the time of the last replay */
};

void silo_plan_trial_init(struct silo_plan_trial *trial);

/* Returns whether the next replay runs in order or together, on `threads` threads. `large`: some
 * launch is worth several threads by itself. */
enum silo_plan_order silo_plan_trial_next(struct silo_plan_trial *trial, int threads, bool large);

/* Records that a replay, which ran in order or together (`order`), took `duration` nanoseconds. */
void silo_plan_trial_record(struct silo_plan_trial *trial, enum silo_plan_order order,
                            uint64_t duration);

#endif
