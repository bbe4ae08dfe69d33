#include "kept_map.h"

#include "gpu_device.h"

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
        return silo_refuse_descriptor(
            plan->kernel, plan->names[index],
            "needs a tensor map, and the CUDA driver is not open or older than 12.0");
    struct silo_gpu_device *device = silo_gpu_get_device(silo_cuda.name, device_id);
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
    return silo_refuse_descriptor(plan->kernel, plan->names[index], "cannot be used: %s", text);
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
    const struct silo_members members = silo_members_of(one->object);
    PyObject *first = silo_descriptor_kept(&members);
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
    if (silo_descriptor_keep(one->object, (PyObject *)made) != 0)
        PyErr_Clear(); /* no room for attributes: encoded at every call */
    return map_of(made);
}

static PyObject *py_adapt_descriptor(PyObject *module, PyObject *type) {
    (void)module;
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "not a type: %R", type);
    if (silo_adapt_descriptor((PyTypeObject *)type, silo_descriptors_round(type)) != 0)
        return NULL;
    Py_RETURN_NONE;
}

int silo_tensor_map_init(PyObject *module) {
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
