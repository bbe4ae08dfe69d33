#include "bundle_blobs.h"

#include "bundle_object.h"
#include "errors.h"
#include "json_values.h"

static struct silo_reader *reader_of(PyObject *object) {
    return ((struct silo_py_bundle *)object)->reader;
}

/* Returns the number of a blob, or -1 with an exception set. */
static int64_t number_of(PyObject *self, PyObject *number_object) {
    const long long number = PyLong_AsLongLong(number_object);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number >= 0 && number < silo_reader_blob_count(reader_of(self)))
        return number;
    PyErr_Format(PyExc_IndexError, "there is no blob %lld", number);
    return -1;
}

static PyObject *row_of(const struct silo_blob *blob) {
    PyObject *kind = silo_py_text(blob->kind.data, blob->kind.length);
    return kind != NULL
               ? Py_BuildValue("(sNKsKK)", blob->sha256, kind, (unsigned long long)blob->raw_bytes,
                               blob->compressed ? "zstd" : "raw", (unsigned long long)blob->offset,
                               (unsigned long long)blob->stored_bytes)
               : NULL;
}

PyObject *silo_py_bundle_blobs(PyObject *self, PyObject *unused) {
    (void)unused;
    struct silo_reader *reader = reader_of(self);
    const uint32_t count = silo_reader_blob_count(reader);
    PyObject *rows = PyTuple_New(count);
    for (uint32_t i = 0; rows != NULL && i < count; i++) {
        PyObject *row = row_of(silo_reader_blob(reader, i));
        if (row == NULL || PyTuple_SetItem(rows, i, row) != 0)
            Py_CLEAR(rows);
    }
    return rows;
}

PyObject *silo_py_bundle_blob(PyObject *self, PyObject *number_object) {
    const int64_t number = number_of(self, number_object);
    return number >= 0 ? row_of(silo_reader_blob(reader_of(self), (uint32_t)number)) : NULL;
}

PyObject *silo_py_bundle_find_blob(PyObject *self, PyObject *args) {
    PyObject *sha256, *kind = NULL;
    Py_ssize_t length, kind_length = 0;
    if (!PyArg_ParseTuple(args, "O|O", &sha256, &kind))
        return NULL;
    const char *text = silo_py_find_text(sha256, &length), *of = NULL;
    if (text != NULL && kind != NULL)
        text = (of = silo_py_find_text(kind, &kind_length)) != NULL ? text : NULL;
    if (text == NULL)
        return PyErr_Occurred() ? NULL : PyLong_FromLong(-1);
    const struct silo_string kind_string = {of, (uint32_t)kind_length};
    return PyLong_FromLongLong(silo_reader_blob_index(reader_of(self), text, (size_t)length,
                                                      of != NULL ? &kind_string : NULL));
}

PyObject *silo_py_bundle_read(PyObject *self, PyObject *number_object) {
    struct silo_py_bundle *bundle = (struct silo_py_bundle *)self;
    const int64_t number = number_of(self, number_object);
    silo_error error = {0};
    if (number < 0)
        return NULL;
    const uint32_t blob = (uint32_t)number;
    if (silo_reader_allows(bundle->reader, blob, &error) != 0) {
        silo_raise(&error);
        return NULL;
    }
    PyObject *bytes_object = PyBytes_FromStringAndSize(
        NULL, (Py_ssize_t)silo_reader_blob(bundle->reader, blob)->raw_bytes);
    if (bytes_object == NULL)
        return NULL;
    if (silo_py_bundle_use(bundle) != 0) {
        Py_DECREF(bytes_object);
        return NULL;
    }
    /* No other thread refers to the new bytes yet, so that they may be written without the GIL. */
    uint8_t *to = (uint8_t *)PyBytes_AsString(bytes_object);
    int result;
    Py_BEGIN_ALLOW_THREADS result = silo_reader_copy(bundle->reader, blob, to, &error);
    Py_END_ALLOW_THREADS silo_py_bundle_leave(bundle);
    if (result != 0) {
        Py_DECREF(bytes_object);
        silo_raise(&error);
        return NULL;
    }
    return bytes_object;
}
