#include "tvm_ffi.h"

#include "base.h"
#include "dlpack.h"
#include "error.h"
#include "memory_types.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the ABI of tvm-ffi 0.1.15: tvm/ffi/c_api.h and tvm/ffi/extra/c_env_api.h ---- */

/* The values of tvm-ffi's enum TVMFFITypeIndex. */
enum {
    FFI_NONE = 0,
    FFI_INT = 1,
    FFI_BOOL = 2,
    FFI_FLOAT = 3,
    FFI_POINTER = 4,
    FFI_DATA_TYPE = 5,
    FFI_DEVICE = 6,
    FFI_DLTENSOR = 7,
    FFI_RAW_TEXT = 8,
    FFI_SMALL_TEXT = 11,
    FFI_TEXT = 65,
    FFI_SHAPE = 69,
    FFI_TENSOR = 70,
    FFI_ARRAY = 71,
    FFI_LIST = 75,
    FFI_BIG_INT = 78,
};

/* tvm-ffi's struct TVMFFIAny: a value of any type. */
struct ffi_any {
    int32_t type;
    uint32_t length; /* length of a small text, else 0 */
    union {
        int64_t integer;
        double real;
        void *pointer;
        const char *text;
        const char *object;
        struct dl_dtype dtype;
        char small[8]; /* at most 7 bytes and a final zero */
    };
};
_Static_assert(sizeof(struct ffi_any) == 16, "ABI of TVM-FFI");

/* The size of tvm-ffi's TVMFFIObject, the header of every object; the members of the object follow
 * it. */
enum { FFI_HEADER = 24 };

/* tvm-ffi's structs TVMFFIByteArray and TVMFFIShapeCell, and the beginning of its TVMFFISeqCell. */
struct ffi_sequence {
    const void *data;
    int64_t count;
};

typedef void (*ffi_raise)(const char *kind, const char *message); /* TVMFFIErrorSetRaisedFromCStr */
typedef void *(*ffi_stream)(int32_t device_type, int32_t device_id); /* TVMFFIEnvGetStream */

/* ---- functions of the calling process ---- */

/* Finds a function of tvm-ffi. Python loads the library globally; another program may have loaded
 * it locally. */
static void *find(const char *name) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol == NULL) {
        void *library = dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
        if (library != NULL) {
            symbol = dlsym(library, name);
            /* releases only this reference: the program keeps the library loaded */
            dlclose(library);
        }
    }
    return symbol;
}

/* Finds a function of tvm-ffi and stores it in `*slot`. Until the function is found, every call
 * searches again, because tvm-ffi may be loaded after this library. */
static void *kept(void **slot, const char *name) {
    void *symbol = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (SILO_UNLIKELY(symbol == NULL)) {
        symbol = find(name);
        __atomic_store_n(slot, symbol, __ATOMIC_RELEASE);
    }
    return symbol;
}

static void *current_stream(int32_t device_type, int32_t device_id) {
    static void *slot;
    void *const symbol = kept(&slot, "TVMFFIEnvGetStream");
    ffi_stream get;
    memcpy(&get, &symbol, sizeof get);
    return symbol == NULL ? NULL : get(device_type, device_id);
}

/* ---- errors ---- */

/* Returns the name of the Python exception class for an error code. tvm-ffi passes the name as a
 * text, so that callers in other languages receive it, too. */
static const char *kind_of(int32_t code) {
    switch (code) {
    case SILO_ERROR_USAGE:
    case SILO_ERROR_MISSING:
    case SILO_ERROR_KIND:
    case SILO_ERROR_DTYPE:
        return "TypeError";
    case SILO_ERROR_NULL:
    case SILO_ERROR_MISALIGNED:
    case SILO_ERROR_SHAPE:
    case SILO_ERROR_GRID:
    case SILO_ERROR_EXPRESSION:
    case SILO_ERROR_WRONG_DEVICE:
        return "ValueError";
    case SILO_ERROR_MEMORY:
        return "MemoryError";
    default:
        return "RuntimeError";
    }
}

