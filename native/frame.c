#include "frame.h"

#include "errors.h"
#include "gpu.h"

#include <stdio.h>

static const char *noun(const struct silo_parameter *parameter, char *buffer, size_t size) {
    const char *name = parameter->type.bits ? silo_dtype_name(parameter->type) : NULL;
    const unsigned bits = parameter->type.bits;
    switch ((enum silo_parameter_kind)parameter->kind) {
    case SILO_PARAMETER_POINTER:
        snprintf(buffer, size, "%s%s array%s",
                 parameter->flags & SILO_PARAMETER_WRITES ? "a writable " : "a ",
                 name ? name : "kernel's", name ? "" : " (any dtype)");
        break;
    case SILO_PARAMETER_INT:
        if (bits == 0)
            snprintf(buffer, size, "an integer of at most 64 bits");
        else if (parameter->type.code == SILO_UINT)
            snprintf(buffer, size, "%s in [0, %llu]", name ? name : "an integer",
                     (unsigned long long)(UINT64_MAX >> (64 - bits)));
        else
            snprintf(buffer, size, "%s in [%lld, %lld]", name ? name : "an integer",
                     (long long)(INT64_MIN >> (64 - bits)), (long long)(INT64_MAX >> (64 - bits)));
        break;
    case SILO_PARAMETER_FLOAT:
        snprintf(buffer, size, "a number for a %s", name ? name : "float");
        break;
    case SILO_PARAMETER_BOOL:
        snprintf(buffer, size, "a bool");
        break;
    case SILO_PARAMETER_CONSTEXPR:
        snprintf(buffer, size, "a hashable constexpr value");
        break;
    case SILO_PARAMETER_DESCRIPTOR:
        snprintf(buffer, size, "a tensor descriptor%s%s", name ? " of " : "", name ? name : "");
        break;
    case SILO_PARAMETER_ANY:
        snprintf(buffer, size,
                 "an array of numbers or bools, a number of at most 64 bits, a bool or None");
        break;
    }
    return buffer;
}

int silo_read_error(const struct silo_plan *plan, int32_t index, PyObject *object) {
    char wanted[160];
    const struct silo_parameter *parameter = &plan->parameters[index];
    return silo_bad_argument(plan->kernel, plan->names[index],
                             noun(parameter, wanted, sizeof wanted), object);
}

/* An int outside the signed 64-bit range, or not an int after all. */
int silo_read_wide(const struct silo_plan *plan, int32_t index, PyObject *object,
                   struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    const bool typed = parameter->kind == SILO_PARAMETER_INT && parameter->type.bits != 0;
    PyErr_Clear();
    const uint64_t value = PyLong_AsUnsignedLongLong(object);
    if ((value == UINT64_MAX && PyErr_Occurred()) ||
        (typed && !(parameter->type.code == SILO_UINT && parameter->type.bits == 64))) {
        PyErr_Clear(); /* the message says it better */
        return silo_read_error(plan, index, object);
    }
    frame->slots[index] = value;
    frame->key[index] = SILO_CODE(SILO_VALUE_INT, SILO_UINT, 64,
                                  parameter->flags & SILO_PARAMETER_SPECIALIZE && (value & 15) == 0
                                      ? SILO_FLAG_DIVISIBLE16
                                      : 0U);
    return 0;
}

