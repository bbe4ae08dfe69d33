// Places in the text of a kernel, for messages.
#pragma once

namespace silo_threads {

// As a default argument, `Place place = Place::here()` is the place of the call. The kernel's text
// is compiled under #line, so for a call there it is the user's file and line. For a call in a
// library header it is the header.
struct Place {
    const char *file = "";
    unsigned line = 0;

    static constexpr Place here(const char *file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) {
        return Place{file, line};
    }
};

} // namespace silo_threads
