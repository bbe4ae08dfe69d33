#include "plan.h"

#include "errors.h"

PyObject *silo_absent;

static PyObject *intern(PyObject *text) {
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "a parameter name is a string");
        return NULL;
    }
    Py_INCREF(text);
    PyUnicode_InternInPlace(&text);
    return text;
}

static int parse_parameter(struct silo_plan *plan, int32_t index, PyObject *item) {
    struct silo_parameter *out = &plan->parameters[index];
    PyObject *name, *value;
    int kind, code, bits, flags;
    if (!PyArg_ParseTuple(item, "UiiiiO!", &name, &kind, &code, &bits, &flags, &PyTuple_Type,
                          &value))
        return -1;
    if (kind < SILO_PARAMETER_ANY || kind > SILO_PARAMETER_DESCRIPTOR || code < 0 ||
        code > UINT8_MAX || bits < 0 || bits > 64 || flags < 0 || flags > UINT8_MAX) {
        PyErr_Format(PyExc_ValueError, "not a parameter: %R", item);
        return -1;
    }
    plan->names[index] = intern(name);
    if (plan->names[index] == NULL)
        return -1;
    out->kind = (uint8_t)kind;
    out->type = (struct silo_dtype){(uint8_t)code, (uint8_t)bits};
    out->flags = (uint8_t)flags;
    if (PyTuple_Size(value) == 1) {
        plan->defaults[index] = PyTuple_GetItem(value, 0);
        Py_INCREF(plan->defaults[index]);
    }
    return 0;
}

int silo_plan_init(struct silo_plan *plan, PyObject *kernel, PyObject *parameters,
                   PyObject *options) {
    Py_ssize_t count = PyTuple_Size(parameters), option_count = PyTuple_Size(options);
    if (count < 0 || option_count < 0)
        return -1;
    if (count > SILO_MAX_PARAMETERS || option_count > SILO_MAX_OPTIONS) {
        PyErr_Format(PyExc_ValueError, "%U has %zd parameters; Silo launches kernels with up to %d",
                     kernel, count, SILO_MAX_PARAMETERS);
        return -1;
    }
    Py_INCREF(kernel);
    plan->kernel = kernel;
    plan->word_grid = PyUnicode_InternFromString("grid");
    plan->word_stream = PyUnicode_InternFromString("stream");
    plan->parameters = PyMem_Calloc((size_t)count + 1, sizeof *plan->parameters);
    plan->names = PyMem_Calloc((size_t)count + 1, sizeof *plan->names);
    plan->defaults = PyMem_Calloc((size_t)count + 1, sizeof *plan->defaults);
    if (plan->parameters == NULL || plan->names == NULL || plan->defaults == NULL ||
        plan->word_grid == NULL || plan->word_stream == NULL) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        plan->count = (int32_t)i + 1;
        if (parse_parameter(plan, (int32_t)i, PyTuple_GetItem(parameters, i)) != 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < option_count; i++) {
        plan->options[i] = intern(PyTuple_GetItem(options, i));
        if (plan->options[i] == NULL)
            return -1;
        plan->option_count = (int32_t)i + 1;
    }
    return 0;
}

void silo_plan_clear(struct silo_plan *plan) {
    for (int32_t i = 0; i < plan->count; i++) {
        Py_CLEAR(plan->names[i]);
        Py_CLEAR(plan->defaults[i]);
    }
    for (int32_t i = 0; i < plan->option_count; i++)
        Py_CLEAR(plan->options[i]);
    PyMem_Free(plan->parameters);
    PyMem_Free(plan->names);
    PyMem_Free(plan->defaults);
    plan->parameters = NULL;
    plan->names = plan->defaults = NULL;
    plan->count = plan->option_count = 0;
    Py_CLEAR(plan->kernel);
    Py_CLEAR(plan->word_grid);
    Py_CLEAR(plan->word_stream);
    Py_CLEAR(plan->word_warmup);
}

/* Returns whether two names are equal. Both are usually interned, so their addresses are compared
 * first. */
static bool same(PyObject *left, PyObject *right) {
    return left == right || PyUnicode_Compare(left, right) == 0;
}

/* Returns the text "a, b, c" with the parameters whose `source` is `kind`, or with all if
 * `source` is NULL; a new reference. */
static PyObject *listing(const struct silo_plan *plan, const int16_t *source, int16_t kind) {
    PyObject *names = PyList_New(0), *comma = PyUnicode_FromString(", "), *text = NULL;
    bool failed = names == NULL || comma == NULL;
    for (int32_t i = 0; i < plan->count && !failed; i++) {
        if (source == NULL || source[i] == kind)
            failed = PyList_Append(names, plan->names[i]) != 0;
    }
    if (!failed)
        text = PyUnicode_Join(comma, names);
    Py_XDECREF(names);
    Py_XDECREF(comma);
    return text;
}

static void raise_with_parameters(const struct silo_plan *plan, PyObject *problem) {
    PyObject *all = listing(plan, NULL, 0);
    if (problem != NULL && all != NULL)
        PyErr_Format(silo_argument_error, "%U%U; its parameters: %U", plan->kernel, problem, all);
    Py_XDECREF(problem);
    Py_XDECREF(all);
}

