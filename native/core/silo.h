/* libsilo: launches the compute kernels of .silo bundles, without Python. For each call it chooses
 * the compiled variant of the kernel that fits the arguments.
 *
 * Open a bundle (a file, or bytes that are linked into the program), find a kernel, launch it:
 *
 *     silo_bundle *bundle;
 *     silo_kernel *add;
 *     silo_error error;
 *     if (silo_open("kernels.silo", NULL, &bundle, &error) != 0 ||
 *         silo_find(bundle, "add", &add, &error) != 0)
 *         fprintf(stderr, "%s\n", error.text);
 *     const silo_argument arguments[] = {
 *         silo_pointer(x, SILO_FLOAT32), silo_pointer(y, SILO_FLOAT32),
 *         silo_pointer(out, SILO_FLOAT32), silo_int(n)};
 *     const silo_queue queue = {SILO_CPU, 0, NULL};
 *     silo_launch(add, &queue, arguments, 4, NULL, &error);
 *
 * A function that returns int returns 0, or a code of `enum silo_code` after it filled `*error`;
 * `error` may be NULL. The library never exits the process or prints, and starts threads only at
 * the first launch on a CPU. All functions but silo_close may be called from any thread. After
 * silo_close, nothing that belongs to the bundle may be used. */
#ifndef SILO_H
#define SILO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by the build of the shared library, which exports only the functions marked SILO_API. */
#ifndef SILO_API
#ifdef SILO_EXPORTS
#define SILO_API __attribute__((visibility("default")))
#else
#define SILO_API
#endif
#endif

/* The version of this header; silo_version() returns the library's. */
#define SILO_VERSION_MAJOR 0
#define SILO_VERSION_MINOR 1
SILO_API const char *silo_version(void);

/* ---- errors ---- */

enum silo_code {
    SILO_OK = 0,
    /* Errors in files. `field` and `offset` of the error are the position of the fault in the file.
     */
    SILO_ERROR_FILE = 1,      /* cannot be opened or read */
    SILO_ERROR_FOREIGN = 2,   /* not a .silo file */
    SILO_ERROR_TRUNCATED = 3, /* the file ends too early */
    SILO_ERROR_DAMAGED = 4,   /* a hash does not match, or a rule of the format is broken */
    SILO_ERROR_NEWER = 5,     /* written by a newer Silo */
    SILO_ERROR_TOO_LARGE = 6, /* reading the file would take more memory than is allowed */
    SILO_ERROR_CODEC = 7,     /* the bundle is stored with zstd, and libzstd was not found */
    /* Errors in calls. */
    SILO_ERROR_USAGE = 20,     /* a null pointer, a wrong number of arguments, ... */
    SILO_ERROR_NO_KERNEL = 21, /* no kernel of that name */
    SILO_ERROR_MISSING = 22,   /* an argument without a default was left out */
    SILO_ERROR_NULL = 23,      /* a null pointer as memory that the kernel reads or writes */
    SILO_ERROR_KIND = 24,      /* an integer where an array is needed, ... */
    SILO_ERROR_DTYPE = 25,     /* an array whose elements have another type than the kernel takes */
    SILO_ERROR_MISALIGNED = 26,  /* an address that is not aligned as every variant requires */
    SILO_ERROR_SHAPE = 27,       /* an array whose shape or strides no variant accepts */
    SILO_ERROR_GRID = 28,        /* no grid at all, or a dimension that is negative or too large */
    SILO_ERROR_EXPRESSION = 29,  /* overflow or division by zero in a grid or derived constant */
    SILO_ERROR_NO_VARIANT = 30,  /* no variant fits; `details` has the reason against each */
    SILO_ERROR_UNTRUSTED = 31,   /* native code for this CPU that is not trusted */
    SILO_ERROR_CAPTURING = 32,   /* code must be loaded during a capture: use silo_warmup before */
    SILO_ERROR_UNSUPPORTED = 33, /* code of a kind that this library does not launch */
    /* Errors of devices. `driver_code` of the error is the driver's own code. */
    SILO_ERROR_NO_DRIVER = 40,    /* the driver's library is missing or too old */
    SILO_ERROR_NO_DEVICE = 41,    /* no device of that number */
    SILO_ERROR_WRONG_DEVICE = 42, /* memory of another device, or a stream of another context */
    SILO_ERROR_LIMIT = 43,        /* more shared memory, threads or clusters than the device has */
    SILO_ERROR_LOAD = 44,         /* the driver refuses the code */
    SILO_ERROR_LAUNCH = 45,       /* the driver refuses the launch */
    SILO_ERROR_FAULT = 46,        /* the kernel failed while it ran */
    SILO_ERROR_FORKED = 47,       /* the driver was started by the parent of this forked process */
    SILO_ERROR_MEMORY = 60,       /* out of memory, of the host or of the device */
    SILO_ERROR_INTERNAL = 99
};

