// The threads of a group as fibers: each has its own stack, and one of them runs at a time. A
// thread that must wait switches to the next ready thread; nothing else ever interrupts a thread.
#pragma once

#include "hooks.h"
#include "switch.h"

namespace silo_threads {

// A thread is ready, parked, or ended. It parks at the barrier of its group or at an operation
// between lanes of a simdgroup (a warp). At such an operation lanes wait for each other, which is
// called a meeting.
enum class State : unsigned char { ready, at_barrier, at_lanes, ended };

struct Fiber {
    void *stack;      // the thread's stack pointer, while it does not run
    const void *site; // the call in which it is parked
    Place place;
    unsigned flags;  // the kinds of memory that the call orders
    unsigned wanted; // the lanes with which it must meet
    bool flexible;   // whether fewer lanes than `wanted` may meet
    State state;
};

// The values that lanes of a simdgroup pass to each other. A lane writes its values alternately to
// its two slots, because it may begin the next operation, but no later one, while other lanes still
// read the values of this one.
constexpr unsigned slot_bytes = 64;
constexpr unsigned result_bytes = 256;
struct Lanes {
    unsigned live;    // lanes that have not ended
    unsigned arrived; // lanes that are parked at an operation between lanes
    const void *site; // the call in which the first parked lane is parked
    bool mixed;       // whether another lane is parked in another call
    unsigned active;  // the lanes of the last meeting
    unsigned reading; // the lanes that may still read the values of the last meeting
    bool pending;     // whether a complete set of lanes waits until `reading` is empty
    unsigned turn;    // one bit for each lane: the number of its next slot
    unsigned met;     // one bit for each lane: its slot in the last meeting
    bool computed;    // whether `result` belongs to the last meeting
    alignas(16) unsigned char result[result_bytes];
    alignas(16) unsigned char slot[2][simd_width][slot_bytes];
};

constexpr unsigned most_words = most_threads / simd_width;

struct Runner : Group {
    void *host;               // the stack pointer of the caller, on the host thread's own stack
    Group *outer;             // the caller's value of own_group()
    void (*body)(Runner &);   // the code of a thread
    const void *arguments;    // passed to `body`
    unsigned at_barrier;      // number of threads that are parked at the barrier
    const void *barrier_site; // the call in which the first parked thread is parked
    bool barrier_mixed;
    unsigned ended;
    unsigned votes[2];  // sums of the threads' values at a barrier, used in turn
    unsigned turn;      // index in `votes` for the next barrier
    unsigned grid_turn; // how often the group has waited for the other groups
    bool at_grid;       // whether the group must wait for the other groups now
    Place grid_place;
    unsigned ready[most_words]; // a bit for each thread
    char *memory;               // memory that the threads share
    unsigned long memory_bytes; // size of `memory`
    char *stacks;
    unsigned long stride; // bytes from one stack to the next
    // Bit i: the checker knows the shared array at offset 16 * i.
    unsigned long announced[most_group_bytes / 16 / 64];
    Fiber fiber[most_threads];
    Lanes lanes[most_words];

