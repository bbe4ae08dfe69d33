/* Kernels as custom operators of torch, through its stable ABI: a single build works with torch
 * 2.10 and all later releases. Included by the library that an export generates for torch; C++17.
 *
 * An operator passes dtype, device, shape and strides of its tensors to the kernel, and runs on
 * torch's current stream. Tensors that it writes are marked as modified, so that autograd raises an
 * error if it had saved their old values. Errors are thrown as std::runtime_error, which torch
 * raises as RuntimeError. */
#ifndef SILO_TORCH_OP_H
#define SILO_TORCH_OP_H

/* Torch 2.10, the oldest release whose boxed operators can take lists and strings. */
#ifndef TORCH_TARGET_VERSION
#define TORCH_TARGET_VERSION 0x020a000000000000ULL
#endif

#include "framework.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace silo_torch {

/* The type of a parameter in the operator's schema. */
enum class given : uint8_t { tensor, descriptor, integer, real, boolean, text, dtype };

struct parameter {
    const char *name;
    uint16_t place; /* index among all parameters of the kernel; ascending */
    given type;
    bool optional; /* the schema has "Tensor?", "int?", ... */
    bool writes;   /* the schema has "Tensor(a!)" */
};

/* An operator. Its arguments are `parameters`, with the block of each descriptor after its tensor,
 * and then the grid. */
struct operation {
    const char *name;
    int at; /* number of the kernel in the exported library */
    const parameter *parameters;
    uint32_t count;
    const silo_framework *(*library)();
};

/* ---- properties of a tensor ---- */

inline void check(AOTITorchError code, const char *property) {
    if (code != TORCH_SUCCESS)
        throw std::runtime_error(std::string("torch cannot give ") + property + " of a tensor");
}

/* Converts torch's number of a dtype to enum silo_element; 0 for other dtypes. The numbers are not
 * part of torch's ABI, so torch's functions are called for them. */
inline int element_of(int32_t dtype) {
    struct entry {
        int32_t dtype;
        int element;
    };
    static const std::array<entry, 17> table{{
        {aoti_torch_dtype_float32(), SILO_FLOAT32},
        {aoti_torch_dtype_float16(), SILO_FLOAT16},
        {aoti_torch_dtype_bfloat16(), SILO_BFLOAT16},
        {aoti_torch_dtype_int32(), SILO_INT32},
        {aoti_torch_dtype_int64(), SILO_INT64},
        {aoti_torch_dtype_float64(), SILO_FLOAT64},
        {aoti_torch_dtype_bool(), SILO_BOOL8},
        {aoti_torch_dtype_int8(), SILO_INT8},
        {aoti_torch_dtype_uint8(), SILO_UINT8},
        {aoti_torch_dtype_int16(), SILO_INT16},
        {aoti_torch_dtype_uint16(), SILO_UINT16},
        {aoti_torch_dtype_uint32(), SILO_UINT32},
        {aoti_torch_dtype_uint64(), SILO_UINT64},
        {aoti_torch_dtype_float8_e4m3fn(), SILO_FP8_E4M3FN},
        {aoti_torch_dtype_float8_e5m2(), SILO_FP8_E5M2},
        {aoti_torch_dtype_float8_e4m3fnuz(), SILO_FP8_E4M3FNUZ},
        {aoti_torch_dtype_float8_e5m2fnuz(), SILO_FP8_E5M2FNUZ},
    }};
    for (const entry &row : table)
        if (row.dtype == dtype)
            return row.element;
    return 0;
}

/* The function in torch's GPU library that returns the current stream; NULL if torch lacks GPU
 * support. The library is opened by its name: torch does not load it globally, so that dlsym
 * without the library would not find the function. */
struct gpu_library {
    using stream_of = AOTITorchError (*)(int32_t device, void **stream);

    int32_t device = SILO_CUDA;
    stream_of current = nullptr;

    gpu_library() {
        const std::pair<const char *, int32_t> names[] = {{"libtorch_cuda.so", SILO_CUDA},
                                                          {"libtorch_hip.so", SILO_ROCM}};
        for (const auto &[name, kind] : names) {
            void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
            if (handle == nullptr)
                continue;
            current =
                reinterpret_cast<stream_of>(dlsym(handle, "aoti_torch_get_current_cuda_stream"));
            device = kind;
            dlclose(handle); /* releases only this reference: torch keeps the library loaded */
            break;
        }
    }
};

inline const gpu_library &gpu() {
    static const gpu_library library;
    return library;
}

/* Calls an operator of torch that takes a tensor first and returns a tensor or a bool. Returns
 * false if torch raises an error. */
