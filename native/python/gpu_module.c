/* GpuModule: code loaded on a device, and the functions taken from it. */
#include "gpu_module.h"

#include "errors.h"
#include "gpu_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* More than any driver takes: there are 32,764 bytes of them. */
#define MOST_PARAMETERS 32768

PyTypeObject *silo_gpu_module_type;

/* ---- retired modules ---- */

/* A module whose last reference is gone, while launches of it may still run. */
struct silo_gpu_retired {
    struct silo_gpu_retired *next; /* owned */
    void *module, *image;          /* owned */
};

/* Held for a few instructions, never while a driver or Python is called. */
static pthread_mutex_t retiring = PTHREAD_MUTEX_INITIALIZER;

void silo_gpu_retired_renew(void) {
    pthread_mutex_init(&retiring, NULL);
}

static struct silo_gpu_retired *take_retired(struct silo_gpu_device *device) {
    pthread_mutex_lock(&retiring);
    struct silo_gpu_retired *list = device->retired;
    device->retired = NULL;
    pthread_mutex_unlock(&retiring);
    return list;
}

static void put_retired(struct silo_gpu_device *device, struct silo_gpu_retired *list) {
    struct silo_gpu_retired *last = list;
    if (list == NULL)
        return;
    while (last->next != NULL)
        last = last->next;
    pthread_mutex_lock(&retiring);
    last->next = device->retired;
    device->retired = list;
    pthread_mutex_unlock(&retiring);
}

/* Unload what is retired once the device has done the work that may need it; what cannot be
 * unloaded now (another thread captures) waits for the next sweep. The device's context is current,
 * and the GIL is not held: the wait may be for a kernel that waits for a Python callback. */
static void sweep(struct silo_gpu_device *device) {
    struct silo_gpu_retired *list = take_retired(device);
    struct silo_gpu_retired *kept = NULL;
    if (list != NULL && device->gpu->drain() != 0) {
        put_retired(device, list);
        return;
    }
    while (list != NULL) {
        struct silo_gpu_retired *next = list->next;
        const int code = device->gpu->module_unload(list->module);
        if (code >= SILO_GPU_CAPTURES) {
            list->next = kept;
            kept = list;
        } else { /* unloaded, or lost with its context or driver */
            free(list->image);
            free(list);
        }
        list = next;
    }
    put_retired(device, kept);
}

static PyObject *end(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    silo_gpu_end();
    Py_RETURN_NONE;
}

/* ---- loading ---- */

static const char *image_kind(const unsigned char *data, size_t size) {
    static const unsigned char elf[] = {0x7F, 'E', 'L', 'F'}, fat[] = {0x50, 0xED, 0x55, 0xBA};
    if (size >= sizeof elf && memcmp(data, elf, sizeof elf) == 0)
        return "an ELF object";
    if (size >= sizeof fat && memcmp(data, fat, sizeof fat) == 0)
        return "a fat binary";
    if (size >= 24 && memcmp(data, "__CLANG_OFFLOAD_BUNDLE__", 24) == 0)
        return "an offload bundle";
    for (size_t i = 0; i < size; i++)
        if (data[i] < 9)
            return "of no format that is known here";
    return "text, taken for PTX";
}

static const char *load_advice(int code) {
    switch (code) {
    case SILO_GPU_INVALID_IMAGE:
        return "the bytes are not code of this driver: damaged, or made for another kind of device";
    case SILO_GPU_NO_BINARY:
        return "it was compiled for another architecture: compile it for this device";
    case SILO_GPU_INVALID_PTX:
        return "the PTX is wrong or meant for a newer architecture";
    case SILO_GPU_NO_COMPILER:
        return "the driver has no PTX compiler here: load a cubin for this device";
    case SILO_GPU_NEWER_PTX:
        return "the PTX is newer than the driver: load a cubin for this device, or update the "
               "driver";
    case SILO_GPU_OUT_OF_MEMORY:
        return "the device has no memory left for code";
    default:
        return "";
    }
}

static void load_error(const struct silo_gpu_device *device, const char *image, Py_ssize_t size,
                       const char *log, int code) {
    size_t length = strlen(log);
    while (length > 0 && (log[length - 1] == '\n' || log[length - 1] == ' '))
        length--;
    PyObject *said = PyUnicode_DecodeUTF8(log, (Py_ssize_t)length, "replace");
    const char *advice = load_advice(code);
    if (said == NULL)
        return;
    PyErr_Format(silo_device_error,
                 "cannot load code (%zd bytes, %s) on %s:%d, which is %s (%s): %s (%d)%s%s%s%U",
                 size, image_kind((const unsigned char *)image, (size_t)size), device->gpu->name,
                 (int)device->index, device->name, device->arch,
                 device->gpu->driver->error_text(code), code, *advice ? "; " : "", advice,
                 length ? "\n" : "", said);
    Py_DECREF(said);
}

