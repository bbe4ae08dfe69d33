/* Bindings: loaded kernels joined to the parameters of one launcher. */
#include "kernel.h"

PyTypeObject *silo_binding_type;

static const struct {
    const char *name;
    uint8_t abi, bits, pack;
} abi_types[] = {
    {"ptr", SILO_ABI_POINTER, 64, SILO_PACK_SLOT},  {"i1", SILO_ABI_BOOL, 8, SILO_PACK_SLOT},
    {"i8", SILO_ABI_INT, 8, SILO_PACK_SLOT},        {"i16", SILO_ABI_INT, 16, SILO_PACK_SLOT},
    {"i32", SILO_ABI_INT, 32, SILO_PACK_SLOT},      {"i64", SILO_ABI_INT, 64, SILO_PACK_SLOT},
    {"u8", SILO_ABI_UINT, 8, SILO_PACK_SLOT},       {"u16", SILO_ABI_UINT, 16, SILO_PACK_SLOT},
    {"u32", SILO_ABI_UINT, 32, SILO_PACK_SLOT},     {"u64", SILO_ABI_UINT, 64, SILO_PACK_SLOT},
    {"fp16", SILO_ABI_FLOAT, 16, SILO_PACK_FP16},   {"bf16", SILO_ABI_FLOAT, 16, SILO_PACK_BF16},
    {"fp32", SILO_ABI_FLOAT, 32, SILO_PACK_FP32},   {"fp64", SILO_ABI_FLOAT, 64, SILO_PACK_SLOT},
    {"scratch", SILO_ABI_NULL, 64, SILO_PACK_SLOT}, {"profile", SILO_ABI_NULL, 64, SILO_PACK_SLOT},
};

/* (slot, type, writes, part, rank): what is left of a descriptor beside its map. */
static int parse_part(PyObject *item, struct silo_packed *out) {
    int slot, writes, rank;
    const char *type, *name;
    if (!PyArg_ParseTuple(item, "ispsi", &slot, &type, &writes, &name, &rank))
        return -1;
    uint8_t axis;
    const int part = silo_part_named(name, &axis);
    if (part < 0 || slot < 0 || slot >= SILO_MAX_PARAMETERS || rank < 1 || rank > SILO_MAX_RANK ||
        axis >= rank) {
        PyErr_Format(PyExc_ValueError, "not a part of a tensor descriptor: %R", item);
        return -1;
    }
    *out = (struct silo_packed){.slot = (int16_t)slot,
                                .pack = SILO_PACK_DESCRIPTOR,
                                .abi = SILO_ABI_DESCRIPTOR,
                                .bits = 64,
                                .writes = writes != 0,
                                .part = (uint8_t)part,
                                .axis = axis,
                                .rank = (uint8_t)rank};
    return 0;
}

/* (slot, "tensormap", writes, element type, element bytes, swizzle, fp4, box): a descriptor's map,
 * which becomes number `index` of the binding's. */
static int parse_map(PyObject *item, uint8_t index, struct silo_map_form *form,
                     struct silo_packed *out) {
    int slot, writes, fp4;
    const char *type;
    PyObject *box;
    memset(form, 0, sizeof *form); /* compared as bytes */
    if (!PyArg_ParseTuple(item, "ispiIipO!", &slot, &type, &writes, &form->element_type,
                          &form->element_bytes, &form->swizzle, &fp4, &PyTuple_Type, &box))
        return -1;
    const Py_ssize_t rank = PyTuple_Size(box);
    bool good = strcmp(type, "tensormap") == 0 && slot >= 0 && slot < SILO_MAX_PARAMETERS &&
                rank >= 1 && rank <= SILO_MAX_RANK;
    for (Py_ssize_t i = 0; good && i < rank; i++) {
        const unsigned long extent = PyLong_AsUnsignedLong(PyTuple_GetItem(box, i));
        PyErr_Clear();
        good = extent >= 1 && extent <= 256; /* what the driver takes */
        form->box[i] = (uint32_t)extent;
    }
    if (!good) {
        PyErr_Format(PyExc_ValueError, "not a tensor map: %R", item);
        return -1;
    }
    form->rank = (uint32_t)rank;
    form->fp4_padded = fp4 != 0;
    *out = (struct silo_packed){.slot = (int16_t)slot,
                                .pack = SILO_PACK_DESCRIPTOR,
                                .abi = SILO_ABI_DESCRIPTOR,
                                .bits = 64,
                                .writes = writes != 0,
                                .part = SILO_PART_MAP,
                                .axis = index,
                                .rank = (uint8_t)rank};
    return 0;
}