int silo_read_number(const struct silo_plan *plan, int32_t index, PyObject *object,
                     const struct silo_adapter *adapter, struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    if (adapter->kind == SILO_ADAPT_DESCRIPTOR && parameter->kind == SILO_PARAMETER_ANY)
        return silo_read_descriptor(plan, index, object, adapter, frame);
    PyObject *number = NULL; /* owned: the Python number behind the object */
    if (PyLong_Check(object) || PyFloat_Check(object)) {
        number = object;
        Py_INCREF(number);
    } else {
        number = silo_number_of(object, adapter);
        if (number == NULL)
            return silo_read_error(plan, index, object);
    }
    const bool is_bool = PyBool_Check(number), is_int = PyLong_Check(number);
    int result = 0;
    switch ((enum silo_parameter_kind)parameter->kind) {
    case SILO_PARAMETER_INT:
        result = is_int ? silo_read_integer(plan, index, number, frame)
                        : silo_read_error(plan, index, object);
        break;
    case SILO_PARAMETER_FLOAT: {
        const double value = PyFloat_AsDouble(number);
        if (value == -1.0 && PyErr_Occurred())
            result = silo_read_error(plan, index, object);
        else
            silo_store_float(value, index, parameter, frame);
        break;
    }
    case SILO_PARAMETER_BOOL: {
        /* 0 and 1 pass for bools; 2 is a mistake. */
        const long value = is_int ? PyLong_AsLong(number) : -1;
        PyErr_Clear();
        if (value == 0 || value == 1)
            silo_store_bool(value == 1, index, frame);
        else
            result = silo_read_error(plan, index, object);
        break;
    }
    case SILO_PARAMETER_ANY:
        if (is_bool)
            silo_store_bool(number == Py_True, index, frame);
        else if (is_int)
            result = silo_read_integer(plan, index, number, frame);
        else
            silo_store_float(PyFloat_AsDouble(number), index, parameter, frame);
        break;
    case SILO_PARAMETER_POINTER:
    case SILO_PARAMETER_CONSTEXPR:
    case SILO_PARAMETER_DESCRIPTOR:
        result = silo_read_error(plan, index, object);
        break;
    }
    Py_DECREF(number);
    return result;
}

uint64_t silo_range_flag(const struct silo_parameter *parameter, PyObject *object,
                         const struct silo_adapter *adapter) {
    int64_t bytes;
    struct silo_shape shape;
    if (!(parameter->flags & SILO_PARAMETER_SPECIALIZE))
        return 0;
    if (adapter->kind == SILO_ADAPT_TORCH && silo_torch.storage_bytes != NULL)
        return silo_torch.storage_bytes(silo_torch_handle(object), &bytes) == 0 &&
                       bytes <= INT32_MAX
                   ? SILO_FLAG_RANGE32
                   : 0;
    if (silo_shape_read(object, adapter, &shape) != 0 || shape.itemsize == 0) {
        PyErr_Clear(); /* a duck type that does not say how large it is */
        return 0;
    }
    uint64_t last = 0; /* the last element; extents and strides may be anything */
    for (int32_t i = 0; i < shape.ndim; i++) {
        uint64_t step;
        if (shape.sizes[i] == 0)
            return SILO_FLAG_RANGE32;
        if (shape.sizes[i] < 0 || shape.strides[i] < 0 ||
            __builtin_mul_overflow((uint64_t)shape.sizes[i] - 1, (uint64_t)shape.strides[i],
                                   &step) ||
            __builtin_add_overflow(last, step, &last) || last > INT32_MAX)
            return 0;
    }
    return (last + 1) * (uint64_t)shape.itemsize <= INT32_MAX ? SILO_FLAG_RANGE32 : 0;
}

/* ---- constexpr values ---- */

enum { CONSTANT_INT = 1, CONSTANT_FLOAT = 2, CONSTANT_OBJECT = 3 };

/* A key under which equal tuples meet and 1, True and 1.0 do not; new reference. */
static PyObject *frozen(PyObject *object) {
    if (PyTuple_CheckExact(object)) {
        Py_ssize_t size = PyTuple_Size(object);
        PyObject *copy = PyTuple_New(size);
        for (Py_ssize_t i = 0; copy != NULL && i < size; i++) {
            PyObject *item = frozen(PyTuple_GetItem(object, i));
            if (item == NULL || PyTuple_SetItem(copy, i, item) != 0)
                Py_CLEAR(copy);
        }
        return copy;
    }
    if (PyFloat_CheckExact(object)) {
        const double value = PyFloat_AsDouble(object); /* by its bits: -0.0 is not 0.0 */
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        return Py_BuildValue("(OK)", (PyObject *)&PyFloat_Type, (unsigned long long)bits);
    }
    return PyTuple_Pack(2, (PyObject *)Py_TYPE(object), object);
}

/* What the dictionary has for the key (new reference), or NULL, with or without an exception. */
static PyObject *known_constant(PyObject *constants, PyObject *key) {
#ifdef Py_GIL_DISABLED
    PyObject *known = NULL; /* a borrowed reference would not be safe */
    PyDict_GetItemRef(constants, key, &known);
#else
    PyObject *known = PyDict_GetItemWithError(constants, key);
    Py_XINCREF(known);
#endif
    return known;
}

