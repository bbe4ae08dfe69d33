#include "scalars.h"

#include "arguments.h"
#include "names.h"
#include "stack.h"

static PyObject *s_item;

int silo_scalars_init(void) {
    static const struct silo_name names[] = {{&s_item, "item"}};
    return silo_intern(names, sizeof names / sizeof *names);
}

PyObject *silo_number_of(PyObject *object, const struct silo_adapter *adapter) {
    if (silo_stack_check() != 0)
        return NULL;
    switch (adapter->kind) {
    case SILO_ADAPT_INT:
        return PyNumber_Index(object);
    case SILO_ADAPT_FLOAT:
        return PyNumber_Float(object);
    case SILO_ADAPT_BOOL: {
        int truth = PyObject_IsTrue(object);
        return truth < 0 ? NULL : PyBool_FromLong(truth);
    }
    case SILO_ADAPT_NOTHING:
    case SILO_ADAPT_DESCRIPTOR:
        PyErr_SetString(PyExc_TypeError, "not a number");
        return NULL;
    case SILO_ADAPT_TORCH:
    case SILO_ADAPT_EXCHANGE:
    case SILO_ADAPT_BUFFER:
    case SILO_ADAPT_DLPACK:
    case SILO_ADAPT_DATA_PTR:
    case SILO_ADAPT_CUDA_DICT:
        break;
    }
    struct silo_shape shape;
    struct silo_view view;
    Py_buffer buffer;
    PyObject *objects[8];
    struct silo_holds holds = {0, 0, &buffer, objects};
    if (silo_shape_read(object, adapter, &shape) != 0)
        return NULL;
    if (shape.ndim != 0) {
        PyErr_Format(PyExc_TypeError, "an array of %d dimensions is not a number", (int)shape.ndim);
        return NULL;
    }
    int read = silo_view_read(object, adapter, &view, &holds);
    silo_holds_release(&holds);
    if (read != 0)
        return NULL;
    if (view.device_type != SILO_DEVICE_CPU) {
        PyErr_SetString(PyExc_TypeError,
                        "a scalar on a device would have to be copied first; pass x.item()");
        return NULL;
    }
    PyObject *item = PyObject_CallMethodObjArgs(object, s_item, NULL);
    if (item != NULL && !PyLong_Check(item) && !PyFloat_Check(item)) {
        /* The item may be an ml_dtypes scalar. */
        const struct silo_adapter *inner = silo_adapter_of(Py_TYPE(item));
        PyObject *number = NULL;
        if (inner != NULL && inner->kind >= SILO_ADAPT_INT)
            number = silo_number_of(item, inner);
        else if (inner != NULL)
            PyErr_SetString(PyExc_TypeError, "not a number");
        Py_DECREF(item);
        return number;
    }
    return item;
}
