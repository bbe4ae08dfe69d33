/* A call of other code from XLA's programs that does nothing: what XLA itself takes for any. */
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
