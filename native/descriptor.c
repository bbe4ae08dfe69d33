#include "descriptor.h"

#include "errors.h"
#include "frame.h"
#include "gpu.h"
#include "names.h"
#include "placement.h"
#include "stack.h"

#include <stdarg.h>
#include <stdio.h>

enum {
    INTERLEAVE_NONE = 0,
    L2_PROMOTION_128B = 2,
    FILL_ZERO = 0,
    FILL_NAN = 1,
    TYPE_TF32 = 11,
    MAP_BYTES = 128,
    MAP_ALIGN = 64,
    MAX_MAPS = 8, /* kept on one descriptor: kernels with other blocks or swizzles */
};

static PyObject *s_base, *s_shape, *s_strides, *s_block_shape, *s_padding, *s_tf32, *s_map, *s_zero,
    *s_nan;

/* ---- encoded maps ---- */

/* All that a map depends on; compared as bytes, so it is cleared before it is filled. */
struct map_key {
    uint64_t address;
    int64_t shape[SILO_MAX_RANK];
    int64_t strides[SILO_MAX_RANK];
    struct silo_map_form form;
    uint64_t nan, tf32;
};

struct tensor_map {
    PyObject_HEAD PyObject *next; /* owned; NULL: the last one */
    uint32_t depth;               /* maps after this one */
    struct map_key key;
    unsigned char room[MAP_BYTES + MAP_ALIGN]; /* the map lies on the first multiple of 64 */
};

static PyTypeObject *map_type; /* owned */

static void *map_of(struct tensor_map *self) {
    const uintptr_t start = (uintptr_t)self->room;
    return self->room + (-start & (MAP_ALIGN - 1));
}

static void map_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(((struct tensor_map *)object)->next); /* at most MAX_MAPS deep */
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* A map is only good for the array it was encoded for: a copy of a descriptor in another process
 * starts without one. */
