/* A handler of XLA's foreign function interface that does nothing: it shows how long XLA itself
 * takes for any such call. */
#include "xla_abi.h"

__attribute__((visibility("default"))) struct silo_xla_error *
empty_handler(struct silo_xla_frame *frame);

struct silo_xla_error *empty_handler(struct silo_xla_frame *frame) {
    const struct silo_xla_extension *extension = frame->extension;
    if (extension != NULL && extension->type == SILO_XLA_EXTENSION) {
        struct silo_xla_metadata *told =
            ((const struct silo_xla_metadata_extension *)extension)->metadata;
        told->version.major = SILO_XLA_MAJOR;
        told->version.minor = MINOR;
        told->traits = SILO_XLA_CAPTURES;
    }
    return NULL;
}
