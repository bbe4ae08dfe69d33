#include "bundle_object.h"

#include "bundle_file.h"
#include "bundle_words.h"
#include "errors.h"
#include "manifest_state.h"

#include <stdlib.h>
#include <sys/mman.h>

PyTypeObject *silo_py_bundle_type;

struct silo_py_bundle *silo_py_bundle_of(PyObject *object) {
    if (PyObject_TypeCheck(object, silo_py_bundle_type))
        return (struct silo_py_bundle *)object;
    PyErr_Format(PyExc_TypeError, "an OpenBundle is needed, not %R", (PyObject *)Py_TYPE(object));
    return NULL;
}

/* ---- the bytes ---- */

static void let_go(struct silo_py_bundle *self) {
    if (self->mapped && self->data != NULL)
        munmap((void *)(uintptr_t)self->data, self->bytes);
    self->data = NULL;
    if (self->source.obj != NULL)
        PyBuffer_Release(&self->source);
}

int silo_py_bundle_use(struct silo_py_bundle *self) {
    SILO_LOCK(&self->lock);
    const bool closed = self->closed;
    self->users += !closed;
    SILO_UNLOCK(&self->lock);
    if (!closed)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the bundle is closed");
    return -1;
}

void silo_py_bundle_leave(struct silo_py_bundle *self) {
    SILO_LOCK(&self->lock);
    const bool last = --self->users == 0 && self->closed;
    SILO_UNLOCK(&self->lock);
    if (last)
        let_go(self);
}

PyObject *silo_py_bundle_close(PyObject *object, PyObject *unused) {
    (void)unused;
    struct silo_py_bundle *self = (struct silo_py_bundle *)object;
    SILO_LOCK(&self->lock);
    const bool last = !self->closed && self->users == 0;
    self->closed = true;
    SILO_UNLOCK(&self->lock);
    if (last)
        let_go(self);
    Py_RETURN_NONE;
}

int silo_py_bundle_get_buffer(PyObject *object, Py_buffer *view, int flags) {
    static char empty;
    struct silo_py_bundle *self = (struct silo_py_bundle *)object;
    view->obj = NULL;
    if (silo_py_bundle_use(self) != 0)
        return -1;
    void *data = self->bytes != 0 ? (void *)(uintptr_t)self->data : &empty;
    const int result = PyBuffer_FillInfo(view, object, data, (Py_ssize_t)self->bytes, 1, flags);
    if (result != 0)
        silo_py_bundle_leave(self);
    return result;
}

void silo_py_bundle_release_buffer(PyObject *object, Py_buffer *view) {
    (void)view;
    silo_py_bundle_leave((struct silo_py_bundle *)object);
}

/* ---- opening ---- */

/* Reads the names that plug-ins add, at most once for each bundle. Returns 1 with the names in
 * `names`; 0 if plug-ins add no names, or if an earlier call read them; -1 with an exception set.
 */
static int ask_words(struct silo_py_bundle *self, struct silo_words *names) {
    SILO_LOCK(&self->lock);
    const bool learned = self->learned;
    self->learned = true;
    SILO_UNLOCK(&self->lock);
    *names = (struct silo_words){0};
    if (learned || self->words == Py_None)
        return 0;
    PyObject *answer = PyObject_CallNoArgs(self->words);
    const int result = answer != NULL ? silo_words_begin(names, answer) : -1;
    Py_XDECREF(answer);
    return result != 0 ? -1 : names->count != 0;
}

int silo_py_bundle_learn(struct silo_py_bundle *self, silo_error *error) {
    struct silo_words plugin_names;
    if (error->code != SILO_ERROR_DAMAGED)
        return 0;
    int result = ask_words(self, &plugin_names);
    if (result == 1) {
        const struct silo_known_names names = silo_words_known(&plugin_names);
        silo_error_clear(error);
        Py_BEGIN_ALLOW_THREADS result = silo_reader_learn(self->reader, &names, error);
        Py_END_ALLOW_THREADS result = result == 0 ? 1 : silo_raise(error);
    }
    silo_words_end(&plugin_names);
    return result;
}

/* Opens the reader, which reads the manifest. If the manifest seems damaged, opens it a second time
 * with the names that plug-ins add: the manifest may use a name that Silo itself does not know. */
static int open_reader(struct silo_py_bundle *self, const char *name, uint64_t file_memory) {
    silo_error error = {0};
    struct silo_words names = {0};
    struct silo_reader_source source = {.data = self->data,
                                        .bytes = self->bytes,
                                        .name = name,
                                        .file_memory = file_memory,
                                        .may_change = self->mapped};
    Py_BEGIN_ALLOW_THREADS self->reader = silo_reader_open(&source, &error);
    Py_END_ALLOW_THREADS if (self->reader == NULL && error.code == SILO_ERROR_DAMAGED) {
        const int status = ask_words(self, &names);
        if (status == 1) {
            source.known = silo_words_known(&names);
            silo_error_clear(&error);
            Py_BEGIN_ALLOW_THREADS self->reader = silo_reader_open(&source, &error);
            Py_END_ALLOW_THREADS
        }
        silo_words_end(&names);
        if (status < 0)
            return -1;
    }
    return self->reader != NULL ? 0 : silo_raise(&error);
}

