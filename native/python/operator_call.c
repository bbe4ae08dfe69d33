#include "operator_call.h"

#include "flat.h"
#include "launcher_arrange.h"
#include "launcher_type.h"
#include "locks.h"
#include "names.h"
#include "torch_shim.h"

#include <stdlib.h>

/* The most callables that are called before each call of the operator to decide whether the call
 * must go through torch's dispatcher. */
#define QUESTIONS 8
/* The most classes that are remembered for an argument. */
#define CLASSES 8

/* One argument of the operator. */
struct operand {
    uint32_t classes; /* length of `class`; read without the lock, because entries below it are
                         complete */
    PyTypeObject *class[CLASSES]; /* owned: classes that torch accepted for this argument */
    bool tensor;                  /* the argument is a tensor or None */
    bool watched;                 /* the argument's attribute requires_grad must be read */
    bool written;                 /* the kernel writes to it */
};

struct operator_call {
    PyObject_HEAD vectorcallfunc call;
    PyObject *launch; /* owned callable; receives the arguments, and the output if `empty_like`
                         makes one */
    /* Owned: otherwise(args, kwargs) makes a call that must go through torch. */
    PyObject *otherwise;
    PyObject *empty_like; /* owned: makes the output; NULL if `launch` makes the outputs, if
                             any */
    int32_t like;         /* number of the argument that `empty_like` receives */
    int32_t count;        /* number of arguments */
    int32_t writes;       /* number of arguments that the kernel writes to */
    int32_t questions;
    PyObject *question[QUESTIONS]; /* owned callables; each returns None or 0, or another value if
                                      the call must go through torch's dispatcher */
    PyObject *observed;     /* owned; called if the shim cannot tell whether a profiler records */
    PyObject *grad_enabled; /* owned; returns whether gradients are computed */
    PyObject *count_writes; /* owned; receives a list of tensors that were written */
    PyObject *count_some; /* owned; counts the writes if `count_writes` refuses the list, because it
                             also holds None or tensors of inference mode */
    uint16_t *places; /* owned: for each value that `launch` receives, the number of its argument;
                         `count` means the output */
    struct operand *operands; /* owned */
    silo_lock lock;           /* held to add a class */
};

static PyObject *s_requires_grad, *s_is_neg;

/* Returns the truth value of an answer, and releases the reference to the answer: 1, 0, or -1 with
 * an exception set. */
static int truth(PyObject *answer) {
    if (answer == NULL)
        return -1;
    const int value = answer == Py_True ? 1 : answer == Py_False ? 0 : PyObject_IsTrue(answer);
    Py_DECREF(answer);
    return value;
}

/* Returns whether torch has accepted an object of this class as this argument. */
SILO_INLINE bool has_class(const struct operand *operand, PyTypeObject *class) {
    const uint32_t count = __atomic_load_n(&operand->classes, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; i++) {
        if (operand->class[i] == class)
            return true;
    }
    return false;
}

/* Returns whether a tensor's memory differs from its values (a negated or conjugated view): 1, 0,
 * or -1 with an exception set. */
SILO_INLINE int holds_others(PyObject *tensor) {
    if (SILO_LIKELY(silo_torch.keys_offset != 0))
        return silo_torch_holds_others(silo_torch_handle(tensor));
    return truth(PyObject_CallMethodObjArgs(tensor, s_is_neg, NULL));
}

/* Returns whether a profiler records operators, so that the call must go through torch's
 * dispatcher: 1, 0, or -1 with an exception set. */
SILO_INLINE int is_observed(const struct operator_call *self) {
    if (SILO_LIKELY(silo_torch.observed != NULL))
        return silo_torch.observed();
    return truth(PyObject_CallNoArgs(self->observed));
}

/* Returns whether torch's dispatcher would do nothing for this call but run the operator's kernel,
 * so that the dispatcher can be skipped: 1, 0, or -1 with an exception set. */