static PyObject *map_reduce(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

static PyObject *map_bytes(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBytes_FromStringAndSize(map_of((struct tensor_map *)self), MAP_BYTES);
}

/* ---- errors ---- */

static int refuse(const struct silo_plan *plan, int32_t index, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "KERNEL: the tensor descriptor 'NAME' ...", with an exception already set as its cause; -1. */
static int refuse(const struct silo_plan *plan, int32_t index, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    PyObject *cause = silo_take_exception();
    PyErr_Format(silo_argument_error, "%U: the tensor descriptor '%U' %s", plan->kernel,
                 plan->names[index], text);
    silo_chain(cause);
    return -1;
}

/* ---- reading ---- */

/* A descriptor, and its dictionary: looking there is cheaper than asking the object, which is asked
 * for what is not there. */
struct members {
    PyObject *object; /* borrowed */
    PyObject *dict;   /* owned; NULL: none */
};

static struct members members_of(PyObject *object) {
    struct members members = {object, NULL};
#ifndef Py_GIL_DISABLED /* what a dictionary lends may be gone there */
    members.dict = PyObject_GenericGetDict(object, NULL);
    if (members.dict == NULL)
        PyErr_Clear(); /* a class with slots */
#endif
    return members;
}

/* A new reference, or NULL with an exception set. */
static PyObject *member(const struct members *members, PyObject *name) {
    PyObject *value = NULL;
    if (members->dict != NULL) {
        value = PyDict_GetItemWithError(members->dict, name);
        Py_XINCREF(value);
        if (value == NULL && PyErr_Occurred())
            return NULL;
    }
    return value ? value : PyObject_GetAttr(members->object, name);
}

static int one_integer(PyObject *item, int64_t *value) {
    PyObject *number = PyNumber_Index(item);
    if (number == NULL)
        return -1;
    *value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* The integers of an attribute; their number, or -1 with an exception set. */
static int integers(const struct members *members, PyObject *name, int64_t values[SILO_MAX_RANK]) {
    PyObject *sequence = member(members, name);
    if (sequence == NULL)
        return -1;
    PyObject *items = sequence;
    if (!PyTuple_Check(sequence)) { /* torch.Size is one */
        /* Lists are copied as one: another thread may change them meanwhile. */
        items = PySequence_Tuple(sequence);
        Py_DECREF(sequence);
        if (items == NULL)
            return -1;
    }
    const Py_ssize_t count = PyTuple_Size(items);
    int result = (int)count;
    if (count < 1 || count > SILO_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%U has 1 to %d extents, not %zd", name, SILO_MAX_RANK,
                     count);
        result = -1;
    }
    for (int i = 0; i < result; i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        int failed;
        if (PyLong_CheckExact(item)) {
            values[i] = PyLong_AsLongLong(item);
            failed = values[i] == -1 && PyErr_Occurred();
        } else {
            failed = one_integer(item, &values[i]);
        }
        if (failed)
            result = -1;
    }
    Py_DECREF(items);
    return result;
}

/* 1 or 0; -1 with an exception set. */
static int pads_with_nan(const struct members *members) {
    PyObject *padding = member(members, s_padding);
    int result = -1;
    if (padding == NULL)
        return -1;
    if (padding == s_zero)
        result = 0;
    else if (padding == s_nan)
        result = 1;
    else if (PyUnicode_Check(padding) && PyUnicode_CompareWithASCIIString(padding, "zero") == 0)
        result = 0;
    else if (PyUnicode_Check(padding) && PyUnicode_CompareWithASCIIString(padding, "nan") == 0)
        result = 1;
    else
        PyErr_Format(PyExc_ValueError, "padding is 'zero' or 'nan', not %R", padding);
    Py_DECREF(padding);
    return result;
}

static int rounds_to_tf32(const struct members *members, const struct silo_adapter *adapter) {
    if (!adapter->rounds)
        return 0;
    PyObject *value = member(members, s_tf32);
    const int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

/* What every target asks of a descriptor, which is what Triton asks when one is made. */
static int check(const struct silo_plan *plan, int32_t index, const struct silo_descriptor *one,
                 struct silo_dtype type) {
    const uint32_t rank = one->rank;
    if (one->address & 15)
        return refuse(plan, index, "has its base at %#llx, which is no multiple of 16 bytes",
                      (unsigned long long)one->address);
    if (one->address == 0)
        return refuse(plan, index, "has a base without memory");
    for (uint32_t i = 0; i < rank; i++) {
        if (one->shape[i] < 1 || one->shape[i] > INT32_MAX)
            return refuse(plan, index, "has shape[%u] = %lld; extents are 1 to 2^31 - 1", i,
                          (long long)one->shape[i]);
    }
    if (one->strides[rank - 1] != 1)
        return refuse(plan, index, "has strides[%u] = %lld; the last axis is contiguous (1)",
                      rank - 1, (long long)one->strides[rank - 1]);
    const int64_t bytes = type.bits / 8 ? type.bits / 8 : 1;
    for (uint32_t i = 0; i + 1 < rank; i++) {
        const int64_t stride = one->strides[i];
        if (stride < 0 || stride >= (INT64_C(1) << 40) / bytes || (stride * bytes & 15) != 0)
            return refuse(plan, index,
                          "has strides[%u] = %lld elements of %lld bytes; a stride is a multiple "
                          "of 16 bytes, from 0 to 2^40",
                          i, (long long)stride, (long long)bytes);
    }
    if (one->nan && type.code != SILO_FLOAT && type.code != SILO_BFLOAT && type.code < 7)
        return refuse(plan, index, "pads with NaN, and its elements are integers");
    return 0;
}

/* The block shape as bits of a guard word; -1 with an exception set. */
static int block_word(const struct silo_plan *plan, int32_t index, const struct members *members,
                      uint32_t rank, uint64_t *word) {
    int64_t block[SILO_MAX_RANK];
    const int count = integers(members, s_block_shape, block);
    if (count != (int)rank)
        return refuse(plan, index,
                      count < 0 ? "has no block shape of integers"
                                : "has a block shape of another rank than its shape");
    uint64_t bits = rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (block[i] < 1 || block[i] > INT64_C(1) << 30 || (block[i] & (block[i] - 1)) != 0)
            return refuse(plan, index, "has block_shape[%u] = %lld, which is no power of two", i,
                          (long long)block[i]);
        bits |= (uint64_t)__builtin_ctzll((uint64_t)block[i]) << (3 + 5 * i);
    }
    *word = bits << SILO_BLOCK_SHIFT;
    return 0;
}

static int read_members(const struct silo_plan *plan, int32_t index, const struct members *members,
                        const struct silo_adapter *adapter, struct silo_frame *frame) {
    const struct silo_parameter *parameter = &plan->parameters[index];
    struct silo_descriptor *one = &frame->descriptors[frame->descriptors_used];
    PyObject *base = member(members, s_base);
    if (base == NULL)
        return refuse(plan, index, "has no base");
    frame->holds.object[frame->holds.objects++] = base; /* to the end of the call */
    const struct silo_adapter *how = silo_adapter_of(Py_TYPE(base));
    if (how == NULL)
        return -1;
    struct silo_view view;
    if (how->kind == SILO_ADAPT_NOTHING || how->kind >= SILO_ADAPT_INT ||
        silo_view_read(base, how, &view, &frame->holds) != 0 || view.dtype.bits == 0)
        return refuse(plan, index, "has a base that is no array of numbers");
    if (parameter->type.bits != 0 &&
        (parameter->type.bits != view.dtype.bits || parameter->type.code != view.dtype.code))
        return refuse(plan, index, "has elements of type %s; %s is declared",
                      silo_dtype_name(view.dtype), silo_dtype_name(parameter->type));
    if (view.readonly && (parameter->flags & SILO_PARAMETER_WRITES))
        return refuse(plan, index, "has a read-only base, and the kernel writes it");
    const int rank = integers(members, s_shape, one->shape);
    const int strides = rank < 0 ? -1 : integers(members, s_strides, one->strides);
    if (rank < 0 || strides != rank)
        return refuse(plan, index,
                      rank < 0      ? "has no shape of 1 to 5 integers"
                      : strides < 0 ? "has no strides of 1 to 5 integers"
                                    : "has another number of strides than extents");
    const int nan = pads_with_nan(members);
    const int tf32 = nan < 0 ? -1 : rounds_to_tf32(members, adapter);
    if (tf32 < 0)
        return refuse(plan, index, "has no padding of 'zero' or 'nan', or no yes or no about tf32");
    one->address = view.address;
    one->rank = (uint32_t)rank;
    one->nan = (uint64_t)nan;
    one->tf32 = (uint64_t)tf32;
    one->object = members->object;
    one->base = base;
    uint64_t block = 0;
    if (check(plan, index, one, view.dtype) != 0 ||
        block_word(plan, index, members, one->rank, &block) != 0)
        return -1;
    if ((view.device_type != frame->device_type || view.device_id != frame->device_id) &&
        silo_merge_device(plan, index, &view, how, frame) != 0)
        return -1;
    frame->slots[index] = frame->descriptors_used++;
    frame->key[index] = SILO_CODE(SILO_VALUE_DESCRIPTOR, view.dtype.code, view.dtype.bits,
                                  SILO_FLAG_ALIGNED16 | (view.readonly ? SILO_FLAG_READONLY : 0U)) |
                        block;
    return 0;
}

int silo_read_descriptor(const struct silo_plan *plan, int32_t index, PyObject *object,
                         const struct silo_adapter *adapter, struct silo_frame *frame) {
    if (adapter->kind != SILO_ADAPT_DESCRIPTOR)
        return silo_read_error(plan, index, object);
    if (frame->descriptors_used == SILO_MAX_DESCRIPTORS)
        return refuse(plan, index, "is one too many: a call has at most %d", SILO_MAX_DESCRIPTORS);
    if (silo_stack_check() != 0)
        return -1;
    const struct members members = members_of(object);
    const int result = read_members(plan, index, &members, adapter, frame);
    Py_XDECREF(members.dict);
    return result;
}

int silo_descriptor_shape(PyObject *object, struct silo_shape *shape) {
    const struct members members = {object, NULL};
    const int rank = integers(&members, s_shape, shape->sizes);
    if (rank < 0)
        return -1;
    const int strides = integers(&members, s_strides, shape->strides);
    if (strides != rank) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a descriptor has one stride for each extent");
        return -1;
    }
    shape->ndim = rank;
    shape->itemsize = 0;
    return 0;
}

/* ---- encoding ---- */

/* Maps made by drivers up to 13.1 of arrays below 128 KiB have a bit that must not be set; CUTLASS
 * and Triton clear it too. */
static void mend(void *map, const struct map_key *key, const uint64_t *sizes,
                 const uint64_t *strides) {
    uint64_t last = (sizes[0] - 1) * key->form.element_bytes, word;
    if (silo_cuda.version > 13010)
        return;
    for (uint32_t i = 1; i < key->form.rank; i++)
        last += (sizes[i] - 1) * strides[i - 1];
    if (last + 1 >= 128 * 1024)
        return;
    memcpy(&word, (char *)map + 8, sizeof word);
    word &= ~(UINT64_C(1) << 21);
    memcpy((char *)map + 8, &word, sizeof word);
}

/* The driver looks at a context, though it makes none of it: a thread that has launched nothing has
 * none. */
static int encode(const struct silo_plan *plan, int32_t index, int32_t device_id,
                  struct tensor_map *made) {
    const struct map_key *key = &made->key;
    const struct silo_map_form *form = &key->form;
    uint64_t sizes[SILO_MAX_RANK], strides[SILO_MAX_RANK]; /* innermost first, as the driver's */
    uint32_t box[SILO_MAX_RANK], steps[SILO_MAX_RANK];
    for (uint32_t i = 0; i < form->rank; i++) {
        const uint32_t own = form->rank - 1 - i;
        sizes[i] = (uint64_t)key->shape[own];
        box[i] = form->box[own];
        steps[i] = 1;
        strides[i] = own > 0 ? (uint64_t)key->strides[own - 1] * form->element_bytes : 0;
    }
    if (form->fp4_padded)
        sizes[0] *= 2;
    if (silo_cuda.tensor_map_encode == NULL)
        return refuse(plan, index,
                      "needs a tensor map, and the CUDA driver is not open or older than 12.0");
    struct silo_gpu_device *device = silo_gpu_device(&silo_cuda, device_id);
    struct silo_gpu_scope scope;
    if (device == NULL)
        return -1;
    int code = silo_gpu_enter(device, &scope);
    if (code != 0)
        return silo_gpu_error(&silo_cuda, "making a context current", code);
    code = silo_cuda.tensor_map_encode(map_of(made), key->tf32 ? TYPE_TF32 : form->element_type,
                                       form->rank, (void *)(uintptr_t)key->address, sizes, strides,
                                       box, steps, INTERLEAVE_NONE, form->swizzle,
                                       L2_PROMOTION_128B, key->nan ? FILL_NAN : FILL_ZERO);
    silo_gpu_leave(&scope);
    if (code == 0) {
        mend(map_of(made), key, sizes, strides);
        return 0;
    }
    char extents[128], text[256];
    int length = 0;
    for (uint32_t i = 0; i < form->rank; i++)
        length += snprintf(extents + length, sizeof extents - (size_t)length, "%s%lld/%u",
                           i ? ", " : "", (long long)key->shape[i], form->box[i]);
    snprintf(
        text, sizeof text,
        "the driver refuses its tensor map (error %d): extents/box %s, elements of %u bytes and "
        "type %d, swizzle %d",
        code, extents, form->element_bytes, form->element_type, form->swizzle);
    silo_gpu_error(&silo_cuda, "cuTensorMapEncodeTiled", code);
    return refuse(plan, index, "cannot be used: %s", text);
}

void *silo_descriptor_map(const struct silo_plan *plan, int32_t index,
                          const struct silo_map_form *form, struct silo_frame *frame) {
    const struct silo_descriptor *one = &frame->descriptors[frame->slots[index]];
    struct map_key key;
    memset(&key, 0, sizeof key);
    key.address = one->address;
    memcpy(key.shape, one->shape, one->rank * sizeof *one->shape);
    memcpy(key.strides, one->strides, one->rank * sizeof *one->strides);
    key.form = *form;
    key.nan = one->nan;
    key.tf32 = one->tf32;
    const struct members members = members_of(one->object);
    PyObject *first = member(&members, s_map);
    Py_XDECREF(members.dict);
    if (first == NULL)
        PyErr_Clear(); /* none yet, or an object that takes no attributes */
    else if (Py_TYPE(first) != map_type)
        Py_CLEAR(first); /* None, in a copy that went through pickle */
    for (PyObject *at = first; at != NULL; at = ((struct tensor_map *)at)->next) {
        struct tensor_map *known = (struct tensor_map *)at;
        if (memcmp(&known->key, &key, sizeof key) == 0) {
            frame->holds.object[frame->holds.objects++] = first; /* which keeps those after it */
            return map_of(known);
        }
    }
    struct tensor_map *made = (struct tensor_map *)PyType_GenericAlloc(map_type, 0);
    if (made == NULL) {
        Py_XDECREF(first);
        return NULL;
    }
    made->key = key;
    const uint32_t depth = first ? ((struct tensor_map *)first)->depth + 1 : 0;
    if (depth + 1 < MAX_MAPS) {
        made->depth = depth;
        made->next = first;
    } else {
        Py_XDECREF(first);
    }
    frame->holds.object[frame->holds.objects++] = (PyObject *)made;
    if (encode(plan, index, frame->device_id, made) != 0)
        return NULL;
    /* Not the type's own way: a frozen dataclass would refuse. */
    if (PyObject_GenericSetAttr(one->object, s_map, (PyObject *)made) != 0)
        PyErr_Clear(); /* no room for attributes: encoded at every call */
    return map_of(made);
}

/* ---- the rest ---- */

int silo_part_named(const char *name, uint8_t *axis) {
    *axis = 0;
    if (strcmp(name, "base") == 0)
        return SILO_PART_BASE;
    if (strcmp(name, "nan") == 0)
        return SILO_PART_NAN;
    if (strcmp(name, "tf32") == 0)
        return SILO_PART_TF32;
    const bool is_shape = strncmp(name, "shape.", 6) == 0,
               is_stride = strncmp(name, "stride.", 7) == 0;
    const char *digit = name + (is_shape ? 6 : 7);
    if ((!is_shape && !is_stride) || digit[0] < '0' || digit[0] >= '0' + SILO_MAX_RANK ||
        digit[1] != '\0')
        return -1;
    *axis = (uint8_t)(digit[0] - '0');
    return is_shape ? SILO_PART_SHAPE : SILO_PART_STRIDE;
}

static PyObject *py_adapt_descriptor(PyObject *module, PyObject *type) {
    (void)module;
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "not a type: %R", type);
    PyObject *rounds =
        PyObject_GetAttr(type, s_tf32); /* a default in the class, where it has one */
    if (rounds == NULL)
        PyErr_Clear();
    Py_XDECREF(rounds);
    if (silo_adapt_descriptor((PyTypeObject *)type, rounds != NULL) != 0)
        return NULL;
    Py_RETURN_NONE;
}

