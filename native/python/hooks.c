#include "hooks.h"

#include "flat.h"
#include "stack.h"

uint8_t silo_hooks_on;
bool silo_hooks_each;
static PyObject *enter_hook, *exit_hook; /* owned; both are set or both are NULL */
static int recordings;
static bool flight;

static uint8_t lookers(void) {
    return (uint8_t)((enter_hook != NULL ? SILO_LOOKS_HOOK : 0) |
                     (recordings != 0 ? SILO_LOOKS_RECORDER : 0) |
                     (flight ? SILO_LOOKS_FLIGHT : 0));
}

int silo_hooks_set(PyObject *enter, PyObject *leave, bool each) {
    const bool off = enter == Py_None && leave == Py_None;
    if (!off && !(PyCallable_Check(enter) && PyCallable_Check(leave))) {
        PyErr_SetString(PyExc_TypeError, "hooks are two callables, or None and None");
        return -1;
    }
    PyObject *old_enter = enter_hook, *old_exit = exit_hook;
    silo_hooks_on &= (uint8_t)~SILO_LOOKS_HOOK;
    silo_hooks_each = each && !off;
    enter_hook = off ? NULL : enter;
    exit_hook = off ? NULL : leave;
    Py_XINCREF(enter_hook);
    Py_XINCREF(exit_hook);
    silo_hooks_on = lookers();
    Py_XDECREF(old_enter);
    Py_XDECREF(old_exit);
    return 0;
}

void silo_hooks_record(int change) {
    recordings += change;
    silo_hooks_on = lookers();
}

void silo_hooks_flight(bool on) {
    flight = on;
    silo_hooks_on = lookers();
}

static PyObject *given_arguments(const struct silo_launcher *self,
                                 const struct silo_inputs *inputs) {
    PyObject *arguments = PyDict_New();
    for (int32_t i = 0; i < self->plan.count && arguments != NULL; i++) {
        if (inputs->arguments[i] != NULL &&
            PyDict_SetItem(arguments, self->plan.names[i], inputs->arguments[i]) != 0)
            Py_CLEAR(arguments);
    }
    return arguments;
}

PyObject *silo_hooks_enter(const struct silo_launcher *self, const struct silo_inputs *inputs,
                           const struct silo_binding *binding, const int64_t dims[3],
                           void *stream) {
    if (silo_stack_check() != 0)
        return NULL;
    /* `enter_hook` may be replaced while the call runs, so it is read once. */
    PyObject *hook = enter_hook;
    if (hook == NULL)
        return Py_NewRef(Py_None);
    PyObject *arguments = given_arguments(self, inputs), *config = PyDict_Copy(binding->config);
    PyObject *token = NULL, *call = NULL;
    if (arguments != NULL && config != NULL) {
        call = Py_BuildValue(
            "(OOO(LLL)K(si)OO)", self->plan.kernel, arguments, config, (long long)dims[0],
            (long long)dims[1], (long long)dims[2], (unsigned long long)(uintptr_t)stream,
            binding->loaded->driver->name, (int)binding->loaded->function.device_index,
            binding->effects ? binding->effects : Py_None, binding->tag ? binding->tag : Py_None);
        Py_INCREF(hook);
        token = call ? PyObject_Call(hook, call, NULL) : NULL;
        Py_DECREF(hook);
    }
    Py_XDECREF(call);
    Py_XDECREF(arguments);
    Py_XDECREF(config);
    return token;
}

PyObject *silo_hooks_enter_plan(PyObject *name, PyObject *arguments,
                                const struct silo_function *function, void *stream, PyObject *tag,
                                PyObject *parts) {
    PyObject *hook = enter_hook;
    if (hook == NULL)
        return Py_NewRef(Py_None);
    PyObject *config = PyDict_New(), *call = NULL, *token = NULL;
    Py_INCREF(hook);
    if (config != NULL)
        call =
            Py_BuildValue("(OOO(nii)K(si)OOO)", name, arguments, config, PyTuple_Size(parts), 1, 1,
                          (unsigned long long)(uintptr_t)stream,
                          function == NULL                            ? "cpu"
                          : function->memory_type == SILO_DEVICE_ROCM ? "hip"
                                                                      : "cuda",
                          function == NULL ? 0 : (int)function->device_index, Py_None, tag, parts);
    if (call != NULL)
        token = PyObject_Call(hook, call, NULL);
    Py_DECREF(hook);
    Py_XDECREF(config);
    Py_XDECREF(call);
    return token;
}

int silo_hooks_exit(PyObject *token) {
    PyObject *type, *value, *traceback, *hook = exit_hook;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = Py_None;
    Py_INCREF(result);
    if (hook != NULL) {
        Py_INCREF(hook);
        Py_DECREF(result);
        result = silo_call_one(hook, token);
        Py_DECREF(hook);
    }
    Py_DECREF(token);
    const bool failed = result == NULL;
    Py_XDECREF(result);
    if (type != NULL) {
        /* The launch's own error is more useful than the hook's. */
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    return failed ? -1 : 0;
}
