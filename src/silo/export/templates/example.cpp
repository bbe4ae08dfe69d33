// A call of one kernel of @ORIGIN@. Made by `silo export`.
#include "@NAME@.hpp"

#include <cstdio>
#include <vector>

int main() {
    try {
@BODY@    } catch (const silo::error &error) {
        std::fprintf(stderr, "%s\n%s\n", error.what(), error.details().c_str());
        return 1;
    }
    return 0;
}
