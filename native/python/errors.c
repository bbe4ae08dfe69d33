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

/* ---- errors of native/core ---- */

/* Returns the error's text. If the text was cut to fit into `error`, the full text is taken from
 * `details`; for SILO_ERROR_NO_VARIANT, `details` holds the reasons against each variant instead.
 */
static PyObject *text_of_error(const silo_error *error) {
    const bool whole = error->code != SILO_ERROR_NO_VARIANT && error->details != NULL;
    const char *text = whole ? error->details : error->text;
    /* Texts of drivers and linkers have an unknown encoding. */
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

int silo_raise_as(PyObject *type, silo_error *error) {
    if (error->code == SILO_ERROR_MEMORY && error->driver_code == 0) {
        silo_error_clear(error);
        PyErr_NoMemory();
        return -1;
    }
    PyObject *text = text_of_error(error);
    if (text != NULL)
        PyErr_SetObject(type, text);
    Py_XDECREF(text);
    silo_error_clear(error);
    return -1;
}

/* Returns the name of the class in silo.errors for an error's code, or NULL if the error is a
 * MemoryError. */
static const char *class_of(const silo_error *error) {
    switch ((enum silo_code)error->code) {
    case SILO_ERROR_FOREIGN:
    case SILO_ERROR_TRUNCATED:
    case SILO_ERROR_DAMAGED:
    case SILO_ERROR_TOO_LARGE:
        return "BundleFormatError";
    case SILO_ERROR_NEWER:
        return "BundleVersionError";
    case SILO_ERROR_FILE:
    case SILO_ERROR_CODEC:
    case SILO_ERROR_NO_KERNEL:
        return "BundleError";
    case SILO_ERROR_NO_VARIANT:
        return "NoVariantError";
    case SILO_ERROR_UNTRUSTED:
        return "TrustError";
    case SILO_ERROR_USAGE:
    case SILO_ERROR_MISSING:
    case SILO_ERROR_NULL:
    case SILO_ERROR_KIND:
    case SILO_ERROR_DTYPE:
    case SILO_ERROR_MISALIGNED:
    case SILO_ERROR_SHAPE:
    case SILO_ERROR_GRID:
    case SILO_ERROR_WRONG_DEVICE:
        return "ArgumentError";
    case SILO_ERROR_EXPRESSION:
        return "ExpressionError";
    case SILO_ERROR_LAUNCH:
    case SILO_ERROR_FAULT:
    case SILO_ERROR_CAPTURING:
        return "LaunchError";
    case SILO_ERROR_NO_DRIVER:
    case SILO_ERROR_NO_DEVICE:
    case SILO_ERROR_LIMIT:
    case SILO_ERROR_LOAD:
    case SILO_ERROR_FORKED:
    case SILO_ERROR_UNSUPPORTED:
        return "DeviceError";
    case SILO_ERROR_MEMORY:
        /* If the driver reported a code, the device is out of memory, not the host. */
        return error->driver_code != 0 ? "DeviceError" : NULL;
    case SILO_OK:
    case SILO_ERROR_INTERNAL:
        break;
    }
    return "SiloError";
}

/* Makes the exception object, with the keyword arguments that its class takes; NULL with an
 * exception set. */
static PyObject *make_error(PyObject *type, const silo_error *error, PyObject *text) {
    PyObject *keywords = NULL;
    if (error->code == SILO_ERROR_NO_VARIANT && error->details != NULL) {
        PyObject *details =
            PyUnicode_DecodeUTF8(error->details, (Py_ssize_t)strlen(error->details), "replace");
        PyObject *lines = details ? PyObject_CallMethod(details, "splitlines", NULL) : NULL;
        keywords = lines ? Py_BuildValue("{sO}", "rejections", lines) : NULL;
        Py_XDECREF(lines);
        Py_XDECREF(details);
    } else if (strcmp(class_of(error), "BundleFormatError") == 0) {
        keywords = Py_BuildValue("{sssK}", "field", error->field, "offset",
                                 (unsigned long long)error->offset);
    } else {
        keywords = PyDict_New();
    }
    PyObject *arguments = keywords ? PyTuple_Pack(1, text) : NULL;
    PyObject *exception = arguments ? PyObject_Call(type, arguments, keywords) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    return exception;
}

int silo_raise(silo_error *error) {
    const char *name = class_of(error);
    if (name == NULL) {
        silo_error_clear(error);
        PyErr_NoMemory();
        return -1;
    }
    PyObject *module = PyImport_ImportModule("silo.errors");
    PyObject *type = module ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *text = type ? text_of_error(error) : NULL;
    PyObject *exception = text ? make_error(type, error, text) : NULL;
    if (exception != NULL)
        PyErr_SetObject(type, exception);
    Py_XDECREF(exception);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(module);
    silo_error_clear(error);
    return -1;
}

/* ---- exceptions ---- */

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
    PyObject *result = note && value ? PyObject_CallMethod(value, "add_note", "O", note) : NULL;
    if (result == NULL)
        silo_forget_error();
    Py_XDECREF(result);
    Py_XDECREF(note);
    PyErr_Restore(type, value, traceback);
}

