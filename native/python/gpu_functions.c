/* Opening drivers and devices, and the module functions about them. */
#include "gpu.h"

#include "dlpack.h"
#include "errors.h"
#include "memory_types.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Held while a driver opens or a device is made; taken without the GIL. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

void silo_gpu_locks_renew(void) {
    pthread_mutex_init(&opening, NULL);
}

struct silo_gpu *silo_gpu_named(const char *name) {
    for (struct silo_gpu *const *gpu = silo_gpus; *gpu != NULL; gpu++)
        if (strcmp(name, (*gpu)->name) == 0)
            return *gpu;
    PyErr_Format(silo_device_error, "there is no GPU driver '%s'; there are 'cuda' and 'hip'",
                 name);
    return NULL;
}

int silo_gpu_error(const struct silo_gpu *gpu, const char *what, int code) {
    PyErr_Format(silo_device_error, "%s: %s (%d)", what, gpu->driver->error_text(code), code);
    return -1;
}

/* ---- opening ---- */

enum opened { OPENED, OTHER_PATH, NO_LIBRARY, NO_SYMBOL, NOT_STARTED };

/* Without the GIL: a driver takes up to seconds to start. */
static enum opened open_driver(struct silo_gpu *gpu, const char *path, const char **opened,
                               int *code, char *error, size_t error_bytes) {
    if (gpu->open) {
        *opened = gpu->path;
        return path == NULL || strcmp(path, gpu->path) == 0 ? OPENED : OTHER_PATH;
    }
    void *library = silo_gpu_library(gpu, path, opened, error, error_bytes);
    if (library == NULL)
        return NO_LIBRARY;
    const char *missing = gpu->resolve(library);
    if (missing != NULL) {
        snprintf(error, error_bytes, "%s", missing);
        return NO_SYMBOL;
    }
    gpu->begun = true;
    *code = gpu->start();
    gpu->begun = *code == 0;
    if (*code != 0) /* the library stays open: its threads may run */
        return NOT_STARTED;
    if (gpu->device_count > SILO_MAX_GPUS)
        gpu->device_count = SILO_MAX_GPUS;
    gpu->path = strdup(*opened);
    __atomic_store_n(&gpu->open, true, __ATOMIC_RELEASE);
    return OPENED;
}

/* A driver that was inherited by fork() is of no use (gpu_forked.c): -1 with a DeviceError. */
static int check_owner(const struct silo_gpu *gpu) {
    if (!gpu->inherited)
        return 0;
    PyErr_Format(silo_device_error,
                 "the %s driver cannot be used in this process, which fork() made after its parent "
                 "had started the driver: make processes that use a GPU with multiprocessing's "
                 "'spawn' or 'forkserver', or fork before the first use of a GPU",
                 gpu->name);
    return -1;
}

int silo_gpu_open(struct silo_gpu *gpu, const char *path) {
    if (check_owner(gpu) != 0)
        return -1;
    if (__atomic_load_n(&gpu->open, __ATOMIC_ACQUIRE) && path == NULL)
        return 0;
    char error[512] = "";
    const char *opened = NULL;
    int code = 0;
    enum opened result;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&opening);
    result = open_driver(gpu, path, &opened, &code, error, sizeof error);
    pthread_mutex_unlock(&opening);
    Py_END_ALLOW_THREADS switch (result) {
    case OPENED:
        return 0;
    case OTHER_PATH:
        PyErr_Format(silo_device_error,
                     "the %s driver was opened from '%s' in this process and cannot be opened from "
                     "'%s' as well: name one library before the first use of a GPU",
                     gpu->name, opened, path);
        return -1;
    case NO_LIBRARY:
        PyErr_Format(silo_device_error,
                     "no %s driver here: %s. It comes with the GPU's driver, not with a toolkit; "
                     "where it lies elsewhere, name it with %s",
                     gpu->name, error, gpu->setting);
        return -1;
    case NO_SYMBOL:
        PyErr_Format(silo_device_error,
                     "the %s driver in '%s' has no function %s: Silo needs driver %s or newer",
                     gpu->name, opened, error, gpu->oldest);
        return -1;
    default:
        PyErr_Format(silo_device_error, "the %s driver in '%s' does not start: %s (%d)", gpu->name,
                     opened, gpu->driver->error_text(code), code);
        return -1;
    }
}