int silo_descriptor_init(PyObject *module) {
    static const struct silo_name names[] = {
        {&s_base, "base"},
        {&s_shape, "shape"},
        {&s_strides, "strides"},
        {&s_block_shape, "block_shape"},
        {&s_padding, "padding"},
        {&s_tf32, "round_f32_to_tf32"},
        {&s_map, "_silo_tensor_map"},
        {&s_zero, "zero"},
        {&s_nan, "nan"},
    };
    if (silo_intern(names, sizeof names / sizeof *names) != 0)
        return -1;
    static PyMethodDef map_methods[] = {
        {"__reduce__", map_reduce, METH_NOARGS, "Copies start without a map: None."},
        {"__bytes__", map_bytes, METH_NOARGS, "The 128 bytes that a kernel gets."},
        {NULL, NULL, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)map_dealloc},
        {Py_tp_methods, map_methods},
        {Py_tp_doc, "An encoded tensor map of one descriptor. Never changes."},
        {0, NULL},
    };
    static PyType_Spec spec = {"silo._native.TensorMap", sizeof(struct tensor_map), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    static PyMethodDef functions[] = {
        {"adapt_descriptor", py_adapt_descriptor, METH_O,
         "Read objects of this type as tensor descriptors: base, shape, strides, block_shape, "
         "padding."},
        {NULL, NULL, 0, NULL},
    };
    map_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return map_type ? PyModule_AddFunctions(module, functions) : -1;
}