static SILO_NOINLINE int raise(silo_error *error) {
    static void *slot;
    void *const symbol = kept(&slot, "TVMFFIErrorSetRaisedFromCStr");
    /* `symbol` is NULL if tvm-ffi is not loaded; then no caller could read the error. */
    if (symbol != NULL) {
        ffi_raise set;
        memcpy(&set, &symbol, sizeof set);
        char *joined = NULL;
        if (error->details != NULL) {
            const size_t bytes = strlen(error->text) + strlen(error->details) + 2;
            joined = malloc(bytes);
            if (joined != NULL)
                snprintf(joined, bytes, "%s\n%s", error->text, error->details);
        }
        set(kind_of(error->code), joined != NULL ? joined : error->text);
        free(joined);
    }
    silo_error_clear(error);
    return -1;
}

static const char *name_of_type(int32_t type) {
    switch (type) {
    case FFI_NONE:
        return "None";
    case FFI_INT:
        return "an integer";
    case FFI_BOOL:
        return "a bool";
    case FFI_FLOAT:
        return "a float";
    case FFI_POINTER:
        return "an address, which does not say what it points at";
    case FFI_DATA_TYPE:
        return "a data type";
    case FFI_DEVICE:
        return "a device";
    case FFI_DLTENSOR:
    case FFI_TENSOR:
        return "a tensor";
    case FFI_RAW_TEXT:
    case FFI_SMALL_TEXT:
    case FFI_TEXT:
        return "a string";
    case FFI_SHAPE:
    case FFI_ARRAY:
    case FFI_LIST:
        return "a sequence";
    case FFI_BIG_INT:
        return "an integer of more than 64 bits";
    default:
        return "an object that no kernel takes";
    }
}

/* ---- one call ---- */

enum { MAX_DESCRIPTORS = 32, MAX_RANK = 5 };

struct call {
    const struct silo_framework_kernel *kernel;
    silo_error *error;
    const struct dl_tensor *first; /* the first tensor, which decides the device; NULL: none yet */
    const char *first_name;
    uint32_t descriptor_count;
    int64_t blocks[MAX_DESCRIPTORS][MAX_RANK];
};

static const struct dl_tensor *tensor_of(const struct ffi_any *value) {
    if (value->type == FFI_TENSOR)
        return (const struct dl_tensor *)(const void *)(value->object + FFI_HEADER);
    return value->type == FFI_DLTENSOR ? value->pointer : NULL;
}

static bool is_sequence(const struct ffi_any *value) {
    return value->type == FFI_SHAPE || value->type == FFI_ARRAY || value->type == FFI_LIST;
}

static struct ffi_sequence sequence_of(const struct ffi_any *value) {
    struct ffi_sequence sequence;
    memcpy(&sequence, value->object + FFI_HEADER, sizeof sequence);
    return sequence;
}

/* Reads at most `most` integers of a sequence. Returns their number, or -1 for a longer sequence or
 * any other value. */
static int integers_of(const struct ffi_any *value, int64_t *values, int most) {
    if (!is_sequence(value))
        return -1;
    const struct ffi_sequence of = sequence_of(value);
    if (of.count < 1 || of.count > most)
        return -1;
    for (int64_t i = 0; i < of.count; i++) {
        if (value->type == FFI_SHAPE) {
            values[i] = ((const int64_t *)of.data)[i];
        } else {
            const struct ffi_any *element = &((const struct ffi_any *)of.data)[i];
            if (element->type != FFI_INT)
                return -1;
            values[i] = element->integer;
        }
    }
    return (int)of.count;
}

/* Checks that all tensors of a call are on the same device. Memory that the host and GPUs share is
 * allowed with any device. */
static int place(struct call *call, const struct dl_tensor *tensor, const char *name) {
    if (call->first == NULL) {
        call->first = tensor;
        call->first_name = name;
        return 0;
    }
    const struct dl_device device = tensor->device, first_device = call->first->device;
    if (SILO_LIKELY(device.type == first_device.type && device.id == first_device.id))
        return 0;
    const struct silo_memory_type *const value_type = silo_memory_type(device.type),
                                         *const first_type = silo_memory_type(first_device.type);
    if (value_type->shared)
        return 0;
    if (first_type->shared) {
        call->first = tensor;
        call->first_name = name;
        return 0;
    }
    return silo_fail(
        call->error, SILO_ERROR_WRONG_DEVICE,
        "%s: argument '%s' is on %s:%d and '%s' on %s:%d; all arrays of one call are on "
        "one device",
        call->kernel->name, call->first_name, first_type->name, (int)first_device.id, name,
        value_type->name, (int)device.id);
}

