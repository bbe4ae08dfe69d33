// Uses an exported bundle on GPUs, with memory, streams and graphs of the driver's own.
//
//     export_program MODE LIBRARY [stub]
//
// LIBRARY is the driver. A stub of it computes nothing, so results are not compared then. Ends with
// 0 and a line "ok ...", or says what was wrong.
#include "engine.hpp"

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using handle = void *;

[[noreturn]] void stop(const std::string &what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
}

void require(bool holds, const std::string &what) {
    if (!holds)
        stop(what);
}

// The driver, as the program itself uses it.
struct driver {
    handle library;
    bool computes;

    template <class... Types> int operator()(const char *name, Types... arguments) const {
        void *found = dlsym(library, name);
        require(found != nullptr, name);
        int (*function)(Types...);
        std::memcpy(&function, &found, sizeof found);
        return function(arguments...);
    }

    template <class... Types> void must(const char *name, Types... arguments) const {
        const int code = (*this)(name, arguments...);
        require(code == 0, std::string(name) + ": error " + std::to_string(code));
    }

    int count() const {
        int number = 0;
        must("cuDeviceGetCount", &number);
        return number;
    }

    // The primary context of a device, current in this thread.
    handle use(int index) const {
        int device = 0;
        handle context = nullptr;
        must("cuDeviceGet", &device, index);
        must("cuDevicePrimaryCtxRetain", &context, device);
        must("cuCtxSetCurrent", context);
        return context;
    }
};

constexpr std::int64_t count = 100003;

// x, y and out of `add` on the current device.
struct arrays {
    const driver &gpu;
    std::uint64_t address[3] = {0, 0, 0};

    arrays(const driver &of, float step) : gpu(of) {
        for (auto &one : address)
            gpu.must("cuMemAlloc_v2", &one, sizeof(float) * std::size_t(count));
        fill(step);
    }
    arrays(const arrays &) = delete;
    arrays &operator=(const arrays &) = delete;
    ~arrays() {
        for (auto &one : address)
            gpu("cuMemFree_v2", one);
    }

    void fill(float step) {
        std::vector<float> values(std::size_t(count), step);
        copy(address[1], where(values), values.size());
        values.assign(values.size(), -1.0f);
        copy(address[2], where(values), values.size());
        for (std::size_t i = 0; i < values.size(); i++)
            values[i] = float(i);
        copy(address[0], where(values), values.size());
    }

    static std::uint64_t where(const std::vector<float> &values) {
        return reinterpret_cast<std::uintptr_t>(values.data());
    }

    void copy(std::uint64_t to, std::uint64_t from, std::size_t elements) const {
        gpu.must("cuMemcpyAsync", to, from, elements * sizeof(float), handle(nullptr));
        gpu.must("cuCtxSynchronize");
    }

    float *at(int number) const {
        return reinterpret_cast<float *>(static_cast<std::uintptr_t>(address[number]));
    }

    void compare(float step, const char *what) const {
        std::vector<float> made(std::size_t(count), 0.0f);
        copy(where(made), address[2], made.size());
        for (std::size_t i = 0; gpu.computes && i < made.size(); i++)
            require(made[i] == float(i) + step,
                    std::string(what) + ": element " + std::to_string(i) + " is wrong");
    }

    bool untouched() const {
        std::vector<float> made(1, 0.0f);
        copy(where(made), address[2], 1);
        return made[0] == -1.0f;
    }
};

handle stream_of(const driver &gpu) {
    handle stream = nullptr;
    gpu.must("cuStreamCreate", &stream, 1u);
    return stream;
}

// The code of an error that a call must end with.
template <class Call> int code_of(const char *what, Call call) {
    try {
        call();
    } catch (const silo::error &error) {
        std::printf("%s: %s: %s\n", what, silo_code_name(error.code()), error.what());
        require(std::strlen(error.what()) > 10, std::string(what) + ": says nothing");
        return error.code();
    }
    stop(std::string(what) + ": no error");
}

