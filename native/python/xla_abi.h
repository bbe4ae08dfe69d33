/* The part of XLA's foreign function interface that Silo uses, declared by hand, so that neither
 * the build nor the program needs XLA or its headers.
 *
 * All facts below are from xla/ffi/api/c_api.h of OpenXLA (API 0.3), which jaxlib 0.10.2 contains
 * as jaxlib/include/xla/ffi/api/c_api.h; a comment beside each has its name there. A test compiles
 * both files and compares the offsets of members. Members after the last one used are left out: XLA
 * adds members at the end of a struct, and writes the struct's size into the first member. */
#ifndef SILO_XLA_ABI_H
#define SILO_XLA_ABI_H

#include "base.h"

#define SILO_XLA_MAJOR 0     /* XLA_FFI_API_MAJOR */
#define SILO_XLA_EXTENSION 1 /* XLA_FFI_Extension_Metadata */
#define SILO_XLA_BUFFER 1    /* XLA_FFI_ArgType_BUFFER, XLA_FFI_RetType_BUFFER */
#define SILO_XLA_STRING 4    /* XLA_FFI_AttrType_STRING */
#define SILO_XLA_CAPTURES 1U /* XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE */

enum silo_xla_stage { /* XLA_FFI_ExecutionStage */
                      SILO_XLA_INSTANTIATE = 0,
                      SILO_XLA_INITIALIZE = 2,
                      SILO_XLA_EXECUTE = 3,
};

enum silo_xla_code { /* XLA_FFI_Error_Code */
                     SILO_XLA_INVALID = 3,
                     SILO_XLA_NOT_FOUND = 5,
                     SILO_XLA_EXHAUSTED = 8,
                     SILO_XLA_PRECONDITION = 9,
                     SILO_XLA_INTERNAL = 13,
};

struct silo_xla_error;   /* XLA_FFI_Error; owned by the function that returns or receives it */
struct silo_xla_context; /* XLA_FFI_ExecutionContext */

struct silo_xla_extension { /* XLA_FFI_Extension_Base */
    size_t size;
    int32_t type;
    struct silo_xla_extension *next;
};

struct silo_xla_version { /* XLA_FFI_Api_Version */
    size_t size;
    struct silo_xla_extension *extension;
    int32_t major, minor;
};

struct silo_xla_metadata { /* XLA_FFI_Metadata */
    size_t size;
    struct silo_xla_version version;
    uint32_t traits;
};

struct silo_xla_metadata_extension { /* XLA_FFI_Metadata_Extension */
    struct silo_xla_extension base;
    struct silo_xla_metadata *metadata;
};

struct silo_xla_error_create { /* XLA_FFI_Error_Create_Args */
    size_t size;
    struct silo_xla_extension *extension;
    const char *message; /* copied */
    int32_t code;
};

struct silo_xla_error_of { /* XLA_FFI_Error_GetMessage_Args; XLA_FFI_Error_Destroy_Args has the same
                              members up to `error` */
    size_t size;
    struct silo_xla_extension *extension;
    struct silo_xla_error *error;
    const char *message; /* out: owned by the error */
};

struct silo_xla_stream_get { /* XLA_FFI_Stream_Get_Args */
    size_t size;
    struct silo_xla_extension *extension;
    struct silo_xla_context *context;
    void *stream; /* out: a CUstream */
};

struct silo_xla_ordinal_get { /* XLA_FFI_DeviceOrdinal_Get_Args */
    size_t size;
    struct silo_xla_extension *extension;
    struct silo_xla_context *context;
    int32_t ordinal; /* out */
};

struct silo_xla_api { /* XLA_FFI_Api; functions that are not used are void pointers */
    size_t size;
    struct silo_xla_extension *extension;
    struct silo_xla_version version;
    const void *internal;
    struct silo_xla_error *(*error_create)(struct silo_xla_error_create *);
    void (*error_message)(struct silo_xla_error_of *);
    void (*error_destroy)(struct silo_xla_error_of *);
    void *handler_register;
    struct silo_xla_error *(*stream_get)(struct silo_xla_stream_get *);
    void *type_register, *context_get, *state_set, *state_get, *memory_allocate, *memory_free;
    void *pool_schedule, *pool_threads, *future_create, *future_available, *future_error;
    void *run_id;
    struct silo_xla_error *(*device_ordinal)(struct silo_xla_ordinal_get *);
};

struct silo_xla_span { /* XLA_FFI_ByteSpan */
    const char *text;  /* not terminated by a zero */
    size_t length;
};

struct silo_xla_array { /* XLA_FFI_Buffer */
    size_t size;
    struct silo_xla_extension *extension;
    int32_t dtype; /* XLA_FFI_DataType */
    void *data;
    int64_t rank;
    int64_t *dims;
};

struct silo_xla_values { /* XLA_FFI_Args, XLA_FFI_Rets */
    size_t size;
    struct silo_xla_extension *extension;
    int64_t count;
    int32_t *types;
    void **values;
};

struct silo_xla_attributes { /* XLA_FFI_Attrs */
    size_t size;
    struct silo_xla_extension *extension;
    int64_t count;
    int32_t *types;
    struct silo_xla_span **names;
    void **values;
};

struct silo_xla_frame { /* XLA_FFI_CallFrame */
    size_t size;
    struct silo_xla_extension *extension;
    const struct silo_xla_api *api;
    struct silo_xla_context *context;
    int32_t stage; /* enum silo_xla_stage */
    struct silo_xla_values args, rets;
    struct silo_xla_attributes attributes;
};

#endif
