#include "kernel.h"

#include "cpu_driver.h"
#include "dlpack.h"
#include "errors.h"
#include "gpu.h"
#include "library.h"

#include <stdlib.h>

PyTypeObject *silo_module_type;
PyTypeObject *silo_loaded_type;
PyTypeObject *silo_binding_type;

static void free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF((PyObject *)type);
}

/* ---- modules: objects the CPU driver has mapped ---- */

static PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "directory", "address", NULL};
    Py_buffer data = {0};
    const char *directory = NULL;
    unsigned long long address = 0;
    char error[512];
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|y*z$K", names, &data, &directory, &address))
        return NULL;
    if ((data.obj == NULL) == (address == 0)) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_TypeError, "a CpuModule is made of bytes or of an address=");
        return NULL;
    }
    struct silo_module *self = (struct silo_module *)PyType_GenericAlloc(type, 0);
    if (self != NULL && address != 0) {
        self->function = (void *)(uintptr_t)address;
    } else if (self != NULL) {
        Py_BEGIN_ALLOW_THREADS self->object =
            silo_cpu_open(data.buf, (size_t)data.len, directory, error, sizeof error);
        Py_END_ALLOW_THREADS if (self->object == NULL) {
            PyErr_Format(silo_device_error, "cannot load the CPU code (%zd bytes): %s", data.len,
                         error);
            Py_CLEAR(self);
        }
    }
    PyBuffer_Release(&data);
    return (PyObject *)self;
}

static void module_dealloc(PyObject *object) {
    struct silo_module *self = (struct silo_module *)object;
    if (self->object != NULL)
        silo_cpu_close(self->object);
    free_object(object);
}

/* ---- loaded kernels ---- */

static int cpu_function(struct silo_module *module, const char *symbol,
                        struct silo_function *function) {
    char error[512];
    function->handle = module->object ? silo_cpu_symbol(module->object, symbol, error, sizeof error)
                                      : module->function;
    if (function->handle == NULL) {
        PyErr_Format(silo_device_error, "%s", error);
        return -1;
    }
    function->memory_type = SILO_DEVICE_CPU;
    /* The kernel ABI has 32-bit dimensions; their product is checked to 63 bits. */
    for (int axis = 0; axis < 3; axis++)
        function->grid_limit[axis] = UINT32_MAX;
    return 0;
}

static int resolve_function(struct silo_loaded *self) {
    const char *symbol = PyUnicode_AsUTF8AndSize(self->entry, NULL);
    if (symbol == NULL)
        return -1;
    if (Py_TYPE(self->module) == silo_module_type) {
        self->driver = &silo_cpu_driver;
        self->function.name = PyUnicode_AsUTF8AndSize(self->name, NULL); /* lives with `name` */
        if (self->function.name == NULL)
            return -1;
        return cpu_function((struct silo_module *)self->module, symbol, &self->function);
    }
    if (Py_TYPE(self->module) == silo_library_type) {
        silo_library_function(self->module, &self->driver, &self->function);
        return 0;
    }
    struct silo_gpu_module *module = (struct silo_gpu_module *)self->module;
    self->driver = module->device->gpu->driver;
    return silo_gpu_function(module, self->name, symbol, &self->function);
}

/* No driver takes more threads along an axis than the struct holds. */
static int set_block(struct silo_function *function, PyObject *kernel, const long long block[3]) {
    for (int axis = 0; axis < 3; axis++) {
        if (block[axis] < 1 || block[axis] > UINT16_MAX) {
            PyErr_Format(silo_device_error,
                         "%U: a block of %lld x %lld x %lld threads cannot be; there are 1 to %d "
                         "along each axis",
                         kernel, block[0], block[1], block[2], UINT16_MAX);
            return -1;
        }
        function->block[axis] = (uint16_t)block[axis];
    }
    return 0;
}

