/* The header cuda_fp16.h under HIP's name. */
#pragma once

#include <cuda_fp16.h>