template <size_t Count>
bool call_operator(const char *name, AtenTensorHandle tensor,
                   std::array<StableIValue, Count> &stack) {
    AtenTensorHandle reference = nullptr; /* freed by the operator */
    check(aoti_torch_new_tensor_handle(tensor, &reference), "a reference");
    stack[0] = torch::stable::detail::from(reference);
    return torch_call_dispatcher(name, "", stack.data(), TORCH_ABI_VERSION) == TORCH_SUCCESS;
}

/* Returns whether a tensor is the result of an operation that autograd recorded (not a leaf). */
inline bool is_result(AtenTensorHandle tensor) {
    std::array<StableIValue, 1> stack{};
    return !(call_operator("aten::is_leaf", tensor, stack) &&
             torch::stable::detail::to<bool>(stack[0]));
}

/* Marks a tensor as modified, as torch's operators do with their outputs. To do so it transposes
 * the tensor in place with both axes equal, which changes nothing else. Returns false for a leaf
 * that requires a gradient, and for a tensor made in inference mode if this is called outside of
 * inference mode. */
inline bool modified(AtenTensorHandle tensor) {
    std::array<StableIValue, 3> stack{};
    if (!call_operator("aten::transpose_", tensor, stack))
        return false;
    const auto same = torch::stable::detail::to<AtenTensorHandle>(stack[0]);
    check(aoti_torch_delete_tensor_object(same), "a reference");
    return true;
}

/* ---- one call ---- */

constexpr size_t most_parameters = 256; /* the limit for kernels in all of Silo */

class call {
  public:
    explicit call(const operation &of) : operation_(of) {
        if (of.count > 0)
            places_ = static_cast<size_t>(of.parameters[of.count - 1].place) + 1;
        for (size_t i = 0; i < places_; i++)
            arguments_[i] = silo_absent_argument();
        for (size_t i = 0; i < of.count; i++)
            tensors_[i] = nullptr;
    }
    call(const call &) = delete;
    call &operator=(const call &) = delete;

    /* A boxed operator must free its arguments. */
    ~call() {
        for (size_t i = 0; i < operation_.count; i++)
            if (tensors_[i] != nullptr)
                aoti_torch_delete_tensor_object(tensors_[i]);
    }

    /* Takes all arguments off the stack before checking any, so that none leaks after an error. */
    void run(StableIValue *stack) {
        size_t at = 0;
        for (uint32_t i = 0; i < operation_.count; i++)
            take(operation_.parameters[i], i, stack[at++]);
        for (uint32_t i = 0; i < operation_.count; i++)
            if (operation_.parameters[i].type == given::descriptor)
                blocks_.emplace_back(i, list(stack[at++]));
        const auto grid = list(stack[at]);
        for (uint32_t i = 0; i < operation_.count; i++)
            if (tensors_[i] != nullptr)
                read(operation_.parameters[i], tensors_[i]);
        for (const auto &[index, block] : blocks_)
            set_block(operation_.parameters[index], block);
        launch(grid);
    }

  private:
    using integers = std::optional<std::vector<int64_t>>;

    static integers list(StableIValue value) {
        return torch::stable::detail::to<integers>(value);
    }

    template <class T> static std::optional<T> value_of(bool optional, StableIValue value) {
        if (optional)
            return torch::stable::detail::to<std::optional<T>>(value);
        return torch::stable::detail::to<T>(value);
    }

    void take(const parameter &of, uint32_t index, StableIValue value) {
        silo_argument &argument = arguments_[of.place];
        switch (of.type) {
        case given::tensor:
        case given::descriptor:
            if (const auto content = value_of<AtenTensorHandle>(of.optional, value))
                tensors_[index] = *content;
            else
                argument = silo_none();
            return;
        case given::integer:
            if (const auto content = value_of<int64_t>(of.optional, value))
                argument = silo_int(*content);
            else
                argument = silo_none();
            return;
        case given::real:
            if (const auto content = value_of<double>(of.optional, value))
                argument = silo_float(*content);
            else
                argument = silo_none();
            return;
        case given::boolean:
            if (const auto content = value_of<bool>(of.optional, value))
                argument = silo_bool(*content);
            else
                argument = silo_none();
            return;
        case given::dtype:
            if (const auto content = value_of<int32_t>(of.optional, value))
                argument = silo_type(element_of(*content));
            else
                argument = silo_none();
            return;
        case given::text:
            if (auto content = value_of<std::string>(of.optional, value)) {
                texts_.push_back(std::make_unique<std::string>(std::move(*content)));
                argument = silo_text(texts_.back()->c_str());
            } else {
                argument = silo_none();
            }
            return;
        }
    }