static PyObject *module_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"kind", "index", "data", NULL};
    const char *kind;
    int index, code;
    Py_buffer data;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "siy*", names, &kind, &index, &data))
        return NULL;
    struct silo_gpu_device *device = silo_gpu_get_device(kind, index);
    struct silo_gpu *gpu = device != NULL ? device->gpu : NULL;
    struct silo_gpu_module *self = NULL;
    char *image =
        device != NULL ? malloc((size_t)data.len + 1) : NULL; /* freed below, or the module's */
    if (image != NULL)
        self = (struct silo_gpu_module *)PyType_GenericAlloc(type, 0);
    else if (device != NULL)
        PyErr_NoMemory();
    if (self != NULL) {
        char log[4096] = "";
        self->device = device;
        Py_BEGIN_ALLOW_THREADS memcpy(image, data.buf, (size_t)data.len);
        image[data.len] = '\0'; /* the end of PTX */
        struct silo_gpu_scope scope;
        code = silo_gpu_enter(device, &scope);
        if (code == 0) {
            sweep(device);
            code = gpu->module_load(&self->module, image, log, sizeof log);
            silo_gpu_leave(&scope);
        }
        Py_END_ALLOW_THREADS if (code != 0) {
            self->module = NULL;
            load_error(device, image, data.len, log, code);
            Py_CLEAR(self);
        }
        else if (gpu->reads_image) {
            self->image = image;
            image = NULL;
        }
    }
    free(image);
    PyBuffer_Release(&data);
    return (PyObject *)self;
}

