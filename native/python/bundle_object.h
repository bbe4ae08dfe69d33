/* An open bundle as a Python object, silo._native.OpenBundle, for silo.bundle.reader, launches and
 * command-line tools. It executes nothing from the file.
 *
 * The reader copies the manifest, so kernels and variants stay readable after close(). The file's
 * bytes, which hold the blobs, are released once the bundle is closed and no view of them is left.
 * Values of a manifest are returned as for JSON: None, bool, int, str, list and dict. */
#ifndef SILO_BUNDLE_OBJECT_H
#define SILO_BUNDLE_OBJECT_H

#include "locks.h"
#include "manifest.h"
#include "python.h"

struct silo_py_bundle {
    /* Owned; usable from any thread while the object exists. */
    PyObject_HEAD struct silo_reader *reader;
    PyObject *words; /* owned callable that returns the names of plug-ins; called at most once */
    /* Owned: a buffer of the caller's bytes; its `obj` is NULL if a file is mapped. */
    Py_buffer source;
    const uint8_t *data; /* the whole file; NULL once it is released */
    size_t bytes;
    bool mapped; /* `data` is a mapping that this object made */
    silo_lock lock;
    /* The members below are read and changed under `lock`. */
    bool learned;   /* `words` was called */
    bool closed;    /* close() was called: new readers of `data` are refused */
    uint32_t users; /* number of views of `data` and of reads in progress; after close() the last of
                       them releases `data` */
};

extern PyTypeObject *silo_py_bundle_type; /* defined in bundle_type.c */

/* Returns the object as a bundle (borrowed), or NULL with a TypeError. Its `reader` may be used
 * without the GIL while the caller holds the object. Callers of functions that decode
 * (silo_reader_kernel, _variant, silo_choose, ...) release the GIL, because another thread may hold
 * the reader's lock. */
struct silo_py_bundle *silo_py_bundle_of(PyObject *object);

/* Called with the GIL held after a function of the reader refused the file. Returns 1 if plug-ins
 * add names (kinds of blobs and targets, launch options): the reader now has them, `error` is
 * cleared, and the caller repeats its call. This happens at most once for each bundle. Returns 0 if
 * plug-ins add no names, or -1 with an exception set. */
int silo_py_bundle_learn(struct silo_py_bundle *bundle, silo_error *error);

/* A function that queries the reader, called without the GIL. Returns 0, or -1 with `error` filled.
 */
typedef int silo_question(struct silo_reader *reader, void *about, silo_error *error);

/* Calls `question`. If it refuses the file and plug-ins add names, gives the names to the reader
 * and calls `question` again. Returns -1 with an exception set. */
int silo_py_bundle_ask(struct silo_py_bundle *bundle, silo_question *question, void *about);

/* Called before and after `data` is read; `use` returns -1 with a ValueError if the bundle is
 * closed. */
int silo_py_bundle_use(struct silo_py_bundle *bundle);
void silo_py_bundle_leave(struct silo_py_bundle *bundle);

/* Slots and methods of the type: creation, close(), the file as a buffer, and queries about the
 * whole file. */
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
