#include "wording.h"

#include <stdio.h>
#include <stdlib.h>

/* Makes room for `more` bytes and a final zero. Returns false if out of memory. */
static bool make_room(struct silo_wording *text, size_t more) {
    if (text->failed || more >= SIZE_MAX / 4 || text->length >= SIZE_MAX / 4) {
        text->failed = true;
        return false;
    }
    const size_t needed = text->length + more + 1;
    if (needed <= text->room)
        return true;
    const size_t room = needed < 128 ? 128 : needed * 2;
    char *data = realloc(text->data, room);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->room = room;
    return true;
}

void silo_wording_add_list(struct silo_wording *text, const char *format, va_list arguments) {
    if (text == NULL)
        return;
    va_list again;
    va_copy(again, arguments);
    const int needed = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (needed > 0 && make_room(text, (size_t)needed)) {
        vsnprintf(text->data + text->length, (size_t)needed + 1, format, arguments);
        text->length += (size_t)needed;
    }
}

void silo_wording_add(struct silo_wording *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    silo_wording_add_list(text, format, arguments);
    va_end(arguments);
}

void silo_wording_add_string(struct silo_wording *text, struct silo_string string) {
    if (text == NULL || !make_room(text, 4 * (size_t)string.length))
        return;
    for (uint32_t i = 0; i < string.length; i++) {
        const unsigned char byte = (unsigned char)string.data[i];
        if (byte < 0x20 || byte == 0x7f) {
            snprintf(text->data + text->length, 5, "\\x%02x", byte);
            text->length += 4;
        } else {
            text->data[text->length++] = (char)byte;
        }
    }
    text->data[text->length] = '\0';
}

const char *silo_wording_read(const struct silo_wording *text) {
    return text->data == NULL ? "" : text->data;
}

void silo_wording_clear(struct silo_wording *text) {
    free(text->data);
    *text = (struct silo_wording){0};
}