/* Returns an array's description, such as "float32[2, 3] on cpu" (new reference). Returns NULL
 * without an exception for any other object. */
static PyObject *array_words(PyObject *object) {
    PyObject *module = PyImport_ImportModule("silo.core.argument_facts");
    PyObject *text = module ? PyObject_CallMethod(module, "describe_array", "(O)", object) : NULL;
    Py_XDECREF(module);
    if (text == NULL)
        silo_forget_error();
    else if (text == Py_None)
        Py_CLEAR(text);
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
    } else if (PyUnicode_Check(object)) {
        result = PyUnicode_FromFormat("the %U %.60R", name, object);
    } else {
        PyObject *array = array_words(object);
        result = array ? PyUnicode_FromFormat("a %U %U", name, array)
                       : PyUnicode_FromFormat("a %U", name);
        Py_XDECREF(array);
    }
    Py_DECREF(name);
    return result;
}

/* Returns a sentence about an argument that could not be read, such as which library wrapped the
 * array (new reference), from silo.launch.arrays_without_memory; NULL if that module has nothing to
 * add. Never leaves an exception. */
static PyObject *remark_on(PyObject *object) {
    PyObject *module = PyImport_ImportModule("silo.launch.arrays_without_memory");
    PyObject *explain = module ? PyObject_GetAttrString(module, "explain_wrapped") : NULL;
    PyObject *remark =
        explain && object ? PyObject_CallFunctionObjArgs(explain, object, NULL) : NULL;
    Py_XDECREF(explain);
    Py_XDECREF(module);
    silo_forget_error();
    if (remark != NULL && (!PyUnicode_Check(remark) || PyUnicode_GetLength(remark) == 0))
        Py_CLEAR(remark);
    return remark;
}

int silo_bad_argument(PyObject *kernel, PyObject *name, const char *expected, PyObject *got) {
    PyObject *cause = silo_take_exception();
    PyObject *description = silo_describe(got);
    if (description != NULL) {
        PyObject *remark = remark_on(got);
        if (remark != NULL)
            PyErr_Format(silo_argument_error, "%U: argument '%U' needs %s, got %U: %U", kernel,
                         name, expected, description, remark);
        else
            PyErr_Format(silo_argument_error, "%U: argument '%U' needs %s, got %U", kernel, name,
                         expected, description);
        Py_XDECREF(remark);
        Py_DECREF(description);
    }
    silo_chain(cause);
    return -1;
}

void silo_forget_error(void) {
    const bool interrupted =
        PyErr_Occurred() != NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_Clear();
    if (interrupted)
        PyErr_SetInterrupt();
}
