// Measures calls of an export's typed functions beside silo_launch, and the time to the first
// result of a program that contains the kernel's code. Built and run by programs.py.
//
//     calls ROUNDS BURST
//
// Prints one JSON object: the nanoseconds of the first call, and for calls with an empty grid and
// with 1,024 elements, each through the export's header ("typed") and through silo_launch
// ("plain"), the nanoseconds of a call in every round.
#include "engine.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

double now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return double(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

template <class Call> double burst(int launches, Call call) {
    const double begin = now();
    for (int i = 0; i < launches; i++)
        call();
    return (now() - begin) / launches;
}

void print(const char *name, const std::vector<double> &samples) {
    std::printf(", \"%s\": [", name);
    for (std::size_t i = 0; i < samples.size(); i++)
        std::printf("%s%.2f", i > 0 ? ", " : "", samples[i]);
    std::printf("]");
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    const int rounds = std::atoi(argv[1]), launches = std::atoi(argv[2]), skipped = 2;
    alignas(64) static float x[1024], y[1024], out[1024];
    for (int i = 0; i < 1024; i++) {
        x[i] = float(i);
        y[i] = 1.0f;
    }
    const silo::queue cpu = silo::cpu();
    const double begin = now();
    engine::add(cpu, x, y, out, 1024);
    const double first = now() - begin;
    if (out[1023] != 1024.0f)
        return 1;

    engine::warmup::add(cpu, x, y, out,
                        0); // loads the code, which a call with an empty grid does not
    silo_error error;
    silo_kernel *const kernel = engine_kernel("add", &error);
    if (kernel == nullptr)
        return 1;
    const auto plain = [&](std::int64_t count) {
        const silo_argument arguments[] = {silo_pointer(x, SILO_FLOAT32),
                                           silo_pointer(y, SILO_FLOAT32),
                                           silo_pointer(out, SILO_FLOAT32), silo_int(count)};
        if (silo_launch(kernel, &cpu, arguments, 4, nullptr, &error) != 0)
            std::exit(1);
    };
    std::vector<double> typed_empty, plain_empty, typed_launch, plain_launch;
    for (int round = -skipped; round < rounds; round++) {
        const double one = burst(launches, [&] { engine::add(cpu, x, y, out, 0); });
        const double two = burst(launches, [&] { plain(0); });
        const double three = burst(launches, [&] { engine::add(cpu, x, y, out, 1024); });
        const double four = burst(launches, [&] { plain(1024); });
        if (round < 0)
            continue;
        typed_empty.push_back(one);
        plain_empty.push_back(two);
        typed_launch.push_back(three);
        plain_launch.push_back(four);
    }
    std::printf("{\"first result\": %.0f, \"right\": true", first);
    print("typed empty", typed_empty);
    print("plain empty", plain_empty);
    print("typed launch", typed_launch);
    print("plain launch", plain_launch);
    std::printf("}\n");
    return 0;
}
