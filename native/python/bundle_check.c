/* bundle_check and bundle_digests: the C reader beside Python's, for the tests that bind the two.
 */
#include "functions.h"

#include "manifest.h"

#include <stdlib.h>

enum { LISTS = 4 };

const char silo_py_bundle_check_doc[] =
    "bundle_check(data, file_memory, blob_kinds, launch_options, checked_kinds, target_kinds)\n\n"
    "Read all of a bundle and every blob of it: None, or (code, field, offset, text).";
const char silo_py_bundle_digests_doc[] =
    "bundle_digests(data, file_memory, blob_kinds, launch_options, checked_kinds, target_kinds)\n\n"
    "The digest that consent to host code is given to, of every variant: {kernel: (digest, ...)}.";

/* The arguments, whose texts are borrowed. */
struct request {
    Py_buffer data;
    unsigned long long file_memory;
    const char **names[LISTS]; /* owned */
};

static int read_names(PyObject *tuple, const char ***names) {
    const Py_ssize_t count = PyTuple_Size(tuple);
    *names = calloc((size_t)count + 1, sizeof **names);
    if (*names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        (*names)[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
        if ((*names)[i] == NULL)
            return -1;
    }
    return 0;
}

static void request_end(struct request *request) {
    for (int i = 0; i < LISTS; i++)
        free(request->names[i]);
    PyBuffer_Release(&request->data);
}

static int request_begin(struct request *request, PyObject *args) {
    PyObject *lists[LISTS] = {NULL};
    *request = (struct request){0};
    if (!PyArg_ParseTuple(args, "y*KO!O!O!O!", &request->data, &request->file_memory, &PyTuple_Type,
                          &lists[0], &PyTuple_Type, &lists[1], &PyTuple_Type, &lists[2],
                          &PyTuple_Type, &lists[3]))
        return -1;
    for (int i = 0; i < LISTS; i++) {
        if (read_names(lists[i], &request->names[i]) != 0) {
            request_end(request);
            return -1;
        }
    }
    return 0;
}

static struct silo_reader *open_bundle(const struct request *request, silo_error *error) {
    return silo_reader_open(
        &(struct silo_reader_source){
            .data = request->data.buf,
            .bytes = (size_t)request->data.len,
            .name = "bundle",
            .file_memory = request->file_memory,
            .known = {request->names[0], request->names[1], request->names[2], request->names[3]},
        },
        error);
}

static int check_all(const struct request *request, silo_error *error) {
    struct silo_reader *reader = open_bundle(request, error);
    if (reader == NULL)
        return -1;
    int result = silo_reader_check(reader, error);
    /* What the choice asks for is there wherever all was read. */
    for (uint32_t i = 0; i < silo_reader_kernel_count(reader) && result == 0; i++)
        result = silo_reader_kernel(reader, i, error) != NULL ? 0 : -1;
    for (uint32_t i = 0; i < silo_reader_blob_count(reader) && result == 0; i++) {
        void *owned;
        result = silo_reader_bytes(reader, i, &owned, error) != NULL ? 0 : -1;
        free(owned);
    }
    silo_reader_close(reader);
    return result;
}

static PyObject *found_error(const silo_error *error) {
    return Py_BuildValue("(isKs)", error->code, error->field, (unsigned long long)error->offset,
                         error->text);
}

PyObject *silo_py_bundle_check(PyObject *module, PyObject *args) {
    (void)module;
    struct request request;
    silo_error error;
    int result;
    if (request_begin(&request, args) != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS result = check_all(&request, &error);
    Py_END_ALLOW_THREADS request_end(&request);
    if (result != 0)
        return found_error(&error);
    Py_RETURN_NONE;
}

static PyObject *digests_of(struct silo_reader *reader, uint32_t kernel, silo_error *error) {
    const struct silo_kernel_info *info = silo_reader_kernel(reader, kernel, error);
    PyObject *digests = info != NULL ? PyTuple_New((Py_ssize_t)info->variant_count) : NULL;
    for (uint32_t i = 0; digests != NULL && i < info->variant_count; i++) {
        char digest[65];
        PyObject *text = silo_reader_host_digest(reader, kernel, i, digest, error) == 0
                             ? PyUnicode_FromString(digest)
                             : NULL;
        if (text == NULL || PyTuple_SetItem(digests, (Py_ssize_t)i, text) != 0)
            Py_CLEAR(digests);
    }
    return digests;
}

PyObject *silo_py_bundle_digests(PyObject *module, PyObject *args) {
    (void)module;
    struct request request;
    silo_error error = {0};
    if (request_begin(&request, args) != 0)
        return NULL;
    struct silo_reader *reader = open_bundle(&request, &error);
    PyObject *found = reader != NULL ? PyDict_New() : NULL;
    for (uint32_t i = 0; found != NULL && i < silo_reader_kernel_count(reader); i++) {
        const struct silo_string name = silo_reader_kernel_name(reader, i);
        PyObject *key = PyUnicode_FromStringAndSize(name.data, (Py_ssize_t)name.length);
        PyObject *digests = key != NULL ? digests_of(reader, i, &error) : NULL;
        if (digests == NULL || PyDict_SetItem(found, key, digests) != 0)
            Py_CLEAR(found);
        Py_XDECREF(digests);
        Py_XDECREF(key);
    }
    silo_reader_close(reader);
    request_end(&request);
    if (found == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, error.text);
    return found;
}
