/* The plan of a kernel: what each parameter takes, and how the arguments of a call site fall on
 * parameters. */
#ifndef SILO_PLAN_H
#define SILO_PLAN_H

#include "dtypes.h"
#include "python.h"

enum silo_parameter_kind {
    SILO_PARAMETER_ANY, /* typed by the argument */
    SILO_PARAMETER_POINTER,
    SILO_PARAMETER_INT,
    SILO_PARAMETER_FLOAT,
    SILO_PARAMETER_BOOL,
    SILO_PARAMETER_CONSTEXPR,
    SILO_PARAMETER_DESCRIPTOR, /* a tensor descriptor */
};

enum silo_parameter_flags {
    SILO_PARAMETER_SPECIALIZE = 1, /* divisibility by 16 and equality with 1 are facts */
    SILO_PARAMETER_ALIGN = 2,      /* alignment to 16 bytes is a fact */
    SILO_PARAMETER_KEY = 4,        /* its bucket is part of the guard */
    SILO_PARAMETER_OPTIONAL = 8,   /* the config gives it where the caller does not */
    SILO_PARAMETER_WRITES = 16,    /* known to be written through */
    SILO_PARAMETER_EXACT = 32,     /* its very value is part of the guard */
    SILO_PARAMETER_OPEN_KEY = 64,  /* a key only where the call leaves something to the config */
    SILO_PARAMETER_COUNTED = 128,  /* where a call leaves it open, whether its grid is one that
                                      cannot depend on it is part of the guard */
};

/* What a call reads of a parameter; its name and default lie elsewhere. */
struct silo_parameter {
    struct silo_dtype type; /* of the value, or what a pointer points at; bits 0: any */
    uint8_t kind;
    uint8_t flags;
};

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
    uint8_t options;
    uint8_t option[SILO_MAX_OPTIONS]; /* which option */
    int16_t option_source[SILO_MAX_OPTIONS];
    int16_t source[]; /* one a parameter: index, SILO_FORM_DEFAULT or SILO_FORM_ABSENT */
};

/* What every call reads comes first. */
struct silo_plan {
    int32_t count;
    int32_t option_count;
    struct silo_parameter *parameters;   /* owned */
    PyObject *kernel;                    /* owned str: the kernel's name */
    PyObject **names;                    /* owned, each owned and interned */
    PyObject **defaults;                 /* owned, each owned; NULL: none */
    PyObject *word_grid, *word_stream;   /* owned, interned */
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
void silo_form_free(struct silo_form *form);

extern PyObject *silo_absent; /* what stands for an argument left to the config */

#endif
