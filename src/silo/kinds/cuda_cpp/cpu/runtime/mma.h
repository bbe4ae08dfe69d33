#pragma once
#error "wmma (mma.h) does not run on the CPU"
