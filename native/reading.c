/* Arguments of every kind, one at a time. */
#include "frame.h"

static int silo_read_array(const struct silo_plan *plan, int32_t index, PyObject *object,
                           const struct silo_adapter *adapter, struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    struct silo_view view;
    if (SILO_UNLIKELY(silo_view_read(object, adapter, &view, &frame->holds) != 0))
        return silo_read_error(plan, index, object);
    if (SILO_UNLIKELY(parameter->type.bits != 0 && (parameter->type.bits != view.dtype.bits ||
                                                    parameter->type.code != view.dtype.code)))
        return silo_read_error(plan, index, object);
    /* A duck type need not say its dtype; an array that has one no kernel knows is an error. */
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
                                  silo_address_flags(parameter, view.address) |
                                      (view.readonly ? SILO_FLAG_READONLY : 0U));
    if (SILO_UNLIKELY(view.device_type == SILO_DEVICE_ROCM))
        frame->key[index] |= silo_range_flag(parameter, object, adapter);
    return 0;
}

static int silo_read_pointer(const struct silo_plan *plan, int32_t index, PyObject *object,
                             struct silo_frame *frame) {
    PyTypeObject *type = Py_TYPE(object);
    if (SILO_UNLIKELY(object == Py_None)) {
        frame->slots[index] = 0;
        frame->key[index] = SILO_CODE(SILO_VALUE_NONE, 0, 0, 0);
        return 0;
    }
    if (type == &PyLong_Type) {
        /* A loop over digits; PyLong_AsUnsignedLongLong goes through bytes for values of this size.
         */
        const uint64_t address = PyLong_AsSize_t(object);
        if (SILO_UNLIKELY(address == UINT64_MAX && PyErr_Occurred()))
            return silo_read_error(plan, index, object);
        frame->slots[index] = address;
        frame->key[index] = SILO_CODE(SILO_VALUE_ADDRESS, 0, 0,
                                      silo_address_flags(&plan->parameters[index], address));
        return 0;
    }
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    return silo_read_array(plan, index, object, adapter, frame);
}

static bool silo_parameter_is_key(const struct silo_parameter *parameter) {
    return (parameter->flags & (SILO_PARAMETER_KEY | SILO_PARAMETER_EXACT)) != 0;
}

/* An undeclared parameter takes its type from what is given, as in Triton. */
static int silo_read_any(const struct silo_plan *plan, int32_t index, PyObject *object,
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
        return silo_read_pointer(plan, index, object, frame);
    const struct silo_adapter *adapter = silo_adapter_of(type);
    if (SILO_UNLIKELY(adapter == NULL))
        return -1;
    if (SILO_UNLIKELY(adapter->kind == SILO_ADAPT_NOTHING || adapter->kind >= SILO_ADAPT_INT))
        return silo_read_number(plan, index, object, adapter, frame);
    /* Keys are scalars, so an array without dimensions is one there; elsewhere it is a pointer, as
     * in Triton. */
    if (SILO_UNLIKELY(silo_parameter_is_key(&plan->parameters[index])) &&
        silo_has_no_dimensions(object, adapter))
        return silo_read_number(plan, index, object, adapter, frame);
    return silo_read_array(plan, index, object, adapter, frame);
}

static int silo_read_scalar(const struct silo_plan *plan, int32_t index, PyObject *object,
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
    return silo_read_number(plan, index, object, adapter, frame);
}

int silo_read_other(const struct silo_plan *plan, int32_t index, PyObject *object,
                    struct silo_frame *frame) {
    switch ((enum silo_parameter_kind)plan->parameters[index].kind) {
    case SILO_PARAMETER_ANY:
        return silo_read_any(plan, index, object, frame);
    case SILO_PARAMETER_POINTER:
        return silo_read_pointer(plan, index, object, frame);
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
    return silo_read_scalar(plan, index, object, frame);
}
