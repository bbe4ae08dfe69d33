#pragma once
#include "../emulator/matmul2d.h"
#include <metal_tensor>
