/* Which characters a name may have. */
#ifndef SILO_PRINTABLE_H
#define SILO_PRINTABLE_H

#include "base.h"

/* Whether every character of a UTF-8 text can be shown as it is: no control, format, separator
 * (but the space) or private characters. */
bool silo_printable(const char *data, size_t bytes);

#endif