/* The error of a failed call. The function that fails fills it; a function that succeeds leaves it
 * unchanged. Only `details` is owned, and only SILO_ERROR_NO_VARIANT and errors of loading code set
 * it: free it with silo_error_clear. */
typedef struct silo_error {
    int32_t code;        /* enum silo_code */
    int32_t driver_code; /* the error code of a device's driver; 0 if the driver reported none */
    uint64_t offset; /* offset in the file in bytes; UINT64_MAX if the error is not about a file */
    char field[128]; /* part of the file, for example "kernels[3].variants[7].blob"; else "" */
    char text[1024]; /* the fault, its reason and the remedy; names the kernel and the argument */
    char *details;   /* owned: a line for each variant with the reason against it, or the message of
                        the driver's compiler if it does not fit `text`; or NULL */
} silo_error;

/* Frees `details`. The error can be used again afterwards. */
SILO_API void silo_error_clear(silo_error *error);

/* Returns the name of an error code in two or three words ("no variant", "wrong device"); never
 * NULL. */
SILO_API const char *silo_code_name(int code);

/* ---- arguments ---- */

/* Element types: DLPack's type code times 256, plus the bits of an element. */
enum silo_element {
    SILO_INT8 = 0x0008,
    SILO_INT16 = 0x0010,
    SILO_INT32 = 0x0020,
    SILO_INT64 = 0x0040,
    SILO_UINT8 = 0x0108,
    SILO_UINT16 = 0x0110,
    SILO_UINT32 = 0x0120,
    SILO_UINT64 = 0x0140,
    SILO_FLOAT16 = 0x0210,
    SILO_FLOAT32 = 0x0220,
    SILO_FLOAT64 = 0x0240,
    SILO_BFLOAT16 = 0x0410,
    SILO_BOOL8 = 0x0608,
    SILO_FP8_E4M3FN = 0x0A08,
    SILO_FP8_E4M3FNUZ = 0x0B08,
    SILO_FP8_E5M2 = 0x0C08,
    SILO_FP8_E5M2FNUZ = 0x0D08,
    SILO_FP8_E4M3B11FNUZ = 0x0908
};

enum silo_argument_kind {
    SILO_ARGUMENT_ABSENT = 0,  /* left out: the parameter's default or the config's value is used */
    SILO_ARGUMENT_POINTER = 1, /* an address and its element type */
    SILO_ARGUMENT_ARRAY = 2,   /* an address and element type, with shape and strides */
    SILO_ARGUMENT_DESCRIPTOR = 3, /* a tensor descriptor: an array and a block shape */
    SILO_ARGUMENT_INT = 4,
    SILO_ARGUMENT_BOOL = 5,
    SILO_ARGUMENT_FLOAT = 6,
    SILO_ARGUMENT_NONE = 7, /* Python's None */
    SILO_ARGUMENT_TEXT = 8, /* a string constant such as "relu" */
    SILO_ARGUMENT_TYPE = 9  /* an element type as a constant */
};

