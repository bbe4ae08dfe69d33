/* Modules and launches, whatever the driver. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "stub_gpu.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- code: ELF objects of either vendor, or text with lines such as
 * "// stub: params=8,8,4 static_shared=100 max_threads=256 arch=sm_80 error=1" ---- */

static const char *directive(const struct module *module, const char *key) {
    if (module->elf)
        return NULL;
    const char *line = strstr(module->image, "// stub:");
    const char *found = line != NULL ? strstr(line, key) : NULL;
    return found != NULL ? found + strlen(key) : NULL;
}

static const Elf64_Shdr *section(const struct module *module, const char *name) {
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)module->image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(module->image + header->e_shoff);
    const char *strings = module->image + sections[header->e_shstrndx].sh_offset;
    for (int i = 0; i < header->e_shnum; i++)
        if (strcmp(strings + sections[i].sh_name, name) == 0)
            return &sections[i];
    return NULL;
}

/* The attributes that NVIDIA's assembler writes beside each kernel. */
static void read_cubin(struct function *function) {
    const struct module *module = function->module;
    char name[192];
    snprintf(name, sizeof name, ".nv.shared.%s", function->entry->name);
    const Elf64_Shdr *shared = section(module, name);
    if (shared != NULL)
        function->static_shared = (int)shared->sh_size;
    snprintf(name, sizeof name, ".nv.info.%s", function->entry->name);
    const Elf64_Shdr *info = section(module, name);
    if (info == NULL)
        return;
    const uint8_t *at = (const uint8_t *)module->image + info->sh_offset;
    const uint8_t *end = at + info->sh_size;
    while (at + 4 <= end) {
        const uint16_t value = (uint16_t)(at[2] | at[3] << 8);
        const uint8_t *data = at + 4;
        uint32_t words[3] = {0, 0, 0};
        if (at[0] == 4 && value >= 12)
            memcpy(words, data, sizeof words);
        if (at[0] == 4 && at[1] == 0x17) { /* one parameter: ordinal, size */
            const uint32_t ordinal = words[1] & 0xFFFF;
            if (ordinal < MAX_PARAMETERS) {
                function->sizes[ordinal] = words[2] >> 18;
                if (ordinal + 1 > function->count)
                    function->count = ordinal + 1;
            }
        } else if (at[0] == 4 && (at[1] == 0x05 || at[1] == 0x10)) { /* largest, or only, block */
            function->max_threads = (int)(words[0] * words[1] * words[2]);
        }
        at = data + (at[0] == 4 ? value : 0);
    }
}

int load(struct module **out, const void *image, int machine, int device, void *context, char *log,
         size_t log_bytes) {
    struct module module = {.magic = 0x5750u, .device = device, .context = context};
    const Elf64_Ehdr *header = image;
    if (memcmp(image, ELFMAG, SELFMAG) == 0) {
        module.elf = true;
        module.size = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
        if (header->e_machine != machine)
            return INVALID_IMAGE;
    } else {
        module.size = strlen(image);
        if (module.size < 4 || (memcmp(image, "//", 2) != 0 && memcmp(image, ".ver", 4) != 0))
            return INVALID_IMAGE;
    }
    module.image = malloc(module.size + 1); /* owned by the module */
    memcpy(module.image, image, module.size);
    module.image[module.size] = '\0';
    const char *arch = directive(&module, "arch=");
    int code = 0;
    if (arch != NULL && strncmp(arch, "sm_90", 5) != 0)
        code = NO_BINARY;
    if (directive(&module, "error=") != NULL) {
        code = INVALID_PTX;
        if (log != NULL)
            snprintf(log, log_bytes,
                     "ptxas application ptx input, line 7; error   : Unknown opcode");
    }
    if (code != 0) {
        free(module.image);
        return code;
    }
    *out = malloc(sizeof **out);
    **out = module;
    count_live(&live_modules, 1);
    return 0;
}

int unload(struct module *module) {
    if (module->magic != 0x5750u)
        abort(); /* unloaded twice */
    module->magic = 0;
    pthread_mutex_lock(&lock);
    live_modules--;
    unloads++;
    pthread_mutex_unlock(&lock);
    while (module->functions != NULL) {
        struct function *next = module->functions->next;
        free(module->functions);
        module->functions = next;
    }
    free(module->image);
    free(module);
    return 0;
}