static struct silo_py_bundle *new_bundle(PyTypeObject *type, PyObject *names) {
    if (names != Py_None && !PyCallable_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "words is a callable or None");
        return NULL;
    }
    struct silo_py_bundle *self = (struct silo_py_bundle *)PyType_GenericAlloc(type, 0);
    if (self != NULL)
        self->words = Py_NewRef(names);
    return self;
}

/* Implements OpenBundle(data, name, file_memory, words). */
PyObject *silo_py_bundle_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *data, *names;
    const char *name;
    unsigned long long file_memory;
    if (keywords != NULL && PyDict_Size(keywords) != 0)
        return PyErr_Format(PyExc_TypeError, "OpenBundle takes no arguments by name");
    if (!PyArg_ParseTuple(args, "OyKO", &data, &name, &file_memory, &names))
        return NULL;
    struct silo_py_bundle *self = new_bundle(type, names);
    if (self == NULL)
        return NULL;
    if (PyObject_GetBuffer(data, &self->source, PyBUF_SIMPLE) == 0) {
        self->data = self->source.buf;
        self->bytes = (size_t)self->source.len;
        if (open_reader(self, name, file_memory) == 0)
            return (PyObject *)self;
    }
    Py_DECREF((PyObject *)self);
    return NULL;
}

PyObject *silo_py_bundle_map(PyObject *type, PyObject *args) {
    PyObject *path, *names;
    const char *name;
    unsigned long long file_memory;
    if (!PyArg_ParseTuple(args, "O&yKO", PyUnicode_FSConverter, &path, &name, &file_memory, &names))
        return NULL;
    const char *path_bytes = PyBytes_AsString(path);
    struct silo_py_bundle *self = new_bundle((PyTypeObject *)type, names);
    silo_error error = {0};
    void *data = NULL;
    int result = -1;
    if (self != NULL) {
        Py_BEGIN_ALLOW_THREADS result = silo_file_map(path_bytes, &data, &self->bytes, &error);
        Py_END_ALLOW_THREADS if (result != 0) {
            silo_error failure = {0};
            silo_fail(&failure, SILO_ERROR_FILE, "cannot open the bundle %s", error.text);
            silo_raise(&failure);
        }
    }
    Py_DECREF(path);
    if (result == 0) {
        self->data = data;
        self->mapped = true;
        result = open_reader(self, name, file_memory);
    }
    if (result != 0) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

void silo_py_bundle_dealloc(PyObject *object) {
    struct silo_py_bundle *self = (struct silo_py_bundle *)object;
    PyTypeObject *type = Py_TYPE(object);
    silo_reader_close(self->reader);
    let_go(self);
    Py_XDECREF(self->words);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- asking the reader ---- */

int silo_py_bundle_ask(struct silo_py_bundle *self, silo_question *question, void *about) {
    for (;;) {
        silo_error error = {0};
        int result;
        Py_BEGIN_ALLOW_THREADS result = question(self->reader, about, &error);
        Py_END_ALLOW_THREADS if (result == 0) return 0;
        const int again = silo_py_bundle_learn(self, &error);
        if (again < 0)
            return -1;
        if (again == 0)
            return silo_raise(&error);
    }
}

/* ---- the whole file ---- */

PyObject *silo_py_bundle_header(PyObject *object, void *closure) {
    (void)closure;
    const struct silo_header *header =
        &silo_reader_manifest(((struct silo_py_bundle *)object)->reader)->header;
    return Py_BuildValue("(HHNKKy#)", (unsigned short)header->major, (unsigned short)header->minor,
                         PyBool_FromLong(header->zstd_manifest),
                         (unsigned long long)header->manifest_offset,
                         (unsigned long long)header->manifest_bytes,
                         (const char *)header->manifest_sha256, (Py_ssize_t)SILO_SHA256_BYTES);
}

PyObject *silo_py_bundle_size(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromSize_t(((struct silo_py_bundle *)object)->bytes);
}

PyObject *silo_py_bundle_text(PyObject *object, PyObject *unused) {
    (void)unused;
    struct silo_py_bundle *self = (struct silo_py_bundle *)object;
    silo_error error = {0};
    size_t bytes = 0;
    char *text;
    if (silo_py_bundle_use(self) != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS text = silo_reader_text(self->reader, &bytes, &error);
    Py_END_ALLOW_THREADS silo_py_bundle_leave(self);
    if (text == NULL) {
        silo_raise(&error);
        return NULL;
    }
    PyObject *bytes_object = PyBytes_FromStringAndSize(text, (Py_ssize_t)bytes);
    free(text);
    return bytes_object;
}