enum silo_argument_flags {
    SILO_ARGUMENT_READONLY = 1,   /* an array that a kernel must not write */
    SILO_ARGUMENT_PAD_NAN = 2,    /* descriptors: elements out of bounds load as NaN, not as zero */
    SILO_ARGUMENT_ROUND_TF32 = 4, /* descriptors: float32 is rounded to tf32 when loaded */
    SILO_ARGUMENT_RANGE32 = 8     /* an array whose memory is smaller than 2 GiB (ROCm only) */
};

/* One argument of a call. Texts, shapes, strides and blocks are read during the call only; memory
 * that the kernel uses must live until the kernel has run. */
typedef struct silo_argument {
    uint8_t kind;     /* enum silo_argument_kind */
    uint8_t flags;    /* enum silo_argument_flags */
    uint16_t element; /* enum silo_element: for pointers, arrays, descriptors and types */
    int32_t rank;     /* number of axes, for arrays and descriptors */
    union {
        void *pointer; /* host address for a CPU, device address for a GPU */
        int64_t integer;
        double real;
        const char *text; /* zero-terminated */
    } value;
    const int64_t *shape;   /* `rank` extents */
    const int64_t *strides; /* in elements; NULL if the array is contiguous in row-major order */
    const int64_t *block;   /* for descriptors: `rank` extents */
} silo_argument;

/* ---- devices ---- */

/* Kinds of devices, as DLPack numbers their memory. */
enum silo_device_kind { SILO_CPU = 1, SILO_CUDA = 2, SILO_ROCM = 10 };

/* The device and stream of a call. */
typedef struct silo_queue {
    int32_t device; /* enum silo_device_kind */
    int32_t index;  /* the device's number, 0 on a CPU */
    void *stream;   /* CUstream or hipStream_t of the device's primary context; NULL: its default
                       stream */
} silo_queue;

/* ---- bundles ---- */

typedef struct silo_bundle silo_bundle;
typedef struct silo_kernel silo_kernel; /* belongs to its bundle */

/* Native code for this CPU that is about to be loaded, as the `vouch` callback receives it.
 * `identity` equals the last 32 bytes of the bundle's header, in hex. So a signature over a header
 * (docs/security.md) covers this code if the signed header ends with these bytes. */
typedef struct silo_host_code {
    const char *bundle; /* name or path of the bundle */
    const char *kernel;
    const char *identity; /* sha256 of the bundle's manifest, in hex */
    const char *sha256;   /* sha256 of the code, in hex */
    /* hash in hex of the code and everything that decides how it is called, as the ledger of
     * `silo trust` stores it (docs/bundle-format.md, section 6) */
    const char *digest;
    const void *data; /* the code */
    size_t bytes;
} silo_host_code;

/* A request for scratch memory on a GPU, which a launch needs while it runs. */
typedef struct silo_scratch {
    silo_queue queue; /* the launch's device and stream: other work on the stream is ordered with
                         the launch */
    size_t bytes, alignment;
} silo_scratch;

/* A kernel for the CPU that is compiled into the program. `function` replaces the function `entry`
 * of the bundle's shared object with this sha256. Its type is silo_cpu_entry (cpu_launch.h). */
typedef struct silo_compiled {
    const char *sha256; /* sha256 of the shared object, in hex */
    const char *entry;
    int32_t (*function)(void *const *parameters, const uint32_t grid[3], uint64_t begin,
                        uint64_t end, void *scratch, void *context);
} silo_compiled;

enum silo_log_level { SILO_LOG_INFO = 0, SILO_LOG_WARNING = 1 };

enum silo_open_flags {
    /* The bundle's bytes are part of the program, so that its native code for the CPU is trusted
     * like the program itself. */
    SILO_LINKED = 1
};

