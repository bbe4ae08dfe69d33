#pragma once
#include <MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h>
