/* Calls as Python makes them, put into the order of the parameters. */
#ifndef SILO_LAUNCHER_ARRANGE_H
#define SILO_LAUNCHER_ARRANGE_H

#include "launch.h"

/* A call that is not one argument for each parameter in order: it has keywords, defaults, a grid or
 * options. */
PyObject *silo_launcher_arrange(struct silo_launcher *self, const struct silo_grid_source *grid,
                                PyObject *const *arguments, Py_ssize_t positional, PyObject *names);

/* The form of a call: found among those seen, or new; NULL with an exception set. The launcher owns
 * it unless `*temporary`: then silo_form_free is due. */
struct silo_form *silo_launcher_form(struct silo_launcher *self, Py_ssize_t positional,
                                     PyObject *names, bool *temporary);

/* The cold entry: a tuple and a dict, as resolve(*args, **kwargs) gets them. */
PyObject *silo_launcher_examine(struct silo_launcher *self, PyObject *args, PyObject *keywords,
                                enum silo_mode mode);

/* A call as vectorcall gives it. */
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
