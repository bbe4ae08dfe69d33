/* The plan of a kernel: the type of each parameter, and how the arguments of a call site are
 * assigned to parameters. */
#ifndef SILO_PLAN_H
#define SILO_PLAN_H

#include "parameter.h"
#include "python.h"

#define SILO_FORM_DEFAULT (-1)
#define SILO_FORM_ABSENT (-2)

/* The form of a call site: the number of positional arguments, and the names of keywords in their
 * order. It never changes once made. */
struct silo_form {
    PyObject *names; /* owned tuple, or NULL */
    PyObject **name; /* owned array of the tuple's items, which are borrowed from it */
    Py_ssize_t named;
    Py_ssize_t positional;
    bool in_order; /* the arguments are exactly the parameters, in their order */
    int16_t grid;  /* index into the arguments of the call, or SILO_FORM_ABSENT */
    int16_t stream;
    int16_t warmup; /* Triton's argument `warmup` of run() */
    bool foreign;   /* the call does not fit the kernel, and Triton raises the error */
    uint8_t options;
    uint8_t option[SILO_MAX_OPTIONS]; /* numbers of the options that the call gives */
    int16_t option_source[SILO_MAX_OPTIONS];
    int16_t source[]; /* for each parameter: an index into the arguments, SILO_FORM_DEFAULT or
                         SILO_FORM_ABSENT */
};

/* The members that every call reads come first. */
struct silo_plan {
    int32_t count;
    int32_t option_count;
    struct silo_parameter *parameters; /* owned */
    PyObject *kernel;                  /* owned str: the kernel's name */
    PyObject **names;                  /* owned array of owned, interned strings */
    PyObject **defaults; /* owned array of owned objects; NULL for a parameter without a default */
    PyObject *word_grid, *word_stream; /* owned, interned */
    PyObject *word_warmup; /* owned, interned; set only for a kernel of a Triton program, whose
                              calls take no stream */
    PyObject *options[SILO_MAX_OPTIONS]; /* owned, interned */
};

/* Fills in `plan`. Each parameter is a tuple (name, kind, code, bits, flags, default), where
 * `default` is (), or (value,) if the parameter has a default. Returns -1 with an exception set;
 * silo_plan_clear is to be called in either case. */
int silo_plan_init(struct silo_plan *plan, PyObject *kernel, PyObject *parameters,
                   PyObject *options);
void silo_plan_clear(struct silo_plan *plan);

/* Returns a new form, to be freed with silo_form_free; NULL with an ArgumentError set that says
 * what is wrong with the call. */
struct silo_form *silo_form_new(const struct silo_plan *plan, Py_ssize_t positional,
                                PyObject *names);
/* Returns a form for a call that does not fit the kernel; NULL with a MemoryError set. */
struct silo_form *silo_form_foreign(Py_ssize_t positional, PyObject *names);
void silo_form_free(struct silo_form *form);

/* The object that replaces an argument whose value the config gives. */
extern PyObject *silo_absent;

#endif
