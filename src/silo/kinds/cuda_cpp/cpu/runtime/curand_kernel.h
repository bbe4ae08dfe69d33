#pragma once
#error "curand does not run on the CPU"