static PyObject *loaded_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"module",        "entry",         "name",          "block",
                            "cluster",       "shared_bytes",  "scratch_bytes", "scratch_align",
                            "profile_bytes", "profile_align", "chunk",         "threads",
                            "together",      "cooperative",   "pdl",           NULL};
    PyObject *module, *entry, *name = NULL;
    unsigned long long scratch = 0, profile = 0;
    long long block[3] = {1, 1, 1};
    struct silo_function asked = {
        .cluster = {1, 1, 1}, .scratch_align = 1, .profile_align = 1, .cpu_together = 1024};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OU|U$(LLL)(III)IKIKIIIIpp", names, &module,
                                     &entry, &name, &block[0], &block[1], &block[2],
                                     &asked.cluster[0], &asked.cluster[1], &asked.cluster[2],
                                     &asked.shared_bytes, &scratch, &asked.scratch_align, &profile,
                                     &asked.profile_align, &asked.cpu_chunk, &asked.cpu_threads,
                                     &asked.cpu_together, &asked.cooperative, &asked.pdl))
        return NULL;
    if (Py_TYPE(module) != silo_module_type && Py_TYPE(module) != silo_gpu_module_type &&
        Py_TYPE(module) != silo_library_type)
        return PyErr_Format(PyExc_TypeError,
                            "a kernel is loaded from a CpuModule, a GpuModule or a LibraryCode, "
                            "not a %R",
                            Py_TYPE(module));
    if (set_block(&asked, name ? name : entry, block) != 0)
        return NULL;
    asked.scratch_bytes = scratch;
    asked.profile_bytes = profile;
    struct silo_loaded *self = (struct silo_loaded *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(module);
    self->module = module;
    Py_INCREF(entry);
    self->entry = entry;
    self->name = name ? name : entry;
    Py_INCREF(self->name);
    self->function = asked;
    if (resolve_function(self) != 0) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

static int loaded_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)Py_TYPE(object));
    Py_VISIT(((struct silo_loaded *)object)->module); /* code of a library may lead back here */
    return 0;
}

static void loaded_dealloc(PyObject *object) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->entry);
    Py_XDECREF(self->name);
    Py_XDECREF(self->module); /* last: the function lies in it */
    free_object(object);
}

static PyObject *loaded_repr(PyObject *object) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    return PyUnicode_FromFormat("<LoadedKernel '%U' on %s>", self->entry, self->driver->name);
}

static PyObject *loaded_driver(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((struct silo_loaded *)object)->driver->name);
}

static PyObject *loaded_parameters(PyObject *object, void *closure) {
    struct silo_loaded *self = (struct silo_loaded *)object;
    (void)closure;
    if (Py_TYPE(self->module) != silo_gpu_module_type)
        Py_RETURN_NONE;
    return silo_gpu_parameters((struct silo_gpu_module *)self->module, &self->function);
}

/* ---- bindings ---- */

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
    free_object(object);
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

static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) != 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

int silo_kernel_init(PyObject *module) {
    static PyType_Slot module_slots[] = {
        {Py_tp_new, (void *)module_new},
        {Py_tp_dealloc, (void *)module_dealloc},
        {Py_tp_doc,
         "CpuModule(data=None, directory=None, *, address=0)\n--\n\n"
         "A shared object mapped from bytes, or one function of this process by its address."},
        {0, NULL},
    };
    static PyType_Spec module_spec = {"silo._native.CpuModule", sizeof(struct silo_module), 0,
                                      Py_TPFLAGS_DEFAULT, module_slots};
    static PyMemberDef loaded_members[] = {
        {"entry", T_OBJECT_EX, offsetof(struct silo_loaded, entry), READONLY,
         "The symbol that runs."},
        {"name", T_OBJECT_EX, offsetof(struct silo_loaded, name), READONLY, "The kernel's name."},
        {NULL, 0, 0, 0, NULL},
    };
    static PyGetSetDef loaded_getters[] = {
        {"driver", loaded_driver, NULL, "The driver's name.", NULL},
        {"parameters", loaded_parameters, NULL,
         "Offset and size of each parameter, as the GPU driver says; None where it says nothing.",
         NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyType_Slot loaded_slots[] = {
        {Py_tp_new, (void *)loaded_new},
        {Py_tp_dealloc, (void *)loaded_dealloc},
        {Py_tp_traverse, (void *)loaded_traverse},
        {Py_tp_repr, (void *)loaded_repr},
        {Py_tp_members, loaded_members},
        {Py_tp_getset, loaded_getters},
        {Py_tp_doc,
         "LoadedKernel(module, entry, name=entry, *, block=(1, 1, 1), cluster=(1, 1, 1), "
         "shared_bytes=0, scratch_bytes=0, scratch_align=1, profile_bytes=0, "
         "profile_align=1, chunk=0, threads=0, together=1024, cooperative=False, pdl=False)\n--\n\n"
         "A kernel handed to a driver; keeps its module loaded."},
        {0, NULL},
    };
    static PyType_Spec loaded_spec = {"silo._native.LoadedKernel", sizeof(struct silo_loaded), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, loaded_slots};
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
    silo_module_type = add_type(module, "CpuModule", &module_spec);
    silo_loaded_type = add_type(module, "LoadedKernel", &loaded_spec);
    silo_binding_type = add_type(module, "Binding", &binding_spec);
    return silo_module_type && silo_loaded_type && silo_binding_type ? silo_descriptor_init(module)
                                                                     : -1;
}