/* ---- devices ---- */

/* With a DeviceError; the driver is open afterwards. */
static int check_index(struct silo_gpu *gpu, int32_t index) {
    if (silo_gpu_open(gpu, NULL) != 0)
        return -1;
    if (index >= 0 && index < gpu->device_count)
        return 0;
    if (gpu->device_count == 0)
        PyErr_Format(silo_device_error, "there is no device %s:%d: the driver sees no device",
                     gpu->name, (int)index);
    else
        PyErr_Format(silo_device_error, "there is no device %s:%d; there are %s:0 to %s:%d",
                     gpu->name, (int)index, gpu->name, gpu->name, gpu->device_count - 1);
    return -1;
}

static int make_device(struct silo_gpu *gpu, int32_t index, struct silo_gpu_device **out) {
    struct silo_gpu_facts found;
    const struct silo_gpu_facts *facts = &found;
    struct silo_gpu_device *device = calloc(1, sizeof *device); /* owned by `gpu` when published */
    if (device == NULL)
        return SILO_GPU_OUT_OF_MEMORY;
    device->gpu = gpu;
    device->index = index;
    int code = gpu->facts(index, &found);
    if (code == 0)
        code = gpu->context(device);
    if (code != 0) {
        free(device);
        return code;
    }
    device->shared_block = facts->shared_per_block;
    device->shared_optin = facts->shared_per_block_optin > facts->shared_per_block
                               ? facts->shared_per_block_optin
                               : facts->shared_per_block;
    device->max_threads = facts->max_threads_per_block;
    device->warp_size = facts->warp_size;
    memcpy(device->block_limit, facts->block_limit, sizeof device->block_limit);
    memcpy(device->grid_limit, facts->grid_limit, sizeof device->grid_limit);
    device->cluster_launch = facts->cluster_launch;
    device->cooperative_launch = facts->cooperative_launch > 0;
    device->programmatic_launch = facts->programmatic_launch;
    device->total_memory = facts->total_memory;
    snprintf(device->name, sizeof device->name, "%.63s", facts->name);
    snprintf(device->arch, sizeof device->arch, "%.63s", facts->arch);
    __atomic_store_n(&gpu->devices[index], device, __ATOMIC_RELEASE);
    *out = device;
    return 0;
}

static void device_error(const struct silo_gpu *gpu, int32_t index, const char *what, int code) {
    char text[64];
    snprintf(text, sizeof text, "cannot %s device %s:%d", what, gpu->name, (int)index);
    silo_gpu_error(gpu, text, code);
}

struct silo_gpu_device *silo_gpu_device(struct silo_gpu *gpu, int32_t index) {
    if (check_index(gpu, index) != 0)
        return NULL;
    struct silo_gpu_device *device = __atomic_load_n(&gpu->devices[index], __ATOMIC_ACQUIRE);
    if (device != NULL)
        return device;
    int code = 0;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&opening);
    device = gpu->devices[index];
    if (device == NULL)
        code = make_device(gpu, index, &device);
    pthread_mutex_unlock(&opening);
    Py_END_ALLOW_THREADS if (device == NULL) device_error(gpu, index, "use", code);
    return device;
}

/* ---- module functions ---- */

static PyObject *py_open(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind, *path = NULL;
    if (!PyArg_ParseTuple(args, "s|z", &kind, &path))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_named(kind);
    if (gpu == NULL || silo_gpu_open(gpu, path) != 0)
        return NULL;
    return PyLong_FromLong(gpu->device_count);
}

/* Steals `value`. */
static int put(PyObject *dict, const char *name, PyObject *value) {
    const int result = value != NULL ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return result;
}

