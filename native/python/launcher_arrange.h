/* Puts the arguments of a Python call into the order of the parameters. */
#ifndef SILO_LAUNCHER_ARRANGE_H
#define SILO_LAUNCHER_ARRANGE_H

#include "launch.h"

/* Makes a call that has keywords, defaults, a grid or options. (Other calls give one argument for
 * each parameter in order.) */
PyObject *silo_launcher_arrange(struct silo_launcher *self, const struct silo_grid_source *grid,
                                PyObject *const *arguments, Py_ssize_t positional, PyObject *names);

/* Returns the form of a call: a form that the launcher already has, or a new one. Returns NULL with
 * an exception set. The launcher owns the form, except if `*temporary` is set: then the caller
 * frees it with silo_form_free. */
struct silo_form *silo_launcher_form(struct silo_launcher *self, Py_ssize_t positional,
                                     PyObject *names, bool *temporary);

/* Handles a call given as a tuple and a dict, such as resolve(*args, **kwargs); not optimized. */
PyObject *silo_launcher_examine(struct silo_launcher *self, PyObject *args, PyObject *keywords,
                                enum silo_mode mode);

/* Makes a call with arguments in the vectorcall form. */
SILO_INLINE PyObject *silo_launcher_invoke(struct silo_launcher *self,
                                           const struct silo_grid_source *grid,
                                           PyObject *const *arguments, Py_ssize_t positional,
                                           PyObject *names) {
    if (SILO_UNLIKELY(names != NULL || positional != self->plan.count))
        return silo_launcher_arrange(self, grid, arguments, positional, names);
    struct silo_inputs inputs;
    inputs.arguments = arguments;
    inputs.stream = inputs.grid = NULL;
    inputs.options = 0;
    return silo_launcher_call(self, &inputs, grid);
}

#endif
