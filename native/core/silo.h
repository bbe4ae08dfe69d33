/* libsilo: compute kernels from .silo bundles, chosen and launched without Python.
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
 * Every function returns 0, or a code of `enum silo_code` with `*error` filled; `error` may be
 * NULL. Nothing here exits, prints, or starts a thread before the first launch on a CPU. Functions
 * are safe from any thread, but silo_close, after which nothing of the bundle is used. */
#ifndef SILO_H
#define SILO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Set by the build of the shared library, which shows these functions alone. */
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
    /* Files. `field` and `offset` of the error give the place. */
    SILO_ERROR_FILE = 1,      /* cannot be opened or read */
    SILO_ERROR_FOREIGN = 2,   /* not a .silo file */
    SILO_ERROR_TRUNCATED = 3, /* cut short */
    SILO_ERROR_DAMAGED = 4,   /* a hash differs, or a rule of the format is broken */
    SILO_ERROR_NEWER = 5,     /* written by a newer Silo */
    SILO_ERROR_TOO_LARGE = 6, /* reading it would take more memory than is allowed */
    SILO_ERROR_CODEC = 7,     /* stored with zstd, and no libzstd is here */
    /* Calls. */
    SILO_ERROR_USAGE = 20,       /* a null pointer, a wrong number of arguments, ... */
    SILO_ERROR_NO_KERNEL = 21,   /* no kernel of that name */
    SILO_ERROR_MISSING = 22,     /* an argument without a default was left out */
    SILO_ERROR_NULL = 23,        /* a null pointer to memory that the kernel reads or writes */
    SILO_ERROR_KIND = 24,        /* an integer where an array is needed, ... */
    SILO_ERROR_DTYPE = 25,       /* elements of another type */
    SILO_ERROR_MISALIGNED = 26,  /* an address, which every variant needs aligned */
    SILO_ERROR_SHAPE = 27,       /* an array whose shape or strides do not serve */
    SILO_ERROR_GRID = 28,        /* none declared or given, negative, or too large */
    SILO_ERROR_EXPRESSION = 29,  /* a grid or a derived constant: overflow, division by zero */
    SILO_ERROR_NO_VARIANT = 30,  /* `details` has each variant with its reason */
    SILO_ERROR_UNTRUSTED = 31,   /* host code that is not trusted */
    SILO_ERROR_CAPTURING = 32,   /* code must be loaded while a graph is captured: silo_warmup */
    SILO_ERROR_UNSUPPORTED = 33, /* code of a kind that this library does not launch */
    /* Devices. `driver_code` is the driver's own. */
    SILO_ERROR_NO_DRIVER = 40,    /* no library of the driver, or a library that is too old */
    SILO_ERROR_NO_DEVICE = 41,    /* no device of that number */
    SILO_ERROR_WRONG_DEVICE = 42, /* memory of another device, a stream of another context */
    SILO_ERROR_LIMIT = 43,        /* shared memory, threads, clusters: more than the device has */
    SILO_ERROR_LOAD = 44,         /* the driver refuses the code */
    SILO_ERROR_LAUNCH = 45,       /* the driver refuses the launch */
    SILO_ERROR_FAULT = 46,        /* the kernel failed while it ran */
    SILO_ERROR_FORKED = 47,       /* a driver that the parent of this process had started */
    SILO_ERROR_MEMORY = 60,       /* out of memory, of the host or of the device */
    SILO_ERROR_INTERNAL = 99
};

/* Filled by the function that fails; otherwise unchanged. It owns nothing but `details`, which
 * only SILO_ERROR_NO_VARIANT and errors of loading code set: give it back with silo_error_clear. */
typedef struct silo_error {
    int32_t code;        /* enum silo_code */
    int32_t driver_code; /* of a device's driver; 0: none */
    uint64_t offset;     /* in a file, bytes; UINT64_MAX: not about a place in one */
    char field[128];     /* of a file: "kernels[3].variants[7].blob"; "" otherwise */
    char text[1024];     /* what, where, why, and what to do; names the kernel and the argument */
    char *details; /* owned: one line a variant with the reason against it, or the whole text if the
                      driver's compiler wrote more than fits; NULL: none */
} silo_error;

/* Frees `details`; the error can be used again. */
SILO_API void silo_error_clear(silo_error *error);

/* "no variant", "wrong device", ...: a code in two or three words; never NULL. */
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
    SILO_ARGUMENT_ABSENT = 0,     /* the default, or the config's value */
    SILO_ARGUMENT_POINTER = 1,    /* an address and its element type */
    SILO_ARGUMENT_ARRAY = 2,      /* the same with shape and strides */
    SILO_ARGUMENT_DESCRIPTOR = 3, /* the same with a block: a tensor descriptor */
    SILO_ARGUMENT_INT = 4,
    SILO_ARGUMENT_BOOL = 5,
    SILO_ARGUMENT_FLOAT = 6,
    SILO_ARGUMENT_NONE = 7, /* Python's None */
    SILO_ARGUMENT_TEXT = 8, /* a constant: "relu" */
    SILO_ARGUMENT_TYPE = 9  /* a constant: an element type */
};