static PyObject *describe(const struct silo_gpu *gpu, const struct silo_gpu_facts *facts) {
    const struct {
        const char *name;
        int value;
    } numbers[] = {
        {"sm_count", facts->sm_count},
        {"warp_size", facts->warp_size},
        {"max_threads_per_block", facts->max_threads_per_block},
        {"max_threads_per_sm", facts->max_threads_per_sm},
        {"registers_per_block", facts->registers_per_block},
        {"registers_per_sm", facts->registers_per_sm},
        {"shared_per_block", facts->shared_per_block},
        {"shared_per_block_optin", facts->shared_per_block_optin},
        {"shared_per_sm", facts->shared_per_sm},
        {"l2_bytes", facts->l2_bytes},
        {"clock_khz", facts->clock_khz},
        {"memory_clock_khz", facts->memory_clock_khz},
        {"memory_bus_bits", facts->memory_bus_bits},
        {"compute_capability_major", facts->major},
        {"compute_capability_minor", facts->minor},
        {"cluster_launch", facts->cluster_launch},
        {"cooperative_launch", facts->cooperative_launch},
        {"programmatic_launch", facts->programmatic_launch},
        {"driver_version", gpu->version},
    };
    char pci[32] = "", uuid[33];
    if (facts->pci_domain >= 0 && facts->pci_bus >= 0 && facts->pci_device >= 0)
        snprintf(pci, sizeof pci, "%04x:%02x:%02x.0", (unsigned)facts->pci_domain,
                 (unsigned)facts->pci_bus, (unsigned)facts->pci_device);
    for (int i = 0; i < 16; i++)
        snprintf(uuid + 2 * i, 3, "%02x", facts->uuid[i]);
    /* AMD's features follow the name: "gfx90a:sramecc+:xnack-". */
    const char *features = strchr(facts->arch, ':');
    const int length = features != NULL ? (int)(features - facts->arch) : (int)strlen(facts->arch);
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    int bad = put(dict, "name",
                  PyUnicode_DecodeUTF8(facts->name, (Py_ssize_t)strlen(facts->name), "replace"));
    bad |= put(dict, "arch", PyUnicode_FromStringAndSize(facts->arch, length));
    bad |= put(dict, "features", PyUnicode_FromString(features != NULL ? features + 1 : ""));
    bad |= put(dict, "total_memory", PyLong_FromUnsignedLongLong(facts->total_memory));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        bad |= put(dict, numbers[i].name, PyLong_FromLong(numbers[i].value));
    bad |= put(dict, "pci_bus_id", PyUnicode_FromString(pci));
    bad |= put(dict, "uuid", PyUnicode_FromString(uuid));
    if (bad)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *py_attributes(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    int index;
    if (!PyArg_ParseTuple(args, "si", &kind, &index))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_named(kind);
    if (gpu == NULL || check_index(gpu, index) != 0)
        return NULL;
    struct silo_gpu_facts facts;
    int code;
    Py_BEGIN_ALLOW_THREADS code = gpu->facts(index, &facts);
    Py_END_ALLOW_THREADS if (code != 0) {
        device_error(gpu, index, "describe", code);
        return NULL;
    }
    return describe(gpu, &facts);
}

static PyObject *py_capturing(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    int index, status = 0, code;
    unsigned long long stream = 0;
    if (!PyArg_ParseTuple(args, "siK", &kind, &index, &stream))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_named(kind);
    struct silo_gpu_device *device = gpu != NULL ? silo_gpu_device(gpu, index) : NULL;
    struct silo_gpu_scope scope;
    if (device == NULL)
        return NULL;
    code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = gpu->stream_capturing((void *)(uintptr_t)stream, &status);
        silo_gpu_leave(&scope);
    }
    if (code == SILO_GPU_CAPTURE_IMPLICIT) /* the null stream, while another one captures */
        Py_RETURN_TRUE;
    if (code != 0)
        return silo_gpu_error(gpu, "cannot ask whether a stream is capturing", code), NULL;
    return PyBool_FromLong(status);
}

