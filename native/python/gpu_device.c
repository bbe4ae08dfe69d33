#include "gpu_device.h"

#include "cuda_driver.h"
#include "errors.h"
#include "hip_driver.h"

struct silo_gpu *silo_gpu_get_open(const char *kind, const char *library) {
    silo_error error;
    struct silo_gpu *gpu = silo_gpu_named(kind, &error);
    int result = -1;
    if (gpu != NULL) {
        Py_BEGIN_ALLOW_THREADS result = silo_gpu_open(gpu, library, &error);
        Py_END_ALLOW_THREADS
    }
    if (result == 0)
        return gpu;
    silo_raise_as(silo_device_error, &error);
    return NULL;
}

struct silo_gpu_device *silo_gpu_get_device(const char *kind, int32_t index) {
    silo_error error;
    struct silo_gpu *gpu = silo_gpu_named(kind, &error);
    struct silo_gpu_device *device = gpu != NULL ? silo_gpu_opened(gpu, index) : NULL;
    if (device != NULL)
        return device;
    if (gpu != NULL) {
        Py_BEGIN_ALLOW_THREADS device = silo_gpu_device(gpu, index, &error);
        Py_END_ALLOW_THREADS
    }
    if (device == NULL)
        silo_raise_as(silo_device_error, &error);
    return device;
}

int silo_gpu_error(const struct silo_gpu *gpu, const char *action, int code) {
    silo_error error;
    silo_gpu_fail(&error, gpu, SILO_ERROR_LAUNCH, action, code);
    return silo_raise_as(silo_device_error, &error);
}

static PyObject *end(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    silo_gpu_end();
    Py_RETURN_NONE;
}

int silo_gpu_device_init(void) {
    silo_cuda.setting = "SILO_CUDA_LIBRARY";
    silo_hip.setting = "SILO_HIP_LIBRARY";
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
