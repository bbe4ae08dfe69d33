/* Loads libsilo and lets go of it 100 times, with a launch in between: no thread, file or mapping
 * may be left over that grows. Arguments: the library, a bundle of made_bundles.py. */
#include "silo.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int entries(const char *folder) {
    int found = 0;
    DIR *open = opendir(folder);
    while (open != NULL && readdir(open) != NULL)
        found++;
    if (open != NULL)
        closedir(open);
    return found;
}

static int vouch(void *context, const silo_host_code *code) {
    (void)context, (void)code;
    return 1;
}

static int mappings(void) {
    int lines = 0, byte;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && (byte = fgetc(maps)) != EOF)
        lines += byte == '\n';
    if (maps != NULL)
        fclose(maps);
    return lines;
}

static int launch(void *library, const char *path) {
    int (*open)(const char *, const silo_options *, silo_bundle **, silo_error *);
    int (*find)(silo_bundle *, const char *, silo_kernel **, silo_error *);
    int (*run)(silo_kernel *, const silo_queue *, const silo_argument *, size_t, const silo_call *,
               silo_error *);
    void (*close)(silo_bundle *);
    *(void **)&open = dlsym(library, "silo_open");
    *(void **)&find = dlsym(library, "silo_find");
    *(void **)&run = dlsym(library, "silo_launch");
    *(void **)&close = dlsym(library, "silo_close");
    const silo_options options = {.size = sizeof options, .vouch = vouch};
    const silo_queue queue = {SILO_CPU, 0, NULL};
    silo_bundle *bundle;
    silo_kernel *kernel;
    silo_error error;
    float x[64] = {1}, out[64] = {0};
    const silo_argument arguments[] = {silo_pointer(x, SILO_FLOAT32), silo_pointer(x, SILO_FLOAT32),
                                       silo_pointer(out, SILO_FLOAT32), silo_int(64)};
    if (open(path, &options, &bundle, &error) != 0 || find(bundle, "add", &kernel, &error) != 0 ||
        run(kernel, &queue, arguments, 4, NULL, &error) != 0) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    close(bundle);
    return out[0] == 2 ? 0 : 1;
}

int main(int count, char **words) {
    int threads = 0, files = 0, maps = 0;
    for (int i = 0; i < 100 && count == 3; i++) {
        void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        if (launch(library, words[2]) != 0)
            return 1;
        dlclose(library);
        if (i == 10) {
            threads = entries("/proc/self/task");
            files = entries("/proc/self/fd");
            maps = mappings();
        }
    }
    if (entries("/proc/self/task") != threads || entries("/proc/self/fd") != files ||
        mappings() > maps + 8) {
        fprintf(stderr, "left over: %d threads, %d files, %d mappings; there were %d, %d, %d\n",
                entries("/proc/self/task"), entries("/proc/self/fd"), mappings(), threads, files,
                maps);
        return 1;
    }
    puts("good");
    return 0;
}
