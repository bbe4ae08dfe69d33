#include "map_cache.h"

#include "errors.h"
#include "gpu_device.h"
#include "tensor_map.h"

/* The most maps kept on one descriptor, for kernels with different blocks or swizzles. */
#define MAX_MAPS 8
/* The most maps kept on one binding, for its parameters and for arrays that alternate. */
#define MAX_ARRAY_MAPS 16

/* Everything that a map depends on. Keys are compared as bytes, so the padding is zeroed first. */
struct map_key {
    struct silo_descriptor descriptor;
    struct silo_map_form form;
};

struct tensor_map {
    PyObject_HEAD PyObject *next; /* owned; NULL in the last map */
    uint32_t depth;               /* number of maps after this one */
    struct map_key key;
    unsigned char
        room[SILO_MAP_BYTES + SILO_MAP_ALIGN]; /* the map begins at the first multiple of 64 */
};

static PyTypeObject *map_type; /* owned */

static void *map_of(struct tensor_map *self) {
    const uintptr_t start = (uintptr_t)self->room;
    return self->room + (-start & (SILO_MAP_ALIGN - 1));
}

static void map_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    /* The recursion is shallow, because lists are short. */
    Py_XDECREF(((struct tensor_map *)object)->next);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* A map is only valid for the array it was encoded for, so the map of a pickled or copied
 * descriptor becomes None. */
static PyObject *map_reduce(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue("(O())", (PyObject *)Py_TYPE(Py_None));
}

static PyObject *map_bytes(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBytes_FromStringAndSize(map_of((struct tensor_map *)self), SILO_MAP_BYTES);
}

/* Raises "KERNEL: argument 'NAME' ..." with the exception that is set as its cause; returns -1. */
static int refuse_array(const struct silo_plan *plan, int32_t index, const char *text) {
    PyObject *cause = silo_take_exception();
    PyErr_Format(silo_argument_error, "%U: argument '%U' %s", plan->kernel, plan->names[index],
                 text);
    silo_chain(cause);
    return -1;
}

static int encode(const struct silo_plan *plan, int32_t index, int32_t device_id,
                  struct tensor_map *map) {
    struct silo_gpu_device *device = silo_gpu_get_device("cuda", device_id);
    silo_error error;
    if (device == NULL)
        return -1;
    if (silo_tensor_map_encode(device, &map->key.form, &map->key.descriptor, map_of(map), &error) ==
        0)
        return 0;
    if (error.code != SILO_ERROR_UNSUPPORTED && error.code != SILO_ERROR_SHAPE)
        return silo_raise_as(silo_device_error, &error);
    if (error.driver_code != 0)
        /* Becomes the cause of the error below. */
        silo_gpu_error(device->gpu, "cuTensorMapEncodeTiled", error.driver_code);
    return map->key.form.of_array
               ? refuse_array(plan, index, error.text)
               : silo_refuse_descriptor(plan->kernel, plan->names[index], "%s", error.text);
}

/* Searches the list that begins with `first` for the map of `key`. If the map is found, returns it,
 * and `frame` takes over the caller's reference to `first`, so that the list lives as long as the
 * call. Otherwise returns NULL, and the caller still owns the reference. */
static void *find(PyObject *first, const struct map_key *key, struct silo_frame *frame) {
    for (PyObject *node = first; node != NULL; node = ((struct tensor_map *)node)->next) {
        struct tensor_map *candidate = (struct tensor_map *)node;
        if (memcmp(&candidate->key, key, sizeof *key) == 0) {
            /* `frame` holds the first map of the list, which keeps all maps after it alive, too. */
            frame->holds.object[frame->holds.objects++] = first;
            return map_of(candidate);
        }
    }
    return NULL;
}

/* Returns a new map for `key`, not yet encoded, that `frame` holds. The new map becomes the head of
 * the list `first` and takes over the caller's reference to the list. If the list already has
 * `most` maps, the list is released, and the new map is the only one. Returns NULL with an
 * exception set. */
static struct tensor_map *prepend(PyObject *first, const struct map_key *key, uint32_t most,
                                  struct silo_frame *frame) {
    struct tensor_map *map = (struct tensor_map *)PyType_GenericAlloc(map_type, 0);
    if (map == NULL) {
        Py_XDECREF(first);
        return NULL;
    }
    map->key = *key;
    const uint32_t depth = first ? ((struct tensor_map *)first)->depth + 1 : 0;
    if (depth + 1 < most) {
        map->depth = depth;
        map->next = first;
    } else {
        Py_XDECREF(first);
    }
    frame->holds.object[frame->holds.objects++] = (PyObject *)map;
    return map;
}