static void module_dealloc(PyObject *object) {
    struct silo_gpu_module *self = (struct silo_gpu_module *)object;
    struct silo_gpu_device *device = self->device;
    PyTypeObject *type = Py_TYPE(object);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(object);
    if (self->module != NULL && !__atomic_load_n(&self->captured, __ATOMIC_RELAXED) &&
        !silo_gpu_ending()) {
        struct silo_gpu_retired *entry = malloc(sizeof *entry); /* owned by the list */
        if (entry != NULL) {                                    /* else it stays loaded */
            *entry = (struct silo_gpu_retired){NULL, self->module, self->image};
            put_retired(device, entry);
            Py_BEGIN_ALLOW_THREADS struct silo_gpu_scope scope;
            if (silo_gpu_enter(device, &scope) == 0) {
                sweep(device);
                silo_gpu_leave(&scope);
            }
            Py_END_ALLOW_THREADS
        }
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- functions ---- */

static int refuse(const struct silo_gpu_device *device, PyObject *kernel, const char *text) {
    PyErr_Format(silo_device_error, "%U on %s:%d (%s, %s): %s", kernel, device->gpu->name,
                 (int)device->index, device->name, device->arch, text);
    return -1;
}

static int check_limits(const struct silo_gpu_device *device, PyObject *kernel,
                        const struct silo_function *function, int static_shared, int max_threads) {
    char text[256];
    const uint64_t shared = (uint64_t)static_shared + function->shared_bytes;
    if (shared > (uint64_t)device->shared_optin) {
        snprintf(text, sizeof text,
                 "it needs %llu bytes of shared memory a block (%d static, %u dynamic), the device "
                 "has %d: use smaller tiles or fewer pipeline stages",
                 (unsigned long long)shared, static_shared, function->shared_bytes,
                 device->shared_optin);
        return refuse(device, kernel, text);
    }
    const uint16_t *block = function->block;
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (threads > (uint64_t)max_threads) {
        snprintf(
            text, sizeof text,
            "it is launched with %llu threads a block (%u x %u x %u), the code allows 1 to %d: "
            "use fewer warps",
            (unsigned long long)threads, block[0], block[1], block[2], max_threads);
        return refuse(device, kernel, text);
    }
    return 0;
}

static int check_launch(const struct silo_gpu_device *device, PyObject *kernel,
                        const struct silo_function *function) {
    char text[256];
    uint64_t blocks = 1;
    for (int axis = 0; axis < 3; axis++) {
        if (function->block[axis] > device->block_limit[axis]) {
            snprintf(text, sizeof text,
                     "it is launched with blocks of %u x %u x %u threads, the device takes 1 to %d "
                     "along %c",
                     function->block[0], function->block[1], function->block[2],
                     device->block_limit[axis], 'x' + axis);
            return refuse(device, kernel, text);
        }
        blocks = function->cluster[axis] <= 16 ? blocks * function->cluster[axis] : 0;
        if (blocks == 0 || blocks > 16) {
            snprintf(text, sizeof text,
                     "a cluster of %u x %u x %u blocks cannot be; there are 1 to 16 blocks in one",
                     function->cluster[0], function->cluster[1], function->cluster[2]);
            return refuse(device, kernel, text);
        }
    }
    if (blocks > 1 && !device->cluster_launch)
        return refuse(device, kernel, "it is launched in clusters, which this device has not");
    if (function->cooperative && !device->cooperative_launch)
        return refuse(device, kernel, "it needs a cooperative launch, which this device has not");
    if (function->pdl && !device->programmatic_launch)
        return refuse(device, kernel,
                      "it needs programmatic dependent launch, which this device has not");
    return 0;
}

static void set_grid_limit(const struct silo_gpu_device *device, struct silo_function *function) {
    for (int axis = 0; axis < 3; axis++) {
        uint64_t limit = (uint64_t)device->grid_limit[axis];
        if (device->gpu->counts_threads) {
            const uint64_t most = UINT32_MAX / function->block[axis];
            limit = limit < most ? limit : most;
        }
        function->grid_limit[axis] = (uint32_t)(limit / function->cluster[axis]);
    }
}

int silo_gpu_function(struct silo_gpu_module *module, PyObject *kernel, const char *entry,
                      struct silo_function *function) {
    struct silo_gpu_device *device = module->device;
    struct silo_gpu *gpu = device->gpu;
    struct silo_gpu_scope scope;
    int code, static_shared = 0, max_threads = 0, result = -1;
    function->device = device;
    function->memory_type = gpu->memory_type;
    function->device_index = device->index;
    if (check_launch(device, kernel, function) != 0)
        return -1;
    Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = gpu->module_function(&function->handle, module->module, entry);
        if (code == 0)
            code = gpu->function_limits(function->handle, &static_shared, &max_threads);
        if (code != 0)
            silo_gpu_leave(&scope);
    }
    Py_END_ALLOW_THREADS if (code == 0) {
        result = check_limits(device, kernel, function, static_shared, max_threads);
        if (result == 0)
            code = gpu->function_prepare(device, function, static_shared);
        silo_gpu_leave(&scope);
    }
    if (code == SILO_GPU_NOT_FOUND) {
        PyErr_Format(silo_device_error,
                     "%U: the code has no kernel '%s': give the symbol as it stands in the binary "
                     "(mangled, for C++ without extern \"C\"; cuobjdump -symbols or nm lists them)",
                     kernel, entry);
        return -1;
    }
    if (code != 0)
        return silo_gpu_error(gpu, "cannot prepare a kernel", code);
    if (result == 0)
        set_grid_limit(device, function);
    return result;
}

PyObject *silo_gpu_parameters(struct silo_gpu_module *module,
                              const struct silo_function *function) {
    struct silo_gpu *gpu = module->device->gpu;
    struct silo_gpu_scope scope;
    int code = 0;
    if (gpu->function_parameter == NULL)
        Py_RETURN_NONE;
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    for (size_t index = 0; index < MOST_PARAMETERS; index++) {
        size_t offset = 0, size = 0;
        code = silo_gpu_enter(module->device, &scope);
        if (code == 0) {
            code = gpu->function_parameter(function->handle, index, &offset, &size);
            silo_gpu_leave(&scope);
        }
        if (code != 0)
            break;
        PyObject *pair = Py_BuildValue("(nn)", (Py_ssize_t)offset, (Py_ssize_t)size);
        const int added = pair != NULL ? PyList_Append(list, pair) : -1;
        Py_XDECREF(pair);
        if (added != 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    if (code != SILO_GPU_INVALID_VALUE) { /* not the end of the list: it could not be read */
        Py_DECREF(list);
        Py_RETURN_NONE;
    }
    PyObject *found = PyList_AsTuple(list);
    Py_DECREF(list);
    return found;
}

/* ---- the type ---- */

static PyObject *module_kind(PyObject *object, void *closure) {
    (void)closure;
    return PyUnicode_FromString(((struct silo_gpu_module *)object)->device->gpu->name);
}

static PyObject *module_index(PyObject *object, void *closure) {
    (void)closure;
    return PyLong_FromLong(((struct silo_gpu_module *)object)->device->index);
}

static int call_at_exit(void) {
    static PyMethodDef method = {"end", end, METH_NOARGS, NULL};
    PyObject *function = PyCFunction_New(&method, NULL), *result = NULL;
    PyObject *atexit = PyImport_ImportModule("atexit");
    if (function != NULL && atexit != NULL)
        result = PyObject_CallMethod(atexit, "register", "O", function);
    Py_XDECREF(atexit);
    Py_XDECREF(function);
    Py_XDECREF(result);
    return result != NULL ? 0 : -1;
}

int silo_gpu_module_init(PyObject *module) {
    static PyGetSetDef getters[] = {
        {"kind", module_kind, NULL, "The driver: 'cuda' or 'hip'.", NULL},
        {"index", module_index, NULL, "The device's number.", NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyMemberDef members[] = {
        {"__weaklistoffset__", T_PYSSIZET, offsetof(struct silo_gpu_module, weakrefs), READONLY,
         NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)module_new},
        {Py_tp_dealloc, (void *)module_dealloc},
        {Py_tp_members, members},
        {Py_tp_getset, getters},
        {Py_tp_doc,
         "GpuModule(kind, index, data)\n--\n\nA cubin, hsaco or PTX loaded on one device. It is "
         "unloaded after its last kernel is gone and the device has done its work; once captured "
         "into a graph it stays."},
        {0, NULL},
    };
    static PyType_Spec spec = {"silo._native.GpuModule", sizeof(struct silo_gpu_module), 0,
                               Py_TPFLAGS_DEFAULT, slots};
    silo_gpu_module_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (silo_gpu_module_type == NULL || call_at_exit() != 0)
        return -1;
    return PyModule_AddObjectRef(module, "GpuModule", (PyObject *)silo_gpu_module_type);
}