/* The one tuple that stands for all equal ones (new reference), or NULL. */
static PyObject *canonical(PyObject *object, PyObject *constants) {
    if (Py_EnterRecursiveCall(" in a constexpr tuple"))
        return NULL;
    PyObject *key = frozen(object);
    Py_LeaveRecursiveCall();
    if (key == NULL)
        return NULL;
    PyObject *known = known_constant(constants, key);
    if (known == NULL && !PyErr_Occurred()) {
        /* Entries of the guard keep what they name, so dropping the dictionary is safe at any time.
         */
        if (PyDict_Size(constants) >= (Py_ssize_t)SILO_GUARD_LIMIT)
            PyDict_Clear(constants);
        if (PyDict_SetItem(constants, key, object) == 0) {
            known = object;
            Py_INCREF(known);
        }
    }
    Py_DECREF(key);
    return known;
}

int silo_read_constant(const struct silo_plan *plan, PyObject *name, PyObject *object,
                       PyObject *constants, struct silo_holds *holds, uint64_t word[2]) {
    unsigned sort = CONSTANT_OBJECT;
    PyObject *one =
        object; /* the object that stands for it; held through the call, then by the entry */
    int overflow = 0;
    long long integer = 0;
    if (PyLong_CheckExact(object))
        integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (PyLong_CheckExact(object) && overflow == 0) {
        sort = CONSTANT_INT;
        word[1] = (uint64_t)integer;
    } else if (PyFloat_CheckExact(object)) {
        const double value = PyFloat_AsDouble(object);
        memcpy(&word[1], &value, sizeof value);
        sort = CONSTANT_FLOAT;
    } else if (PyUnicode_CheckExact(object)) {
        Py_INCREF(one);
        PyUnicode_InternInPlace(&one);
        holds->object[holds->objects++] = one;
    } else if (PyTuple_CheckExact(object) || PyLong_CheckExact(object)) {
        one = canonical(object, constants);
        if (one == NULL)
            return silo_bad_argument(plan->kernel, name, "a hashable constexpr value", object);
        holds->object[holds->objects++] = one;
    }
    if (sort == CONSTANT_OBJECT)
        word[1] = (uint64_t)(uintptr_t)one;
    word[0] = SILO_CODE(SILO_VALUE_CONSTANT, sort, 0, 0);
    return 0;
}

PyObject *silo_constant_identity(const uint64_t word[2]) {
    return word[0] == SILO_CODE(SILO_VALUE_CONSTANT, CONSTANT_OBJECT, 0, 0)
               ? (PyObject *)(uintptr_t)word[1]
               : NULL;
}

/* ---- devices ---- */

const char *silo_device_name(int32_t type) {
    switch (type) {
    case SILO_DEVICE_CPU:
        return "cpu";
    case SILO_DEVICE_CUDA:
        return "cuda";
    case SILO_DEVICE_CUDA_HOST:
    case SILO_DEVICE_ROCM_HOST:
        return "pinned host memory";
    case SILO_DEVICE_METAL:
        return "metal";
    case SILO_DEVICE_ROCM:
        return "rocm";
    case SILO_DEVICE_CUDA_MANAGED:
        return "managed memory";
    case SILO_DEVICE_ONEAPI:
        return "xpu";
    default:
        return "an unknown device";
    }
}

/* Memory a GPU reads whichever device it is said to be on. */
static bool is_shared(int32_t type) {
    return type == SILO_DEVICE_CUDA_HOST || type == SILO_DEVICE_ROCM_HOST ||
           type == SILO_DEVICE_CUDA_MANAGED;
}

uint32_t silo_generation;

static PyObject *driver_opener; /* owned; NULL: none */

void silo_set_driver_opener(PyObject *opener) {
    PyObject *old = driver_opener;
    Py_INCREF(opener);
    driver_opener = opener;
    Py_XDECREF(old);
}

