/* Callbacks before and after launches. If none is set, a launch only tests a flag. */
#ifndef SILO_HOOKS_H
#define SILO_HOOKS_H

#include "launcher.h"

/* The observers of launches. */
enum silo_lookers {
    SILO_LOOKS_HOOK = 1,     /* a function given to `set_hooks` */
    SILO_LOOKS_RECORDER = 2, /* a recording of launches in some thread */
    SILO_LOOKS_FLIGHT = 4,   /* the flight recorder, which sees every launch */
};

extern uint8_t silo_hooks_on; /* bits of enum silo_lookers; 0 if nothing observes launches */
extern bool silo_hooks_each;  /* a hook wants to see each launch of a plan, so a plan's launches are
                                 made one by one instead of in one replay */

/* Calls the hook of `set_hooks`: enter(kernel, arguments, config, grid, stream, device, effects,
 * tag of the binding) -> token. Returns the token, a new reference, or NULL with the hook's
 * exception set; then nothing is launched. */
PyObject *silo_hooks_enter(const struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_binding *binding, const int64_t dims[3], void *stream);

/* Calls the hook for a replay of recorded launches, which the hook sees as one launch: the grid is
 * (launches, 1, 1), and `parts` is a tuple of the kernels' names. `function` is the function of any
 * of the launches, from which the device is read; it is NULL on a CPU. Returns the token, or NULL
 * with an exception set. */
PyObject *silo_hooks_enter_plan(PyObject *name, PyObject *arguments,
                                const struct silo_function *function, void *stream, PyObject *tag,
                                PyObject *parts);

/* Calls exit(token) after the launch, also after a failed one. Takes the reference of the token.
 * Returns -1 with an exception set; an earlier exception stays. */
int silo_hooks_exit(PyObject *token);

/* Counts the recordings of launches in all threads: `change` is 1 when a recording starts and -1
 * when it ends. While the count is not 0, every launch tests whether its own thread is recording.
 */
void silo_hooks_record(int change);

/* Switches the flight recorder on or off. */
void silo_hooks_flight(bool on);

/* Sets the callables that are called before and after each launch, or removes them with None and
 * None. */
int silo_hooks_set(PyObject *enter, PyObject *leave, bool each);

#endif
