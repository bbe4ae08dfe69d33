/* The least that a launch from Python can do: a C function that takes any arguments, reads none of
 * them, gets torch's current stream, releases the GIL and launches with parameters made beforehand.
 * Built by peers/least.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* CUlaunchConfig of the driver's stable ABI. */
struct config {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    void *stream;
    void *attributes;
    uint32_t attribute_count;
};

enum { MAX_PARAMETERS = 128 };

/* State for one kernel at a time; `set` fills it. */
static int (*driver_launch)(const struct config *, void *, void **, void **);
static int32_t (*current_stream)(int32_t, void **);
static void *function, *params[MAX_PARAMETERS];
static uint64_t zero;
static uint32_t threads;

/* Finds a function of a library. dlsym returns a data pointer; its bits are copied, because that is
 * the portable way to get a function pointer. */
static int resolve(const char *path, const char *name, void *slot) {
    void *library = dlopen(path, RTLD_NOW);
    void *symbol = library ? dlsym(library, name) : NULL;
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

static PyObject *set(PyObject *module, PyObject *args) {
    (void)module;
    const char *driver, *torch;
    unsigned long long handle;
    unsigned int count;
    if (!PyArg_ParseTuple(args, "ssKII", &driver, &torch, &handle, &count, &threads))
        return NULL;
    if (count > MAX_PARAMETERS || !resolve(driver, "cuLaunchKernelEx", &driver_launch) ||
        !resolve(torch, "aoti_torch_get_current_cuda_stream", &current_stream))
        return PyErr_Format(PyExc_OSError, "%s or %s lacks a function", driver, torch);
    function = (void *)(uintptr_t)handle;
    for (unsigned int i = 0; i < count; i++)
        params[i] = &zero;
    Py_RETURN_NONE;
}

static PyObject *launch(PyObject *module, PyObject *const *args, Py_ssize_t count,
                        PyObject *names) {
    (void)module, (void)args, (void)count, (void)names;
    struct config config = {.grid = {1, 1, 1}, .block = {threads, 1, 1}};
    int code = current_stream(0, &config.stream);
    if (code == 0) {
        PyThreadState *state = PyEval_SaveThread();
        code = driver_launch(&config, function, params, NULL);
        PyEval_RestoreThread(state);
    }
    if (code != 0)
        return PyErr_Format(PyExc_RuntimeError, "error %d", code);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"set", set, METH_VARARGS, "set(driver, torch, function, parameters, threads)"},
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL | METH_KEYWORDS,
     "Launch, whatever the arguments."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "least", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_least(void) {
    return PyModule_Create(&definition);
}
