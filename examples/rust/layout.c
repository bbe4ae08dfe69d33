/* Compares the sizes and offsets that src/ffi.rs declares with silo.h. build.rs compiles this file.
 */
#include <silo.h>

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define FIELD(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), #type "." #field)

_Static_assert(SILO_VERSION_MAJOR == 0, "src/ffi.rs is written for version 0");

SIZE(silo_error, 1176);
FIELD(silo_error, driver_code, 4);
FIELD(silo_error, offset, 8);
FIELD(silo_error, field, 16);
FIELD(silo_error, text, 144);
FIELD(silo_error, details, 1168);

SIZE(silo_argument, 40);
FIELD(silo_argument, flags, 1);
FIELD(silo_argument, element, 2);
FIELD(silo_argument, rank, 4);
FIELD(silo_argument, value, 8);
FIELD(silo_argument, shape, 16);
FIELD(silo_argument, strides, 24);
FIELD(silo_argument, block, 32);

SIZE(silo_queue, 16);
FIELD(silo_queue, index, 4);
FIELD(silo_queue, stream, 8);

SIZE(silo_host_code, 56);
FIELD(silo_host_code, identity, 16);
FIELD(silo_host_code, sha256, 24);
FIELD(silo_host_code, digest, 32);
FIELD(silo_host_code, data, 40);
FIELD(silo_host_code, bytes, 48);

/* A newer header may have more members at the end of a struct: the program states in `size` how
 * many bytes it knows. */
_Static_assert(sizeof(silo_options) >= 80, "silo_options");
FIELD(silo_options, flags, 8);
FIELD(silo_options, context, 16);
FIELD(silo_options, file_memory, 24);
FIELD(silo_options, vouch, 32);
FIELD(silo_options, log, 40);
FIELD(silo_options, allocate, 48);
FIELD(silo_options, release, 56);
FIELD(silo_options, cuda_library, 64);
FIELD(silo_options, hip_library, 72);

_Static_assert(SILO_FLOAT32 == 0x0220 && SILO_FLOAT64 == 0x0240, "element types");
_Static_assert(SILO_INT8 == 0x0008 && SILO_INT32 == 0x0020 && SILO_INT64 == 0x0040, "the same");
_Static_assert(SILO_UINT8 == 0x0108 && SILO_UINT32 == 0x0120 && SILO_UINT64 == 0x0140, "the same");
_Static_assert(SILO_ARGUMENT_POINTER == 1 && SILO_ARGUMENT_INT == 4 && SILO_ARGUMENT_BOOL == 5 &&
                   SILO_ARGUMENT_FLOAT == 6 && SILO_ARGUMENT_TEXT == 8,
               "kinds of arguments");
_Static_assert(SILO_CPU == 1 && SILO_CUDA == 2 && SILO_ROCM == 10, "kinds of devices");