void *silo_descriptor_map(const struct silo_plan *plan, int32_t index,
                          const struct silo_map_form *form, struct silo_frame *frame) {
    const struct silo_descriptor *descriptor = &frame->descriptors[frame->slots[index]];
    struct map_key key;
    memset(&key, 0, sizeof key);
    key.descriptor.address = descriptor->address;
    key.descriptor.nan = descriptor->nan;
    key.descriptor.tf32 = descriptor->tf32;
    key.descriptor.rank = descriptor->rank;
    memcpy(key.descriptor.shape, descriptor->shape, descriptor->rank * sizeof *descriptor->shape);
    memcpy(key.descriptor.strides, descriptor->strides,
           descriptor->rank * sizeof *descriptor->strides);
    key.form = *form;
    PyObject *object = silo_owner_of(plan, frame, frame->slots[index])->object;
    struct silo_members members = silo_members_of(object);
    PyObject *first = silo_descriptor_stored_map(&members);
    Py_XDECREF(members.dict);
    if (first == NULL)
        silo_forget_error(); /* the object has no map yet, or takes no attributes */
    else if (Py_TYPE(first) != map_type)
        Py_CLEAR(first); /* None in an object that was unpickled */
    void *cached = find(first, &key, frame);
    if (cached != NULL)
        return cached;
    struct tensor_map *map = prepend(first, &key, MAX_MAPS, frame);
    if (map == NULL || encode(plan, index, frame->device_id, map) != 0)
        return NULL;
    if (silo_descriptor_keep(object, (PyObject *)map) != 0)
        silo_forget_error(); /* the object takes no attributes, so its map is encoded at every call
                              */
    return map_of(map);
}

/* Stores the values that an array's map is encoded from; -1 with an exception set. */
static int describe(const struct silo_plan *plan, int32_t index, const struct silo_map_form *form,
                    PyObject *object, uint64_t address, struct silo_descriptor *out) {
    static const char expected[] = "an array with a shape, of which its tensor map is made";
    struct silo_shape shape = {.ndim = 0};
    silo_error error;
    if (silo_map_reads_shape(form)) {
        const struct silo_adapter *adapter = silo_adapter_of(Py_TYPE(object));
        if (adapter == NULL)
            return -1;
        if (silo_shape_read(object, adapter, &shape) != 0 || !shape.whole)
            return silo_bad_argument(plan->kernel, plan->names[index], expected, object);
    }
    if (silo_map_of_array(form, address, shape.ndim, shape.sizes, shape.strides, out, &error) == 0)
        return 0;
    return refuse_array(plan, index, error.text);
}

void *silo_array_map(const struct silo_plan *plan, struct silo_binding *binding, int32_t index,
                     const struct silo_map_form *form, PyObject *const *arguments,
                     struct silo_frame *frame) {
    struct map_key key;
    memset(&key, 0, sizeof key);
    key.form = *form;
    if (describe(plan, index, form, arguments[index], frame->slots[index], &key.descriptor) != 0)
        return NULL;
    SILO_LOCK(&binding->maps_lock);
    PyObject *first = Py_XNewRef(binding->maps);
    SILO_UNLOCK(&binding->maps_lock);
    void *cached = find(first, &key, frame);
    if (cached != NULL)
        return cached;
    struct tensor_map *map = prepend(first, &key, MAX_ARRAY_MAPS, frame);
    if (map == NULL || encode(plan, index, frame->device_id, map) != 0)
        return NULL;
    SILO_LOCK(&binding->maps_lock);
    PyObject *old = binding->maps;
    binding->maps = Py_NewRef((PyObject *)map);
    SILO_UNLOCK(&binding->maps_lock);
    Py_XDECREF(old);
    return map_of(map);
}

static PyObject *py_adapt_descriptor(PyObject *module, PyObject *type) {
    (void)module;
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "not a type: %R", type);
    if (silo_adapt_descriptor((PyTypeObject *)type, silo_descriptors_round(type),
                              silo_descriptors_have_layouts(type)) != 0)
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
