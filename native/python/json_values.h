/* Parsed JSON as values of Python: None, bool, int, str, list and dict. */
#ifndef SILO_JSON_VALUES_H
#define SILO_JSON_VALUES_H

#include "json.h"
#include "python.h"

/* A new reference; NULL with an exception set. */
PyObject *silo_py_json(const struct silo_json *node);

/* The text of a string, or of the characters of a number. */
PyObject *silo_py_text(const char *data, size_t bytes);

/* UTF-8 of a string to find (borrowed); NULL without an exception if JSON cannot hold it because of
 * a lone surrogate, and with an exception if it is not a string. */
const char *silo_py_find_text(PyObject *text, Py_ssize_t *bytes);

#endif