static int parse_packed(const struct silo_function *function, PyObject *item,
                        struct silo_packed *out) {
    int slot, writes;
    const char *name;
    if (!PyArg_ParseTuple(item, "isp", &slot, &name, &writes))
        return -1;
    for (size_t i = 0; i < sizeof abi_types / sizeof *abi_types; i++) {
        if (strcmp(abi_types[i].name, name) != 0)
            continue;
        const bool hidden = abi_types[i].abi == SILO_ABI_NULL;
        if (!hidden && (slot < 0 || slot >= SILO_MAX_PARAMETERS))
            break;
        *out = (struct silo_packed){.slot = hidden ? SILO_SLOT_NULL : (int16_t)slot,
                                    .pack = abi_types[i].pack,
                                    .abi = abi_types[i].abi,
                                    .bits = abi_types[i].bits,
                                    .writes = writes != 0};
        if (hidden && function->device != NULL) {
            const bool profile = strcmp(name, "profile") == 0;
            if ((profile ? function->profile_bytes : function->scratch_bytes) > 0)
                out->pack = profile ? SILO_PACK_PROFILE : SILO_PACK_SCRATCH;
        }
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "not a parameter of a kernel's binary: %R", item);
    return -1;
}

static int parse_layout(struct silo_binding *self, PyObject *layout) {
    Py_ssize_t count = PyTuple_Size(layout);
    if (count < 0)
        return -1;
    if (count > SILO_MAX_PARAMETERS) {
        PyErr_SetString(PyExc_ValueError, "a binary with too many parameters");
        return -1;
    }
    self->packed = PyMem_Calloc((size_t)count + 1, sizeof *self->packed);
    if (self->packed == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    uint8_t maps = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        struct silo_packed *packed = &self->packed[i];
        PyObject *item = PyTuple_GetItem(layout, i);
        const Py_ssize_t members = PyTuple_Check(item) ? PyTuple_Size(item) : 0;
        int result;
        if (members == 5) {
            result = parse_part(item, packed);
        } else if (members == 8) {
            if (self->maps == NULL)
                self->maps = PyMem_Calloc(SILO_MAX_DESCRIPTORS, sizeof *self->maps);
            if (self->maps == NULL) {
                PyErr_NoMemory();
                return -1;
            }
            if (maps == SILO_MAX_DESCRIPTORS) {
                PyErr_SetString(PyExc_ValueError, "a binary with too many tensor maps");
                return -1;
            }
            result = parse_map(item, maps, &self->maps[maps], packed);
            maps++;
            /* A call holds one map an argument. */
            for (Py_ssize_t j = 0; result == 0 && j < i; j++) {
                const struct silo_packed *other = &self->packed[j];
                if (other->pack == SILO_PACK_DESCRIPTOR && other->part == SILO_PART_MAP &&
                    other->slot == packed->slot) {
                    PyErr_Format(PyExc_ValueError, "two tensor maps of one parameter: %R", item);
                    result = -1;
                }
            }
        } else {
            result = parse_packed(&self->loaded->function, item, packed);
        }
        if (result != 0)
            return -1;
        self->takes_scratch |=
            packed->pack == SILO_PACK_SCRATCH || packed->pack == SILO_PACK_PROFILE;
    }
    self->count = (uint32_t)count;
    return 0;
}

static PyObject *binding_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"loaded", "layout", "config", "grid", "tag", "effects", NULL};
    PyObject *loaded, *layout, *config, *grid = Py_None, *tag = Py_None, *effects = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!O!|O$OO!", names, silo_loaded_type,
                                     &loaded, &PyTuple_Type, &layout, &PyDict_Type, &config, &grid,
                                     &tag, &PyDict_Type, &effects))
        return NULL;
    struct silo_binding *self = (struct silo_binding *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(loaded);
    self->loaded = (struct silo_loaded *)loaded;
    self->config = PyDict_Copy(config);
    Py_INCREF(tag);
    self->tag = tag;
    self->effects = effects == NULL ? NULL : PyDict_Copy(effects);
    if (self->config == NULL || (effects != NULL && self->effects == NULL) ||
        parse_layout(self, layout) != 0 ||
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
    Py_CLEAR(self->tag); /* the rest is needed as long as a launch may use it, and cannot close a
                            cycle alone */
    return 0;
}

static void binding_dealloc(PyObject *object) {
    struct silo_binding *self = (struct silo_binding *)object;
    PyObject_GC_UnTrack(object);
    silo_grid_clear(&self->grid);
    PyMem_Free(self->packed);
    PyMem_Free(self->maps);
    Py_XDECREF(self->config);
    Py_XDECREF(self->tag);
    Py_XDECREF(self->effects);
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

int silo_binding_init(PyObject *module) {
    static PyMemberDef binding_members[] = {
        {"loaded", T_OBJECT_EX, offsetof(struct silo_binding, loaded), READONLY,
         "The LoadedKernel."},
        {"tag", T_OBJECT, offsetof(struct silo_binding, tag), READONLY, "The object given as tag."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef binding_getters[] = {
        {"config", binding_config, NULL, "A copy of the config.", NULL},
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
