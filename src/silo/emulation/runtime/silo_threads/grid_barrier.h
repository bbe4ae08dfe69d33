// A barrier for all groups of a cooperative launch, each of which runs on its own host thread.
#pragma once

#include "fibers.h"

namespace silo_threads {

// `struct silo_cpu_gate` of Silo's CPU driver.
struct Gate {
    unsigned long met; // bits 0 to 31: waiting groups; bits 32 to 63: groups that have ended
    unsigned turn;     // how often all groups have met
    unsigned broken;   // whether groups wait for groups that have ended
};

// The part of `struct silo_context`, of Silo's CPU driver, that contains the gate.
struct GridContext {
    Context fault;
    unsigned long program;
    void (*wait)(void *); // called again and again while a group waits; may leave the launch
                          // instead of returning
    unsigned spare[6];
    unsigned long memory[8];
    Gate *gate; // null if the launch is not cooperative
};
static_assert(__builtin_offsetof(GridContext, program) == 1024 &&
              __builtin_offsetof(GridContext, gate) == 1128);

inline Gate *gate_of(const Group &in) {
    const auto context = reinterpret_cast<GridContext *>(in.context);
    return context && context->fault.bytes >= sizeof *context ? context->gate : nullptr;
}

inline unsigned long groups_of(const Group &in) {
    return (unsigned long)in.grid[0] * in.grid[1] * in.grid[2];
}

constexpr unsigned long one_ended = 1ul << 32;

// Returns true if the wait can never end: every group waits or has ended, with at least one of
// each.
inline bool is_broken(unsigned long met, unsigned long groups) {
    const unsigned long waiting = met % one_ended, ended = met / one_ended;
    return waiting && ended && waiting + ended == groups;
}

[[gnu::noinline, gnu::cold]] inline bool gate_fault(Runner &run, unsigned ended) {
    note_fault(run, Fault::barrier_missed, run.grid_place,
               "the barrier of the grid is not reached by every " SILO_THREADS_GROUP
               ": %u of the grid ended or went another way",
               ended);
    return false;
}

// Waits for the other groups of the launch, on the host's stack. Returns false after a fault.
inline bool meet_grid(Runner &run) {
    const unsigned long groups = groups_of(run);
    if (groups == 1)
        return true;
    Gate *const gate = gate_of(run);
    if (!gate) {
        note_fault(run, Fault::bad_argument, run.grid_place,
                   "a barrier of the grid, in a launch that is not cooperative");
        return false;
    }
    const auto context = reinterpret_cast<GridContext *>(run.context);
    const unsigned turn = __atomic_load_n(&gate->turn, __ATOMIC_RELAXED);
    const unsigned long met = __atomic_add_fetch(&gate->met, 1, __ATOMIC_ACQ_REL);
    if (met == groups) {
        __atomic_store_n(&gate->met, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&gate->turn, turn + 1, __ATOMIC_RELEASE);
        return true;
    }
    if (is_broken(met, groups)) {
        __atomic_store_n(&gate->broken, 1, __ATOMIC_RELAXED);
        return gate_fault(run, unsigned(met / one_ended));
    }
    // Restore the caller's value now, because `wait` may leave the launch without returning.
    own_group() = run.outer;
    while (__atomic_load_n(&gate->turn, __ATOMIC_ACQUIRE) == turn) {
        if (__atomic_load_n(&gate->broken, __ATOMIC_RELAXED))
            return gate_fault(run,
                              unsigned(__atomic_load_n(&gate->met, __ATOMIC_RELAXED) / one_ended));
        if (context->wait)
            context->wait(context);
    }
    own_group() = &run;
    return true;
}

// Records that a group has ended, for the groups that wait at the barrier.
inline void leave_grid(Runner &run) {
    Gate *const gate = gate_of(run);
    if (gate &&
        is_broken(__atomic_add_fetch(&gate->met, one_ended, __ATOMIC_ACQ_REL), groups_of(run)))
        __atomic_store_n(&gate->broken, 1, __ATOMIC_RELAXED);
}

// Waits at the barrier of the grid; called by each thread. The threads of the group meet first, and
// then the first of them to run waits for the other groups.
[[gnu::noinline]] inline void pass_grid(Runner &run, Place place) {
    run.grid_turn++;
    run.grid_place = place;
    run.at_grid = true;
    silo_threads_switch(&run.fiber[run.current].stack, run.host);
}

[[gnu::always_inline, clang::convergent]] inline void wait_at_grid(unsigned flags, Place place) {
    Runner &run = runner();
    const unsigned turn = run.grid_turn;
    wait_at_barrier(flags, place);
    if (run.grid_turn == turn)
        pass_grid(run, place);
}

// Runs every thread of the group until it ends, and waits for other groups in between. Returns
// false after a fault.
inline bool run_group_of_grid(Runner &run) {
    run.grid_turn = 0;
    run.at_grid = false;
    begin_group(run);
    while (run.at_grid) {
        run.at_grid = false;
        if (!meet_grid(run))
            break;
        silo_threads_switch(&run.host, run.fiber[run.current].stack);
    }
    if (!end_group(run))
        return false;
    leave_grid(run);
    return true;
}

} // namespace silo_threads
