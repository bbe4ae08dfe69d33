/* The same under the name that HIP has. */
#pragma once

#include <cuda_fp16.h>
