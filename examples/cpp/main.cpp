// Calls kernels that `silo export` compiled into the program: without a bundle file or names to
// look up at run time, and with argument types that the compiler checks.
//
//     silo export kernels.silo --cpp kernels && cmake -S . -B build && cmake --build build &&
//     build/main
#include <kernels.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

// Computes c = leaky_relu(a @ b) for row-major arrays (the strides passed below) and checks the
// result.
bool multiply(std::int64_t m, std::int64_t n, std::int64_t k) {
    std::vector<float> a(std::size_t(m * k)), b(std::size_t(k * n)), c(std::size_t(m * n));
    for (std::size_t i = 0; i < a.size(); i++)
        a[i] = float(i % 7) - 3.0f;
    for (std::size_t i = 0; i < b.size(); i++)
        b[i] = float(i % 5) - 2.0f;
    kernels::matmul(silo::cpu(), a.data(), b.data(), c.data(), m, n, k, k, 1, n, 1, n, 1,
                    kernels::matmul_ACTIVATION::leaky_relu);
    for (std::int64_t row = 0; row < m; row++)
        for (std::int64_t column = 0; column < n; column++) {
            double sum = 0;
            for (std::int64_t i = 0; i < k; i++)
                sum += double(a[std::size_t(row * k + i)]) * double(b[std::size_t(i * n + column)]);
            const double expected = sum >= 0 ? sum : 0.01 * sum;
            if (std::fabs(double(c[std::size_t(row * n + column)]) - expected) > 1e-3)
                return false;
        }
    return true;
}

} // namespace

int main() {
    std::vector<float> x(100003, 1.5f), y(x.size(), 2.0f), out(x.size());
    kernels::add(silo::cpu(), x.data(), y.data(), out.data(), std::int64_t(x.size()));
    bool right = true;
    for (const float value : out)
        right = right && value == 3.5f;
    std::printf("add: %s\n", right ? "right" : "wrong");

    const bool product = multiply(256, 256, 256) && multiply(200, 333, 150);
    std::printf("matmul: %s\n", product ? "right" : "wrong");

    // A call that cannot run throws an exception with the reason; the reason here is the null
    // pointer.
    try {
        kernels::add(silo::cpu(), x.data(), y.data(), nullptr, 16);
        return 1;
    } catch (const silo::error &error) {
        std::printf("%s: %s\n", silo_code_name(error.code()), error.what());
    }
    return right && product ? 0 : 1;
}
