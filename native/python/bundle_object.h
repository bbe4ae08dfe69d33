/* An open bundle as a Python object, silo._native.OpenBundle: what silo.bundle.reader, launches and
 * the tools read. Nothing is executed.
 *
 * The reader copies the manifest, so kernels and variants stay readable after close(); the bytes
 * that blobs lie in go when it is closed and the last view of them is gone. Values of a manifest
 * are given as JSON has them: None, bool, int, str, list and dict. */
#ifndef SILO_BUNDLE_OBJECT_H
#define SILO_BUNDLE_OBJECT_H

#include "locks.h"
#include "manifest.h"
#include "python.h"

struct silo_py_bundle {
    PyObject_HEAD struct silo_reader
        *reader;         /* owned; usable from any thread, until the object is gone */
    PyObject *words;     /* owned: a callable, called once: returns the names that plug-ins added */
    Py_buffer source;    /* owned: bytes of the caller's; `obj` NULL where a file is mapped */
    const uint8_t *data; /* the whole file; NULL once it is let go of */
    size_t bytes;
    bool mapped; /* `data` is a mapping of ours */
    silo_lock lock;
    /* Under `lock`. */
    bool learned;   /* `words` was called */
    bool closed;    /* close() was called: `data` is closed to new readers */
    uint32_t users; /* views, and reads under way; with `closed`, the last one lets go of `data` */
};

extern PyTypeObject *silo_py_bundle_type; /* bundle_type.c */

/* The bundle that an object is (borrowed); NULL with a TypeError. Its `reader` may be read without
 * the GIL as long as the caller holds the object. Callers that decode (silo_reader_kernel,
 * _variant, silo_choose, ...) let go of the GIL, because another thread may hold the reader's lock.
 */
struct silo_py_bundle *silo_py_bundle_of(PyObject *object);

/* After a function of the reader refused the file, with the GIL: whether plug-ins are installed
 * that know more names (kinds of blobs and targets, launch options), which the reader has now, so
 * that the call is to be repeated; true at most once for each bundle. `error` is cleared then. -1
 * with an exception set. */
int silo_py_bundle_learn(struct silo_py_bundle *bundle, silo_error *error);

/* A call of the reader: 0, or -1 with `error` filled; called without the GIL. */
typedef int silo_question(struct silo_reader *reader, void *about, silo_error *error);

/* Call it, and again if plug-ins have more names. -1 with an exception set. */
int silo_py_bundle_ask(struct silo_py_bundle *bundle, silo_question *question, void *about);

/* Before and after `data` is read; -1 with a ValueError if the bundle is closed. */
int silo_py_bundle_use(struct silo_py_bundle *bundle);
void silo_py_bundle_leave(struct silo_py_bundle *bundle);

/* Methods of the type: making, closing, the file as a buffer, and the members of the whole file. */
PyObject *silo_py_bundle_new(PyTypeObject *type, PyObject *args, PyObject *keywords);
PyObject *silo_py_bundle_map(PyObject *type, PyObject *args);
void silo_py_bundle_dealloc(PyObject *object);
PyObject *silo_py_bundle_close(PyObject *object, PyObject *unused);
int silo_py_bundle_get_buffer(PyObject *object, Py_buffer *view, int flags);
void silo_py_bundle_release_buffer(PyObject *object, Py_buffer *view);
PyObject *silo_py_bundle_header(PyObject *object, void *closure);
PyObject *silo_py_bundle_size(PyObject *object, void *closure);
PyObject *silo_py_bundle_text(PyObject *object, PyObject *unused);

#endif
