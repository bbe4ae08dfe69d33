/* Checks the characters of names. */
#ifndef SILO_PRINTABLE_H
#define SILO_PRINTABLE_H

#include "base.h"

/* Whether all characters of a UTF-8 text can be displayed: it has no control, format or private
 * characters, and no separators other than the space. */
bool silo_printable(const char *data, size_t bytes);

#endif
