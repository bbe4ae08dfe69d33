#include "names.h"

int silo_intern(const struct silo_name *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        *names[i].slot = PyUnicode_InternFromString(names[i].text);
        if (*names[i].slot == NULL)
            return -1;
    }
    return 0;
}