    Lanes &own_lanes() {
        return lanes[current / simd_width];
    }
};

inline Runner &runner() {
    return *static_cast<Runner *>(own_group());
}

// Bytes of a thread's stack, unless the entry passes another size.
#ifndef SILO_THREADS_STACK
#define SILO_THREADS_STACK 16384
#endif
constexpr unsigned long stack_bytes = SILO_THREADS_STACK;
// The distance between stacks is not a power of two. Otherwise, variables at the same depth of all
// threads' stacks would compete for the same few cache sets.
constexpr unsigned long stack_gap = 5 * 64;
constexpr unsigned long stack_mark =
    0x6c6174654d6f6c69ul; // written at a stack's end, where it stays unless the stack overflows

extern "C" int snprintf(char *, unsigned long, const char *, ...);

[[noreturn, gnu::noinline, gnu::cold]] inline void leave(Runner &run) {
    void *nowhere;
    silo_threads_switch(&nowhere, run.host);
    __builtin_trap();
}

[[gnu::noinline, gnu::cold]] inline void note_fault(Group &in, Fault fault, Place place,
                                                    const char *text, unsigned number) {
    in.fault = fault;
    Context *context = in.context;
    if (!context || context->bytes < sizeof *context ||
        __atomic_exchange_n(&context->claimed, 1, __ATOMIC_RELAXED))
        return;
    const unsigned t = in.current, x = t % in.shape[0], y = t / in.shape[0] % in.shape[1],
                   z = t / in.shape[0] / in.shape[1];
    char said[512];
    snprintf(said, sizeof said, text, number);
    snprintf(context->text, sizeof context->text,
             place.line ? "%s:%u: %s (thread %u, %u, %u of " SILO_THREADS_GROUP " %u, %u, %u)"
                        : "%s%.0u%s (thread %u, %u, %u of " SILO_THREADS_GROUP " %u, %u, %u)",
             place.line ? place.file : "", place.line, said, x, y, z, in.position[0],
             in.position[1], in.position[2]);
}

[[noreturn, gnu::noinline, gnu::cold]] inline void fail(Fault fault, Place place,
                                                        const char *text) {
    Runner &run = runner();
    note_fault(run, fault, place, text);
    leave(run);
}

// ---- Choosing the next thread

inline unsigned words_of(const Runner &run) {
    return (run.size + simd_width - 1) / simd_width;
}

// Returns the number of the ready thread that follows `current`, with wrap-around; `size` if no
// thread is ready.
inline unsigned next_ready(Runner &run) {
    const unsigned from = run.current + 1;
    unsigned word = from / simd_width;
    const unsigned words = words_of(run);
    if (word < words) {
        const unsigned here = run.ready[word] & ~0u << from % simd_width;
        if (here)
            return word * simd_width + unsigned(__builtin_ctz(here));
        while (++word < words)
            if (run.ready[word])
                return word * simd_width + unsigned(__builtin_ctz(run.ready[word]));
    }
    for (word = 0; word < words; word++)
        if (run.ready[word])
            return word * simd_width + unsigned(__builtin_ctz(run.ready[word]));
    return run.size;
}

inline void set_ready(Runner &run, unsigned word, unsigned mask) {
    run.ready[word] |= mask;
}

// Makes all threads ready. All must be at the barrier.
inline void release_barrier(Runner &run, Place place, unsigned flags) {
    const unsigned words = words_of(run);
    for (unsigned word = 0; word < words; word++)
        run.ready[word] = run.lanes[word].live;
    run.at_barrier = 0;
    run.barrier_site = nullptr;
    run.turn ^= 1;
    run.votes[run.turn] = 0;
    hook::pass_barrier(run, place, flags);
}

// Ends a meeting of the lanes in `mask` and makes those lanes ready.
inline void release_lanes(Runner &run, unsigned word, unsigned mask, Place place, unsigned flags) {
    Lanes &lanes = run.lanes[word];
    lanes.active = lanes.reading = mask;
    lanes.met = lanes.turn;
    lanes.turn ^= mask;
    lanes.arrived &= ~mask;
    lanes.computed = false;
    lanes.site = nullptr;
    lanes.mixed = lanes.arrived; // lanes still parked may be in different calls
    set_ready(run, word, mask);
    hook::pass_simd(run, word, mask, SILO_THREADS_MASKED ? mask : lanes.live, place, flags);
}

// Returns the lanes of the simdgroup that meet the lane `own`, if all of them have arrived;
// otherwise 0.
inline unsigned complete(const Runner &run, unsigned word, const Fiber &own) {
    const Lanes &lanes = run.lanes[word];
    const unsigned target = own.wanted & lanes.live;
    if (target & ~lanes.arrived)
        return 0;
    for (unsigned rest = lanes.mixed ? target : 0; rest; rest &= rest - 1)
        if (run.fiber[word * simd_width + unsigned(__builtin_ctz(rest))].site != own.site)
            return 0;
    return target;
}

// Ends one meeting whose lanes have all arrived; returns false if there is none. A lane reads the
// values of its meeting until it parks or ends; before that, no other meeting of its simdgroup may
// overwrite them.
[[gnu::noinline]] inline bool release_complete(Runner &run, unsigned word) {
    Lanes &lanes = run.lanes[word];
    for (unsigned rest = lanes.arrived; rest; rest &= rest - 1) {
        const Fiber &one = run.fiber[word * simd_width + unsigned(__builtin_ctz(rest))];
        if (const unsigned mask = complete(run, word, one)) {
            release_lanes(run, word, mask, one.place, one.flags);
            return true;
        }
    }
    lanes.pending = false;
    return false;
}

// Records that the current thread has finished reading the values of its last meeting.
inline void done_reading(Runner &run) {
    const unsigned word = run.current / simd_width;
    Lanes &lanes = run.lanes[word];
    lanes.reading &= ~(1u << run.current % simd_width);
    if (__builtin_expect(lanes.pending && !lanes.reading, 0))
        release_complete(run, word);
}

// Called when no thread is ready. In each simdgroup, the lanes that wait at the lowest code address
// go on without the others, as diverged lanes do on the hardware. If no lanes can go on, some
// threads wait at a barrier that others cannot reach, which is a fault.
[[gnu::noinline, gnu::cold]] inline void resolve(Runner &run) {
    bool any = false;
    for (unsigned word = 0; word < words_of(run); word++) {
        Lanes &lanes = run.lanes[word];
        if (!lanes.arrived)
            continue;
        if (release_complete(run, word)) { // the missing lanes have ended meanwhile
            any = true;
            continue;
        }
        const void *first = nullptr;
        for (unsigned rest = lanes.arrived; rest; rest &= rest - 1) {
            const Fiber &one = run.fiber[word * simd_width + unsigned(__builtin_ctz(rest))];
            if (one.flexible && (!first || one.site < first))
                first = one.site;
        }
        if (!first)
            continue;
        unsigned mask = 0;
        for (unsigned rest = lanes.arrived; rest; rest &= rest - 1) {
            const unsigned lane = unsigned(__builtin_ctz(rest));
            if (run.fiber[word * simd_width + lane].site == first)
                mask |= 1u << lane;
        }
        const Fiber &one = run.fiber[word * simd_width + unsigned(__builtin_ctz(mask))];
        release_lanes(run, word, mask, one.place, one.flags);
        any = true;
    }
    if (any)
        return;
    for (unsigned word = 0; word < words_of(run); word++) {
        const Lanes &lanes = run.lanes[word];
        if (!lanes.arrived)
            continue;
        run.current = word * simd_width + unsigned(__builtin_ctz(lanes.arrived));
        const Fiber &one = run.fiber[run.current];
        unsigned there = 0;
        for (unsigned rest = lanes.arrived; rest; rest &= rest - 1) {
            const unsigned lane = unsigned(__builtin_ctz(rest));
            if (run.fiber[word * simd_width + lane].site == one.site)
                there |= 1u << lane;
        }
        note_fault(
            run, Fault::simd_diverged, one.place,
            "an operation between lanes waits for lanes that its mask names: %u of them went "
            "another way, or brought another mask",
            unsigned(__builtin_popcount(one.wanted & lanes.live & ~there)));
        leave(run);
    }
#if SILO_THREADS_MASKED && !defined SILO_THREADS_CHECKED
    // Like the hardware's barrier, do not wait for threads that have ended.
    if (run.at_barrier + run.ended == run.size) {
        release_barrier(run, Place{}, ~0u);
        return;
    }
#endif
    Place place;
    for (unsigned i = 0; i < run.size; i++)
        if (run.fiber[i].state == State::at_barrier) {
            place = run.fiber[i].place;
            run.current = i;
            break;
        }
    note_fault(run, Fault::barrier_missed, place,
               SILO_THREADS_BARRIER
               " is not reached by every thread: %u of the group ended or went "
               "another way",
               run.size - run.at_barrier);
    leave(run);
}

// Switches to another thread, because the current one is parked or has ended. Returns when the
// current thread is chosen again.
inline void give_way(Runner &run) {
    const unsigned from = run.current;
    unsigned to = next_ready(run);
    if (to == run.size) {
        if (run.ended == run.size)
            leave(run);
        resolve(run);
        to = next_ready(run);
    }
#ifdef SILO_THREADS_CHECKED
    to = hook::next(run, run.ready, from);
#endif
    run.current = to;
    hook::enter(run, to);
    if (to != from)
        silo_threads_switch(&run.fiber[from].stack, run.fiber[to].stack);
}

inline void check_stack(Runner &run, unsigned of) {
    const auto end = reinterpret_cast<unsigned long *>(run.stacks + of * run.stride);
    if (__builtin_expect(*end != stack_mark, 0))
        fail(Fault::stack, run.fiber[of].place,
             "a thread needs more memory for its own variables and calls than there is");
}

// ---- The functions that a thread calls

[[gnu::noinline, clang::convergent, clang::nomerge]] inline void wait_at_barrier(unsigned flags,
                                                                                 Place place) {
    Runner &run = runner();
    const unsigned me = run.current;
    const void *site = __builtin_return_address(0);
    Fiber &own = run.fiber[me];
    own.site = site;
    own.place = place;
    own.flags = flags;
    check_stack(run, me);
    done_reading(run);
    hook::arrive(run, me, place, flags);
    if (!run.barrier_site)
        run.barrier_site = site;
    if (__builtin_expect(run.barrier_site != site, 0)) {
        note_fault(run, Fault::barrier_mixed, place,
                   "threads of a group wait at different calls of " SILO_THREADS_BARRIER);
        leave(run);
    }
    if (++run.at_barrier == run.size) {
        // All threads have arrived: the others become ready, and this one goes on at once.
        own.state = State::ready;
        release_barrier(run, place, flags);
#ifndef SILO_THREADS_CHECKED
        return;
#endif
    } else {
        own.state = State::at_barrier;
        run.ready[me / simd_width] &= ~(1u << me % simd_width);
    }
    give_way(run);
    own.state = State::ready;
}

// Waits until all live lanes of `wanted` have called this function with the same `site`. If
// `flexible`, the lanes that have done so may meet without the rest. Returns the simdgroup's lanes
// with their values.
inline Lanes &meet(Runner &run, const void *site, unsigned flags, Place place,
                   unsigned wanted = ~0u, bool flexible = true) {
    const unsigned me = run.current, word = me / simd_width, bit = 1u << me % simd_width;
    Fiber &own = run.fiber[me];
    Lanes &lanes = run.lanes[word];
    own.site = site;
    own.place = place;
    own.flags = flags;
    own.wanted = wanted;
    own.flexible = flexible;
    check_stack(run, me);
    done_reading(run);
    if (!lanes.arrived) {
        lanes.site = site;
        lanes.mixed = false;
    } else if (lanes.site != site) {
        lanes.mixed = true;
    }
    lanes.arrived |= bit;
    unsigned mask = complete(run, word, own);
    if (mask && lanes.reading) {
        lanes.pending = true;
        mask = 0;
    }
    if (mask) {
        run.ready[word] &= ~bit;
        release_lanes(run, word, mask, place, flags);
#ifndef SILO_THREADS_CHECKED
        return lanes;
#endif
    } else {
        own.state = State::at_lanes;
        run.ready[word] &= ~bit;
    }
    give_way(run);
    own.state = State::ready;
    return lanes;
}

// Lets another ready thread run; for a thread that polls memory.
[[gnu::noinline]] inline void yield() {
    Runner &run = runner();
    check_stack(run, run.current);
    done_reading(run);
    give_way(run);
}

// ---- Running a group

[[noreturn, gnu::noinline]] inline void begin_thread() {
    Runner &run = runner();
    run.body(run);
    const unsigned me = run.current, bit = 1u << me % simd_width;
    check_stack(run, me);
    done_reading(run);
    run.fiber[me].state = State::ended;
    run.ready[me / simd_width] &= ~bit;
    run.own_lanes().live &= ~bit;
    run.ended++;
    give_way(run);
    __builtin_trap();
}

#ifdef SILO_THREADS_SANITIZED // only in a test, which compiles the code with AddressSanitizer
extern "C" void __asan_unpoison_memory_region(const volatile void *, unsigned long);
#endif

// Runs every thread of the group until it ends, or until a thread switches to the host's stack.
inline void begin_group(Runner &run) {
    const unsigned words = words_of(run);
    run.at_barrier = run.ended = run.turn = run.votes[0] = run.votes[1] = 0;
    run.barrier_site = nullptr;
    for (unsigned word = 0; word < words; word++) {
        const unsigned rest = run.size - word * simd_width;
        Lanes &lanes = run.lanes[word];
        lanes.live = rest < simd_width ? (1u << rest) - 1 : ~0u;
        lanes.arrived = lanes.turn = lanes.reading = 0;
        lanes.mixed = lanes.pending = false;
        run.ready[word] = lanes.live;
    }
    for (unsigned i = 0; i < run.size; i++) {
        Fiber &one = run.fiber[i];
        one.state = State::ready;
        one.place = Place{};
        *reinterpret_cast<unsigned long *>(run.stacks + i * run.stride) = stack_mark;
        one.stack = new_stack(run.stacks + (i + 1) * run.stride, begin_thread);
    }
#ifdef SILO_THREADS_SANITIZED // stacks may be poisoned by an earlier group
    __asan_unpoison_memory_region(run.stacks, run.size * run.stride);
#endif
    hook::begin_group(run, run.memory, run.memory_bytes);
    run.current = 0;
#ifdef SILO_THREADS_CHECKED
    run.current = hook::next(run, run.ready, run.size - 1);
#endif
    hook::enter(run, run.current);
    silo_threads_switch(&run.host, run.fiber[run.current].stack);
}

// Ends a group's run; returns false after a fault.
inline bool end_group(Runner &run) {
    if (run.fault == Fault::none)
        hook::end_group(run);
    return run.fault == Fault::none;
}

} // namespace silo_threads