/* Returns the alignment in bytes of an element of this many bits. */
static unsigned element_alignment(unsigned bits) {
    return bits == 16 ? 2 : bits == 32 ? 4 : bits >= 64 ? 8 : 1;
}

static int read_tensor(struct call *call, const struct silo_framework_parameter *parameter,
                       const struct dl_tensor *tensor, silo_argument *argument) {
    if (SILO_UNLIKELY(tensor == NULL))
        return silo_fail(call->error, SILO_ERROR_NULL,
                         "%s: argument '%s' is a tensor without a value", call->kernel->name,
                         parameter->name);
    if (SILO_UNLIKELY(tensor->dtype.lanes != 1))
        return silo_fail(call->error, SILO_ERROR_DTYPE,
                         "%s: argument '%s' has elements of %d lanes; kernels take elements of one",
                         call->kernel->name, parameter->name, (int)tensor->dtype.lanes);
    if (place(call, tensor, parameter->name) != 0)
        return -1;
    const char *data = tensor->data;
    if (data != NULL)
        data += tensor->byte_offset;
    const unsigned bytes = element_alignment(tensor->dtype.bits);
    if (SILO_UNLIKELY(((uintptr_t)data & (bytes - 1)) != 0))
        return silo_fail(
            call->error, SILO_ERROR_MISALIGNED,
            "%s: argument '%s' begins at an address that is not a multiple of %u, as its "
            "elements need: copy it to memory of its own",
            call->kernel->name, parameter->name, bytes);
    *argument = silo_array(data, tensor->dtype.code << 8 | tensor->dtype.bits, tensor->ndim,
                           tensor->shape, tensor->strides);
    if (parameter->kind == SILO_FRAMEWORK_DESCRIPTOR)
        argument->kind = SILO_ARGUMENT_DESCRIPTOR;
    return 0;
}

/* Reads a pair of a tensor and a block shape. */
static int read_descriptor(struct call *call, const struct silo_framework_parameter *parameter,
                           const struct ffi_any *value, silo_argument *argument) {
    const struct ffi_sequence pair = sequence_of(value);
    const struct ffi_any *items = pair.data;
    if (value->type == FFI_SHAPE || pair.count != 2 || tensor_of(&items[0]) == NULL)
        return silo_fail(
            call->error, SILO_ERROR_KIND,
            "%s: argument '%s' is a sequence; a descriptor is a tensor, or the pair of a "
            "tensor and its block",
            call->kernel->name, parameter->name);
    if (call->descriptor_count == MAX_DESCRIPTORS)
        return silo_fail(call->error, SILO_ERROR_USAGE, "%s: more than %d descriptors in one call",
                         call->kernel->name, (int)MAX_DESCRIPTORS);
    int64_t *const block = call->blocks[call->descriptor_count++];
    const int rank = integers_of(&items[1], block, MAX_RANK);
    const struct dl_tensor *const tensor = tensor_of(&items[0]);
    if (rank != tensor->ndim)
        return silo_fail(
            call->error, SILO_ERROR_SHAPE,
            "%s: the block of argument '%s' is no sequence of %d integers, one an axis",
            call->kernel->name, parameter->name, (int)tensor->ndim);
    if (read_tensor(call, parameter, tensor, argument) != 0)
        return -1;
    argument->block = block;
    return 0;
}

static int read_text(struct call *call, const struct silo_framework_parameter *parameter,
                     const char *text, size_t length, silo_argument *argument) {
    if (strnlen(text, length + 1) != length)
        return silo_fail(call->error, SILO_ERROR_KIND,
                         "%s: argument '%s' is a string with a zero in it", call->kernel->name,
                         parameter->name);
    *argument = silo_text(text);
    return 0;
}

