/* Callbacks around launches. Off, they cost one test of a flag. */
#ifndef SILO_HOOKS_H
#define SILO_HOOKS_H

#include "launcher.h"

/* What looks at launches. */
enum silo_lookers {
    SILO_LOOKS_HOOK = 1,     /* a function that `set_hooks` was given */
    SILO_LOOKS_RECORDER = 2, /* a recording of some thread */
    SILO_LOOKS_FLIGHT = 4,   /* the flight recorder, in each launch */
};

extern uint8_t silo_hooks_on; /* of enum silo_lookers; 0: launches are seen by none */
extern bool silo_hooks_each;  /* some hook sees the launches of a plan one by one: no replays */

/* Call the function that `set_hooks` was given: enter(kernel, arguments, config, grid, stream,
 * device, effects, tag of the binding) -> token. A new reference, or NULL with its exception set:
 * nothing is launched then. */
PyObject *silo_hooks_enter(const struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_binding *binding, const int64_t dims[3], void *stream);

/* The same for a replay of recorded launches, seen as one: the grid is (launches, 1, 1), and the
 * hook is also given the kernels' names, `parts` (a tuple). `function` is a function of one of the
 * launches; NULL: on a CPU. */
PyObject *silo_hooks_enter_plan(PyObject *name, PyObject *arguments,
                                const struct silo_function *function, void *stream, PyObject *tag,
                                PyObject *parts);

/* exit(token) after the launch, also a failed one. Takes the reference. -1 with an exception set;
 * an earlier exception stays. */
int silo_hooks_exit(PyObject *token);

/* One more recording of launches, or one less: launches of all threads look whether they are
 * recorded. */
void silo_hooks_record(int change);

/* The flight recorder is on or off. */
void silo_hooks_flight(bool on);

/* Two callables, or None and None: off. */
int silo_hooks_set(PyObject *enter, PyObject *leave, bool each);

#endif