int find_function(void **out, struct module *module, const char *name) {
    const size_t length = strlen(name) + (module->elf ? 1 : 0); /* an ELF name ends with a zero */
    if (memmem(module->image, module->size, name, length) == NULL)
        return NOT_FOUND;
    struct function *function = calloc(1, sizeof *function); /* owned by the module */
    function->module = module;
    function->entry = entry_of(name);
    function->max_threads = 1024;
    function->max_dynamic = function->non_portable = -1;
    if (module->elf && ((Elf64_Ehdr *)module->image)->e_machine == 190)
        read_cubin(function), function->described = true;
    const char *text = directive(module, "static_shared=");
    if (text != NULL)
        function->static_shared = atoi(text);
    text = directive(module, "max_threads=");
    if (text != NULL)
        function->max_threads = atoi(text);
    text = directive(module, "params=");
    function->described |= directive(module, "") != NULL;
    while (text != NULL && *text >= '0' && *text <= '9' && function->count < MAX_PARAMETERS) {
        function->sizes[function->count++] = (uint32_t)strtoul(text, (char **)&text, 10);
        text += *text == ',';
    }
    if (function->entry->static_shared >= 0)
        function->static_shared = function->entry->static_shared;
    if (function->entry->max_threads >= 0)
        function->max_threads = function->entry->max_threads;
    pthread_mutex_lock(&lock);
    if (function->count > 0) {
        function->entry->record.parameter_count = function->count;
        memcpy(function->entry->record.sizes, function->sizes, sizeof function->sizes);
    }
    function->next = module->functions;
    module->functions = function;
    pthread_mutex_unlock(&lock);
    *out = function;
    return 0;
}

/* ---- launching ---- */

static int check(const struct config *config, const struct function *function) {
    const uint64_t threads = (uint64_t)config->block[0] * config->block[1] * config->block[2];
    const uint32_t last = function->module->context != NULL ? 65535 : 65536;
    const uint32_t deepest = function->module->context != NULL ? 64 : 1024;
    uint32_t blocks = 1;
    if (config->block[0] > 1024 || config->block[1] > 1024 || config->block[2] > deepest)
        return INVALID_VALUE;
    if (config->grid[0] == 0 || config->grid[1] == 0 || config->grid[2] == 0 || threads == 0 ||
        threads > (uint64_t)function->max_threads || config->grid[0] > INT32_MAX ||
        config->grid[1] > last || config->grid[2] > last)
        return INVALID_VALUE;
    for (uint32_t i = 0; i < config->attribute_count; i++)
        if (config->attributes[i].id == 4) {
            const uint32_t *cluster = config->attributes[i].values;
            for (int axis = 0; axis < 3; axis++) {
                if (cluster[axis] == 0 || config->grid[axis] % cluster[axis] != 0)
                    return INVALID_CLUSTER;
                blocks *= cluster[axis];
            }
        }
    if (blocks > (function->non_portable == 1 ? 16U : 8U))
        return INVALID_CLUSTER;
    if (function->module->context != NULL && config->shared > 0 &&
        (uint64_t)config->shared + (uint64_t)function->static_shared > 49152 &&
        (int64_t)config->shared > function->max_dynamic)
        return INVALID_VALUE;
    return 0;
}

int record_launch(const struct config *config, struct function *function, void **parameters,
                  void *context, int device, int cooperative) {
    const int code = check(config, function);
    if (code != 0)
        return code;
    struct entry *entry = function->entry;
    struct record *record = &entry->record;
    pthread_mutex_lock(&lock);
    record->count++;
    memcpy(record->grid, config->grid, sizeof record->grid);
    memcpy(record->block, config->block, sizeof record->block);
    record->shared = config->shared;
    record->attribute_count = config->attribute_count;
    record->stream = (uint64_t)(uintptr_t)config->stream;
    record->context = (uint64_t)(uintptr_t)context;
    record->device = device;
    record->cooperative = cooperative;
    for (uint32_t i = 0; i < config->attribute_count && i < 8; i++) {
        record->attribute_ids[i] = config->attributes[i].id;
        memcpy(record->attribute_values[i], config->attributes[i].values, 12);
    }
    if (function->described) { /* of several functions of one name, this one */
        record->parameter_count = function->count;
        memcpy(record->sizes, function->sizes, function->count * sizeof *record->sizes);
    }
    for (uint32_t i = 0; i < record->parameter_count; i++)
        memcpy(record->data[i], parameters[i], record->sizes[i] > 128 ? 128 : record->sizes[i]);
    clock_ns += entry->cost;
    callback *run = entry->run;
    /* What is called may be Python, which lets other threads launch while it reads. */
    struct record own;
    if (run != NULL)
        own = *record;
    pthread_mutex_unlock(&lock);
    if (run != NULL)
        run(&own, parameters);
    return 0;
}
