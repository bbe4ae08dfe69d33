/* Reads files of device code from standard input, each after its size in 4 bytes, and says what the
 * core reads of their kernel "kernel" (or the one that is named): for the sanitizers. */
#include "device_code.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROOM = 4 };

int main(int argc, char **argv) {
    const char *entry = argc > 1 ? argv[1] : "kernel";
    uint32_t size;
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        struct silo_parameter_place places[ROOM];
        silo_error error;
        void *data = malloc(size); /* of exactly this size, so that a byte too far is noticed */
        if ((data == NULL && size > 0) || fread(data, 1, size, stdin) != size)
            return 1;
        const int64_t count = silo_device_code_places(data, size, entry, places, ROOM, &error);
        if (count < 0)
            printf("%s", error.text);
        for (int64_t i = 0; i < count; i++) {
            if (i < ROOM)
                printf("%zu+%zu ", places[i].offset, places[i].size);
            else
                printf("? ");
        }
        printf("\n");
        free(data);
    }
    return 0;
}
