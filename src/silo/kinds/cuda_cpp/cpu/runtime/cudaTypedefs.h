#pragma once
#error "a tensor map (cudaTypedefs.h) does not run on the CPU"
