/* set_codec: lets the C runtime decompress bundles by Python's zstandard package if libzstd is
 * missing. */
#include "codec.h"

#include "bundle_codec.h"
#include "errors.h"

#include <stdio.h>

const char silo_py_set_codec_doc[] =
    "set_codec(decompress)\n\nWhere libzstd is not installed, decompress(frame, bytes) -> bytes is "
    "called for bundles that are stored compressed; None: such a bundle is an error.";

/* Replaced only while the GIL is held. by_python takes a reference before it calls the object, so
 * that a replacement during the call does not free it. */
static PyObject *decompress;

static int by_python(const void *stored, size_t stored_bytes, void *raw, size_t raw_bytes,
                     char problem[SILO_CODEC_PROBLEM]) {
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *call = decompress;
    char *data = NULL;
    Py_ssize_t bytes = 0;
    Py_XINCREF(call);
    PyObject *expanded =
        call != NULL ? PyObject_CallFunction(call, "y#n", (const char *)stored,
                                             (Py_ssize_t)stored_bytes, (Py_ssize_t)raw_bytes)
                     : NULL;
    int result = expanded != NULL ? PyBytes_AsStringAndSize(expanded, &data, &bytes) : -1;
    if (result == 0 && (size_t)bytes == raw_bytes) {
        memcpy(raw, data, raw_bytes);
    } else if (result == 0) {
        snprintf(problem, SILO_CODEC_PROBLEM, "%zd bytes came of a frame of %zu", bytes, raw_bytes);
        result = -1;
    } else {
        PyObject *error = silo_take_exception();
        PyObject *text = error != NULL ? PyObject_Str(error) : NULL;
        const char *message = text != NULL ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
        snprintf(problem, SILO_CODEC_PROBLEM, "%.200s",
                 message != NULL ? message : "not a zstd frame");
        Py_XDECREF(text);
        Py_XDECREF(error);
        PyErr_Clear();
    }
    Py_XDECREF(expanded);
    Py_XDECREF(call);
    PyGILState_Release(state);
    return result;
}

PyObject *silo_py_set_codec(PyObject *module, PyObject *callable) {
    (void)module;
    if (callable != Py_None && !PyCallable_Check(callable))
        return PyErr_Format(PyExc_TypeError, "a codec is a callable or None");
    PyObject *old = decompress;
    decompress = callable != Py_None ? Py_NewRef(callable) : NULL;
    silo_codec_use(decompress != NULL ? by_python : NULL);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}
