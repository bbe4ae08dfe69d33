/* Bindings: a binding joins a loaded kernel to the parameters of one launcher. */
#include "binding.h"

#include "errors.h"
#include "loaded.h"
#include "shape.h"

PyTypeObject *silo_binding_type;

/* Reads the leaves (scalars) of a struct argument from a tuple of pairs (type, part), such as
 * ("ptr", "") and ("i32", "shape.0"). */
static int read_leaves(PyObject *leaves, struct silo_struct_form *form) {
    silo_error error;
    memset(form, 0, sizeof *form);
    for (Py_ssize_t i = 0; i < PyTuple_Size(leaves); i++) {
        const char *type, *part;
        if (!PyArg_ParseTuple(PyTuple_GetItem(leaves, i), "ss", &type, &part))
            return -1;
        if (silo_struct_add(form, type, part, &error) != 0)
            return silo_raise_as(PyExc_ValueError, &error);
    }
    return 0;
}

/* Reads the axes of an array's tensor map: each is the number of an array's axis, or a pair of an
 * extent and a stride. */
static int read_axes(PyObject *axes, struct silo_map_form *form) {
    if (PyTuple_Size(axes) != (Py_ssize_t)form->rank) {
        PyErr_SetString(PyExc_ValueError, "a tensor map has one axis for each extent of its box");
        return -1;
    }
    form->of_array = 1;
    for (uint32_t i = 0; i < form->rank && i < SILO_MAX_RANK; i++) {
        PyObject *axis = PyTuple_GetItem(axes, (Py_ssize_t)i);
        long long extent, stride;
        if (PyTuple_Check(axis)) {
            if (!PyArg_ParseTuple(axis, "LL", &extent, &stride))
                return -1;
            form->axes[i] = SILO_NO_AXIS;
            form->shape[i] = extent;
            form->strides[i] = stride;
            continue;
        }
        const long number = PyLong_AsLong(axis);
        if (number == -1 && PyErr_Occurred())
            return -1;
        form->axes[i] = number < 0 || number >= SILO_MAX_AXES ? SILO_MAX_AXES : (int32_t)number;
    }
    return 0;
}

/* The memory for the forms (of a tensor map or a struct) that one layout item points to. */
struct item_forms {
    struct silo_map_form map;
    struct silo_struct_form members;
};

/* Reads one item of a layout, a tuple whose length shows what it describes:
 *
 *   scalar or pointer           (slot, type, writes)
 *   struct                      (slot, type, writes, leaves)
 *   part of a descriptor        (slot, type, writes, part, rank)
 *   tensor map of a descriptor  (slot, type, writes, element type, its bytes, swizzle, fp4, box)
 *   tensor map of an array      as for a descriptor, followed by axes */
static int read_item(PyObject *item, struct silo_layout_item *out, struct item_forms *forms) {
    struct silo_map_form *form = &forms->map;
    int slot, writes;
    const Py_ssize_t members = PyTuple_Check(item) ? PyTuple_Size(item) : 0;
    memset(out, 0, sizeof *out);
    if (members == 4) {
        PyObject *leaves;
        if (!PyArg_ParseTuple(item, "ispO!", &slot, &out->type, &writes, &PyTuple_Type, &leaves) ||
            read_leaves(leaves, &forms->members) != 0)
            return -1;
        out->form = &forms->members;
    } else if (members == 5) {
        int rank;
        if (!PyArg_ParseTuple(item, "ispsi", &slot, &out->type, &writes, &out->part, &rank))
            return -1;
        out->rank = rank < 0 ? 0 : (uint32_t)rank;
    } else if (members == 8 || members == 9) {
        int fp4;
        PyObject *box, *axes = NULL;
        memset(form, 0, sizeof *form);
        if (!PyArg_ParseTuple(item, "ispiIipO!|O!", &slot, &out->type, &writes, &form->element_type,
                              &form->element_bytes, &form->swizzle, &fp4, &PyTuple_Type, &box,
                              &PyTuple_Type, &axes))
            return -1;
        form->rank = (uint32_t)PyTuple_Size(box);
        form->fp4_padded = fp4 != 0;
        for (uint32_t i = 0; i < form->rank && i < SILO_MAX_RANK; i++) {
            const unsigned long extent = PyLong_AsUnsignedLong(PyTuple_GetItem(box, i));
            PyErr_Clear();
            form->box[i] = extent > UINT32_MAX ? UINT32_MAX : (uint32_t)extent;
        }
        if (axes != NULL && read_axes(axes, form) != 0)
            return -1;
        out->map = form;
    } else if (!PyArg_ParseTuple(item, "isp", &slot, &out->type, &writes)) {
        return -1;
    }
    out->slot = slot;
    out->writes = writes != 0;
    return 0;
}

/* Reads the `count` items of a layout into `items`, which point into `forms`, and fills in the
 * binding's packing from them. The caller frees both arrays. */
static int parse_items(struct silo_binding *self, PyObject *layout, size_t count,
                       struct silo_layout_item *items, struct item_forms *forms) {
    for (size_t i = 0; i < count; i++) {
        if (read_item(PyTuple_GetItem(layout, (Py_ssize_t)i), &items[i], &forms[i]) != 0)
            return -1;
    }
    silo_error error;
    int32_t wrong;
    if (silo_packing_init(&self->packing, items, count, &self->loaded->function, &wrong, &error) ==
        0)
        return 0;
    if (wrong < 0)
        return silo_raise_as(PyExc_ValueError, &error);
    PyErr_Format(PyExc_ValueError, "%s: %R", error.text, PyTuple_GetItem(layout, wrong));
    return -1;
}

