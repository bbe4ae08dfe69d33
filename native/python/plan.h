/* The plan of a kernel: what each parameter takes, and how the arguments of a call site fall on
 * parameters. */
#ifndef SILO_PLAN_H
#define SILO_PLAN_H

#include "parameter.h"
#include "python.h"

#define SILO_FORM_DEFAULT (-1)
#define SILO_FORM_ABSENT (-2)

/* One way of calling: so many positional arguments and these keywords, in this order. Immutable
 * once made. */
struct silo_form {
    PyObject *names; /* owned tuple, or NULL */
    PyObject **name; /* owned: its items, borrowed from it */
    Py_ssize_t named;
    Py_ssize_t positional;
    bool in_order; /* every parameter is given, in its order, and nothing else */
    int16_t grid;  /* index into the flat arguments, or SILO_FORM_ABSENT */
    int16_t stream;
    int16_t warmup; /* of Triton's run */
    bool foreign;   /* no call of this kernel: Triton says why */
    uint8_t options;
    uint8_t option[SILO_MAX_OPTIONS]; /* which option */
    int16_t option_source[SILO_MAX_OPTIONS];
    int16_t source[]; /* one a parameter: index, SILO_FORM_DEFAULT or SILO_FORM_ABSENT */
};

/* What every call reads comes first. */
struct silo_plan {
    int32_t count;
    int32_t option_count;
    struct silo_parameter *parameters; /* owned */
    PyObject *kernel;                  /* owned str: the kernel's name */
    PyObject **names;                  /* owned, each owned and interned */
    PyObject **defaults;               /* owned, each owned; NULL: none */
    PyObject *word_grid, *word_stream; /* owned, interned */
    PyObject *word_warmup;             /* owned, interned; NULL unless this is a kernel of a Triton
                                          program, whose calls take no stream */
    PyObject *options[SILO_MAX_OPTIONS]; /* owned, interned */
};

/* Parameters are tuples (name, kind, code, bits, flags, default) with default a 0- or 1-tuple. -1
 * with an exception set; clear it either way. */
int silo_plan_init(struct silo_plan *plan, PyObject *kernel, PyObject *parameters,
                   PyObject *options);
void silo_plan_clear(struct silo_plan *plan);

/* A new form (PyMem_Malloc), or NULL with an ArgumentError set that names what is wrong with the
 * call. */
struct silo_form *silo_form_new(const struct silo_plan *plan, Py_ssize_t positional,
                                PyObject *names);
/* One of a call that is none of this kernel, NULL with a MemoryError set. */
struct silo_form *silo_form_foreign(Py_ssize_t positional, PyObject *names);
void silo_form_free(struct silo_form *form);

extern PyObject *silo_absent; /* what stands for an argument left to the config */

#endif