static PyObject *py_locate(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    unsigned long long address;
    int32_t type, index;
    if (!PyArg_ParseTuple(args, "sK", &kind, &address))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_named(kind);
    if (gpu == NULL || silo_gpu_open(gpu, NULL) != 0)
        return NULL;
    const int code = gpu->locate(address, &type, &index);
    if (code != 0)
        return silo_gpu_error(gpu, "cannot ask where memory is", code), NULL;
    return Py_BuildValue("(ii)", (int)type, (int)index);
}

static PyObject *py_current(PyObject *module, PyObject *args) {
    (void)module;
    const char *kind;
    int32_t index;
    if (!PyArg_ParseTuple(args, "s", &kind))
        return NULL;
    struct silo_gpu *gpu = silo_gpu_named(kind);
    if (gpu == NULL || silo_gpu_open(gpu, NULL) != 0)
        return NULL;
    if (gpu->current_device(&index) != 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(index);
}

/* Do `ask` with the device of (kind, index) current and the interpreter's lock released. */
static int on_device(PyObject *args, const char *what,
                     int (*ask)(struct silo_gpu *gpu, size_t *answer), size_t *answer) {
    const char *kind;
    int index, code;
    if (!PyArg_ParseTuple(args, "si", &kind, &index))
        return -1;
    struct silo_gpu *gpu = silo_gpu_named(kind);
    struct silo_gpu_device *device = gpu != NULL ? silo_gpu_device(gpu, index) : NULL;
    struct silo_gpu_scope scope;
    if (device == NULL)
        return -1;
    Py_BEGIN_ALLOW_THREADS code = silo_gpu_enter(device, &scope);
    if (code == 0) {
        code = ask(gpu, answer);
        silo_gpu_leave(&scope);
    }
    Py_END_ALLOW_THREADS if (code != 0) {
        silo_gpu_error(gpu, what, code);
        return -1;
    }
    return 0;
}

static int ask_to_finish(struct silo_gpu *gpu, size_t *answer) {
    (void)answer;
    return gpu->synchronize();
}

static int ask_for_free(struct silo_gpu *gpu, size_t *available) {
    size_t total;
    return gpu->memory_info(available, &total);
}

static PyObject *py_synchronize(PyObject *module, PyObject *args) {
    (void)module;
    if (on_device(args, "cannot synchronise", ask_to_finish, NULL) != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_free_memory(PyObject *module, PyObject *args) {
    (void)module;
    size_t available = 0;
    if (on_device(args, "cannot ask for free memory", ask_for_free, &available) != 0)
        return NULL;
    return PyLong_FromSize_t(available);
}

PyMethodDef silo_gpu_methods[] = {
    {"gpu_open", py_open, METH_VARARGS,
     "gpu_open(kind, library=None) -> int\n\nOpen a driver ('cuda', 'hip') once; its devices."},
    {"gpu_attributes", py_attributes, METH_VARARGS,
     "gpu_attributes(kind, index) -> dict\n\nWhat the driver says of a device; no context is "
     "made."},
    {"gpu_capturing", py_capturing, METH_VARARGS,
     "gpu_capturing(kind, index, stream) -> bool\n\nWhether work on a stream is being captured."},
    {"gpu_locate", py_locate, METH_VARARGS,
     "gpu_locate(kind, address) -> (type, index)\n\nDLPack device of memory; (1, 0): the driver "
     "does "
     "not know it."},
    {"gpu_current", py_current, METH_VARARGS,
     "gpu_current(kind) -> int | None\n\nThe device current in this thread."},
    {"gpu_synchronize", py_synchronize, METH_VARARGS,
     "gpu_synchronize(kind, index)\n\nWait for all work of a device."},
    {"gpu_free_memory", py_free_memory, METH_VARARGS,
     "gpu_free_memory(kind, index) -> int\n\nBytes of a device's memory that nobody holds."},
    {NULL, NULL, 0, NULL},
};
