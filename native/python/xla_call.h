/* Calls of kernels from programs that XLA runs (jax). Silo registers one handler with XLA for each
 * platform; it launches the kernel that a digest in the program names.
 *
 * A call is kept under its digest and the number of the device, and lives as long as the process,
 * because XLA does not report that it is done with a program. For an unknown digest the handler
 * calls the resolver, a Python function, which stores the call or raises. A known call runs no
 * Python code and needs no lock of Python. */
#ifndef SILO_XLA_CALL_H
#define SILO_XLA_CALL_H

#include "kernel.h"
#include "xla_abi.h"

/* Number of hex characters of a digest in a program. */
#define SILO_XLA_DIGEST 64
/* The most axes that vmap may put before an array's own. */
#define SILO_XLA_BATCH 8

/* The requirements on one array that XLA passes. */
struct silo_xla_buffer {
    int32_t dtype;    /* XLA's number of the dtype */
    int32_t rank;     /* number of axes, without the axes of vmap */
    int64_t *dims;    /* points into the call's memory */
    uint64_t bytes;   /* bytes of one example */
    uint16_t word;    /* index in the call's `words` of the array's address */
    int16_t alias;    /* the operand whose memory a result uses; -1 if none */
    bool aligned;     /* the code requires an address that is a multiple of 16 */
    const char *name; /* owned: the name of the parameter */
};

/* The launch that a frame of XLA requests. XLA's own work evicts this data from the nearest caches,
 * so that a call takes mostly the time of reading the data from memory. All data of a call
 * therefore follows the struct in one piece, which is prefetched while the digest is compared, if
 * the frame was seen before. */
struct silo_xla_call {
    char digest[SILO_XLA_DIGEST];
    int32_t device; /* 0 on a CPU */
    int32_t operands, results;
    struct silo_xla_buffer *buffers; /* the operands, followed by the results */
    /* The values that the kernel's parameters point to. Each launch copies them, and then writes
     * the addresses of the arrays, and of scratch memory from `scratch_at` on. */
    uint64_t *words;
    uint16_t *places; /* for each parameter of the kernel, the index of its word */
    uint16_t word_count, parameter_count, scratch_at;
    bool takes_scratch; /* the kernel needs scratch memory of the GPU */
    bool empty;         /* the grid is empty, so nothing is launched */
    uint32_t grid[3];
    int (*launch)(const struct silo_launch *); /* the driver's launch function */
    struct silo_function *function;            /* the function of the binding */
    struct silo_xla_call *next;   /* next call in the bucket; set before the call is published */
    struct silo_binding *binding; /* owned */
    char *kernel;                 /* owned: the kernel's name */
    uint32_t bytes;               /* bytes of the struct and the data after it */
};

/* Returns the call for a digest and a device, or NULL. */
const struct silo_xla_call *silo_xla_find(const char *digest, int32_t device);
/* Adds a call to the table, where it stays. Returns false if the table has a call for its digest
 * and device. */
bool silo_xla_publish(struct silo_xla_call *call);

/* The handlers that XLA calls, from any thread. */
struct silo_xla_error *silo_xla_on_cpu(struct silo_xla_frame *frame);
struct silo_xla_error *silo_xla_on_cuda(struct silo_xla_frame *frame);

/* Asks Python to make a struct silo_xla_call and publish it. Returns 0, or -1 with a text in
 * `message`. */
typedef int silo_xla_ask(const char *digest, const char *platform, int32_t device, char *message,
                         size_t size);

/* The silo_xla_ask function; set by xla_module.c when the module is made. */
extern silo_xla_ask *silo_xla_resolver;

/* The minor version of XLA's interface that Silo's handlers report to XLA; the major version is 0.
 */
extern int32_t silo_xla_minor;

#endif
