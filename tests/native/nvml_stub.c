/* A stub of NVML: one GPU at 0000:01:00.0, whose energy counter advances by 300 W in steps of 20
 * ms.
 *
 * NVML_STUB in the environment: "still" never advances, "refuses" answers NVML_ERROR_NOT_SUPPORTED,
 * "unloaded" does not start. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

static int started;

static int is(const char *word) {
    const char *mode = getenv("NVML_STUB");
    return mode != NULL && strcmp(mode, word) == 0;
}

API int nvmlInit_v2(void) {
    started = !is("unloaded");
    return started ? OK : DRIVER_NOT_LOADED;
}

API const char *nvmlErrorString(int error) {
    switch (error) {
    case NOT_SUPPORTED:
        return "Not Supported";
    case NOT_FOUND:
        return "Not Found";
    case DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    default:
        return "Unknown Error";
    }
}

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle) {
    if (strcmp(bus, "0000:01:00.0") != 0 && !is("any") && !is("refuses"))
        return NOT_FOUND;
    *handle = &started;
    return OK;
}

API int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    struct timespec now;
    if (!started || handle != &started)
        return UNINITIALIZED;
    if (is("refuses"))
        return NOT_SUPPORTED;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t steps = (uint64_t)now.tv_sec * 50 + (uint64_t)now.tv_nsec / 20000000;
    *millijoules = is("still") ? 1000 : steps * 6000;
    return OK;
}
