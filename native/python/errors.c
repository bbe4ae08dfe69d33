#include "errors.h"

#include <stdarg.h>

PyObject *silo_argument_error;
PyObject *silo_launch_error;
PyObject *silo_device_error;
PyObject *silo_expression_error;

int silo_errors_init(void) {
    PyObject *module = PyImport_ImportModule("silo.errors");
    if (module == NULL)
        return -1;
    silo_argument_error = PyObject_GetAttrString(module, "ArgumentError");
    silo_launch_error = PyObject_GetAttrString(module, "LaunchError");
    silo_device_error = PyObject_GetAttrString(module, "DeviceError");
    silo_expression_error = PyObject_GetAttrString(module, "ExpressionError");
    Py_DECREF(module);
    return silo_argument_error && silo_launch_error && silo_device_error && silo_expression_error
               ? 0
               : -1;
}

PyObject *silo_take_exception(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (type == NULL)
        return NULL;
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(traceback);
    Py_DECREF(type);
    return value;
}

void silo_chain(PyObject *cause) {
    if (cause == NULL)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value != NULL)
        PyException_SetCause(value, cause);
    else
        Py_DECREF(cause);
    PyErr_Restore(type, value, traceback);
}

void silo_add_note(const char *format, ...) {
    PyObject *type, *value, *traceback;
    va_list arguments;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    va_start(arguments, format);
    PyObject *note = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    PyObject *done = note && value ? PyObject_CallMethod(value, "add_note", "O", note) : NULL;
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(note);
    PyErr_Restore(type, value, traceback);
}

/* The attribute as text, or NULL with no exception. */
static PyObject *text_of(PyObject *object, const char *attribute) {
    PyObject *value = PyObject_GetAttrString(object, attribute);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    Py_XDECREF(value);
    if (text == NULL)
        PyErr_Clear();
    return text;
}

PyObject *silo_describe(PyObject *object) {
    if (object == NULL)
        return PyUnicode_FromString("nothing");
    if (object == Py_None)
        return PyUnicode_FromString("None");
    PyObject *name = PyType_GetQualName(Py_TYPE(object));
    if (name == NULL)
        return NULL;
    PyObject *result = NULL;
    if (PyLong_Check(object) || PyFloat_Check(object)) {
        PyObject *value = PyObject_Repr(object);
        if (value != NULL)
            result = PyUnicode_FromFormat("the %U %.60U", name, value);
        Py_XDECREF(value);
    } else {
        PyObject *dtype = text_of(object, "dtype"), *device = text_of(object, "device");
        PyObject *shape = text_of(object, "shape");
        if (dtype && shape && device)
            result =
                PyUnicode_FromFormat("a %U of %U, shape %U, on %U", name, dtype, shape, device);
        else if (dtype && shape)
            result = PyUnicode_FromFormat("a %U of %U, shape %U", name, dtype, shape);
        else if (PyUnicode_Check(object))
            result = PyUnicode_FromFormat("the %U %.60R", name, object);
        else
            result = PyUnicode_FromFormat("a %U", name);
        Py_XDECREF(dtype);
        Py_XDECREF(device);
        Py_XDECREF(shape);
    }
    Py_DECREF(name);
    return result;
}

/* What Python says of an argument that could not be read, such as what kind of wrapper it is; NULL
 * where it says nothing. Never leaves an exception. */
static PyObject *remark_on(PyObject *object) {
    PyObject *module = PyImport_ImportModule("silo.launch.wrapped_tensors");
    PyObject *explain = module ? PyObject_GetAttrString(module, "explain_wrapped") : NULL;
    PyObject *remark =
        explain && object ? PyObject_CallFunctionObjArgs(explain, object, NULL) : NULL;
    Py_XDECREF(explain);
    Py_XDECREF(module);
    PyErr_Clear();
    if (remark != NULL && (!PyUnicode_Check(remark) || PyUnicode_GetLength(remark) == 0))
        Py_CLEAR(remark);
    return remark;
}

int silo_bad_argument(PyObject *kernel, PyObject *name, const char *wanted, PyObject *got) {
    PyObject *cause = silo_take_exception();
    PyObject *description = silo_describe(got);
    if (description != NULL) {
        PyObject *remark = remark_on(got);
        if (remark != NULL)
            PyErr_Format(silo_argument_error, "%U: argument '%U' needs %s, got %U: %U", kernel,
                         name, wanted, description, remark);
        else
            PyErr_Format(silo_argument_error, "%U: argument '%U' needs %s, got %U", kernel, name,
                         wanted, description);
        Py_XDECREF(remark);
        Py_DECREF(description);
    }
    silo_chain(cause);
    return -1;
}