bool silo_open_drivers(void) {
    static bool asked; /* once: a driver does not appear in a running process */
    if (!asked && driver_opener != NULL) {
        asked = true;
        PyObject *done = PyObject_CallNoArgs(driver_opener);
        if (done == NULL)
            PyErr_Clear(); /* it logs; a machine without a GPU is none of a CPU call's business */
        Py_XDECREF(done);
    }
    return silo_cuda.open || silo_hip.open;
}

/* Whether the GPU driver knows host memory as pinned or managed. Empty arrays count. */
static bool is_pinned(const struct silo_gpu *gpu, uint64_t address) {
    int32_t type, index;
    return address == 0 ||
           (gpu != NULL && gpu->locate(address, &type, &index) == 0 && type != SILO_DEVICE_CPU);
}

/* Whether every array before parameter `index` is. */
static bool all_pinned(const struct silo_gpu *gpu, const struct silo_frame *frame, int32_t index) {
    for (int32_t i = 0; i < index; i++) {
        const unsigned kind = silo_code_kind(frame->key[i]);
        if ((kind == SILO_VALUE_POINTER && !is_pinned(gpu, frame->slots[i])) ||
            (kind == SILO_VALUE_DESCRIPTOR &&
             !is_pinned(gpu, frame->descriptors[frame->slots[i]].address)))
            return false;
    }
    return true;
}

static int raise_mixed(const struct silo_plan *plan, int32_t index, const struct silo_view *view,
                       const struct silo_frame *frame) {
    const bool host = view->device_type == SILO_DEVICE_CPU || frame->device_type == SILO_DEVICE_CPU;
    PyErr_Format(
        silo_argument_error,
        "%U: argument '%U' is on %s:%d and '%U' on %s:%d; all arrays of one call are on one "
        "device%s",
        plan->kernel, plan->names[frame->device_from], silo_device_name(frame->device_type),
        (int)frame->device_id, plan->names[index], silo_device_name(view->device_type),
        (int)view->device_id, host ? " (host memory beside a GPU's has to be pinned)" : "");
    return -1;
}

int silo_merge_device(const struct silo_plan *plan, int32_t index, const struct silo_view *view,
                      const struct silo_adapter *adapter, struct silo_frame *frame) {
    if (view->device_type == SILO_DEVICE_UNKNOWN)
        return 0; /* a duck type that does not say */
    if (frame->device_type != SILO_DEVICE_UNKNOWN) {
        if (is_shared(view->device_type))
            return 0;
        if (!is_shared(frame->device_type)) {
            /* Pinned memory of a library that calls it the CPU's (torch). */
            if (view->device_type == SILO_DEVICE_CPU && silo_open_drivers() &&
                is_pinned(silo_gpu_of_memory(frame->device_type), view->address))
                return 0;
            if (!(frame->device_type == SILO_DEVICE_CPU && silo_open_drivers() &&
                  all_pinned(silo_gpu_of_memory(view->device_type), frame, index)))
                return raise_mixed(plan, index, view, frame);
        }
    }
    frame->device_type = view->device_type;
    frame->device_id = view->device_id;
    frame->device_from = index;
    frame->device_adapter = adapter;
    return 0;
}

void silo_place_call(const struct silo_plan *plan, struct silo_frame *frame) {
    const struct silo_gpu *gpu = silo_cuda.open ? &silo_cuda : silo_hip.open ? &silo_hip : NULL;
    int32_t type, index;
    if (gpu == NULL)
        return;
    for (int32_t i = 0; i < plan->count; i++) {
        const unsigned kind = silo_code_kind(frame->key[i]);
        if (kind != SILO_VALUE_ADDRESS && kind != SILO_VALUE_POINTER &&
            kind != SILO_VALUE_DESCRIPTOR)
            continue;
        const uint64_t address = kind == SILO_VALUE_DESCRIPTOR
                                     ? frame->descriptors[frame->slots[i]].address
                                     : frame->slots[i];
        if (address == 0)
            continue;
        if (gpu->locate(address, &type, &index) == 0 && type != SILO_DEVICE_CPU) {
            frame->device_type = gpu->memory_type;
            frame->device_id = index;
            frame->device_from = i;
        }
        return; /* the first one decides: an address does not say which of several it belongs to */
    }
    if (gpu->current_device(&index) == 0) {
        frame->device_type = gpu->memory_type;
        frame->device_id = index;
    }
}
