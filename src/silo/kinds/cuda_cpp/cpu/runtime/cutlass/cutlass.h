#pragma once
#error "CUTLASS does not run on the CPU"
