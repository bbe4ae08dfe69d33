// Tests an exported header: typed plans of the bundle, and a plan whose launches are added.
#include "engine.hpp"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                           \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

template <class F> static int code_of(F &&call) {
    try {
        call();
    } catch (const silo::error &error) {
        return error.code();
    }
    return 0;
}

int main() {
    const std::int64_t shape[] = {1000}, few[] = {10}, rows[] = {64};
    std::vector<float> x(1000, 2.0F), y(1000, 1.0F), between(1000), out(1000);
    std::vector<std::int32_t> ints(64);
    engine::plans::sums first(silo::cpu());
    engine::plans::sums sums = std::move(first);
    NEED(sums.explain().empty());
    sums({x.data(), shape}, {y.data(), shape}, {between.data(), shape}, {out.data(), shape}, 1000);
    NEED(between[999] == 3.0F && out[999] == 5.0F);
    x[9] = 7.0F;
    sums({x.data(), few}, {y.data(), few}, {between.data(), few}, {out.data(), few}, 0);
    NEED(out[9] == 15.0F && out[10] == 5.0F);
    NEED(sums.explain().find("CPU") != std::string::npos);
    NEED(code_of([&] {
             sums({x.data(), shape}, {y.data(), shape}, {between.data(), shape},
                  {out.data(), shape}, -1);
         }) == SILO_ERROR_NO_VARIANT);

    engine::plans::rows counted(silo::cpu());
    counted({ints.data(), rows}, 2, "double");
    NEED(ints[7] == 4007);
    counted({ints.data(), rows}, 3, nullptr); // served by the form for a `mode` of another type
    NEED(ints[2] == 3002 && ints[7] == 4007);
    NEED(code_of([&] { counted({ints.data(), rows}, 2, "single"); }) == SILO_ERROR_NO_VARIANT);

    engine::plans::failing failing(silo::cpu());
    NEED(code_of([&] {
             failing({x.data(), few}, {out.data(), few}, {ints.data(), rows});
         }) == SILO_ERROR_FAULT);

    silo_error error;
    silo_kernel *add = engine_kernel("add", &error);
    NEED(add != nullptr);
    silo::plan step(silo::cpu());
    for (int turn = 0; turn < 3; turn++) {
        const silo_argument arguments[] = {
            silo_pointer(x.data(), SILO_FLOAT32), silo_pointer(y.data(), SILO_FLOAT32),
            silo_pointer(y.data(), SILO_FLOAT32), silo_int(8 + turn)};
        step.add(add, arguments);
        step.run();
    }
    NEED(y[0] == 7.0F && y[8] == 5.0F && y[9] == 8.0F && y[10] == 1.0F);
    NEED(code_of([&] { step.add(nullptr, nullptr, 0); }) == SILO_ERROR_USAGE);
    NEED(code_of([&] { step.run(); }) == SILO_ERROR_USAGE);
    NEED(code_of([&] { silo::plan(engine_bundle(&error), "none", silo::cpu()); }) ==
         SILO_ERROR_NO_KERNEL);
    silo::plan named(engine_bundle(&error), "sums", silo::cpu());
    step = std::move(named);
    NEED(code_of([&] { step.call(nullptr, 0); }) == SILO_ERROR_USAGE);
    std::printf("ended\n");
    return 0;
}
