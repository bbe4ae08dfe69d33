/* Reads arguments of every kind, one at a time. */
#include "reading.h"

#include "descriptor_argument.h"

#include "errors.h"
#include "placement.h"
#include "scalars.h"
#include "stand_in.h"

int silo_read_wide(const struct silo_plan *plan, int32_t index, PyObject *object,
                   struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    silo_forget_error();
    const uint64_t value = PyLong_AsUnsignedLongLong(object);
    const uint64_t word = silo_wide_word(parameter, value);
    if ((value == UINT64_MAX && PyErr_Occurred()) || word == 0) {
        silo_forget_error(); /* the message of silo_read_error is clearer */
        return silo_read_error(plan, index, object);
    }
    frame->slots[index] = value;
    frame->key[index] = word;
    return 0;
}

static int read_number(const struct silo_plan *plan, int32_t index, PyObject *object,
                       const struct silo_adapter *adapter, struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    PyObject *stood_for = silo_stood_for(object);
    if (SILO_UNLIKELY(stood_for != NULL))
        return Py_TYPE(stood_for) == silo_torch.tensor &&
                       silo_read_tensor(plan, index, stood_for, frame)
                   ? 0
                   : silo_read_other(plan, index, stood_for, frame);
    if (adapter->kind == SILO_ADAPT_DESCRIPTOR && parameter->kind == SILO_PARAMETER_ANY)
        return silo_read_descriptor(plan, index, object, adapter, frame);
    PyObject *number = NULL; /* owned: the Python number that the object holds */
    if (PyLong_Check(object) || PyFloat_Check(object)) {
        number = object;
        Py_INCREF(number);
    } else {
        silo_ask(frame, object);
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
        /* 0 and 1 are accepted as bools; another integer is an error. */
        const long value = is_int ? PyLong_AsLong(number) : -1;
        silo_forget_error();
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

/* Returns SILO_FLAG_RANGE32 if the memory of an array has less than 2 GiB, else 0. Never leaves an
 * exception. */
static uint64_t range_flag(const struct silo_parameter *parameter, PyObject *object,
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
    if (silo_shape_read(object, adapter, &shape) != 0) {
        silo_forget_error(); /* a duck-typed array may not state its size */
        return 0;
    }
    return silo_shape_in_range32(shape.sizes, shape.strides, shape.ndim, shape.itemsize)
               ? SILO_FLAG_RANGE32
               : 0;
}

static int read_array(const struct silo_plan *plan, int32_t index, PyObject *object,
                      const struct silo_adapter *adapter, struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    struct silo_view view;
    if (SILO_UNLIKELY(adapter->calls))
        silo_ask(frame, object);
    if (SILO_UNLIKELY(silo_view_read(object, adapter, &view, &frame->holds) != 0))
        return silo_read_error(plan, index, object);
    if (SILO_UNLIKELY(parameter->type.bits != 0 && (parameter->type.bits != view.dtype.bits ||
                                                    parameter->type.code != view.dtype.code)))
        return silo_read_error(plan, index, object);
    /* A duck-typed array may lack a dtype; an array whose dtype no kernel takes is an error. */
    if (SILO_UNLIKELY(view.dtype.bits == 0 && adapter->kind != SILO_ADAPT_DATA_PTR))
        return silo_read_error(plan, index, object);
    if (SILO_UNLIKELY(view.readonly && (parameter->flags & SILO_PARAMETER_WRITES)))
        return silo_read_error(plan, index, object);
    if (SILO_UNLIKELY(view.device_type != frame->device_type ||
                      view.device_id != frame->device_id) &&
        silo_merge_device(plan, index, &view, adapter, frame) != 0)
        return -1;
    frame->slots[index] = view.address;
    frame->key[index] = SILO_CODE(SILO_VALUE_POINTER, view.dtype.code, view.dtype.bits,
                                  silo_address_flags(parameter, view.address, view.dtype.bits) |
                                      (view.readonly ? SILO_FLAG_READONLY : 0U));
    if (SILO_UNLIKELY(view.device_type == SILO_DEVICE_ROCM))
        frame->key[index] |= range_flag(parameter, object, adapter);
    return 0;
}

static int read_pointer(const struct silo_plan *plan, int32_t index, PyObject *object,
                        struct silo_frame *frame) {
    PyTypeObject *type = Py_TYPE(object);
    if (SILO_UNLIKELY(object == Py_None)) {
        frame->slots[index] = 0;
        frame->key[index] = SILO_CODE(SILO_VALUE_NONE, 0, 0, 0);
        return 0;
    }
    if (type == &PyLong_Type) {
        /* PyLong_AsSize_t is faster here, because it loops over the digits;
         * PyLong_AsUnsignedLongLong converts integers of this size to bytes first. */
        const uint64_t address = PyLong_AsSize_t(object);
        if (SILO_UNLIKELY(address == UINT64_MAX && PyErr_Occurred()))
            return silo_read_error(plan, index, object);
        frame->slots[index] = address;
        frame->key[index] = SILO_CODE(SILO_VALUE_ADDRESS, 0, 0,
                                      silo_address_flags(&plan->parameters[index], address,
                                                         plan->parameters[index].type.bits));
        return 0;
    }
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    if (SILO_UNLIKELY(adapter->kind == SILO_ADAPT_NOTHING || adapter->kind >= SILO_ADAPT_INT) &&
        silo_stood_for(object) != NULL)
        return silo_read_other(plan, index, silo_stood_for(object), frame);
    return read_array(plan, index, object, adapter, frame);
}

static bool is_key(const struct silo_parameter *parameter) {
    return (parameter->flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT)) != 0;
}

/* Reads an argument of a parameter without a declared type, which takes the type of the value, as
 * in Triton. */
static int read_any(const struct silo_plan *plan, int32_t index, PyObject *object,
                    struct silo_frame *frame) {
    PyTypeObject *type = Py_TYPE(object);
    if (type == &PyLong_Type)
        return silo_read_integer(plan, index, object, frame);
    if (type == &PyBool_Type) {
        silo_store_bool(object == Py_True, index, frame);
        return 0;
    }
    if (type == &PyFloat_Type) {
        silo_store_float(PyFloat_AsDouble(object), index, &plan->parameters[index], frame);
        return 0;
    }
    if (object == Py_None)
        return read_pointer(plan, index, object, frame);
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    if (SILO_UNLIKELY(adapter->kind == SILO_ADAPT_NOTHING || adapter->kind >= SILO_ADAPT_INT))
        return read_number(plan, index, object, adapter, frame);
    /* A key parameter takes a scalar, so an array without dimensions is read as its value. For
     * other parameters such an array is read as a pointer, as in Triton. */
    if (SILO_UNLIKELY(is_key(&plan->parameters[index])) && silo_has_no_dimensions(object, adapter))
        return read_number(plan, index, object, adapter, frame);
    return read_array(plan, index, object, adapter, frame);
}

static int read_scalar(const struct silo_plan *plan, int32_t index, PyObject *object,
                       struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    PyTypeObject *type = Py_TYPE(object);
    if (parameter->kind == SILO_PARAMETER_INT && SILO_LIKELY(type == &PyLong_Type))
        return silo_read_integer(plan, index, object, frame);
    if (parameter->kind == SILO_PARAMETER_FLOAT && SILO_LIKELY(type == &PyFloat_Type)) {
        silo_store_float(PyFloat_AsDouble(object), index, parameter, frame);
        return 0;
    }
    if (parameter->kind == SILO_PARAMETER_BOOL && SILO_LIKELY(type == &PyBool_Type)) {
        silo_store_bool(object == Py_True, index, frame);
        return 0;
    }
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    return read_number(plan, index, object, adapter, frame);
}

int silo_read_other(const struct silo_plan *plan, int32_t index, PyObject *object,
                    struct silo_frame *frame) {
    switch ((enum silo_parameter_kind)plan->parameters[index].kind) {
    case SILO_PARAMETER_ANY:
        return read_any(plan, index, object, frame);
    case SILO_PARAMETER_POINTER:
        return read_pointer(plan, index, object, frame);
    case SILO_PARAMETER_DESCRIPTOR: {
        const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
        return adapter ? silo_read_descriptor(plan, index, object, adapter, frame) : -1;
    }
    case SILO_PARAMETER_INT:
    case SILO_PARAMETER_FLOAT:
    case SILO_PARAMETER_BOOL:
    case SILO_PARAMETER_CONSTEXPR:
        break;
    }
    return read_scalar(plan, index, object, frame);
}

/* Returns whether an object has less memory now than when it was read: a numpy array may be resized
 * in place while others hold its buffer. */
static bool is_cut(const struct silo_holds *holds, const Py_buffer *now) {
    for (uint32_t i = 0; i < holds->buffers; i++)
        if (holds->buffer[i].obj == now->obj && holds->buffer[i].len > now->len)
            return true;
    return false;
}

/* Returns whether an array still has the memory that was read. An array read by a capsule counts as
 * unchanged: its capsule is held, and a new capsule may be of a copy. Returns false with an
 * exception set if the array cannot be read. */
static bool is_there(PyObject *object, const struct silo_adapter *adapter, uint64_t address,
                     const struct silo_frame *frame) {
    Py_buffer buffer;
    PyObject *objects[2];
    struct silo_holds holds = {0, 0, &buffer, objects};
    struct silo_view view = {.address = address};
    bool result =
        adapter->kind == SILO_ADAPT_DLPACK || silo_view_read(object, adapter, &view, &holds) == 0;
    /* A buffer may fail and be replaced by a capsule, which is not compared. */
    if (result && holds.objects == 0)
        result = view.address == address && (holds.buffers == 0 || !is_cut(&frame->holds, &buffer));
    silo_holds_release(&holds);
    return result;
}

/* Reads some arrays again: if `calls` is true, the arrays whose reading calls methods of their
 * class; if it is false, all other arrays. */
static int read_some_again(const struct silo_plan *plan, PyObject *const *arguments,
                           const struct silo_frame *frame, bool calls) {
    for (int32_t i = 0; i < plan->count; i++) {
        const unsigned kind = silo_code_kind(frame->key[i]);
        PyObject *object = arguments[i];
        uint64_t address = frame->slots[i];
        if (kind == SILO_VALUE_DESCRIPTOR) {
            object = silo_owner_of(plan, frame, frame->slots[i])->base;
            address = frame->descriptors[frame->slots[i]].address;
        } else if (kind != SILO_VALUE_POINTER) {
            continue;
        }
        const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
        if (adapter == NULL)
            return -1;
        if (adapter->calls != calls || is_there(object, adapter, address, frame))
            continue;
        return silo_bad_argument(plan->kernel, plan->names[i],
                                 "an array that keeps its memory during the call, which a grid "
                                 "function, hook, config function or another argument took away",
                                 arguments[i]);
    }
    return 0;
}

int silo_read_again(const struct silo_plan *plan, PyObject *const *arguments,
                    const struct silo_frame *frame) {
    /* Arrays whose reading runs Python code come first, because that code may change the memory of
     * the other arrays. */
    if (frame->ran == SILO_RAN_PROGRAM && read_some_again(plan, arguments, frame, true) != 0)
        return -1;
    return read_some_again(plan, arguments, frame, false);
}
