/* The decompressor from Python that the reader of bundles may call. */
#ifndef SILO_CODEC_H
#define SILO_CODEC_H

#include "python.h"

extern const char silo_py_set_codec_doc[];

PyObject *silo_py_set_codec(PyObject *module, PyObject *decompress);

#endif