enum silo_argument_flags {
    SILO_ARGUMENT_READONLY = 1,   /* an array that a kernel must not write */
    SILO_ARGUMENT_PAD_NAN = 2,    /* of a descriptor: elements outside are NaN, else zero */
    SILO_ARGUMENT_ROUND_TF32 = 4, /* of a descriptor: float32 is rounded to tf32 when loaded */
    SILO_ARGUMENT_RANGE32 = 8     /* an array of which all memory is below 2 GiB (ROCm only) */
};

/* One argument of a call. The memory it points at is borrowed for the length of the call; memory
 * that the kernel uses must live until the kernel has run. */
typedef struct silo_argument {
    uint8_t kind;     /* enum silo_argument_kind */
    uint8_t flags;    /* enum silo_argument_flags */
    uint16_t element; /* enum silo_element, of pointers, arrays, descriptors and types */
    int32_t rank;     /* of arrays and descriptors */
    union {
        void *pointer; /* host memory for a CPU, the device's address for a GPU */
        int64_t integer;
        double real;
        const char *text; /* ends with 0 */
    } value;
    const int64_t *shape;   /* `rank` extents */
    const int64_t *strides; /* in elements; NULL: compact, the last axis fastest */
    const int64_t *block;   /* of a descriptor: `rank` extents */
} silo_argument;

/* ---- devices ---- */

/* Kinds of devices, as DLPack numbers their memory. */
enum silo_device_kind { SILO_CPU = 1, SILO_CUDA = 2, SILO_ROCM = 10 };

/* The device and stream of a call. */
typedef struct silo_queue {
    int32_t device; /* enum silo_device_kind */
    int32_t index;  /* the device's number, 0 on a CPU */
    void *stream;   /* CUstream or hipStream_t of the device's primary context; NULL: the default */
} silo_queue;

/* ---- bundles ---- */

typedef struct silo_bundle silo_bundle;
typedef struct silo_kernel silo_kernel; /* belongs to its bundle */

/* Native code of the host that is about to be loaded. `identity` is the last 32 bytes of the
 * bundle's header in hex: a signature over the header (docs/security.md) vouches for this code if
 * the header that it signs ends so. */
typedef struct silo_host_code {
    const char *bundle; /* its name or path */
    const char *kernel;
    const char *identity; /* of the bundle: the sha256 of its manifest, in hex */
    const char *sha256;   /* of the code, in hex */
    const char *digest; /* of the code and everything that decides how it is called, in hex, as the
                           ledger of `silo trust` keeps it (docs/bundle-format.md, section 6) */
    const void *data;   /* the code */
    size_t bytes;
} silo_host_code;

/* Memory that launches of a kernel need on a GPU for as long as they run. */
typedef struct silo_scratch {
    silo_queue queue; /* where; work on it before and after is in order with the launch */
    size_t bytes, alignment;
} silo_scratch;

/* Native code of a CPU that is part of the program: the function that the object with this sha256
 * has as `entry`. Called as silo_cpu_entry (cpu_launch.h). */
typedef struct silo_compiled {
    const char *sha256; /* of the object, in hex */
    const char *entry;
    int32_t (*function)(void *const *parameters, const uint32_t grid[3], uint64_t begin,
                        uint64_t end, void *scratch, void *context);
} silo_compiled;

enum silo_log_level { SILO_LOG_INFO = 0, SILO_LOG_WARNING = 1 };

enum silo_open_flags {
    /* The bytes are part of the program, which vouches for the host code in them. */
    SILO_LINKED = 1
};

/* How a bundle is opened. Set `size` to sizeof(silo_options) and the rest to 0 or NULL as wanted.
 * Callbacks may come from any thread that calls into the bundle, and call nothing of that bundle
 * themselves: `vouch` and `log` run while other threads wait for the load. */
typedef struct silo_options {
    size_t size;
    uint32_t flags;     /* enum silo_open_flags */
    uint32_t reserved;  /* 0 */
    void *context;      /* given to each callback */
    size_t file_memory; /* bytes that reading may take beyond the file's own; 0: 64 MiB */
    /* Whether somebody vouches for host code: 1 yes, 0 no. NULL: host code is loaded only with
     * SILO_LINKED. */
    int (*vouch)(void *context, const silo_host_code *code);
    /* Gets one line without its end. NULL: messages are dropped. */
    void (*log)(void *context, int level, const char *text);
    /* Scratch memory of a GPU: 0 and *memory, or anything else. NULL: Silo's own. `release` is
     * called once the launch is queued: memory in use by the queue must stay until that has run. */
    int (*allocate)(void *context, const silo_scratch *wanted, void **memory);
    void (*release)(void *context, const silo_scratch *wanted, void *memory);
    /* A library of the driver in place of the usual one; NULL: the usual. */
    const char *cuda_library, *hip_library;
    /* Functions of the program that are called in place of objects of the bundle, which are then
     * not loaded and need no trust. They must stay until silo_close. */
    const silo_compiled *compiled;
    size_t compiled_count;
} silo_options;

