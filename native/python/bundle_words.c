#include "bundle_words.h"

#include <stdlib.h>

enum { LISTS = 4 };

static int read_list(struct silo_words *plugin_names, int number, PyObject *names_tuple) {
    PyObject *tuple = plugin_names->lists[number] = PySequence_Tuple(names_tuple);
    const Py_ssize_t count = tuple != NULL ? PyTuple_Size(tuple) : -1;
    if (count < 0)
        return -1;
    const char **names = plugin_names->names[number] = calloc((size_t)count + 1, sizeof *names);
    if (names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
        if (names[i] == NULL)
            return -1;
    }
    plugin_names->count += (size_t)count;
    return 0;
}

int silo_words_begin(struct silo_words *plugin_names, PyObject *names) {
    *plugin_names = (struct silo_words){0};
    if (!PyTuple_Check(names) || PyTuple_Size(names) != LISTS) {
        PyErr_SetString(PyExc_TypeError, "four lists of names are needed");
        return -1;
    }
    for (int i = 0; i < LISTS; i++) {
        if (read_list(plugin_names, i, PyTuple_GetItem(names, i)) != 0)
            return -1;
    }
    return 0;
}

void silo_words_end(struct silo_words *names) {
    for (int i = 0; i < LISTS; i++) {
        free(names->names[i]);
        Py_XDECREF(names->lists[i]);
    }
    *names = (struct silo_words){0};
}

struct silo_known_names silo_words_known(const struct silo_words *names) {
    return (struct silo_known_names){names->names[0], names->names[1], names->names[2],
                                     names->names[3]};
}