static int parse_layout(struct silo_binding *self, PyObject *layout) {
    const Py_ssize_t count = PyTuple_Size(layout);
    if (count < 0)
        return -1;
    if (count > SILO_MAX_PARAMETERS) {
        PyErr_SetString(PyExc_ValueError, "a binary with too many parameters");
        return -1;
    }
    struct silo_layout_item *items = PyMem_Calloc((size_t)count + 1, sizeof *items);
    struct item_forms *forms = PyMem_Calloc((size_t)count + 1, sizeof *forms);
    int result = -1;
    if (items == NULL || forms == NULL)
        PyErr_NoMemory();
    else
        result = parse_items(self, layout, (size_t)count, items, forms);
    PyMem_Free(items);
    PyMem_Free(forms);
    return result;
}

struct silo_binding *silo_binding_begin(PyTypeObject *type, PyObject *loaded, PyObject *config,
                                        PyObject *tag) {
    struct silo_binding *self = (struct silo_binding *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->loaded = (struct silo_loaded *)Py_NewRef(loaded);
    self->tag = Py_NewRef(tag);
    self->config = PyDict_Copy(config);
    if (self->config == NULL)
        Py_CLEAR(self);
    return self;
}

static PyObject *binding_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"loaded", "layout", "config", "grid", "tag", "effects", NULL};
    PyObject *loaded, *layout, *config, *grid = Py_None, *tag = Py_None, *effects = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!O!|O$OO!", names, silo_loaded_type,
                                     &loaded, &PyTuple_Type, &layout, &PyDict_Type, &config, &grid,
                                     &tag, &PyDict_Type, &effects))
        return NULL;
    struct silo_binding *self = silo_binding_begin(type, loaded, config, tag);
    if (self == NULL)
        return NULL;
    self->effects = effects == NULL ? NULL : PyDict_Copy(effects);
    if ((effects != NULL && self->effects == NULL) || parse_layout(self, layout) != 0 ||
        (grid != Py_None && silo_grid_decode(&self->grid, grid) != 0)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int binding_traverse(PyObject *object, visitproc visit, void *arg) {
    struct silo_binding *self = (struct silo_binding *)object;
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT((PyObject *)self->loaded);
    Py_VISIT(self->config);
    Py_VISIT(self->tag);
    Py_VISIT(self->effects);
    return 0;
}

static int binding_clear(PyObject *object) {
    struct silo_binding *self = (struct silo_binding *)object;
    Py_CLEAR(self->tag); /* only `tag` is cleared: a launch may still use the other members, and
                            every reference cycle through one of these members also contains another
                            object, whose tp_clear breaks the cycle */
    return 0;
}

static void binding_dealloc(PyObject *object) {
    struct silo_binding *self = (struct silo_binding *)object;
    PyObject_GC_UnTrack(object);
    silo_grid_clear(&self->grid);
    silo_packing_clear(&self->packing);
    Py_XDECREF(self->config);
    Py_XDECREF(self->tag);
    Py_XDECREF(self->effects);
    Py_XDECREF(self->maps);
    Py_XDECREF((PyObject *)self->loaded);
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

static PyObject *binding_config(PyObject *object, void *closure) {
    (void)closure;
    return PyDict_Copy(((struct silo_binding *)object)->config);
}

static PyObject *binding_repr(PyObject *object) {
    struct silo_binding *self = (struct silo_binding *)object;
    return PyUnicode_FromFormat("<Binding '%U' on %s>", self->loaded->entry,
                                self->loaded->driver->name);
}

static PyObject *binding_grid_arrays(PyObject *object, void *closure) {
    const struct silo_grid_programs *grid = &((struct silo_binding *)object)->grid;
    (void)closure;
    PyObject *indices = PyTuple_New((Py_ssize_t)grid->arrays_used);
    for (uint32_t i = 0; indices != NULL && i < grid->arrays_used; i++) {
        PyObject *index = PyLong_FromLong(grid->arrays[i]);
        if (index == NULL || PyTuple_SetItem(indices, (Py_ssize_t)i, index) != 0)
            Py_CLEAR(indices);
    }
    return indices;
}

int silo_binding_init(PyObject *module) {
    static PyMemberDef binding_members[] = {
        {"loaded", T_OBJECT_EX, offsetof(struct silo_binding, loaded), READONLY,
         "The LoadedKernel."},
        {"tag", T_OBJECT, offsetof(struct silo_binding, tag), READONLY, "The object given as tag."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef binding_getters[] = {
        {"config", binding_config, NULL, "A copy of the config.", NULL},
        {"grid_arrays", binding_grid_arrays, NULL,
         "Parameters whose shape or strides the declared grid reads, by position.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot binding_slots[] = {
        {Py_tp_new, (void *)binding_new},
        {Py_tp_dealloc, (void *)binding_dealloc},
        {Py_tp_traverse, (void *)binding_traverse},
        {Py_tp_clear, (void *)binding_clear},
        {Py_tp_repr, (void *)binding_repr},
        {Py_tp_members, binding_members},
        {Py_tp_getset, binding_getters},
        {Py_tp_doc, "Binding(loaded, layout, config, grid=None, *, tag=None, effects={})\n--\n\n"
                    "A loaded kernel joined to the parameters of one launcher."},
        {0, NULL},
    };
    static PyType_Spec binding_spec = {"silo._native.Binding", sizeof(struct silo_binding), 0,
                                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, binding_slots};
    silo_binding_type = (PyTypeObject *)PyType_FromSpec(&binding_spec);
    return silo_binding_type
               ? PyModule_AddObjectRef(module, "Binding", (PyObject *)silo_binding_type)
               : -1;
}