/* Open a file, which stays mapped: replace it by renaming another one, and never write into it.
 * `options` may be NULL; nothing of it is kept but its callbacks, context and `compiled`. */
SILO_API int silo_open(const char *path, const silo_options *options, silo_bundle **bundle,
                       silo_error *error);

/* Open bytes, which must stay where they are until silo_close and begin at a multiple of 64.
 * `name` is used in messages. */
SILO_API int silo_open_memory(const void *data, size_t bytes, const char *name,
                              const silo_options *options, silo_bundle **bundle, silo_error *error);

/* Unload all code and free the bundle. Launches must have ended; NULL is allowed. */
SILO_API void silo_close(silo_bundle *bundle);

/* The sha256 of the manifest, in hex: 64 characters that live as long as the bundle. */
SILO_API const char *silo_identity(const silo_bundle *bundle);

/* Kernels in the order of their names; NULL past the end. */
SILO_API size_t silo_kernel_count(const silo_bundle *bundle);
SILO_API const char *silo_kernel_name(const silo_bundle *bundle, size_t index);

/* ---- kernels ---- */

/* The kernel of this name. The error lists the names of all kernels. */
SILO_API int silo_find(silo_bundle *bundle, const char *name, silo_kernel **kernel,
                       silo_error *error);

SILO_API size_t silo_parameter_count(const silo_kernel *kernel);
SILO_API const char *silo_parameter_name(const silo_kernel *kernel, size_t index);

/* A compile option of a call: {"num_warps", silo_int(8)}. */
typedef struct silo_named {
    const char *name;
    silo_argument value;
} silo_named;

/* The options of a call besides its arguments; NULL for none. */
typedef struct silo_call {
    const int64_t *grid; /* three dimensions; NULL: the declared grid */
    const silo_named *options;
    size_t option_count;
} silo_call;

/* Launch on `queue` with arguments in the order of the parameters; those left out at the end count
 * as absent. The first call of its kind chooses and loads code, later ones find it. A grid with a
 * dimension of 0 launches nothing and succeeds. On a GPU the kernel runs in the order of the queue;
 * on a CPU it has run when this returns. */
SILO_API int silo_launch(silo_kernel *kernel, const silo_queue *queue,
                         const silo_argument *arguments, size_t count, const silo_call *call,
                         silo_error *error);

/* Do everything of a launch but the launch itself: afterwards the launch loads nothing, so that it
 * can be captured into a graph. */
SILO_API int silo_warmup(silo_kernel *kernel, const silo_queue *queue,
                         const silo_argument *arguments, size_t count, const silo_call *call,
                         silo_error *error);

/* Which variant the call gets, and the reason for or against each, a line each. Loads nothing. Give
 * `*text` back with silo_free. */
SILO_API int silo_explain(silo_kernel *kernel, const silo_queue *queue,
                          const silo_argument *arguments, size_t count, const silo_call *call,
                          char **text, silo_error *error);

SILO_API void silo_free(void *memory);

/* ---- plans: many launches as one ---- */

typedef struct silo_step_plan silo_plan;

/* A plan without launches, on the device of `queue`. A step of a program adds its launches in order
 * and runs them as one:
 *
 *     for (;;) {
 *         silo_plan_add(plan, norm, norm_arguments, 4, NULL, &error);
 *         silo_plan_add(plan, gemm, gemm_arguments, 6, NULL, &error);
 *         silo_plan_run(plan, stream, &error);
 *     }
 *
 * On a CUDA device a step is one launch of a graph, whose nodes take the arguments and grids of
 * this step; on a CPU it is one call into the thread pool. One thread at a time uses a plan, from
 * the first add to the end of run. Close it before the bundles of its kernels. */
SILO_API int silo_plan_begin(const silo_queue *queue, silo_plan **plan, silo_error *error);

/* The next launch of the step; as silo_launch, up to the launch itself. An empty grid is a launch
 * that does nothing. A kernel that needs scratch memory is SILO_ERROR_UNSUPPORTED. After an error
 * the step cannot be run. */
SILO_API int silo_plan_add(silo_plan *plan, silo_kernel *kernel, const silo_argument *arguments,
                           size_t count, const silo_call *call, silo_error *error);