void every_device(const driver &gpu) {
    for (int index = 0; index < gpu.count(); index++) {
        gpu.use(index);
        arrays data(gpu, 2.0f);
        handle stream = stream_of(gpu);
        engine::add(silo::cuda(stream, index), data.at(0), data.at(1), data.at(2), count);
        gpu.must("cuStreamSynchronize", stream);
        data.compare(2.0f, "add");
        handle before = nullptr, after = nullptr;
        gpu.must("cuCtxGetCurrent", &before);
        data.fill(3.0f);
        engine::add(silo::cuda(nullptr, index), data.at(0), data.at(1), data.at(2), count);
        gpu.must("cuCtxGetCurrent", &after);
        require(before == after, "another context is current after a launch");
        gpu.must("cuCtxSynchronize");
        data.compare(3.0f, "add on the default stream");
        gpu.must("cuStreamDestroy_v2", stream);
    }
    std::printf("ok on %d devices\n", gpu.count());
}

// Several threads on every device, without a word to the driver about which is current before the
// launch.
void threads(const driver &gpu) {
    std::vector<std::thread> running;
    for (int number = 0; number < 2 * gpu.count() || number < 4; number++)
        running.emplace_back([&gpu, number] {
            const int index = number % gpu.count();
            gpu.use(index);
            arrays data(gpu, float(number));
            handle stream = stream_of(gpu);
            gpu.must("cuCtxSetCurrent", handle(nullptr));
            for (int turn = 0; turn < 200; turn++)
                engine::add(silo::cuda(stream, index), data.at(0), data.at(1), data.at(2), count);
            gpu.use(index);
            gpu.must("cuStreamSynchronize", stream);
            data.compare(float(number), "add in a thread");
        });
    for (auto &one : running)
        one.join();
    std::printf("ok in %zu threads\n", running.size());
}

void capture(const driver &gpu) {
    gpu.use(0);
    arrays data(gpu, 4.0f);
    handle stream = stream_of(gpu), graph = nullptr, made = nullptr;
    const silo::queue queue = silo::cuda(stream, 0);
    gpu.must("cuStreamBeginCapture_v2", stream, 0);
    const int code = code_of("a first call in a capture", [&] {
        engine::add(queue, data.at(0), data.at(1), data.at(2), count);
    });
    require(code == SILO_ERROR_CAPTURING, "not SILO_ERROR_CAPTURING");
    gpu.must("cuStreamEndCapture", stream, &graph); // the capture is whole

    engine::warmup::add(queue, data.at(0), data.at(1), data.at(2), count);
    gpu.must("cuStreamSynchronize", stream);
    require(data.untouched(), "warmup has launched");
    gpu.must("cuStreamBeginCapture_v2", stream, 0);
    engine::add(queue, data.at(0), data.at(1), data.at(2), count);
    gpu.must("cuStreamEndCapture", stream, &graph);
    require(data.untouched(), "a captured launch has run");
    gpu.must("cuGraphInstantiateWithFlags", &made, graph, 0ull);
    for (float step : {4.0f, 5.0f}) {
        data.fill(step);
        gpu.must("cuGraphLaunch", made, stream);
        gpu.must("cuStreamSynchronize", stream);
        data.compare(step, "the graph");
    }
    engine::close(); // the graph keeps what it launches
    data.fill(6.0f);
    gpu.must("cuGraphLaunch", made, stream);
    gpu.must("cuStreamSynchronize", stream);
    data.compare(6.0f, "the graph after close");
    std::printf("ok in a graph\n");
}