/* Options for opening a bundle. Set `size` to sizeof(silo_options), and members that you do not use
 * to 0 or NULL. Callbacks may run on any thread that calls into the bundle. They must not call
 * functions of this bundle: `vouch` and `log` may run while the thread holds the bundle's lock, for
 * which such a call would wait for ever. */
typedef struct silo_options {
    size_t size;
    uint32_t flags;    /* enum silo_open_flags */
    uint32_t reserved; /* must be 0 */
    void *context;     /* passed to each callback */
    /* bytes of memory that reading may take beyond the file's size; 0: 64 MiB */
    size_t file_memory;
    /* Returns 1 if native code for the CPU is trusted, else 0. If this is NULL, such code is loaded
     * only with SILO_LINKED. */
    int (*vouch)(void *context, const silo_host_code *code);
    /* Receives one line of a message, without a newline. If this is NULL, messages are dropped. */
    void (*log)(void *context, int level, const char *text);
    /* Allocates scratch memory on a GPU: sets `*memory` and returns 0; any other value is a
     * failure. If this is NULL, Silo allocates. `release` is called as soon as the launch is
     * queued, so it must keep the memory until the queue has run the launch. */
    int (*allocate)(void *context, const silo_scratch *wanted, void **memory);
    void (*release)(void *context, const silo_scratch *wanted, void *memory);
    /* Paths of the driver libraries to open; NULL for the usual ones. */
    const char *cuda_library, *hip_library;
    /* Functions of the program that are called in place of shared objects of the bundle. These
     * objects are not loaded and need no trust. The functions must exist until silo_close. */
    const silo_compiled *compiled;
    size_t compiled_count;
} silo_options;

/* Opens a bundle file, which stays mapped: never write into it; replace it by renaming a new file
 * over it. `options` may be NULL; only its callbacks, `context` and `compiled` are used after this
 * call. */
SILO_API int silo_open(const char *path, const silo_options *options, silo_bundle **bundle,
                       silo_error *error);

/* Opens a bundle in memory. The bytes must begin at a multiple of 64 and stay in place until
 * silo_close. `name` is used in messages. */
SILO_API int silo_open_memory(const void *data, size_t bytes, const char *name,
                              const silo_options *options, silo_bundle **bundle, silo_error *error);

/* Unloads all code and frees the bundle. All launches must have ended. `bundle` may be NULL. */
SILO_API void silo_close(silo_bundle *bundle);

/* Returns the sha256 of the manifest in hex: 64 characters that live as long as the bundle. */
SILO_API const char *silo_identity(const silo_bundle *bundle);

/* Return the number of kernels, and the name of kernel number `index` in the order of names, or
 * NULL if there are not so many. */
SILO_API size_t silo_kernel_count(const silo_bundle *bundle);
SILO_API const char *silo_kernel_name(const silo_bundle *bundle, size_t index);

/* ---- kernels ---- */

/* Finds the kernel of this name. If there is none, the error text lists the names of all kernels.
 */
SILO_API int silo_find(silo_bundle *bundle, const char *name, silo_kernel **kernel,
                       silo_error *error);

SILO_API size_t silo_parameter_count(const silo_kernel *kernel);
SILO_API const char *silo_parameter_name(const silo_kernel *kernel, size_t index);

/* A compile option of a call: {"num_warps", silo_int(8)}. */
typedef struct silo_named {
    const char *name;
    silo_argument value;
} silo_named;

/* Options of a call besides its arguments. Functions take NULL for the defaults. */
typedef struct silo_call {
    const int64_t *grid; /* three dimensions; NULL: the kernel's declared grid */
    const silo_named *options;
    size_t option_count;
} silo_call;

/* Launches the kernel on `queue`. Arguments are in the order of the parameters; arguments missing
 * at the end count as absent. The first call with a combination of facts that code depends on
 * (element types, alignment, constants, ...) chooses a variant and loads its code; later calls with
 * the same facts find it in a table. A grid with a dimension of 0 launches nothing and succeeds. On
 * a GPU the kernel runs in the order of the queue; on a CPU it has run when this function returns.
 */
