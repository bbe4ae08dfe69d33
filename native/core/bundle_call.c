#include "bundle_call.h"

int silo_call_read(struct silo_kernel_call *call, silo_error *error) {
    struct silo_tagged *tagged = &call->tagged;
    const struct silo_intake *intake = tagged->intake;
    tagged->descriptors_used = 0;
    tagged->new_text = false;
    if (SILO_UNLIKELY(silo_tagged_read(tagged, error) != 0))
        return -1;
    tagged->key[tagged->words++] = silo_device_word(0, call->queue->device, call->queue->index);
    for (size_t i = 0; i < call->options->option_count; i++) {
        const silo_named *option = &call->options->options[i];
        uint64_t word[2];
        const uint64_t name = silo_texts_find(tagged->texts, option->name);
        if (!silo_tagged_constant(tagged->texts, &option->value, word) || name == SILO_NO_TEXT)
            tagged->new_text = true;
        tagged->key[tagged->words++] = word[0] | (name & 0xffff);
        tagged->key[tagged->words++] = word[1];
    }
    if (SILO_UNLIKELY(intake->some_extents || intake->grid))
        return silo_tagged_extents(tagged, call->options->grid, error);
    return 0;
}
