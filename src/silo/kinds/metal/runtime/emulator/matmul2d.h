// <MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h>: matrix products.
// The threads of a group compute a product together.
// Each thread computes its own elements, so no thread waits for another.
#pragma once

#include "arguments.h"
#include "tensor.h"

namespace mpp::tensor_ops {

constexpr int dynamic_length_v = -1;

template <int n> struct execution_simdgroups {
    static constexpr unsigned threads = unsigned(n) * silo_metal::simd_width;
};
using execution_simdgroup = execution_simdgroups<1>;
struct execution_thread {
    static constexpr unsigned threads = 1;
};

struct matmul2d_descriptor {
    enum class mode { multiply, multiply_accumulate };

    int m, n, k;
    bool transpose_left, transpose_right, relaxed_precision;
    mode matmul_mode;

    constexpr matmul2d_descriptor(int m, int n, int k = dynamic_length_v,
                                  bool transpose_left = false, bool transpose_right = false,
                                  bool relaxed_precision = false, mode how = mode::multiply)
        : m(m), n(n), k(k), transpose_left(transpose_left), transpose_right(transpose_right),
          relaxed_precision(relaxed_precision), matmul_mode(how) {}
};

// A matrix of m rows and n columns, distributed over the threads.
// Element i of thread t is element i * threads + t of the matrix, row by row.
template <class T, int m, int n, unsigned threads> class cooperative_tensor {
  public:
    using element_type = T;
    static constexpr int most = (m * n + int(threads) - 1) / int(threads);

    T elements[most];

    static int own() {
        return threads == 1 ? 0 : int(silo_metal::runner().current);
    }
    static constexpr int get_capacity() {
        return most;
    }
    static int size() {
        const int t = own();
        return t >= int(threads) || t >= m * n ? 0 : (m * n - t + int(threads) - 1) / int(threads);
    }
    static bool is_valid_element(int i) {
        return i < size();
    }
    static bool get_mask(int i) {
        return is_valid_element(i);
    }
    T *begin() {
        return elements;
    }
    T *end() {
        return elements + size();
    }
    T &operator[](int i) {
        return elements[i];
    }
    const T &operator[](int i) const {
        return elements[i];
    }
    // Returns (column, row), in the order of a tensor's axes.
    static metal::array<int, 2> get_multidimensional_index(int i) {
        const int at = i * int(threads) + own();
        return {at % n, at / n};
    }
    template <class V> void load(const V &from) {
        for (int i = 0; i < size(); i++) {
            const auto at = get_multidimensional_index(i);
            elements[i] = from.holds(at[0], at[1]) ? T(from.at(at[0], at[1])) : T(0);
        }
    }
    template <class V> void store(const V &to) const {
        using E = typename V::value_type;
        for (int i = 0; i < size(); i++) {
            const auto at = get_multidimensional_index(i);
            if (to.holds(at[0], at[1]))
                to.at(at[0], at[1]) = E(elements[i]);
        }
    }
};

template <matmul2d_descriptor what, class Scope> class matmul2d {
    static constexpr bool adds = what.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;

    template <class A, class B, class S>
    static S product(const A &a, const B &b, int row, int column) {
        long length = a.sizes[what.transpose_left ? 1 : 0];
        const long other = b.sizes[what.transpose_right ? 0 : 1];
        length = other < length ? other : length;
        if (what.k != dynamic_length_v && what.k < length)
            length = what.k;
        if (row >= a.sizes[what.transpose_left ? 0 : 1] ||
            column >= b.sizes[what.transpose_right ? 1 : 0])
            return S(0);
        S sum = 0;
        for (long k = 0; k < length; k++)
            sum += S(what.transpose_left ? a.at(row, k) : a.at(k, row)) *
                   S(what.transpose_right ? b.at(k, column) : b.at(column, k));
        return sum;
    }

    template <class T> using Sum = metal::conditional_t<silo_metal::is_real<T>, float, int>;

  public:
    template <class A, class B, class T>
    using result = cooperative_tensor<T, what.m, what.n, Scope::threads>;

    template <class A, class B, class T>
    result<A, B, T> get_destination_cooperative_tensor() const {
        return result<A, B, T>{};
    }
    template <class A, class B, class T, int m, int n, unsigned threads>
    void run(const A &a, const B &b, thread cooperative_tensor<T, m, n, threads> &to) const {
        for (int i = 0; i < to.size(); i++) {
            const auto at = to.get_multidimensional_index(i);
            const auto sum = product<A, B, Sum<T>>(a, b, at[1], at[0]);
            to[i] = adds ? T(to[i] + sum) : T(sum);
        }
    }
    template <class A, class B, class T, class E, class K>
    void run(const A &a, const B &b, const metal::tensor<T, E, K> &to) const {
        using V = metal::remove_cv_t<T>;
        cooperative_tensor<V, what.m, what.n, Scope::threads> tile;
        if (adds)
            tile.load(to);
        run(a, b, tile);
        tile.store(to);
    }
};

} // namespace mpp::tensor_ops