SILO_API int silo_launch(silo_kernel *kernel, const silo_queue *queue,
                         const silo_argument *arguments, size_t count, const silo_call *call,
                         silo_error *error);

/* Does everything that a launch does, but does not launch. Afterwards silo_launch with arguments of
 * the same types, alignment and constants loads no code, so that it can be captured into a graph.
 */
SILO_API int silo_warmup(silo_kernel *kernel, const silo_queue *queue,
                         const silo_argument *arguments, size_t count, const silo_call *call,
                         silo_error *error);

/* Sets `*text` to a report: the variant that the call would use, and a line for each variant with
 * the reason for or against it. Loads no code. Free `*text` with silo_free. */
SILO_API int silo_explain(silo_kernel *kernel, const silo_queue *queue,
                          const silo_argument *arguments, size_t count, const silo_call *call,
                          char **text, silo_error *error);

SILO_API void silo_free(void *memory);

/* ---- plans: many launches as one ---- */

typedef struct silo_step_plan silo_plan;

/* Makes an empty plan for the device of `queue`. A program adds the launches of one step in order,
 * and runs them as one:
 *
 *     for (;;) {
 *         silo_plan_add(plan, norm, norm_arguments, 4, NULL, &error);
 *         silo_plan_add(plan, gemm, gemm_arguments, 6, NULL, &error);
 *         silo_plan_run(plan, stream, &error);
 *     }
 *
 * On a CUDA device a step is one launch of a graph, whose nodes get the arguments and grids of this
 * step; on a CPU it is one call into the thread pool. Only one thread at a time may use a plan,
 * from the first silo_plan_add to the end of silo_plan_run. Close a plan before the bundles of its
 * kernels. */
SILO_API int silo_plan_begin(const silo_queue *queue, silo_plan **plan, silo_error *error);

/* Adds a launch to the step: like silo_launch, without launching yet. A launch with an empty grid
 * does nothing. A kernel that takes structs by value fails with SILO_ERROR_UNSUPPORTED. After an
 * error the step cannot be run. */
SILO_API int silo_plan_add(silo_plan *plan, silo_kernel *kernel, const silo_argument *arguments,
                           size_t count, const silo_call *call, silo_error *error);

/* Runs the launches added since the last run on a stream of the plan's device (NULL: the default
 * stream; a CPU has no other). Each launch waits for the one before. If no launch was added, the
 * last step is launched again. The first run of a sequence of kernels and variants builds a graph,
 * which takes long; the plan keeps the last 64 sequences. If no graph can be made ("singly" of
 * silo_plan_explain), a kernel that needs scratch memory fails with SILO_ERROR_UNSUPPORTED. After
 * an error nothing was launched, unless the error text says how many launches were. */
SILO_API int silo_plan_run(silo_plan *plan, void *stream, silo_error *error);

/* ---- plans of a bundle: recorded by silo.step in Python ---- */

/* Return the number of plans in a bundle, and the name of plan number `index`, or NULL if there are
 * not so many. */
SILO_API size_t silo_plan_count(const silo_bundle *bundle);
SILO_API const char *silo_plan_name(const silo_bundle *bundle, size_t index);

/* Makes the plan of this name from the bundle, for the device of `queue`. Its launches are recorded
 * in the bundle, so that none can be added; each silo_plan_call runs one step. On a CPU a plan
 * needs trust like native code, because it decides the arguments of native code: `vouch` of the
 * options is called with the plan's name as `kernel` and the plan's JSON as `data`. */
SILO_API int silo_bundle_plan(silo_bundle *bundle, const char *name, const silo_queue *queue,
                              silo_plan **plan, silo_error *error);

/* Return the number of parameters of a bundle's plan, and the name of parameter number `index`. A
 * plan made with silo_plan_begin has none: 0 and NULL. */