static int read_argument(struct call *call, const struct silo_framework_parameter *parameter,
                         const struct ffi_any *value, silo_argument *argument) {
    switch (value->type) {
    case FFI_TENSOR:
    case FFI_DLTENSOR:
        return read_tensor(call, parameter, tensor_of(value), argument);
    case FFI_INT:
        *argument = parameter->kind == SILO_FRAMEWORK_FLOAT ? silo_float((double)value->integer)
                                                            : silo_int(value->integer);
        return 0;
    case FFI_FLOAT:
        *argument = silo_float(value->real);
        return 0;
    case FFI_BOOL:
        *argument = silo_bool(value->integer != 0);
        return 0;
    case FFI_NONE:
        *argument = silo_none();
        return 0;
    case FFI_DATA_TYPE:
        *argument = silo_type(value->dtype.code << 8 | value->dtype.bits);
        return 0;
    case FFI_SMALL_TEXT:
        return read_text(call, parameter, value->small, value->length, argument);
    case FFI_RAW_TEXT:
        *argument = silo_text(value->text);
        return 0;
    case FFI_TEXT: {
        const struct ffi_sequence bytes = sequence_of(value);
        return read_text(call, parameter, bytes.data, (size_t)bytes.count, argument);
    }
    case FFI_SHAPE:
    case FFI_ARRAY:
    case FFI_LIST:
        if (parameter->kind == SILO_FRAMEWORK_DESCRIPTOR)
            return read_descriptor(call, parameter, value, argument);
        break;
    default:
        break;
    }
    return silo_fail(call->error, SILO_ERROR_KIND, "%s: argument '%s' is %s", call->kernel->name,
                     parameter->name, name_of_type(value->type));
}

/* Sets `*queue` to the device of the call's tensors and that device's current stream. Fails if the
 * call has no tensor. */
static int queue_of(const struct call *call, silo_queue *queue) {
    if (call->first == NULL)
        return silo_fail(call->error, SILO_ERROR_KIND,
                         "%s: no argument is a tensor, so nothing says on which device to run",
                         call->kernel->name);
    const struct dl_device device = call->first->device;
    switch (device.type) {
    case SILO_DEVICE_CPU:
        *queue = (silo_queue){SILO_CPU, 0, NULL};
        return 0;
    case SILO_DEVICE_CUDA:
    case SILO_DEVICE_CUDA_HOST:
    case SILO_DEVICE_CUDA_MANAGED:
        *queue = (silo_queue){SILO_CUDA, device.id, current_stream(SILO_DEVICE_CUDA, device.id)};
        return 0;
    case SILO_DEVICE_ROCM:
    case SILO_DEVICE_ROCM_HOST:
        *queue = (silo_queue){SILO_ROCM, device.id, current_stream(SILO_DEVICE_ROCM, device.id)};
        return 0;
    default:
        return silo_fail(call->error, SILO_ERROR_WRONG_DEVICE,
                         "%s: argument '%s' is on %s:%d; kernels run on cpu, cuda and rocm",
                         call->kernel->name, call->first_name, silo_memory_type(device.type)->name,
                         (int)device.id);
    }
}

int silo_ffi_call(const struct silo_ffi_function *function, const void *value, int32_t count) {
    const struct silo_framework_kernel *const kernel = &function->kernel;
    const struct ffi_any *const values = value;
    silo_error error;
    error.code = 0;
    error.text[0] = 0;
    error.details = NULL;

    silo_kernel *const target = function->find(kernel->at, &error);
    if (SILO_UNLIKELY(target == NULL))
        return raise(&error);

    int64_t grid[3] = {1, 1, 1};
    const bool has_grid = count > 0 && integers_of(&values[count - 1], grid, 3) > 0;
    const uint32_t used = (uint32_t)count - (has_grid ? 1 : 0);
    if (SILO_UNLIKELY(used > kernel->count)) {
        silo_fail(
            &error, SILO_ERROR_USAGE,
            "%s takes %u arguments, and a tuple of one to three integers as its grid; %u given",
            kernel->name, kernel->count, used);
        return raise(&error);
    }

    struct call call;
    call.kernel = kernel;
    call.error = &error;
    call.first = NULL;
    call.descriptor_count = 0;
    silo_argument arguments[SILO_MAX_PARAMETERS];
    size_t filled = 0;
    for (uint32_t i = 0; i < used; i++) {
        const struct silo_framework_parameter *const parameter = &kernel->parameters[i];
        while (filled < parameter->place)
            arguments[filled++] = silo_absent_argument();
        if (read_argument(&call, parameter, &values[i], &arguments[filled++]) != 0)
            return raise(&error);
    }

    silo_queue queue;
    if (queue_of(&call, &queue) != 0)
        return raise(&error);
    const silo_call options = {grid, NULL, 0};
    if (SILO_UNLIKELY(silo_launch(target, &queue, arguments, filled, has_grid ? &options : NULL,
                                  &error) != 0))
        return raise(&error);
    return 0;
}
