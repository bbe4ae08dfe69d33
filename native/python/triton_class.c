#include "triton_class.h"

#include "names.h"

PyObject *silo_triton_s_run;

void silo_triton_class_set(struct silo_triton_class *served, PyTypeObject *type, PyObject *run) {
    const struct silo_triton_class old = *served;
    PyObject *members = PyObject_GenericGetDict((PyObject *)type, NULL);
    if (members != NULL && !PyDict_Check(members))
        Py_CLEAR(members);
    PyErr_Clear();
    *served = (struct silo_triton_class){(PyTypeObject *)Py_NewRef((PyObject *)type), members,
                                         Py_NewRef(run)};
    Py_XDECREF((PyObject *)old.type);
    Py_XDECREF(old.members);
    Py_XDECREF(old.run);
}

SILO_NOINLINE bool silo_triton_class_finds(const struct silo_triton_class *served,
                                           PyObject *object) {
    PyErr_Clear();
    PyObject *run = PyObject_GetAttr((PyObject *)Py_TYPE(object), silo_triton_s_run);
    const bool is_silo = run != NULL && run == served->run;
    Py_XDECREF(run);
    PyErr_Clear();
    return is_silo;
}

int silo_triton_class_init(void) {
    static const struct silo_name names[] = {{&silo_triton_s_run, "run"}};
    return silo_intern(names, sizeof names / sizeof *names);
}