static int place_keyword(const struct silo_plan *plan, struct silo_form *form, PyObject *name,
                         int16_t index) {
    for (int32_t i = 0; i < plan->count; i++) {
        if (!same(plan->names[i], name))
            continue;
        if (form->source[i] >= 0) {
            PyErr_Format(silo_argument_error,
                         "%U: argument '%U' is given twice, by position and by name", plan->kernel,
                         name);
            return -1;
        }
        form->source[i] = index;
        return 0;
    }
    for (int32_t i = 0; i < plan->option_count; i++) {
        if (same(plan->options[i], name)) {
            form->option[form->options] = (uint8_t)i;
            form->option_source[form->options++] = index;
            return 0;
        }
    }
    if (same(plan->word_grid, name)) {
        form->grid = index;
        return 0;
    }
    if (plan->word_warmup == NULL && same(plan->word_stream, name)) {
        form->stream = index;
        return 0;
    }
    if (plan->word_warmup != NULL && same(plan->word_warmup, name)) {
        form->warmup = index;
        return 0;
    }
    raise_with_parameters(plan, PyUnicode_FromFormat(" has no parameter '%U'", name));
    return -1;
}

static int fill(const struct silo_plan *plan, struct silo_form *form) {
    if (form->positional > plan->count) {
        raise_with_parameters(plan, PyUnicode_FromFormat(" takes %d arguments, %zd were given",
                                                         (int)plan->count, form->positional));
        return -1;
    }
    const int16_t unset = -3;
    for (int32_t i = 0; i < plan->count; i++)
        form->source[i] = i < form->positional ? (int16_t)i : unset;
    Py_ssize_t names = form->names ? PyTuple_Size(form->names) : 0;
    if (names >
        plan->count + plan->option_count + 2) { /* besides parameters and options, a call may name a
                                                   grid and a stream, or a grid and warmup */
        PyErr_Format(silo_argument_error, "%U: %zd keyword arguments are more than it has",
                     plan->kernel, names);
        return -1;
    }
    for (Py_ssize_t i = 0; i < names; i++) {
        if (place_keyword(plan, form, PyTuple_GetItem(form->names, i),
                          (int16_t)(form->positional + i)) != 0)
            return -1;
    }
    bool missing = false;
    for (int32_t i = 0; i < plan->count; i++) {
        if (form->source[i] != unset)
            continue;
        const struct silo_parameter *parameter = &plan->parameters[i];
        if (parameter->flags & SILO_PARAMETER_OPTIONAL)
            form->source[i] = SILO_FORM_ABSENT;
        else if (plan->defaults[i] != NULL)
            form->source[i] = SILO_FORM_DEFAULT;
        else
            missing = true;
    }
    if (missing) {
        PyObject *absent = listing(plan, form->source, unset);
        if (absent != NULL)
            raise_with_parameters(plan, PyUnicode_FromFormat(" is called without %U", absent));
        Py_XDECREF(absent);
        return -1;
    }
    return 0;
}

struct silo_form *silo_form_new(const struct silo_plan *plan, Py_ssize_t positional,
                                PyObject *names) {
    struct silo_form *form =
        PyMem_Calloc(1, sizeof *form + (size_t)plan->count * sizeof *form->source);
    if (form == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    form->positional = positional;
    form->grid = form->stream = form->warmup = SILO_FORM_ABSENT;
    Py_XINCREF(names);
    form->names = names;
    form->named = names ? PyTuple_Size(names) : 0;
    form->name = PyMem_Calloc((size_t)form->named + 1, sizeof *form->name);
    if (form->name == NULL)
        PyErr_NoMemory();
    if (form->name == NULL || fill(plan, form) != 0) {
        silo_form_free(form);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < form->named; i++)
        form->name[i] = PyTuple_GetItem(names, i);
    form->in_order = positional + form->named == plan->count && form->options == 0 &&
                     form->grid == SILO_FORM_ABSENT && form->stream == SILO_FORM_ABSENT;
    for (int32_t i = 0; i < plan->count; i++)
        form->in_order = form->in_order && form->source[i] == i;
    return form;
}

struct silo_form *silo_form_foreign(Py_ssize_t positional, PyObject *names) {
    struct silo_form *form = PyMem_Calloc(1, sizeof *form);
    const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    if (form != NULL)
        form->name = PyMem_Calloc((size_t)named + 1, sizeof *form->name);
    if (form == NULL || form->name == NULL) {
        PyMem_Free(form);
        PyErr_NoMemory();
        return NULL;
    }
    form->positional = positional;
    form->grid = form->stream = form->warmup = SILO_FORM_ABSENT;
    form->foreign = true;
    form->names = names;
    Py_XINCREF(names);
    form->named = named;
    for (Py_ssize_t i = 0; i < named; i++)
        form->name[i] = PyTuple_GetItem(names, i);
    return form;
}

void silo_form_free(struct silo_form *form) {
    if (form != NULL) {
        Py_XDECREF(form->names);
        PyMem_Free(form->name);
        PyMem_Free(form);
    }
}
