#include "printable.h"

/* The ranges of code points that names must not contain. The list is fixed, so that the version of
 * Unicode does not decide which bundles can be read. A test compares the list with
 * tests/samples/hidden_characters.py. */
static const uint32_t HIDDEN[][2] = {
    {0x0000, 0x001F},   {0x007F, 0x00A0},   {0x00AD, 0x00AD},    {0x0600, 0x0605},
    {0x061C, 0x061C},   {0x06DD, 0x06DD},   {0x070F, 0x070F},    {0x0890, 0x0891},
    {0x08E2, 0x08E2},   {0x1680, 0x1680},   {0x180E, 0x180E},    {0x2000, 0x200F},
    {0x2028, 0x202F},   {0x205F, 0x206F},   {0x3000, 0x3000},    {0xD800, 0xF8FF},
    {0xFDD0, 0xFDEF},   {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},    {0xFFFE, 0xFFFF},
    {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F},  {0x1BCA0, 0x1BCA3},
    {0x1D173, 0x1D17A}, {0x1FFFE, 0x1FFFF}, {0x2FFFE, 0x2FFFF},  {0x3FFFE, 0x3FFFF},
    {0x4FFFE, 0x4FFFF}, {0x5FFFE, 0x5FFFF}, {0x6FFFE, 0x6FFFF},  {0x7FFFE, 0x7FFFF},
    {0x8FFFE, 0x8FFFF}, {0x9FFFE, 0x9FFFF}, {0xAFFFE, 0xAFFFF},  {0xBFFFE, 0xBFFFF},
    {0xCFFFE, 0xCFFFF}, {0xDFFFE, 0xE00FF}, {0xE01F0, 0x10FFFF},
};

bool silo_printable(const char *data, size_t bytes) {
    const unsigned char *cursor = (const unsigned char *)data, *end = cursor + bytes;
    while (cursor < end) {
        uint32_t code = *cursor++;
        if (code >= 0x20 && code < 0x7F)
            continue;
        if (code >= 0x80) {
            int more = code >= 0xF0 ? 3 : code >= 0xE0 ? 2 : 1;
            code &= 0x3Fu >> more;
            for (; more > 0 && cursor < end; more--)
                code = code << 6 | (*cursor++ & 0x3Fu);
        }
        for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++) {
            if (code >= HIDDEN[i][0] && code <= HIDDEN[i][1])
                return false;
        }
    }
    return true;
}
