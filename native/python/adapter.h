/* How objects of one Python type are read as arguments of a call. */
#ifndef SILO_ADAPTER_H
#define SILO_ADAPTER_H

#include "dlpack.h"
#include "python.h"

enum silo_adapter_kind {
    SILO_ADAPT_NOTHING, /* not an argument */
    SILO_ADAPT_TORCH, /* an object of exactly torch.Tensor or Parameter, read through the torch shim
                       */
    SILO_ADAPT_EXCHANGE,  /* an array with the DLPack C exchange API */
    SILO_ADAPT_BUFFER,    /* an array with the buffer protocol */
    SILO_ADAPT_DLPACK,    /* an array that gives __dlpack__ capsules */
    SILO_ADAPT_DATA_PTR,  /* an array with data_ptr() and dtype */
    SILO_ADAPT_CUDA_DICT, /* an array with __cuda_array_interface__ */
    SILO_ADAPT_INT,       /* an integer of another library: numpy.int32, ... */
    SILO_ADAPT_FLOAT,
    SILO_ADAPT_BOOL,
    SILO_ADAPT_DESCRIPTOR, /* a tensor descriptor: it has a base array and attributes of its own */
};

/* How objects of one type are read. An adapter does not keep its class alive. `weak` shows whether
 * the class still exists, because a new class may get the address of a freed one. */
struct silo_adapter {
    PyTypeObject *type;
    PyObject *weak; /* owned weak reference to the type; NULL if the type is never freed */
    const struct dl_exchange *exchange;
    PyObject *stream; /* owned callable: maps a device index to the handle of the array library's
                         current stream */
    /* owned callable: describes an array that has no address (see silo_adapter_set_reader); it
     * returns None for an array that has one */
    PyObject *reader;
    enum silo_adapter_kind kind;
    bool negates;              /* the array has a method is_neg (torch's), which may return true */
    bool calls;                /* reading the array calls methods, which may be written in Python */
    bool rounds;               /* the descriptor has an attribute round_f32_to_tf32 */
    bool laid_out;             /* the descriptor has an attribute layout, which may be None */
    struct silo_adapter *next; /* next in a list of adapters to free */
};

#endif
