/* Calls of kernels from programs that XLA runs (jax): one handler a platform, registered with XLA,
 * launches what a digest in the program names.
 *
 * A call is kept under its digest and the number of the device, and lives as long as the process:
 * XLA does not report that it is done with a program. For an unknown digest the handler calls the
 * resolver, a Python function, which stores the call or raises. A known call runs no Python code
 * and needs no lock of Python's. */
#ifndef SILO_XLA_CALL_H
#define SILO_XLA_CALL_H

#include "kernel.h"
#include "xla_abi.h"

/* Characters of a digest in hex, as a program has it. */
#define SILO_XLA_DIGEST 64
/* Axes that vmap may put before an array's own. */
#define SILO_XLA_BATCH 8

/* One array that XLA passes: the requirements on its memory. */
struct silo_xla_buffer {
    int32_t dtype;    /* XLA's number */
    int32_t rank;     /* of one example */
    int64_t *dims;    /* of the call's own memory */
    uint64_t bytes;   /* of one example */
    uint16_t word;    /* of the call's words, that gets its address */
    int16_t alias;    /* for a result: the operand whose memory it uses; -1: memory of its own */
    bool aligned;     /* the code assumes a multiple of 16 */
    const char *name; /* of the parameter; owned */
};

/* The call of a frame of XLA's. XLA's own work puts all of it out of the nearest caches, so that a
 * call takes as long as its memory: its data is behind the struct in one piece, and for a frame
 * like an earlier one it is prefetched while the digest is compared. */
struct silo_xla_call {
    char digest[SILO_XLA_DIGEST];
    int32_t device; /* 0 on a CPU */
    int32_t operands, results;
    struct silo_xla_buffer *buffers; /* the operands, then the results */
    /* The memory that parameters of the code point at: `words` of a launch begin as these, then get
     * the addresses of the arrays, and of scratch memory at `scratch_at` and behind it. */
    uint64_t *words;
    uint16_t *places; /* the word of each parameter of the code */
    uint16_t word_count, parameter_count, scratch_at;
    bool takes_scratch; /* of a GPU's memory */
    bool empty;         /* the grid is empty */
    uint32_t grid[3];
    int (*launch)(const struct silo_launch *); /* of the driver */
    struct silo_function *function;            /* of the binding */
    struct silo_xla_call *next;                /* in its bucket; set before it is published */
    struct silo_binding *binding;              /* owned */
    char *kernel;                              /* its name; owned */
    uint32_t bytes;                            /* of the piece of memory that this begins */
};

/* The call, or NULL. */
const struct silo_xla_call *silo_xla_find(const char *digest, int32_t device);
/* Take a call into the table, for ever; false where it has one of that digest and device. */
bool silo_xla_publish(struct silo_xla_call *call);

/* What XLA calls. Both are safe from any thread. */
struct silo_xla_error *silo_xla_on_cpu(struct silo_xla_frame *frame);
struct silo_xla_error *silo_xla_on_cuda(struct silo_xla_frame *frame);

/* Ask Python for a call: 0, or -1 with a text in `message`. */
typedef int silo_xla_ask(const char *digest, const char *platform, int32_t device, char *message,
                         size_t size);

/* The Python functions to call; set by xla_module.c when the module is made. */
extern silo_xla_ask *silo_xla_resolver;

/* The version of the interface that XLA is told, 0.minor. */
extern int32_t silo_xla_minor;

#endif