static int is_quiet(const struct operator_call *self, PyObject *const *arguments) {
    for (int32_t i = 0; i < self->count; i++) {
        if (!has_class(&self->operands[i], Py_TYPE(arguments[i])))
            return 0;
    }
    const int observed = is_observed(self);
    if (SILO_UNLIKELY(observed != 0))
        return observed < 0 ? -1 : 0;
    for (int32_t i = 0; i < self->questions; i++) {
        PyObject *answer = PyObject_CallNoArgs(self->question[i]);
        if (answer == Py_None) {
            Py_DECREF(answer);
            continue;
        }
        const int busy = truth(answer);
        if (busy != 0)
            return busy < 0 ? -1 : 0;
    }
    int enabled = -2; /* whether gradients are computed: -2 until it is read */
    for (int32_t i = 0; i < self->count; i++) {
        const struct operand *operand = &self->operands[i];
        if (!operand->tensor || arguments[i] == Py_None)
            continue;
        int status = holds_others(arguments[i]);
        if (status == 0 && operand->watched &&
            (status = truth(PyObject_GetAttr(arguments[i], s_requires_grad))) > 0) {
            if (enabled == -2)
                enabled = truth(PyObject_CallNoArgs(self->grad_enabled));
            status = enabled;
        }
        if (status != 0)
            return status < 0 ? -1 : 0;
    }
    return 1;
}

/* Calls the kernel's launcher with the values. */
static PyObject *start(PyObject *launch, PyObject *const *values, Py_ssize_t count) {
    if (SILO_LIKELY(Py_TYPE(launch) == silo_launcher_type))
        return silo_launcher_invoke((struct silo_launcher *)launch, NULL, values, count, NULL);
    PyObject *tuple = PyTuple_New(count), *result = NULL;
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        Py_INCREF(values[i]);
        PyTuple_SetItem(tuple, i, values[i]);
    }
    if (tuple != NULL)
        result = PyObject_Call(launch, tuple, NULL);
    Py_XDECREF(tuple);
    return result;
}

/* Reports the written tensors to autograd, which counts the writes to each tensor (its version); -1
 * with an exception set. */
static int report_writes(const struct operator_call *self, PyObject *const *arguments) {
    PyObject *written = PyList_New(self->writes);
    if (written == NULL)
        return -1;
    for (int32_t i = 0, bit = 0; i < self->count; i++) {
        if (self->operands[i].written) {
            Py_INCREF(arguments[i]);
            PyList_SetItem(written, bit++, arguments[i]);
        }
    }
    PyObject *result = silo_call_one(self->count_writes, written);
    /* `count_writes` fails if the list has None instead of a tensor, or a tensor of inference mode,
     * which lacks a count of writes. */
    if (result == NULL &&
        (PyErr_ExceptionMatches(PyExc_RuntimeError) || PyErr_ExceptionMatches(PyExc_TypeError))) {
        PyErr_Clear();
        result = silo_call_one(self->count_some, written);
    }
    Py_DECREF(written);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

/* Makes the call through torch's dispatcher. */
static SILO_NOINLINE PyObject *dispatch(const struct operator_call *self,
                                        PyObject *const *arguments, Py_ssize_t positional,
                                        PyObject *names) {
    const Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
    PyObject *tuple = PyTuple_New(positional), *keywords = PyDict_New(), *result = NULL;
    for (Py_ssize_t i = 0; tuple != NULL && i < positional; i++) {
        Py_INCREF(arguments[i]);
        PyTuple_SetItem(tuple, i, arguments[i]);
    }
    for (Py_ssize_t i = 0; keywords != NULL && i < named; i++) {
        if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), arguments[positional + i]) != 0)
            Py_CLEAR(keywords);
    }
    if (tuple != NULL && keywords != NULL)
        result = PyObject_CallFunctionObjArgs(self->otherwise, tuple, keywords, NULL);
    Py_XDECREF(tuple);
    Py_XDECREF(keywords);
    return result;
}

