// The cases of @ORIGIN@: their arrays are made, the kernels run, and what they leave is compared with
// what was expected when the bundle was built. Made by `silo export`.
#include "selftest.hpp"

#include "../@NAME@.hpp"

namespace {

@CASES@const silo_selftest::test tests[] = {
@ROWS@};

} // namespace

int main(int count, char **words) {
    return silo_selftest::main_of(count, words, tests, sizeof tests / sizeof tests[0]);
}
