/* Puts the arguments of a Python call into the order of the parameters. */
#include "launcher_arrange.h"

#include "errors.h"
#include "flat.h"

/* Puts the arguments into the order of the parameters, in `full`, and makes the call. */
static PyObject *invoke_form(struct silo_launcher *self, const struct silo_grid_source *grid,
                             PyObject *const *arguments, const struct silo_form *form, int mode) {
    PyObject *full[(size_t)self->plan.count + 1];
    struct silo_inputs inputs;
    inputs.arguments = form->in_order ? arguments : full;
    for (int32_t i = 0; i < self->plan.count && !form->in_order; i++) {
        const int16_t source = form->source[i];
        full[i] = source >= 0                   ? arguments[source]
                  : source == SILO_FORM_DEFAULT ? self->plan.defaults[i]
                                                : NULL;
    }
    inputs.grid = form->grid >= 0 ? arguments[form->grid] : NULL;
    inputs.stream = form->stream >= 0 ? arguments[form->stream] : NULL;
    inputs.options = form->options;
    for (uint32_t i = 0; i < form->options; i++) {
        inputs.option[i] = form->option[i];
        inputs.option_value[i] = arguments[form->option_source[i]];
    }
    if (mode != SILO_MODE_LAUNCH)
        return silo_launch_examine(self, &inputs, (enum silo_mode)mode);
    return silo_launcher_call(self, &inputs, grid);
}

/* Returns whether the tuple has exactly the string objects of the form, in the same order. */
static bool same_names(const struct silo_form *form, PyObject *names, Py_ssize_t size) {
    if (form->named != size)
        return false;
    for (Py_ssize_t i = 0; i < size; i++) {
        if (form->name[i] != PyTuple_GetItem(names, i))
            return false;
    }
    return true;
}

static SILO_NOINLINE struct silo_form *new_form(const struct silo_launcher *self,
                                                Py_ssize_t positional, PyObject *names) {
    struct silo_form *form = silo_form_new(&self->plan, positional, names);
    if (form != NULL || self->route != SILO_ROUTE_TRITON ||
        !PyErr_ExceptionMatches(silo_argument_error))
        return form;
    PyErr_Clear(); /* cleared because Triton will raise its own error */
    return silo_form_foreign(positional, names);
}

struct silo_form *silo_launcher_form(struct silo_launcher *self, Py_ssize_t positional,
                                     PyObject *names, bool *temporary) {
    const uint32_t count = __atomic_load_n(&self->form_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; i++) {
        /* A call site passes the same tuple of names each time, so comparing addresses is enough.
         */
        if (self->forms[i]->names == names && self->forms[i]->positional == positional)
            return self->forms[i];
    }
    /* k(**arguments) makes a new tuple at every call, but of the same interned names, so the names
     * are compared by address. */
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    for (uint32_t i = 0; named > 0 && i < count; i++) {
        if (self->forms[i]->positional == positional && same_names(self->forms[i], names, named))
            return self->forms[i];
    }
    struct silo_form *form = new_form(self, positional, names);
    SILO_LOCK(&self->lock);
    *temporary = form == NULL || self->form_count == SILO_MAX_FORMS;
    if (!*temporary) {
        self->forms[self->form_count] = form;
        __atomic_store_n(&self->form_count, self->form_count + 1, __ATOMIC_RELEASE);
    }
    SILO_UNLOCK(&self->lock);
    return form;
}

SILO_HOT PyObject *silo_launcher_arrange(struct silo_launcher *self,
                                         const struct silo_grid_source *grid,
                                         PyObject *const *arguments, Py_ssize_t positional,
                                         PyObject *names) {
    bool temporary = false;
    struct silo_form *form = silo_launcher_form(self, positional, names, &temporary);
    if (form == NULL)
        return NULL;
    PyObject *result = invoke_form(self, grid, arguments, form, SILO_MODE_LAUNCH);
    if (temporary)
        silo_form_free(form);
    return result;
}

PyObject *silo_launcher_examine(struct silo_launcher *self, PyObject *args, PyObject *keywords,
                                enum silo_mode mode) {
    struct silo_flat flat;
    PyObject *result = NULL;
    if (silo_flat_make(&flat, args, keywords) == 0) {
        struct silo_form *form = silo_form_new(&self->plan, flat.positional, flat.names);
        if (form != NULL)
            result = invoke_form(self, NULL, flat.values, form, mode);
        silo_form_free(form);
    }
    silo_flat_free(&flat);
    return result;
}
