/* Stands for libsilo and for tvm-ffi under native/frameworks/tvm_ffi.c: what reaches silo_launch is
 * kept as text, and what is raised, too. */
#include "error.h"
#include "memory_types.h"
#include "tvm_ffi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

VISIBLE char recorded[4096]; /* the last launch */
VISIBLE char raised[4096];   /* the last error: its kind, ": ", its message */
VISIBLE int next_code;       /* what the next launches return */

VISIBLE void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);
VISIBLE void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);

void *TVMFFIEnvGetStream(int32_t device_type, int32_t device_id) {
    return (void *)(uintptr_t)(0x1000 * device_type + device_id);
}

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) {
    snprintf(raised, sizeof raised, "%s: %s", kind, message);
}

const struct silo_memory_type *silo_memory_type(int32_t type) {
    static const struct silo_memory_type cpu = {.name = "cpu"}, cuda = {.name = "cuda"},
                                         rocm = {.name = "rocm"},
                                         pinned = {.name = "pinned host memory", .shared = true},
                                         other = {.name = "an unknown device"};
    return type == 1 ? &cpu : type == 2 ? &cuda : type == 3 ? &pinned : type == 10 ? &rocm : &other;
}

static int put(int at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int put(int at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int used = vsnprintf(recorded + at, sizeof recorded - (size_t)at, format, arguments);
    va_end(arguments);
    return at + used;
}

static int put_extents(int at, const char *name, int rank, const int64_t *values) {
    if (values == NULL)
        return at;
    at = put(at, " %s", name);
    for (int i = 0; i < rank; i++)
        at = put(at, "%s%lld", i == 0 ? "" : "x", (long long)values[i]);
    return at;
}

static int put_argument(int at, const silo_argument *given) {
    switch (given->kind) {
    case SILO_ARGUMENT_ARRAY:
    case SILO_ARGUMENT_DESCRIPTOR:
        at = put(at, given->kind == SILO_ARGUMENT_ARRAY ? "array" : "descriptor");
        at = put(at, " %#x at %p", given->element, given->value.pointer);
        at = put_extents(at, "shape ", given->rank, given->shape);
        at = put_extents(at, "strides ", given->rank, given->strides);
        return put_extents(at, "block ", given->rank, given->block);
    case SILO_ARGUMENT_INT:
        return put(at, "int %lld", (long long)given->value.integer);
    case SILO_ARGUMENT_BOOL:
        return put(at, "bool %lld", (long long)given->value.integer);
    case SILO_ARGUMENT_FLOAT:
        return put(at, "float %.17g", given->value.real);
    case SILO_ARGUMENT_NONE:
        return put(at, "none");
    case SILO_ARGUMENT_TEXT:
        return put(at, "text %s", given->value.text);
    case SILO_ARGUMENT_TYPE:
        return put(at, "type %#x", given->element);
    default:
        return put(at, given->kind == SILO_ARGUMENT_ABSENT ? "absent" : "?");
    }
}

int silo_launch(silo_kernel *kernel, const silo_queue *queue, const silo_argument *arguments,
                size_t count, const silo_call *call, silo_error *error) {
    int at = put(0, "%s on %d:%d stream %p", (const char *)kernel, (int)queue->device,
                 (int)queue->index, queue->stream);
    for (size_t i = 0; i < count; i++)
        at = put_argument(put(at, "; "), &arguments[i]);
    if (call != NULL)
        put_extents(put(at, ";"), "grid ", 3, call->grid);
    if (next_code == 0)
        return 0;
    silo_fail(error, next_code, "mix: refused");
    error->details =
        next_code == SILO_ERROR_NO_VARIANT ? strdup("the first one\nthe second") : NULL;
    return next_code;
}

static silo_kernel *find(int at, silo_error *error) {
    static char name[] = "mix";
    if (at == 7)
        return (silo_kernel *)name;
    silo_fail(error, SILO_ERROR_DAMAGED, "mix: the bundle is damaged");
    return NULL;
}

static const struct silo_framework_parameter parameters[] = {
    {"x", 0, SILO_FRAMEWORK_VALUE},
    {"y", 1, SILO_FRAMEWORK_VALUE},
    {"factor", 3, SILO_FRAMEWORK_FLOAT},
    {"d", 4, SILO_FRAMEWORK_DESCRIPTOR},
};
static const struct silo_ffi_function mix = {{"mix", 7, parameters, 4}, find};
SILO_FFI_SYMBOL(__tvm_ffi_mix, mix)
static const struct silo_ffi_function damaged = {{"mix", 8, parameters, 4}, find};
SILO_FFI_SYMBOL(__tvm_ffi_damaged, damaged)