SILO_API size_t silo_plan_parameter_count(const silo_plan *plan);
SILO_API const char *silo_plan_parameter_name(const silo_plan *plan, size_t index);

/* Runs the plan with its arguments in the order of its parameters, like silo_plan_run. If the plan
 * reads the shape of an array, the argument must be made with silo_array. Fails with
 * SILO_ERROR_NO_VARIANT if the plan was recorded for arguments of another kind; `details` then has
 * the reasons. If an argument or a launch fails, nothing of the call was launched. */
SILO_API int silo_plan_call(silo_plan *plan, void *stream, const silo_argument *arguments,
                            size_t count, silo_error *error);

/* Returns how the last run was launched, and sets `*reason` to the reason for it. On a GPU:
 * "device" (a graph whose nodes the device updates), "host" (a graph that the host updates) or
 * "singly" (one launch after the other). On a CPU: "in order, on the CPU" or "together, on the
 * CPU's threads". Both texts live until the next run; NULL before the first. */
SILO_API const char *silo_plan_explain(const silo_plan *plan, const char **reason);

/* Frees a plan. Runs that are already queued complete. `plan` may be NULL. */
SILO_API void silo_plan_close(silo_plan *plan);

/* ---- functions that make arguments ---- */

#ifdef __cplusplus
#define SILO_EMPTY_                                                                                \
    {                                                                                              \
    }
#else
#define SILO_EMPTY_ {0}
#endif

static inline silo_argument silo_absent_argument(void) {
    silo_argument argument = SILO_EMPTY_;
    return argument;
}

static inline silo_argument silo_pointer(const void *address, int element) {
    silo_argument argument = SILO_EMPTY_;
    argument.kind = SILO_ARGUMENT_POINTER;
    argument.element = (uint16_t)element;
    argument.value.pointer = (void *)(uintptr_t)address;
    return argument;
}

static inline silo_argument silo_array(const void *address, int element, int rank,
                                       const int64_t *shape, const int64_t *strides) {
    silo_argument argument = silo_pointer(address, element);
    argument.kind = SILO_ARGUMENT_ARRAY;
    argument.rank = rank;
    argument.shape = shape;
    argument.strides = strides;
    return argument;
}

static inline silo_argument silo_descriptor(const void *address, int element, int rank,
                                            const int64_t *shape, const int64_t *strides,
                                            const int64_t *block) {
    silo_argument argument = silo_array(address, element, rank, shape, strides);
    argument.kind = SILO_ARGUMENT_DESCRIPTOR;
    argument.block = block;
    return argument;
}

static inline silo_argument silo_int(int64_t value) {
    silo_argument argument = SILO_EMPTY_;
    argument.kind = SILO_ARGUMENT_INT;
    argument.value.integer = value;
    return argument;
}

static inline silo_argument silo_bool(int value) {
    silo_argument argument = SILO_EMPTY_;
    argument.kind = SILO_ARGUMENT_BOOL;
    argument.value.integer = value != 0;
    return argument;
}

static inline silo_argument silo_float(double value) {
    silo_argument argument = SILO_EMPTY_;
    argument.kind = SILO_ARGUMENT_FLOAT;
    argument.value.real = value;
    return argument;
}

static inline silo_argument silo_none(void) {
    silo_argument argument = SILO_EMPTY_;
    argument.kind = SILO_ARGUMENT_NONE;
    return argument;
}

static inline silo_argument silo_text(const char *value) {
    silo_argument argument = SILO_EMPTY_;
    argument.kind = SILO_ARGUMENT_TEXT;
    argument.value.text = value;
    return argument;
}

static inline silo_argument silo_type(int element) {
    silo_argument argument = SILO_EMPTY_;
    argument.kind = SILO_ARGUMENT_TYPE;
    argument.element = (uint16_t)element;
    return argument;
}

#undef SILO_EMPTY_

#ifdef __cplusplus
}
#endif

#endif