    void read(const parameter &of, AtenTensorHandle handle) {
        int32_t dtype = 0, type = 0, index = 0, layout = 0;
        int64_t rank = 0, *shape = nullptr, *strides = nullptr;
        check(aoti_torch_get_layout(handle, &layout), "the layout");
        if (layout != aoti_torch_layout_strided())
            fail(of, "is not strided; kernels take dense tensors");
        check(aoti_torch_get_dtype(handle, &dtype), "the dtype");
        const int element = element_of(dtype);
        if (element == 0)
            fail(of, "has a dtype that no kernel takes");
        check(aoti_torch_get_device_type(handle, &type), "the device");
        check(aoti_torch_get_device_index(handle, &index), "the device");
        place(of, type, index);
        check(aoti_torch_get_dim(handle, &rank), "the shape");
        check(aoti_torch_get_sizes(handle, &shape), "the shape");
        check(aoti_torch_get_strides(handle, &strides), "the strides");
        const void *data = nullptr;
        if (of.writes) {
            if ((aoti_torch_grad_mode_is_enabled() && is_result(handle)) || !modified(handle))
                fail(of, "is written, and torch does not allow that: it requires a gradient, "
                         "which nothing written by a kernel has (torch.no_grad, or another "
                         "tensor), or was made in inference mode");
            void *writable = nullptr;
            check(torch_get_mutable_data_ptr(handle, &writable), "the memory");
            data = writable;
        } else {
            check(torch_get_const_data_ptr(handle, &data), "the memory");
        }
        silo_argument &argument = arguments_[of.place];
        argument = silo_array(data, element, static_cast<int>(rank), shape, strides);
        if (of.type == given::descriptor)
            argument.kind = SILO_ARGUMENT_DESCRIPTOR;
    }

    void set_block(const parameter &of, const integers &block) {
        silo_argument &argument = arguments_[of.place];
        if (!block || argument.kind != SILO_ARGUMENT_DESCRIPTOR)
            return;
        if (block->size() != static_cast<size_t>(argument.rank))
            fail(of, "has another rank than its block");
        argument.block = block->data();
    }

    void place(const parameter &of, int32_t type, int32_t index) {
        if (first_ == nullptr) {
            first_ = &of;
            type_ = type;
            index_ = index;
        } else if (type != type_ || index != index_) {
            fail(of, std::string("is on ") + where(type, index) + " and '" + first_->name +
                         "' on " + where(type_, index_) +
                         "; all arrays of one call are on one device");
        }
    }

    static std::string where(int32_t type, int32_t index) {
        if (type == aoti_torch_device_type_cpu())
            return "cpu:0";
        const bool is_gpu = type == aoti_torch_device_type_cuda();
        return (is_gpu ? "cuda:" : "another device:") + std::to_string(index);
    }

    void launch(const integers &grid) {
        silo_queue queue{SILO_CPU, 0, nullptr};
        if (first_ == nullptr)
            throw std::runtime_error(
                std::string(operation_.name) +
                ": no argument is a tensor, so nothing says on which device to run");
        if (type_ != aoti_torch_device_type_cpu()) {
            if (type_ != aoti_torch_device_type_cuda() || gpu().current == nullptr)
                fail(*first_, "is on a device on which no kernel runs");
            queue.device = gpu().device;
            queue.index = index_;
            check(gpu().current(index_, &queue.stream), "the stream of the device");
        }
        int64_t dimensions[3] = {1, 1, 1};
        if (grid && (grid->empty() || grid->size() > 3))
            throw std::runtime_error(std::string(operation_.name) +
                                     ": a grid is one to three integers");
        for (size_t i = 0; grid && i < grid->size(); i++)
            dimensions[i] = (*grid)[i];
        const silo_call options{dimensions, nullptr, 0};
        const silo_framework *const library = operation_.library();
        silo_error error;
        error.details = nullptr;
        silo_kernel *const kernel = library->kernel(operation_.at, &error);
        if (kernel == nullptr)
            raise(*library, error);
        if (library->launch(kernel, &queue, arguments_, places_, grid ? &options : nullptr,
                            &error) != 0)
            raise(*library, error);
    }

    [[noreturn]] void fail(const parameter &of, const std::string &why) const {
        throw std::runtime_error(std::string(operation_.name) + ": argument '" + of.name + "' " +
                                 why);
    }

    [[noreturn]] static void raise(const silo_framework &library, silo_error &error) {
        std::string text = error.text;
        if (error.details != nullptr)
            text += std::string("\n") + error.details;
        library.clear(&error);
        throw std::runtime_error(text);
    }

    const operation &operation_;
    size_t places_ = 0;
    AtenTensorHandle tensors_[most_parameters];
    silo_argument arguments_[most_parameters];
    std::vector<std::unique_ptr<std::string>> texts_;
    std::vector<std::pair<uint32_t, integers>> blocks_;
    const parameter *first_ = nullptr; /* the first tensor, which decides the device */
    int32_t type_ = 0, index_ = 0;
};

/* The boxed function that torch calls for an operator. */
template <const operation &of> void boxed(StableIValue *stack, uint64_t, uint64_t) {
    call(of).run(stack);
}

} // namespace silo_torch

#endif