static SILO_HOT PyObject *operator_call(PyObject *object, PyObject *const *arguments,
                                        size_t flagged, PyObject *names) {
    const struct operator_call *self = (struct operator_call *)object;
    const Py_ssize_t positional = (Py_ssize_t)(flagged & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
    /* Calls from torch's dispatcher have an empty tuple of names. */
    const bool plain = names == NULL || PyTuple_Size(names) == 0;
    const int quiet = plain && positional == self->count ? is_quiet(self, arguments) : 0;
    if (SILO_UNLIKELY(quiet <= 0))
        return quiet == 0 ? dispatch(self, arguments, positional, names) : NULL;
    PyObject *result_tensor = NULL, *result;
    if (self->empty_like != NULL) {
        result_tensor = silo_call_one(self->empty_like, arguments[self->like]);
        if (result_tensor == NULL)
            return NULL;
        PyObject *values[self->count + 1];
        for (int32_t i = 0; i <= self->count; i++)
            values[i] = self->places[i] < self->count ? arguments[self->places[i]] : result_tensor;
        result = start(self->launch, values, self->count + 1);
    } else {
        result = start(self->launch, arguments, self->count);
    }
    if (result != NULL && self->writes != 0 && report_writes(self, arguments) != 0)
        Py_CLEAR(result);
    if (result_tensor == NULL)
        return result;
    if (result == NULL) {
        Py_DECREF(result_tensor);
        return NULL;
    }
    Py_DECREF(result);
    return result_tensor;
}

static PyObject *operator_tuple_call(PyObject *self, PyObject *args, PyObject *keywords) {
    return silo_flat_call(self, args, keywords, operator_call);
}

/* learn(args): remembers the classes of these arguments, which torch accepted in a call. */
static PyObject *operator_learn(PyObject *object, PyObject *args) {
    struct operator_call *self = (struct operator_call *)object;
    if (!PyTuple_Check(args) || PyTuple_Size(args) != self->count)
        return PyErr_Format(PyExc_TypeError, "the arguments of a call are a tuple of %d",
                            (int)self->count);
    SILO_LOCK(&self->lock);
    for (int32_t i = 0; i < self->count; i++) {
        struct operand *operand = &self->operands[i];
        PyTypeObject *class = Py_TYPE(PyTuple_GetItem(args, i));
        if (has_class(operand, class) || operand->classes == CLASSES)
            continue;
        Py_INCREF((PyObject *)class);
        operand->class[operand->classes] = class;
        __atomic_store_n(&operand->classes, operand->classes + 1, __ATOMIC_RELEASE);
    }
    SILO_UNLOCK(&self->lock);
    Py_RETURN_NONE;
}

/* asks(args): returns whether torch's dispatcher would only run the operator's kernel for these
 * arguments. */
static PyObject *operator_asks(PyObject *object, PyObject *args) {
    const struct operator_call *self = (struct operator_call *)object;
    if (!PyTuple_Check(args))
        return PyErr_Format(PyExc_TypeError, "the arguments of a call are a tuple");
    if (PyTuple_Size(args) != self->count)
        Py_RETURN_FALSE;
    PyObject *arguments[self->count + 1];
    for (int32_t i = 0; i < self->count; i++)
        arguments[i] = PyTuple_GetItem(args, i);
    const int quiet = is_quiet(self, arguments);
    return quiet < 0 ? NULL : PyBool_FromLong(quiet);
}

/* ---- making an OperatorCall ---- */

/* Sets a flag in the operands whose numbers are in `indices`; `member` is the flag's offset.
 * Returns -1 with an exception set. */
static int mark(struct operator_call *self, PyObject *indices, size_t member) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(indices); i++) {
        const long index = PyLong_AsLong(PyTuple_GetItem(indices, i));
        if (index < 0 || index >= self->count) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a place that no argument has");
            return -1;
        }
        *(bool *)((char *)&self->operands[index] + member) = true;
    }
    return 0;
}

/* Reads, for each value that the launcher receives, the number of its argument; `count` means the
 * output. Returns -1 with an exception set. */
static int read_places(struct operator_call *self, PyObject *indices) {
    if (PyTuple_Size(indices) != self->count + 1 || self->like < 0 || self->like >= self->count) {
        PyErr_SetString(PyExc_ValueError, "a place for each argument, and for the output");
        return -1;
    }
    self->places = calloc((size_t)self->count + 1, sizeof *self->places);
    if (self->places == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int32_t i = 0; i <= self->count; i++) {
        const long index = PyLong_AsLong(PyTuple_GetItem(indices, i));
        if (index < 0 || index > self->count) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a place that no value has");
            return -1;
        }
        self->places[i] = (uint16_t)index;
    }
    return 0;
}

static PyObject *owned(PyObject *object) {
    Py_INCREF(object);
    return object;
}