void errors(const driver &gpu) {
    gpu.use(0);
    arrays data(gpu, 1.0f);
    float *const x = data.at(0), *const y = data.at(1), *const out = data.at(2);
    // While no call of this kind has gone well, each asks the driver where the memory is.
    std::vector<float> host(std::size_t(count), 0.0f);
    require(code_of("host memory", [&] { engine::add(silo::cuda(), x, y, host.data(), count); }) ==
                SILO_ERROR_WRONG_DEVICE,
            "not SILO_ERROR_WRONG_DEVICE");
    if (gpu.count() > 1) {
        gpu.use(1);
        arrays far(gpu, 1.0f);
        gpu.use(0);
        require(code_of("memory of another device",
                        [&] { engine::add(silo::cuda(), x, y, far.at(2), count); }) ==
                    SILO_ERROR_WRONG_DEVICE,
                "not SILO_ERROR_WRONG_DEVICE");
        gpu.use(1); // where its memory is freed
    }
    gpu.use(0);
    require(code_of("a device that is not there",
                    [&] { engine::add(silo::cuda(nullptr, 99), x, y, out, count); }) ==
                SILO_ERROR_NO_DEVICE,
            "not SILO_ERROR_NO_DEVICE");
    require(code_of("a null pointer", [&] { engine::add(silo::cuda(), x, y, nullptr, count); }) ==
                SILO_ERROR_NULL,
            "not SILO_ERROR_NULL");

    handle other = nullptr, foreign = nullptr, primary = gpu.use(0);
    int device = 0;
    gpu.must("cuDeviceGet", &device, 0);
    gpu.must("cuCtxCreate_v2", &other, 0u, device);
    foreign = stream_of(gpu);
    gpu.must("cuCtxSetCurrent", primary);
    const int code = code_of("a stream of another context",
                             [&] { engine::add(silo::cuda(foreign, 0), x, y, out, count); });
    require(code == SILO_ERROR_WRONG_DEVICE || code == SILO_ERROR_LAUNCH,
            "neither of the codes for it");
    if (gpu.count() > 1) {
        gpu.use(1);
        handle second = stream_of(gpu);
        gpu.use(0);
        const int there = code_of("a stream of another device",
                                  [&] { engine::add(silo::cuda(second, 0), x, y, out, count); });
        require(there == SILO_ERROR_WRONG_DEVICE || there == SILO_ERROR_LAUNCH,
                "neither of the codes for it");
    }
    // The program goes on.
    gpu.use(0);
    engine::add(silo::cuda(), x, y, out, count);
    gpu.must("cuCtxSynchronize");
    data.compare(1.0f, "add after the errors");
    std::printf("ok after errors\n");
}

// What a kernel's fault does to the process: it is told, and the process ends in order. Only a
// first call of its kind asks the driver about memory, so a later one reaches the kernel with an
// address that is nobody's.
void fault(const driver &gpu) {
    gpu.use(0);
    arrays data(gpu, 1.0f);
    engine::add(silo::cuda(), data.at(0), data.at(1), data.at(2), count);
    gpu.must("cuCtxSynchronize");
    float *const nowhere = reinterpret_cast<float *>(std::uintptr_t{256});
    engine::add(silo::cuda(), nowhere, nowhere, nowhere, count);
    const int driver_code = gpu("cuCtxSynchronize");
    require(driver_code != 0 || !gpu.computes, "the kernel did not fail");
    if (driver_code != 0) {
        const int code = code_of("a call after a fault", [&] {
            engine::add(silo::cuda(), data.at(0), data.at(1), data.at(2), count);
        });
        require(code == SILO_ERROR_FAULT, "not SILO_ERROR_FAULT");
    }
    engine::close();
    std::printf("ok after a fault\n");
}

// Where there is no driver: an error, and the program goes on.
void absent() {
    float x = 1.0f;
    const int code = code_of("no driver", [&] { engine::add(silo::cuda(), &x, &x, &x, 1); });
    require(code == SILO_ERROR_NO_DRIVER, "not SILO_ERROR_NO_DRIVER");
    std::printf("ok without a driver\n");
}

void no_python() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        require(line.find("python") == std::string::npos &&
                    line.find("_native") == std::string::npos,
                line);
}

} // namespace

int main(int argc, char **argv) {
    require(argc >= 3, "usage: export_program MODE LIBRARY [stub]");
    const std::string mode = argv[1];
    silo_options options = {};
    options.size = sizeof options;
    options.cuda_library = argv[2];
    engine::open(options);
    const driver gpu{dlopen(argv[2], RTLD_NOW), argc == 3};
    if (mode == "absent") {
        absent();
        return 0;
    }
    require(gpu.library != nullptr, "no driver");
    gpu.must("cuInit", 0u);
    if (mode == "devices")
        every_device(gpu);
    else if (mode == "threads")
        threads(gpu);
    else if (mode == "capture")
        capture(gpu);
    else if (mode == "errors")
        errors(gpu);
    else if (mode == "fault")
        fault(gpu);
    else
        stop("no such mode");
    no_python();
    return 0;
}
