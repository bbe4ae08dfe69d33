/* Kernels in memory. A LoadedKernel is an artifact handed to a driver; a Binding is a LoadedKernel
 * joined to the parameters of one launcher. Both are immutable once made. */
#ifndef SILO_KERNEL_H
#define SILO_KERNEL_H

#include "binary.h"
#include "descriptor_object.h"
#include "driver.h"
#include "given_grid.h"
#include "python.h"

struct silo_loaded {
    PyObject_HEAD const struct silo_driver *driver;
    struct silo_function function;
    PyObject *module;           /* owned: a CpuModule, a GpuModule or a LibraryCode */
    struct silo_binary *binary; /* borrowed of the module; NULL: a LibraryCode */
    PyObject *entry;            /* owned str */
    PyObject *name;             /* owned str: the kernel's name, for messages */
};

/* How one kernel parameter is made from the arguments. */
enum silo_pack {
    SILO_PACK_SLOT, /* the low bytes of the slot */
    SILO_PACK_FP32, /* the slot holds a double */
    SILO_PACK_FP16,
    SILO_PACK_BF16,
    SILO_PACK_SCRATCH, /* the address of scratch memory taken for this launch */
    SILO_PACK_PROFILE,
    SILO_PACK_DESCRIPTOR, /* a part of a tensor descriptor */
};

/* What the binary takes in that place; checked when a binding enters the guard table. */
enum silo_abi {
    SILO_ABI_POINTER,
    SILO_ABI_BOOL,
    SILO_ABI_INT,
    SILO_ABI_UINT,
    SILO_ABI_FLOAT,
    SILO_ABI_NULL,
    SILO_ABI_DESCRIPTOR,
};

/* The slot that holds zero: a null pointer, for scratch memory that is not used. */
#define SILO_SLOT_NULL (-1)

struct silo_packed {
    int16_t slot;   /* plan index, or SILO_SLOT_NULL */
    uint8_t pack;   /* enum silo_pack */
    uint8_t abi;    /* enum silo_abi */
    uint8_t bits;   /* of the ABI type */
    uint8_t writes; /* the kernel writes through this pointer */
    /* Of a descriptor: */
    uint8_t part; /* enum silo_part */
    uint8_t axis; /* of a shape or stride; which of the binding's maps */
    uint8_t rank;
};

struct silo_binding {
    PyObject_HEAD struct silo_loaded *loaded; /* owned */
    PyObject *config; /* owned dict: what a callable grid sees besides the arguments */
    PyObject *tag;    /* owned: whatever Python wants to find again */
    uint32_t count;
    bool takes_scratch;         /* some parameter is SILO_PACK_SCRATCH or SILO_PACK_PROFILE */
    struct silo_packed *packed; /* owned */
    struct silo_map_form *maps; /* owned; NULL: none */
    struct silo_grid_programs grid;
    PyObject *effects; /* owned dict, NULL: nobody said. Hooks are told; never written */
};

extern PyTypeObject *silo_loaded_type;
extern PyTypeObject *silo_binding_type;

int silo_loaded_init(PyObject *module);  /* LoadedKernel (loaded.c) */
int silo_binding_init(PyObject *module); /* Binding (binding.c) */

#endif
