#include "bundle_words.h"

#include <stdlib.h>

enum { LISTS = 4 };

static int read_list(struct silo_words *words, int number, PyObject *given) {
    PyObject *tuple = words->lists[number] = PySequence_Tuple(given);
    const Py_ssize_t count = tuple != NULL ? PyTuple_Size(tuple) : -1;
    if (count < 0)
        return -1;
    const char **names = words->names[number] = calloc((size_t)count + 1, sizeof *names);
    if (names == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, i), NULL);
        if (names[i] == NULL)
            return -1;
    }
    words->count += (size_t)count;
    return 0;
}

int silo_words_begin(struct silo_words *words, PyObject *names) {
    *words = (struct silo_words){0};
    if (!PyTuple_Check(names) || PyTuple_Size(names) != LISTS) {
        PyErr_SetString(PyExc_TypeError, "four lists of names are needed");
        return -1;
    }
    for (int i = 0; i < LISTS; i++) {
        if (read_list(words, i, PyTuple_GetItem(names, i)) != 0)
            return -1;
    }
    return 0;
}

void silo_words_end(struct silo_words *words) {
    for (int i = 0; i < LISTS; i++) {
        free(words->names[i]);
        Py_XDECREF(words->lists[i]);
    }
    *words = (struct silo_words){0};
}

struct silo_known_names silo_words_known(const struct silo_words *words) {
    return (struct silo_known_names){words->names[0], words->names[1], words->names[2],
                                     words->names[3]};
}
