#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends a text that was cut off with "...", without cutting a UTF-8 character. `used` is the full
 * length in bytes. */
static void mark_cut(char *text, size_t room, int used) {
    static const char mark[] = "...";
    if (used >= 0 && (size_t)used < room)
        return;
    size_t end = room - sizeof mark;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) /* inside of a UTF-8 character */
        end--;
    memcpy(text + end, mark, sizeof mark);
}

static void begin(silo_error *error, int code) {
    error->code = code;
    error->driver_code = 0;
    error->offset = UINT64_MAX;
    error->field[0] = '\0';
    error->details = NULL;
}

int silo_fail_with(silo_error *error, int code, const char *format, va_list arguments) {
    if (error == NULL)
        return -1;
    begin(error, code);
    const int used = vsnprintf(error->text, sizeof error->text, format, arguments);
    mark_cut(error->text, sizeof error->text, used);
    return -1;
}

int silo_fail(silo_error *error, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    silo_fail_with(error, code, format, arguments);
    va_end(arguments);
    return -1;
}

int silo_fail_at(silo_error *error, int code, const char *field, uint64_t offset,
                 const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    silo_fail_with(error, code, format, arguments);
    va_end(arguments);
    if (error == NULL)
        return -1;
    const int used = snprintf(error->field, sizeof error->field, "%s", field);
    mark_cut(error->field, sizeof error->field, used);
    error->offset = offset;
    return -1;
}

int silo_fail_driver(silo_error *error, int code, int driver_code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    silo_fail_with(error, code, format, arguments);
    va_end(arguments);
    if (error != NULL)
        error->driver_code = driver_code;
    return -1;
}

int silo_fail_long(silo_error *error, int code, int driver_code, const char *format, ...) {
    va_list arguments;
    if (error == NULL)
        return -1;
    begin(error, code);
    error->driver_code = driver_code;
    va_start(arguments, format);
    const int used = vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    mark_cut(error->text, sizeof error->text, used);
    if (used >= 0 && (size_t)used >= sizeof error->text)
        /* owned by the error; if out of memory, only the cut text remains */
        error->details = malloc((size_t)used + 1);
    if (error->details != NULL) {
        va_start(arguments, format);
        vsnprintf(error->details, (size_t)used + 1, format, arguments);
        va_end(arguments);
    }
    return -1;
}

int silo_fail_memory(silo_error *error) {
    return silo_fail(error, SILO_ERROR_MEMORY, "out of memory");
}

void silo_error_clear(silo_error *error) {
    if (error == NULL)
        return;
    free(error->details);
    begin(error, SILO_OK);
    error->text[0] = '\0';
}

const char *silo_code_name(int code) {
    switch ((enum silo_code)code) {
    case SILO_OK:
        return "no error";
    case SILO_ERROR_FILE:
        return "unreadable file";
    case SILO_ERROR_FOREIGN:
        return "not a .silo file";
    case SILO_ERROR_TRUNCATED:
        return "truncated file";
    case SILO_ERROR_DAMAGED:
        return "damaged file";
    case SILO_ERROR_NEWER:
        return "newer file";
    case SILO_ERROR_TOO_LARGE:
        return "file too large";
    case SILO_ERROR_CODEC:
        return "no zstd";
    case SILO_ERROR_USAGE:
        return "wrong usage";
    case SILO_ERROR_NO_KERNEL:
        return "no kernel";
    case SILO_ERROR_MISSING:
        return "missing argument";
    case SILO_ERROR_NULL:
        return "null pointer";
    case SILO_ERROR_KIND:
        return "wrong argument kind";
    case SILO_ERROR_DTYPE:
        return "wrong dtype";
    case SILO_ERROR_MISALIGNED:
        return "misaligned address";
    case SILO_ERROR_SHAPE:
        return "wrong shape";
    case SILO_ERROR_GRID:
        return "wrong grid";
    case SILO_ERROR_EXPRESSION:
        return "expression without value";
    case SILO_ERROR_NO_VARIANT:
        return "no variant";
    case SILO_ERROR_UNTRUSTED:
        return "untrusted code";
    case SILO_ERROR_CAPTURING:
        return "graph being captured";
    case SILO_ERROR_UNSUPPORTED:
        return "unsupported code";
    case SILO_ERROR_NO_DRIVER:
        return "no driver";
    case SILO_ERROR_NO_DEVICE:
        return "no device";
    case SILO_ERROR_WRONG_DEVICE:
        return "wrong device";
    case SILO_ERROR_LIMIT:
        return "device limit exceeded";
    case SILO_ERROR_LOAD:
        return "code not loaded";
    case SILO_ERROR_LAUNCH:
        return "launch refused";
    case SILO_ERROR_FAULT:
        return "kernel fault";
    case SILO_ERROR_FORKED:
        return "forked process";
    case SILO_ERROR_MEMORY:
        return "out of memory";
    case SILO_ERROR_INTERNAL:
        return "internal error";
    }
    return "unknown error";
}
