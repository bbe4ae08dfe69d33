/* Makes Python values of parsed JSON: None, bool, int, str, list and dict. */
#ifndef SILO_JSON_VALUES_H
#define SILO_JSON_VALUES_H

#include "json.h"
#include "python.h"

/* Returns the value of a node, a new reference; NULL with an exception set. */
PyObject *silo_py_json(const struct silo_json *node);

/* Returns the characters of a string or a number as a str. */
PyObject *silo_py_text(const char *data, size_t bytes);

/* Returns a str as UTF-8 (borrowed) for a look-up. Returns NULL without an exception if JSON cannot
 * hold the text because it has a lone surrogate; NULL with an exception if `text` is not a str. */
const char *silo_py_find_text(PyObject *text, Py_ssize_t *bytes);

#endif
