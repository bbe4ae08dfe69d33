#include "capsule.h"

#include "errors.h"
#include "names.h"

static PyObject *s_dlpack, *s_dlpack_device;

int silo_capsules_init(void) {
    static const struct silo_name names[] = {
        {&s_dlpack, "__dlpack__"},
        {&s_dlpack_device, "__dlpack_device__"},
    };
    return silo_intern(names, sizeof names / sizeof *names);
}

const struct dl_tensor *silo_tensor_of_capsule(PyObject *capsule, bool *readonly) {
    *readonly = false;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->major != 1) { /* another major version may store the other members elsewhere */
            PyErr_Format(PyExc_ValueError, "its DLPack capsule is of version %u.%u; 1 is known",
                         managed->major, managed->minor);
            return NULL;
        }
        *readonly = (managed->flags & DL_FLAG_READ_ONLY) != 0;
        return &managed->tensor;
    }
    struct dl_managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    return managed ? &managed->tensor : NULL;
}

/* Calls __dlpack__ with stream=-1, which tells the producer not to wait, because the caller orders
 * the work itself; by default a producer on a GPU waits for its stream. jax (to 0.11) takes -1 for
 * a stream's handle and fails, so the call is repeated without the argument. */
static PyObject *ask_unordered(PyObject *method, PyObject *empty) {
    PyObject *keywords = Py_BuildValue("{s:i}", "stream", -1);
    if (keywords == NULL)
        return NULL;
    PyObject *capsule = PyObject_Call(method, empty, keywords);
    Py_DECREF(keywords);
    if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_RuntimeError))
        return capsule;
    silo_forget_error();
    return PyObject_Call(method, empty, NULL);
}

PyObject *silo_capsule_of(PyObject *object) {
    PyObject *device = PyObject_CallMethodObjArgs(object, s_dlpack_device, NULL);
    if (device == NULL)
        return NULL;
    PyObject *type = PySequence_GetItem(device, 0);
    long code = type ? PyLong_AsLong(type) : -1;
    Py_XDECREF(type);
    Py_DECREF(device);
    if (code == -1 && PyErr_Occurred())
        return NULL;
    PyObject *method = PyObject_GetAttr(object, s_dlpack);
    if (method == NULL)
        return NULL;
    PyObject *empty = PyTuple_New(0), *capsule = NULL;
    if (empty != NULL)
        capsule = code == SILO_DEVICE_CPU ? PyObject_Call(method, empty, NULL)
                                          : ask_unordered(method, empty);
    Py_XDECREF(empty);
    Py_DECREF(method);
    return capsule;
}

bool silo_buffer_failed(PyObject *object) {
    PyObject *cause = silo_take_exception();
    if (PyObject_HasAttr(object, s_dlpack)) {
        Py_XDECREF(cause);
        return true;
    }
    if (cause != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(cause), cause);
    Py_XDECREF(cause);
    return false;
}

int silo_shape_of_capsule(PyObject *capsule, struct silo_shape *shape) {
    bool readonly;
    const struct dl_tensor *tensor = silo_tensor_of_capsule(capsule, &readonly);
    shape->whole = true; /* DLPack counts strides in whole elements */
    return tensor ? silo_shape_of_tensor(tensor, shape) : -1;
}