static PyObject *operator_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"count",        "launch",       "otherwise",  "questions", "observed",
                            "grad_enabled", "count_writes", "count_some", "tensors",   "watched",
                            "written",      "empty_like",   "like",       "places",    NULL};
    int count, like = -1;
    PyObject *launch, *otherwise, *questions, *observed, *grad_enabled, *count_writes, *count_some;
    PyObject *tensors, *watched, *written, *empty_like = Py_None, *indices = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iOOO!OOOOO!O!O!|OiO!", names, &count, &launch,
                                     &otherwise, &PyTuple_Type, &questions, &observed,
                                     &grad_enabled, &count_writes, &count_some, &PyTuple_Type,
                                     &tensors, &PyTuple_Type, &watched, &PyTuple_Type, &written,
                                     &empty_like, &like, &PyTuple_Type, &indices))
        return NULL;
    if (count < 0 || count > SILO_MAX_PARAMETERS || PyTuple_Size(questions) > QUESTIONS ||
        (empty_like != Py_None && indices == NULL))
        return PyErr_Format(PyExc_ValueError, "too many arguments or questions, or no places");
    struct operator_call *self = (struct operator_call *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->call = operator_call;
    self->count = count;
    self->like = like;
    self->launch = owned(launch);
    self->otherwise = owned(otherwise);
    self->observed = owned(observed);
    self->grad_enabled = owned(grad_enabled);
    self->count_writes = owned(count_writes);
    self->count_some = owned(count_some);
    self->writes = (int32_t)PyTuple_Size(written);
    for (; self->questions < PyTuple_Size(questions); self->questions++)
        self->question[self->questions] = owned(PyTuple_GetItem(questions, self->questions));
    self->operands = calloc((size_t)count + 1, sizeof *self->operands);
    if (self->operands == NULL)
        PyErr_NoMemory();
    if (empty_like != Py_None)
        self->empty_like = owned(empty_like);
    if (PyErr_Occurred() || mark(self, tensors, offsetof(struct operand, tensor)) != 0 ||
        mark(self, watched, offsetof(struct operand, watched)) != 0 ||
        mark(self, written, offsetof(struct operand, written)) != 0 ||
        (self->empty_like != NULL && read_places(self, indices) != 0)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int operator_traverse(PyObject *object, visitproc visit, void *arg) {
    struct operator_call *self = (struct operator_call *)object;
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT(self->launch);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->empty_like);
    Py_VISIT(self->observed);
    Py_VISIT(self->grad_enabled);
    Py_VISIT(self->count_writes);
    Py_VISIT(self->count_some);
    for (int32_t i = 0; i < self->questions; i++)
        Py_VISIT(self->question[i]);
    for (int32_t i = 0; self->operands != NULL && i < self->count; i++) {
        for (uint32_t k = 0; k < self->operands[i].classes; k++)
            Py_VISIT((PyObject *)self->operands[i].class[k]);
    }
    return 0;
}

/* There is no tp_clear. Only the classes of an OperatorCall ever change, and every reference cycle
 * through an OperatorCall contains the operator in `otherwise`, whose dict is cleared. */

static void operator_dealloc(PyObject *object) {
    struct operator_call *self = (struct operator_call *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (int32_t i = 0; self->operands != NULL && i < self->count; i++) {
        for (uint32_t k = 0; k < self->operands[i].classes; k++)
            Py_DECREF((PyObject *)self->operands[i].class[k]);
    }
    free(self->operands);
    free(self->places);
    for (int32_t i = 0; i < self->questions; i++)
        Py_DECREF(self->question[i]);
    Py_XDECREF(self->launch);
    Py_XDECREF(self->otherwise);
    Py_XDECREF(self->empty_like);
    Py_XDECREF(self->observed);
    Py_XDECREF(self->grad_enabled);
    Py_XDECREF(self->count_writes);
    Py_XDECREF(self->count_some);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

int silo_operator_call_init(PyObject *module) {
    static const struct silo_name interned[] = {
        {&s_requires_grad, "requires_grad"},
        {&s_is_neg, "is_neg"},
    };
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(struct operator_call, call), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyMethodDef methods[] = {
        {"learn", operator_learn, METH_O,
         "learn(args)\n\nTorch took a call with such arguments: later ones of their classes fit."},
        {"asks", operator_asks, METH_O,
         "asks(args) -> bool\n\nWhether torch has nothing to do with such a call but to run it."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)operator_new},
        {Py_tp_dealloc, (void *)operator_dealloc},
        {Py_tp_traverse, (void *)operator_traverse},
        {Py_tp_call, (void *)operator_tuple_call},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {Py_tp_doc, "OperatorCall(count, launch, otherwise, questions, grad_enabled, count_writes, "
                    "count_some, tensors, watched, written, empty_like=None, like=-1, places=())"
                    "\n--\n\nWhat plain calls of an operator of torch go through."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "silo._native.OperatorCall",
        .basicsize = sizeof(struct operator_call),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
        .slots = slots,
    };
    if (silo_intern(interned, sizeof interned / sizeof *interned) != 0)
        return -1;
    PyObject *type = PyType_FromSpec(&spec);
    if (type == NULL)
        return -1;
    const int added = PyModule_AddObjectRef(module, "OperatorCall", type);
    Py_DECREF(type);
    return added;
}
