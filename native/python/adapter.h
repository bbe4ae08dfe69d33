/* How the objects of one Python type are read as arguments. */
#ifndef SILO_ADAPTER_H
#define SILO_ADAPTER_H

#include "dlpack.h"
#include "python.h"

enum silo_adapter_kind {
    SILO_ADAPT_NOTHING,   /* not an argument */
    SILO_ADAPT_TORCH,     /* exactly torch.Tensor or Parameter, through the shim */
    SILO_ADAPT_EXCHANGE,  /* DLPack C exchange API */
    SILO_ADAPT_BUFFER,    /* buffer protocol */
    SILO_ADAPT_DLPACK,    /* __dlpack__ capsules */
    SILO_ADAPT_DATA_PTR,  /* data_ptr() and dtype */
    SILO_ADAPT_CUDA_DICT, /* __cuda_array_interface__ */
    SILO_ADAPT_INT,       /* a number of another library: numpy.int32, ... */
    SILO_ADAPT_FLOAT,
    SILO_ADAPT_BOOL,
    SILO_ADAPT_DESCRIPTOR, /* a tensor descriptor: with attributes of its own and a base array */
};

/* How objects of one type are read. It does not keep a class alive: `weak` shows whether it still
 * exists, because another class may later have the same address. */
struct silo_adapter {
    PyTypeObject *type;
    PyObject *weak; /* owned weak reference; NULL: a type that is never freed */
    const struct dl_exchange *exchange;
    PyObject *stream; /* owned callable: device index -> handle of the library's current stream */
    /* owned callable: array -> its library's description if it lacks an address, or None */
    PyObject *reader;
    enum silo_adapter_kind kind;
    bool negates;              /* an array with a method is_neg (torch), which may return true */
    bool calls;                /* its memory is read by methods, which may be written in Python */
    bool rounds;               /* a descriptor with an attribute round_f32_to_tf32 */
    bool laid_out;             /* a descriptor with an attribute layout, which may be None */
    struct silo_adapter *next; /* of those that are about to be freed */
};

#endif
