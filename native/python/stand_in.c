#include "stand_in.h"

static PyTypeObject *stand_in_type;

struct stand_in {
    PyObject_HEAD PyObject *value; /* owned */
};

PyObject *silo_stood_for(PyObject *object) {
    return stand_in_type != NULL && PyObject_TypeCheck(object, stand_in_type)
               ? ((struct stand_in *)object)->value
               : NULL;
}

static PyObject *stand_in_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *value = args != NULL && PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : NULL;
    (void)keywords;
    if (value == NULL) {
        PyErr_Clear();
        return PyErr_Format(PyExc_TypeError, "a stand-in stands for an object");
    }
    struct stand_in *self = (struct stand_in *)PyType_GenericAlloc(type, 0);
    if (self != NULL)
        self->value = Py_NewRef(value);
    return (PyObject *)self;
}

static int stand_in_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)Py_TYPE(self));
    Py_VISIT(((struct stand_in *)self)->value);
    return 0;
}

static void stand_in_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((struct stand_in *)self)->value);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

int silo_stand_in_init(PyObject *module) {
    static PyMemberDef members[] = {
        {"stands_for", T_OBJECT, offsetof(struct stand_in, value), READONLY, "What it stands for."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)stand_in_new},
        {Py_tp_dealloc, (void *)stand_in_dealloc},
        {Py_tp_traverse, (void *)stand_in_traverse},
        {Py_tp_members, members},
        {Py_tp_doc, "StandIn(value, ...)\n--\n\nAn argument of a function that is recorded; "
                    "launches are given the value."},
        {0, NULL},
    };
    static PyType_Spec spec = {"silo._native.StandIn", sizeof(struct stand_in), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                               slots};
    stand_in_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return stand_in_type ? PyModule_AddObjectRef(module, "StandIn", (PyObject *)stand_in_type) : -1;
}