/* Launch the additions since the last run, on a stream of the plan's device (NULL: the default one,
 * and on a CPU): each launch waits for the one before it. If nothing was added, the last step is
 * launched again. A sequence of kernels and variants that is new to the plan is made into a graph
 * first, which takes long; the last 64 sequences are kept. On an error nothing was launched, or the
 * text says how many launches were. */
SILO_API int silo_plan_run(silo_plan *plan, void *stream, silo_error *error);

/* ---- plans of a bundle: silo.step ---- */

/* Names of the plans that a bundle keeps; NULL past the end. */
SILO_API size_t silo_plan_count(const silo_bundle *bundle);
SILO_API const char *silo_plan_name(const silo_bundle *bundle, size_t index);

/* The plan of this name, for a device. Its launches are the bundle's, so nothing is added to it;
 * each silo_plan_call is one step. On a CPU, `vouch` of the options is called for it, as for the
 * native code that it calls: `kernel` is the plan's name then, and the data is its JSON. */
SILO_API int silo_bundle_plan(silo_bundle *bundle, const char *name, const silo_queue *queue,
                              silo_plan **plan, silo_error *error);

/* The parameters of a plan of a bundle; 0 and NULL for other plans. */
SILO_API size_t silo_plan_parameter_count(const silo_plan *plan);
SILO_API const char *silo_plan_parameter_name(const silo_plan *plan, size_t index);

/* Run it with all its arguments, in the order of its parameters, as silo_plan_run does. Arrays need
 * their shape (silo_array) if the plan reads it. SILO_ERROR_NO_VARIANT: it was recorded for other
 * arguments, and `details` has the reasons. After an error in an argument or a launch nothing of
 * the call was launched. */
SILO_API int silo_plan_call(silo_plan *plan, void *stream, const silo_argument *arguments,
                            size_t count, silo_error *error);

/* How the last run was launched ("device": a graph whose nodes the device updates, "host": a graph
 * that the host updates, "singly": one by one, or a CPU's way), and into `*reason` why. The texts
 * live until the next run; NULL before the first. */
SILO_API const char *silo_plan_explain(const silo_plan *plan, const char **reason);

/* Replays that are queued end as they would. NULL is allowed. */
SILO_API void silo_plan_close(silo_plan *plan);

/* ---- arguments in short ---- */

#ifdef __cplusplus
#define SILO_EMPTY_                                                                                \
    {                                                                                              \
    }
#else
#define SILO_EMPTY_ {0}
#endif

static inline silo_argument silo_absent_argument(void) {
    silo_argument made = SILO_EMPTY_;
    return made;
}

static inline silo_argument silo_pointer(const void *address, int element) {
    silo_argument made = SILO_EMPTY_;
    made.kind = SILO_ARGUMENT_POINTER;
    made.element = (uint16_t)element;
    made.value.pointer = (void *)(uintptr_t)address;
    return made;
}

static inline silo_argument silo_array(const void *address, int element, int rank,
                                       const int64_t *shape, const int64_t *strides) {
    silo_argument made = silo_pointer(address, element);
    made.kind = SILO_ARGUMENT_ARRAY;
    made.rank = rank;
    made.shape = shape;
    made.strides = strides;
    return made;
}

static inline silo_argument silo_descriptor(const void *address, int element, int rank,
                                            const int64_t *shape, const int64_t *strides,
                                            const int64_t *block) {
    silo_argument made = silo_array(address, element, rank, shape, strides);
    made.kind = SILO_ARGUMENT_DESCRIPTOR;
    made.block = block;
    return made;
}

static inline silo_argument silo_int(int64_t value) {
    silo_argument made = SILO_EMPTY_;
    made.kind = SILO_ARGUMENT_INT;
    made.value.integer = value;
    return made;
}

static inline silo_argument silo_bool(int value) {
    silo_argument made = SILO_EMPTY_;
    made.kind = SILO_ARGUMENT_BOOL;
    made.value.integer = value != 0;
    return made;
}

static inline silo_argument silo_float(double value) {
    silo_argument made = SILO_EMPTY_;
    made.kind = SILO_ARGUMENT_FLOAT;
    made.value.real = value;
    return made;
}

static inline silo_argument silo_none(void) {
    silo_argument made = SILO_EMPTY_;
    made.kind = SILO_ARGUMENT_NONE;
    return made;
}

static inline silo_argument silo_text(const char *value) {
    silo_argument made = SILO_EMPTY_;
    made.kind = SILO_ARGUMENT_TEXT;
    made.value.text = value;
    return made;
}

static inline silo_argument silo_type(int element) {
    silo_argument made = SILO_EMPTY_;
    made.kind = SILO_ARGUMENT_TYPE;
    made.element = (uint16_t)element;
    return made;
}

#undef SILO_EMPTY_

#ifdef __cplusplus
}
#endif

#endif
